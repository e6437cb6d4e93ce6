"""Calls at the desk: what becomes of them while they wait, are asked about, and when they are stopped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import anyio
import pytest

from callgate import tool
from callgate.adapters.gated_tools import GatedTools
from callgate.calls import dispatcher as desks
from callgate.calls.dispatcher import CallDispatcher, Question
from callgate.permission import AuditLog, Policy, Rate, RateLimits
from callgate.permission.guard import Guard
from callgate.tools.executor import Executor
from callgate.types import FunctionCall, ToolContext, ToolDefinition, ToolResult


class Note:
    """A tool that must be asked about."""

    definition = ToolDefinition(name="note", kind="mcp", server="notes", input_schema={"type": "object"})

    def problems(self, args: Any) -> tuple[str, ...]:
        return ()

    async def run(self, args: Any, context: ToolContext) -> str:
        return "noted"


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(30):
            return await work

    return asyncio.run(bounded())


def desk_of(**keeper: Any) -> CallDispatcher:
    executor = Executor([Note()])
    return CallDispatcher(executor, Guard(tools=executor, **{"policy": Policy(), **keeper}), nobody="Nobody.")


def begin(desk: CallDispatcher, ask: Any = None, *, session: str = "s", number: int = 1) -> desks.InFlightCall:
    call = FunctionCall(name="note", args={"n": number}, id=f"c{number}")
    return desk.take(call, session=session, ask=ask, progress=lambda message, fraction=None: None)


def test_a_call_that_is_stopped_while_somebody_is_asked_never_runs_and_is_written_down(tmp_path: Path):
    log = tmp_path / "audit.jsonl"

    async def story() -> ToolResult:
        asked = asyncio.Event()

        async def think(question: Question) -> Any:
            asked.set()
            await asyncio.sleep(60)

        visit = begin(desk_of(audit=AuditLog(log)), think)
        await asked.wait()
        visit.stop("The client cancelled it.")
        visit.stop("And again.")
        return await visit.work

    result = run(story())
    assert (result.status, result.error) == (
        "cancelled",
        "The call was cancelled before it started. The client cancelled it.",
    )
    ends = [record for record in map(json.loads, log.read_text().splitlines()) if record["kind"] == "end"]
    assert [(record["tool"], record["outcome"]) for record in ends] == [("note", "cancelled")]


def test_who_waits_behind_a_question_that_is_answered_for_good_is_not_asked():
    async def story() -> tuple[list[str], int]:
        desk, asked = desk_of(), list[Question]()

        async def always(question: Question) -> Any:
            asked.append(question)
            await asyncio.sleep(0)
            return "always"

        visits = [begin(desk, always, number=number) for number in range(3)]
        other = begin(desk, None, session="another")
        results = [await visit.work for visit in (*visits, other)]
        return [result.status for result in results], len(asked)

    assert run(story()) == (["finished"] * 3 + ["denied"], 1)


def test_a_call_waits_for_its_turn_and_runs_then():
    async def story() -> list[str]:
        rates = RateLimits(tools={"note": Rate(per_s=50, burst=1)})
        desk = desk_of(policy=Policy(default="allow"), rates=rates)
        return [(await visit.work).status for visit in [begin(desk, number=number) for number in range(3)]]

    assert run(story()) == ["finished"] * 3


def test_a_log_that_cannot_be_written_keeps_calls_from_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    log = AuditLog(tmp_path / "audit.jsonl")

    def fail(*_: Any, **__: Any) -> None:
        from callgate.errors import AuditError

        raise AuditError("the disk is full")

    monkeypatch.setattr(type(log), "write", fail)
    result = run(_result(desk_of(policy=Policy(default="allow"), audit=log)))
    assert result.status == "denied"
    assert "what cannot be written down does not run" in (result.error or "")


async def _result(desk: CallDispatcher) -> ToolResult:
    return await begin(desk).work


def test_the_oldest_sessions_are_forgotten_and_asked_again(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(desks, "SESSIONS_MAX", 2)

    async def story() -> list[str]:
        desk, asked = desk_of(), list[str]()
        for number, session in enumerate(("a", "b", "a", "c", "b")):

            async def always(question: Question, session: str = session) -> Any:
                asked.append(session)
                return "always"

            await begin(desk, always, session=session, number=number).work
        return asked

    assert run(story()) == ["a", "b", "c", "b"]


def test_closing_stops_what_waits_and_an_ending_loop_is_not_held_up():
    async def story() -> str:
        desk = desk_of()

        async def think(question: Question) -> Any:
            await asyncio.sleep(60)

        visit = begin(desk, think)
        await asyncio.sleep(0)
        await desk.aclose()
        assert visit.work.done()
        await desk.aclose()
        left = begin(desk, think, number=2)
        await asyncio.sleep(0)
        left.work.cancel()
        await asyncio.wait({left.work})
        assert left.work.cancelled()
        return (await visit.work).status

    assert run(story()) == "cancelled"


@pytest.mark.parametrize("scope", ["a scope", "a task"])
def test_a_caller_that_is_cancelled_waits_until_the_call_is_over(scope: str):
    async def story() -> bool:
        begun, is_clean = asyncio.Event(), False
        scopes: list[anyio.CancelScope] = []

        @tool
        async def slow() -> None:
            """Takes a while to clean up."""
            nonlocal is_clean
            begun.set()
            for entered in scopes:
                entered.deadline = 0  # Its time is up now, however long it took to come here.
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(20):
                    await asyncio.sleep(0)
                is_clean = True

        async with GatedTools([slow]) as gated:
            if scope == "a scope":
                with anyio.move_on_after(60) as entered:
                    scopes.append(entered)
                    await gated.call("slow", {})
                assert entered.cancelled_caught
            else:
                work = asyncio.create_task(gated.call("slow", {}))
                await begun.wait()
                for _ in range(3):
                    work.cancel()
                    await asyncio.sleep(0)
                with pytest.raises(asyncio.CancelledError):
                    await work
            return is_clean

    assert run(story())
