"""Principals in a database: whose session it is, and what each of them has used up, in tables that all processes share.

`principals.py` says what is asked of a store; this is how a store of SQL answers it.
"""

from __future__ import annotations

import datetime
from functools import partial
from typing import TYPE_CHECKING

from callgate.store.deletions import SqlDeletions, clean_deletions, note_deletion
from callgate.store.principals import Used
from callgate.store.uploads import SqlUploads, clean_uploads

if TYPE_CHECKING:
    from callgate.store.database import Database
    from callgate.store.dialect import Transaction

__all__ = ["SqlPrincipals", "add_usage", "clean", "leave_name", "usage_of"]

RESERVED_S = 24 * 3600.0
"""Seconds that the name of a session stays reserved after the session was deleted, or if it never started."""
USAGE_KEPT_S = 31 * 24 * 3600.0
"""Seconds that the use of a principal on a day is cached."""
PAGE = 500
"""Sessions that one query is about."""


class SqlPrincipals(SqlDeletions, SqlUploads):
    """Principals as rows of a table, and what stays of deleted sessions."""

    _database: Database
    patience_s: float

    async def assign(self, session: str, principal: str) -> str | None:
        """Assign a session that does not exist to a principal; return its owner, None if it has none.

        Raises:
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> str | None:
            known = _principal(tx, session)
            if known is not None or tx.rows("SELECT 1 FROM callgate_sessions WHERE id = ?", session):
                return known
            sql = "INSERT INTO callgate_principals VALUES (?, ?, ?) ON CONFLICT (session) DO NOTHING"
            tx.run(sql, session, principal, tx.now_s())
            return _principal(tx, session)

        return await self._database.attempt(work, silence_s=self.patience_s)

    async def principal_of(self, session: str) -> str | None:
        """Return the owner of a session; None if it has none.

        Raises:
            StoreError: the database cannot be used.
        """
        return await self._database.do(lambda tx: _principal(tx, session), reads=True, silence_s=self.patience_s)

    async def owned(self, sessions: list[str], principal: str) -> set[str]:
        """Return those of the sessions that belong to the principal.

        Raises:
            StoreError: the database cannot be used.
        """
        found: set[str] = set()
        for start in range(0, len(sessions), PAGE):  # A database takes so many parameters, and not more.
            work = partial(_owned, principal=principal, sessions=sessions[start : start + PAGE])
            found |= await self._database.do(work, reads=True, silence_s=self.patience_s)
        return found

    async def add_usage(self, principal: str, period: str, used: Used) -> None:
        """Add to what a principal has used in a period.

        Raises:
            StoreError: the database cannot be used.
        """
        await self._database.do(lambda tx: add_usage(tx, principal, period, used))

    async def usage(self, principal: str, period: str) -> Used:
        """Return what a principal has used in a period.

        Raises:
            StoreError: the database cannot be used.
        """
        work = partial(usage_of, principal=principal, period=period)
        return await self._database.do(work, reads=True, silence_s=self.patience_s)


def add_usage(tx: Transaction, principal: str, period: str, used: Used) -> None:
    """Add to what a principal has used in a period."""
    sql = (
        "INSERT INTO callgate_usage VALUES (?, ?, ?, ?) ON CONFLICT (principal, period) "
        "DO UPDATE SET tokens = callgate_usage.tokens + excluded.tokens, cost = callgate_usage.cost + excluded.cost"
    )
    tx.run(sql, principal, period, used.tokens, used.cost)


def usage_of(tx: Transaction, principal: str, period: str) -> Used:
    """Return what a principal has used in a period."""
    rows = tx.rows("SELECT tokens, cost FROM callgate_usage WHERE principal = ? AND period = ?", principal, period)
    return Used(int(rows[0][0]), float(rows[0][1])) if rows else Used()


def leave_name(tx: Transaction, session: str) -> None:
    """Keep the name of a session that is being deleted for its principal, and remember the deletion."""
    note_deletion(tx, session)
    tx.run("UPDATE callgate_principals SET at_s = ? WHERE session = ?", tx.now_s(), session)


def clean(tx: Transaction) -> None:
    """Release names that were reserved for long enough; forget old deletions, uploads and days (as in 2026-11-18)."""
    clean_deletions(tx)
    clean_uploads(tx)
    gone = "at_s <= ? AND NOT EXISTS (SELECT 1 FROM callgate_sessions WHERE id = callgate_principals.session)"
    tx.run(f"DELETE FROM callgate_principals WHERE {gone}", tx.now_s() - RESERVED_S)
    day = datetime.datetime.fromtimestamp(tx.now_s() - USAGE_KEPT_S, datetime.UTC).date().isoformat()
    tx.run("DELETE FROM callgate_usage WHERE period < ?", day)


def _owned(tx: Transaction, *, principal: str, sessions: list[str]) -> set[str]:
    marks = ", ".join("?" * len(sessions))
    sql = f"SELECT session FROM callgate_principals WHERE principal = ? AND session IN ({marks})"
    return {str(session) for (session,) in tx.rows(sql, principal, *sessions)}


def _principal(tx: Transaction, session: str) -> str | None:
    rows = tx.rows("SELECT principal FROM callgate_principals WHERE session = ?", session)
    return str(rows[0][0]) if rows else None
