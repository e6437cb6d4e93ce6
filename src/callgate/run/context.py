"""The context of one run: its session, journal, observer and declared tools.

Facts are journalled before they take effect; events are reported. `run.py` decides what to do next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from callgate.calls.cancellation import Cancellation
from callgate.calls.observer import Emit
from callgate.calls.tasks import TaskOwner
from callgate.errors import SessionLostError, StoreError
from callgate.events import CallFinished, Event, TurnEnded
from callgate.host import Person
from callgate.machine import facts
from callgate.machine.calls import CallBatch
from callgate.run.config import GateConfig
from callgate.run.sessions import STORE_GUARD, Session
from callgate.store import Lease
from callgate.types import CallRecord, SessionRule, Usage

if TYPE_CHECKING:
    from callgate.run.partial_output import PartialOutput

__all__ = ["BeforeModel", "RunContext"]

BeforeModel: TypeAlias = "Callable[[Usage, float], Awaitable[None]]"
"""Called with what the run has used so far, and the cost of it."""

logger = logging.getLogger("callgate.run")


class RunContext:
    """The session, the journal, the observer and the tasks of one run. It owns the calls of the run."""

    has_plain_args = True  # A collector has read them, the journal, or the answer to an approval.

    def __init__(
        self,
        config: GateConfig,
        session: Session,
        lease: Lease,
        emit: Emit | None,
        *,
        person: Person | None = None,
        before_model: BeforeModel | None = None,
        deps: Any = None,
    ) -> None:
        self.config = config
        self.person = person
        self.before_model = before_model
        """Callback for questions of tools."""
        self.deps = deps
        """The object that the program passed to the run, for tools that declare it."""
        self.spans = config.new_spans(session.id)
        self.session = session
        self.lease = lease
        self.machine = session.machine
        self.stream = emit is not None
        """True if the answer is observed while it arrives."""
        if any(known.reader for known in self.machine.tools.values()):
            config.declarer.add_reader()  # It may have been declared by another process.
        self.declared = config.declare(self.machine.tools)
        """The declared tools."""
        self.cancellation = Cancellation()
        self.tasks = TaskOwner(self.cancellation.fail)
        self.settle: Callable[[Sequence[CallRecord]], None] = lambda records: None
        """Called with settled calls; set by the run's pipeline."""
        self.deferred: set[str] = set()
        """Calls whose answers were deferred when the run was resumed."""
        self.partial: PartialOutput | None = None
        """Reader of the typed output while it arrives, if the run is followed."""
        self.has_begun = False
        """True if later facts belong to this run."""
        self.turn_reason: str | None = None
        """The finish reason of the model's last answer, until the end of that turn was reported."""
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
        """Report an event. An exception of the observer ends the run with that error."""
        if self._emit is not None:
            await self._emit(event)

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
        durable = durable or self.config.is_durable
        settled = await self.session.journal(self.config.store, self.lease, new_facts, durable=durable)
        if settled:
            self.settle(settled)
        return settled

    async def report(self, settled: Sequence[CallRecord]) -> None:
        """Report settled calls, and the end of a turn."""
        for record in settled:
            if record.result is not None:
                await self.emit(CallFinished(record.call, record.result))
        if self.turn_reason is not None and self.machine.phase != "calling":
            reason, self.turn_reason = self.turn_reason, None
            await self.emit(TurnEnded(self.machine.run.turn, reason))

    # Tools ----------------------------------------------------------------------------------------------------------------

    async def refresh_tools(self) -> None:
        """Apply changes of servers. The machine then checks and asks again if necessary."""
        if self.config.executor.is_live:
            self.config.executor.refresh()
            await self._declare(())

    async def _declare(self, found: Collection[str] | None) -> None:
        """Declare further tools from the next request on."""
        if found is None:
            return
        self.declared = self.config.declare([*self.machine.tools, *found])
        known = self.declared.known
        if (known.tools, known.names) != (self.machine.tools, self.machine.names):
            await self.note(known)

    # The lease ------------------------------------------------------------------------------------------------------------

    def request_cancel(self, reason: str) -> bool:
        """Cancel the run cleanly; return whether it will end as cancelled because of this."""
        self.session.stop_soon()
        return self.cancellation.request(reason)

    def interrupt(self, error: Exception) -> bool:
        """End the run with this error where it stands: nothing more is written, so that it can be resumed elsewhere."""
        if not self.cancellation.is_possible:
            return False
        self.session.interruption = error
        self.session.stop_soon()
        self.cancellation.fail(error)
        return True

    def renew_lease(self) -> None:
        """Renew the lease, unless that is in progress or the run is over."""
        if self.cancellation.is_possible and not self._is_renewing:
            self._is_renewing = True
            self.tasks.spawn(self._renew_lease())

    async def _renew_lease(self) -> None:
        """Stop a run that lost its session: another one has taken over."""
        try:
            with STORE_GUARD:
                await self.config.store.renew(self.lease)
        except SessionLostError as error:
            self.session.broken = True
            self.cancellation.fail(error)
        except StoreError as error:
            logger.warning("the lease of session %r could not be renewed: %s", self.session.id, error)
        finally:
            self._is_renewing = False
