"""A run that is cancelled at any instant ends in one way: its reply says so, and nothing of the cancellation is left.

Each story is run again and again, and cancelled one step later each time, until the cancellation comes too late.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Limits, Policy, Reply, ScriptedModel, ToolContext, ToolDefinition, events
from callgate.errors import ServerUnavailableError, SessionLostError
from callgate.history.repair import validate
from callgate.machine.facts import Fact
from callgate.machine.machine import RunMachine
from callgate.store import Lease, MemoryStore, Store, open_store
from callgate.testing import answer, call, empty, malformed

WAIT_S = 60
"""For a machine that is busy with something else; nothing here takes long."""
Watch = Callable[[events.Event], Awaitable[None]]


async def look(city: str) -> str:
    """Looks out of the window."""
    await asyncio.sleep(0)
    return f"sun in {city}"


class Writer:
    """A tool that asks by default: it lives on a server and changes something."""

    definition = ToolDefinition(name="write", kind="mcp", server="files", input_schema={"type": "object"})

    def problems(self, args: Any) -> list[str]:
        return []

    async def run(self, args: Any, context: ToolContext) -> object:
        await asyncio.sleep(0)
        return "written"


async def approve(*_: Any) -> Any:
    await asyncio.sleep(0)
    return "yes"


async def later(*_: Any) -> Any:
    return "later"


CALLS = answer({"text": "Let me see. "}, call("look", city="Oslo"), call("write"), call("look", city="Rome"))
TYPE = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
# What the model says, who is asked, what the answer must fit, and how the run ends if nobody cancels it.
STORIES: dict[str, tuple[list[Any], Any, Any, str]] = {
    "text": (["One two three."], None, None, "STOP"),
    "calls": ([CALLS, call("look", city="Bonn"), "It is sunny."], approve, None, "STOP"),
    "a pause": ([CALLS, "It is sunny."], later, None, "approval_needed"),
    "asked again": ([malformed(), empty(), call("look", city="Oslo"), "Sun."], None, None, "STOP"),
    "a type": ([call("look", city="Oslo"), "no json", '{"x": 1}'], None, TYPE, "STOP"),
    "no type": (["no json"] * 9, None, TYPE, "OutputError"),
    "a failure": ([call("look", city="Oslo"), ServerUnavailableError("down")], None, None, "ServerUnavailableError"),
    "nothing": ([empty()] * 9, None, None, "EmptyAnswerError"),
}


class Story:
    """One run of a story on a store, and what was seen of it."""

    def __init__(self, name: str, store: Store | None = None) -> None:
        script, asked, self.output, self.end = STORIES[name]
        self.store = store or MemoryStore()
        self.model = ScriptedModel([*script], piece_chars=4)
        self.gate = Gate(self.model, [look, Writer()], approve=asked, store=self.store, policy=Policy(), limits=Limits())
        self.told: bool | None = None
        self.is_over = False
        self.events: list[events.Event] = []

    def cancel(self) -> None:
        if self.told is None and not self.is_over:
            self.told = self.gate.cancel("s", "Enough.")

    async def watch(self, event: events.Event) -> None:
        self.events.append(event)

    async def run(self, watch: Watch | None = None) -> str:
        """How it ended, for whoever waits for it."""
        task = asyncio.current_task()
        assert task is not None
        try:
            reply = await self.gate.run("Go", session="s", output=self.output, watch=watch or self.watch)
        except Exception as error:
            ended = type(error).__name__
        else:
            ended = reply.finish_reason
            assert [event.reply for event in self.events if isinstance(event, events.RunEnded)] == [reply]
            assert validate(reply.contents) == []
            assert reply.output is None or ended == "STOP"
        self.is_over = True
        assert task.cancelling() == 0
        await asyncio.sleep(0)  # What was left of a cancellation would come here.
        return ended

    async def check(self, ended: str) -> None:
        """Whoever was told that the run was stopped got a reply that says so; anybody else, what it would have come to."""
        assert ended == ("cancelled" if self.told else self.end)
        proposed = [event.call.id for event in self.events if isinstance(event, events.CallProposed)]
        finished = [event.call.id for event in self.events if isinstance(event, events.CallFinished)]
        started = [event.call.id for event in self.events if isinstance(event, events.CallStarted)]
        if self.end != "approval_needed" or self.told:
            assert sorted(proposed) == sorted(finished)
        assert len(set(finished)) == len(finished)
        assert set(started) <= set(finished)
        # What the journal holds gives the same state, and the session goes on from there.
        assert not self.gate.cancel("s")
        given = await self.store.load("s")
        again = Gate(ScriptedModel(["Back."]), [look, Writer()], store=self.store)
        reply = await again.run("And?", session="s")
        assert (reply.text, validate(reply.contents)) == ("Back.", [])
        if self.told:
            finish = RunMachine(given).run.finish
            assert finish is not None
            assert (finish.reason, finish.error) == ("cancelled", None)


def play(work: Callable[[int], Awaitable[Story]]) -> list[bool]:
    """Plays a story with a cancellation at every step, to the first one at which there is nothing left to cancel."""

    async def all_steps() -> list[bool]:
        told: list[bool] = []
        async with asyncio.timeout(WAIT_S):
            for step in itertools.count():
                story = await work(step)
                if story.told is None:
                    return told
                told.append(story.told)
        raise AssertionError("unreachable")

    return asyncio.run(all_steps())


@pytest.mark.parametrize("name", STORIES)
def test_a_run_cancelled_at_any_step_of_the_event_loop_says_so(name: str) -> None:
    async def work(step: int) -> Story:
        story = Story(name)
        task = asyncio.create_task(story.run())
        for _ in range(step + 1):
            await asyncio.sleep(0)
        if not task.done():
            story.cancel()
        await story.check(await task)
        return story

    told = play(work)
    assert sum(told) >= 3
    assert [is_told for is_told, _ in itertools.groupby(told)].count(True) == 1  # From its beginning to its end.


@pytest.mark.parametrize(
    ("name", "pause"), [*((name, False) for name in STORIES), ("calls", True), ("a pause", True), ("a failure", True)]
)
def test_a_run_cancelled_by_whoever_watches_it_says_so(name: str, pause: bool) -> None:
    async def work(step: int) -> Story:
        story = Story(name)

        async def watch(event: events.Event) -> None:
            await story.watch(event)
            if len(story.events) == step + 1:
                story.cancel()
            if pause:
                await asyncio.sleep(0)

        await story.check(await story.run(watch))
        return story

    told = play(work)
    assert told[0] is True
    # Only whoever hears of the end cannot change it any more.
    is_told_of_the_end = STORIES[name][3] in ("STOP", "approval_needed")
    assert told.count(False) == is_told_of_the_end


@pytest.mark.parametrize("name", ["calls", "a failure"])
def test_a_run_cancelled_by_whoever_reads_its_stream_says_so(name: str) -> None:
    async def work(step: int) -> Story:
        story = Story(name)
        ended = ""
        try:
            async for event in story.gate.stream("Go", session="s", output=story.output):
                await story.watch(event)
                if len(story.events) == step + 1:
                    story.cancel()
                if isinstance(event, events.RunEnded):
                    ended = event.reply.finish_reason
        except Exception as error:
            ended = type(error).__name__
        await story.check(ended)
        return story

    assert play(work)


@pytest.mark.parametrize(("name", "when"), [*((name, "before") for name in STORIES), ("calls", "after"), ("text", "after")])
def test_a_run_cancelled_while_a_fact_is_journalled_says_so(name: str, when: str) -> None:
    class Telling(MemoryStore):
        async def append(self, lease: Lease, facts: Sequence[Fact], *, position: int, durable: bool = False) -> None:
            nonlocal left
            left -= 1
            if left == 0 and when == "before":
                story.cancel()
            await super().append(lease, facts, position=position, durable=durable)
            if left == 0 and when == "after":
                story.cancel()

    async def work(step: int) -> Story:
        nonlocal left, story
        left = step + 1
        story = Story(name, Telling())
        await story.check(await story.run())
        return story

    left, story = 0, Story(name)
    told = play(work)
    assert len(told) >= 2
    assert all(told)


def test_a_run_cancelled_while_a_database_is_at_work_says_so(tmp_path: Path) -> None:
    async def work(step: int) -> Story:
        store = open_store(str(tmp_path / f"{step}.db"))
        real, left = store.append, step + 1

        async def append(*given: Any, **options: Any) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                asyncio.get_running_loop().call_soon(story.cancel)
            await real(*given, **options)

        store.append = append
        story = Story("calls", store)
        try:
            await story.check(await story.run())
        finally:
            await store.aclose()
        return story

    assert all(play(work))


def test_a_caller_that_is_cancelled_too_is_cancelled() -> None:
    async def both() -> list[Any]:
        story = Story("calls")
        started = asyncio.Event()

        async def watch(event: events.Event) -> None:
            if isinstance(event, events.CallStarted):
                started.set()

        task = asyncio.create_task(story.run(watch))
        await started.wait()
        story.cancel()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        again = Gate(ScriptedModel(["Back."]), [look, Writer()], store=story.store)
        reply: Reply = await again.run("And?", session="s")
        return validate(reply.contents)

    assert asyncio.run(both()) == []


def test_a_cancellation_that_the_model_swallows_still_ends_the_run() -> None:
    class Deaf(ScriptedModel):
        async def generate(self, request: Any) -> Any:
            try:
                waiting.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass
            async for item in super().generate(request):
                yield item

    async def work() -> Reply:
        gate = Gate(Deaf(["Whatever."]))
        task = asyncio.create_task(gate.run("Go", session="s"))
        await waiting.wait()
        assert gate.cancel("s")
        reply = await task
        assert task.cancelling() == 0
        return reply

    waiting = asyncio.Event()
    reply = asyncio.run(work())
    assert (reply.finish_reason, reply.text) == ("cancelled", "Whatever.")


def test_a_run_that_loses_its_session_while_it_waits_ends_with_that_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stolen(MemoryStore):
        async def renew(self, lease: Lease, *, lease_s: float = 30.0) -> None:
            raise SessionLostError("taken over")

    monkeypatch.setattr("callgate.run.lease.LEASE_S", 0.01)

    async def wait() -> None:
        await asyncio.Event().wait()

    async def work() -> int:
        gate = Gate(ScriptedModel([call("wait")]), [wait], store=Stolen())
        with pytest.raises(SessionLostError, match="taken over"):
            await gate.run("Go", session="s")
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert asyncio.run(asyncio.wait_for(work(), WAIT_S)) == 0
