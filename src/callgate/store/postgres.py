"""The journal in PostgreSQL: for several processes, on one machine or many, that share their sessions.

Every wait has a limit, on the server's side and on this one. Nothing outlasts a transaction but the tables, so that a pooler
in transaction mode (pgbouncer) can stand in between; and a role that may not create tables can use those that are there.
"""

from __future__ import annotations

import importlib
import math
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from callgate.config.url_secrets import shown_url, without_url_secrets
from callgate.errors import StoreError, UsageError
from callgate.store.answer_signal import AnswerSignal
from callgate.store.dialect import Passing, Transaction
from callgate.store.protocol import Durability
from callgate.store.schema import SCHEMA, TABLES
from callgate.store.sql import SqlStore

__all__ = ["postgres_store"]

CONNECTIONS_MAX = 4
"""Of one process. Operations that wait at the same time share a commit, so that a few are enough."""
CONNECT_S, CONNECT_NEXT_S = 5, 2
"""Seconds of the connect time-out; the second if the URL names several servers."""
LIMITS = {"lock_timeout": "1s", "statement_timeout": "15s", "idle_in_transaction_session_timeout": "15s"}
"""Limits of each transaction, unless the URL sets them. The last one ends a transaction whose process is frozen."""
LONG_LOCK_S, LONG_IDLE_S = 10, 120
"""Seconds that a copy waits for a lock, and that its transaction may be idle."""
SOCKET: dict[str, Any] = {
    "connect_timeout": CONNECT_S, "application_name": "callgate", "keepalives_idle": 10, "keepalives_interval": 5,
    "keepalives_count": 3, "tcp_user_timeout": 15_000,
}  # fmt: skip
"""Parameters of each connection, unless the URL sets them."""
PASSING: dict[str, Passing] = {
    "55P03": "locked", "25006": "stale", "42P01": "stale", "08": "away", "57P": "away", "53300": "away",
}  # fmt: skip
"""SQLSTATEs of errors that may be over soon, or their beginnings: a lock, a database that can only be read, a table that is
gone (a new connection makes it), a connection that is lost or refused, a server that stops, starts or was ended, and one
with too many connections."""
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
"""Rows are locked where it matters. A database whose default is `serializable` would break off nearly every transaction."""
ENCODINGS = ("UTF8", "SQL_ASCII")
"""Encodings of databases that can hold every text."""
_NO_LIMITS = "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"
CHANNEL = "callgate_answers"
_CREATE_LOCK = 0x63616C6C  # Any number will do that nobody else uses: processes that start at once make the tables in turn.


def postgres_store(
    url: str, *, durable: Durability = "effects", replica: str | None = None, read_only: bool = False
) -> SqlStore:
    """Return a store in the database that the URL names; lists and exports are read from the replica, if there is one.

    Raises:
        UsageError: psycopg is not installed.
    """
    copy = None if replica is None else Postgres(replica, read_only=True)
    return SqlStore(Postgres(url, read_only=read_only), durable=durable, replica=copy)


class Postgres:
    """The dialect of PostgreSQL."""

    row_lock = " FOR UPDATE SKIP LOCKED"
    connections = CONNECTIONS_MAX

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        try:
            self._psycopg: Any = importlib.import_module("psycopg")
        except ImportError:
            raise UsageError("sessions in PostgreSQL need the package psycopg: pip install 'callgate[postgres]'") from None
        self._url, self.is_read_only = url, read_only
        self._silent_s: dict[tuple[str, str | None], float] = {}
        """Servers of the URL that did not answer when they were tried last, and when that was."""
        limits = [f"SET LOCAL {name} = '{limit}'" for name, limit in LIMITS.items() if name not in url]
        self._begin = "; ".join([_BEGIN + " READ ONLY" if read_only else _BEGIN, *limits])
        # In one message with the others. A URL that sets it has chosen how durable everything is.
        self._begin_quick = self._begin + ("" if "synchronous_commit" in url else "; SET LOCAL synchronous_commit = off")

    @property
    def place(self) -> str:
        """The URL without its password."""
        return shown_url(self._url, "")

    @property
    def errors(self) -> type[Exception]:
        """The root of psycopg's errors."""
        return self._psycopg.Error

    def connect(self) -> Any:
        """Open a connection. Statements are not prepared: a pooler may send each transaction to another server process.

        Raises:
            StoreError: the database cannot hold every text.
        """
        given = self._psycopg.conninfo.conninfo_to_dict(self._url)
        options = {name: value for name, value in SOCKET.items() if name not in given}
        if "," in str(given.get("host", "")):  # Each of them is waited for, and the first may be the one that is gone.
            options |= {"connect_timeout": CONNECT_NEXT_S} if "connect_timeout" in options else {}
        options |= {"client_encoding": "utf8", "autocommit": True, "prepare_threshold": None}
        connection = self._connected(_servers(given), options)
        encoding = connection.info.parameter_status("server_encoding")
        if encoding not in (None, *ENCODINGS):
            connection.close()
            raise StoreError(
                f"the database {self.place} has the encoding {encoding}, in which not every text can be written: "
                "create one with ENCODING 'UTF8' TEMPLATE template0"
            )
        return connection

    def _connected(self, servers: Sequence[tuple[str, str | None]], options: Mapping[str, Any]) -> Any:
        """Connect to the first server that can be used. Those that were silent come last: each costs a time-out."""
        if len(servers) < 2:
            return self._psycopg.connect(self._url, **options)
        failed: list[tuple[str, Exception]] = []
        for server in sorted(servers, key=lambda server: self._silent_s.get(server, -math.inf)):
            host, port = server
            try:
                connection = self._psycopg.connect(self._url, **options, host=host, port=port)
            except self.errors as refusal:
                if isinstance(refusal, self._psycopg.errors.ConnectionTimeout):
                    self._silent_s[server] = time.monotonic()
                failed.append((f"{host}:{port or 5432}", refusal))
                continue
            self._silent_s.pop(server, None)
            return connection
        raise type(failed[-1][1])("; ".join(f"{place}: {refusal}" for place, refusal in failed)) from None

    def connect_to_read(self) -> Any:
        """Open a connection: transactions say by themselves that they only read."""
        return self.connect()

    def is_in_place(self, connection: Any) -> bool:
        """Return True: a server closes the connections of a database that it drops."""
        return True

    def close(self, connection: Any) -> None:
        """Close a connection."""
        connection.close()

    def server_of(self, connection: Any) -> str:
        """Return when the server was started: its address may be that of a pooler."""
        return str(connection.execute("SELECT pg_postmaster_start_time()::text").fetchone()[0])

    def cut(self, connection: Any) -> None:
        """End the connection from this side, whatever the server does."""
        with socket.socket(fileno=os.dup(connection.fileno())) as other:
            other.shutdown(socket.SHUT_RDWR)

    def begin(self, connection: Any, *, durable: bool) -> None:
        """Begin a transaction with its limits."""
        connection.execute(self._begin if durable else self._begin_quick)

    def begin_snapshot(self, connection: Any) -> None:
        """Begin a transaction that reads the database as it is at this moment. It may take as long as it takes."""
        connection.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {_NO_LIMITS}")

    def begin_long(self, connection: Any) -> None:
        """Begin a transaction without a limit on statements.

        One whose process is frozen ends all the same: it has locked sessions that others need.
        """
        limits = {"lock_timeout": LONG_LOCK_S, "statement_timeout": 0, "idle_in_transaction_session_timeout": LONG_IDLE_S}
        connection.execute("; ".join([_BEGIN, *(f"SET LOCAL {name} = '{limit}s'" for name, limit in limits.items())]))

    def tables(self, transaction: Transaction) -> set[str]:
        """Return the names of our tables that exist."""
        listed = ", ".join(f"('{table}')" for table in TABLES)
        rows = transaction.rows(f"SELECT name FROM (VALUES {listed}) AS ours(name) WHERE to_regclass(name) IS NOT NULL")
        return {name for (name,) in rows}

    def schema(self) -> list[str]:
        """Return the statements that create the tables."""
        return [statement.format(real="DOUBLE PRECISION", blob="BYTEA") for statement in SCHEMA]

    def create(self, transaction: Transaction) -> None:
        """Create the tables that are missing."""
        transaction.rows("SELECT pg_advisory_xact_lock(?)", _CREATE_LOCK)
        for statement in self.schema():
            transaction.run(statement)

    def announce(self, transaction: Transaction) -> None:
        """Send a signal when the transaction is committed."""
        transaction.rows(f"SELECT pg_notify('{CHANNEL}', '')")

    def answer_signal(self) -> AnswerSignal:
        """Return a receiver on a connection of its own."""
        return AnswerSignal(self._listener, self.errors)

    def _listener(self) -> Any:
        connection = self.connect()
        connection.execute(f"LISTEN {CHANNEL}")
        # It comes back on the other connection, and shows that signals arrive through whatever is in between.
        with self.connect() as sender:
            sender.execute(f"NOTIFY {CHANNEL}")
        return connection

    def forget(self, connection: Any) -> None:
        """Do nothing: the server frees what was deleted by itself."""

    def try_lock(self, transaction: Transaction, name: str) -> bool:
        """Lock a name for the transaction, if no other one has it."""
        return bool(transaction.rows("SELECT pg_try_advisory_xact_lock(hashtextextended(?, 0))", f"callgate {name}")[0][0])

    def statement(self, sql: str) -> str:
        """Return the statement with the driver's marks."""
        return sql.replace("?", "%s")

    def now_s(self, transaction: Transaction) -> float:
        """Return the time by the clock of the server, which all owners share."""
        return float(transaction.rows("SELECT extract(epoch FROM clock_timestamp())")[0][0])

    def lease_now_s(self, transaction: Transaction) -> float:
        """Return the same: the clocks of services do not matter here."""
        return self.now_s(transaction)

    def passing(self, error: BaseException) -> Passing | None:
        """Return which kind of error that may be over soon this is. Rows that are locked are not waited for at all."""
        state: str | None = getattr(error, "sqlstate", None)
        if state is None:  # The client library's own: there is no server, or no connection to it any more.
            return "away" if isinstance(error, self._psycopg.OperationalError) else None
        for start, kind in PASSING.items():
            if state.startswith(start):
                return None if kind == "stale" and self.is_read_only else kind
        return None

    def is_damage(self, error: BaseException) -> bool:
        """Return whether a page of a table or an index is damaged."""
        return isinstance(error, (self._psycopg.errors.DataCorrupted, self._psycopg.errors.IndexCorrupted))

    def sentence(self, error: Exception) -> str:
        """Explain what went wrong with the database."""
        errors, said = self._psycopg.errors, " ".join(without_url_secrets(str(error), self._url).split())
        if isinstance(error, errors.InsufficientPrivilege):
            return (
                f"the database {self.place} lets this role do too little ({said}): create the tables with a role that may, "
                "by `callgate store migrate`, and grant this one SELECT, INSERT, UPDATE and DELETE on them"
            )
        if isinstance(error, errors.ReadOnlySqlTransaction) and self.is_read_only:
            return f"the database {self.place} was opened for reading only: nothing was written to it"
        if isinstance(error, errors.ReadOnlySqlTransaction):
            return f"the database {self.place} can only be read ({said}): it is a standby, or set to read-only"
        if isinstance(error, errors.DiskFull):
            return (
                f"the disk of the database {self.place} is full ({said}); what was committed is kept: make room and continue"
            )
        if isinstance(error, (errors.QueryCanceled, errors.LockNotAvailable)):
            return f"the database {self.place} took too long ({said}): see what else runs in it"
        if isinstance(error, self._psycopg.OperationalError):
            return f"the database {self.place} cannot be reached ({said}): see whether it runs and lets this user in"
        return f"the database {self.place} cannot be used: {said}"


def _servers(given: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """Return the hosts and ports of a URL that names several; none if only the driver knows in which order to try them."""
    hosts, ports = str(given.get("host") or "").split(","), str(given.get("port") or "").split(",")
    if len(ports) not in (1, len(hosts)) or not all(hosts) or {"hostaddr", "load_balance_hosts"} & set(given):
        return []
    return [(host, port or None) for host, port in zip(hosts, ports * (len(hosts) // len(ports)), strict=True)]
