"""The journal in a SQLite file: the default of the command, for one machine.

Write-ahead logging, so that readers and the writer do not wait for each other; every commit survives the death of the
process, and the one before a side effect a loss of power too. The file belongs to its owner alone. A file that may not be
written can still be read.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shlex
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from callgate.errors import CallgateError, StoreError
from callgate.machine import codec
from callgate.machine.facts import Fact, Unreadable
from callgate.store.answer_signal import AnswerSignal
from callgate.store.dialect import Passing, Transaction
from callgate.store.owner import boot_id
from callgate.store.protocol import Durability
from callgate.store.schema import SCHEMA, NoStoreError
from callgate.store.sql import SqlStore, line_of
from callgate.strict_json import without_surrogates

__all__ = ["salvaged", "sqlite_store"]

logger = logging.getLogger(__name__)

BUSY_S = 10.0
"""Seconds that a commit waits for that of another process."""
FORGET_MS = 200
"""Milliseconds to wait for the log after a deletion."""
RETRY_S = 0.01
"""Seconds between two tries of an open, where SQLite does not wait by itself."""
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)


def sqlite_store(path: str | Path, *, durable: Durability = "effects", read_only: bool = False) -> SqlStore:
    """Return a store in the file, which is made when it is first used, unless it is only read."""
    return SqlStore(Sqlite(Path(path).expanduser(), read_only=read_only), durable=durable)


class Sqlite:
    """The dialect of SQLite."""

    errors = sqlite3.Error
    row_lock = ""  # A transaction that may write locks the whole file.
    connections = 1

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self._path = path
        self._durable: bool | None = None
        self._reads_only = read_only
        self.is_read_only = read_only
        self._booted_s: float | None = None
        self._file: tuple[int, int] | None = None
        """Device and number of the file that was opened last."""
        self._beside: dict[Path, tuple[int, int] | None] = {}
        """The same of its write-ahead log, and of the index of that."""
        self._copy = contextlib.ExitStack()
        """Folder of the copy that is read where the file itself cannot be."""

    @property
    def place(self) -> str:
        """The path."""
        return str(self._path)

    def connect(self) -> sqlite3.Connection:
        """Open a connection; the file and its folder are made for their owner alone."""
        self._durable, self.is_read_only, self._booted_s = None, self._reads_only, None
        self._copy.close()
        if self._reads_only:
            return self._connect_to_look()
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # SQLite makes its further files with the rights of the first.
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            found = os.fstat(file)
            os.close(file)
            self._file = (found.st_dev, found.st_ino)
            connection = sqlite3.connect(self._path, timeout=BUSY_S, isolation_level=None)
        except OSError as error:
            if error.errno not in _NOT_WRITABLE or not self._path.exists():
                raise
            self.is_read_only = True
            return _readable_file(self._path, self._copy)
        connection.text_factory = _text
        try:
            _log_ahead(connection)
            connection.execute("PRAGMA secure_delete = ON").close()
            connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()  # The log is there from its first use on.
            path = self._path.resolve()  # The log is beside the file, and not beside a link to it.
            self._beside = {file: _number(file) for file in (Path(f"{path}-wal"), Path(f"{path}-shm"))}
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _connect_to_look(self) -> sqlite3.Connection:
        """Open a connection that writes nothing, and leaves none of SQLite's files that were not there."""
        if not self._path.exists():
            raise NoStoreError(self.place)
        if not os.access(self._path, os.W_OK):
            return self.connect_to_read()
        with contextlib.suppress(sqlite3.Error):
            connection = _opened(_uri(self._path, "mode=rw"))
            connection.execute("PRAGMA query_only = ON").close()
            return connection
        return self.connect_to_read()

    def connect_to_read(self) -> sqlite3.Connection:
        """Open a connection to a file that is there; neither the file nor its kind of journal is changed."""
        with contextlib.suppress(sqlite3.Error):
            return _opened(_uri(self._path, "mode=ro"))
        return _readable_file(self._path, self._copy)  # Beside it, or in it, nothing can be written.

    def is_in_place(self, connection: Any) -> bool:
        """Return False if the file was removed, or replaced by another: nobody would find what is written to it.

        The same if it can be written now, and could not when it was opened.
        """
        if self.is_read_only:
            return self._reads_only or not os.access(self._path, os.W_OK)
        try:
            return _number(self._path) == self._file
        except OSError:
            return True

    def close(self, connection: Any) -> None:
        """Close a connection. The log of a file that was moved or replaced is not left to the one in its place.

        SQLite would take it for that one's. What it holds goes into the file that it belongs to, wherever that is now.
        """
        try:
            if not self.is_read_only and not self.is_in_place(connection):
                self._take_log_away(connection)
        finally:
            connection.close()

    def _take_log_away(self, connection: Any) -> None:
        try:
            connection.rollback()
            is_whole = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] == 0
        except sqlite3.Error:
            is_whole = False
        kept: list[Path] = []
        for file, number in self._beside.items():
            if number is None or _number(file) != number:
                continue  # It went with its file.
            if is_whole or not file.name.endswith("-wal"):
                file.unlink()
            else:
                kept.append(file.replace(file.with_name(f"{file.name}.moved-{number[1]}")))
        if kept:
            logger.error(
                "the session file %s was moved or replaced while it was in use, and its newest sessions could not be "
                "written to it: they are in %s, which belongs beside the moved file, with its name and -wal",
                self.place, kept[0],
            )  # fmt: skip
        else:
            logger.warning(
                "the session file %s was moved or replaced while it was in use: everything up to here was written to the "
                "old file, and the service continues with the one in its place", self.place
            )  # fmt: skip

    def server_of(self, connection: Any) -> str:
        """Return nothing: there is no server."""
        return ""

    def cut(self, connection: Any) -> None:
        """Interrupt a long query; a wait for the lock of another process ends by itself."""
        connection.interrupt()

    def begin(self, connection: Any, *, durable: bool) -> None:
        """Begin a transaction that may write, unless the file may not be written."""
        if self.is_read_only:
            connection.execute("BEGIN").close()
            return
        if durable is not self._durable:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}").close()
            self._durable = durable
        connection.execute("BEGIN IMMEDIATE").close()

    def begin_snapshot(self, connection: Any) -> None:
        """Begin a transaction that reads the file as it is at this moment; others may go on writing."""
        connection.execute("BEGIN").close()
        connection.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()  # The moment is that of the first read.

    def begin_long(self, connection: Any) -> None:
        """Begin a durable transaction."""
        self.begin(connection, durable=True)

    def tables(self, transaction: Transaction) -> set[str]:
        """Return the names of the tables in the file."""
        return {name for (name,) in transaction.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}

    def schema(self) -> list[str]:
        """Return the statements that create the tables."""
        return [statement.format(real="REAL", blob="BLOB") for statement in SCHEMA]

    def create(self, transaction: Transaction) -> None:
        """Create the tables that are missing."""
        for statement in self.schema():
            transaction.run(statement)

    def announce(self, transaction: Transaction) -> None:
        """Do nothing: SQLite has no signals."""

    def answer_signal(self) -> AnswerSignal:
        """Return a receiver that only looks now and then."""
        return AnswerSignal(None)

    def forget(self, connection: Any) -> None:
        """Empty the write-ahead log, which still has the text; somebody who reads it is not waited for long."""
        with contextlib.suppress(sqlite3.Error):
            connection.execute(f"PRAGMA busy_timeout = {FORGET_MS}").close()
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()
        with contextlib.suppress(sqlite3.Error):
            connection.execute(f"PRAGMA busy_timeout = {BUSY_S * 1000:.0f}").close()

    def try_lock(self, transaction: Transaction, name: str) -> bool:
        """Return True: the transaction has locked the whole file."""
        return True

    def statement(self, sql: str) -> str:
        """Return the statement as it is."""
        return sql

    def now_s(self, transaction: Transaction) -> float:
        """Return the time by the clock of this machine, which all owners of the file share."""
        return time.time()

    def lease_now_s(self, transaction: Transaction) -> float:
        """Return the time since the machine was booted, counted from what its clock said when the file was first used since.

        All processes of the machine agree on it, and it goes on evenly when the clock is set.
        """
        try:
            key, up_s = f"boot {boot_id()}", self.uptime_s()
        except (OSError, AttributeError):  # Not Linux.
            return self.now_s(transaction)
        if self._booted_s is None:
            found = transaction.rows("SELECT value FROM callgate_meta WHERE key = ?", key)
            if not found:  # Noted for all, and read again: this transaction may be rolled back.
                now_s = self.now_s(transaction)
                if not self.is_read_only:
                    transaction.run("INSERT INTO callgate_meta VALUES (?, ?)", key, repr(now_s - up_s))
                return now_s
            self._booted_s = float(found[0][0])
        return self._booted_s + up_s

    @staticmethod
    def uptime_s() -> float:
        """Return the seconds since the machine was booted, those in which it slept included."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def passing(self, error: BaseException) -> Passing | None:
        """Return whether a table is gone, which a new connection makes.

        A process that has locked the file has had enough time, and there is no server.
        """
        return "stale" if "no such table" in str(error) and not self.is_read_only else None

    def is_damage(self, error: BaseException) -> bool:
        """Return whether a page of the file is damaged."""
        return "malformed" in str(error) or "not a database" in str(error)

    def sentence(self, error: Exception) -> str:
        """Explain what went wrong with the file."""
        said = str(error)
        if self._reads_only and "readonly" in said:
            return f"the session file {self.place} was opened for reading only: nothing was written to it"
        if self._reads_only and (isinstance(error, PermissionError) or "unable to open" in said):
            return f"the session file {self.place} cannot be read ({said}): see who owns it and its folder"
        if isinstance(error, PermissionError) or "readonly" in said or "unable to open" in said:
            return f"the session file {self.place} cannot be written ({said}): see who owns it and its folder"
        if "full" in said or getattr(error, "errno", None) == 28:
            return (
                f"the disk of the session file {self.place} is full; everything up to here is kept: make room and continue"
            )
        if self.is_damage(error):
            return (
                f"the session file {self.place} is damaged ({said}); nothing was written to it: get what can still be "
                f"read with: callgate sessions export --salvage {shlex.quote(str(self.place))}; then move it away"
            )
        if "locked" in said:
            return f"the session file {self.place} was in use by another process for more than {BUSY_S:g} s; try again"
        return f"the session file {self.place} cannot be used: {said}"


def _number(path: Path) -> tuple[int, int] | None:
    """Return the device and the number of a file; None if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


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


def _readable_file(path: Path, copy: contextlib.ExitStack) -> sqlite3.Connection:
    """Open a file for reading alone, together with its write-ahead log, which may hold all of a small store.

    Where SQLite cannot read the log in its place (it needs a file for its index beside it), a copy of both is read, which is
    removed with `copy`.
    """
    path = path.resolve()  # The log is beside the file, and not beside a link to it.
    log = path.with_name(f"{path.name}-wal")
    if not log.exists() or not log.stat().st_size:
        return _opened(_uri(path, "mode=ro&immutable=1"))
    with contextlib.suppress(sqlite3.Error):
        return _opened(_uri(path, "mode=ro"))
    folder = Path(copy.enter_context(tempfile.TemporaryDirectory(prefix="callgate-read-")))
    for source in (path, log):
        shutil.copyfile(source, folder / source.name)
    try:
        return _opened(_uri(folder / path.name))
    except sqlite3.Error:  # The log is of no use: what the file itself holds is all there is.
        return _opened(_uri(path, "mode=ro&immutable=1"))


def _uri(path: Path, query: str = "") -> str:
    return f"file:{quote(os.fsencode(path))}?{query}"


def _opened(uri: str) -> sqlite3.Connection:
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
    connection.text_factory = _text
    try:
        connection.execute("SELECT COUNT(*) FROM sqlite_master").close()
    except sqlite3.Error:
        if "immutable" in uri:
            return connection
        connection.close()
        raise
    return connection


def salvaged(path: str | Path) -> Iterator[tuple[str, list[Fact], str | None]]:
    """Yield each session in a damaged file: its id, its facts up to the first that cannot be found, and the problem there.

    A row that is there but holds no fact is an `Unreadable`. The file and its write-ahead log are only read.

    Raises:
        StoreError: nothing of it can be read.
    """
    try:
        with contextlib.ExitStack() as copy, contextlib.closing(_readable_file(Path(path), copy)) as connection:
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
            line = line_of(row[0])
            try:
                found.append(codec.decode_line(line))
            except codec.NewerSchemaError as error:  # It is exported as it is, for the version that can read it.
                found.append(Unreadable(problem=str(error), body=line))
        except (sqlite3.Error, CallgateError) as error:
            return found, str(error)
