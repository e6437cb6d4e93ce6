"""The sessions that a gate has in hand: found or begun, held against others while work is done on them, and let go of.

Ids come in, sessions go out with what is known of them by now; the lease of each run is renewed while it lasts. How a run
goes is in `driver.py`.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
from collections import OrderedDict

from callgate.errors import SessionBusy, StoreError
from callgate.machine.machine import RunMachine
from callgate.run.run import Session
from callgate.store import LEASE_S, Lease, MemoryStore, Store
from callgate.store.anonymous import begun, new_session_id
from callgate.store.owner import new_owner
from callgate.store.protocol import check_id

__all__ = ["Sessions"]

logger = logging.getLogger("callgate.run.run")

SESSIONS_CACHED = 256


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
            UsageError: the id cannot be that of a session, or that of one that a store in memory has forgotten.
        """
        session = self._taken(session_id)
        try:
            await session.lock.acquire()
        except BaseException:
            self._give_back(session)
            raise
        try:
            if isinstance(store, MemoryStore):
                store.check_known(session.id)
            lease = await self._acquired(store, session.id, wait_s)
        except BaseException:
            self._free(session)
            raise
        try:
            if session.broken or lease.position < session.position:  # Or it was deleted and begun again elsewhere.
                session.loop, session.position, session.broken = RunMachine(), 0, False
            if lease.position > session.position:
                for fact in await store.load(session.id, start=session.position):
                    session.loop.apply(fact)
                    session.position += 1
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
            if session.position:
                begun(session.id)
            self._free(session)

    def keep_leases(self, loop: asyncio.AbstractEventLoop) -> None:
        """From now on the leases of runs on this event loop are renewed in time, until there are none."""
        if loop not in self._renewing:
            self._renewing = {other for other in self._renewing if not other.is_closed()} | {loop}
            # In a context of its own: it outlasts the run that it is made in, and is not to hold what belongs to that.
            loop.call_later(LEASE_S / 3, self._renew, loop, context=contextvars.Context())

    # Behind it ------------------------------------------------------------------------------------------------------------

    def _taken(self, session_id: str | None) -> Session:
        if session_id:
            check_id(session_id)
        else:
            session_id = new_session_id()
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
        if session.broken or (session.is_new and session.loop.phase in ("idle", "done")):
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
        drivers = [session.driver for session in list(self._known.values()) if session.driver is not None]
        mine = [driver for driver in drivers if driver.event_loop is loop]
        for driver in mine:
            driver.renew_lease()
        if mine:
            loop.call_later(LEASE_S / 3, self._renew, loop)
        else:
            self._renewing.discard(loop)
