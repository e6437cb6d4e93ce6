"""Leases of sessions: acquired with a time-out, renewed while a run lasts, and known to the code that the run calls."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Iterable
from typing import Protocol

from callgate.errors import SessionBusyError, StoreError
from callgate.store import LEASE_S, Lease, Store
from callgate.sync import PROCESS_LOCK
from callgate.user_code import keeps_running

__all__ = ["CURRENT_LEASES", "STORE_GUARD", "LeaseHolder", "LeaseRenewal", "acquire_lease"]

STORE_GUARD = keeps_running(StoreError, "the store", also=OSError)
"""Around each use of a store during a run: it may be the program's own."""

CURRENT_LEASES: contextvars.ContextVar[tuple[Lease, ...]] = contextvars.ContextVar("callgate_leases", default=())
"""The leases of the runs that called the current code. Not the runs: a context may live long."""


class LeaseHolder(Protocol):
    """A run that holds the lease of its session."""

    @property
    def lease(self) -> Lease:
        """The right to write to the session."""
        ...

    @property
    def event_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop that it runs on."""
        ...

    def renew_lease(self) -> None:
        """Renew the lease in the background. On its event loop."""
        ...


async def acquire_lease(store: Store, session: str, *, owner: str, wait_max_s: float) -> Lease:
    """Wait for the lease of a session.

    Raises:
        SessionBusyError: another process holds it for more than `wait_max_s` seconds.
    """
    wait_s, waited_s = 0.02, 0.0
    while True:
        try:
            with STORE_GUARD:
                return await store.acquire(session, owner=owner)
        except SessionBusyError:
            if waited_s >= wait_max_s:
                raise
        await asyncio.sleep(wait_s)
        waited_s, wait_s = waited_s + wait_s, min(2 * wait_s, 0.5)


class LeaseRenewal:
    """Renewal of the leases of all holders, with one timer per event loop."""

    def __init__(self, holders: Callable[[], Iterable[LeaseHolder]]) -> None:
        self._holders = holders
        self._loops: set[asyncio.AbstractEventLoop] = set()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Renew the leases of the holders on this event loop in time, until there are none."""
        if loop in self._loops:
            return
        with PROCESS_LOCK:
            self._loops = {other for other in self._loops if not other.is_closed()} | {loop}
        # In its own context: it outlives the run that creates it, and must not reference it.
        loop.call_later(LEASE_S / 3, self._renew, loop, context=contextvars.Context())

    def forget(self) -> None:
        """Forget all event loops: those of a parent process do not run after a fork."""
        self._loops = set()

    def _renew(self, loop: asyncio.AbstractEventLoop) -> None:
        with PROCESS_LOCK:
            mine = [holder for holder in self._holders() if holder.event_loop is loop]
            if not mine:
                self._loops.discard(loop)
        for holder in mine:
            holder.renew_lease()
        if mine:
            loop.call_later(LEASE_S / 3, self._renew, loop)
