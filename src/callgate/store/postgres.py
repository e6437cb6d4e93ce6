"""The journal in PostgreSQL: for several processes, on one machine or many, that share their sessions."""

from __future__ import annotations

import importlib
import re
from typing import Any

from callgate.errors import UsageError
from callgate.store.database import SCHEMA, Transaction
from callgate.store.sql import SqlStore

__all__ = ["postgres_store"]

CONNECT_S = 10
_CREATE_LOCK = 0x63616C6C  # Any number will do that nobody else uses: processes that start at once make the tables in turn.
_PASSWORD = re.compile(r"(://[^:/@]*):[^@]*@")


def postgres_store(url: str) -> SqlStore:
    """A store in the database that the URL names.

    Raises:
        UsageError: psycopg is not installed.
    """
    return SqlStore(Postgres(url))


class Postgres:
    """PostgreSQL's own ways."""

    row_lock = " FOR UPDATE"

    def __init__(self, url: str) -> None:
        try:
            self._psycopg: Any = importlib.import_module("psycopg")
        except ImportError:
            raise UsageError("sessions in PostgreSQL need the package psycopg: pip install 'callgate[postgres]'") from None
        self._url = url

    @property
    def place(self) -> str:
        """The URL without its password."""
        return _PASSWORD.sub(r"\1@", self._url)

    @property
    def errors(self) -> type[Exception]:
        """The root of psycopg's errors."""
        return self._psycopg.Error

    def connect(self) -> Any:
        """A connection."""
        return self._psycopg.connect(self._url, connect_timeout=CONNECT_S, application_name="callgate")

    def begin(self, connection: Any, *, durable: bool) -> None:
        """The driver begins by itself; here it is only said how much the commit must wait for."""
        if not durable:
            connection.execute("SET LOCAL synchronous_commit = off")

    def create(self, transaction: Transaction) -> None:
        """Make the tables where they are missing."""
        transaction.rows("SELECT pg_advisory_xact_lock(?)", _CREATE_LOCK)
        for statement in SCHEMA:
            transaction.run(statement.format(real="DOUBLE PRECISION", blob="BYTEA"))

    def statement(self, sql: str) -> str:
        """The statement with the driver's marks."""
        return sql.replace("?", "%s")

    def now_s(self, transaction: Transaction) -> float:
        """The clock of the server, which all owners share."""
        return float(transaction.rows("SELECT extract(epoch FROM clock_timestamp())")[0][0])

    def sentence(self, error: Exception) -> str:
        """What went wrong with the database."""
        said = " ".join(_PASSWORD.sub(r"\1@", str(error)).split())
        if isinstance(error, self._psycopg.OperationalError):
            return f"the database {self.place} cannot be reached ({said}): see whether it runs and lets this user in"
        return f"the database {self.place} cannot be used: {said}"
