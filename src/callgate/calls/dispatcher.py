"""Calls that belong to no run of a gate -> one result each: checked, decided, asked about, run and written down.

A call and whoever made it come in, a `ToolResult` goes out. The keeper, the limits and the audit log are those that a run
would meet; a question goes to whoever made the call. What language they speak is of no interest here.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from callgate.permission.approval import Approval
from callgate.permission.guard import CallGuard, Guard
from callgate.tools.call import CachedCall, CallObserver, RunningCall
from callgate.tools.executor import Executor
from callgate.types import (
    CallRecord,
    Decision,
    FunctionCall,
    Progress,
    ResultStatus,
    SessionRule,
    ToolDefinition,
    ToolResult,
)

__all__ = ["Ask", "CallDispatcher", "DeferredCall", "InFlightCall", "Question"]

logger = logging.getLogger("callgate.mcp")

VISITS_MAX = 256
"""Calls that may be under way, most of them waiting; a further one is refused."""
SESSIONS_MAX = 10_000
"""Sessions whose lasting answers are remembered; the one that was used longest ago is forgotten first."""
ASK_S = 600.0
"""How long somebody may think about a question."""
CLOSE_S = 5.0
"""How long calls may take to end when all is being closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What somebody is asked."""

    call: FunctionCall
    definition: ToolDefinition
    digest: str
    """Hash of what is declared of the tool now."""
    reason: str
    preview: str | None
    """What the call would change, if its tool can say."""


Ask = Callable[[Question], Awaitable[Approval]]
"""Asks whoever made a call. Raising `DeferredCall` ends the call without a result, to be made again with an answer."""


class DeferredCall(Exception):
    """The answer will come with another call like this one."""


@dataclass(slots=True)
class _Session:
    """What is remembered of one client."""

    always: dict[str, SessionRule] = field(default_factory=dict[str, SessionRule])
    order: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Calls that keep their order run one after another."""
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One question at a time, so that a person can cope."""


class InFlightCall:
    """One call under way. `stop` ends it soon, whatever it is doing."""

    def __init__(self, work: asyncio.Task[ToolResult]) -> None:
        self.work = work
        self.running: RunningCall | CachedCall | None = None
        self.reason: str | None = None

    def stop(self, reason: str) -> None:
        """Tells the tool to stop, or the call not to start."""
        if self.reason is None:
            self.reason = reason
            if self.running is None:
                self.work.cancel()
            else:
                self.running.stop(reason)


class CallDispatcher:
    """Takes calls in, for as many clients as there are.

    Args:
        executor: The tools.
        keeper: What decides about calls; shared with a gate, its limits in time are shared too.
        nobody: What is said of a call that must be asked about by a client that cannot be asked.
    """

    def __init__(self, executor: Executor, keeper: Guard, *, nobody: str) -> None:
        self.executor = executor
        # Limits, log and policy stay shared; only who is asked is another one: here it is each client.
        self.keeper = copy.copy(keeper)
        self.keeper.approve = _asked_elsewhere
        self._nobody = nobody
        self._room = asyncio.Semaphore(executor.limits.parallel)
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._visits: set[InFlightCall] = set()

    def take(self, call: FunctionCall, *, session: str, ask: Ask | None, progress: Progress) -> InFlightCall:
        """Begins a call. Its result is that of `visit.work`, which raises only what `ask` raises to postpone it."""
        arrived: asyncio.Future[InFlightCall] = asyncio.get_running_loop().create_future()
        visit = InFlightCall(asyncio.create_task(self._work(arrived, call, session, ask, progress)))
        visit.work.add_done_callback(lambda work: self._left(visit, work))
        self._visits.add(visit)
        arrived.set_result(visit)
        return visit

    def _left(self, visit: InFlightCall, work: asyncio.Task[ToolResult]) -> None:
        self._visits.discard(visit)
        if not work.cancelled():
            work.exception()  # Looked at, because whoever made the call may be gone.

    async def aclose(self) -> None:
        """Stops all calls, and waits until they have ended."""
        work = [visit.work for visit in self._visits]
        for visit in list(self._visits):
            visit.stop("The server is closing.")
        if work:
            await asyncio.wait(work, timeout=CLOSE_S)

    # One call -------------------------------------------------------------------------------------------------------------

    async def _work(
        self, arrived: asyncio.Future[InFlightCall], call: FunctionCall, session: str, ask: Ask | None, progress: Progress
    ) -> ToolResult:
        visit = await arrived
        wake = asyncio.Event()
        post = CallGuard(self.keeper, session, wake.set)
        record = CallRecord(call=call, state="proposed")
        try:
            if len(self._visits) > VISITS_MAX:
                record = _ended(record, "failed", f"Not run: {VISITS_MAX} calls are under way already; call again later.")
            else:
                record = await self._decided(record, post, self._session(session), ask)
                if record.result is None:
                    record = await self._ran(record, post, visit, wake, CallObserver(session=session, progress=progress))
        except DeferredCall:
            raise
        except asyncio.CancelledError:
            if visit.reason is None:
                raise  # Not by us: the event loop is ending.
            record = _ended(record, "cancelled", f"The call was cancelled before it started. {visit.reason}")
        finally:
            if record.result is not None:
                post.settled([record])
            post.close()
        assert record.result is not None, "a call that was taken in ends with a result"
        return record.result

    async def _decided(self, record: CallRecord, post: CallGuard, session: _Session, ask: Ask | None) -> CallRecord:
        """The call as it may run; one that may not has its result."""
        rewritten: frozenset[str] = frozenset()
        while True:
            checked = self.executor.check(record.call)
            if checked.tool is None or checked.problems:
                return _ended(record, "failed", " ".join(checked.problems))
            call = replace(record.call, name=checked.tool, args=checked.args, notes=tuple(checked.coercions))
            (decided,), notices = await post.decide([call], always=session.always.values(), rewritten=rewritten)
            for notice in notices:
                logger.warning("%s", notice.message)
            record = replace(record, call=call, decision=decided.decision)
            if decided.decision.verdict == "deny":
                return _ended(record, "denied", f"This call was not allowed. {decided.decision.reason}")
            if decided.args is None:
                break
            # A hook wants other arguments: what would run is another call, which is checked and decided about anew.
            record = replace(record, call=replace(call, args=decided.args))
            rewritten = frozenset({call.id})
        if decided.decision.verdict == "ask":
            return await self._asked(record, session, ask)
        return replace(record, state="allowed")

    async def _asked(self, record: CallRecord, session: _Session, ask: Ask | None) -> CallRecord:
        call, decision = record.call, record.decision
        assert decision is not None
        if ask is None:
            refusal = Decision(verdict="deny", reason=f"{decision.reason} {self._nobody}")
            return _ended(replace(record, decision=refusal), "denied", f"This call was not allowed. {refusal.reason}")
        async with session.asking:
            again = self.keeper.verdict(call, session.always.values())
            if again.verdict == "allow":  # It was answered for good meanwhile.
                return replace(record, state="allowed", decision=again)
            answer, reason = await self._answer(call, decision.reason, ask)
            fact = self.keeper.answer(call, answer)
            if fact.answer == "no":
                refusal = Decision(verdict="deny", reason=reason, by="user")
                return _ended(
                    replace(record, decision=refusal), "denied", f"The user did not allow this call. {reason}".strip()
                )
            if fact.rule is not None:
                session.always[fact.rule.id] = fact.rule
            return replace(record, state="allowed", decision=Decision(verdict="allow", reason=fact.reason, by="user"))

    async def _answer(self, call: FunctionCall, why: str, ask: Ask) -> tuple[Approval, str]:
        question = Question(
            call=call,
            definition=self.executor.definition(call.name),
            digest=self.executor.digests[call.name],
            reason=why,
            preview=await self.executor.preview(call),
        )
        try:
            async with asyncio.timeout(ASK_S):
                return await ask(question), ""
        except TimeoutError:
            return "no", f"Nobody answered within {ASK_S:g} s."
        except DeferredCall:
            raise
        except Exception as error:
            # The client broke the conversation about it. What nobody could be asked about does not run.
            logger.exception("asking about %r failed", call.name)
            return "no", f"Asking failed ({type(error).__name__})."

    async def _ran(
        self, record: CallRecord, post: CallGuard, visit: InFlightCall, wake: asyncio.Event, watch: CallObserver
    ) -> CallRecord:
        call = record.call
        session = self._session(watch.session or "")
        ordered = self.executor.definition(call.name).ordered
        async with session.order if ordered else contextlib.nullcontext(), self._room:
            while True:
                wake.clear()
                ready, refused = await post.admit([record])
                if refused:
                    decision = refused[0].decision
                    return _ended(
                        replace(record, decision=decision), "denied", f"This call was not allowed. {decision.reason}"
                    )
                if ready:
                    break
                await wake.wait()
            kept = post.kept(call)
            visit.running = CachedCall(kept, watch) if kept is not None else self.executor.start(call, watch)
            result = await visit.running.wait()
        if post.ended(call, result):
            result, notices = await post.heard(call, result)
            for notice in notices:
                logger.warning("%s", notice.message)
        return replace(record, state=result.status, result=result)

    def _session(self, name: str) -> _Session:
        session = self._sessions.setdefault(name, _Session())
        self._sessions.move_to_end(name)
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return session


async def _asked_elsewhere(call: FunctionCall, definition: ToolDefinition, reason: str) -> Approval:
    """Stands for the clients, each of which is asked about its own calls."""
    return "no"


def _ended(record: CallRecord, status: ResultStatus, error: str) -> CallRecord:
    result = ToolResult(call_id=record.call.id, name=record.call.name, status=status, error=error.strip())
    return replace(record, state=status, result=result)
