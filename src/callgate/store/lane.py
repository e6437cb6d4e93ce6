"""A lane of a database: a thread with a connection, on which operations are carried out, many with one commit.

Operations come in through a queue that lanes share. Nothing that goes wrong in one of them ends the thread; a connection
that was lost is opened again, and one whose server does not answer can be cut from outside.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from callgate.errors import CallgateError, StoreError
from callgate.store.dialect import AwayError, DamagedStoreError, Dialect, LockTimeoutError, Transaction
from callgate.store.schema import MissingTablesError, check_tables, check_version, noted_version, prepare_schema
from callgate.store.statistics import StoreStatistics

__all__ = ["Lane", "Operation", "failure"]

logger = logging.getLogger("callgate.store")

BATCH_MAX = 256
SILENT_S = 20.0
"""Seconds that a transaction may take before its connection is cut."""
STUCK_S, STUCK_MAX = 3.0, 2
"""Seconds of a transaction before one more connection may be opened, and the number of such connections."""
IDLE_S = 60.0
"""Seconds that a thread stays idle, unless it is the last one."""
CHECK_S = 1.0
"""Seconds between two checks that the tables are still those of this version, and in their place."""
TABLES_S = 10.0
"""Seconds between two checks that none of them is missing, which a connection that uses the others does not notice."""


@dataclass(slots=True)
class Operation:
    """Something to do in a transaction. One without work is the last operation of its thread."""

    work: Callable[[Transaction], Any] | None = None
    prepare: Callable[[], object] | None = None
    durable: bool = False
    on_late: Callable[[Any], object] | None = None
    """Callback for a value that was committed at the moment when the caller gave up."""
    reads: bool = False
    """True if it changes nothing."""
    is_alone: bool = False
    """True if it gets a commit of its own: it has kept others waiting."""
    is_repeatable: bool = False
    """True if it finds out by itself whether it was committed before."""
    is_voidable: bool = False
    """True if it may not be committed any more when its caller has given up, and was told that it was not done."""
    done: concurrent.futures.Future[Any] = field(default_factory=concurrent.futures.Future[Any])
    lane: Lane | None = None
    """The thread that carries it out."""
    is_given_up: bool = False
    """True if nobody waits for it any more."""

    def give_up(self) -> None:
        """Wait no longer. One that is voidable, or only reads, never begins if it has not begun."""
        self.is_given_up = True  # Before anybody learns of it: an operation that comes after this one may rely on it.
        is_dropped = (self.is_voidable or self.reads) and self.done.cancel()
        if not is_dropped and (on_late := self.on_late) is not None:
            self.done.add_done_callback(
                lambda done: None if done.cancelled() or done.exception() is not None else on_late(done.result())
            )

    @property
    def is_void(self) -> bool:
        """True if it may not be committed any more. From any thread."""
        return self.is_voidable and self.is_given_up

    def fresh(self, *, is_alone: bool) -> Operation:
        """Return the same operation, not begun."""
        return replace(self, is_alone=is_alone, done=concurrent.futures.Future(), lane=None, is_given_up=False)

    def again(self) -> Operation:
        """Return the same work, which changes nothing, for another thread: it may be done first."""
        other = Operation(self.work, reads=self.reads)
        other.done.add_done_callback(
            lambda done: None if done.cancelled() or done.exception() is not None else self.succeed(done.result())
        )
        return other

    def succeed(self, value: Any) -> None:
        """Answer it with a value, unless it is answered."""
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            self.done.set_result(value)

    def fail(self, error: Exception) -> None:
        """Answer it with an error, unless it is answered."""
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            self.done.set_exception(error)


class _VoidError(Exception):
    """Callers gave up while their operations were carried out."""


class Lane:
    """A thread with a connection, for one batch of operations after another."""

    def __init__(
        self,
        dialect: Dialect,
        waiting: queue.SimpleQueue[Operation],
        statistics: StoreStatistics,
        may_leave: Callable[[Lane], bool],
    ) -> None:
        self._dialect, self.waiting, self._statistics, self._may_leave = dialect, waiting, statistics, may_leave
        self._connection: Any = None
        self._has_begun = self._is_committing = self._is_cut = self._is_due = False
        self._check_s = self._tables_s = 0.0
        self.busy_since_s: float | None = None
        self._blocked_since_s: float | None = None
        """Time since when its transaction has not begun."""
        self.server, self.answered_s = "", 0.0
        """Target of the connection, and the time of its last answer."""
        self.thread = threading.Thread(target=self._serve, name="callgate-store", daemon=True)

    @property
    def is_connected(self) -> bool:
        """True if it has a connection."""
        return self._connection is not None

    def is_stuck(self, now_s: float) -> bool:
        """Return whether the thread has waited for the server for long."""
        since_s = self.busy_since_s
        return since_s is not None and now_s >= since_s + STUCK_S

    def is_blocked(self, since_s: float) -> bool:
        """Return whether the thread has waited for the beginning of its transaction since then."""
        return self._blocked_since_s is not None and self._blocked_since_s <= since_s

    def cut_if_silent(self, now_s: float, others: Sequence[Lane] = ()) -> None:
        """Cut the connection if its server has not answered for too long. From any thread.

        Less long if another server has taken its place since, and answers the others.
        """
        since_s = self.busy_since_s
        if since_s is None:
            return
        is_replaced = self.is_stuck(now_s) and any(
            other.answered_s > since_s and other.server != self.server for other in others
        )
        if is_replaced or now_s >= since_s + SILENT_S:
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

    def _batch(self) -> list[Operation] | None:
        """Take everything that waits now, at least one operation and nothing after a last one; None: nothing more comes."""
        while True:
            try:
                batch = [self.waiting.get(timeout=IDLE_S)]
                break
            except queue.Empty:
                self._discard_if_moved()
                if self._may_leave(self):
                    return None
        while len(batch) < BATCH_MAX and batch[-1].work is not None and not batch[-1].is_alone:
            try:
                batch.append(self.waiting.get_nowait())
            except queue.Empty:
                break
        return batch

    def _carry_out(self, batch: Sequence[Operation]) -> None:
        for operation in batch:
            operation.lane = self
        batch = [operation for operation in batch if operation.done.set_running_or_notify_cancel()]
        batch = [operation for operation in batch if self._is_prepared(operation)]
        if len(batch) > 1 and batch[-1].is_alone:
            self._commit([batch.pop()])
        if batch:
            self._commit(batch)

    def _is_prepared(self, operation: Operation) -> bool:
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

    def _commit(self, batch: Sequence[Operation]) -> None:
        """Carry out operations in one commit. If one of them fails, each is tried and answered by itself."""
        self._is_due = time.monotonic() >= self._check_s
        self._discard_if_moved()
        is_reused = self._connection is not None
        self._blocked_since_s = time.monotonic()
        try:
            self._connection = self._connection or self._opened()
            outcomes = self._transacted(batch)
        except _VoidError:
            self._roll_back()
            self._commit_others(batch)
            return
        except BaseException as error:
            self._blocked_since_s = None
            logger.debug("a commit of %d operations failed", len(batch), exc_info=error)
            self._recover(batch, error, is_reused=is_reused)
            return
        self.answered_s = time.monotonic()
        for operation, value, refusal in outcomes:
            operation.succeed(value) if refusal is None else operation.fail(refusal)

    def _discard_if_moved(self) -> None:
        if self._connection is not None and not self._dialect.is_in_place(self._connection):
            self._discard()

    def _commit_others(self, batch: Sequence[Operation]) -> None:
        """Carry out those operations that are not void."""
        others: list[Operation] = []
        for operation in batch:
            if operation.is_void:
                operation.fail(StoreError(f"an operation on {self._dialect.place} was not done: its caller had given up"))
            else:
                others.append(operation)
        if others:
            self._commit(others)

    def _recover(self, batch: Sequence[Operation], error: BaseException, *, is_reused: bool) -> None:
        """Try again what can be tried again after a commit that failed, and answer the others."""
        passing = "stale" if isinstance(error, MissingTablesError) else self._dialect.passing(error)
        is_locked = passing == "locked"  # Nothing was changed: each caller may try again.
        self._roll_back()
        if passing == "stale" and (is_reused or len(batch) == 1):
            self._discard()  # A new one may be able to write: the setting was taken back, or another server leads.
        if self._is_worth_a_new_connection(is_reused=is_reused):
            self._commit(batch)
        elif not is_locked and self._connection is not None and self._has_begun and len(batch) > 1:
            for operation in batch:
                self._commit([operation])
        else:
            if not is_locked and not all(operation.reads for operation in batch):
                self._statistics.wrote(str(failure(self._dialect, error)))
            for operation in batch:
                operation.fail(LockTimeoutError("a table") if is_locked else failure(self._dialect, error))

    def _is_worth_a_new_connection(self, *, is_reused: bool) -> bool:
        """Return whether the connection was lost, or of no use, since earlier, as when its server was restarted.

        Nothing was changed if no commit was sent, so everything can be done on a new connection.
        """
        return is_reused and self._connection is None and not self._is_committing and not self._is_cut

    def _transacted(self, batch: Sequence[Operation]) -> list[tuple[Operation, Any, CallgateError | None]]:
        self._has_begun = self._is_committing = False
        self._dialect.begin(self._connection, durable=any(operation.durable for operation in batch))
        self._has_begun, self._blocked_since_s = True, None
        tx = Transaction(self._connection, self._dialect)
        if self._is_due:
            self._check_schema(tx, time.monotonic())
        outcomes: list[tuple[Operation, Any, CallgateError | None]] = []
        for operation in batch:
            assert operation.work is not None
            try:
                outcomes.append((operation, operation.work(tx), None))
            except CallgateError as error:  # Refused before it changed anything, so the others can go on.
                outcomes.append((operation, None, error))
        # Looked at with all locks: what begins after a caller gave up finds nothing of this, or has been before it.
        if any(operation.is_void for operation in batch):
            raise _VoidError
        self._is_committing = True
        self._connection.commit()
        if tx.has_added:
            self._statistics.wrote()
        if tx.has_forgotten:
            self._dialect.forget(self._connection)
        return outcomes

    def _check_schema(self, tx: Transaction, now_s: float) -> None:
        check_version(noted_version(tx), self._dialect)
        if now_s >= self._tables_s and not self._dialect.is_read_only:
            check_tables(tx, self._dialect)
            self._tables_s = now_s + TABLES_S
        self._check_s = now_s + CHECK_S

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
                self._dialect.close(connection)
        except BaseException:
            logger.debug("a connection could not be closed", exc_info=True)

    def _opened(self) -> Any:
        self._is_cut = self._is_committing = self._has_begun = False
        connection = self._dialect.connect()
        self._statistics.count("opened")
        self._connection = connection  # So that it can be cut while the tables are looked at.
        now_s = time.monotonic()
        self._is_due, self._check_s, self._tables_s = False, now_s + CHECK_S, now_s + TABLES_S
        try:
            prepare_schema(connection, self._dialect)
            self.server = self._dialect.server_of(connection)
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
    away = AwayError if dialect.passing(error) in ("away", "stale") else StoreError
    failed = (DamagedStoreError if dialect.is_damage(error) else away)(sentence)
    failed.__cause__ = error
    return failed
