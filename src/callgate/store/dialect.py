"""One kind of database, and a transaction on a connection to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

from callgate.errors import CallgateError, StoreError
from callgate.store.answer_signal import AnswerSignal

__all__ = [
    "AwayError",
    "DamagedStoreError",
    "Dialect",
    "LockTimeoutError",
    "LockedError",
    "Passing",
    "StillLockedError",
    "Transaction",
]

Passing: TypeAlias = Literal["locked", "away", "stale"]
"""The kinds of errors that may be over soon: a lock was waited for in vain; the database cannot be reached, or has closed
the connection; or the connection is of no use, as to a database that could only be read or lacks tables, and a new one may
be."""


class LockedError(CallgateError):
    """Another transaction has locked what this one needs; the text names it. Nothing was changed."""


class LockTimeoutError(LockedError):
    """The same, but the database has waited for it, and others of the same commit with it."""


class StillLockedError(StoreError):
    """A row was locked by another transaction for too long."""


class AwayError(StoreError):
    """The database is away, or can only be read for now. What was to be changed may have been, if it was being committed."""


class DamagedStoreError(StoreError):
    """Rows or pages of the store are damaged; others may be read all the same."""


class Dialect(Protocol):
    """The differences between one kind of database and the next."""

    connections: int
    """Maximum number of open connections."""

    @property
    def is_read_only(self) -> bool:
        """True if connections can only read: the store was opened so, or the file may not be written."""
        ...

    @property
    def place(self) -> str:
        """Location of the data for display: no password in it."""
        ...

    @property
    def errors(self) -> type[Exception]:
        """The root of the errors that the driver raises."""
        ...

    @property
    def row_lock(self) -> str:
        """The end of a SELECT that keeps others from changing its rows, and leaves out rows that another has locked."""
        ...

    def connect(self) -> Any:
        """Open a connection, in which no transaction begins by itself."""
        ...

    def connect_to_read(self) -> Any:
        """Open a connection for somebody who only reads: nothing is created or changed by it."""
        ...

    def is_in_place(self, connection: Any) -> bool:
        """Return False if another database has taken the place of the one that the connection leads to."""
        ...

    def close(self, connection: Any) -> None:
        """Close a connection, also one whose database is not in its place any more."""
        ...

    def server_of(self, connection: Any) -> str:
        """Return which server a new connection leads to: another text after a restart, or a failover to another one."""
        ...

    def cut(self, connection: Any) -> None:
        """Make the operation that waits on the connection fail. Called from another thread."""
        ...

    def begin(self, connection: Any, *, durable: bool) -> None:
        """Begin a transaction; a durable one is on the disk when its commit returns."""
        ...

    def begin_snapshot(self, connection: Any) -> None:
        """Begin a transaction that reads the database as it is at this moment, and may take long."""
        ...

    def begin_long(self, connection: Any) -> None:
        """Begin a durable transaction that may write, and may take longer than one of a session's owner."""
        ...

    def tables(self, transaction: Transaction) -> set[str]:
        """Return the names of the tables that exist, of ours and perhaps others."""
        ...

    def schema(self) -> list[str]:
        """Return the statements that create the tables that are missing."""
        ...

    def create(self, transaction: Transaction) -> None:
        """Create the tables that are missing."""
        ...

    def announce(self, transaction: Transaction) -> None:
        """Signal that answers have changed, when the transaction is over; where there are no signals, do nothing."""
        ...

    def answer_signal(self) -> AnswerSignal:
        """Return a new receiver of these signals."""
        ...

    def forget(self, connection: Any) -> None:
        """Remove what was deleted from files of the database's own, as far as that takes no time. After a commit."""
        ...

    def try_lock(self, transaction: Transaction, name: str) -> bool:
        """Lock a name until the transaction ends; return False at once if another transaction has it."""
        ...

    def statement(self, sql: str) -> str:
        """Return the statement with the driver's own marks for parameters instead of `?`."""
        ...

    def now_s(self, transaction: Transaction) -> float:
        """Return the seconds since 1970 by the clock that all owners share."""
        ...

    def lease_now_s(self, transaction: Transaction) -> float:
        """Return the seconds by which leases are judged: as `now_s`, but no change of this machine's clock moves it."""
        ...

    def passing(self, error: BaseException) -> Passing | None:
        """Return which kind of error that may be over soon this is; None if it is none of them."""
        ...

    def is_damage(self, error: BaseException) -> bool:
        """Return whether the driver's error says that data is damaged, and not that nothing can be read now."""
        ...

    def sentence(self, error: Exception) -> str:
        """Explain the driver's error, and what to do about it."""
        ...


class Transaction:
    """One transaction on a connection of the store."""

    def __init__(self, connection: Any, dialect: Dialect) -> None:
        self._cursor = connection.cursor()
        self._dialect = dialect
        self.has_added = False
        """True if rows were added, which needs room; others that are changed may not."""
        self.has_forgotten = False
        """True if something was deleted that is to be in no file any more."""

    def run(self, sql: str, *values: Any) -> int:
        """Execute a statement; return how many rows it changed."""
        self._cursor.execute(self._dialect.statement(sql), values)
        return int(self._cursor.rowcount)

    def run_many(self, sql: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Execute a statement once for each row of values."""
        self._cursor.executemany(self._dialect.statement(sql), rows)
        self.has_added = self.has_added or bool(rows)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        self._cursor.execute(self._dialect.statement(sql), values)
        return [tuple(row) for row in self._cursor.fetchall()]

    def columns(self, table: str) -> tuple[str, ...]:
        """Return the names of a table's columns."""
        self._cursor.execute(self._dialect.statement(f"SELECT * FROM {table} LIMIT 0"))
        return tuple(column[0] for column in self._cursor.description)

    def locked_rows(self, columns: str, table: str, key: str, value: str) -> list[tuple[Any, ...]]:
        """Return the row with that key, which nobody else can change before the transaction is over; none if there is none.

        Raises:
            LockedError: another transaction has it.
        """
        where = f"FROM {table} WHERE {key} = ?"
        found = self.rows(f"SELECT {columns} {where}{self._dialect.row_lock}", value)
        if not found and self._dialect.row_lock and self.rows(f"SELECT 1 {where}", value):
            raise LockedError(f"{value!r}")
        return found

    def lock(self, name: str) -> None:
        """Lock a name until the transaction ends, for rows that do not exist yet.

        Raises:
            LockedError: another transaction has it.
        """
        if not self._dialect.try_lock(self, name):
            raise LockedError(f"{name!r}")

    def now_s(self) -> float:
        """Return the seconds since 1970 by the clock that all owners share."""
        return self._dialect.now_s(self)

    def lease_now_s(self) -> float:
        """Return the seconds by which leases are judged."""
        return self._dialect.lease_now_s(self)
