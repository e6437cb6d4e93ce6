"""The journal in a database: sessions and their facts as rows of tables.

What a store does comes in, statements go out; how they are carried out is in `database.py`. This file reads no fact but for
the title of a session.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from callgate.errors import SessionBusyError, SessionLostError, StoreError, UsageError
from callgate.machine import codec
from callgate.machine.facts import Fact, Unreadable
from callgate.store import owner as owners
from callgate.store.database import Database, Dialect, Transaction
from callgate.store.idempotency import KEPT_S, Claim
from callgate.store.protocol import LEASE_S, Lease, SessionInfo, check_id, given_title, title_of
from callgate.strict_json import without_surrogates

__all__ = ["SqlStore", "line_of"]

_FIRST_TITLE = "CASE WHEN title = '' THEN ? ELSE title END"
CLEAN_S = 600.0
"""How often claims that hold no longer are looked for."""


MISSING = b'{"kind": "missing"}'
"""Stands for facts that are not there, though they were counted; read as an `Unreadable`."""


class SqlStore:
    """Keeps facts in tables."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._database = Database(dialect)
        self._clean_s = 0.0

    # What a store does ----------------------------------------------------------------------------------------------------

    async def acquire(self, session: str, *, owner: str, lease_s: float = LEASE_S) -> Lease:
        """Make `owner` the one who may write; a session that does not exist yet begins.

        Raises:
            UsageError: the id cannot be that of a session.
            SessionBusyError: somebody else holds it.
            StoreError: the database cannot be used.
        """
        check_id(session)

        def work(tx: Transaction) -> Lease:
            now = tx.now_s()
            tx.run(
                "INSERT INTO callgate_sessions VALUES (?, '', 0, 0, NULL, 0, ?, ?) ON CONFLICT (id) DO NOTHING",
                session, now, now,
            )  # fmt: skip
            [(count, fence, holder, expires_s)] = self._row(tx, session, "facts, fence, owner, expires_s")
            if holder not in (None, owner) and expires_s > now and not owners.is_gone(holder):
                raise SessionBusyError(
                    f"session {session!r} is in use by {owners.shown(holder)}; wait until it is done there"
                )
            count = _checked_count(tx, session, count)
            tx.run(
                "UPDATE callgate_sessions SET facts = ?, fence = ?, owner = ?, expires_s = ? WHERE id = ?",
                count, fence + 1, owner, now + lease_s, session,
            )  # fmt: skip
            return Lease(session=session, fence=fence + 1, position=count)

        return await self._database.do(work)

    async def renew(self, lease: Lease, *, lease_s: float = LEASE_S) -> None:
        """Keep the lease for another `lease_s` seconds.

        Raises:
            SessionLostError: somebody else has it now.
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> None:
            expires_s = tx.now_s() + lease_s
            sql = "UPDATE callgate_sessions SET expires_s = ? WHERE id = ? AND fence = ?"
            if tx.run(sql, expires_s, lease.session, lease.fence) == 0:
                raise _lost(lease)

        await self._database.do(work)

    async def release(self, lease: Lease) -> None:
        """Give the session free, if it is still held; one that was never written to goes.

        Raises:
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> None:
            mine = (lease.session, lease.fence)
            tx.run("DELETE FROM callgate_sessions WHERE id = ? AND fence = ? AND facts = 0", *mine)
            tx.run("UPDATE callgate_sessions SET owner = NULL, expires_s = 0 WHERE id = ? AND fence = ?", *mine)

        await self._database.do(work)

    async def load(self, session: str, *, start: int = 0) -> list[Fact]:
        """Load the facts of the session from `start` on, oldest first; none when it is new.

        A row that cannot be decoded is an `Unreadable` in its place.

        Raises:
            UsageError: the id cannot be that of a session.
            StoreError: the database cannot be used, or a later version of callgate has written to the session.
        """
        check_id(session)
        sql = "SELECT position, body FROM callgate_facts WHERE session = ? AND position >= ? ORDER BY position"
        rows = await self._database.do(lambda tx: tx.rows(sql, session, start))
        try:
            return list(_facts_of(rows, start))
        except codec.NewerSchemaError as error:
            raise StoreError(f"session {session!r} in {self._dialect.place} cannot be read: {error}") from error

    async def append(self, lease: Lease, facts: Sequence[Fact], *, position: int, durable: bool = False) -> None:
        """Add facts behind the `position` facts that the writer knows of; with `durable` they survive a loss of power.

        Raises:
            SessionLostError: somebody else has taken the session over.
            JsonError: a fact holds something that cannot be written; none of them was.
            StoreError: the database cannot be used; whether the facts are in it is not known.
        """
        rows: list[tuple[str, int, bytes]] = []
        title, is_given = title_of(facts), given_title(facts) is not None

        def encode() -> None:
            rows[:] = [(lease.session, position + place, codec.encode(fact)) for place, fact in enumerate(facts)]

        def work(tx: Transaction) -> None:
            found = self._row(tx, lease.session, "facts, fence")
            if not found or found[0][1] != lease.fence:
                raise _lost(lease)
            if found[0][0] != position:
                raise SessionLostError(
                    f"session {lease.session!r} has {found[0][0]} facts, and its owner knows of {position}"
                )
            tx.run_many("INSERT INTO callgate_facts VALUES (?, ?, ?)", rows)
            tx.run(
                "UPDATE callgate_sessions SET facts = ?, updated_s = ?, "
                f"title = {'?' if is_given else _FIRST_TITLE} WHERE id = ?",
                position + len(rows), tx.now_s(), title, lease.session,
            )  # fmt: skip

        # Results can be large, and the event loop is not to wait until they are encoded.
        await self._database.do(work, prepare=encode, durable=durable)

    async def sessions(self) -> list[SessionInfo]:
        """All sessions, the one that was written to last first.

        Raises:
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> list[SessionInfo]:
            now = tx.now_s()
            columns = "id, title, facts, created_s, updated_s, owner, expires_s"
            sql = f"SELECT {columns} FROM callgate_sessions WHERE facts > 0 ORDER BY updated_s DESC, id"
            return [
                SessionInfo(
                    id=without_surrogates(session),
                    title=without_surrogates(title),
                    facts=count,
                    created_s=created_s,
                    updated_s=updated_s,
                    owner=owner if owner and expires_s > now and not owners.is_gone(owner) else None,
                )
                for session, title, count, created_s, updated_s, owner, expires_s in tx.rows(sql)
            ]

        return await self._database.do(work)

    async def copy(self, session: str, target: str, *, facts: int | None = None) -> None:
        """Make `target` a new session with the same facts, or the first so many of them.

        Raises:
            UsageError: there is no such session, the target exists, or one of them cannot be an id.
            StoreError: the database cannot be used.
        """
        check_id(session)
        check_id(target)

        def work(tx: Transaction) -> None:
            found = self._row(tx, session, "title, facts")
            if not found:
                raise UsageError(f"there is no session {session!r}")
            if self._row(tx, target, "facts"):
                raise UsageError(f"there is a session {target!r} already")
            title, count = found[0]
            kept = count if facts is None else min(facts, count)
            now = tx.now_s()
            tx.run("INSERT INTO callgate_sessions VALUES (?, ?, ?, 0, NULL, 0, ?, ?)", target, title, kept, now, now)
            tx.run(
                "INSERT INTO callgate_facts SELECT ?, position, body FROM callgate_facts WHERE session = ? AND position < ?",
                target, session, kept,
            )  # fmt: skip

        await self._database.do(work, durable=True)

    async def delete(self, session: str) -> bool:
        """Forget the session; whether there was one.

        Raises:
            UsageError: the id cannot be that of a session.
            SessionBusyError: somebody is at work on it.
            StoreError: the database cannot be used.
        """
        check_id(session)

        def work(tx: Transaction) -> bool:
            found = self._row(tx, session, "owner, expires_s")
            if not found:
                return False
            [(holder, expires_s)] = found
            if holder is not None and expires_s > tx.now_s() and not owners.is_gone(holder):
                raise SessionBusyError(f"session {session!r} is in use by {owners.shown(holder)} and was not deleted")
            tx.run("DELETE FROM callgate_facts WHERE session = ?", session)
            tx.run("DELETE FROM callgate_sessions WHERE id = ?", session)
            tx.run("UPDATE callgate_claims SET run = '' WHERE session = ?", session)
            return True

        return await self._database.do(work, durable=True)

    async def claim(self, claim: Claim) -> Claim:
        """Claim the key if it is free; return the claim that holds it, with its owner until now.

        Raises:
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> Claim:
            now = tx.now_s()
            if now >= self._clean_s:
                self._clean_s = now + CLEAN_S
                tx.run("DELETE FROM callgate_claims WHERE at_s <= ?", now - KEPT_S)
            else:
                tx.run("DELETE FROM callgate_claims WHERE key = ? AND at_s <= ?", claim.key, now - KEPT_S)
            columns, rows = "key, digest, session, run, owner, position", list[tuple[Any, ...]]()
            while not rows:  # It may be given free between two statements.
                # The second one waits here until the first has committed, and then finds the claim of that one.
                tx.run(
                    "INSERT INTO callgate_claims VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (key) DO NOTHING",
                    claim.key, claim.digest, claim.session, claim.run, claim.owner, claim.position, now,
                )  # fmt: skip
                sql = f"SELECT {columns} FROM callgate_claims WHERE key = ?{self._dialect.row_lock}"
                rows = tx.rows(sql, claim.key)
            held = Claim(**dict(zip(columns.split(", "), rows[0], strict=True)))
            if held.digest == claim.digest and held.owner != claim.owner:
                tx.run("UPDATE callgate_claims SET owner = ? WHERE key = ?", claim.owner, claim.key)
            return held

        return await self._database.do(work)

    async def unclaim(self, claim: Claim) -> None:
        """Give the key free, unless somebody else has asked for it since.

        Raises:
            StoreError: the database cannot be used.
        """
        sql = "DELETE FROM callgate_claims WHERE key = ? AND run = ? AND owner = ?"
        await self._database.do(lambda tx: tx.run(sql, claim.key, claim.run, claim.owner))

    async def aclose(self) -> None:
        """End the thread and closes the connection, when everything that waits is done."""
        await self._database.aclose()

    # Internals ------------------------------------------------------------------------------------------------------------

    def _row(self, tx: Transaction, session: str, columns: str) -> list[tuple[Any, ...]]:
        """The row of a session, which nobody else can change before the transaction is over."""
        return tx.rows(f"SELECT {columns} FROM callgate_sessions WHERE id = ?{self._dialect.row_lock}", session)


def line_of(body: Any) -> bytes:
    """Return the bytes of a row; a damaged one may hold a value of any kind."""
    return body if isinstance(body, bytes) else str(body).encode("utf-8", "surrogateescape")


def _lost(lease: Lease) -> SessionLostError:
    return SessionLostError(
        f"session {lease.session!r} was taken over by another process, or deleted; this run of it ends here"
    )


def _checked_count(tx: Transaction, session: str, count: Any) -> int:
    """How many facts a session has. Where its rows disagree with their count, one more says that some are missing."""
    [(last,)] = tx.rows("SELECT MAX(position) FROM callgate_facts WHERE session = ?", session)
    known = 0 if last is None else int(last) + 1
    if count == known:
        return known
    tx.run("INSERT INTO callgate_facts VALUES (?, ?, ?)", session, known, MISSING)
    return known + 1


def _facts_of(rows: Sequence[tuple[Any, ...]], start: int) -> Iterator[Fact]:
    """The facts of rows; one that is missing in between is an `Unreadable`."""
    for position, body in rows:
        for missing in range(start, position):
            yield Unreadable(problem=f"fact {missing} is missing", body=b"")
        yield codec.decode_line(line_of(body))
        start = position + 1
