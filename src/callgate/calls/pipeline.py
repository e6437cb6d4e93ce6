"""THE PIPELINE: check -> decide -> ask -> admit -> run -> settle, the same for every call.

Executes `CallBatch.todo` and reports facts to the owner of the calls: a run, which journals them, or a call outside a
turn (`single.py`). Questions, deadlines, limits and records are the same for the model's own calls, nested calls, MCP
clients and other frameworks.

    check    the executor finds the tool and checks the arguments
    decide   policy and hooks allow, ask or deny
    ask      the approval is answered; edited arguments are checked and decided again
    admit    order, slots and rates admit the call, and the audit log records its start
    run      the tool runs with its deadline
    settle   its result is a fact; its slots are released, and the audit log records its end
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import warnings
from collections.abc import Generator, Iterable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from callgate import user_code
from callgate.calls.cancellation import Cancellation
from callgate.calls.environment import CallEnvironment, CallOwner, CallScope, ParentCall, Question
from callgate.calls.observer import redacted
from callgate.calls.tasks import TaskOwner
from callgate.events import ApprovalNeeded, CallProgress, CallStarted, Notice
from callgate.host import run_for
from callgate.machine import facts
from callgate.permission.guard import CallGuard
from callgate.strict_json import without_surrogates
from callgate.tools.call import CachedCall, CallObserver, RunningCall
from callgate.types import CallRecord, FunctionCall, Progress, ToolResult

if TYPE_CHECKING:
    from callgate.permission.approval import Approval

__all__ = ["CallPipeline"]

logger = logging.getLogger("callgate.calls")

PROGRESS_MAX = 256
"""Progress reports that may wait before further ones are dropped."""


_Happening: TypeAlias = "facts.CallEnded | CallProgress | Notice | None"
"""An event of running calls; None wakes the loop."""


_QUESTION: ContextVar[asyncio.Lock | None] = ContextVar("callgate_question", default=None)
"""The lock of the question that the current code answers."""


class CallPipeline:
    """Driver of the calls of one owner through their life cycle."""

    def __init__(self, owner: CallOwner, around: CallEnvironment, cancellation: Cancellation, tasks: TaskOwner) -> None:
        self._owner = owner
        self._around = around
        self._cancellation = cancellation
        self._tasks = tasks
        self._inbox: asyncio.Queue[_Happening] = asyncio.Queue()
        self._guard = CallGuard(around.guard, around.session, self._wake, around.held, around.deps)
        self._running: dict[str, RunningCall | CachedCall] = {}
        self._scopes: dict[str, CallScope] = {}
        self._waiting: set[str] = set()
        """Calls that wait for a slot."""
        self._asking: str | None = None
        """The call whose approval is pending."""
        self._question: asyncio.Task[None] | None = None
        self._deferred: set[str] = set()
        """Calls that will be answered later, when this pipeline is gone."""

    async def advance(self, todo: facts.Todo) -> bool:
        """Do what the calls need next, or wait for an event; return False if only deferred answers are missing."""
        if todo.check:
            await self._check(todo.check)
        elif todo.decide:
            await self._decide(todo.decide)
        else:
            has_refused = await self._start(todo.run)
            self._ask_about(todo.approve)
            for call in todo.stop:
                if call.id in self._running:
                    self._running[call.id].stop(self._owner.calls.cancelled or "")
            if has_refused:  # What comes next may have changed with it.
                return True
            is_idle = not self._running and not self._waiting and self._asking is None
            if is_idle and self._inbox.empty():  # On a loop with eager tasks an answer may be here already.
                return False
            await self._wait()
        return True

    async def wind_down(self, reason: str, *, partial_text: str = "") -> None:
        """Stop everything cleanly: every started call gets its result."""
        self._cancellation.is_effective = True
        await self._owner.note(facts.Cancelled(reason=reason, partial=partial_text))
        if self._question is not None:
            await self._tasks.cancel(self._question)
        for running in self._running.values():
            running.stop(reason)
        while self._running:
            await self._wait()

    def defer(self, call_ids: Iterable[str]) -> None:
        """Leave these calls waiting: their answers are deferred."""
        self._deferred.update(call_ids)

    def settle(self, records: Sequence[CallRecord]) -> None:
        """Settle calls: release their slots, and record their outcome in the audit log."""
        self._leave_places({record.call.id for record in records})
        self._guard.settled(records)

    def _leave_places(self, call_ids: set[str]) -> None:
        self._waiting -= call_ids
        for call_id in call_ids:
            self._around.places.leave(call_id)
            self._around.lane.leave(call_id)

    async def aclose(self) -> None:
        """End what is left: nothing after an orderly end, everything if something broke."""
        self._guard.close()
        for scope in self._scopes.values():
            scope.close()
        for call in self._running.values():
            call.stop("The run has failed.")
        for call in list(self._running.values()):
            await call.wait()
        self._leave_places({*self._running, *self._waiting})
        for scope in self._scopes.values():
            await scope.wait()

    # Check ----------------------------------------------------------------------------------------------------------------

    async def _check(self, calls: Sequence[FunctionCall]) -> None:
        check = partial(self._around.executor.check, is_plain=self._owner.has_plain_args)
        edited, rewritten = self._owner.calls.edited, self._owner.calls.rewritten
        authors = ["user" if call.id in edited else "hook" if call.id in rewritten else "model" for call in calls]
        checked = [check(call, author=author) for call, author in zip(calls, authors, strict=True)]
        for author, fact in zip(authors, checked, strict=True):
            if author == "user" and fact.problems:  # The person sees it as well as the model.
                await self._owner.emit(redacted(Notice("edit_refused", " ".join(fact.problems), "warning")))
        await self._owner.note(*checked)

    # Decide ---------------------------------------------------------------------------------------------------------------

    async def _decide(self, calls: Sequence[FunctionCall]) -> None:
        batch = self._owner.calls
        work = self._guard.decide(
            calls, always=self._owner.always, rewritten=batch.rewritten, again=batch.stale, asked=batch.approval_ids
        )
        decided, notices = await self._cancellation.during(work)
        for notice in notices:
            await self._owner.emit(notice)
        await self._owner.note(*decided)

    # Ask ------------------------------------------------------------------------------------------------------------------

    def _ask_about(self, approvals: Sequence[facts.AskApproval]) -> None:
        """Ask about the first call without a question so far."""
        for approval in approvals:
            if self._asking is None and approval.call.id not in self._deferred:
                self._asking = approval.call.id
                self._question = self._tasks.spawn(self._ask(approval))
                return

    async def _ask(self, approval: facts.AskApproval) -> None:
        call = approval.call
        # Deadlines are paused during other questions, too. A call made to answer a question does not wait for it.
        lock = self._around.asking
        asking = contextlib.nullcontext() if _QUESTION.get() is lock else lock
        with self._around.paused():
            async with asking:
                _QUESTION.set(lock)
                if self._owner.calls.find(call.id, "awaiting") is None:
                    return  # It was settled during other questions.
                fact = await self._answer(call, approval)
                if fact is not None:
                    # Before the next question: the answer may cover that one, too.
                    await self._owner.note(fact)
        self._asking = None
        if fact is None:
            self._deferred.add(call.id)
            self._inbox.put_nowait(Notice("approval_postponed", f"The answer for {call.name!r} will come later."))
        else:
            self._wake()

    async def _answer(self, call: FunctionCall, approval: facts.AskApproval) -> facts.ApprovalAnswered | None:
        """Return the answer about one call; None if it is deferred."""
        around = self._around
        decision = around.guard.verdict(call, self._owner.always, self._guard.reading(call))
        if (decision.verdict, decision.by) == ("allow", "user"):
            return facts.ApprovalAnswered(id=call.id, answer="yes")  # A session rule has answered it meanwhile.
        running = self._guard.reading(call)
        reason, confirm = approval.reason, approval.confirm or around.guard.confirmation(call, running)
        scope = around.guard.scope(call, running)
        question = Question(
            call=call.detached(),
            definition=around.executor.definition(call.name),
            digest=around.executor.digests.get(call.name, ""),
            reason=reason,
            preview=await around.executor.preview(call),
            confirm=confirm,
        )
        await self._owner.emit(ApprovalNeeded(call, reason, question.preview, scope, confirm))
        ask = around.ask
        if ask is None:
            return facts.ApprovalAnswered(id=call.id, answer="no", reason=around.guard.policy.nobody)
        outcome = await user_code.call_async(lambda: ask(question))
        answered = outcome
        if outcome.error is None:
            if outcome.value == "later":
                return None
            answered = user_code.call(lambda: around.guard.answer(call, cast("Approval", outcome.value), running, confirm))
        if answered.error is None:
            return cast("facts.ApprovalAnswered", answered.value)
        return await self._failed_answer(call, answered.error)

    async def _failed_answer(self, call: FunctionCall, error: BaseException) -> facts.ApprovalAnswered:
        """Deny a call because the program's own code failed, and say so to the program: the model did nothing wrong."""
        text = user_code.call(lambda: str(error)).value or ""
        said = f"approve failed for {call.name!r}, so the call is denied: {type(error).__name__}: {text}"
        notice = redacted(Notice("approve_failed", said, "warning"))
        logger.error("asking about %r failed", call.name, exc_info=error)
        # Seen without a handler of logs too; a filter that makes an error of it must not end the run.
        user_code.call(lambda: warnings.warn(notice.message, RuntimeWarning, stacklevel=1))
        await self._owner.emit(notice)
        return facts.ApprovalAnswered(id=call.id, answer="no", reason=f"Asking failed ({type(error).__name__}).")

    # Admit and run --------------------------------------------------------------------------------------------------------

    async def _start(self, calls: Sequence[FunctionCall]) -> bool:
        """Journal the starts of a batch together, then run them: those whose turn it is. Return whether any was refused."""
        self._leave_places(self._waiting - {call.id for call in calls})
        if not calls:
            return False
        wanted = {call.id for call in calls if self._has_turn(call)}
        records = [record for record in self._owner.calls.records() if record.call.id in wanted]
        ready, refused = await self._guard.admit(records)
        self._waiting |= wanted - {call.id for call in ready}
        self._waiting -= {call.id for call in ready}
        if refused:
            await self._owner.note(*refused)
        if not ready:
            return bool(refused)
        previews = await self._approved_changes(ready, records)
        now_s = time.time()
        started = [facts.CallStarted(id=call.id, preview=previews.get(call.id), at_s=now_s) for call in ready]
        await self._owner.note(*started, durable=True)
        try:
            # Reported before they run: a tool that blocks the event loop would delay the report of its start, too.
            for call in ready:
                await self._owner.emit(CallStarted(call, previews.get(call.id)))
        finally:
            # A call journalled as started ends with a result, whatever happens to this task.
            for call in ready:
                self._run(call)
        return bool(refused)

    async def _approved_changes(self, calls: Sequence[FunctionCall], records: Sequence[CallRecord]) -> dict[str, str]:
        """Preview the calls that a person approved, as they run: the journal keeps what that person agreed to."""
        approved = {record.call.id for record in records if record.decision is not None and record.decision.by == "user"}
        found = {call.id: await self._around.executor.preview(call) for call in calls if call.id in approved}
        return {call_id: preview for call_id, preview in found.items() if preview}

    def _has_turn(self, call: FunctionCall) -> bool:
        ordered = self._owner.calls.is_ordered(call.id)
        has_turn = self._around.places.take(call.id, self._wake)
        has_turn = has_turn and (not ordered or self._around.lane.take(call.id, self._wake))
        if not has_turn:
            self._waiting.add(call.id)
        return has_turn

    def _run(self, call: FunctionCall) -> None:
        around = self._around
        cached = self._guard.cached(call)
        parent = ParentCall(
            call, self._owner.calls.is_ordered(call.id), self._guard.limits_around(call.id), partial(self._paused, call.id)
        )
        scope = around.scope_of(around, parent)
        observer = CallObserver(
            session=around.session,
            deps=around.deps,
            progress=self._progress_of(call.id),
            call_tool=scope.call,
            on_give_up=scope.close,
            on_end=partial(self._ended, call),
            hides=self._guard.hides(call),
            decided=self._guard.decided_values(call),
        )
        self._scopes[call.id] = scope
        if self._cancellation.pending is not None:
            # It was cancelled while its start was journalled.
            error = f"The call was cancelled before it began, so it had no effect. {self._cancellation.pending}"
            cached = ToolResult(call_id=call.id, name=call.name, status="cancelled", error=error)
        definition = around.executor.definition(call.name)
        with run_for(around.person, around.lend), around.spans.started(call, definition):
            known = cached is not None
            self._running[call.id] = CachedCall(cached, observer) if known else around.executor.start(call, observer)

    @contextlib.contextmanager
    def _paused(self, call_id: str) -> Generator[None]:
        """Stop the clock of a running call, and those of the calls around it."""
        running = self._running.get(call_id)
        with running.paused() if running is not None else contextlib.nullcontext(), self._around.paused():
            yield

    def _ended(self, call: FunctionCall, result: ToolResult) -> None:
        """Handle the end of a call. An error in here ends the run: there is no other owner."""
        try:
            self._scopes[call.id].close()
            self._around.spans.finished(call, result)
            logger.debug("call %s: %s after %.3f s", call.id, result.status, result.duration_s)
            if self._guard.ended(call, result):
                self._tasks.spawn(self._run_hooks(call, result))
            else:
                self._inbox.put_nowait(facts.CallEnded(id=call.id, result=result, at_s=time.time()))
        except Exception as error:
            self._cancellation.fail(error)

    async def _run_hooks(self, call: FunctionCall, result: ToolResult) -> None:
        """Let hooks see a result before it counts."""
        result, notices = await self._guard.apply_result_hooks(call, result)
        for item in (*notices, facts.CallEnded(id=call.id, result=result, at_s=time.time())):
            self._inbox.put_nowait(item)

    def _progress_of(self, call_id: str) -> Progress:
        """Return the progress callback of a tool, which may be called from any thread."""
        event_loop = asyncio.get_running_loop()

        def report(message: str, fraction: float | None = None) -> None:
            message = without_surrogates(message if isinstance(cast("Any", message), str) else str(message))
            if not isinstance(cast("Any", fraction), (int, float)) or not 0 <= cast("float", fraction) <= 1:
                fraction = None  # An observer would have to guess what is meant.
            with contextlib.suppress(RuntimeError):  # The loop is closed: there is no observer.
                event_loop.call_soon_threadsafe(self._take_progress, CallProgress(call_id, message, fraction))

        return report

    def _take_progress(self, event: CallProgress) -> None:
        # A tool that reports faster than the observer reads loses reports, not memory.
        if self._inbox.qsize() < PROGRESS_MAX and event.call_id in self._running:
            self._inbox.put_nowait(event)

    # Settle ---------------------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._inbox.put_nowait(None)

    async def _wait(self) -> None:
        """Wait for an event, then handle all pending ones."""
        items = [await self._cancellation.during(self._inbox.get())]
        while not self._inbox.empty():
            items.append(self._inbox.get_nowait())
        for item in items:
            if isinstance(item, (CallProgress, Notice)):
                await self._owner.emit(item)
        ended = [item for item in items if isinstance(item, facts.CallEnded)]
        for item in ended:
            del self._running[item.id]
            if self._scopes[item.id].is_idle:
                del self._scopes[item.id]
        if ended:
            await self._owner.note(*ended)
