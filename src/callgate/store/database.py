"""Operations on a database: each in a transaction, on one of a few connections, with a time limit on everything.

Operations come in from any event loop. Each connection has a thread, and the operations that wait when a thread becomes free
share one commit; that is why this is a pool of its own: one that lends connections to callers would commit each operation by
itself. No operation waits for a lock of another one (`LockedError`), so that one slow session costs that session only;
and a connection whose server does not answer is cut. How databases differ is in their `Dialect`. This file knows the tables,
but nothing of what is kept in them.
"""

from __future__ import annotations

import asyncio
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from callgate.errors import CallgateError, StoreError
from callgate.store.dialect import AwayError, Dialect, LockedError, LockTimeoutError, StillLockedError, Transaction
from callgate.store.lane import STUCK_MAX, Lane, Operation, failure
from callgate.store.statistics import StoreStatistics

__all__ = ["Database"]

T = TypeVar("T")

GROW_S = 0.05
"""Seconds that an operation waits for a thread before another one is started."""
LOOK_S = 1.0
"""Seconds between two checks on the thread and the server while a caller waits for an operation."""
CANCEL_S = 2.0
"""Seconds that a cancelled caller waits to learn the outcome of its operation."""
LOCKED_S = 5.0
"""Seconds of retries while another transaction has locked the row of an operation."""
AWAY_S = 10.0
"""Seconds of retries of a repeatable operation while the database is away: less than what a lease has left."""
LOCKED_PAUSES_S = (0.005, 0.1)
"""Between two tries, at first and later."""
PROBE_PART = 1 / 3
"""The part of the time for a silent database in which it is asked something else."""
CLOSE_S = 1.0
"""Seconds that a close waits for operations under way before their connections are cut."""

_LOCK = threading.RLock()
"""Held while an operation is handed to a thread; free in a forked child."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


class Database:
    """Executor of operations, each in a transaction; those of one connection in the order in which they came.

    Nothing that goes wrong in an operation ends its thread, and nothing that happens to the thread leaves a caller waiting.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._queue: queue.SimpleQueue[Operation] = queue.SimpleQueue()
        self._lanes: list[Lane] = []
        self._process = 0
        self._lock = _LOCK
        self._statistics = StoreStatistics()

    @property
    def statistics(self) -> StoreStatistics:
        """The counters, with the connections and the queue as they are now."""
        self._statistics.connections = sum(lane.is_connected for lane in self._lanes)
        self._statistics.waiting = self._queue.qsize()
        return self._statistics

    async def do(
        self,
        work: Callable[[Transaction], T],
        *,
        durable: bool = False,
        reads: bool = False,
        patience_s: float = math.inf,
        silence_s: float = math.inf,
    ) -> T:
        """Carry out the work in a transaction and return its value. With `durable` its changes survive a loss of power.

        The work may run a second time, where the first was undone because an operation of the same commit had failed. With
        `reads`, for work that changes nothing, a cancellation of the caller takes effect at once. An operation that is not
        over after `patience_s` raises a StoreError; if it changes something, it may still be carried out later. The same
        after `silence_s`, if the database answers nothing else either: what takes long may take long.

        Raises:
            StoreError: the database cannot be used; it is not known whether anything was changed.
        """
        return cast("T", await self._counted(Operation(work, durable=durable, reads=reads), patience_s, silence_s))

    async def attempt(
        self,
        work: Callable[[Transaction], T],
        *,
        durable: bool = False,
        patience_s: float = math.inf,
        silence_s: float = math.inf,
        on_late: Callable[[T], object] | None = None,
    ) -> T:
        """Do the same with work that must not be done later: a caller that gave up goes on as if it had not been.

        If it was being committed at the moment when the caller gave up, `on_late` gets its value, in any thread.

        Raises:
            StoreError: the database cannot be used.
        """
        wanted = Operation(work, durable=durable, on_late=on_late, is_voidable=True)
        return cast("T", await self._counted(wanted, patience_s, silence_s))

    async def persist(
        self, work: Callable[[Transaction], T], *, prepare: Callable[[], object] | None = None, durable: bool = False
    ) -> T:
        """Carry out work that finds out by itself whether it was committed before.

        `prepare` runs first, in the same thread but outside of the transaction; if it raises, nothing is done. While the
        database is away it is tried again: a lost connection does not say what became of a commit.

        Raises:
            StoreError: the database cannot be used; it is not known whether anything was changed.
        """
        return cast("T", await self._counted(Operation(work, prepare, durable, is_repeatable=True)))

    async def _counted(self, wanted: Operation, patience_s: float = math.inf, silence_s: float = math.inf) -> Any:
        started_s, failed = time.monotonic(), True
        try:
            value = await self._until_passed(wanted, patience_s, silence_s)
            failed = False
        except CallgateError as error:
            failed = isinstance(error, StoreError)
            raise
        finally:
            self._statistics.took(time.monotonic() - started_s, failed=failed)
        return value

    async def _until_passed(self, wanted: Operation, patience_s: float, silence_s: float) -> Any:
        """Try an operation until it is carried out, or what is in its way has lasted too long."""
        limit_s, away_until_s = min(LOCKED_S, patience_s, silence_s), time.monotonic() + min(AWAY_S, patience_s, silence_s)
        until_s, (pause_s, pause_max_s), is_alone = time.monotonic() + limit_s, LOCKED_PAUSES_S, False
        while True:
            tried_s = time.monotonic()
            operation = wanted.fresh(is_alone=is_alone)
            try:
                return await self._done(operation, reads=wanted.reads, patience_s=patience_s, silence_s=silence_s)
            except LockedError as error:
                self._statistics.count("retries")
                is_alone, now_s = isinstance(error, LockTimeoutError), time.monotonic()
                next_s = now_s - tried_s if is_alone else 0.0  # How long the next try would take.
                if now_s + next_s >= until_s:
                    raise StillLockedError(
                        f"{error} in {self._dialect.place} has been locked by another transaction for "
                        f"{now_s - until_s + limit_s:.1f} s: see which process has it, and try again"
                    ) from None
            except AwayError:
                if not wanted.is_repeatable or time.monotonic() >= away_until_s:
                    raise
                self._statistics.count("retries")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, pause_max_s)

    def post(self, work: Callable[[Transaction], object]) -> None:
        """Carry out the work some time, in a transaction, for nobody who waits. From any thread."""
        self._put(Operation(work))

    async def aclose(self) -> None:
        """End the threads and close the connections, when everything that waits is done."""
        with self._lock:
            lanes, self._lanes = self._lanes, []
            if self._process != os.getpid():
                return
            waiting, self._queue = self._queue, queue.SimpleQueue()
            lanes = [lane for lane in lanes if lane.thread.is_alive()]
            ends = [Operation() for _ in lanes]
            for end in ends:
                waiting.put(end)  # Under the lock: operations from here on get threads and a queue of their own.
        if ends:
            await asyncio.wait([asyncio.wrap_future(end.done) for end in ends], timeout=CLOSE_S)
        for lane in lanes:
            lane.cut()
            lane.thread.join(LOOK_S)  # It has nothing left to do.

    def _put(self, operation: Operation) -> list[Lane]:
        """Hand an operation to the threads, and return them."""
        with self._lock:
            if self._process != os.getpid():  # A forked child must not write through its parent's connections.
                self._process, self._queue, self._lanes = os.getpid(), queue.SimpleQueue(), []
            self._lanes = [lane for lane in self._lanes if lane.thread.is_alive()]
            if not self._lanes:
                self._start()
            self._queue.put(operation)
            return self._lanes

    def _grow(self) -> None:
        """Start one more thread, if there may be more: an operation waits, and those that are there do not come to it."""
        most, now_s = self._dialect.connections, time.monotonic()
        with self._lock:
            if most > 1:  # Its server may be gone, and another one in its place.
                most += min(STUCK_MAX, sum(lane.is_stuck(now_s) for lane in self._lanes))
            if self._process == os.getpid() and 0 < len(self._lanes) < most:
                self._start()

    def _start(self) -> None:
        lane = Lane(self._dialect, self._queue, self._statistics, self._may_leave)
        try:
            lane.thread.start()
        except RuntimeError as error:  # There are too many, or the interpreter is shutting down.
            if not self._lanes:
                raise failure(self._dialect, error) from error
            return
        self._lanes = [*self._lanes, lane]

    def _may_leave(self, lane: Lane) -> bool:
        """Take a lane out that has had nothing to do; return whether it may end."""
        with self._lock:
            if self._queue is not lane.waiting or len(self._lanes) < 2 or not lane.waiting.empty():
                return False
            self._lanes = [other for other in self._lanes if other is not lane]
            return True

    def _check(self, lanes: Sequence[Lane], done: asyncio.Future[Any], now_s: float) -> None:
        """See that one of the threads is there to carry out an operation, and that the server answers."""
        if not any(lane.thread.is_alive() for lane in lanes):
            done.cancel()
            raise StoreError(f"no program writes to {self._dialect.place} any more: the process has forked, or is ending")
        for lane in lanes:
            lane.cut_if_silent(now_s, self._lanes)

    async def _done(
        self, operation: Operation, *, reads: bool, patience_s: float = math.inf, silence_s: float = math.inf
    ) -> Any:
        """Wait for an operation. It is carried out in any case, so a cancellation of its caller takes effect after it.

        A cancelled caller waits no longer than `CANCEL_S` for a database that does not answer.
        """
        lanes = self._put(operation)
        done = asyncio.wrap_future(operation.done)
        caller = asyncio.current_task()
        assert caller is not None
        if caller.cancelling():  # It cleans up, and waits no longer for that than any other that is cancelled.
            patience_s = min(patience_s, CANCEL_S)
        cancellations, look_s, until_s, patient_until_s = 0, GROW_S, math.inf, time.monotonic() + patience_s
        probe_at_s, is_silent = time.monotonic() + silence_s * (1 - PROBE_PART), False
        may_repeat = reads and self._dialect.connections > 1
        while not done.done():
            try:
                await asyncio.wait({done}, timeout=min(look_s, max(0.0, min(until_s, patient_until_s) - time.monotonic())))
                if time.monotonic() >= probe_at_s:
                    probe_at_s += silence_s
                    is_silent = not await self._answers(done, silence_s * PROBE_PART)
                    if may_repeat and not is_silent:  # Perhaps it is only this connection that is silent.
                        may_repeat = False
                        self._put(operation.again())
            except asyncio.CancelledError:
                cancellations += 1
                until_s = min(until_s, time.monotonic() + (0.0 if reads else CANCEL_S))
            if done.done() or operation.done.done():
                continue
            now_s, look_s = time.monotonic(), LOOK_S
            if operation.lane is None:
                self._grow()
            if now_s >= until_s:
                operation.give_up()
                done.cancel()  # Where the operation has not begun, it never will.
                raise asyncio.CancelledError
            if now_s >= patient_until_s or is_silent:
                operation.give_up()
                done.add_done_callback(_read)
                raise StoreError(f"no answer from {self._dialect.place} within {min(patience_s, silence_s):g} s")
            self._check([operation.lane] if operation.lane is not None else [*lanes, *self._lanes], done, now_s)
        _cancel_again(caller, cancellations, at_once=reads)
        return done.result()

    async def _answers(self, done: asyncio.Future[Any], wait_s: float) -> bool:
        """Return whether the database answers a question that costs it nothing, unless it has answered meanwhile.

        Over its only connection nothing else can be asked: it does not answer while another process keeps it locked.
        """
        if self._dialect.connections == 1:
            await asyncio.wait({done}, timeout=wait_s)
            return done.done() or not any(lane.is_blocked(time.monotonic() - wait_s) for lane in self._lanes)
        if done.done():
            return True
        since_s = time.monotonic()
        try:
            await self._done(Operation(lambda tx: tx.rows("SELECT 1"), reads=True), reads=True, patience_s=wait_s)
        except LockTimeoutError:  # It has answered, if only that others must wait.
            return True
        except StoreError:  # All connections may have been busy with others, and those were answered.
            return any(lane.answered_s > since_s for lane in self._lanes)
        return True


def _cancel_again(caller: asyncio.Task[Any], times: int, *, at_once: bool) -> None:
    """Let cancellations take effect that were held up: where the caller waits next, or `at_once`, if it needs no value.

    A time limit takes only the second kind for its own; the first one is still on its way when it has ended.
    """
    if times and at_once:
        raise asyncio.CancelledError
    for _ in range(times):
        caller.uncancel()
        caller.cancel()


def _read(done: asyncio.Future[Any]) -> None:
    """Take note of an outcome for which nobody waits any more."""
    if not done.cancelled():
        done.exception()
