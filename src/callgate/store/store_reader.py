"""The rows of a store as they are, in an order and a form that are the same in every database, and their hashes.

A transaction comes in; rows, counts and hashes go out. Nothing is written.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from callgate.errors import StoreError
from callgate.store.dialect import Dialect, Transaction
from callgate.store.schema import SCHEMA_VERSION, TABLES, schema_state
from callgate.strict_json import without_surrogates

__all__ = ["APART", "DIGEST_KEY", "LEASE", "OF_SESSION", "Row", "SessionHasher", "StoreReader"]

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
"""Tables that count for a hash only if they have rows, so that older backups keep theirs."""
CHUNK = 200
"""Rows that are read at a time."""
LEASE = {"owner": None, "expires_s": 0.0}
"""Lease of a session in a copy: it has no owner."""

Row = tuple[Any, ...]


class StoreReader:
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
        return tuple(value for name, value in row.items() if name not in ("fence", *LEASE))

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

    def keys_of_sessions(self) -> dict[str, str]:
        """Return the idempotency keys, and the session of each."""
        columns = self.columns("callgate_claims")
        key, session = columns.index("key"), columns.index("session")
        return {str(row[key]): str(row[session]) for row in self.apart("callgate_claims")}

    def apart_digest(self) -> bytes:
        """Return the hashes of the tables whose rows belong to no session alone."""
        found = {table: self.apart(table) for table in APART}
        return b"".join(_hashed(rows) for table, rows in found.items() if rows or table not in LATER)

    def digest(self, session: str) -> bytes:
        """Return the hash of a session."""
        hasher = SessionHasher(self.about(session))
        for table in OF_SESSION:
            for rows in self.chunks(table, session):
                hasher.add(table, rows)
        return hasher.digest()

    def noted(self) -> str | None:
        """Return the hash that was noted in a backup."""
        found = self._tx.rows("SELECT value FROM callgate_meta WHERE key = ?", DIGEST_KEY)
        return str(found[0][0]) if found else None


class SessionHasher:
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
