"""What one run has in hand: its session, its journal, whoever watches it, and the tools that its model is told of.

Facts come in and are journalled before anything follows from them; events go out. What to do next is for `run.py` to say.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace

from callgate import user_code
from callgate.calls.cancellation import Cancellation
from callgate.calls.tasks import TaskOwner
from callgate.errors import SessionLostError, StoreError
from callgate.events import CallFinished, Event, TurnEnded
from callgate.host import Person
from callgate.machine import facts
from callgate.machine.calls import CallBatch
from callgate.run.config import GateConfig
from callgate.run.sessions import Session
from callgate.store import Lease
from callgate.types import CallRecord, FunctionCall, SessionRule

__all__ = ["Emit", "RunContext"]

logger = logging.getLogger("callgate.run")

Emit = Callable[[Event], Awaitable[None]]


class RunContext:
    """The session, the journal, the watcher and the tasks of one run. It owns the calls of the run."""

    def __init__(
        self, config: GateConfig, session: Session, lease: Lease, emit: Emit | None, *, person: Person | None = None
    ) -> None:
        self.config = config
        self.person = person
        """Who answers what tools want to know."""
        self.spans = config.new_spans(session.id)
        self.session = session
        self.lease = lease
        self.machine = session.machine
        self.stream = emit is not None
        """Whether somebody watches the answer arrive."""
        if any(known.reader for known in self.machine.tools.values()):
            config.declarer.add_reader()  # The process that declared it may have been another one.
        self.declared = config.declare(self.machine.tools)
        """The tools as the model is told of them."""
        self.cancellation = Cancellation()
        self.tasks = TaskOwner(self.cancellation.fail)
        self.settle: Callable[[Sequence[CallRecord]], None] = lambda records: None
        """Told of calls that are over; set by the run's pipeline."""
        self.deferred: set[str] = set()
        """Calls that whoever resumed the run wants to answer later."""
        self.has_begun = False
        """Whether what follows from here on belongs to this run."""
        self.turn_reason: str | None = None
        """Why the model's last answer ended, until the end of that turn was reported."""
        self.event_loop = asyncio.get_running_loop()
        self._emit = emit
        self._is_renewing = False

    @property
    def calls(self) -> CallBatch:
        """The calls of the current turn."""
        return self.machine.calls

    @property
    def always(self) -> Iterable[SessionRule]:
        """The lasting answers of the session."""
        return self.machine.always.values()

    async def emit(self, event: Event) -> None:
        """Report what happens. Whatever the watcher raises ends the run with that error."""
        watch = self._emit
        if watch is None:
            return
        call = getattr(event, "call", None)
        if isinstance(call, FunctionCall):
            event = replace(event, call=call.detached())  # The watcher cannot change what will run.
        outcome = await user_code.call_async(lambda: watch(event))
        if outcome.exception is not None:
            raise outcome.exception

    async def note(self, *new_facts: facts.Fact, durable: bool = False) -> None:
        """Journal facts, take them in, and report the calls that they settle."""
        results = [fact.result for fact in new_facts if isinstance(fact, facts.CallEnded)]
        if results:
            # Declared before the model reads that it can be called.
            await self._declare(self.config.declarer.reader_for(results, self.machine.tools))
        await self.report(await self.journal(*new_facts, durable=durable))
        if results:
            await self._declare(self.config.declarer.found_in(results))

    async def journal(self, *new_facts: facts.Fact, durable: bool = False) -> list[CallRecord]:
        """Journal facts and take them in; return the calls that they settled."""
        if not new_facts:
            return []
        settled = await self.session.journal(self.config.store, self.lease, new_facts, durable=durable)
        if settled:
            self.settle(settled)
        return settled

    async def report(self, settled: Sequence[CallRecord]) -> None:
        """Report the calls that are over, and the end of a turn."""
        for record in settled:
            if record.result is not None:
                await self.emit(CallFinished(record.call, record.result))
        if self.turn_reason is not None and self.machine.phase != "calling":
            reason, self.turn_reason = self.turn_reason, None
            await self.emit(TurnEnded(self.machine.run.turn, reason))

    # Tools ----------------------------------------------------------------------------------------------------------------

    async def refresh_tools(self) -> None:
        """Take in what servers have changed. The machine then checks and asks again where that matters."""
        if self.config.executor.is_live:
            self.config.executor.refresh()
            await self._declare(())

    async def _declare(self, found: Collection[str] | None) -> None:
        """Declare tools besides those that are declared from the next request on."""
        if found is None:
            return
        self.declared = self.config.declare([*self.machine.tools, *found])
        known = self.declared.known
        if (known.tools, known.names) != (self.machine.tools, self.machine.names):
            await self.note(known)

    # The lease ------------------------------------------------------------------------------------------------------------

    def request_cancel(self, reason: str) -> bool:
        """Stop the run in good order; return whether it will end as cancelled because of this."""
        self.session.is_stopping = True
        return self.cancellation.request(reason)

    def interrupt(self, error: Exception) -> bool:
        """End the run with this error where it stands: nothing more is written, so that it can be resumed elsewhere."""
        if not self.cancellation.is_possible:
            return False
        self.session.interruption = error
        self.cancellation.fail(error)
        return True

    def renew_lease(self) -> None:
        """Renew the lease, unless that is being done or the run is over."""
        if self.cancellation.is_possible and not self._is_renewing:
            self._is_renewing = True
            self.tasks.spawn(self._renew_lease())

    async def _renew_lease(self) -> None:
        """A run that lost its session stops: another one is at work on it."""
        try:
            await self.config.store.renew(self.lease)
        except SessionLostError as error:
            self.session.broken = True
            self.cancellation.fail(error)
        except StoreError as error:
            logger.warning("the lease of session %r could not be renewed: %s", self.session.id, error)
        finally:
            self._is_renewing = False
