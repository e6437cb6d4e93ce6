"""What goes wrong around a run, in code of the user's and in its callers: it ends in good order, and the next one works."""

from __future__ import annotations

import asyncio
import datetime
import itertools
import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import anyio
import pytest
from pydantic import BaseModel, field_validator

from callgate import (
    FunctionCall,
    Gate,
    Limits,
    Policy,
    ScriptedModel,
    ToolResult,
    UsageError,
    host,
    sessions,
    strict_json,
    tool,
)
from callgate.content.sanitize import sanitize_result
from callgate.errors import CallgateError, ConnectionLostError, MalformedAnswerError, OutputError, ProtocolError
from callgate.events import CallFinished, Notice, RunEnded
from callgate.history.repair import validate
from callgate.machine import facts
from callgate.permission import Hook, Rule
from callgate.store import MemoryStore
from callgate.testing import answer, call, call_with, malformed, text

NET_S = 60.0
ALLOW = Policy(default="allow")
ASK = Policy(default="allow", rules=["ask save"])


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs a story that leaves no task behind and loses no error."""
    lost: list[Any] = []

    async def bounded() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: lost.append(context))
        async with asyncio.timeout(NET_S):
            value = await work
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return value

    value = asyncio.run(bounded())
    assert lost == []
    return value


@tool
def save(name: str) -> str:
    """Saves something."""
    return f"saved {name}"


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryStore() if request.param == "memory" else tmp_path / "sessions.db"


def response_of(model: ScriptedModel, request: int = 1) -> Any:
    (part,) = [p for p in model.requests[request].contents[-1]["parts"] if "functionResponse" in p]
    return part["functionResponse"]["response"]


async def goes_on(gate: Gate, session: str = "s") -> None:
    """The session can be used: its history is valid, and the next run answers."""
    reply = await gate.run("And now?", session=session)
    assert (reply.text, reply.finish_reason) == ("Still here.", "STOP")
    assert validate(reply.contents) == []


# Whoever is asked ---------------------------------------------------------------------------------------------------------


def test_an_answer_that_somebody_cancels_is_a_no() -> None:
    model = ScriptedModel([call("save", name="a"), "Done.", "Still here."])
    waiting: list[asyncio.Future[Any]] = []

    async def approve(*about: Any) -> Any:
        waiting.append(asyncio.get_running_loop().create_future())
        asyncio.get_running_loop().call_soon(waiting[0].cancel)
        return await waiting[0]

    async def story() -> None:
        gate = Gate(model, [save], policy=ASK, approve=approve)
        reply = await gate.run("Go.", session="s")
        assert [record.state for record in reply.calls] == ["denied"]
        await goes_on(gate)

    run(story())
    assert "Asking failed (CancelledError)" in response_of(model)["error"]


UNUSABLE: dict[str, Any] = {
    "a path": Path("x"),
    "a time": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "a set": {"x"},
    "bytes": b"x",
    "not a number": float("nan"),
}


@pytest.mark.parametrize("value", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_call_edited_to_something_that_is_not_json_is_refused(value: Any, store: Any) -> None:
    model = ScriptedModel([call("save", name="a"), "Done.", "Still here."])

    async def story() -> None:
        async with Gate(
            model,
            [save],
            policy=ASK,
            store=store,
            approve=lambda wanted, *about: FunctionCall(name="save", args={"name": value}),
        ) as gate:
            reply = await gate.run("Go.", session="s")
            assert [record.state for record in reply.calls] == ["denied"]
            await goes_on(gate)
            assert (await sessions.load(gate.store, "s")).state == "idle"

    run(story())


@pytest.mark.parametrize("value", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_an_answer_with_something_that_is_not_json_is_an_error_and_the_question_stays(value: Any, store: Any) -> None:
    model = ScriptedModel([call("save", name="a"), "Done."])

    async def story() -> None:
        async with Gate(model, [save], policy=ASK, store=store, approve=lambda *about: "later") as gate:
            waiting = (await gate.run("Go.", session="s")).approvals[0].call
            with pytest.raises(UsageError, match="arguments cannot be used"):
                await gate.run(session="s", answers={waiting.id: FunctionCall(name="save", args={"name": value})})
            reply = await gate.run(session="s", answers={waiting.id: "yes"})
            assert [record.state for record in reply.calls] == ["finished"]

    run(story())


def test_answers_with_a_prompt_are_refused_before_anything_is_journalled(store: Any) -> None:
    model = ScriptedModel([call("save", name="a"), "Done."])

    async def story() -> None:
        async with Gate(model, [save], policy=ASK, store=store, approve=lambda *about: "later") as gate:
            waiting = (await gate.run("Go.", session="s")).approvals[0].call
            before = await gate.store.load("s")
            for wrong in ({"prompt": "And?"}, {"history": []}):
                with pytest.raises(UsageError, match="answers="):
                    await gate.run(session="s", answers={waiting.id: "yes"}, **wrong)
            for unusable in ({"nope": "yes"}, {waiting.id: "perhaps"}, {waiting.id: FunctionCall(name="other", args={})}):
                with pytest.raises(UsageError):
                    await gate.run(session="s", answers=unusable)  # pyright: ignore
            assert await gate.store.load("s") == before
            assert (await sessions.load(gate.store, "s")).state == "waiting"
            reply = await gate.run(session="s", answers={waiting.id: "yes"})
            assert [record.state for record in reply.calls] == ["finished"]

    run(story())


# Hooks --------------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="removes the working folder")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_working_folder_that_is_gone_costs_a_hook_and_nothing_else(
    when: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    model = ScriptedModel([call("save", name="a"), "Done.", "Still here."])
    notices: list[Notice] = []

    async def watch(event: Any) -> None:
        notices.extend([event] if isinstance(event, Notice) else [])

    async def story() -> None:
        gate = Gate(model, [save], policy=Policy(default="allow", hooks=(Hook(command=("true",), when=when),)))
        gone.rmdir()
        reply = await gate.run("Go.", session="s", watch=watch)
        assert [record.state for record in reply.calls] == ["finished"]
        await goes_on(gate)

    run(story())
    assert [notice.code for notice in notices] == ["hook"]
    assert "FileNotFoundError" in notices[0].message


def test_a_result_of_not_a_number_is_told_to_a_hook() -> None:
    @tool(name="save")
    def odd(name: str) -> ToolResult:
        """Gives a result of its own."""
        return ToolResult(call_id="", name="", status="finished", value=[float("nan"), float("inf")])

    model = ScriptedModel([call("save", name="a"), "Done.", "Still here."])

    async def story() -> None:
        gate = Gate(model, [odd], policy=Policy(default="allow", hooks=(Hook(command=("cat",), when="after"),)))
        assert [record.state for record in (await gate.run("Go.", session="s")).calls] == ["finished"]
        await goes_on(gate)

    run(story())


# Exporters ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["on_start", "on_end"])
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_a_span_processor_that_raises_costs_spans_and_nothing_else(
    where: str, kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = pytest.importorskip("opentelemetry.trace")
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    told: list[str] = []

    def broken(self: Any, *span: Any, **more: Any) -> None:
        told.append(where)
        raise kind("no disk")

    processor = type("Broken", (sdk.SpanProcessor,), {where: broken})()
    provider = sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    model = ScriptedModel([call("save", name="a"), "Done.", "Still here."])

    async def story() -> None:
        gate = Gate(model, [save], policy=ALLOW)
        assert [record.state for record in (await gate.run("Go.", session="s")).calls] == ["finished"]
        await goes_on(gate)

    run(story())
    assert len(told) >= 4


# What would end the program -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_would_end_the_program_ends_a_call_of_a_sync_run_alone(kind: type[BaseException]) -> None:
    @tool(name="save")
    async def interrupted(name: str) -> str:
        """Raises what would end the program."""
        raise kind

    async def approve(*about: Any) -> str:
        sys.exit(4)

    with Gate(ScriptedModel([call("save", name="a"), "Done.", "Still here."]), [interrupted], policy=ALLOW) as gate:
        assert [record.state for record in gate.run_sync("Go.", session="s").calls] == ["failed"]
        assert gate.run_sync("And now?", session="s").text == "Still here."
    asked = Gate(ScriptedModel([call("save", name="a"), "Done.", "Still here."]), [save], policy=ASK, approve=approve)
    with asked:
        assert [record.state for record in asked.run_sync("Go.", session="s").calls] == ["denied"]
        assert asked.run_sync("And now?", session="s").text == "Still here."


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_a_watcher_that_raises_ends_its_run_and_no_other(kind: type[BaseException]) -> None:
    async def watch(event: Any) -> None:
        if type(event).__name__ == "CallStarted":
            raise kind

    model = ScriptedModel([call("save", name="a"), "Still here."])

    async def story() -> None:
        gate = Gate(model, [save], policy=ALLOW)
        with pytest.raises((ValueError, CallgateError)):
            await gate.run("Go.", session="s", watch=watch)
        await goes_on(gate)

    run(story())


# Tools of the same name as callgate's own ---------------------------------------------------------------------------------


@tool
def find_tools(topic: str) -> list[int]:
    """Finds power drills."""
    return [1, 2]


@tool
def read_result(id: str) -> dict[str, str]:
    """Reads a result of a laboratory."""
    return {"glucose": id}


@tool
def long_result() -> str:
    """Says a lot."""
    return "word " * 20_000


def test_a_programs_own_find_tools_is_just_a_tool() -> None:
    model = ScriptedModel([call("find_tools", topic="drills"), "Done.", "Still here."])

    async def story() -> None:
        gate = Gate(model, [find_tools, save], policy=ALLOW)
        assert (await gate.run("Go.", session="s")).calls[0].result.value == [1, 2]
        await goes_on(gate)

    run(story())


def test_a_programs_own_find_tools_cannot_stand_beside_callgates() -> None:
    with pytest.raises(CallgateError, match="find_tools"):
        Gate(ScriptedModel([]), [find_tools, save], tools_shown=1)


@pytest.mark.parametrize("shown", [None, 5])
def test_a_programs_own_read_result_is_not_told_as_the_way_to_read_on(shown: int | None) -> None:
    model = ScriptedModel([call("long_result"), call_with("read_result", {"id": "7"}), "Done.", "Still here."])

    async def story() -> None:
        gate = Gate(model, [long_result, read_result], policy=ALLOW, tools_shown=shown)
        reply = await gate.run("Go.", session="s")
        assert reply.calls[1].result.value == {"glucose": "7"}
        await goes_on(gate)

    run(story())
    assert "read_result" not in strict_json.dump(model.requests[1].contents[-1]).decode()
    assert model.requests[1].tool_names.count("read_result") == 1


def test_a_long_result_can_be_read_on_where_the_program_has_no_read_result() -> None:
    model = ScriptedModel([call("long_result"), "Done."])
    run(Gate(model, [long_result], policy=ALLOW).run("Go."))
    assert "read_result" in strict_json.dump(model.requests[1].contents[-1]).decode()


# Types and results --------------------------------------------------------------------------------------------------------


@dataclass
class Colour:
    name: str

    def __post_init__(self) -> None:
        {"red": 1}[self.name]


@tool
def paint(colour: Colour) -> str:
    """Paints."""
    return colour.name


def test_a_type_that_raises_a_key_error_is_a_failed_call_that_says_so() -> None:
    model = ScriptedModel([call("paint", colour={"name": "blue"}), call("paint", colour={"name": "red"}), "Done."])
    reply = run(Gate(model, [paint], policy=ALLOW).run("Go."))
    assert [record.state for record in reply.calls] == ["failed", "finished"]
    assert "blue" in reply.calls[0].result.error


OWN_RESULTS: dict[str, tuple[ToolResult, str]] = {
    "not a number": (ToolResult(call_id="", name="", status="finished", value={"x": float("nan")}), "finished"),
    "an object": (ToolResult(call_id="", name="", status="finished", value=object()), "finished"),
    "success": (ToolResult(call_id="", name="", status="success", value=1), "failed"),  # pyright: ignore
    "a half of a character": (ToolResult(call_id="", name="", status="failed", error="\ud800"), "failed"),
    "of another call": (ToolResult(call_id="c9", name="other", status="finished", value=1), "finished"),
}


@pytest.mark.parametrize("kind", OWN_RESULTS)
def test_a_result_that_a_tool_made_itself_can_be_journalled_and_sent(kind: str, store: Any) -> None:
    given, status = OWN_RESULTS[kind]

    @tool(name="save")
    def own(name: str) -> ToolResult:
        """Gives a result of its own."""
        return given

    model = ScriptedModel([call("save", name="a"), "Done.", "Still here."])

    async def story() -> None:
        async with Gate(model, [own], policy=ALLOW, store=store) as gate:
            reply = await gate.run("Go.", session="s")
            assert [(record.state, record.result.name) for record in reply.calls] == [(status, "save")]
            await goes_on(gate)

    run(story())


# Callers that cancel ------------------------------------------------------------------------------------------------------


class Slow:
    """A tool that takes a while to clean up after its cancellation."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.is_clean = False
        self.scope: anyio.CancelScope | None = None
        """Its time is up when the tool has begun."""

    def tool(self) -> Any:
        @tool(name="save")
        async def save(name: str) -> None:
            """Takes its time."""
            self.begun.set()
            if self.scope is not None:
                self.scope.deadline = 0
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(20):
                    await asyncio.sleep(0)
                self.is_clean = True

        return save


async def ended_in_order(gate: Gate, slow: Slow) -> None:
    """The tool was waited for, its end is in the journal, and the next run hears nothing of a process that stopped."""
    assert slow.is_clean
    journal = await gate.store.load("s")
    assert [fact.result.status for fact in journal if isinstance(fact, facts.CallEnded)] == ["cancelled"]
    notices: list[str] = []

    async def watch(event: Any) -> None:
        notices.extend([event.code] if isinstance(event, Notice) else [])

    assert (await gate.run("And now?", session="s", watch=watch)).text == "Still here."
    assert not {"outcome_unknown", "run_again"} & {*notices}
    assert not any(isinstance(fact, facts.Recovered) for fact in await gate.store.load("s"))


async def by_run(gate: Gate) -> None:
    await gate.run("Go.", session="s")


async def by_stream(gate: Gate) -> None:
    async for _ in gate.stream("Go.", session="s"):
        pass


WAYS = pytest.mark.parametrize("way", [by_run, by_stream])


@WAYS
@pytest.mark.parametrize("scope", ["fail_after", "move_on_after", "cancel", "task"])
def test_a_caller_that_is_cancelled_waits_until_the_run_is_over(way: Callable[[Gate], Any], scope: str) -> None:
    async def story() -> None:
        slow = Slow()
        gate = Gate(ScriptedModel([call("save", name="a"), "Still here."]), [slow.tool()], policy=ALLOW)
        if scope == "fail_after":
            with pytest.raises(TimeoutError), anyio.fail_after(60) as slow.scope:
                await way(gate)
        elif scope == "move_on_after":
            with anyio.move_on_after(60) as slow.scope:
                await way(gate)
            assert slow.scope.cancelled_caught
        elif scope == "cancel":
            async with anyio.create_task_group() as group:
                group.start_soon(way, gate)
                await slow.begun.wait()
                group.cancel_scope.cancel()
        else:
            task = asyncio.create_task(way(gate))
            await slow.begun.wait()
            for _ in range(3):  # As somebody does who has lost patience.
                task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
        await ended_in_order(gate, slow)

    run(story())


def test_a_stream_that_is_left_in_a_cancelled_scope_waits_until_the_run_is_over() -> None:
    async def story() -> None:
        slow = Slow()
        gate = Gate(ScriptedModel([call("save", name="a"), "Still here."]), [slow.tool()], policy=ALLOW)
        with anyio.CancelScope() as scope:
            async for event in gate.stream("Go.", session="s"):
                if type(event).__name__ == "CallStarted":
                    await slow.begun.wait()
                    scope.cancel()
        assert scope.cancelled_caught
        for _ in range(100):  # The stream is closed by the garbage collector's hook, in a task of its own.
            if slow.is_clean and len(asyncio.all_tasks()) == 1:
                break
            await asyncio.sleep(0.01)  # clock: between two looks
        await ended_in_order(gate, slow)

    run(story())


EAGER = """
import asyncio, sys
from callgate import Gate, Policy, ScriptedModel, host, tool
from callgate.testing import call

@tool
async def inner(n: int) -> int:
    return n + 1

@tool
async def outer(n: int) -> int:
    return await host.call("inner", {"n": n})

@tool
def sync(n: int) -> int:
    return n

async def main():
    asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)
    script = [[call("outer", n=1), call("sync", n=5), call("inner", n=7)], "Done.", call("outer", n=2), "Done."]
    approve = lambda *about: "yes"
    gate = Gate(ScriptedModel(script), [inner, outer, sync], policy=Policy(default="ask"), approve=approve)
    print([record.result.value for record in (await gate.run("Go.", session="s")).calls])
    events = [event async for event in gate.stream("Again.", session="s")]
    print([record.result.value for record in events[-1].reply.calls])
    assert asyncio.all_tasks() == {asyncio.current_task()}

asyncio.run(asyncio.wait_for(main(), 30))
"""


def test_a_run_on_an_event_loop_with_eager_tasks_is_a_run() -> None:
    """Python has them since 3.12; an older one runs this with a newer one, if there is one."""
    python = newer_python()
    if python is None:
        pytest.skip("there is no Python of 3.12 or newer with what callgate needs")
    done = subprocess.run([python, "-c", EAGER], capture_output=True, text=True, timeout=NET_S, env=os.environ | PATHS)
    assert done.stdout.splitlines() == ["[2, 5, 8]", "[3]"], done.stderr


PATHS = {"PYTHONPATH": str(Path(strict_json.__file__).parents[1])}


def newer_python() -> str | None:
    if sys.version_info >= (3, 12):
        return sys.executable
    for path in sorted(Path.home().glob(".pyenv/versions/3.1[2-9].*/bin/python")):
        imports = "import callgate.run.run, pydantic_core"
        tried = subprocess.run([path, "-c", imports], capture_output=True, env=os.environ | PATHS)
        if tried.returncode == 0:
            return str(path)
    return None


# Long results -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_long_result_does_not_hold_up_the_event_loop() -> None:
    rows = [{"id": n, "name": f"row {n}", "price": n / 7, "tags": ["a", "b"]} for n in range(200_000)]
    began = time.thread_time()
    sanitize_result(rows, call=FunctionCall(name="table", id="1"))
    in_one_go_s = time.thread_time() - began

    @tool
    def table() -> list[Any]:
        """Gives a long table."""
        return rows

    async def story() -> float:
        gate = Gate(ScriptedModel([call("table"), "Done."]), [table], policy=ALLOW, limits=Limits(call_timeout_s=120))
        longest_s, is_over = 0.0, False

        async def beat() -> None:
            nonlocal longest_s
            while not is_over:
                since = time.thread_time()
                await asyncio.sleep(0)
                longest_s = max(longest_s, time.thread_time() - since)

        heart = asyncio.create_task(beat())
        reply = await gate.run("Go.")
        is_over = True
        await heart
        assert [record.state for record in reply.calls] == ["finished"]
        return longest_s

    assert run(story()) < in_one_go_s / 3


# Budgets ------------------------------------------------------------------------------------------------------------------


class Counting:
    """A model that calls a tool for ever, and sums up at length."""

    name = "counting"

    def __init__(self, calls: int = 10**9, summary: str = "long " * 5_000, tokens: int = 1_000) -> None:
        self.requests, self.summaries, self._calls, self._summary, self._tokens = 0, 0, calls, summary, tokens

    async def generate(self, request: Any) -> AsyncIterator[Any]:
        usage = {"promptTokenCount": self._tokens, "candidatesTokenCount": 10, "totalTokenCount": self._tokens + 10}
        self.requests += 1
        if request.stream is False and not request.definitions and request.tool_choice == "none":
            self.summaries += 1
            yield answer(text(self._summary), usage=usage)
        elif self.requests - self.summaries <= self._calls and request.tool_choice != "none":
            yield answer(call("big", n=self.requests), usage=usage)
        else:
            yield answer(text("Done."), usage=usage)


@tool
def big(n: int) -> str:
    """Gives a long text."""
    return f"{n} " + "x" * 30_000


EARLIER = [{"role": "user", "parts": [text("Hello.")]}, {"role": "model", "parts": [text("Hello to you.")]}]


@pytest.mark.parametrize("summary", ["long " * 5_000, "short", ""])
@pytest.mark.parametrize("tokens", [0, 100, 50_000])
def test_summaries_come_to_an_end(summary: str, tokens: int) -> None:
    model = Counting(summary=summary, tokens=tokens)
    limits = Limits(context_tokens=5_000, turns=6)
    reply = run(Gate(model, [big], policy=ALLOW, limits=limits).run("Go.", history=EARLIER))
    assert reply.turns <= 6
    assert 1 <= model.summaries <= 6
    assert model.requests <= 2 * 6
    assert validate(reply.contents) == []


class Malformed(Counting):
    """A model that can only sum up."""

    async def generate(self, request: Any) -> AsyncIterator[Any]:
        async for chunk in super().generate(request):
            is_call = "functionCall" in strict_json.dump(chunk).decode()
            yield malformed() if is_call and self.requests > 2 else chunk


def test_answers_that_cannot_be_used_make_no_more_summaries_than_turns() -> None:
    model = Malformed()
    limits = Limits(context_tokens=5_000, turns=3, retries_malformed=20)
    with pytest.raises(MalformedAnswerError):
        run(Gate(model, [big], policy=ALLOW, limits=limits).run("Go.", history=EARLIER))
    assert 1 <= model.summaries <= 3


def test_summaries_use_up_the_tokens_of_a_run() -> None:
    model = Counting(tokens=4_000)
    limits = Limits(context_tokens=5_000, run_tokens=30_000)
    reply = run(Gate(model, [big], policy=ALLOW, limits=limits).run("Go.", history=EARLIER))
    assert reply.finish_reason == "token_limit"
    assert model.summaries >= 1
    assert model.requests * 4_010 == reply.usage.total_tokens
    assert reply.usage.total_tokens < 30_000 + 4_010


# Several at once ----------------------------------------------------------------------------------------------------------


def test_every_call_of_a_turn_has_its_own_outcome_whatever_the_others_do() -> None:
    async def odd(kind: str) -> Any:
        """Ends in some way."""
        loop = asyncio.get_running_loop()
        if kind == "cancelled":
            future = loop.create_future()
            future.cancel()
            await future
        if kind == "interrupted":
            raise KeyboardInterrupt
        if kind == "exits":
            sys.exit(1)
        if kind == "hangs":
            await asyncio.Event().wait()
        return kind

    kinds = ["works", "cancelled", "interrupted", "exits", "hangs", "works too"]
    model = ScriptedModel([[call("odd", kind=kind) for kind in kinds], "Done.", "Still here."])

    async def story() -> list[Any]:
        gate = Gate(model, [odd], policy=ALLOW, limits=Limits(call_timeout_s=0.2))
        events = [event async for event in gate.stream("Go.", session="s")]
        await goes_on(gate)
        return events

    events = run(story())
    assert isinstance(events[-1], RunEnded)
    states = [record.state for record in events[-1].reply.calls]
    assert states == ["finished", "failed", "failed", "failed", "timed_out", "finished"]
    assert len([event for event in events if isinstance(event, CallFinished)]) == len(kinds)


class _Named(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def known(cls, name: str) -> str:
        return {"red": name}[name]


@dataclass
class _Leaving:
    name: str

    def __post_init__(self) -> None:
        raise SystemExit(3)


def test_a_validator_of_an_output_type_that_raises_anything_is_a_problem_for_the_model() -> None:
    model = ScriptedModel(['{"name": "blue"}', '{"name": "red"}'])
    assert asyncio.run(Gate(model).run("Which colour?", output=_Named)).output == _Named(name="red")
    model = ScriptedModel(['{"name": "blue"}'], repeat_last=True)
    with pytest.raises(OutputError, match="SystemExit: 3"):
        asyncio.run(Gate(model).run("Which colour?", output=_Leaving))


# What others are shown ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["approve", "ApprovalNeeded", "CallStarted", "CallProposed"])
def test_whoever_is_shown_a_call_cannot_change_what_runs(where: str) -> None:
    ran: list[str] = []

    @tool
    def send(to: str, more: list[str]) -> str:
        """Sends."""
        ran.extend([to, *more])
        return "sent"

    def change(made: FunctionCall) -> None:
        cast("dict[str, Any]", made.args)["to"] = "boss"
        made.args["more"].append("boss")

    async def approve(made: FunctionCall, definition: Any, reason: str) -> str:
        if where == "approve":
            change(made)
        return "yes"

    async def watch(event: Any) -> None:
        if type(event).__name__ == where:
            change(event.call)

    deny = Rule(verdict="deny", tool="send", args={"to": "boss*"})
    gate = Gate(
        ScriptedModel([call("send", to="ann", more=["bob"]), "Done."]), [send],
        policy=Policy(rules=[deny, "ask send"]), approve=approve,
    )  # fmt: skip
    reply = asyncio.run(gate.run("Go.", watch=watch))
    assert ran == ["ann", "bob"]
    assert reply.calls[0].call.args == {"to": "ann", "more": ["bob"]}


def test_a_call_that_is_changed_in_place_and_returned_is_an_edited_one() -> None:
    async def approve(made: FunctionCall, definition: Any, reason: str) -> FunctionCall:
        cast("dict[str, Any]", made.args)["name"] = "b"
        return made

    deny = Rule(verdict="deny", tool="save", args={"name": "b"})
    model = ScriptedModel([call("save", name="a"), "Done."])
    gate = Gate(model, [save], policy=Policy(rules=[deny, "ask save"]), approve=approve)
    assert [record.state for record in asyncio.run(gate.run("Go.")).calls] == ["denied"]


def test_nobody_is_asked_about_a_call_of_a_run_that_was_cancelled() -> None:
    began = asyncio.Event()

    @tool
    async def outer(x: int) -> int:
        """Calls another one."""
        began.set()
        return await host.call("inner", {"x": x})

    @tool
    async def inner(x: int) -> int:
        """Is called."""
        return x

    async def story() -> tuple[list[str], list[int], list[Any]]:
        asked, seen, questions = asyncio.Event(), list[str](), list[int]()

        async def approve(made: FunctionCall, definition: Any, reason: str) -> str:
            questions.append(made.args["x"])
            if made.name == "outer" and made.args["x"] == 2:
                await began.wait()
                for _ in range(100):  # The inner call comes before the third one into the line for the next question.
                    await asyncio.sleep(0)
            if made.name == "inner":
                asked.set()
                await asyncio.Event().wait()
            return "always" if made.args["x"] == 3 else "yes"

        async def watch(event: Any) -> None:
            seen.append(type(event).__name__)

        model = ScriptedModel([[call("outer", x=1), call("outer", x=2), call("outer", x=3)], "Done."])
        gate = Gate(model, [outer, inner], policy=Policy(default="ask"), approve=approve)
        task = asyncio.create_task(gate.run("Go.", session="s", watch=watch))
        await asked.wait()
        gate.cancel("s")
        await task
        return seen, questions, await gate.session_rules("s")

    seen, questions, rules = asyncio.run(story())
    assert (seen[-1], 3 in questions, rules) == ("RunEnded", False, [])


def test_a_call_that_is_answered_with_later_goes_on_waiting() -> None:
    async def later(made: FunctionCall, definition: Any, reason: str) -> str:
        return "later"

    async def story() -> tuple[Any, Any, Any]:
        model = ScriptedModel([[call("save", name="a"), call("save", name="b")], "Done."])
        gate = Gate(model, [save], policy=Policy(default="ask"), approve=later)
        first, second = (await gate.run("Go.", session="s")).approvals
        paused = await gate.run(session="s", answers={first.call.id: "later", second.call.id: "yes"})
        ended = await gate.run(session="s", answers={first.call.id: "yes"})
        return paused, ended, first.call.id

    paused, ended, waiting = asyncio.run(story())
    assert (paused.finish_reason, [record.call.id for record in paused.approvals]) == ("approval_needed", [waiting])
    assert [record.state for record in ended.calls] == ["finished", "finished"]


def test_an_approve_that_makes_a_call_itself_is_answered() -> None:
    @tool
    async def outer() -> str:
        """Calls another one."""
        return await host.call("pay", {})

    @tool
    def pay() -> str:
        """Pays."""
        return "paid"

    @tool
    def balance() -> int:
        """Is asked about, too."""
        return 7

    async def approve(made: FunctionCall, definition: Any, reason: str) -> str:
        if made.name == "pay":
            assert await host.call("balance", {}) == 7
        return "yes"

    model = ScriptedModel([call("outer"), "Done."])
    gate = Gate(model, [outer, pay, balance], policy=Policy(rules=["ask pay", "ask balance"]), approve=approve)
    assert [record.result.value for record in asyncio.run(gate.run("Go.")).calls] == ["paid"]


def test_generators_that_never_end_are_cut() -> None:
    @tool
    def counts() -> Iterator[int]:
        """Counts."""
        yield from itertools.count()

    @tool
    async def repeats() -> AsyncIterator[int]:
        """Says the same for ever, and never waits."""
        while True:
            yield 1

    model = ScriptedModel([[call("counts"), call("repeats")], "Done."])
    gate = Gate(model, [counts, repeats], limits=Limits(call_timeout_s=300.0))
    results = [record.result for record in asyncio.run(gate.run("Go.")).calls]
    assert [(result.status, len(result.value) > 900_000, bool(result.notes)) for result in results] == [
        ("finished", True, True)
    ] * 2


@pytest.mark.parametrize("item", [None, "x", 5, ["a"]], ids=repr)
def test_a_model_that_yields_what_is_no_chunk_ends_the_run_with_an_error_that_names_it(item: Any) -> None:
    class Odd:
        name = "odd"

        async def generate(self, request: Any) -> AsyncGenerator[Any]:
            yield item

    async def story() -> list[Any]:
        return [event async for event in Gate(Odd()).stream("Go.")]

    with pytest.raises(ProtocolError, match=f"model 'odd' yielded a '{type(item).__name__}'"):
        asyncio.run(story())


@pytest.mark.parametrize("mode", ["auto", "native"])
def test_a_model_whose_answer_cannot_be_read_in_pieces_is_refused_by_its_name(mode: Any) -> None:
    class Whole:
        name = "whole"

        async def generate(self, request: Any) -> dict[str, Any]:
            return {"candidates": []}

    with pytest.raises(UsageError, match=r"generate\(\) of model 'whole' returned a 'coroutine': write it as `async def`"):
        asyncio.run(Gate(cast("Any", Whole()), mode=mode).run("Go."))


# --- what a model, an approval or a store has cancelled itself -----------------------------------------------------------


class GaveUp:
    """A model whose own request is cancelled, as by a client that was closed."""

    name = "gave-up"

    async def generate(self, request: Any) -> AsyncIterator[Any]:
        request = asyncio.get_running_loop().create_future()
        request.cancel()
        yield await request


def test_a_model_that_cancels_its_own_request_is_an_error_and_no_cancellation(store: Any) -> None:
    async def story() -> None:
        async with Gate(cast("Any", GaveUp()), store=store) as gate:
            with pytest.raises(ConnectionLostError, match="'gave-up' gave the request up"):
                await gate.run("Go.", session="s")
            await goes_on(gate.with_options(ScriptedModel(["Still here."])))

    run(story())


def test_runs_of_a_model_that_cancels_its_own_requests_are_errors_in_their_places() -> None:
    replies = run(Gate(cast("Any", GaveUp())).run_many(["a", "b", "c"], parallel=1, return_errors=True))
    assert [type(reply) for reply in replies] == [ConnectionLostError] * 3


def test_the_next_model_of_a_chain_answers_for_one_that_cancels_its_own_request() -> None:
    reply = run(Gate([cast("Any", GaveUp()), ScriptedModel(["Done."])]).run("Go."))
    assert reply.text == "Done."


class CancelledStore(MemoryStore):
    async def acquire(self, *given: Any, **named: Any) -> Any:
        raise asyncio.CancelledError


def test_a_store_that_cancels_itself_is_an_error_and_no_cancellation() -> None:
    async def story() -> None:
        with pytest.raises(CallgateError, match="something that it waited for was cancelled"):
            await Gate(ScriptedModel(["Done."]), store=CancelledStore()).run("Go.")

    run(story())


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.filterwarnings("ignore:approve failed")
def test_an_approval_that_raises_generator_exit_is_a_no(is_async: bool) -> None:
    async def later(*question: Any) -> str:
        raise GeneratorExit

    def at_once(*question: Any) -> str:
        raise GeneratorExit

    model = ScriptedModel([call("save", name="a"), text("Done.")])
    reply = run(Gate(model, [save], policy=ASK, approve=later if is_async else at_once).run("Go."))
    assert ([record.state for record in reply.calls], reply.text) == (["denied"], "Done.")


def test_answers_that_are_not_by_call_id_are_a_usage_error() -> None:
    with pytest.raises(UsageError, match="answers= must be a dict"):
        run(Gate(ScriptedModel(["Done."])).run(session="s", answers=cast("Any", ["call_1"])))
