"""The sessions of a gate in memory: loaded or created, locked and leased during a run, and released.

Takes ids, returns sessions that are up to date with their journals; leases are renewed while a run lasts. `run.py` is one
run. All of this may be used by several event loops and threads.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from callgate.errors import StoreError, UsageError
from callgate.machine import facts
from callgate.machine.machine import RunMachine
from callgate.run.lease import CURRENT_LEASES, STORE_GUARD, LeaseHolder, LeaseRenewal, acquire_lease
from callgate.store import Lease, MemoryStore, Store
from callgate.store.anonymous import mark_used, new_session_id
from callgate.store.owner import new_owner
from callgate.store.protocol import check_id
from callgate.sync import PROCESS_LOCK, CrossLoopLock, call_in_loop
from callgate.types import CallRecord, Content
from callgate.user_code import is_cancelled, text_of

__all__ = ["STORE_GUARD", "ActiveRun", "Session", "Sessions", "running"]

logger = logging.getLogger("callgate.run")

SESSIONS_CACHED = 256
SLICE_S = 0.02
"""Seconds of a replay after which other tasks of the event loop continue."""
STOP_WAIT_S = 2.0
"""Seconds that a cancelled run waits for the store with each entry in its journal."""
RELEASE_WAIT_S = 10.0
"""Seconds that the end of a run waits for the store to release the session; the lease expires without that too."""
CANCEL_WAIT_S = 5.0
"""Seconds that a cancellation from another thread waits for the event loop of the run."""


class ActiveRun(LeaseHolder, Protocol):
    """A run that works on a session."""

    def request_cancel(self, reason: str) -> bool:
        """Ask the run to stop; return whether it will because of this. On its event loop."""
        ...

    def interrupt(self, error: Exception) -> bool:
        """End the run with this error and write nothing more; return whether it will. On its event loop."""
        ...


@dataclass(slots=True)
class Session:
    """A conversation that this gate has in memory."""

    id: str
    machine: RunMachine
    position: int
    """Facts in the journal."""
    lock: CrossLoopLock = field(default_factory=CrossLoopLock)
    """Held during work on the session."""
    users: int = 0
    """Holders of the lock, and those that wait for it."""
    is_new: bool = True
    """True if the journal was empty when the session was last acquired."""
    run: ActiveRun | None = None
    is_reported: bool = False
    """True if the problems of its journal were reported."""
    broken: bool = False
    """The journal could not be written, so the state in memory is not to be trusted."""
    is_stopping: bool = False
    """True if its run was asked to stop, so that its end does not wait long for a store that does not answer."""
    interruption: Exception | None = None
    """The error with which its run was interrupted: nothing more is written, as if the process had ended."""
    writing: CrossLoopLock = field(default_factory=CrossLoopLock)
    """Held while the journal is written."""
    _limit: asyncio.Timeout | None = None
    """Of the work that the store is doing."""
    is_silent: bool = False
    """True if the store did not answer while the run was stopped: its other entries do not wait for it one by one."""

    async def journal(
        self, store: Store, lease: Lease, new_facts: Sequence[facts.Fact], *, durable: bool = False
    ) -> list[CallRecord]:
        """Append facts to the journal, then apply them; return the calls that they settled."""
        async with self.writing:
            if self.interruption is not None:
                self.broken = True
                raise self.interruption
            if self.is_silent:
                raise _silent()
            now_s = time.time()
            new_facts = [fact if fact.at_s is not None else facts.dated(fact, now_s) for fact in new_facts]
            try:
                with STORE_GUARD:
                    await self._written(store.append(lease, new_facts, position=self.position, durable=durable))
            except BaseException:
                self.broken = True
                raise
            self.position += len(new_facts)
            return [record for fact in new_facts for record in self.machine.apply(fact)]

    async def _written(self, append: Awaitable[None]) -> None:
        """Wait for an entry in the journal; where the run is asked to stop, before it or meanwhile, not for long."""
        limit = asyncio.timeout(STOP_WAIT_S if self.is_stopping else None)
        try:
            await self.within(limit, append)
        except TimeoutError:
            if not limit.expired():  # The store's own.
                raise
            self.is_silent = True
            raise _silent() from None

    async def within(self, limit: asyncio.Timeout, work: Awaitable[None]) -> None:
        """Wait for the store, within a limit that `stop_soon` shortens."""
        async with limit:
            self._limit = limit
            try:
                await work
            finally:
                self._limit = None
        if limit.expired():  # It was done at the last moment, and the cancellation is still on its way.
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                if is_cancelled():  # By somebody else.
                    raise

    def stop_soon(self) -> None:
        """Wait no longer than `STOP_WAIT_S` for the store from here on. On the event loop of the run."""
        self.is_stopping = True
        if self._limit is not None:
            until_s = asyncio.get_running_loop().time() + STOP_WAIT_S
            self._limit.reschedule(min(until_s, self._limit.when() or until_s))

    def cancel(self, reason: str) -> bool:
        """Ask the run of the session to stop, from any thread; return whether it will because of this."""
        run = self.run
        if run is None:
            return False
        return call_in_loop(run.event_loop, lambda: run.request_cancel(reason), False, wait_s=CANCEL_WAIT_S)

    def interrupt(self, error: Exception) -> bool:
        """End the run of the session with this error, from any thread; return whether it will. It can be resumed."""
        run = self.run
        if run is None:
            return False
        return call_in_loop(run.event_loop, lambda: run.interrupt(error), False, wait_s=CANCEL_WAIT_S)


class running:
    """Mark the current code as part of the session's run."""

    __slots__ = ("_run", "_session", "_token")

    def __init__(self, session: Session, run: ActiveRun) -> None:
        self._session, self._run = session, run

    def __enter__(self) -> None:
        session = self._session
        session.run = self._run
        session.is_stopping, session.is_silent, session.interruption = False, False, None
        self._token = CURRENT_LEASES.set((*CURRENT_LEASES.get(), self._run.lease))

    def __exit__(self, *exc: object) -> None:
        self._session.run = None
        with suppress(ValueError):  # A garbage-collected coroutine ends in a foreign context.
            CURRENT_LEASES.reset(self._token)


class Sessions:
    """Sessions in memory: those in use, and the recently used ones.

    A session is dropped after its first run: most are never used again, and one run is replayed quickly.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, Session] = OrderedDict()
        self._owner, self._process = "", 0
        self._renewal = LeaseRenewal(self._runs)

    def get(self, session_id: str) -> Session | None:
        """Return the session if it is in memory."""
        with PROCESS_LOCK:
            self._forget_parent()
            return self._known.get(session_id)

    async def contents(self, session_id: str, store: Store) -> Sequence[Content]:
        """Return the contents of a session as they are now, without acquiring it.

        Raises:
            StoreError: the store cannot be read.
        """
        known = self.get(session_id)
        if known is not None and not known.broken:
            return known.machine.conversation.contents
        return RunMachine(await store.load(session_id)).conversation.contents

    async def acquire(self, session_id: str | None, store: Store, *, wait_s: float) -> tuple[Session, Lease]:
        """Lock and lease a session, against runs here and in other processes, and replay new facts of its journal.

        A missing session is created, and so is one without an id. The caller must release it.

        Raises:
            SessionBusyError: another process holds it for more than `wait_s` seconds.
            UsageError: the id is invalid, a store in memory has forgotten the session, or the caller is part of a run of it.
        """
        session = self._use(session_id)
        try:
            await session.lock.acquire()
        except BaseException:
            self._end_use(session)
            raise
        try:
            if isinstance(store, MemoryStore):
                store.check_known(session.id)
            lease = await acquire_lease(store, session.id, owner=self._owner, wait_max_s=wait_s)
        except BaseException:
            self._unlock(session)
            raise
        try:
            if session.broken or lease.position < session.position:  # Or it was deleted and begun again elsewhere.
                session.machine, session.position, session.broken, session.is_silent = RunMachine(), 0, False, False
            if lease.position > session.position:
                await _catch_up(session, store)
        except BaseException:
            await self.release(session, lease, store)
            raise
        session.is_new = lease.position == 0
        return session, lease

    async def release(self, session: Session, lease: Lease, store: Store) -> None:
        """Release the session's lease and lock."""
        try:
            is_brief = session.is_stopping or session.broken  # The store may not answer at all.
            with STORE_GUARD:
                await session.within(asyncio.timeout(STOP_WAIT_S if is_brief else RELEASE_WAIT_S), store.release(lease))
        except (Exception, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and is_cancelled():
                raise
            # A store of the program's may raise anything, and what the run has done is done.
            logger.debug("the lease of session %r is not released, and will expire: %s", session.id, text_of(error))
        finally:
            if session.position:
                mark_used(session.id)
            self._unlock(session)

    def keep_leases(self, loop: asyncio.AbstractEventLoop) -> None:
        """Renew the leases of the runs on this event loop in time, until there are none."""
        self._renewal.start(loop)

    # Internals ------------------------------------------------------------------------------------------------------------

    def _forget_parent(self) -> None:
        """Forget the runs of the parent process after a fork: their locks are never released here."""
        if self._process != os.getpid():
            self._known = OrderedDict()
            self._renewal.forget()
            self._owner, self._process = new_owner(), os.getpid()

    def _use(self, session_id: str | None) -> Session:
        if session_id is None:
            session_id = new_session_id()
        check_id(session_id)
        with PROCESS_LOCK:
            self._forget_parent()
            session = self._known.get(session_id)
            if session is None:
                session = self._known[session_id] = Session(session_id, RunMachine(), 0)
            run = session.run
            if run is not None and any(lease is run.lease for lease in CURRENT_LEASES.get()):
                raise UsageError(
                    f"session {session_id!r} is in the middle of the run that made this call, which would wait for itself: "
                    "use another session, or continue this one when the run is over"
                )
            session.users += 1
        return session

    def _unlock(self, session: Session) -> None:
        session.lock.release()
        self._end_use(session)

    def _end_use(self, session: Session) -> None:
        with PROCESS_LOCK:
            session.users -= 1
            if session.users or self._known.get(session.id) is not session:
                return
            if session.broken or (session.is_new and session.machine.phase in ("idle", "done")):
                del self._known[session.id]
                return
            self._known.move_to_end(session.id)
            while len(self._known) > SESSIONS_CACHED and self._forget_oldest():
                pass

    def _forget_oldest(self) -> bool:
        """Drop one unused session; return whether there was one."""
        for session in self._known.values():
            if not session.users:
                del self._known[session.id]
                return True
        return False

    def _runs(self) -> list[ActiveRun]:
        return [session.run for session in self._known.values() if session.run is not None]


def _silent() -> StoreError:
    return StoreError(
        f"the store did not answer within {STOP_WAIT_S:g} s while the run was stopped; its journal says how far it came"
    )


async def _catch_up(session: Session, store: Store) -> None:
    """Replay what is new in the journal. A journal that cannot be applied is replayed again from its beginning."""
    with STORE_GUARD:
        new_facts = await store.load(session.id, start=session.position)
    try:
        begun_s = time.monotonic()
        for fact in new_facts:
            session.machine.apply(fact)
            session.position += 1
            if time.monotonic() - begun_s > SLICE_S:
                await asyncio.sleep(0)
                begun_s = time.monotonic()
    except Exception:
        logger.exception("the journal of session %r holds a fact that cannot be applied", session.id)
        with STORE_GUARD:
            journal = await store.load(session.id)
        session.machine, session.position, session.is_reported = RunMachine(journal), len(journal), False
