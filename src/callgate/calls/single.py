"""One call outside a turn, on its way through the pipeline.

Made by tools (`nested.py`), MCP clients and other frameworks (`dispatcher.py`). Its life is that of a model's own call;
only the destination of its facts differs, and is up to the caller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from callgate.calls.cancellation import Cancellation, RunCancelled
from callgate.calls.environment import CallEnvironment
from callgate.calls.observer import redacted
from callgate.calls.pipeline import CallPipeline
from callgate.calls.tasks import TaskOwner
from callgate.events import Event
from callgate.machine import facts
from callgate.machine.calls import CallBatch, CallFact, rule_of
from callgate.types import CallRecord, FunctionCall, SessionRule

__all__ = ["SingleCall"]

Note = Callable[[CallFact, CallRecord], Awaitable[None]]
"""Observe a fact before it is applied, with the current call."""


class SingleCall:
    """A call that is its own owner.

    Args:
        call: The call.
        around: Its environment.
        always: The session rules; a new one is passed to `keep`.
        keep: Stores a session rule.
        note: Observes the start of the call, before it starts, and its end.
        emit: Observes events.
    """

    has_plain_args = False

    def __init__(
        self,
        call: FunctionCall,
        around: CallEnvironment,
        *,
        always: Callable[[], Iterable[SessionRule]],
        keep: Callable[[SessionRule], Awaitable[None]],
        note: Note,
        emit: Callable[[Event], Awaitable[None]],
    ) -> None:
        self.calls = CallBatch([call], is_ordered=around.executor.is_ordered)
        self.cancellation = Cancellation()
        self._always, self._keep, self._note, self._emit = always, keep, note, emit
        self._stopped: str | None = None
        self._tasks = TaskOwner(self.cancellation.fail)
        self._pipeline = CallPipeline(self, around, self.cancellation, self._tasks)

    @property
    def always(self) -> Iterable[SessionRule]:
        """The lasting answers of the session."""
        return self._always()

    @property
    def record(self) -> CallRecord:
        """The call as it is now."""
        return self.calls.calls[0].record()

    async def carry_out(self) -> CallRecord:
        """Take the call to its end. A deferred call is `awaiting` then, and has no result."""
        self.cancellation.begin()
        if self._stopped is not None:
            self.cancellation.request(self._stopped)
        try:
            while not self.calls.is_over:
                try:
                    self.cancellation.raise_if_requested()
                    if not await self._pipeline.advance(self.calls.todo()):
                        break
                except RunCancelled:
                    await self._pipeline.wind_down(self.cancellation.pending or "")
            return self.record
        finally:
            self.cancellation.end()
            await self._pipeline.aclose()
            await self._tasks.aclose()

    def stop(self, reason: str) -> None:
        """Stop the call soon, whatever it is doing; `carry_out` then ends with the status `cancelled`."""
        if not self.cancellation.request(reason):
            self._stopped = self._stopped or reason  # Unless it has ended, it has not begun.

    async def note(self, *new_facts: facts.Fact, durable: bool = False) -> None:
        """Take facts about the call in."""
        for fact in new_facts:
            known = self.calls.calls[0]
            if isinstance(fact, facts.ApprovalAnswered) and fact.answer == "always" and known.state == "awaiting":
                await self._keep(rule_of(fact, known))
            if isinstance(fact, facts.CallStarted):
                await self._note(fact, self.record)
            settled = self.calls.apply(_call_fact(fact))
            self._pipeline.settle(settled)
            if settled and isinstance(fact, facts.CallEnded):
                await self._note(fact, self.record)

    async def emit(self, event: Event) -> None:
        """Report an event."""
        await self._emit(redacted(event))


def _call_fact(fact: facts.Fact) -> CallFact:
    assert isinstance(fact, CallFact), "a pipeline makes facts about calls alone"
    return fact
