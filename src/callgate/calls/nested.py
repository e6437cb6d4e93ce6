"""Nested calls: a running tool calls other tools through the same pipeline as the model, at any depth.

Takes a name and arguments, returns one result; both are journalled. A nested call ends with its parent at the latest:
once that is over, further calls are refused and have no effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from callgate.calls.environment import CallEnvironment, ParentCall
from callgate.calls.single import SingleCall
from callgate.calls.slots import Slots
from callgate.events import ApprovalNeeded, Event, Notice
from callgate.machine import facts
from callgate.machine.calls import CallFact
from callgate.types import CallRecord, FunctionCall, ResultStatus, SessionRule, ToolResult

__all__ = ["DEPTH_MAX", "NestedCalls", "NestedScope"]

DEPTH_MAX = 4
"""Maximum nesting depth."""


@dataclass(slots=True, kw_only=True)
class NestedCalls:
    """The shared state of all nested calls of one run."""

    always: Callable[[], Iterable[SessionRule]]
    """The lasting answers of the session."""
    journal: Callable[[facts.NestedCall], Awaitable[object]]
    """Journal a fact so that it survives a loss of power."""
    emit: Callable[[Event], Awaitable[None]]
    fail: Callable[[Exception], None]
    """End the run with an error that is not the tool's."""
    made: int = 0
    """Calls made so far."""

    def scope_of(self, around: CallEnvironment, parent: ParentCall, depth: int = 1) -> NestedScope:
        """Make the scope of a call that starts."""
        return NestedScope(self, around, parent, depth)


class NestedScope:
    """The scope of one running call."""

    def __init__(self, run: NestedCalls, outside: CallEnvironment, parent: ParentCall, depth: int) -> None:
        self._run = run
        self._parent = parent.call
        self._depth = depth
        self._outside = outside
        self._made_by = parent
        self._is_open = True
        self._open: dict[SingleCall, asyncio.Task[ToolResult]] = {}

    async def call(self, name: str, args: Mapping[str, Any]) -> ToolResult:
        """Call a tool. There is always a result; cancelling the wait stops it."""
        run = self._run
        run.made += 1
        call = FunctionCall(name=name, args=dict(args), id=f"{self._parent.id}.{run.made}")
        if not self._is_open:
            return _refused(call, "cancelled", f"Not run: the call of {self._parent.name!r} that made it is over.")
        if self._depth > DEPTH_MAX:
            return _refused(call, "failed", f"Not run: tools have called one another {DEPTH_MAX} deep already.")
        if run.made > self._outside.limits.calls:
            return _refused(call, "failed", f"Not run: the tools of this run have made {run.made - 1} calls already.")
        single = self._single(call)
        task = asyncio.get_running_loop().create_task(self._carry_out(single))
        self._open[single] = task
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            single.stop("The tool that made it is over.")
            await asyncio.wait({task})
            raise

    @cached_property
    def _around(self) -> CallEnvironment:
        """The environment of the calls; most tools make none."""
        parent, outside = self._made_by, self._outside
        return replace(
            outside,
            # A call that keeps its order holds the lane while it runs: what it calls is ordered among itself.
            lane=Slots(1) if parent.holds_lane else outside.lane,
            places=Slots(outside.limits.parallel),
            paused=parent.paused,
            held=parent.held,
            scope_of=partial(self._run.scope_of, depth=self._depth + 1),
        )

    def close(self) -> None:
        """Close the scope after the call, and end its nested calls."""
        self._is_open = False
        for single in self._open:
            single.stop("The tool that made it is over.")

    @property
    def is_idle(self) -> bool:
        """True if nothing is left of what the call has called."""
        return not self._open

    async def wait(self) -> None:
        """Wait until nothing is left of what the call has called."""
        if self._open:
            await asyncio.wait(list(self._open.values()))

    def _single(self, call: FunctionCall) -> SingleCall:
        run = self._run

        async def keep(rule: SessionRule) -> None:
            await run.journal(replace(self._fact_of(call), rule=rule))

        async def note(fact: CallFact, record: CallRecord) -> None:
            await run.journal(replace(self._fact_of(record.call), result=record.result))

        return SingleCall(call, self._around, always=run.always, keep=keep, note=note, emit=self._emit)

    async def _carry_out(self, single: SingleCall) -> ToolResult:
        try:
            record = await single.carry_out()
        except Exception as error:
            self._run.fail(error)
            return _refused(single.record.call, "failed", f"Not run: the run has failed ({type(error).__name__}).")
        finally:
            del self._open[single]
        result = record.result
        if result is None:
            later = "The user did not allow this call. A tool cannot wait for an answer that comes later."
            result = _refused(record.call, "denied", later)
        # The parent may have made other calls, and passes on the notes.
        return replace(result, error=f"{record.call.name!r}: {result.error}") if result.status == "denied" else result

    def _fact_of(self, call: FunctionCall) -> facts.NestedCall:
        return facts.NestedCall(parent=self._parent.id, id=call.id, name=call.name, args=call.args)

    async def _emit(self, event: Event) -> None:
        # Observers only see calls of the model; but questions and warnings are for everyone.
        if isinstance(event, (ApprovalNeeded, Notice)):
            await self._run.emit(event)


def _refused(call: FunctionCall, status: ResultStatus, sentence: str) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, status=status, error=sentence)
