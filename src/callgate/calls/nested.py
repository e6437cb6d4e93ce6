"""Calls that a running tool makes of other tools: the same way to permission, limits and the audit log as the model's own.

A name and arguments come in, one result goes out, and both are journalled. What the model asked for itself is not known
here; a call made here ends with the one that made it, at the latest.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from callgate.events import ApprovalNeeded, Event
from callgate.machine import facts
from callgate.permission.approval import asked
from callgate.permission.guard import CallGuard, Guard
from callgate.tools.call import CachedCall, CallObserver
from callgate.tools.executor import Executor
from callgate.types import CallRecord, Decision, FunctionCall, Limits, SessionRule, ToolResult

__all__ = ["DEPTH_MAX", "CallScope", "NestedCalls"]

logger = logging.getLogger("callgate.calls.nested")

DEPTH_MAX = 4
"""How many tools may have called one another before the next call is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallScope:
    """The run that the calls are part of."""

    executor: Executor
    guard: Guard
    limits: Limits
    session: str
    note: Callable[[facts.NestedCall], Awaitable[object]]
    """Journals a fact."""
    emit: Callable[[Event], Awaitable[None]]
    always: Callable[[], Iterable[SessionRule]]
    asking: asyncio.Lock
    """Held while somebody is asked about a call: one at a time, so that a terminal can cope."""


@dataclass(slots=True)
class NestedCalls:
    """The calls of one run that its tools make."""

    around: CallScope
    _count: int = 0
    _tasks: dict[str, set[asyncio.Task[ToolResult]]] = field(default_factory=dict[str, "set[asyncio.Task[ToolResult]]"])

    async def call(self, parent: FunctionCall, depth: int, name: str, args: Mapping[str, Any]) -> ToolResult:
        """One call of a tool by the tool of `parent`. Whatever becomes of it is in the result."""
        self._count += 1
        call = FunctionCall(name=name, args=dict(args), id=f"{parent.id}.{self._count}")
        limits = self.around.limits
        if depth > DEPTH_MAX:
            return _refused(call, "failed", f"Not run: tools have called one another {DEPTH_MAX} deep already.")
        if self._count > limits.calls:
            return _refused(call, "failed", f"Not run: the tools of this run have made {limits.calls} calls already.")
        task = asyncio.create_task(self._made(parent, depth, call))
        mine = self._tasks.setdefault(parent.id, set())
        mine.add(task)
        task.add_done_callback(mine.discard)
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        if task.cancelled():
            return _refused(call, "cancelled", f"The call of {name!r} was stopped: the tool that made it is over.")
        return task.result()

    def end(self, parent: str) -> None:
        """A call is over, and with it all that it has called."""
        for task in self._tasks.get(parent, ()):
            task.cancel()

    async def aclose(self) -> None:
        """The run is over: waits until nothing is left of what its tools have called."""
        for parent in list(self._tasks):
            self.end(parent)
        left = [task for tasks in self._tasks.values() for task in tasks]
        await asyncio.gather(*left, return_exceptions=True)

    async def _made(self, parent: FunctionCall, depth: int, call: FunctionCall) -> ToolResult:
        around = self.around
        turn = asyncio.Event()
        post = CallGuard(around.guard, around.session, turn.set)
        try:
            record = await self._permitted(post, call)
            while record.result is None:
                ready, refused = await post.admit([record])
                if refused:
                    record = _denied(record.call, refused[0].decision)
                elif ready:
                    return await self._run(post, parent, depth, record)
                else:
                    await turn.wait()
                    turn.clear()
            post.settled([record])
            return record.result
        finally:
            post.close()

    # Before it runs -------------------------------------------------------------------------------------------------------

    async def _permitted(self, post: CallGuard, call: FunctionCall) -> CallRecord:
        """The call as it may run, or with the result that it has instead."""
        executor = self.around.executor
        checked = _checked(executor, call)
        if isinstance(checked, CallRecord):
            return checked
        call = checked
        (decided,), notices = await post.decide([call], always=self.around.always(), rewritten=frozenset())
        for notice in notices:
            await self.around.emit(notice)
        decision = decided.decision
        if decided.args is not None:
            checked = _checked(executor, replace(call, args=decided.args))
            if isinstance(checked, CallRecord):
                return checked
            call = checked
            # What a hook has made of it is another call than the one that was decided about.
            decision = self.around.guard.verdict(call, tuple(self.around.always()))
        if decision.verdict == "ask":
            return await self._asked(call, decision)
        if decision.verdict == "deny":
            return _denied(call, decision)
        return CallRecord(call=call, state="allowed", decision=decision)

    async def _asked(self, call: FunctionCall, decision: Decision) -> CallRecord:
        keeper, executor = self.around.guard, self.around.executor
        assert keeper.approve is not None, "where nobody can be asked, nothing is to be asked"
        await self.around.emit(ApprovalNeeded(call, decision.reason, await executor.preview(call)))
        try:
            async with self.around.asking:
                answer = await asked(keeper.approve, call, executor.definition(call.name), decision.reason)
            fact = keeper.answer(call, answer)
        except Exception as error:
            # The program's own code failed. A call that nobody could be asked about does not run.
            logger.exception("approve failed for %r", call.name)
            return _denied(call, Decision(verdict="deny", reason=f"Asking failed ({type(error).__name__}).", by="user"))
        if fact.answer == "no":
            why = "A tool cannot wait for an answer that comes later." if answer == "later" else ""
            return _denied(call, Decision(verdict="deny", reason=why, by="user"))
        if fact.args is not None:
            checked = _checked(executor, replace(call, args=fact.args))
            if isinstance(checked, CallRecord):
                return checked
            call = checked
        allowed = Decision(verdict="allow", reason=decision.reason, by="user")
        return CallRecord(call=call, state="allowed", decision=allowed, edited=fact.args is not None)

    # And then -------------------------------------------------------------------------------------------------------------

    async def _run(self, post: CallGuard, parent: FunctionCall, depth: int, record: CallRecord) -> ToolResult:
        call = record.call
        inner = facts.NestedCall(parent=parent.id, id=call.id, name=call.name, args=call.args)
        await self.around.note(inner)
        kept = post.kept(call)
        watch = CallObserver(session=self.around.session, call_tool=partial(self.call, call, depth + 1))
        running = CachedCall(kept, watch) if kept is not None else self.around.executor.start(call, watch)
        try:
            result = await running.wait()
        except asyncio.CancelledError:
            stopped = await running.wait()  # It was told to stop by this, and has ended.
            await self._settled(post, replace(record, state=stopped.status, result=stopped), inner)
            raise
        finally:
            self.end(call.id)
        if post.ended(call, result):
            result, notices = await post.heard(call, result)
            for notice in notices:
                await self.around.emit(notice)
        await self._settled(post, replace(record, state=result.status, result=result), inner)
        return result

    async def _settled(self, post: CallGuard, record: CallRecord, inner: facts.NestedCall) -> None:
        post.settled([record])
        await self.around.note(replace(inner, result=record.result))


def _checked(executor: Executor, call: FunctionCall) -> FunctionCall | CallRecord:
    checked = executor.check(call)
    if checked.tool is None or checked.problems:
        result = _refused(call, "failed", " ".join(checked.problems))
        return CallRecord(call=call, state="failed", result=result)
    return replace(call, name=checked.tool, args=checked.args)


def _denied(call: FunctionCall, decision: Decision) -> CallRecord:
    start = "The user did not allow this call" if decision.by == "user" else "This call was not allowed"
    sentence = f"{call.name!r}: {start}. {decision.reason}".strip()
    result = _refused(call, "denied", sentence)
    return CallRecord(call=call, state="denied", decision=decision, result=result)


def _refused(call: FunctionCall, status: Any, sentence: str) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, status=status, error=sentence)
