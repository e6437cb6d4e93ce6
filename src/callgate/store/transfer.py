"""Copies of whole stores: SQLite to PostgreSQL and back, while both are in use, verified by hash.

Two dialects come in, rows go from one to the other, and a `Transfer` with the counts and the hash goes out. Rows are copied
as they are: times, waiting calls, idempotency keys, and facts of kinds that this version does not know. The source is read
as it was at one moment. Each session is written in one transaction, so that an interrupted copy can be repeated: it goes on
with what is missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from callgate.errors import StoreError
from callgate.store import owner as owners
from callgate.store.copy_mark import has_mark, leave_mark, remove_marks
from callgate.store.deletions import deletion_key
from callgate.store.dialect import Dialect, LockedError, Transaction
from callgate.store.lane import failure
from callgate.store.schema import SCHEMA_VERSION, TABLES, prepare_schema, schema_state
from callgate.strict_json import without_surrogates

__all__ = ["DIGEST_KEY", "OF_SESSION", "SAME_STORE", "Transfer", "copy_store", "store_digest"]

DIGEST_KEY = "backup_sha256"
"""Row of `callgate_meta` in a backup: the hash of everything in it."""
OF_SESSION = {"callgate_facts": "position", "callgate_answers": "call_id"}
"""Tables whose rows belong to a session, and what they are ordered by; the column `session` names it."""
APART = {
    "callgate_claims": ("key",),
    "callgate_principals": ("session",),
    "callgate_usage": ("principal", "period"),
    "callgate_deletions": ("session",),
}
"""Tables whose rows are not part of a session, and their keys."""
LATER = ("callgate_deletions",)
"""Those of them that count for a hash only if they have rows, so that older backups keep theirs."""
MOMENTARY = ("callgate_reservations", "callgate_rates")
"""Tables about the runs and requests of this moment, which are not copied: nothing is under way in a copy."""
SAME_STORE = "FROM and TO are the same store"
CHUNK = 200
"""Rows that are read at a time."""
HOLD_S, PAUSE_S = 0.4, 0.15
"""How long a file is written to before others have a turn, and how long that is: SQLite looks about every 0.1 s for one."""
LOCKED_S, LOCKED_PAUSE_S = 10.0, 0.2
"""How long a session is waited for that another transaction has locked, such as that of a killed copy, or of another one."""
BATCH_ROWS = 2000
"""Rows that one commit has at least, unless there are no more."""
_LEASE = {"owner": None, "expires_s": 0.0}
"""Nobody holds a session of a copy."""

Row = tuple[Any, ...]


@dataclass(slots=True)
class Transfer:
    """The outcome of a copy."""

    sessions: int = 0
    """Sessions of the source that the target now has."""
    facts: int = 0
    keys: int = 0
    written: int = 0
    """Facts that were missing in the target."""
    conflicts: list[str] = field(default_factory=list[str])
    """Sessions that were left as they are in the target, each with the reason."""
    deleted: int = 0
    """Sessions that were deleted in the target since, and not copied again."""
    others: int = 0
    """Sessions of the target that the source does not have."""
    sha256: str = ""
    """Hash of all sessions that were copied, equal on both sides."""


def copy_store(
    source: Dialect,
    target: Dialect,
    *,
    progress: Callable[[int, int], object] = lambda done, total: None,
    others_allowed: bool = True,
    is_private: bool = False,
    with_deleted: bool = False,
) -> Transfer:
    """Copy everything in a store to another one, and verify it. `progress` gets the facts done, and all facts.

    Others can write to the target meanwhile, unless it `is_private` and need not wait for them.

    Sessions that the target has beyond those of the source are kept; without `others_allowed` they are refused before
    anything is written. A session that went on in the target is a conflict, and is left alone. One that was deleted there
    stays deleted, unless `with_deleted`.

    Raises:
        StoreError: one of the two cannot be used, or the copy is not equal to the source.
    """
    with contextlib.ExitStack() as opened:
        here = opened.enter_context(_opened(source, source.connect_to_read))
        with _translated(source):
            source.begin_snapshot(here)
            _Reader(Transaction(here, source), source)  # There is a store; else the target is not even created.
            here.rollback()
        there = opened.enter_context(_opened(target, target.connect))
        with _translated(target):
            prepare_schema(there, target)
            mark = leave_mark(there, target)
        with _translated(source):
            source.begin_snapshot(here)
            read = _Reader(Transaction(here, source), source)
            is_same = has_mark(Transaction(here, source), mark)
        with _translated(target):
            remove_marks(there, target, mark)
            if is_same:
                raise StoreError(SAME_STORE)
            if not others_allowed:
                _refuse_others(read, there, target)
            is_locked_whole = target.connections == 1 and not is_private
            pause_s = PAUSE_S if is_locked_whole else 0.0
            return _Copy(read, there, target, progress, pause_s=pause_s, with_deleted=with_deleted).run()


def store_digest(dialect: Dialect) -> tuple[str, str | None]:
    """Return the hash of everything in a store, and the one that was noted when it was made as a backup.

    Raises:
        StoreError: the store cannot be used.
    """
    with _opened(dialect, dialect.connect_to_read) as connection, _translated(dialect):
        dialect.begin_snapshot(connection)
        read = _Reader(Transaction(connection, dialect), dialect)
        whole = hashlib.sha256()
        for session in read.ids():
            whole.update(read.digest(session))
        whole.update(read.apart_digest())
        return whole.hexdigest(), read.noted()


class _Copy:
    """One copy, and how far it came."""

    def __init__(
        self,
        read: _Reader,
        there: Any,
        target: Dialect,
        progress: Callable[[int, int], object],
        *,
        pause_s: float,
        with_deleted: bool,
    ) -> None:
        self._with_deleted = with_deleted
        self._pause_s, self._began_s = pause_s, time.monotonic()
        self._read, self._there, self._target, self._progress = read, there, target, progress
        self._total = read.fact_count()
        self._tx = Transaction(there, target)
        self._known = _Reader(self._tx, target, is_checked=True)
        self._outcome = Transfer()
        self._done = self._rows = 0
        self._pending: list[str] = []
        self._digests: dict[str, bytes] = {}
        self._locked: list[str] = []

    def run(self) -> Transfer:
        """Copy everything; sessions that others have locked are tried again when the others are done."""
        self._target.begin_long(self._there)
        self._pass(self._read.ids())
        until_s = time.monotonic() + LOCKED_S
        while self._locked and time.monotonic() < until_s:
            time.sleep(LOCKED_PAUSE_S)
            locked, self._locked = self._locked, []
            self._pass(locked)
            if len(self._locked) < len(locked):
                until_s = time.monotonic() + LOCKED_S
        for session in self._locked:
            self._conflict(session, "is locked by another transaction")
        self._copy_keys()
        self._commit()
        self._outcome.others = len(set(self._known.ids()) - set(self._read.ids()))
        self._there.rollback()
        whole = hashlib.sha256()
        for _, digest in sorted(self._digests.items()):
            whole.update(digest)
        whole.update(self._read.apart_digest())
        self._outcome.sha256 = whole.hexdigest()
        return self._outcome

    def _pass(self, sessions: Sequence[str]) -> None:
        """Copy these sessions, and commit."""
        for session in sessions:
            try:
                digest = self._copied(session)
            except LockedError:
                self._locked.append(session)
                continue
            self._done += self._read.facts_of(session)
            if digest is not None:
                self._digests[session] = digest
                self._pending.append(session)
            if self._rows >= BATCH_ROWS:
                self._commit()
            self._progress(self._done, self._total)
        self._commit()

    def _commit(self) -> None:
        """Commit, and read everything back from what was committed."""
        self._there.commit()
        pending, self._pending = self._pending, []
        if self._pause_s and time.monotonic() >= self._began_s + HOLD_S:
            time.sleep(self._pause_s)
            self._began_s = time.monotonic()
        self._rows = 0
        self._target.begin_long(self._there)
        for session in pending:
            if not self._known.has(session) or self._known.digest(session) != self._digests[session]:
                if self._went_on(session):
                    self._conflict(session, "was written to after it was copied")
                    continue
                raise StoreError(
                    f"session {session!r} in {self._target.place} is not equal to its source after the copy: the storage is "
                    "damaged, or somebody else changes the tables; repeat the copy"
                )
            self._outcome.sessions += 1

    def _copied(self, session: str) -> bytes | None:
        """Write what is missing of a session; return the hash of the whole, or None where it was left alone.

        Raises:
            LockedError: another transaction writes to it.
        """
        self._tx.lock(f"session {session}")  # First: another copy may just have created it.
        held = self._tx.locked_rows("facts, fence, owner, expires_s", "callgate_sessions", "id", session)
        known, fence = 0, 0
        if held:
            [(known, fence, holder, expires_s)] = held
            if holder is not None and expires_s > self._tx.lease_now_s() and not owners.is_gone(holder):
                return self._conflict(session, f"is in use by {owners.shown(holder)}")
            if not self._is_prefix(session, known):
                return self._conflict(session, "has other facts there")
            if known == self._read.facts_of(session) and self._has_other_answers(session):
                return self._conflict(session, "has an answer there for a call that waits")
        elif self._stays_deleted(session):
            self._outcome.deleted += 1
            return None
        hasher = _Hasher(self._read.about(session))
        for rows in self._read.chunks("callgate_facts", session):
            hasher.add("callgate_facts", rows)
            missing = [row for row in rows if self._read.place(row) >= known]
            self._insert("callgate_facts", missing)
            self._outcome.written += len(missing)
            self._outcome.facts += len(rows)
        self._tx.run("DELETE FROM callgate_answers WHERE session = ?", session)
        for rows in self._read.chunks("callgate_answers", session):
            hasher.add("callgate_answers", rows)
            self._insert("callgate_answers", rows)
        self._tx.run("DELETE FROM callgate_sessions WHERE id = ?", session)
        row = self._read.session_row(session)
        self._insert("callgate_sessions", [tuple({**row, **_LEASE, "fence": max(fence, row["fence"])}.values())])
        return hasher.digest()

    def _stays_deleted(self, session: str) -> bool:
        """Return whether a session was deleted in the target after it began, and is to stay so."""
        key = deletion_key(session)
        if self._with_deleted:
            self._tx.run("DELETE FROM callgate_deletions WHERE session = ?", key)
            return False
        rows = self._tx.rows("SELECT at_s FROM callgate_deletions WHERE session = ?", key)
        return bool(rows) and rows[0][0] >= self._read.session_row(session)["created_s"]

    def _is_prefix(self, session: str, known: int) -> bool:
        """Return whether the target has the first facts of the session, and no others."""
        theirs = (row for rows in self._known.chunks("callgate_facts", session) for row in rows)
        ours = (row for rows in self._read.chunks("callgate_facts", session) for row in rows)
        count = 0
        for one in theirs:
            if next(ours, None) != one:
                return False
            count += 1
        return count == known <= self._read.facts_of(session)

    def _has_other_answers(self, session: str) -> bool:
        """Return whether somebody has answered a call in the target, and the source does not know of it."""
        theirs, ours = (
            {row for rows in side.chunks("callgate_answers", session) for row in rows} for side in (self._known, self._read)
        )
        return bool(theirs - ours)

    def _went_on(self, session: str) -> bool:
        """Return whether somebody works with a session in the target, or has deleted it."""
        rows = self._tx.rows("SELECT facts, owner FROM callgate_sessions WHERE id = ?", session)
        return not rows or rows[0][0] != self._read.facts_of(session) or rows[0][1] is not None

    def _conflict(self, session: str, why: str) -> None:
        self._outcome.conflicts.append(f"session {session!r} {why}")

    def _copy_keys(self) -> None:
        for table, key in APART.items():
            if not (rows := self._read.apart(table)):
                continue
            columns = self._read.columns(table)
            names, marks = ", ".join(columns), ", ".join("?" * len(columns))
            changes = ", ".join(f"{name} = excluded.{name}" for name in columns if name not in key)
            # A key that stands for another session in the target stays there.
            same = f" WHERE {table}.session = excluded.session" if "session" in columns else ""
            if table == "callgate_deletions":
                same = f" WHERE {table}.at_s < excluded.at_s"  # The last one counts.
            merge = f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}{same}"
            self._tx.run_many(f"INSERT INTO {table} ({names}) VALUES ({marks}) {merge}", rows)
            if table == "callgate_claims":
                self._outcome.keys = len(rows)

    def _insert(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            columns = self._read.columns(table)
            marks = ", ".join("?" * len(columns))
            self._tx.run_many(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)
            self._rows += len(rows)


class _Reader:
    """The rows of a store in one transaction, in an order and a form that are the same in every database."""

    def __init__(self, tx: Transaction, dialect: Dialect, *, is_checked: bool = False) -> None:
        self._tx = tx
        self._columns: dict[str, tuple[str, ...]] = {}
        self._about: dict[str, dict[str, Any]] = {}
        state = None if is_checked else schema_state(tx, dialect)
        if state is not None and state.version is None:
            raise StoreError(f"there is no store in {dialect.place}")
        if state is not None and state.version != str(SCHEMA_VERSION):
            raise StoreError(
                f"{dialect.place} was written by another version of callgate (schema {state.version}, and this one knows "
                f"{SCHEMA_VERSION}); copy it with that version"
            )
        self._tables = set(TABLES) - set(state.missing if state is not None else ())

    def columns(self, table: str) -> tuple[str, ...]:
        """Return the names of the columns of a table."""
        if table not in self._columns:
            self._columns[table] = self._tx.columns(table)
        return self._columns[table]

    def ids(self) -> list[str]:
        """Return the ids of all sessions with facts, in an order that does not depend on the database."""
        found = self._tx.rows("SELECT id FROM callgate_sessions WHERE facts > 0")
        return sorted(str(id) for (id,) in found)

    def fact_count(self) -> int:
        """Return how many facts there are altogether."""
        return int(self._tx.rows("SELECT COALESCE(SUM(facts), 0) FROM callgate_sessions")[0][0])

    def facts_of(self, session: str) -> int:
        """Return how many facts a session has by its row."""
        return int(self.session_row(session)["facts"])

    def has(self, session: str) -> bool:
        """Return whether there is such a session."""
        return bool(self._tx.rows("SELECT 1 FROM callgate_sessions WHERE id = ?", session))

    def session_row(self, session: str) -> dict[str, Any]:
        """Return the row of a session by the names of its columns. The one that was read last is held."""
        if session not in self._about:
            columns = self.columns("callgate_sessions")
            [row] = self._tx.rows(f"SELECT {', '.join(columns)} FROM callgate_sessions WHERE id = ?", session)
            self._about = {session: dict(zip(columns, map(_storable, row), strict=True))}
        return self._about[session]

    def about(self, session: str) -> Row:
        """Return what a copy of the session has in common with it: everything but the lease."""
        self._about.pop(session, None)
        row = self.session_row(session)
        return tuple(value for name, value in row.items() if name not in ("fence", *_LEASE))

    def place(self, row: Row) -> int:
        """Return the position of a fact."""
        return int(row[self.columns("callgate_facts").index("position")])

    def chunks(self, table: str, session: str) -> Iterator[list[Row]]:
        """Yield the rows of a session, some at a time."""
        if table not in self._tables:
            return
        columns, order = self.columns(table), OF_SESSION[table]
        sql = f"SELECT {', '.join(columns)} FROM {table} WHERE session = ?{{}} ORDER BY {order} LIMIT {CHUNK}"
        rows = self._tx.rows(sql.format(""), session)
        while rows:
            yield [tuple(map(_storable, row)) for row in rows]
            if len(rows) < CHUNK:
                return
            rows = self._tx.rows(sql.format(f" AND {order} > ?"), session, rows[-1][columns.index(order)])

    def apart(self, table: str) -> list[Row]:
        """Return the rows of a table whose rows belong to no session alone."""
        if table not in self._tables:
            return []
        columns = self.columns(table)
        rows = self._tx.rows(f"SELECT {', '.join(columns)} FROM {table}")
        places = [columns.index(name) for name in APART[table]]
        return sorted((tuple(map(_storable, row)) for row in rows), key=lambda row: [str(row[place]) for place in places])

    def apart_digest(self) -> bytes:
        """Return the hashes of the tables whose rows belong to no session alone."""
        found = {table: self.apart(table) for table in APART}
        return b"".join(_hashed(rows) for table, rows in found.items() if rows or table not in LATER)

    def digest(self, session: str) -> bytes:
        """Return the hash of a session."""
        hasher = _Hasher(self.about(session))
        for table in OF_SESSION:
            for rows in self.chunks(table, session):
                hasher.add(table, rows)
        return hasher.digest()

    def noted(self) -> str | None:
        """Return the hash that was noted in a backup."""
        found = self._tx.rows("SELECT value FROM callgate_meta WHERE key = ?", DIGEST_KEY)
        return str(found[0][0]) if found else None


class _Hasher:
    """Hash of one session."""

    def __init__(self, about: Row) -> None:
        self._hash = hashlib.sha256(_encoded(about))

    def add(self, table: str, rows: Sequence[Row]) -> None:
        """Add rows of a table."""
        for row in rows:
            self._hash.update(_encoded((table, *row)))

    def digest(self) -> bytes:
        """Return the hash of everything until now."""
        return self._hash.digest()


def _hashed(rows: Sequence[Row]) -> bytes:
    whole = hashlib.sha256()
    for row in rows:
        whole.update(_encoded(row))
    return whole.digest()


def _encoded(row: Row) -> bytes:
    """Encode a row without ambiguity; numbers that are equal have one form."""
    plain = [value.hex() if isinstance(value, bytes) else float(value) if isinstance(value, int) else value for value in row]
    line = json.dumps(plain, ensure_ascii=True).encode()
    return len(line).to_bytes(8, "big") + line


def _storable(value: Any) -> Any:
    """Return a value as every database can store it; a damaged file may have text that none can encode."""
    if isinstance(value, str):
        return without_surrogates(value.replace("\0", "\ufffd"))
    return value


def _refuse_others(read: _Reader, there: Any, target: Dialect) -> None:
    target.begin_snapshot(there)
    others = sorted(set(_Reader(Transaction(there, target), target).ids()) - set(read.ids()))
    there.rollback()
    if others:
        raise StoreError(
            f"{target.place} has {len(others)} sessions that are not in the backup, such as {others[0]!r}: restore into an "
            "empty store, or add the backup to it with: callgate store copy (--with-deleted for what was deleted there)"
        )


@contextlib.contextmanager
def _opened(dialect: Dialect, connect: Callable[[], Any]) -> Generator[Any]:
    with _translated(dialect):
        connection = connect()
    with contextlib.closing(connection):
        yield connection


@contextlib.contextmanager
def _translated(dialect: Dialect) -> Generator[None]:
    """Turn errors of the driver into sentences."""
    try:
        yield
    except (dialect.errors, OSError) as error:
        raise failure(dialect, error) from error
