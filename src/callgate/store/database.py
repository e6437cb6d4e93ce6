"""One thread, one connection, and as many operations in one commit as are waiting.

Operations on a database come in from any event loop; a thread of their own carries them out in order, and those that wait at
the same time share a transaction. What differs from one database to the next is its `Dialect`. This file knows the tables,
but nothing of what is kept in them.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import os
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from callgate.errors import CallgateError, StoreError

__all__ = ["SCHEMA", "Database", "Dialect", "Transaction"]

logger = logging.getLogger("callgate.store")

T = TypeVar("T")

SCHEMA_VERSION = 1
BATCH_MAX = 256

SCHEMA = (
    "CREATE TABLE IF NOT EXISTS callgate_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS callgate_sessions (id TEXT PRIMARY KEY, title TEXT NOT NULL, facts INTEGER NOT NULL, "
    "fence INTEGER NOT NULL, owner TEXT, expires_s {real} NOT NULL, created_s {real} NOT NULL, updated_s {real} NOT NULL)",
    "CREATE TABLE IF NOT EXISTS callgate_facts (session TEXT NOT NULL, position INTEGER NOT NULL, body {blob} NOT NULL, "
    "PRIMARY KEY (session, position))",
    "CREATE TABLE IF NOT EXISTS callgate_claims (key TEXT PRIMARY KEY, digest TEXT NOT NULL, session TEXT NOT NULL, "
    "run TEXT NOT NULL, owner TEXT NOT NULL, position INTEGER NOT NULL, at_s {real} NOT NULL)",
)


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
    work: Callable[[Transaction], Any]
    durable: bool
    done: concurrent.futures.Future[Any] = field(default_factory=concurrent.futures.Future[Any])


class Database:
    """Carries out operations, each in a transaction, in the order in which they came."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._queue: queue.SimpleQueue[_Operation | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._process = 0
        self._lock = threading.Lock()

    async def do(self, work: Callable[[Transaction], T], *, durable: bool = False) -> T:
        """What came of the work. With `durable` what it changed survives a loss of power.

        Raises:
            StoreError: the database cannot be used; whether anything was changed is not known.
        """
        operation = _Operation(work, durable)
        with self._lock:
            if self._thread is None or self._process != os.getpid():
                # A child of this process must not write through the connection of its parent.
                self._process, self._queue = os.getpid(), queue.SimpleQueue()
                name = "callgate-store"
                self._thread = threading.Thread(target=self._serve, args=(self._queue,), name=name, daemon=True)
                self._thread.start()
            self._queue.put(operation)
        return cast("T", await _outcome(asyncio.wrap_future(operation.done)))

    async def aclose(self) -> None:
        """Ends the thread and closes the connection, when everything that waits is done."""
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None and thread.is_alive():
            self._queue.put(None)
            await asyncio.to_thread(thread.join)

    def _serve(self, waiting: queue.SimpleQueue[_Operation | None]) -> None:
        connection: Any = None
        while True:
            batch, is_last = _waiting(waiting)
            if batch:
                connection = self._carry_out(connection, batch)
            if is_last:
                if connection is not None:
                    connection.close()
                return

    def _carry_out(self, connection: Any, batch: list[_Operation]) -> Any:
        """Carries out a batch in one commit. If the database fails, each operation is tried and answered by itself."""
        batch = [operation for operation in batch if operation.done.set_running_or_notify_cancel()]
        try:
            connection = connection or self._opened()
            self._commit(connection, batch)
        except self._dialect.errors as error:
            logger.debug("a commit of %d operations failed", len(batch), exc_info=error)
            if connection is not None:
                connection = self._rolled_back(connection)
            if len(batch) > 1 and connection is not None:
                for operation in batch:
                    connection = self._carry_out_alone(connection, operation)
            else:
                for operation in batch:
                    operation.done.set_exception(self._failed(error))
        except StoreError as error:
            for operation in batch:
                operation.done.set_exception(error)
        return connection

    def _carry_out_alone(self, connection: Any, operation: _Operation) -> Any:
        try:
            connection = connection or self._opened()
            self._commit(connection, [operation])
        except (self._dialect.errors, StoreError) as error:
            operation.done.set_exception(error if isinstance(error, StoreError) else self._failed(error))
            return None if connection is None else self._rolled_back(connection)
        return connection

    def _commit(self, connection: Any, batch: Sequence[_Operation]) -> None:
        self._dialect.begin(connection, durable=any(operation.durable for operation in batch))
        tx = Transaction(connection, self._dialect)
        outcomes: list[tuple[_Operation, Any, CallgateError | None]] = []
        for operation in batch:
            try:
                outcomes.append((operation, operation.work(tx), None))
            except CallgateError as error:  # Refused before it changed anything, so the others can go on.
                outcomes.append((operation, None, error))
        connection.commit()
        for operation, value, error in outcomes:
            if error is None:
                operation.done.set_result(value)
            else:
                operation.done.set_exception(error)

    def _rolled_back(self, connection: Any) -> Any:
        """The connection if it can still be used, None if a new one is needed."""
        try:
            connection.rollback()
            connection.cursor().execute("SELECT 1").close()
            connection.rollback()
        except self._dialect.errors:
            try:
                connection.close()
            except self._dialect.errors:
                logger.debug("a broken connection could not be closed", exc_info=True)
            return None
        return connection

    def _opened(self) -> Any:
        try:
            connection = self._dialect.connect()
        except (self._dialect.errors, OSError) as error:
            raise self._failed(error) from error
        try:
            self._dialect.begin(connection, durable=True)
            tx = Transaction(connection, self._dialect)
            self._dialect.create(tx)
            tx.run("INSERT INTO callgate_meta VALUES ('schema', ?) ON CONFLICT (key) DO NOTHING", str(SCHEMA_VERSION))
            [(version,)] = tx.rows("SELECT value FROM callgate_meta WHERE key = 'schema'")
            connection.commit()
        except self._dialect.errors as error:
            connection.close()
            raise self._failed(error) from error
        if version != str(SCHEMA_VERSION):
            connection.close()
            raise StoreError(
                f"{self._dialect.place} was written by another version of callgate (schema {version}, and this one knows "
                f"{SCHEMA_VERSION}); use that version, or another store"
            )
        return connection

    def _failed(self, error: Exception) -> StoreError:
        failure = StoreError(self._dialect.sentence(error))
        failure.__cause__ = error
        return failure


async def _outcome(done: asyncio.Future[Any]) -> Any:
    """What came of an operation. It is carried out in any case, so a cancellation of its caller comes right behind it."""
    caller = asyncio.current_task()
    assert caller is not None
    cancellations = 0
    while not done.done():
        try:
            await asyncio.wait({done})
        except asyncio.CancelledError:
            cancellations += 1
    for _ in range(cancellations):
        caller.uncancel()
        caller.cancel()
    return done.result()


def _waiting(waiting: queue.SimpleQueue[_Operation | None]) -> tuple[list[_Operation], bool]:
    """Everything that waits now, at least one thing; and whether nothing comes after it."""
    batch: list[_Operation] = []
    item = waiting.get()
    while item is not None:
        batch.append(item)
        if len(batch) >= BATCH_MAX:
            return batch, False
        try:
            item = waiting.get_nowait()
        except queue.Empty:
            return batch, False
    return batch, True
