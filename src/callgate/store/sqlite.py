"""The journal in a SQLite file: the default of the command, for one machine.

Write-ahead logging, so that readers and the writer do not wait for each other; every commit survives the death of the
process, and the one before a side effect a loss of power too. The file belongs to its owner alone.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from callgate.errors import CallgateError, StoreError
from callgate.machine import codec
from callgate.machine.facts import Fact
from callgate.store.database import SCHEMA, Transaction
from callgate.store.sql import SqlStore, line_of
from callgate.strict_json import without_surrogates

__all__ = ["salvaged", "sqlite_store"]

BUSY_S = 10.0
"""How long a commit waits for the one of another process."""
RETRY_S = 0.01
"""How long an opening waits between two tries, where SQLite does not wait by itself."""


def sqlite_store(path: str | Path) -> SqlStore:
    """A store in the file, which is made when it is first used."""
    return SqlStore(Sqlite(Path(path).expanduser()))


class Sqlite:
    """SQLite's own ways."""

    errors = sqlite3.Error
    row_lock = ""  # A transaction that may write locks the whole file.

    def __init__(self, path: Path) -> None:
        self._path = path
        self._durable: bool | None = None

    @property
    def place(self) -> str:
        """The path."""
        return str(self._path)

    def connect(self) -> sqlite3.Connection:
        """A connection; the file and its folder are made for their owner alone."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # SQLite makes its further files with the rights of the first.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
        connection = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)
        connection.text_factory = _text
        try:
            _log_ahead(connection)
        except sqlite3.Error:
            connection.close()
            raise
        self._durable = None
        return connection

    def begin(self, connection: Any, *, durable: bool) -> None:
        """Begin a transaction that may write."""
        if durable is not self._durable:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}").close()
            self._durable = durable
        connection.execute("BEGIN IMMEDIATE").close()

    def create(self, transaction: Transaction) -> None:
        """Make the tables where they are missing."""
        for statement in SCHEMA:
            transaction.run(statement.format(real="REAL", blob="BLOB"))

    def statement(self, sql: str) -> str:
        """The statement as it is."""
        return sql

    def now_s(self, transaction: Transaction) -> float:
        """The clock of this machine, which all owners of the file share."""
        return time.time()

    def sentence(self, error: Exception) -> str:
        """What went wrong with the file."""
        said = str(error)
        if isinstance(error, PermissionError) or "readonly" in said or "unable to open" in said:
            return f"the session file {self.place} cannot be written ({said}): see who owns it and its folder"
        if "full" in said or getattr(error, "errno", None) == 28:
            return f"the disk of the session file {self.place} is full; everything up to here is kept: make room and go on"
        if "malformed" in said or "not a database" in said:
            return (
                f"the session file {self.place} is damaged ({said}); nothing was written to it: move it away, and get what "
                "can still be read with: callgate sessions export --salvage"
            )
        if "locked" in said:
            return f"the session file {self.place} was in use by another process for more than {BUSY_S:g} s; try again"
        return f"the session file {self.place} cannot be used: {said}"


def _text(data: bytes) -> str:
    """Decode a text. One that is damaged costs itself, and not the whole query."""
    return data.decode("utf-8", "surrogateescape")


def _log_ahead(connection: sqlite3.Connection) -> None:
    """Switch the file to write-ahead logging, and waits while another process has it.

    SQLite itself does not wait here: two that open a new file at the same moment would wait for each other for ever, so it
    tells one of them at once that the file is locked, however long the connection is ready to wait.
    """
    until = time.monotonic() + BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").close()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= until:
                raise
        time.sleep(RETRY_S)


def salvaged(path: str | Path) -> Iterator[tuple[str, list[Fact], str | None]]:
    """Of each session in a damaged file: its id, the facts up to the first that cannot be found, and what was wrong there.

    A row that is there but holds no fact is an `Unreadable`. The file is only read.

    Raises:
        StoreError: nothing of it can be read.
    """
    try:
        connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro&immutable=1", uri=True)
        connection.text_factory = _text
        with contextlib.closing(connection):
            for session in _session_ids(connection):
                yield without_surrogates(session), *_readable(connection, session)
    except sqlite3.Error as error:
        raise StoreError(f"nothing of {path} can be read: {error}") from error


def _session_ids(connection: sqlite3.Connection) -> list[str]:
    for table, column in (("callgate_sessions", "id"), ("callgate_facts", "session")):
        with contextlib.suppress(sqlite3.Error):
            return [row[0] for row in connection.execute(f"SELECT DISTINCT {column} FROM {table} ORDER BY 1")]
    raise sqlite3.DatabaseError("its tables are damaged")


def _readable(connection: sqlite3.Connection, session: str) -> tuple[list[Fact], str | None]:
    found: list[Fact] = []
    sql = "SELECT body FROM callgate_facts WHERE session = ? AND position = ?"
    while True:
        try:
            row = connection.execute(sql, (session, len(found))).fetchone()
            if row is None:
                return found, None
            found.append(codec.decode_line(line_of(row[0])))
        except (sqlite3.Error, CallgateError) as error:
            return found, str(error)
