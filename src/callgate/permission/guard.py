"""Guard of calls: every check between a requested call and its start, and again when it has ended.

Checked calls come in, facts for the journal go out: decided, refused, answered. Policy, hooks, limits, cache and audit log
meet here and nowhere else; each of them can be missing. It starts no call: that is the runtime's doing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from callgate.content.sanitize import sanitize_args
from callgate.errors import AuditError, NotConfirmedError, UsageError
from callgate.events import Notice
from callgate.machine import facts
from callgate.machine.calls import both_texts
from callgate.permission.approval import Answered, Approval, Approve
from callgate.permission.call_paths import RunningValues, is_large
from callgate.permission.policy import Policy
from callgate.permission.rates import Limiter, ModelLimiter, Place, RateLimits, Remaining
from callgate.permission.session_rules import scope_of, session_rule
from callgate.threads import THREADS
from callgate.types import CallRecord, Decision, FunctionCall, JsonObject, SessionRule, ToolDefinition, ToolResult

if TYPE_CHECKING:
    from callgate.permission.audit import AuditLog
    from callgate.permission.cache import ResultCache, Slot
    from callgate.permission.hooks import HookOutcome

__all__ = ["CallGuard", "Guard", "Tools"]

logger = logging.getLogger("callgate.permission")

HOOKS_AT_ONCE = 10


class Tools(Protocol):
    """The view of the tools that a guard needs."""

    @property
    def digests(self) -> Mapping[str, str]:
        """Tool name -> a hash of what was declared of it."""
        ...

    def definition(self, name: str) -> ToolDefinition:
        """The definition of one tool."""
        ...

    def knew(self, name: str) -> bool:
        """Return whether there is a tool of this name, or was one."""
        ...

    def running_values(self, name: str, args: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """The values that a tool gets for arguments, as plain data; empty if that is not known."""
        ...


@dataclass(frozen=True, slots=True)
class _Enforced:
    """A policy for the tools of a moment."""

    digests: Mapping[str, str]
    policy: Policy
    """The policy of the gate."""
    whole: Policy
    _parts: dict[str, tuple[ToolDefinition, Policy]] = field(default_factory=dict[str, "tuple[ToolDefinition, Policy]"])
    """Tool name -> the tool, and the part of the policy that is about it."""

    def about(self, definition: ToolDefinition) -> Policy:
        """The part of the policy that is about a tool, found once for each."""
        known = self._parts.get(definition.name)
        if known is None or known[0] is not definition:
            known = self._parts[definition.name] = definition, self.whole.about(definition)
        return known[1]


@dataclass(frozen=True, slots=True)
class _Reading:
    """The values that a tool gets for one call, read once: a link that is changed later changes nothing."""

    args: Mapping[str, Any]
    views: Sequence[Mapping[str, Any]]
    fresh: RunningValues

    def __call__(self, args: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        return self.views if args == self.args else self.fresh(args)


@dataclass(slots=True, kw_only=True)
class Guard:
    """The state that all runs of a gate share."""

    tools: Tools
    policy: Policy
    approve: Approve | None = None
    rates: RateLimits = field(default_factory=RateLimits)
    audit: AuditLog | None = None
    cache: ResultCache | None = None
    of_run: tuple[object, ...] = ()
    """Parts of a run that results depend on: its own tools, a digest of its headers."""
    limiter: Limiter = field(init=False)
    model: ModelLimiter = field(init=False)
    _enforced: _Enforced | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.limiter = Limiter(self.rates)
        self.model = ModelLimiter(self.rates)

    @property
    def enforced(self) -> Policy:
        """The policy for the tools as they are now; `problems` has the rules that can never be tested."""
        return self._now_enforced().whole

    def _now_enforced(self) -> _Enforced:
        known, digests = self._enforced, self.tools.digests
        if known is None or known.digests is not digests or known.policy is not self.policy:
            definitions = [self.tools.definition(name) for name in digests]
            known = self._enforced = _Enforced(digests, self.policy, self.policy.against(definitions))
        return known

    def reading(self, call: FunctionCall) -> RunningValues:
        """The values that the tool of a call gets for arguments."""
        return partial(self.tools.running_values, call.name)

    def verdict(
        self,
        call: FunctionCall,
        always: Iterable[SessionRule],
        running: RunningValues | None = None,
        *,
        can_ask: bool = False,
    ) -> Decision:
        """Return the policy's decision; without an approver, `ask` becomes `deny`, unless it `can_ask` in another way."""
        digest = self.tools.digests.get(call.name)
        if digest is None:
            return Decision(verdict="deny", reason=f"The tool {call.name!r} is not there any more.")
        definition = self.tools.definition(call.name)
        decision = (
            self._now_enforced()
            .about(definition)
            .decide(definition, call, always=always, digest=digest, running=running or self.reading(call))
        )
        if decision.verdict == "ask" and self.approve is None and not can_ask:
            return replace(decision, verdict="deny", reason=f"{decision.reason} {self.policy.nobody}")
        return decision

    def scope(self, call: FunctionCall, running: RunningValues | None = None) -> str:
        """Say in words what an `always` answer about this call would allow."""
        return scope_of(self.tools.definition(call.name), call, running or self.reading(call))

    def confirmation(self, call: FunctionCall, running: RunningValues | None = None) -> str:
        """The text that an approver repeats to confirm the call; empty if no rule wants one."""
        definition = self.tools.definition(call.name)
        return self.enforced.confirmation(definition, call.args, running or self.reading(call))

    def require_confirmation(
        self, call: FunctionCall, answer: Approval, running: RunningValues | None = None, confirm: str = ""
    ) -> None:
        """Refuse a yes to a call that a rule wants confirmed, unless the answer repeats the text.

        `confirm` is the text that was asked for, perhaps by an earlier policy. Other arguments have a text of their own.

        Raises:
            NotConfirmedError: it does not.
        """
        if answer in ("no", "later") or (isinstance(answer, Answered) and answer.answer == "no"):
            return
        args = answer.args if isinstance(answer, (Answered, FunctionCall)) else None
        wanted = self.confirmation(call if args is None else replace(call, args=sanitize_args(args)), running)
        if args is None or sanitize_args(args) == dict(call.args) or not wanted:
            wanted = both_texts(confirm, wanted)
        typed = answer.confirm if isinstance(answer, Answered) else ""
        if wanted and typed != wanted:
            found = f", not {typed!r}" if typed else ""
            raise NotConfirmedError(
                f"the call of {call.name!r} is not confirmed: answer yes with confirm={wanted!r}{found}, what it is about"
            )

    def answer(
        self, call: FunctionCall, answer: Approval, running: RunningValues | None = None, confirm: str = ""
    ) -> facts.ApprovalAnswered:
        """The fact that an answer makes. `running` has the values that the question was about, `confirm` its text.

        Raises:
            UsageError: it is no answer, or does not confirm a call that must be confirmed, or nobody here can make the call.
        """
        if not self.tools.knew(call.name) and answer not in ("no", "later") and getattr(answer, "answer", "") != "no":
            raise UsageError(
                f"the tool {call.name!r} of the call {call.id!r} is not there: answer 'no', or where the tool is"
            )
        fact = self._answered(call, answer, running or self.reading(call))
        self.require_confirmation(call, answer, running, confirm)
        return fact

    def _answered(self, call: FunctionCall, answer: Approval, running: RunningValues) -> facts.ApprovalAnswered:
        if isinstance(answer, Answered):
            if answer.args is not None and answer.answer != "yes":
                raise UsageError(f"the answer {answer.answer!r} has other arguments: these go with 'yes' alone")
            plain = answer.answer if answer.args is None else replace(call, args=answer.args)
            fact = self._answered(call, plain, running)
            message = answer.message.strip()
            if fact.answer == "no":
                return replace(fact, reason=" ".join(filter(None, [message, fact.reason])), by=answer.by)
            return replace(fact, message=message, by=answer.by)
        if isinstance(answer, FunctionCall):
            if answer.name != call.name:
                raise UsageError(
                    f"the answer is a call of {answer.name!r}, but {call.name!r} was asked about: only its arguments"
                    " can be changed"
                )
            args = sanitize_args(answer.args)
            changed = args if args != dict(call.args) else None
            return facts.ApprovalAnswered(id=call.id, answer="yes", args=changed)
        if answer not in ("yes", "no", "always", "later"):
            meant = f"; for {answer} use {'yes' if answer else 'no'!r}" if isinstance(cast("Any", answer), bool) else ""
            raise UsageError(
                f"the answer to {call.name!r} is {answer!r}: use 'yes', 'no', 'always', 'later', an Answered or a "
                f"FunctionCall{meant}"
            )
        if answer != "always":
            return facts.ApprovalAnswered(id=call.id, answer="no" if answer == "later" else answer)
        definition, digest = self.tools.definition(call.name), self.tools.digests[call.name]
        asked = self.enforced.decide(definition, call, digest=digest, running=running)
        if "sensitive" in asked.rule.split():
            return facts.ApprovalAnswered(id=call.id, answer="yes", reason="A sensitive file is asked about each time.")
        if self.confirmation(call, running):
            return facts.ApprovalAnswered(id=call.id, answer="yes", reason="Such a call is confirmed each time.")
        rule = session_rule(definition, call, digest=digest, raised_by=asked.rule, running=running)
        return facts.ApprovalAnswered(id=call.id, answer="always", rule=rule)

    def budget(self) -> dict[str, Remaining]:
        """The remainder of every limit that is in use."""
        return self.limiter.budget() | self.model.budget()


class CallGuard:
    """The guard of the calls in one run. `wake` is called when a call that had to wait may have got its turn."""

    def __init__(
        self,
        guard: Guard,
        session: str,
        wake: Callable[[], None],
        held: frozenset[str] = frozenset(),
        deps: object = None,
    ) -> None:
        self.guard = guard
        self._deps = deps
        self._held = held
        """Rate limits in which the calls around these have a place."""
        self._session = session
        self._wake = wake
        self._places: dict[str, Place] = {}
        self._slots: dict[str, Slot] = {}
        self._told: set[str] = set()
        """Problems of the policy that this run was told of."""
        self._rewrites: Counter[str] = Counter()
        """Call -> how many times hooks changed its arguments."""
        self._logged: set[str] = set()
        """Calls whose start is in the audit log."""
        self._readings: dict[str, _Reading] = {}
        """Call of a file tool -> its arguments as they were decided about, with the files that their links led to."""

    # Before a call --------------------------------------------------------------------------------------------------------

    async def decide(
        self,
        calls: Sequence[FunctionCall],
        *,
        always: Iterable[SessionRule],
        rewritten: Set[str],
        again: Set[str] = frozenset(),
        asked: Set[str] = frozenset(),
    ) -> tuple[list[facts.CallDecided], list[Notice]]:
        """Decide about calls; hooks have their say about what the policy does not deny, once.

        Calls of `again` were decided about by an earlier run, perhaps by another policy: hooks run on them once
        more. Arguments that a hook has changed (`rewritten`) are changed by none a second time. Calls of `asked` have their
        answer, or can get it without an approver.
        """
        always = tuple(always)
        for call in calls:
            self._readings.pop(call.id, None)  # Its arguments, or what they lead to, may have changed since.
        decisions = await self._verdicts(calls, always, asked)
        for call, decision in zip(calls, decisions, strict=True):
            if decision.verdict == "ask" and call.id in again & asked and call.id in self._readings:
                # The question was about the file that a link led to then, which is not known any more: none is followed.
                self._readings[call.id] = replace(self._readings[call.id], views=())
        notices = [
            Notice("policy", problem, "warning")
            for problem in self.guard.enforced.problems
            if problem not in self.guard.policy.problems and problem not in self._told
        ]
        self._told |= {notice.message for notice in notices}
        if not self.guard.policy.hooks:
            now_s = time.time()
            paired = zip(calls, decisions, strict=True)
            return [
                facts.CallDecided(id=call.id, decision=decision, confirm=self._confirm(call, decision), at_s=now_s)
                for call, decision in paired
            ], notices
        from callgate.permission.hooks import REWRITES_MAX, HookOutcome

        silent = rewritten - again
        hooked = [c for c, d in zip(calls, decisions, strict=True) if d.verdict != "deny" and c.id not in silent]
        outcomes = await self._run_hooks(hooked)
        decided: list[facts.CallDecided] = []
        for call, decision in zip(calls, decisions, strict=True):
            outcome = outcomes.get(call.id, HookOutcome())
            if outcome.args is not None and call.id in rewritten:
                ignored = f"Hooks would change the arguments of {call.name!r} again; they may only once."
                outcome = replace(outcome, args=None, warnings=(*outcome.warnings, ignored))
            notices += [Notice("hook", warning, "warning") for warning in outcome.warnings]
            self._rewrites[call.id] += outcome.args is not None
            if outcome.blocked is not None:
                decision = Decision(verdict="deny", reason=outcome.blocked, by="hook")
            elif self._rewrites[call.id] > REWRITES_MAX:
                outcome = HookOutcome()
                decision = Decision(verdict="deny", reason="A hook and an approver change its arguments in turn.", by="hook")
            confirm = self._confirm(call, decision) if outcome.args is None else None
            decided.append(facts.CallDecided(id=call.id, decision=decision, args=outcome.args, confirm=confirm))
        return decided, notices

    def _confirm(self, call: FunctionCall, decision: Decision) -> str | None:
        return (self.guard.confirmation(call, self.reading(call)) or None) if decision.verdict == "ask" else None

    async def _verdicts(
        self, calls: Sequence[FunctionCall], always: Iterable[SessionRule], asked: Set[str]
    ) -> list[Decision]:
        def decided() -> list[Decision]:
            return [self.guard.verdict(call, always, self.reading(call), can_ask=call.id in asked) for call in calls]

        # Thousands of values take a while to read, and others should not wait for that.
        return await asyncio.to_thread(decided) if any(is_large(call.args) for call in calls) else decided()

    def reading(self, call: FunctionCall) -> RunningValues:
        """The values that the tool gets for arguments; for those of a file tool's call they are the ones decided about."""
        fresh = self.guard.reading(call)
        known = call.name in self.guard.tools.digests
        if not known or self.guard.tools.definition(call.name).kind != "file":
            return fresh
        kept = self._readings.get(call.id)
        if kept is None or kept.args != call.args:
            kept = self._readings[call.id] = _Reading(call.args, fresh(call.args), fresh)
        return kept

    def decided_values(self, call: FunctionCall) -> Mapping[str, Any] | None:
        """The arguments of a file tool's call with the files that were decided about; None for other tools.

        Where the decision was made elsewhere the arguments are as they were written: links in them are not followed then.
        """
        if self.guard.tools.definition(call.name).kind != "file":
            return None
        kept = self._readings.get(call.id)
        return kept.views[0] if kept is not None and kept.views and kept.args == call.args else call.args

    async def _run_hooks(self, calls: Sequence[FunctionCall]) -> dict[str, HookOutcome]:
        from callgate.permission.hooks import run_before

        outcomes: dict[str, HookOutcome] = {}
        room = asyncio.Semaphore(HOOKS_AT_ONCE)

        async def run_one(call: FunctionCall) -> None:
            async with room:
                definition = self.guard.tools.definition(call.name)
                outcomes[call.id] = await run_before(self.guard.policy.hooks, definition, call, session=self._session)

        async with asyncio.TaskGroup() as group:
            for call in calls:
                group.create_task(run_one(call))
        return outcomes

    async def admit(self, records: Sequence[CallRecord]) -> tuple[list[FunctionCall], list[facts.CallDecided]]:
        """Split the allowed calls into those that may start now and those refused. Starts are in the audit log then."""
        ready: list[CallRecord] = []
        refused: list[facts.CallDecided] = []
        for record in records:
            place = self._place_of(record.call)
            if place.refused is not None:
                self._leave(record.call.id)
                refused.append(_refusal(record.call, place.refused, by="limit"))
            elif place.granted:
                ready.append(record)
        try:
            await self._log_starts([record for record in ready if record.call.id not in self._logged])
        except AuditError:
            logger.debug("calls are refused", exc_info=True)  # The log itself has said so.
            reason = "The audit log cannot be written, and what cannot be written down does not run."
            refused += [_refusal(record.call, reason, by="limit") for record in ready]
            for record in ready:
                self._leave(record.call.id)
            ready = []
        return [record.call for record in ready], refused

    def cached(self, call: FunctionCall) -> ToolResult | None:
        """The result of the same call a short time ago, if there is one; else makes ready for what this call does."""
        cache = self.guard.cache
        if cache is None:
            return None
        slot = self._slot(cache, call)
        cache.changed(self.guard.tools.definition(call.name))
        if slot is None:
            return None
        self._slots[call.id] = slot
        return cache.get(slot, call)

    def hides(self, call: FunctionCall) -> Callable[[str, str], bool] | None:
        """The files that a file tool must not show, although the call did not name them."""
        definition = self.guard.tools.definition(call.name)
        if definition.kind != "file" or not definition.read_only:
            return None
        named = "read_file" in self.guard.tools.digests
        reading = self.guard.tools.definition("read_file") if named else None
        return self.guard.enforced.hides(definition, reading)

    def _slot(self, cache: ResultCache, call: FunctionCall) -> Slot | None:
        definition, digest = self.guard.tools.definition(call.name), self.guard.tools.digests[call.name]
        if THREADS.abandoned:
            return None  # A tool that was given up on may still change what is read.
        # A server's definitions are made anew with each connection; its tools are known by their digest.
        function = definition if definition.server is None else None
        scope, policy = (self._deps, function, *self.guard.of_run), self.guard.policy
        return cache.slot(definition, call, digest=digest, session=self._session, policy=policy, scope=scope)

    def _place_of(self, call: FunctionCall) -> Place:
        if call.id not in self._places:
            limiter = self.guard.limiter
            cache = self.guard.cache
            slot = self._slot(cache, call) if cache is not None else None
            if cache is not None and slot is not None and cache.get(slot, call) is not None:
                self._places[call.id] = Place(limiter, None)  # What is not run uses nothing up.
            else:
                self._places[call.id] = limiter.admit(self.guard.tools.definition(call.name), self._wake, self._held)
        return self._places[call.id]

    def limits_around(self, call_id: str) -> frozenset[str]:
        """The rate limits in which a call, or one around it, has a place."""
        place = self._places.get(call_id)
        return self._held if place is None else self._held | place.occupied

    def _leave(self, call_id: str) -> None:
        place = self._places.pop(call_id, None)
        if place is not None:
            place.leave()

    # After a call ---------------------------------------------------------------------------------------------------------

    def ended(self, call: FunctionCall, result: ToolResult) -> bool:
        """A started call has ended: its place is free. Returns whether there are hooks to run after it."""
        self._leave(call.id)
        definition = self.guard.tools.definition(call.name)
        slot = self._slots.pop(call.id, None)
        if self.guard.cache is not None:
            self.guard.cache.changed(definition)
            if slot is not None and result.duration_s > 0:
                self.guard.cache.put(slot, result)
        hooks = self.guard.policy.hooks
        return result.status != "cancelled" and any(hook.when == "after" and hook.is_for(definition) for hook in hooks)

    async def apply_result_hooks(self, call: FunctionCall, result: ToolResult) -> tuple[ToolResult, list[Notice]]:
        """The result with what hooks have to say about it."""
        from callgate.permission.hooks import run_after

        definition = self.guard.tools.definition(call.name)
        outcome = await run_after(self.guard.policy.hooks, definition, call, result, session=self._session)
        notices = [Notice("hook", warning, "warning") for warning in outcome.warnings]
        return result.changed(notes=(*result.notes, *outcome.notes)), notices

    def settled(self, records: Sequence[CallRecord]) -> None:
        """End calls, in whatever way: release their places, and write the outcome to the audit log."""
        for record in records:
            self._leave(record.call.id)
            self._readings.pop(record.call.id, None)
        if self.guard.audit is None or not records:
            return
        try:
            self.guard.audit.write([self._end_record(record) for record in records])
        except AuditError:
            # The effect has been; all that can be done is to say so, and to start nothing more.
            logger.debug("what came of calls is not in the audit log", exc_info=True)

    def close(self) -> None:
        """The run is over: nobody waits any more."""
        for call_id in list(self._places):
            self._leave(call_id)

    # The audit log --------------------------------------------------------------------------------------------------------

    async def _log_starts(self, records: Sequence[CallRecord]) -> None:
        audit = self.guard.audit
        if audit is None or not records:
            return
        written = [{"kind": "start", **self._about(record)} for record in records]
        if all(self.guard.tools.definition(record.call.name).read_only for record in records):
            audit.write(written)
        else:
            # The disk takes its time, and others should not wait for it.
            await asyncio.to_thread(audit.write, written, durable=True)
        self._logged |= {record.call.id for record in records}

    def _about(self, record: CallRecord) -> JsonObject:
        call, decision = record.call, record.decision
        known = call.name in self.guard.tools.digests
        definition = self.guard.tools.definition(call.name) if known else None
        about: JsonObject = {
            "session": self._session, "call": call.id, "tool": self._own_name(call),
            "server": definition.server if definition else None,
            "digest": self.guard.tools.digests.get(call.name, ""), "args": dict(call.args), "notes": list(call.notes),
            "edited": record.edited,
        }  # fmt: skip
        if definition is not None and definition.alias_of is not None:
            about["alias"] = definition.name
        if decision is not None:
            about["decision"] = {"verdict": decision.verdict, "by": decision.by, "reason": decision.reason}
            if decision.approver:
                about["decision"]["approver"] = decision.approver
        return about

    def _own_name(self, call: FunctionCall) -> str:
        known = call.name in self.guard.tools.digests
        return self.guard.tools.definition(call.name).own_name if known else call.name

    def _end_record(self, record: CallRecord) -> JsonObject:
        call, result = record.call, record.result
        ended: JsonObject = {"kind": "end", "session": self._session, "call": call.id, "tool": self._own_name(call)}
        if call.id not in self._logged:
            ended = {"kind": "end", **self._about(record)}  # It never started, so this is all that is known of it.
        self._logged.discard(call.id)
        assert result is not None, "a call that is settled has a result"
        ended |= {"outcome": result.status, "duration_s": round(result.duration_s, 6), "error": result.error}
        return ended | {"notes": [*call.notes, *result.notes]}


def _refusal(call: FunctionCall, reason: str, *, by: str) -> facts.CallDecided:
    return facts.CallDecided(id=call.id, decision=Decision(verdict="deny", reason=reason, by=by))
