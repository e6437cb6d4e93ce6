"""Copies of whole stores: SQLite to PostgreSQL and back, while both are in use, verified by hash.

Two dialects come in, rows go from one to the other, and a `Transfer` with the counts and the hash goes out. Rows are copied
as they are: times, waiting calls, idempotency keys, and facts of kinds that this version does not know. The source is read
as it was at one moment. Each session is written in one transaction, so that an interrupted copy can be repeated: it goes on
with what is missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from callgate.errors import StoreError
from callgate.store import owner as owners
from callgate.store.copy_mark import has_mark, leave_mark, remove_marks
from callgate.store.deletions import deletion_key
from callgate.store.dialect import Dialect, LockedError, Transaction
from callgate.store.lane import failure
from callgate.store.schema import prepare_schema
from callgate.store.store_reader import APART, LEASE, Row, SessionHasher, StoreReader

__all__ = ["SAME_STORE", "Transfer", "copy_store", "store_digest"]

MOMENTARY = ("callgate_reservations", "callgate_rates", "callgate_uploads")
"""Tables about the runs and requests of this moment, which are not copied: nothing is under way in a copy. Uploads that a
session refers to are in its journal, and others are soon gone."""
_INSTEAD = "restore into an empty store, or add the backup to it with: callgate store copy"
LISTED_MAX = 20
"""Differences that are named where a store is refused because of them."""
SAME_STORE = "FROM and TO are the same store"
HOLD_S, PAUSE_S = 0.4, 0.15
"""Seconds of writing to a file before others get a turn, and seconds of that turn: SQLite retries about every 0.1 s."""
LOCKED_S, LOCKED_PAUSE_S = 10.0, 0.2
"""Seconds to wait for a session that another transaction has locked, such as that of a killed copy, or of another one."""
BATCH_ROWS = 2000
"""Rows that one commit has at least, unless there are no more."""
_HELD = "facts, fence, owner, expires_s"
"""The columns that tell how a target has a session."""


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
    """Sessions and keys that were left as they are in the target, each with the reason."""
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

    Sessions that the target has beyond those of the source are kept. A session that went on in the target is a conflict, and
    is left alone. Without `others_allowed` both are refused before anything is written. A session that was deleted there
    stays deleted, unless `with_deleted`.

    Raises:
        StoreError: one of the two cannot be used, or the copy is not equal to the source.
    """
    with contextlib.ExitStack() as opened:
        here = opened.enter_context(_opened(source, source.connect_to_read))
        with _translated(source):
            source.begin_snapshot(here)
            StoreReader(Transaction(here, source), source)  # There is a store; else the target is not even created.
            here.rollback()
        there = opened.enter_context(_opened(target, target.connect))
        with _translated(target):
            prepare_schema(there, target)
            mark = leave_mark(there, target)
        with _translated(source):
            source.begin_snapshot(here)
            read = StoreReader(Transaction(here, source), source)
            is_same = has_mark(Transaction(here, source), mark)
        with _translated(target):
            remove_marks(there, target, mark)
            if is_same:
                raise StoreError(SAME_STORE)
            is_locked_whole = target.connections == 1 and not is_private
            pause_s = PAUSE_S if is_locked_whole else 0.0
            copy = _Copy(read, there, target, progress, pause_s=pause_s, with_deleted=with_deleted)
            if not others_allowed:
                copy.refuse_others()
            return copy.run()


def store_digest(dialect: Dialect) -> tuple[str, str | None]:
    """Return the hash of everything in a store, and the one that was noted when it was made as a backup.

    Raises:
        StoreError: the store cannot be used.
    """
    with _opened(dialect, dialect.connect_to_read) as connection, _translated(dialect):
        dialect.begin_snapshot(connection)
        read = StoreReader(Transaction(connection, dialect), dialect)
        whole = hashlib.sha256()
        for session in read.ids():
            whole.update(read.digest(session))
        whole.update(read.apart_digest())
        return whole.hexdigest(), read.noted()


class _Copy:
    """One copy, and how far it came."""

    def __init__(
        self,
        read: StoreReader,
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
        self._known = StoreReader(self._tx, target, is_checked=True)
        self._outcome = Transfer()
        self._done = self._rows = 0
        self._pending: list[str] = []
        self._digests: dict[str, bytes] = {}
        self._locked: list[str] = []

    def refuse_others(self) -> None:
        """Refuse a target with sessions that the source does not have, or that went on there. Writes nothing.

        Raises:
            StoreError: there are such sessions, or idempotency keys that stand for other sessions there.
        """
        ours = self._read.ids()
        self._target.begin_snapshot(self._there)
        try:
            others = sorted(set(self._known.ids()) - set(ours))
            conflicts = [why for session in ours if (why := self._conflict_of(session, self._target_rows(session)))]
            conflicts += self._key_conflicts()
        finally:
            self._there.rollback()
        if others:
            counted = "1 session that is" if len(others) == 1 else f"{len(others)} sessions that are"
            raise StoreError(
                f"{self._target.place} has {counted} not in the backup ({_listed([repr(other) for other in others])}): "
                f"{_INSTEAD} (--with-deleted for what was deleted there)"
            )
        if conflicts:
            raise StoreError(
                f"nothing was written to {self._target.place}, which differs from the backup: {_listed(conflicts)}. "
                f"{_INSTEAD.capitalize()}, which leaves these out"
            )

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
        self._outcome.conflicts += self._key_conflicts()
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
                    "damaged, or another program changes the tables; repeat the copy"
                )
            self._outcome.sessions += 1

    def _copied(self, session: str) -> bytes | None:
        """Write what is missing of a session; return the hash of the whole, or None where it was left alone.

        Raises:
            LockedError: another transaction writes to it.
        """
        self._tx.lock(f"session {session}")  # First: another copy may just have created it.
        held = self._tx.locked_rows(_HELD, "callgate_sessions", "id", session)
        if why := self._conflict_of(session, held):
            self._outcome.conflicts.append(why)
            return None
        if not held and self._stays_deleted(session):
            self._outcome.deleted += 1
            return None
        known, fence = held[0][:2] if held else (0, 0)
        hasher = SessionHasher(self._read.about(session))
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
        self._insert("callgate_sessions", [tuple({**row, **LEASE, "fence": max(fence, row["fence"])}.values())])
        return hasher.digest()

    def _target_rows(self, session: str) -> Sequence[Row]:
        """Return how the target has a session: one row of `_HELD`, or none."""
        return self._tx.rows(f"SELECT {_HELD} FROM callgate_sessions WHERE id = ?", session)

    def _conflict_of(self, session: str, held: Sequence[Row]) -> str | None:
        """Return why a session of the target cannot become that of the source, if so."""
        if not held:
            return None
        [(known, _, holder, expires_s)] = held
        why = None
        if holder is not None and expires_s > self._tx.lease_now_s() and not owners.is_gone(holder):
            why = f"is in use by {owners.shown(holder)}"
        elif not self._is_prefix(session, known):
            why = "has other facts there"
        elif known == self._read.facts_of(session) and self._has_other_answers(session):
            why = "has an answer there for a call that waits"
        return why and f"session {session!r} {why}"

    def _key_conflicts(self) -> list[str]:
        """Return a sentence if idempotency keys of the source stand for other sessions in the target, where they stay."""
        theirs = self._known.keys_of_sessions()
        taken = sum(theirs.get(key, session) != session for key, session in self._read.keys_of_sessions().items())
        if not taken:
            return []
        return [
            "1 idempotency key stands for another session there"
            if taken == 1
            else f"{taken} idempotency keys stand for other sessions there"
        ]

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


def _listed(sentences: Sequence[str]) -> str:
    more = len(sentences) - LISTED_MAX
    return "; ".join(sentences[:LISTED_MAX]) + (f"; and {more} more" if more > 0 else "")


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
