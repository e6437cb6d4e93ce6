"""One thread, one connection, and as many operations in one commit as are waiting.

Operations on a database come in from any event loop; a thread of their own carries them out in order, and those that wait at
the same time share a transaction. What differs from one database to the next is its `Dialect`. This file knows the tables,
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
from typing import Any, Protocol, TypeVar, cast

from callgate.errors import CallgateError, StoreError

__all__ = ["SCHEMA", "Database", "Dialect", "Transaction"]

logger = logging.getLogger("callgate.store")

T = TypeVar("T")

SCHEMA_VERSION = 1
BATCH_MAX = 256
LOOK_S = 1.0
"""How often somebody who waits for an operation looks whether the thread is still there."""
CANCEL_S = 30.0
"""How long a caller that was cancelled waits to learn what became of its operation."""

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS callgate_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS callgate_sessions (id TEXT PRIMARY KEY, title TEXT NOT NULL, facts INTEGER NOT NULL, "
    "fence INTEGER NOT NULL, owner TEXT, expires_s {real} NOT NULL, created_s {real} NOT NULL, updated_s {real} NOT NULL)",
    "CREATE TABLE IF NOT EXISTS callgate_facts (session TEXT NOT NULL, position INTEGER NOT NULL, body {blob} NOT NULL, "
    "PRIMARY KEY (session, position))",
    "CREATE TABLE IF NOT EXISTS callgate_claims (key TEXT PRIMARY KEY, digest TEXT NOT NULL, session TEXT NOT NULL, "
    "run TEXT NOT NULL, owner TEXT NOT NULL, position INTEGER NOT NULL, at_s {real} NOT NULL)",
)


_LOCK = threading.RLock()
"""Held while an operation is handed to a thread; free in a forked child."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)


class Dialect(Protocol):
    """What one kind of database does in its own way."""

    @property
    def place(self) -> str:
        """Where the data is, as a person may see it: no password in it."""
        ...

    @property
    def errors(self) -> type[Exception]:
        """The root of the errors that the driver raises."""
        ...

    @property
    def row_lock(self) -> str:
        """What a SELECT ends with that keeps others from changing the row."""
        ...

    def connect(self) -> Any:
        """A new connection, ready to be used, in which nothing is begun by itself."""
        ...

    def begin(self, connection: Any, *, durable: bool) -> None:
        """Begins a transaction; a durable one is on the disk when its commit returns."""
        ...

    def create(self, transaction: Transaction) -> None:
        """Makes the tables where they are missing."""
        ...

    def statement(self, sql: str) -> str:
        """The statement with the driver's own marks for parameters instead of `?`."""
        ...

    def now_s(self, transaction: Transaction) -> float:
        """Seconds since 1970 by the clock that all owners share."""
        ...

    def sentence(self, error: Exception) -> str:
        """What the driver's error means and what to do about it."""
        ...


class Transaction:
    """One transaction on the connection of the store."""

    def __init__(self, connection: Any, dialect: Dialect) -> None:
        self._cursor = connection.cursor()
        self._dialect = dialect

    def run(self, sql: str, *values: Any) -> int:
        """Carries out a statement; how many rows it changed."""
        self._cursor.execute(self._dialect.statement(sql), values)
        return int(self._cursor.rowcount)

    def run_many(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Carries out a statement once for each row of values."""
        self._cursor.executemany(self._dialect.statement(sql), rows)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        self._cursor.execute(self._dialect.statement(sql), values)
        return [tuple(row) for row in self._cursor.fetchall()]

    def now_s(self) -> float:
        """Seconds since 1970 by the clock that all owners share."""
        return self._dialect.now_s(self)


@dataclass(slots=True)
class _Operation:
    """Something to do in a transaction. One without work is the last operation of its thread."""

    work: Callable[[Transaction], Any] | None = None
    prepare: Callable[[], object] | None = None
    durable: bool = False
    done: concurrent.futures.Future[Any] = field(default_factory=concurrent.futures.Future[Any])

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)


class Database:
    """Carries out operations, each in a transaction, in the order in which they came.

    Nothing that goes wrong in an operation ends the thread, and nothing that becomes of the thread leaves a caller waiting.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._queue: queue.SimpleQueue[_Operation] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._process = 0
        self._lock = _LOCK

    async def do(
        self, work: Callable[[Transaction], T], *, prepare: Callable[[], object] | None = None, durable: bool = False
    ) -> T:
        """Carry out the work in a transaction and return its value. With `durable` its changes survive a loss of power.

        `prepare` runs first, in the same thread but outside of the transaction; if it raises, nothing is done. The work may
        run a second time, where the first was undone because an operation of the same commit had failed.

        Raises:
            StoreError: the database cannot be used; whether anything was changed is not known.
        """
        operation = _Operation(work, prepare, durable)
        with self._lock:
            thread = self._thread
            if thread is None or not thread.is_alive() or self._process != os.getpid():
                thread = self._start()
            self._queue.put(operation)
        return cast("T", await self._outcome(operation, thread))

    async def aclose(self) -> None:
        """End the thread and close the connection, when everything that waits is done."""
        end = _Operation()
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None or not thread.is_alive() or self._process != os.getpid():
                return
            self._queue.put(end)  # Under the lock: whatever is asked for after this gets a thread and a queue of its own.
        await self._outcome(end, thread)
        thread.join(LOOK_S)  # It has nothing left to do.

    def _start(self) -> threading.Thread:
        """Start a thread with a queue of its own: a forked child must not write through its parent's connection."""
        self._process, self._queue = os.getpid(), queue.SimpleQueue()
        thread = threading.Thread(target=self._serve, args=(self._queue,), name="callgate-store", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # There are too many, or the interpreter is shutting down.
            raise self._failure(error) from error
        self._thread = thread
        return thread

    async def _outcome(self, operation: _Operation, thread: threading.Thread) -> Any:
        """Wait for an operation. It is carried out in any case, so a cancellation of its caller takes effect after it.

        A cancelled caller waits no longer than `CANCEL_S` for a database that does not answer.
        """
        done = asyncio.wrap_future(operation.done)
        caller = asyncio.current_task()
        assert caller is not None
        cancellations, until_s = 0, math.inf
        while not done.done():
            try:
                await asyncio.wait({done}, timeout=min(LOOK_S, until_s - time.monotonic()))
            except asyncio.CancelledError:
                cancellations += 1
                until_s = min(until_s, time.monotonic() + CANCEL_S)
            if done.done() or operation.done.done():
                continue
            if time.monotonic() >= until_s:
                done.cancel()  # Where the operation has not begun, it never will.
                raise asyncio.CancelledError
            if not thread.is_alive():
                done.cancel()
                raise StoreError(f"nobody writes to {self._dialect.place} any more: the process has forked, or is ending")
        for _ in range(cancellations):
            caller.uncancel()
            caller.cancel()
        return done.result()

    # In the thread --------------------------------------------------------------------------------------------------------

    def _serve(self, waiting: queue.SimpleQueue[_Operation]) -> None:
        connection: Any = None
        while True:
            batch = _waiting(waiting)
            last = batch.pop() if batch[-1].work is None else None
            try:
                connection = self._carry_out(connection, batch)
            except BaseException as error:  # Whatever this is, those who wait are answered and the next are served.
                logger.exception("operations on %s failed", self._dialect.place)
                connection = self._discarded(connection)
                for operation in batch:
                    operation.fail(StoreError(f"an operation on {self._dialect.place} failed with {type(error).__name__}"))
            if last is not None:
                self._discarded(connection)
                if last.done.set_running_or_notify_cancel():
                    last.done.set_result(None)
                return
            del batch, last  # Or what was written last would be held until there is something more to do.

    def _carry_out(self, connection: Any, batch: Sequence[_Operation]) -> Any:
        """Carry out a batch; return the connection to go on with."""
        batch = [operation for operation in batch if operation.done.set_running_or_notify_cancel()]
        batch = [operation for operation in batch if self._is_prepared(operation)]
        return self._commit(connection, batch) if batch else connection

    def _is_prepared(self, operation: _Operation) -> bool:
        try:
            if operation.prepare is not None:
                operation.prepare()
        except CallgateError as error:
            operation.fail(error)
            return False
        except BaseException as error:
            operation.fail(self._failure(error))
            return False
        return True

    def _commit(self, connection: Any, batch: Sequence[_Operation]) -> Any:
        """Carry out operations in one commit. If anything fails, each is tried and answered by itself."""
        try:
            connection = connection or self._opened()
            outcomes = self._transacted(connection, batch)
        except BaseException as error:
            logger.debug("a commit of %d operations failed", len(batch), exc_info=error)
            connection = self._rolled_back(connection)
            if len(batch) > 1 and connection is not None:
                for operation in batch:
                    connection = self._commit(connection, [operation])
            else:
                for operation in batch:
                    operation.fail(self._failure(error))
            return connection
        for operation, value, refusal in outcomes:
            if refusal is None:
                operation.done.set_result(value)
            else:
                operation.done.set_exception(refusal)
        return connection

    def _transacted(
        self, connection: Any, batch: Sequence[_Operation]
    ) -> list[tuple[_Operation, Any, CallgateError | None]]:
        self._dialect.begin(connection, durable=any(operation.durable for operation in batch))
        tx = Transaction(connection, self._dialect)
        outcomes: list[tuple[_Operation, Any, CallgateError | None]] = []
        for operation in batch:
            assert operation.work is not None
            try:
                outcomes.append((operation, operation.work(tx), None))
            except CallgateError as error:  # Refused before it changed anything, so the others can go on.
                outcomes.append((operation, None, error))
        connection.commit()
        return outcomes

    def _rolled_back(self, connection: Any) -> Any:
        """Undo the transaction; return the connection if it can still be used, None if a new one is needed."""
        if connection is None:
            return None
        try:
            connection.rollback()
            connection.cursor().execute("SELECT 1").close()
            connection.rollback()
        except BaseException:
            return self._discarded(connection)
        return connection

    def _discarded(self, connection: Any) -> None:
        try:
            if connection is not None:
                connection.close()
        except BaseException:
            logger.debug("a connection could not be closed", exc_info=True)

    def _opened(self) -> Any:
        connection = self._dialect.connect()
        try:
            self._dialect.begin(connection, durable=True)
            tx = Transaction(connection, self._dialect)
            self._dialect.create(tx)
            tx.run("INSERT INTO callgate_meta VALUES ('schema', ?) ON CONFLICT (key) DO NOTHING", str(SCHEMA_VERSION))
            [(version,)] = tx.rows("SELECT value FROM callgate_meta WHERE key = 'schema'")
            connection.commit()
            if version != str(SCHEMA_VERSION):
                raise StoreError(
                    f"{self._dialect.place} was written by another version of callgate (schema {version}, and this one "
                    f"knows {SCHEMA_VERSION}); use that version, or another store"
                )
        except BaseException:
            self._discarded(connection)
            raise
        return connection

    def _failure(self, error: BaseException) -> StoreError:
        """Say what went wrong with the database. Each caller gets an error of its own."""
        if isinstance(error, StoreError):
            sentence = str(error)
        elif isinstance(error, (self._dialect.errors, OSError)):
            sentence = self._dialect.sentence(error)
        else:
            sentence = f"an operation on {self._dialect.place} failed with {type(error).__name__}: {error}"
        failure = StoreError(sentence)
        failure.__cause__ = error
        return failure


def _waiting(waiting: queue.SimpleQueue[_Operation]) -> list[_Operation]:
    """Take everything that waits now, at least one operation and nothing after the last one."""
    batch = [waiting.get()]
    while len(batch) < BATCH_MAX and batch[-1].work is not None:
        try:
            batch.append(waiting.get_nowait())
        except queue.Empty:
            break
    return batch
