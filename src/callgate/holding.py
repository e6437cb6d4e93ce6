"""The sessions that a gate has in hand: found or begun, held against others while work is done on them, and let go of.

Ids come in, sessions go out with what is known of them by now; the lease of each run is renewed while it lasts. How a run
goes is in `driver.py`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict

from callgate.driver import Session
from callgate.errors import SessionBusy, StoreError
from callgate.store import LEASE_S, Lease, Store
from callgate.store.memory import ANONYMOUS_PREFIX
from callgate.store.owner import new_owner
from callgate.turn import Loop

__all__ = ["Sessions", "held", "let_go"]

logger = logging.getLogger("callgate.driver")

SESSIONS_CACHED = 256


class Sessions:
    """The sessions that were used last, as they are in memory; those of runs under way are always among them."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Session] = OrderedDict()
        self._renewing: set[asyncio.AbstractEventLoop] = set()
        """Where there is a timer for the leases of all runs: a timer for each would mostly be for nothing."""

    def get(self, session_id: str) -> Session | None:
        """The session, if it is in hand."""
        return self._known.get(session_id)

    def of(self, session_id: str | None) -> Session:
        """The session with this id, which begins if there is none; without an id, a new one."""
        if not session_id:
            session_id = f"{ANONYMOUS_PREFIX}{os.urandom(6).hex()}"
        session = self._known.get(session_id)
        if session is not None:
            self._known.move_to_end(session_id)
            return session
        while len(self._known) >= SESSIONS_CACHED and self._forget_oldest():
            pass
        session = self._known[session_id] = Session(session_id, Loop(), 0)
        return session

    def forget(self, session: Session) -> None:
        """Drops what is known: next time the journal is read anew."""
        self._known.pop(session.id, None)

    def _forget_oldest(self) -> bool:
        """Whether there is one without a run."""
        for session in self._known.values():
            if session.driver is None:
                del self._known[session.id]
                return True
        return False

    def keep_leases(self) -> None:
        """From now on the leases of runs on this event loop are renewed in time, until there are none."""
        loop = asyncio.get_running_loop()
        if loop not in self._renewing:
            self._renewing = {other for other in self._renewing if not other.is_closed()} | {loop}
            loop.call_later(LEASE_S / 3, self._renew, loop)

    def _renew(self, loop: asyncio.AbstractEventLoop) -> None:
        drivers = [session.driver for session in list(self._known.values()) if session.driver is not None]
        mine = [driver for driver in drivers if driver.event_loop is loop]
        for driver in mine:
            driver.renew_lease()
        if mine:
            loop.call_later(LEASE_S / 3, self._renew, loop)
        else:
            self._renewing.discard(loop)


async def held(store: Store, session: Session, *, wait_s: float) -> Lease:
    """Holds a session against other processes as soon as none holds it, and takes in what they have added meanwhile.

    Raises:
        SessionBusy: another one holds it for more than `wait_s` seconds.
    """
    lease = await _acquired(store, session.id, wait_s)
    try:
        if lease.position < session.position:  # It was deleted and begun again elsewhere.
            session.loop, session.position = Loop(), 0
        if lease.position > session.position:
            for fact in await store.load(session.id, start=session.position):
                session.loop.apply(fact)
                session.position += 1
    except BaseException:
        await let_go(store, lease)
        raise
    return lease


async def let_go(store: Store, lease: Lease) -> None:
    """Gives a session free for others."""
    try:
        await store.release(lease)
    except StoreError as error:
        logger.debug("the lease of session %r is not given back, and runs out by itself: %s", lease.session, error)


async def _acquired(store: Store, session: str, wait_max_s: float) -> Lease:
    owner, wait_s, waited_s = new_owner(), 0.02, 0.0
    while True:
        try:
            return await store.acquire(session, owner=owner)
        except SessionBusy:
            if waited_s >= wait_max_s:
                raise
        await asyncio.sleep(wait_s)
        waited_s, wait_s = waited_s + wait_s, min(2 * wait_s, 0.5)
