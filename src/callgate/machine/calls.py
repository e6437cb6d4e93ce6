"""The life of calls: a pure state machine for the calls of one turn, or for one call outside a turn.

    proposed ──> checked ──> allowed ──────────────> started ──> finished | failed | timed_out | cancelled
        │            ├──────> awaiting ──> allowed        └─────> unknown (the process died)
        └─> failed   └──────> denied   └─> denied

Takes facts about calls, returns the calls that they settle; `CallBatch.todo` returns what to do now. The same batch is
used for the model's calls, nested calls, and calls of MCP clients and other frameworks. A stale fact changes nothing, so
nothing is ever answered twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeAlias

from callgate.machine import facts
from callgate.types import (
    FINAL_STATES,
    CallRecord,
    CallState,
    Decision,
    FunctionCall,
    ResultStatus,
    SessionRule,
    ToolResult,
)

__all__ = ["UNKNOWN", "CallBatch", "CallFact", "TrackedCall", "both_texts", "rule_of", "startable"]

UNKNOWN = (
    "The process stopped while this call was running; whether it had its effect is not known. Check before repeating it."
)
NOT_STARTED = "The call was cancelled before it started."
_REFUSED = ("allowed", "deny")
"""A call that is refused after all: the state that it was in, and the verdict."""

CallFact: TypeAlias = (
    facts.CallChecked | facts.CallDecided | facts.ApprovalAnswered | facts.CallStarted | facts.CallEnded | facts.Cancelled
)
"""The facts that move calls on."""


class _Slot(Protocol):
    @property
    def state(self) -> CallState: ...
    @property
    def ordered(self) -> bool: ...


def startable(batch: Sequence[_Slot], parallel: int) -> list[int]:
    """Choose the allowed calls of a batch that may start now: at most `parallel` at a time, ordered ones in turn."""
    room = parallel - sum(slot.state == "started" for slot in batch)
    chosen: list[int] = []
    order_is_free = True
    for index, slot in enumerate(batch):
        if slot.state in FINAL_STATES:
            continue
        may_start = slot.state == "allowed" and (order_is_free or not slot.ordered)
        if slot.ordered:
            order_is_free = False
        if may_start and len(chosen) < room:
            chosen.append(index)
    return chosen


@dataclass(slots=True)
class TrackedCall:
    """A tracked call. `call` changes with the check (coerced arguments, own name) and with an edit at approval."""

    call: FunctionCall
    state: CallState = "proposed"
    ordered: bool = False
    digest: str = ""
    decision: Decision | None = None
    approved: bool = False
    """True if the user has allowed the call with these arguments: only a deny can still stop it."""
    asked: Decision | None = None
    """The decision to ask about these arguments: no later policy takes the question back."""
    confirm: str = ""
    """The text that confirms these arguments, by every policy that asked about them: none takes it back either."""
    stale: bool = False
    """True if an earlier run decided: the policy that is in force now decides again before the call goes on."""
    unknown: str = ""
    """The error of a call that had started in a run without an end, unless it runs again: it may have had its effect."""
    edited: bool = False
    rewritten: bool = False
    """True if a hook changed the arguments; hooks run once."""
    result: ToolResult | None = None
    preview: str | None = None
    message: str = ""
    """The user's note that came with the yes to these arguments."""

    @property
    def is_over(self) -> bool:
        """True if the call has its result."""
        return self.state in FINAL_STATES

    def snapshot(self) -> tuple[Any, ...]:
        """The whole state: calls with equal snapshots behave alike."""
        is_asked = (self.approved, self.rewritten, self.stale, self.asked)
        return (self.record(), self.ordered, self.digest, *is_asked, self.unknown, self.message)

    def record(self) -> CallRecord:
        """The call as others see it."""
        return self._record(self.call, self.result)

    def _record(self, call: FunctionCall, result: Any) -> CallRecord[Any]:
        return CallRecord(
            call=call,
            state=self.state,
            decision=self.decision,
            result=result,
            edited=self.edited,
            preview=self.preview,
            confirm=self.confirm,
        )

    def replied(self) -> CallRecord[ToolResult]:
        """The call as a reply has it: without a result it says that it waits, and what will run is not handed out."""
        if self.result is not None:
            return self._record(self.call, self.result)
        why = "It waits for an approval." if self.state == "awaiting" else "It has no result yet."
        waits = ToolResult(call_id=self.call.id, name=self.call.name, status="awaiting", error=why)
        return self._record(self.call.detached(), waits)

    def waiting(self) -> CallRecord:
        """The call as somebody is asked about it: what is changed in it does not run."""
        return self._record(self.call.detached(), self.result)

    def propose_again(self, *, args: Any = None) -> None:
        """Take back what was checked and decided: the call, its tool or its arguments are others now."""
        if args is not None:
            self.call = replace(self.call, args=args, problem=None)
            self.asked, self.confirm = None, ""
        self.state, self.approved, self.decision, self.stale, self.message = "proposed", False, None, False, ""


def both_texts(one: str, other: str) -> str:
    """The text that confirms a call by two policies: one text, or both if neither is a part of the other."""
    if f" {other} " in f" {one} " or f" {one} " in f" {other} ":
        return max(one, other, key=len)
    return " ".join(filter(None, (one, other)))


def _is_never_ordered(call: FunctionCall) -> bool:
    return False


class CallBatch:
    """Calls that are made together, and the state of each.

    Args:
        calls: The calls, in the order in which they were made.
        parallel: How many may run at a time.
        is_ordered: Whether a call keeps its place in the order; evaluated again when the call is checked.
    """

    def __init__(
        self,
        calls: Iterable[FunctionCall] = (),
        *,
        parallel: int = 1,
        is_ordered: Callable[[FunctionCall], bool] = _is_never_ordered,
    ) -> None:
        self._is_ordered = is_ordered
        self._parallel = parallel
        # A call that is not checked yet keeps its place in the order too, so that nothing after it overtakes it.
        self.calls = [TrackedCall(call, ordered=self._is_ordered(call)) for call in calls]
        self._by_id = {call.call.id: call for call in reversed(self.calls)}
        self._open = len(self.calls)
        self.cancelled: str | None = None
        """The reason why nothing more may start, if there is one."""
        self._settled: list[CallRecord] = []

    @property
    def is_over(self) -> bool:
        """True if every call has its result."""
        return self._open == 0

    @property
    def edited(self) -> set[str]:
        """The calls whose arguments are those of a person."""
        return {call.call.id for call in self.calls if call.edited and not call.rewritten}

    @property
    def rewritten(self) -> set[str]:
        """The ids of calls whose arguments a hook has changed."""
        return {call.call.id for call in self.calls if call.rewritten}

    @property
    def stale(self) -> set[str]:
        """The ids of calls that are decided about again."""
        return {call.call.id for call in self.calls if call.stale}

    @property
    def approval_ids(self) -> set[str]:
        """The ids of calls that somebody was asked about, and has answered or may still answer."""
        return {call.call.id for call in self.calls if call.approved or call.asked is not None}

    def records(self) -> list[CallRecord]:
        """The calls as others see them."""
        return [call.record() for call in self.calls]

    def find(self, call_id: str, *states: CallState) -> TrackedCall | None:
        """Return the call with this id, if it is in one of these states."""
        call = self._by_id.get(call_id)
        return call if call is not None and call.state in states else None

    def is_ordered(self, call_id: str) -> bool:
        """True if the call with this id keeps its place in the order."""
        return call_id in self._by_id and self._by_id[call_id].ordered

    def todo(self) -> facts.Todo:
        """Return what to do with the calls now. Repeats itself until a fact says that it was done."""
        if self.cancelled is not None:
            return facts.Todo(stop=tuple(c.call for c in self.calls if c.state == "started"))
        waiting = [c for c in self.calls if c.state == "awaiting" and not c.stale]
        ready = [self.calls[index] for index in startable(self.calls, self._parallel)]
        return facts.Todo(
            check=tuple(c.call for c in self.calls if c.state == "proposed"),
            decide=tuple(c.call for c in self.calls if c.state == "checked" or c.stale),
            approve=tuple(facts.AskApproval(c.call, c.decision.reason if c.decision else "", c.confirm) for c in waiting),
            run=tuple(c.call for c in ready if not c.stale),
        )

    # Facts ----------------------------------------------------------------------------------------------------------------

    def apply(self, fact: CallFact) -> list[CallRecord]:
        """Take a fact in; return the calls that it settled."""
        self.take_in(fact)
        return self.drain()

    def take_in(self, fact: CallFact) -> None:
        """Take a fact in; `drain` returns the calls that it settled."""
        self._HANDLERS[type(fact)](self, fact)

    def drain(self) -> list[CallRecord]:
        """Return the calls settled since the last time."""
        settled, self._settled = self._settled, []
        return settled

    def _checked(self, fact: facts.CallChecked) -> None:
        call = self.find(fact.id, "proposed")
        if call is None:
            return
        if fact.tool is None or fact.problems:
            self.settle(call, "failed", error=" ".join(fact.problems) or "There is no such tool.")
            return
        written = call.call.wire_name or call.call.name
        call.call = replace(
            call.call,
            name=fact.tool,
            wire_name=written if written != fact.tool else None,
            args=fact.args,
            notes=(*call.call.notes, *fact.coercions),
        )
        call.digest, call.ordered = fact.digest, self._is_ordered(call.call)
        call.state = "checked"

    def _decided(self, fact: facts.CallDecided) -> None:
        decision = fact.decision
        # An allowed call can be refused as long as it has not started: by a limit, or an audit log that cannot be written.
        call = self.find(fact.id, "checked", "awaiting", "allowed")
        if call is None or not (call.stale or call.state == "checked" or (call.state, decision.verdict) == _REFUSED):
            return
        if fact.args is not None:
            # It is another call now: earlier decisions are void.
            call.propose_again(args=fact.args)
            call.rewritten = True
            return
        if call.approved and decision.verdict != "deny":
            # An approval answers whatever would be asked; it never answers a deny.
            given = call.decision or decision
            decision = Decision(verdict="allow", reason=given.reason or decision.reason, by="user", approver=given.approver)
        elif call.asked is not None and decision.verdict == "allow" and decision.by != "user":
            decision = call.asked  # The strictest of then and now holds, unless the user has answered for the session.
        call.confirm = both_texts(call.confirm, fact.confirm or "")
        call.asked = decision if decision.verdict == "ask" else None
        call.decision, call.stale = decision, False
        if decision.verdict == "deny":
            self.settle(call, "denied", error=f"This call was not allowed. {decision.reason}".strip())
        else:
            call.state = "allowed" if decision.verdict == "allow" else "awaiting"

    def _answered(self, fact: facts.ApprovalAnswered) -> None:
        call = self.find(fact.id, "awaiting")
        if call is None:
            return
        if fact.answer == "no":
            call.decision = Decision(verdict="deny", reason=fact.reason, by="user", approver=fact.by)
            self.settle(call, "denied", error=f"The user did not allow this call. {fact.reason}".strip())
            return
        reason = " ".join(filter(None, [fact.message, fact.reason]))
        decision = Decision(verdict="allow", reason=reason, by="user", approver=fact.by)
        if fact.args is None:
            call.decision, call.state, call.approved, call.message = decision, "allowed", True, fact.message
            return
        # Edited arguments are checked and decided about again.
        call.propose_again(args=fact.args)
        call.decision, call.approved, call.edited, call.rewritten = decision, True, True, False
        call.message = fact.message

    def _started(self, fact: facts.CallStarted) -> None:
        call = self.find(fact.id, "allowed")
        if call is not None:
            call.state, call.stale, call.preview, call.unknown = "started", False, fact.preview, ""

    def _ended(self, fact: facts.CallEnded) -> None:
        call = self.find(fact.id, "started")
        if call is not None:
            self._close(call, fact.result)

    def _cancelled(self, fact: facts.Cancelled) -> None:
        self.cancelled = fact.reason
        for call in self.calls:
            if not call.is_over and call.state != "started":
                self._leave_out(call, fact.reason)

    def _leave_out(self, call: TrackedCall, reason: str = "") -> None:
        """Settle a call that will not run in this process; an earlier one may have run it."""
        self.settle(call, "cancelled", error=f"{NOT_STARTED if not call.unknown else ''} {reason}".strip())

    # All calls ------------------------------------------------------------------------------------------------------------

    def give_up(self) -> None:
        """Settle what is open: a call that had started is unknown, any other is cancelled."""
        for call in self.calls:
            if call.state == "started":
                self._lose(call)
            elif not call.is_over:
                self._leave_out(call)

    def lose(self) -> None:
        """Settle every open call as unknown: its facts are incomplete, so it may have run."""
        for call in self.calls:
            if not call.is_over:
                self._lose(call)

    def _lose(self, call: TrackedCall) -> None:
        self.settle(call, "unknown", error=UNKNOWN)

    def recover(self, is_repeatable: Callable[[FunctionCall], bool], unknown: str) -> None:
        """Take over from a run without an end: started calls run again only if that is safe, and else have this error.

        All that go on are decided about again.
        """
        for call in self.calls:
            if call.state == "started" and is_repeatable(call.call) and self.cancelled is None:
                call.state, call.unknown = "allowed", unknown
            elif call.state == "started":
                self.settle(call, "unknown", error=unknown)
            call.stale = call.state in ("awaiting", "allowed")

    def adopt(self) -> None:
        """Take over from another session: nothing decided or started there is valid here."""
        for call in self.calls:
            if call.state == "started" or call.unknown:
                self._lose(call)
            elif not call.is_over:
                call.propose_again()
                call.rewritten = False

    def change_tools(self, digest_of: Callable[[str], str | None]) -> None:
        """Apply a change of tools: calls checked against another tool are checked again."""
        for call in self.calls:
            call.ordered = self._is_ordered(call.call)
            if call.state in ("checked", "allowed", "awaiting") and digest_of(call.call.name) != call.digest:
                call.propose_again()

    def settle(self, call: TrackedCall, status: ResultStatus, *, error: str) -> None:
        """End a call without a value. One that an earlier process may have run has no other end than that."""
        if call.unknown:
            status, error = "unknown", f"{call.unknown} {'' if status == 'unknown' else error}".strip()
        self._close(call, ToolResult(call_id=call.call.id, name=call.call.name, status=status, error=error))

    def _close(self, call: TrackedCall, result: ToolResult) -> None:
        if call.edited or call.rewritten:
            who = "A hook" if call.rewritten else "The user"
            args = json.dumps(dict(call.call.args), default=repr)
            note = f"{who} changed the arguments before the call ran: {args}"
            result = result.changed(notes=(*result.notes, note))
        if call.message:
            result = result.changed(notes=(*result.notes, f"The user allowed this call with a note: {call.message}"))
        was_over = call.is_over
        call.result, call.state, call.stale = result, result.status, False
        self._open += was_over - call.is_over
        self._settled.append(call.record())

    _HANDLERS: ClassVar[dict[type[Any], Callable[[Any, Any], None]]] = {
        facts.CallChecked: _checked,
        facts.CallDecided: _decided,
        facts.ApprovalAnswered: _answered,
        facts.CallStarted: _started,
        facts.CallEnded: _ended,
        facts.Cancelled: _cancelled,
    }


def rule_of(fact: facts.ApprovalAnswered, call: TrackedCall) -> SessionRule:
    """Return the session rule of an "always" answer."""
    return fact.rule or SessionRule(id=f"always-{call.call.id}", tool=call.call.name, digest=call.digest)
