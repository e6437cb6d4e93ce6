"""The sessions that a gate has in hand: found or begun, held against others while work is done on them, and let go of.

Ids come in, sessions go out with what is known of them by now; the lease of each run is renewed while it lasts. How a run
goes is in `run.py`.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from callgate.errors import SessionBusy, StoreError
from callgate.machine import facts
from callgate.machine.machine import RunMachine
from callgate.store import LEASE_S, Lease, Store
from callgate.store.memory import ANONYMOUS_PREFIX
from callgate.store.owner import new_owner
from callgate.types import CallRecord

__all__ = ["ActiveRun", "Session", "Sessions"]

logger = logging.getLogger("callgate.run.run")

SESSIONS_CACHED = 256


class ActiveRun(Protocol):
    """A run that goes on, as others see it."""

    @property
    def lease(self) -> Lease:
        """The right to write to the session."""
        ...

    @property
    def event_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that it runs on."""
        ...

    def renew_lease(self) -> None:
        """Renew the lease of the run."""
        ...

    def request_cancel(self, reason: str) -> bool:
        """Stop the run in good order; return whether it will end as cancelled because of this."""
        ...


@dataclass(slots=True)
class Session:
    """A conversation that this gate has in hand."""

    id: str
    machine: RunMachine
    position: int
    """Facts in the journal."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
    """Who has it in hand, or waits for that."""
    is_new: bool = True
    """Whether there was nothing in the journal when it was last taken in hand."""
    run: ActiveRun | None = None
    is_reported: bool = False
    """Whether what is wrong with its journal was reported."""
    broken: bool = False
    """The journal could not be written, so the state in memory is not to be trusted."""
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def journal(
        self, store: Store, lease: Lease, new_facts: Sequence[facts.Fact], *, durable: bool = False
    ) -> list[CallRecord]:
        """Journals facts, then takes them in; gives out the calls that they settled."""
        # As `async with` would do it, with two coroutines less for each fact.
        await self.writing.acquire()
        try:
            now_s = time.time()
            new_facts = [fact if fact.at_s is not None else facts.dated(fact, now_s) for fact in new_facts]
            try:
                await store.append(lease, new_facts, position=self.position, durable=durable)
            except BaseException:
                self.broken = True
                raise
            self.position += len(new_facts)
            return [record for fact in new_facts for record in self.machine.apply(fact)]
        finally:
            self.writing.release()


class Sessions:
    """Sessions as they are in memory: those in use, and those that were used last.

    One that has come to the end of its first run is not kept: most are not heard of again, and a run is soon read back.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, Session] = OrderedDict()
        self._owner, self._process = "", 0
        self._renewing: set[asyncio.AbstractEventLoop] = set()
        """Where there is a timer for the leases of all runs: a timer for each would mostly be for nothing."""

    def get(self, session_id: str) -> Session | None:
        """The session, if it is in hand."""
        return self._known.get(session_id)

    async def hold(self, session_id: str | None, store: Store, *, wait_s: float) -> tuple[Session, Lease]:
        """A session that nobody else works on, here or in another process, as it is by now; it is to be let go of again.

        One that does not exist yet begins, and so does one without an id.

        Raises:
            SessionBusy: another process holds it for more than `wait_s` seconds.
        """
        session = self._taken(session_id)
        try:
            await session.lock.acquire()
        except BaseException:
            self._give_back(session)
            raise
        try:
            lease = await self._acquired(store, session.id, wait_s)
        except BaseException:
            self._free(session)
            raise
        try:
            if session.broken or lease.position < session.position:  # Or it was deleted and begun again elsewhere.
                session.machine, session.position, session.broken = RunMachine(), 0, False
            if lease.position > session.position:
                await _catch_up(session, store)
        except BaseException:
            await self.let_go(session, lease, store)
            raise
        session.is_new = lease.position == 0
        return session, lease

    async def let_go(self, session: Session, lease: Lease, store: Store) -> None:
        """Gives a session free for others."""
        try:
            await store.release(lease)
        except StoreError as error:
            logger.debug("the lease of session %r is not given back, and runs out by itself: %s", session.id, error)
        finally:
            self._free(session)

    def keep_leases(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on the leases of runs on this event loop are renewed in time, until there are none."""
        if loop not in self._renewing:
            self._renewing = {other for other in self._renewing if not other.is_closed()} | {loop}
            # In a context of its own: it outlasts the run that it is made in, and is not to hold what belongs to that.
            loop.call_later(LEASE_S / 3, self._renew, loop, context=contextvars.Context())

    # Behind it ------------------------------------------------------------------------------------------------------------

    def _taken(self, session_id: str | None) -> Session:
        if not session_id:
            session_id = f"{ANONYMOUS_PREFIX}{os.urandom(6).hex()}"
        session = self._known.get(session_id)
        if session is None:
            session = self._known[session_id] = Session(session_id, RunMachine(), 0)
        session.users += 1
        return session

    async def _acquired(self, store: Store, session: str, wait_max_s: float) -> Lease:
        """The lease of a session, as soon as nobody else holds it. Among the runs here its lock has seen to that."""
        if self._process != os.getpid():  # A child of this process is somebody else.
            self._owner, self._process = new_owner(), os.getpid()
        wait_s, waited_s = 0.02, 0.0
        while True:
            try:
                return await store.acquire(session, owner=self._owner)
            except SessionBusy:
                if waited_s >= wait_max_s:
                    raise
            await asyncio.sleep(wait_s)
            waited_s, wait_s = waited_s + wait_s, min(2 * wait_s, 0.5)

    def _free(self, session: Session) -> None:
        session.lock.release()
        self._give_back(session)

    def _give_back(self, session: Session) -> None:
        session.users -= 1
        if session.users:
            return
        if session.broken or (session.is_new and session.machine.phase in ("idle", "done")):
            del self._known[session.id]
            return
        self._known.move_to_end(session.id)
        while len(self._known) > SESSIONS_CACHED and self._forget_oldest():
            pass

    def _forget_oldest(self) -> bool:
        """Whether there is one that is not in use."""
        for session in self._known.values():
            if not session.users:
                del self._known[session.id]
                return True
        return False

    def _renew(self, loop: asyncio.AbstractEventLoop) -> None:
        runs = [session.run for session in list(self._known.values()) if session.run is not None]
        mine = [run for run in runs if run.event_loop is loop]
        for run in mine:
            run.renew_lease()
        if mine:
            loop.call_later(LEASE_S / 3, self._renew, loop)
        else:
            self._renewing.discard(loop)


async def _catch_up(session: Session, store: Store) -> None:
    """Take in what others have journalled since. A journal that cannot be applied is read again from its beginning."""
    new_facts = await store.load(session.id, start=session.position)
    try:
        for fact in new_facts:
            session.machine.apply(fact)
            session.position += 1
    except Exception:
        logger.exception("the journal of session %r holds a fact that cannot be applied", session.id)
        journal = await store.load(session.id)
        session.machine, session.position, session.is_reported = RunMachine(journal), len(journal), False
