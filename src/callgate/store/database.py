"""Operations on a database: each in a transaction, on one of a few connections, with a time limit on everything.

Operations come in from any event loop. Each connection has a thread, and the operations that wait when a thread becomes free
share one commit; that is why this is a pool of its own: one that lends connections to callers would commit each operation by
itself. No operation waits for a lock of another one (`LockedError`), so that one slow session costs that session only;
and a connection whose server does not answer is cut. How databases differ is in their `Dialect`. This file knows the tables,
but nothing of what is kept in them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from callgate.errors import CallgateError, StoreError
from callgate.store.dialect import Dialect, LockedError, LockTimeoutError, Transaction
from callgate.store.schema import check_version, noted_version, prepare_schema
from callgate.store.statistics import StoreStatistics

__all__ = ["Database"]

logger = logging.getLogger("callgate.store")

T = TypeVar("T")

BATCH_MAX = 256
GROW_S = 0.05
"""How long an operation waits for a thread before there is one more."""
LOOK_S = 1.0
"""How often a caller that waits for an operation checks on the thread and the server."""
CANCEL_S = 2.0
"""How long a caller that was cancelled waits to learn what became of its operation."""
LOCKED_S = 5.0
"""How long an operation is tried again while another transaction has locked its row."""
LOCKED_PAUSES_S = (0.005, 0.1)
"""Between two tries, at first and later."""
PROBE_PART = 1 / 3
"""The part of the time for a silent database in which it is asked something else."""
SILENT_S = 20.0
"""How long a transaction may take before its connection is cut."""
IDLE_S = 60.0
"""How long a thread stays without work, unless it is the last one."""
CHECK_S = 1.0
"""How often it is checked that tables are still those of this version, and in their place."""
CLOSE_S = 3.0
"""How long a closing waits for operations that are under way before their connections are cut."""

_LOCK = threading.RLock()
"""Held while an operation is handed to a thread; free in a forked child."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


@dataclass(slots=True)
class _Operation:
    """Something to do in a transaction. One without work is the last operation of its thread."""

    work: Callable[[Transaction], Any] | None = None
    prepare: Callable[[], object] | None = None
    durable: bool = False
    on_late: Callable[[Any], object] | None = None
    """Gets the value if the caller has given up waiting for it."""
    is_alone: bool = False
    """True if it gets a commit of its own: it has kept others waiting."""
    done: concurrent.futures.Future[Any] = field(default_factory=concurrent.futures.Future[Any])
    lane: _Lane | None = None
    """The thread that carries it out."""

    def give_up(self) -> None:
        """Wait no longer. With `on_late`, what has not begun never will, and the value of what has goes there."""
        if (on_late := self.on_late) is not None and not self.done.cancel():
            self.done.add_done_callback(
                lambda done: None if done.cancelled() or done.exception() is not None else on_late(done.result())
            )

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Database:
    """Carries out operations, each in a transaction; those of one connection in the order in which they came.

    Nothing that goes wrong in an operation ends its thread, and nothing that happens to the thread leaves a caller waiting.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._queue: queue.SimpleQueue[_Operation] = queue.SimpleQueue()
        self._lanes: list[_Lane] = []
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
        prepare: Callable[[], object] | None = None,
        durable: bool = False,
        reads: bool = False,
        patience_s: float = math.inf,
        silence_s: float = math.inf,
        on_late: Callable[[T], object] | None = None,
    ) -> T:
        """Carry out the work in a transaction and return its value. With `durable` its changes survive a loss of power.

        `prepare` runs first, in the same thread but outside of the transaction; if it raises, nothing is done. The work may
        run a second time, where the first was undone because an operation of the same commit had failed. With `reads`, for
        work that changes nothing, a cancellation of the caller takes effect at once. An operation that is not over after
        `patience_s` raises a StoreError, and may still be carried out later; `on_late` then gets its value, in any thread.
        The same after `silence_s`, if the database answers nothing else either: what takes long may take long.

        Raises:
            StoreError: the database cannot be used; it is not known whether anything was changed.
        """
        started_s, failed = time.monotonic(), True
        try:
            if self._dialect.connections == 1:
                silence_s = math.inf  # Nothing else could be asked.
            value = await self._until_unlocked(work, prepare, durable, reads, patience_s, silence_s, on_late)
            failed = False
        except CallgateError as error:
            failed = isinstance(error, StoreError)
            raise
        finally:
            self._statistics.took(time.monotonic() - started_s, failed=failed)
        return value

    async def _until_unlocked(
        self,
        work: Callable[[Transaction], T],
        prepare: Callable[[], object] | None,
        durable: bool,
        reads: bool,
        patience_s: float,
        silence_s: float,
        on_late: Callable[[T], object] | None,
    ) -> T:
        limit_s = min(LOCKED_S, patience_s, silence_s)
        until_s, (pause_s, pause_max_s), is_alone = time.monotonic() + limit_s, LOCKED_PAUSES_S, False
        while True:
            tried_s = time.monotonic()
            operation = _Operation(work, prepare, durable, on_late, is_alone=is_alone)
            try:
                return cast("T", await self._done(operation, reads=reads, patience_s=patience_s, silence_s=silence_s))
            except LockedError as error:
                self._statistics.count("retries")
                is_alone, now_s = isinstance(error, LockTimeoutError), time.monotonic()
                next_s = now_s - tried_s if is_alone else 0.0  # How long the next try would take.
                if now_s + next_s >= until_s:
                    raise StoreError(
                        f"{error} in {self._dialect.place} has been locked by another transaction for "
                        f"{now_s - until_s + limit_s:.1f} s: see which process has it, and try again"
                    ) from None
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, pause_max_s)

    def post(self, work: Callable[[Transaction], object]) -> None:
        """Carry out the work some time, in a transaction, for nobody who waits. From any thread."""
        self._put(_Operation(work))

    async def aclose(self) -> None:
        """End the threads and close the connections, when everything that waits is done."""
        with self._lock:
            lanes, self._lanes = self._lanes, []
            if self._process != os.getpid():
                return
            waiting, self._queue = self._queue, queue.SimpleQueue()
            lanes = [lane for lane in lanes if lane.thread.is_alive()]
            ends = [_Operation() for _ in lanes]
            for end in ends:
                waiting.put(end)  # Under the lock: operations from here on get threads and a queue of their own.
        if ends:
            await asyncio.wait([asyncio.wrap_future(end.done) for end in ends], timeout=CLOSE_S)
        for lane in lanes:
            lane.cut()
            lane.thread.join(LOOK_S)  # It has nothing left to do.

    def _put(self, operation: _Operation) -> list[_Lane]:
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
        with self._lock:
            if self._process == os.getpid() and 0 < len(self._lanes) < self._dialect.connections:
                self._start()

    def _start(self) -> None:
        lane = _Lane(self, self._dialect, self._queue)
        try:
            lane.thread.start()
        except RuntimeError as error:  # There are too many, or the interpreter is shutting down.
            if not self._lanes:
                raise failure(self._dialect, error) from error
            return
        self._lanes = [*self._lanes, lane]

    def may_leave(self, lane: _Lane) -> bool:
        """Take a lane out that has had nothing to do; return whether it may end."""
        with self._lock:
            if self._queue is not lane.waiting or len(self._lanes) < 2 or not lane.waiting.empty():
                return False
            self._lanes = [other for other in self._lanes if other is not lane]
            return True

    def _check(self, lanes: Sequence[_Lane], done: asyncio.Future[Any], now_s: float) -> None:
        """See that one of the threads is there to carry out an operation, and that the server answers."""
        if not any(lane.thread.is_alive() for lane in lanes):
            done.cancel()
            raise StoreError(f"nobody writes to {self._dialect.place} any more: the process has forked, or is ending")
        for lane in lanes:
            lane.cut_if_silent(now_s)

    async def _done(
        self, operation: _Operation, *, reads: bool, patience_s: float = math.inf, silence_s: float = math.inf
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
        while not done.done():
            try:
                await asyncio.wait({done}, timeout=min(look_s, max(0.0, min(until_s, patient_until_s) - time.monotonic())))
                if time.monotonic() >= probe_at_s:
                    probe_at_s += silence_s
                    is_silent = not await self._answers(done, silence_s * PROBE_PART)
            except asyncio.CancelledError:
                cancellations += 1
                until_s = min(until_s, time.monotonic() + (0.0 if reads else CANCEL_S))
            if done.done() or operation.done.done():
                continue
            now_s, look_s = time.monotonic(), LOOK_S
            if operation.lane is None:
                self._grow()
            if now_s >= until_s:
                done.cancel()  # Where the operation has not begun, it never will.
                raise asyncio.CancelledError
            if now_s >= patient_until_s or is_silent:
                operation.give_up()
                done.add_done_callback(_read)
                raise StoreError(f"no answer from {self._dialect.place} within {min(patience_s, silence_s):g} s")
            self._check([operation.lane] if operation.lane is not None else [*lanes, *self._lanes], done, now_s)
        _cancel_again(caller, cancellations)
        return done.result()

    async def _answers(self, done: asyncio.Future[Any], wait_s: float) -> bool:
        """Return whether the database answers a question that costs it nothing, unless it has answered meanwhile."""
        if done.done():
            return True
        try:
            await self._done(_Operation(lambda tx: tx.rows("SELECT 1")), reads=True, patience_s=wait_s)
        except LockTimeoutError:  # It has answered, if only that others must wait.
            return True
        except StoreError:
            return False
        return True


def _cancel_again(caller: asyncio.Task[Any], times: int) -> None:
    """Let cancellations take effect that were held up."""
    for _ in range(times):
        caller.uncancel()
        caller.cancel()


class _Lane:
    """A thread with a connection, for one batch of operations after another."""

    def __init__(self, database: Database, dialect: Dialect, waiting: queue.SimpleQueue[_Operation]) -> None:
        self._database, self._dialect, self.waiting = database, dialect, waiting
        self._connection: Any = None
        self._statistics = database.statistics
        self._has_begun = self._is_committing = self._is_cut = self._is_due = False
        self._check_s = 0.0
        self.busy_since_s: float | None = None
        self.thread = threading.Thread(target=self._serve, name="callgate-store", daemon=True)

    @property
    def is_connected(self) -> bool:
        """True if it has a connection."""
        return self._connection is not None

    def cut_if_silent(self, now_s: float) -> None:
        """Cut the connection if its server has not answered for too long. From any thread."""
        since_s = self.busy_since_s
        if since_s is not None and now_s >= since_s + SILENT_S:
            if not self._is_cut:
                self._statistics.count("cut")
            self.cut()

    def cut(self) -> None:
        """Make what the thread waits for fail."""
        self._is_cut = True
        if (connection := self._connection) is not None:
            try:
                self._dialect.cut(connection)
            except Exception:
                logger.debug("a connection could not be cut", exc_info=True)

    # In the thread --------------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while (batch := self._batch()) is not None:
            last = batch.pop() if batch[-1].work is None else None
            self.busy_since_s = time.monotonic()
            try:
                self._carry_out(batch)
            except BaseException as error:  # Whatever this is, the callers are answered and the next are served.
                logger.exception("operations on %s failed", self._dialect.place)
                self._discard()
                for operation in batch:
                    operation.fail(StoreError(f"an operation on {self._dialect.place} failed with {type(error).__name__}"))
            self.busy_since_s = None
            if last is not None:
                self._discard()
                if last.done.set_running_or_notify_cancel():
                    last.done.set_result(None)
                return
            del batch, last  # Or what was written last would be held until there is something more to do.
        self._discard()

    def _batch(self) -> list[_Operation] | None:
        """Take everything that waits now, at least one operation and nothing after a last one; None: nothing more comes."""
        while True:
            try:
                batch = [self.waiting.get(timeout=IDLE_S)]
                break
            except queue.Empty:
                if self._database.may_leave(self):
                    return None
        while len(batch) < BATCH_MAX and batch[-1].work is not None and not batch[-1].is_alone:
            try:
                batch.append(self.waiting.get_nowait())
            except queue.Empty:
                break
        return batch

    def _carry_out(self, batch: Sequence[_Operation]) -> None:
        for operation in batch:
            operation.lane = self
        batch = [operation for operation in batch if operation.done.set_running_or_notify_cancel()]
        batch = [operation for operation in batch if self._is_prepared(operation)]
        if len(batch) > 1 and batch[-1].is_alone:
            self._commit([batch.pop()])
        if batch:
            self._commit(batch)

    def _is_prepared(self, operation: _Operation) -> bool:
        try:
            if operation.prepare is not None:
                operation.prepare()
        except CallgateError as error:
            operation.fail(error)
            return False
        except BaseException as error:
            operation.fail(failure(self._dialect, error))
            return False
        return True

    def _commit(self, batch: Sequence[_Operation]) -> None:
        """Carry out operations in one commit. If one of them fails, each is tried and answered by itself."""
        self._is_due = time.monotonic() >= self._check_s
        if self._is_due and self._connection is not None and not self._dialect.is_in_place(self._connection):
            self._discard()
        is_reused = self._connection is not None
        try:
            self._connection = self._connection or self._opened()
            outcomes = self._transacted(batch)
        except BaseException as error:
            logger.debug("a commit of %d operations failed", len(batch), exc_info=error)
            self._recover(batch, error, is_reused=is_reused)
            return
        for operation, value, refusal in outcomes:
            operation.done.set_result(value) if refusal is None else operation.done.set_exception(refusal)

    def _recover(self, batch: Sequence[_Operation], error: BaseException, *, is_reused: bool) -> None:
        """Try again what can be tried again after a commit that failed, and answer the others."""
        is_locked = self._dialect.is_lock_timeout(error)  # Nothing was changed: each caller may try again.
        if self._is_worth_a_new_connection(is_reused=is_reused):
            self._commit(batch)
        elif not is_locked and self._connection is not None and self._has_begun and len(batch) > 1:
            for operation in batch:
                self._commit([operation])
        else:
            for operation in batch:
                operation.fail(LockTimeoutError("a table") if is_locked else failure(self._dialect, error))

    def _is_worth_a_new_connection(self, *, is_reused: bool) -> bool:
        """Undo the transaction; return whether the connection was lost earlier, as when its server was restarted.

        Nothing was changed if no commit was sent, so everything can be done on a new connection.
        """
        self._roll_back()
        return is_reused and self._connection is None and not self._is_committing and not self._is_cut

    def _transacted(self, batch: Sequence[_Operation]) -> list[tuple[_Operation, Any, CallgateError | None]]:
        self._has_begun = self._is_committing = False
        self._dialect.begin(self._connection, durable=any(operation.durable for operation in batch))
        self._has_begun = True
        tx = Transaction(self._connection, self._dialect)
        if self._is_due:
            check_version(noted_version(tx), self._dialect)
            self._check_s = time.monotonic() + CHECK_S
        outcomes: list[tuple[_Operation, Any, CallgateError | None]] = []
        for operation in batch:
            assert operation.work is not None
            try:
                outcomes.append((operation, operation.work(tx), None))
            except CallgateError as error:  # Refused before it changed anything, so the others can go on.
                outcomes.append((operation, None, error))
        self._is_committing = True
        self._connection.commit()
        return outcomes

    def _roll_back(self) -> None:
        """Undo the transaction; a connection that cannot be used any more is discarded."""
        if self._connection is None:
            return
        try:
            self._connection.rollback()
            self._connection.cursor().execute("SELECT 1").close()
            self._connection.rollback()
        except BaseException:
            self._discard()

    def _discard(self) -> None:
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                connection.close()
        except BaseException:
            logger.debug("a connection could not be closed", exc_info=True)

    def _opened(self) -> Any:
        self._is_cut = self._is_committing = self._has_begun = False
        connection = self._dialect.connect()
        self._statistics.count("opened")
        self._connection = connection  # So that it can be cut while the tables are looked at.
        self._is_due, self._check_s = False, time.monotonic() + CHECK_S
        try:
            prepare_schema(connection, self._dialect)
        except BaseException:
            self._discard()
            raise
        return connection


def failure(dialect: Dialect, error: BaseException) -> StoreError:
    """Explain what went wrong with the database. Each caller gets an error of its own."""
    if isinstance(error, StoreError):
        sentence = str(error)
    elif isinstance(error, (dialect.errors, OSError)):
        sentence = dialect.sentence(error)
    else:
        sentence = f"an operation on {dialect.place} failed with {type(error).__name__}: {error}"
    failed = StoreError(sentence)
    failed.__cause__ = error
    return failed


def _read(done: asyncio.Future[Any]) -> None:
    """Take note of an outcome for which nobody waits any more."""
    if not done.cancelled():
        done.exception()
