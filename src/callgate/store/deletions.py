"""Deletions: a deleted session is remembered for a month, by a hash of its name and the time.

What is kept of it elsewhere can go then, too, such as backups of files on another machine; and a copy from another store
does not bring it back. `Store` asks for none of these methods.
"""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeGuard

if TYPE_CHECKING:
    from callgate.store.database import Database
    from callgate.store.dialect import Dialect, Transaction
    from callgate.store.protocol import Store

__all__ = ["SqlDeletions", "clean_deletions", "deletion_key", "deletions", "note_deletion"]

DELETIONS_KEPT_S = 31 * 24 * 3600.0
"""Seconds that a deletion is remembered: longer than backups of files are kept."""
PAGE = 200
"""Sessions that one query is about."""


class Deletions(Protocol):
    """An optional method of a store that remembers deletions."""

    async def deletions(self, sessions: list[str]) -> dict[str, float]:
        """Return when those of the sessions were deleted that were, by the clock of the store."""
        ...


def _remembers(store: object) -> TypeGuard[Deletions]:
    return hasattr(store, "deletions")


async def deletions(store: Store, sessions: list[str]) -> dict[str, float]:
    """Return when those of the sessions were deleted that were; none where a store does not remember it.

    Raises:
        StoreError: the store cannot be used.
    """
    return await store.deletions(sessions) if sessions and _remembers(store) else {}


class SqlDeletions:
    """Deletions as rows of a table."""

    _database: Database
    _dialect: Dialect
    patience_s: float

    async def deletions(self, sessions: list[str]) -> dict[str, float]:
        """Return when those of the sessions were deleted that were, by the clock of the store.

        The name may be that of a new session since; one that was there before, and still is, counts as not deleted.

        Raises:
            StoreError: the database cannot be used.
        """
        found: dict[str, float] = {}
        for start in range(0, len(sessions), PAGE):
            work = partial(_deletions, dialect=self._dialect, sessions=sessions[start : start + PAGE])
            found |= await self._database.do(work, reads=True, silence_s=self.patience_s)
        return found


def deletion_key(session: str) -> str:
    """Return a hash that stands for the name of a session: a name may say who somebody is."""
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def note_deletion(tx: Transaction, session: str) -> None:
    """Remember that a session is deleted now."""
    sql = "INSERT INTO callgate_deletions VALUES (?, ?) ON CONFLICT (session) DO UPDATE SET at_s = excluded.at_s"
    tx.run(sql, deletion_key(session), tx.now_s())


def clean_deletions(tx: Transaction) -> None:
    """Forget old deletions."""
    tx.run("DELETE FROM callgate_deletions WHERE at_s <= ?", tx.now_s() - DELETIONS_KEPT_S)


def _deletions(tx: Transaction, *, dialect: Dialect, sessions: list[str]) -> dict[str, float]:
    if "callgate_deletions" not in dialect.tables(tx):  # An older version made the tables, and they are only read.
        return {}
    by_key = {deletion_key(session): session for session in sessions}
    marks = ", ".join("?" * len(by_key))
    rows = tx.rows(f"SELECT session, at_s FROM callgate_deletions WHERE session IN ({marks})", *by_key)
    there = "SELECT 1 FROM callgate_sessions WHERE id = ? AND created_s <= ?"
    return {by_key[key]: float(at_s) for key, at_s in rows if not tx.rows(there, by_key[key], at_s)}
