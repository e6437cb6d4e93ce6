"""RunningCall calls: every one gets exactly one result, whatever the tool does."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Coroutine, Iterator
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator

from callgate import Executor, FunctionCall, Limits, Media, ToolContext, ToolDefinition, ToolError, ToolResult, tool
from callgate.errors import ToolNotDeclarableError, UsageError
from callgate.threads import THREADS
from callgate.tools.call import CallObserver, RunningCall


def run(work: Coroutine[Any, Any, Any], seconds: float = 30) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


def call_of(name: str, /, **args: Any) -> FunctionCall:
    return FunctionCall(name=name, args=args, id=f"id_{name}")


def result_of(function: Any, /, limits: Limits | None = None, **args: Any) -> ToolResult:
    executor = Executor([function], limits=limits)
    return run(executor.execute(call_of(executor.definitions[0].name, **args)))


@pytest.fixture
def hung() -> Iterator[threading.Event]:
    """Something to hang on; let go at the end, so that no test leaves a thread behind for the next."""
    release = threading.Event()
    yield release
    release.set()
    while THREADS.abandoned:
        threading.Event().wait(0.01)


# Values -----------------------------------------------------------------------------------------------------------------


def test_a_sync_function_gives_its_value():
    def add(a: int, b: int = 2) -> int:
        return a + b

    result = result_of(add, a=1)
    assert (result.call_id, result.name, result.status, result.value, result.error) == ("id_add", "add", "finished", 3, None)
    assert not result.is_error
    assert result.duration_s >= 0


def test_an_async_function_gives_its_value():
    async def greet(name: str) -> str:
        await asyncio.sleep(0)
        return f"hello {name}"

    assert result_of(greet, name="you").value == "hello you"


def test_arguments_arrive_as_the_declared_types():
    import datetime

    def age(born: datetime.date) -> str:
        return type(born).__name__

    assert result_of(age, born="2000-01-31").value == "date"


def test_generators_give_the_list_of_what_they_yield():
    def count(n: int) -> Any:
        yield from range(n)

    async def count_async(n: int) -> Any:
        for i in range(n):
            yield i

    assert result_of(count, n=3).value == [0, 1, 2]
    assert result_of(count_async, n=3).value == [0, 1, 2]


def test_a_sync_wrapper_of_an_async_function_is_awaited():
    async def inner() -> int:
        return 7

    def outer() -> Any:
        return inner()

    assert result_of(outer).value == 7


def test_media_become_parts_with_a_reference():
    def draw() -> Any:
        return {"picture": Media(data=b"png", mime_type="image/png")}

    result = result_of(draw)
    assert result.value == {"picture": {"$ref": "media_1.png"}}
    assert [part["inlineData"]["mimeType"] for part in result.media] == ["image/png"]


def test_a_tool_may_say_more_than_a_value():
    def look() -> Any:
        return ToolResult(call_id="", name="", status="failed", error="Not today.", notes=("try tomorrow",))

    result = result_of(look)
    assert (result.call_id, result.name, result.status, result.notes) == ("id_look", "look", "failed", ("try tomorrow",))


def test_values_that_are_not_json_are_made_so():
    def numbers() -> Any:
        return {"nan": float("nan"), "set": {2, 1}}

    assert result_of(numbers).value == {"nan": "NaN", "set": [1, 2]}


# What goes wrong --------------------------------------------------------------------------------------------------------


def test_a_tool_error_is_a_sentence_for_the_model():
    def book() -> None:
        raise ToolError("The hotel is full; try another date.")

    result = result_of(book)
    assert (result.status, result.error) == ("failed", "The hotel is full; try another date.")


def test_a_tool_error_without_words_is_still_an_error():
    def book() -> None:
        raise ToolError

    assert result_of(book).error == "The tool failed without saying why."


def test_any_other_exception_gives_its_type_and_first_line_without_paths_and_is_logged_in_full(
    caplog: pytest.LogCaptureFixture,
):
    def read() -> None:
        raise OSError("cannot open /home/someone/secret/plan.txt\nsecond line")

    with caplog.at_level(logging.ERROR, "callgate.tools.executor"):
        result = result_of(read)
    assert result.error == "OSError: cannot open plan.txt"
    assert "/home/someone/secret/plan.txt" in caplog.text
    assert "Traceback" in caplog.text


def test_words_of_an_exception_can_always_be_written_down():
    def fail() -> None:
        raise ToolError("bad \udcff byte")

    assert result_of(fail).error == "bad \ufffd byte"


def test_an_exception_without_words_gives_its_type():
    async def fail() -> None:
        raise KeyError

    assert result_of(fail).error == "KeyError"


def test_ending_the_program_in_a_tool_only_ends_the_call():
    def leave() -> None:
        sys.exit(3)

    async def leave_async() -> None:
        sys.exit(3)

    def stop() -> None:
        raise StopIteration("odd")

    assert result_of(leave).error == "The tool failed with SystemExit: 3."
    assert result_of(leave_async).error == "The tool tried to end the program (exit code 3)."
    assert result_of(stop).error == "The tool failed with StopIteration: odd."


def test_a_tool_that_cancels_itself_has_failed():
    async def quit_() -> None:
        raise asyncio.CancelledError

    assert result_of(quit_).status == "failed"


def test_an_unknown_name_is_answered_with_near_names():
    def get_weather(city: str) -> str:
        return city

    result = run(Executor([get_weather]).execute(call_of("get_wether", city="Oslo")))
    assert result.error == "There is no tool named 'get_wether'. Did you mean 'get_weather'?"


def test_a_prefix_that_models_invent_is_seen_through():
    def echo(text: str) -> str:
        return text

    result = run(Executor([echo]).execute(call_of("default_api.echo", text="hi")))
    assert (result.name, result.value) == ("echo", "hi")


def test_an_executor_without_tools_says_so():
    assert run(Executor().execute(call_of("x"))).error == "There is no tool named 'x'. There are no tools."


def test_wrong_arguments_are_refused_before_the_tool_runs():
    ran: list[int] = []

    def add(a: int) -> None:
        ran.append(a)

    result = result_of(add, a="three")
    assert result.status == "failed"
    assert result.error is not None
    assert result.error.startswith("The arguments of 'add' are not valid: ")
    assert ran == []


def test_missing_arguments_are_named():
    def add(a: int, b: int) -> int:
        return a + b

    assert "'b' is required" in (result_of(add, a=1).error or "")


def test_what_a_types_own_validator_refuses_is_refused_before_the_run():
    def even(n: int) -> int:
        if n % 2:
            raise ValueError("must be even")
        return n

    def half(n: Annotated[int, AfterValidator(even)]) -> int:
        return n // 2

    assert result_of(half, n=4).value == 2
    assert "must be even" in (result_of(half, n=3).error or "")


def test_a_call_that_could_not_be_read_is_not_run():
    def echo() -> str:
        return "ran"

    broken = FunctionCall(name="echo", id="x", problem="The arguments are not valid JSON.")
    assert run(Executor([echo]).execute(broken)).error == "The arguments are not valid JSON."


# Deadlines --------------------------------------------------------------------------------------------------------------


def test_an_async_tool_is_cancelled_at_its_deadline():
    ended: list[str] = []

    @tool(timeout_s=0.05)
    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cleaned up")

    result = result_of(wait)
    assert (result.status, ended) == ("timed_out", ["cleaned up"])
    assert result.error == "The call did not finish within 0.05 s. Whether it had its effect is not known."


def test_a_read_only_tool_that_timed_out_had_no_effect():
    @tool(timeout_s=0.05, read_only=True)
    async def wait() -> None:
        await asyncio.Event().wait()

    assert result_of(wait).error == "The call did not finish within 0.05 s."


def test_a_sync_tool_is_abandoned_at_its_deadline_counted_and_told_of(hung: threading.Event):
    seen: list[bool] = []

    @tool(timeout_s=0.05)
    def wait(context: ToolContext) -> None:
        hung.wait()
        seen.append(context.is_cancelled())

    result = result_of(wait)
    while Executor.abandoned() == 0:  # On a busy machine a call may be over before its thread begins.
        result = result_of(wait)
    assert result.status == "timed_out"
    assert result.error is not None
    assert "Its code may still be running." in result.error
    assert Executor.abandoned() == 1
    hung.set()
    while Executor.abandoned():
        threading.Event().wait(0.01)
    assert seen == [True]


def test_too_many_abandoned_threads_refuse_further_sync_calls(hung: threading.Event):
    @tool(timeout_s=0.02)
    def wait() -> None:
        hung.wait()

    def quick() -> int:
        return 1

    async def quick_async() -> int:
        return 1

    async def story() -> tuple[list[ToolResult], ToolResult, ToolResult]:
        executor = Executor([wait, quick, quick_async], limits=Limits(abandoned_threads=2))
        waits: list[ToolResult] = []
        while Executor.abandoned() < 2:  # On a busy machine a call may be over before its thread begins.
            waits.append(await executor.execute(call_of("wait")))
        return waits, await executor.execute(call_of("quick")), await executor.execute(call_of("quick_async"))

    waits, refused, fine = run(story())
    assert {result.status for result in waits} == {"timed_out"}
    assert refused.error == "Not run: 2 earlier calls went on after their deadline and still hold a thread each."
    assert fine.value == 1


def test_an_async_tool_that_swallows_its_cancellation_is_left_behind(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("callgate.tools.call.STOP_GRACE_S", 0.05)

    async def story() -> ToolResult:
        release = asyncio.Event()

        @tool(timeout_s=0.02)
        async def stubborn() -> None:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue

        result = await Executor([stubborn]).execute(call_of("stubborn"))
        release.set()
        await asyncio.sleep(0.01)  # clock: that nothing comes late has no event
        return result

    result = run(story())
    assert result.status == "timed_out"
    assert "Its code may still be running." in (result.error or "")


def test_the_deadline_of_the_limits_holds_where_a_tool_names_none():
    async def wait() -> None:
        await asyncio.Event().wait()

    assert result_of(wait, limits=Limits(call_timeout_s=0.05)).status == "timed_out"


def test_a_stopped_call_is_cancelled_with_the_reason():
    async def story() -> ToolResult:
        started = asyncio.Event()

        @tool(read_only=True)
        async def wait() -> None:
            started.set()
            await asyncio.Event().wait()

        running = Executor([wait]).start(call_of("wait"))
        assert isinstance(running, RunningCall)
        await started.wait()
        running.stop("Enough.")
        running.stop("Twice is the same.")
        return await running.wait()

    result = run(story())
    assert (result.status, result.error) == ("cancelled", "The call was cancelled while it was running. Enough.")


def test_cancelling_the_caller_cancels_the_tools():
    async def story() -> list[str]:
        events: list[str] = []
        started = asyncio.Event()

        async def wait() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                events.append("stopped")

        task = asyncio.create_task(Executor([wait]).execute_all([call_of("wait")]))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return events

    assert run(story()) == ["stopped"]


def test_a_hung_sync_tool_does_not_keep_the_program_from_ending():
    program = textwrap.dedent("""
        import asyncio, threading
        from callgate import Executor, FunctionCall, tool

        @tool(timeout_s=0.05)
        def hang():
            threading.Event().wait()

        print(asyncio.run(Executor([hang]).execute(FunctionCall(name="hang", id="1"))).status)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("timed_out\n", "", 0)


# Many calls -------------------------------------------------------------------------------------------------------------


def test_twenty_async_calls_really_overlap():
    async def story() -> list[ToolResult]:
        barrier = asyncio.Barrier(20)

        async def meet(i: int) -> int:
            await barrier.wait()
            return i

        executor = Executor([meet], limits=Limits(parallel=20))
        return await executor.execute_all([call_of("meet", i=i) for i in range(20)])

    assert [result.value for result in run(story())] == list(range(20))


def test_twenty_sync_calls_really_overlap():
    barrier = threading.Barrier(20, timeout=180)

    def meet(i: int) -> int:
        barrier.wait()
        return i

    executor = Executor([meet], limits=Limits(parallel=20))
    results = run(executor.execute_all([call_of("meet", i=i) for i in range(20)]))
    assert [result.value for result in results] == list(range(20))


def test_no_more_calls_run_at_once_than_the_limit_says():
    async def story() -> int:
        now = most = 0

        async def work() -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            now -= 1

        await Executor([work], limits=Limits(parallel=3)).execute_all([call_of("work")] * 12)
        return most

    assert run(story()) == 3


def test_ordered_tools_keep_their_order_while_others_run_beside_them():
    async def story() -> list[str]:
        log: list[str] = []
        free = asyncio.Event()

        @tool(sequential=True)
        async def write(i: int) -> None:
            log.append(f"write {i} begins")
            if i == 0:
                await free.wait()
            log.append(f"write {i} ends")

        async def read() -> None:
            log.append("read")
            free.set()

        await Executor([write, read]).execute_all([call_of("write", i=0), call_of("write", i=1), call_of("read")])
        return log

    assert run(story()) == ["write 0 begins", "read", "write 0 ends", "write 1 begins", "write 1 ends"]


def test_one_failing_call_does_not_disturb_its_siblings():
    def good(i: int) -> int:
        return i

    def bad() -> None:
        raise RuntimeError("no")

    results = run(
        Executor([good, bad]).execute_all([call_of("good", i=1), call_of("bad"), call_of("nope"), call_of("good", i=2)])
    )
    assert [result.status for result in results] == ["finished", "failed", "failed", "finished"]
    assert run(Executor().execute_all([])) == []


# Where tools run --------------------------------------------------------------------------------------------------------


def test_sync_tools_run_in_a_thread_and_may_ask_for_the_loops_own():
    def elsewhere() -> str:
        return threading.current_thread().name

    @tool(run_in="loop")
    def here() -> str:
        return threading.current_thread().name

    assert result_of(elsewhere).value == "callgate-tool"
    assert result_of(here).value == "MainThread"


def test_context_variables_reach_sync_and_async_tools():
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")

    def who() -> str:
        return tenant.get()

    async def who_async() -> str:
        return tenant.get()

    async def story() -> list[Any]:
        tenant.set("acme")
        return [
            result.value for result in await Executor([who, who_async]).execute_all([call_of("who"), call_of("who_async")])
        ]

    assert run(story()) == ["acme", "acme"]


def test_threads_are_used_again_and_keep_nothing_of_the_last_call():
    class Big:
        pass

    alive: list[Any] = []

    def make() -> None:
        import weakref

        alive.append(weakref.ref(Big()))

    def name() -> int:
        return threading.get_ident()

    async def story() -> set[Any]:
        executor = Executor([make, name])
        await executor.execute(call_of("make"))
        return {(await executor.execute(call_of("name"))).value for _ in range(5)}

    assert len(run(story())) == 1
    gc.collect()
    assert alive[0]() is None


def test_progress_is_reported_from_any_thread():
    said: list[tuple[str, float | None]] = []
    ended: list[ToolResult] = []

    def work(context: ToolContext) -> str:
        context.progress("half", 0.5)
        assert context.name == "work"
        return context.call_id

    async def story() -> ToolResult:
        watch = CallObserver(progress=lambda message, fraction=None: said.append((message, fraction)), on_end=ended.append)
        return await Executor([work]).start(call_of("work"), watch).wait()

    result = run(story())
    assert (result.value, said, ended) == ("id_work", [("half", 0.5)], [result])


# Registration -----------------------------------------------------------------------------------------------------------


def test_definitions_come_in_the_order_of_registration():
    def b() -> None: ...

    def a() -> None: ...

    executor = Executor([b])
    executor.register(a)
    assert [d.name for d in executor.definitions] == ["b", "a"]
    assert ("a" in executor, "c" in executor, len(executor), repr(executor)) == (True, False, 2, "Executor(b, a)")


def test_registering_is_all_or_nothing():
    def a() -> None: ...

    def b() -> None: ...

    executor = Executor([a])
    with pytest.raises(ToolNotDeclarableError, match="a tool named 'a' is registered already"):
        executor.register(b, a)
    assert [d.name for d in executor.definitions] == ["a"]


def test_something_that_is_no_tool_is_refused():
    with pytest.raises(ToolNotDeclarableError, match="is not a tool"):
        Executor([42])
    with pytest.raises(ToolNotDeclarableError, match=r"this is a list: pass it itself, or unpack it with \*"):
        Executor([[len]])


def test_process_isolation_is_refused_for_a_function_that_no_other_process_can_import():
    @tool(isolation="process")
    def burn() -> None: ...

    with pytest.raises(UsageError, match="needs a function that another process can import"):
        Executor([burn])


def test_toolsets_and_runnables_are_tools_too():
    class Echo:
        definition = ToolDefinition(name="echo")

        def problems(self, args: Any) -> list[str]:
            return []

        async def run(self, args: Any, context: ToolContext) -> object:
            return context.name

    class Several:
        def runnables(self) -> list[Any]:
            return [Echo()]

    assert run(Executor([Several()]).execute(call_of("echo"))).value == "echo"


def test_the_clock_of_a_call_stands_still_while_a_tool_asks_somebody():
    async def asks(context: ToolContext) -> str:
        with context.paused(), context.paused():
            await asyncio.sleep(1.5)  # clock: longer than the limit of the call; more is as good
        return "asked"

    async def asks_and_dawdles(context: ToolContext) -> str:
        with context.paused():
            await asyncio.sleep(1.5)  # clock: longer than the limit of the call; more is as good
        await asyncio.sleep(60)
        return "never"

    def asks_in_a_thread(context: ToolContext) -> str:
        with context.paused():
            time.sleep(1.5)  # clock: longer than the limit of the call; more is as good
        return "asked"

    async def story() -> list[ToolResult]:
        executor = Executor([asks, asks_and_dawdles, asks_in_a_thread], limits=Limits(call_timeout_s=1.0))
        names = ["asks", "asks_and_dawdles", "asks_in_a_thread"]
        return await executor.execute_all([FunctionCall(name=name, args={}, id=name) for name in names])

    assert [result.status for result in asyncio.run(story())] == ["finished", "timed_out", "finished"]


def test_a_call_without_arguments_or_with_none_that_are_an_object_gets_a_result() -> None:
    def ping() -> str:
        return "pong"

    calls = [FunctionCall(name="ping", args=None), FunctionCall(name="ping", args=[1])]  # type: ignore[arg-type]
    results = asyncio.run(Executor([ping]).execute_all(calls))
    assert [(result.status, result.value) for result in results] == [("finished", "pong"), ("failed", None)]
    assert "must be an object, not list" in str(results[1].error)
