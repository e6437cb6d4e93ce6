"""The journal in a database: sessions and their facts as rows of tables.

What a store does comes in, statements go out; how they are carried out is in `database.py`. This file reads no fact but for
the title of a session and the calls that were answered.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

from callgate.errors import NewerSessionError, SessionBusyError, SessionLostError, StoreError, UsageError
from callgate.machine import codec
from callgate.machine.facts import ApprovalAnswered, Fact, Unreadable
from callgate.store import owner as owners
from callgate.store.answers import SqlAnswers, spend_answers
from callgate.store.database import Database
from callgate.store.dialect import Dialect, LockedError, StillLockedError, Transaction
from callgate.store.protocol import LEASE_S, Durability, Lease, SessionInfo, check_id, last_title, title_of
from callgate.store.sql_idempotency import SqlIdempotencyKeys
from callgate.store.sql_principals import SqlPrincipals, leave_name
from callgate.store.statistics import StoreStatistics
from callgate.strict_json import without_surrogates

__all__ = ["SqlStore", "line_of"]

logger = logging.getLogger("callgate.store")

T = TypeVar("T")

_FIRST_TITLE = "CASE WHEN title = '' THEN ? ELSE title END"
_OWN = "SELECT 1 FROM callgate_principals WHERE session = id AND principal = ?"
KIND_BYTES = 64
"""Enough of a fact to see its kind."""
KINDS_PAGE = 200
"""Sessions whose last facts are looked at in one transaction."""
RELEASE_S = 2.0
"""Seconds to wait for the release of a session."""
REPLICA_S = 2.0
"""Seconds to wait for a replica before the database itself is queried."""
REPLICA_PAUSE_S = 10.0
"""Seconds that a failed replica is not queried, so that one list waits for it once."""
WRITTEN_S, TRY_S = 5.0, 1.0
"""Seconds for which a write shows that the next one will succeed, and between two tries of a store that fails."""
CHECK_BYTES = 64 * 1024
OFF_LOOP_BYTES = 256 * 1024
"""Longer journals are decoded in a thread, so that other sessions do not wait."""


MISSING = b'{"kind": "missing"}'
"""Placeholder for facts that are not there, though they were counted; read as an `Unreadable`."""


class SqlStore(SqlAnswers, SqlPrincipals, SqlIdempotencyKeys):
    """Store of facts in tables.

    With `durable="everything"` every fact is on the disk before the run continues, not only those before an effect. Lists
    and exports are read from the `replica`, a copy of the database that may lag, if there is one that answers.
    """

    patience_s = math.inf
    """Seconds that a new run waits for the database, and lists and views for one that does not answer. A service sets
    it: its clients wait better than it does."""

    def __init__(self, dialect: Dialect, *, durable: Durability = "effects", replica: Dialect | None = None) -> None:
        if durable not in ("effects", "everything"):
            raise UsageError(f"durable={durable!r}: use 'effects' or 'everything'")
        self.dialect = self._dialect = dialect
        self._database = Database(dialect)
        self._replica = None if replica is None else Database(replica)
        self._replica_after_s = -math.inf
        """Time from which the replica may be queried again."""
        self._is_durable = durable == "everything"
        self._lost: deque[tuple[str, int]] = deque(maxlen=1000)
        """Leases that are counted as lost."""
        self._tried_s = -math.inf
        """Time of the last attempt to write after a failure."""

    @property
    def statistics(self) -> StoreStatistics:
        """Counters of the operations and connections of this process."""
        return self._database.statistics

    # What a store does ----------------------------------------------------------------------------------------------------

    async def acquire(self, session: str, *, owner: str, lease_s: float = LEASE_S) -> Lease:
        """Make `owner` the one who may write; a session that does not exist yet begins.

        Raises:
            UsageError: the id cannot be that of a session.
            SessionBusyError: another process holds it.
            StoreError: the database cannot be used.
        """
        check_id(session)

        def work(tx: Transaction) -> Lease:
            now = tx.lease_now_s()
            columns = "facts, fence, owner, expires_s"
            found = _row(tx, session, columns)
            if not found:
                tx.lock(f"session {session}")
                sql = "INSERT INTO callgate_sessions VALUES (?, '', 0, 0, NULL, 0, ?, ?) ON CONFLICT (id) DO NOTHING"
                tx.run(sql, session, made_s := tx.now_s(), made_s)
                found = _row(tx, session, columns)
            [(count, fence, holder, expires_s)] = found
            if holder not in (None, owner) and expires_s > now and not owners.is_gone(holder):
                if expires_s > now + (longest_s := max(lease_s, LEASE_S)):  # The clock was put back since.
                    tx.run("UPDATE callgate_sessions SET expires_s = ? WHERE id = ?", now + longest_s, session)
                raise SessionBusyError(
                    f"session {session!r} is in use by {owners.shown(holder)}; wait until it is done there"
                )
            count = _checked_count(tx, session, count)
            tx.run(
                "UPDATE callgate_sessions SET facts = ?, fence = ?, owner = ?, expires_s = ? WHERE id = ?",
                count, fence + 1, owner, now + lease_s, session,
            )  # fmt: skip
            return Lease(session=session, fence=fence + 1, position=count)

        def acquired(tx: Transaction) -> Lease:
            try:
                return work(tx)
            except SessionBusyError:
                self.statistics.count("busy")
                raise
            except LockedError:  # Its owner writes to it at this moment; or does not, and nobody is to wait for that.
                message = f"session {session!r} is in use: another transaction has locked it; try again later"
                raise SessionBusyError(message) from None

        return await self._database.attempt(acquired, patience_s=self.patience_s, on_late=self._release_later)

    def _release_later(self, lease: Lease) -> None:
        """Release a lease for which nobody waits any more."""
        self._database.post(lambda tx: self._released(tx, lease))

    async def renew(self, lease: Lease, *, lease_s: float = LEASE_S) -> None:
        """Keep the lease for another `lease_s` seconds.

        Raises:
            SessionLostError: another process has it now.
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> None:
            found = _row(tx, lease.session, "fence")
            if not found or found[0][0] != lease.fence:
                raise self._lost_error(lease)
            tx.run("UPDATE callgate_sessions SET expires_s = ? WHERE id = ?", tx.lease_now_s() + lease_s, lease.session)

        await self._database.persist(work)

    async def release(self, lease: Lease) -> None:
        """Give the session free, if it is still held; one that was never written to goes.

        Raises:
            StoreError: the database cannot be used.
        """

        # Nobody needs its outcome: a database that does not answer now releases the session when it does, or the lease ends.
        await self._database.do(lambda tx: self._released(tx, lease), patience_s=RELEASE_S)

    @staticmethod
    def _released(tx: Transaction, lease: Lease) -> None:
        found = _row(tx, lease.session, "fence, facts")
        if not found or found[0][0] != lease.fence:
            return
        if found[0][1]:
            tx.run("UPDATE callgate_sessions SET owner = NULL, expires_s = 0 WHERE id = ?", lease.session)
        else:
            tx.lock(f"session {lease.session}")
            tx.run("DELETE FROM callgate_sessions WHERE id = ?", lease.session)

    async def load(self, session: str, *, start: int = 0) -> list[Fact]:
        """Load the facts of the session from `start` on, oldest first; none when it is new.

        A row that cannot be decoded is an `Unreadable` in its place.

        Raises:
            UsageError: the id cannot be that of a session.
            NewerSessionError: a newer version of callgate has written to the session.
            StoreError: the database cannot be used.
        """
        check_id(session)
        rows = await self._database.do(lambda tx: _fact_rows(tx, session, start), reads=True, silence_s=self.patience_s)
        return await self._facts_of(session, rows, start)

    async def read(self, session: str) -> list[Fact]:
        """Load the facts of a session for somebody who only looks at them; those of a replica may lag.

        Raises:
            UsageError: the id cannot be that of a session.
            NewerSessionError: a newer version of callgate has written to the session.
            StoreError: the database cannot be used.
        """
        check_id(session)
        return await self._facts_of(session, await self._look(lambda tx: _fact_rows(tx, session, 0)), 0)

    async def _facts_of(self, session: str, rows: Sequence[tuple[Any, ...]], start: int) -> list[Fact]:
        try:
            if sum(len(line_of(body)) for _, body in rows) > OFF_LOOP_BYTES:
                return await asyncio.to_thread(_facts_of, rows, start)
            return _facts_of(rows, start)
        except codec.NewerSchemaError as error:
            message = f"session {session!r} cannot be read: {error}"
            raise NewerSessionError(message) from error

    async def _look(self, work: Callable[[Transaction], T]) -> T:
        """Read from the replica, or from the database itself where there is none, or none that answers."""
        if self._replica is not None and time.monotonic() >= self._replica_after_s:
            try:
                return await self._replica.do(work, reads=True, patience_s=REPLICA_S)
            except StoreError as error:
                self._replica_after_s = time.monotonic() + REPLICA_PAUSE_S
                logger.warning("the replica is not used for %g s: %s", REPLICA_PAUSE_S, error)
        return await self._database.do(work, reads=True, silence_s=self.patience_s)

    async def append(self, lease: Lease, facts: Sequence[Fact], *, position: int, durable: bool = False) -> None:
        """Append facts after the `position` facts that the writer knows of; with `durable` they survive a loss of power.

        Raises:
            SessionLostError: another process has taken over the session.
            JsonError: a fact holds something that cannot be written; none of them was.
            StoreError: the database cannot be used; whether the facts are in it is not known.
        """
        rows: list[tuple[str, int, bytes]] = []
        title, is_given = title_of(facts), last_title(facts) is not None
        answered = [fact.id for fact in facts if isinstance(fact, ApprovalAnswered)]
        tries = 0

        def encode() -> None:
            nonlocal tries
            tries += 1
            rows[:] = [(lease.session, position + place, codec.encode(fact)) for place, fact in enumerate(facts)]

        def work(tx: Transaction) -> None:
            found = _row(tx, lease.session, "facts, fence")
            if not found or found[0][1] != lease.fence:
                raise self._lost_error(lease)
            if tries > 1 and rows and _fact_rows(tx, lease.session, position) == [row[1:] for row in rows]:
                return  # The connection was lost when this had been committed.
            if found[0][0] != position:
                raise SessionLostError(
                    f"session {lease.session!r} has {found[0][0]} facts, and its owner knows of {position}"
                )
            spend_answers(tx, self._dialect, lease, answered)
            tx.run_many("INSERT INTO callgate_facts VALUES (?, ?, ?)", rows)
            tx.run(
                "UPDATE callgate_sessions SET facts = ?, updated_s = ?, "
                f"title = {'?' if is_given else _FIRST_TITLE} WHERE id = ?",
                position + len(rows), tx.now_s(), title, lease.session,
            )  # fmt: skip

        # Results can be large, and the event loop is not to wait until they are encoded.
        await self._database.persist(work, prepare=encode, durable=durable or self._is_durable)

    async def sessions(self) -> list[SessionInfo]:
        """All sessions, the one that was written to last first.

        Raises:
            StoreError: the database cannot be used.
        """

        return await self._look(lambda tx: _infos(tx, "WHERE facts > 0 ORDER BY updated_s DESC, id DESC"))

    async def session_page(
        self, *, limit: int, before: tuple[float, str] | None = None, principal: str | None = None
    ) -> list[SessionInfo]:
        """The sessions before a place (of a principal), the one written to last first; at most `limit` of them.

        Raises:
            StoreError: the database cannot be used.
        """
        since = "" if before is None else " AND (updated_s, id) < (?, ?)"
        whose = "" if principal is None else f" AND EXISTS ({_OWN})"
        sql = f"WHERE facts > 0{since}{whose} ORDER BY updated_s DESC, id DESC LIMIT ?"
        values = (*(before or ()), *(() if principal is None else (principal,)), limit)
        return await self._look(lambda tx: _infos(tx, sql, *values))

    async def last_kinds(self, *, since_s: float, besides: Collection[str] = ()) -> list[tuple[SessionInfo, str]]:
        """The sessions that were written to since then, each with the kind of its last fact, without reading that whole.

        Those that end with a fact of a kind in `besides` can be missing.

        Raises:
            StoreError: the database cannot be used.
        """
        starts = [codec.line_start(kind) for kind in besides]
        found: list[tuple[SessionInfo, str]] = []
        place: tuple[float, str] | None = (since_s, "")
        while place is not None:  # A transaction for some of them at a time, so that others need not wait for all.
            work = partial(_last_kinds, place=place, besides=starts)
            some, place = await self._database.do(work, reads=True, silence_s=self.patience_s)
            found += some
        return found

    async def session_info(self, session: str) -> SessionInfo | None:
        """One session; None if there is none.

        Raises:
            StoreError: the database cannot be used.
        """
        check_id(session)
        sql = "WHERE facts > 0 AND id = ?"
        found = await self._database.do(lambda tx: _infos(tx, sql, session), reads=True, silence_s=self.patience_s)
        return found[0] if found else None

    async def copy(self, session: str, target: str, *, facts: int | None = None) -> None:
        """Make `target` a new session with the same facts, or with the first ones.

        Raises:
            UsageError: there is no such session, the target exists, or one of them cannot be an id.
            StoreError: the database cannot be used.
        """
        check_id(session)
        check_id(target)

        def work(tx: Transaction) -> None:
            found = _row(tx, session, "title, facts")
            if not found:
                raise UsageError(f"there is no session {session!r}")
            tx.lock(f"session {target}")
            if _row(tx, target, "facts"):
                raise UsageError(f"there is a session {target!r} already")
            title, count = found[0]
            kept = count if facts is None else min(facts, count)
            now = tx.now_s()
            tx.run("INSERT INTO callgate_sessions VALUES (?, ?, ?, 0, NULL, 0, ?, ?)", target, title, kept, now, now)
            tx.run(
                "INSERT INTO callgate_facts SELECT ?, position, body FROM callgate_facts WHERE session = ? AND position < ?",
                target, session, kept,
            )  # fmt: skip

        await self._database.attempt(work, durable=True, silence_s=self.patience_s)

    async def delete(self, session: str) -> bool:
        """Forget the session; whether there was one.

        Raises:
            UsageError: the id cannot be that of a session.
            SessionBusyError: it is in use.
            StoreError: the database cannot be used.
        """
        return await self.delete_older(session, math.inf)

    async def delete_older(self, session: str, before_s: float) -> bool:
        """Forget the session if it was last written to before then; whether it was.

        Raises:
            UsageError: the id cannot be that of a session.
            SessionBusyError: it is in use.
            StoreError: the database cannot be used.
        """
        check_id(session)

        def work(tx: Transaction) -> bool:
            found = _row(tx, session, "owner, expires_s, updated_s")
            if not found or found[0][2] >= before_s:
                return False
            [(holder, expires_s, _)] = found
            if holder is not None and expires_s > tx.lease_now_s() and not owners.is_gone(holder):
                raise SessionBusyError(f"session {session!r} is in use by {owners.shown(holder)} and was not deleted")
            tx.lock(f"session {session}")
            tx.run("DELETE FROM callgate_facts WHERE session = ?", session)
            tx.run("DELETE FROM callgate_sessions WHERE id = ?", session)
            tx.run("UPDATE callgate_claims SET run = '' WHERE session = ?", session)
            tx.run("DELETE FROM callgate_answers WHERE session = ?", session)
            leave_name(tx, session)
            tx.has_forgotten = True
            return True

        try:
            return await self._database.attempt(work, durable=True, silence_s=self.patience_s)
        except StillLockedError as error:
            raise SessionBusyError(f"session {session!r} was not deleted: {error}") from error

    async def check_writes(self, within_s: float) -> None:
        """See whether something can be written: by what was written last, or else by a row that is gone with its commit.

        After a failure the row is as large as facts are, because a full disk may have room for a small one.

        Raises:
            StoreError: it cannot, or nothing answers for so long.
        """
        now_s, statistics = time.monotonic(), self.statistics
        if statistics.write_error is None and now_s < statistics.written_s + WRITTEN_S:
            return
        if statistics.write_error is not None and now_s < self._tried_s + TRY_S:
            raise StoreError(statistics.write_error)
        self._tried_s = now_s
        row = (f"write-check {os.urandom(8).hex()}", 0)
        body = os.urandom(CHECK_BYTES if statistics.write_error is not None else 1)

        def work(tx: Transaction) -> None:
            tx.run_many("INSERT INTO callgate_facts VALUES (?, ?, ?)", [(*row, body)])
            tx.run("DELETE FROM callgate_facts WHERE session = ? AND position = ?", *row)

        await self._database.do(work, patience_s=within_s)

    async def aclose(self) -> None:
        """End the threads and close the connections, when everything that waits is done."""
        await self._database.aclose()
        if self._replica is not None:
            await self._replica.aclose()

    def _lost_error(self, lease: Lease) -> SessionLostError:
        if (lease.session, lease.fence) not in self._lost:  # Its renewal finds out, and so does what is written.
            self._lost.append((lease.session, lease.fence))
            self.statistics.count("lost")
        return SessionLostError(
            f"session {lease.session!r} was taken over by another process, or deleted; this run of it ends here"
        )


def _row(tx: Transaction, session: str, columns: str) -> list[tuple[Any, ...]]:
    """Return the row of a session, which nobody else can change before the transaction is over."""
    return tx.locked_rows(columns, "callgate_sessions", "id", session)


def _infos(tx: Transaction, condition: str, *values: Any) -> list[SessionInfo]:
    """The sessions that a condition chooses, in its order."""
    now = tx.lease_now_s()
    columns = "id, title, facts, created_s, updated_s, owner, expires_s"
    return [
        SessionInfo(
            id=without_surrogates(session),
            title=without_surrogates(title),
            facts=count,
            created_s=created_s,
            updated_s=updated_s,
            owner=owner if owner and expires_s > now and not owners.is_gone(owner) else None,
        )
        for session, title, count, created_s, updated_s, owner, expires_s in tx.rows(
            f"SELECT {columns} FROM callgate_sessions {condition}", *values
        )
    ]


def _last_kinds(
    tx: Transaction, *, place: tuple[float, str], besides: Sequence[bytes]
) -> tuple[list[tuple[SessionInfo, str]], tuple[float, str] | None]:
    """Return the next sessions after a place with the kinds of their last facts, and the place after them; None: no more."""
    after = "(updated_s, id) > (?, ?)"
    sql = f"SELECT updated_s, id FROM callgate_sessions WHERE {after} ORDER BY updated_s, id LIMIT 1 OFFSET ?"
    ends = tx.rows(sql, *place, KINDS_PAGE - 1)
    values = (*place, *(ends[0] if ends else ()))
    some = after + (" AND (updated_s, id) <= (?, ?)" if ends else "")
    others = "".join(f" AND substr(body, 1, {len(start)}) <> ?" for start in besides)
    last = f"FROM callgate_facts JOIN callgate_sessions ON session = id AND position = facts - 1 WHERE {some}{others}"
    rows = tx.rows(f"SELECT session, substr(body, 1, {KIND_BYTES}) {last}", *values, *besides)
    kinds = {without_surrogates(session): codec.kind_of(line_of(start)) for session, start in rows}
    infos = _infos(tx, f"WHERE facts > 0 AND {some}", *values) if rows else []
    return [(info, kinds[info.id]) for info in infos if info.id in kinds], ends[0] if ends else None


def _fact_rows(tx: Transaction, session: str, start: int) -> list[tuple[Any, ...]]:
    sql = "SELECT position, body FROM callgate_facts WHERE session = ? AND position >= ? ORDER BY position"
    return tx.rows(sql, session, start)


def line_of(body: Any) -> bytes:
    """Return the bytes of a row; a damaged one may hold a value of any kind."""
    return body if isinstance(body, bytes) else str(body).encode("utf-8", "surrogateescape")


def _checked_count(tx: Transaction, session: str, count: Any) -> int:
    """Count the facts of a session. If its rows disagree with their count, one more reports that some are missing."""
    [(last,)] = tx.rows("SELECT MAX(position) FROM callgate_facts WHERE session = ?", session)
    known = 0 if last is None else int(last) + 1
    if count == known:
        return known
    tx.run("INSERT INTO callgate_facts VALUES (?, ?, ?)", session, known, MISSING)
    return known + 1


def _facts_of(rows: Sequence[tuple[Any, ...]], start: int) -> list[Fact]:
    """The facts of rows; one that is missing in between is an `Unreadable`."""
    facts: list[Fact] = []
    for position, body in rows:
        facts += [Unreadable(problem=f"fact {missing} is missing", body=b"") for missing in range(start, position)]
        facts.append(codec.decode_line(line_of(body)))
        start = position + 1
    return facts
