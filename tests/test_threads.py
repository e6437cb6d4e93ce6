"""Threads for sync functions: bounded, in order, and never in the way of the program's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Executor, FunctionCall, Gate, Limits, ScriptedModel, ToolError, host, threads
from callgate.testing import call, text
from callgate.threads import NOT_STARTED, NotStartedError, StillRunningError, Threads


def run(story: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(300):
            return await story()

    return asyncio.run(bounded())


class Gated:
    """A function that says that it has begun, and waits to be let go."""

    def __init__(self, value: object = None) -> None:
        self.begun, self.release, self.value = threading.Event(), threading.Event(), value

    def __call__(self) -> object:
        self.begun.set()
        assert self.release.wait(60)
        return self.value

    async def until_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, 60)


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Threads:
    """Threads of which two may be busy."""
    monkeypatch.setattr(threads, "BUSY_MAX", 2)
    return Threads()


@pytest.fixture
def pool(two: Threads, monkeypatch: pytest.MonkeyPatch) -> Iterator[Threads]:
    """The same, for tools too."""
    monkeypatch.setattr("callgate.tools.functions.THREADS", two)
    yield two
    assert (two._busy, two._waiting, two.abandoned) == (0, {}, 0)


def started(pool: Threads, function: Callable[[], object], abandoned_max: int | None = 9) -> asyncio.Task[object]:
    return asyncio.ensure_future(pool.run(function, abandoned_max=abandoned_max))


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_calls_beyond_the_bound_wait_and_run_in_order(two: Threads) -> None:
    async def story() -> None:
        order: list[int] = []
        held = [Gated(), Gated()]
        first = [started(two, one) for one in held]
        for one in held:
            await one.until_begun()
        waiting = [started(two, lambda number=number: order.append(number)) for number in range(5)]
        await settle()
        assert order == []
        held[0].release.set()
        await asyncio.gather(*waiting)
        assert order == list(range(5))
        held[1].release.set()
        await asyncio.gather(*first)

    run(story)


def test_a_call_that_is_cancelled_while_it_waits_never_begins(two: Threads) -> None:
    async def story() -> None:
        ran: list[int] = []
        held = [Gated(), Gated()]
        first = [started(two, one) for one in held]
        for one in held:
            await one.until_begun()
        given_up, kept = (started(two, lambda number=number: ran.append(number)) for number in range(2))
        await settle()
        given_up.cancel()
        with pytest.raises(NotStartedError):
            await given_up
        assert two.abandoned == 0
        for one in held:
            one.release.set()
        await asyncio.gather(kept, *first)
        assert ran == [1]

    run(story)


def test_an_abandoned_thread_is_busy_until_it_returns(two: Threads) -> None:
    async def story() -> None:
        held = [Gated(), Gated()]
        first = [started(two, one) for one in held]
        for one, task in zip(held, first, strict=True):
            await one.until_begun()
            task.cancel()
            with pytest.raises(StillRunningError):
                await task
        assert two.abandoned == 2
        waiting = started(two, lambda: "late")
        await settle()
        assert not waiting.done()
        held[0].release.set()
        assert await waiting == "late"
        assert two.abandoned == 1
        held[1].release.set()

    run(story)


def test_what_waits_for_a_person_is_not_counted(two: Threads) -> None:
    async def story() -> None:
        people = [Gated(number) for number in range(5)]
        asked = [started(two, person, None) for person in people]
        for person in people:
            await person.until_begun()
        assert await two.run(lambda: "tool", abandoned_max=1) == "tool"
        asked[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked[0]
        assert two.abandoned == 0
        for person in people:
            person.release.set()
        assert await asyncio.gather(*asked[1:]) == [1, 2, 3, 4]

    run(story)


def test_calls_of_a_loop_that_is_gone_are_not_run(two: Threads) -> None:
    async def story() -> None:
        ran: list[str] = []
        held, gone = [Gated(), Gated()], asyncio.new_event_loop()
        first = [started(two, one) for one in held]
        for one in held:
            await one.until_begun()
        two._submit(threads._Job(lambda: ran.append("gone"), gone, is_counted=True))
        gone.close()
        following = started(two, lambda: ran.append("next"))
        for one in held:
            one.release.set()
        await asyncio.gather(following, *first)
        assert ran == ["next"]

    run(story)


def test_a_thread_that_cannot_be_started_is_an_error_and_takes_no_place(
    two: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def story() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start)
            for _ in range(3):
                with pytest.raises(ToolError, match="there is no thread for it"):
                    await two.run(lambda: None, abandoned_max=9)
        assert await two.run(lambda: "again", abandoned_max=9) == "again"

    run(story)


# Tools -------------------------------------------------------------------------------------------------------------------


def test_a_call_whose_deadline_passes_while_it_waits_says_that_it_has_not_begun(pool: Threads) -> None:
    held, ran, together = Gated("held"), list[str](), threading.Barrier(3, timeout=60)

    def hold() -> object:
        together.wait()
        return held()

    def quick() -> None:
        ran.append("quick")

    async def story() -> None:
        patient = Executor([hold], limits=Limits(call_timeout_s=50))
        busy = [asyncio.create_task(patient.execute(FunctionCall(name="hold", id=str(n)))) for n in range(2)]
        await asyncio.to_thread(together.wait)
        result = await Executor([quick], limits=Limits(call_timeout_s=0.05)).execute(FunctionCall(name="quick", id="q"))
        assert (result.status, result.error) == ("timed_out", f"The call did not finish within 0.05 s. {NOT_STARTED}")
        held.release.set()
        assert [one.value for one in await asyncio.gather(*busy)] == ["held", "held"]

    run(story)
    assert ran == []


def test_tools_that_call_tools_do_not_wait_for_each_other_for_ever(pool: Threads) -> None:
    together = threading.Barrier(2, timeout=60)

    def outer(n: int) -> list[str]:
        together.wait()  # Both places are taken.
        return [host.call_sync("middle", {"n": n}) for _ in range(2)]

    def middle(n: int) -> str:
        return host.call_sync("inner", {"n": n})

    def inner(n: int) -> str:
        return f"inner {n}"

    async def story() -> None:
        script = [[call("outer", n=1), call("outer", n=2)], text("Done.")]
        reply = await Gate(ScriptedModel(script), [outer, middle, inner]).run("Go.")
        assert [one.result.value for one in reply.calls if one.result] == [["inner 1"] * 2, ["inner 2"] * 2]

    run(story)


def test_a_tool_lends_its_place_to_one_call_at_a_time(pool: Threads) -> None:
    seen, lock, busiest = list[int](), threading.Lock(), [0]
    together = threading.Barrier(2, timeout=60)

    def outer() -> list[str]:
        together.wait()
        asked = [host.ask_host("inner", {}) for _ in range(6)]
        return [one.result(60).value for one in asked]

    def inner() -> str:
        with lock:
            seen.append(1)
            busiest[0] = max(busiest[0], len(seen))
        threading.Event().wait(0.005)  # clock: others may come meanwhile
        with lock:
            seen.pop()
        return "in"

    async def story() -> None:
        script = [[call("outer"), call("outer")], text("Done.")]
        reply = await Gate(ScriptedModel(script), [outer, inner]).run("Go.")
        assert [one.result.value for one in reply.calls if one.result] == [["in"] * 6] * 2

    run(story)
    assert 1 <= busiest[0] <= 2


def test_many_runs_share_a_bounded_number_of_threads(pool: Threads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "BUSY_MAX", 4)
    used: set[int] = set()

    def work(n: int) -> int:
        used.add(threading.get_ident())
        threading.Event().wait(0.001)  # clock: others may come meanwhile
        return n

    async def story() -> None:
        script = [[call("work", n=n) for n in range(10)], text("Done.")]
        gates = [Gate(ScriptedModel(script), [work]) for _ in range(20)]
        replies = await asyncio.gather(*(gate.run("Go.") for gate in gates))
        assert {tuple(one.result.value for one in reply.calls if one.result) for reply in replies} == {tuple(range(10))}

    run(story)
    assert len(used) <= 4


# Error texts for a model --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sentence",
    [
        "unit must be km/h or m/s",
        "date must be 24/12/2026",
        "GET https://api.example.com/v1/users/7?x=1&next=/home/page failed",
        "POST /v1/items failed",
        "'/v1/items' is missing",
        "s3://bucket/home/x/y is gone",
        "TCP/IP and/or 1/2 of 10.0.0.0/8",
        "a relative src/main.py and ~/notes/x stay",
        r"the pattern \d+\w does not match",
    ],
)
def test_an_error_text_without_an_absolute_path_reaches_the_model_unchanged(sentence: str) -> None:
    assert threads.without_paths(sentence) == sentence
    assert threads.error_sentence(ValueError(sentence)) == f"ValueError: {sentence}"


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("cannot open /home/someone/secret/plan.txt", "cannot open plan.txt"),
        ("cannot open '/etc/passwd': no", "cannot open 'passwd': no"),
        ('File "/opt/app v2/main file.py", line 3', 'File "main file.py", line 3'),
        ("(/root/a/b.py) and PATH=/usr/bin:/usr/local/bin", "(b.py) and PATH=bin:bin"),
        (r"C:\Users\bob\x.txt is missing", "x.txt is missing"),
        (r"\\server\share\x.txt is missing", "x.txt is missing"),
        ("file:///home/bob/y.txt", "file://y.txt"),
    ],
)
def test_of_an_absolute_path_a_model_sees_the_last_name(sentence: str, shown: str) -> None:
    assert threads.without_paths(sentence) == shown


def test_a_folder_with_a_blank_that_exists_is_part_of_the_path(tmp_path: Path) -> None:
    (tmp_path / "my folder").mkdir()
    assert threads.without_paths(f"no {tmp_path}/my folder/x.txt here") == "no x.txt here"


def test_the_file_of_an_os_error_is_a_path_wherever_it_lies() -> None:
    error = FileNotFoundError(2, "No such file or directory", "/nosuch/place/x")
    assert threads.error_sentence(error) == "FileNotFoundError: [Errno 2] No such file or directory: 'x'"
