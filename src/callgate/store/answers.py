"""Answers for calls that wait in another process: any process may leave one, and the owner of the session takes it.

An answer is a row until the journal has it: the owner of the session marks it as taken, and the transaction that journals
the answer deletes the row. An owner that dies in between loses nothing: its mark holds no longer than its lease, and the
process that left the answer withdraws it then and gives it anew. Between two processes that answer at the same time, and
between the owner and a process that withdraws its answer, the store decides. `Store` asks for none of these methods; a store
of one process needs none.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Literal, Protocol, TypeGuard

from callgate.store import owner as owners
from callgate.store.answer_signal import AnswerSignal
from callgate.store.database import Database
from callgate.store.dialect import Dialect, Transaction
from callgate.store.protocol import Lease

__all__ = ["Answers", "SqlAnswers", "Withdrawal", "keeps_answers", "spend_answers"]

Withdrawal = Literal["withdrawn", "taken", "gone"]
"""An answer was withdrawn, its taker is about to journal it, or it is not there any more: the journal has it."""
STALE_S = 600.0
"""The age from which an answer that nobody takes makes room for another one: the process that left it has died."""
_MARK = "\n"
"""Separator between the fence of the taker and the answer, which is one line."""


class Answers(Protocol):
    """Methods of a store that several processes share."""

    async def put_answer(self, session: str, call_id: str, body: str) -> bool:
        """Leave an answer, one line of text; False if there is one already."""
        ...

    async def take_answer(self, lease: Lease, call_id: str) -> str | None:
        """Mark an answer as taken by the owner of its session and return it; None if there is none, or the lease is lost."""
        ...

    async def withdraw_answer(self, session: str, call_id: str, body: str) -> Withdrawal:
        """Remove this very answer, unless the owner of its session has taken it."""
        ...

    async def has_answer(self, session: str, call_id: str, body: str) -> bool:
        """Return whether this very answer is still there: taken or not, the journal does not have it."""
        ...

    async def waiting_answers(self) -> list[tuple[str, str]]:
        """Session and call id of every answer that is in no journal yet."""
        ...

    def answer_signal(self) -> AnswerSignal:
        """Return a receiver of signals of answers that were left or journalled; its user closes it."""
        ...


def keeps_answers(store: object) -> TypeGuard[Answers]:
    """True if a store keeps answers for other processes."""
    return all(hasattr(store, name) for name in ("put_answer", "take_answer", "withdraw_answer", "answer_signal"))


class SqlAnswers:
    """Answers as rows of a table."""

    _database: Database
    _dialect: Dialect
    patience_s: float

    def answer_signal(self) -> AnswerSignal:
        """Return a receiver of signals of answers that were left or journalled; its user closes it."""
        return self._dialect.answer_signal()

    async def put_answer(self, session: str, call_id: str, body: str) -> bool:
        """Leave an answer, one line of text; False if there is one already.

        Raises:
            StoreError: the database cannot be used.
        """
        withdraw = partial(_withdrawn, dialect=self._dialect, session=session, call_id=call_id, body=body)

        def work(tx: Transaction) -> bool:
            now_s = tx.now_s()
            found = _found(tx, session, call_id)
            if found is not None:
                fence, _, at_s = found
                if at_s > now_s - STALE_S or _is_taken(tx, session, fence):
                    return False
                _delete(tx, session, call_id)
            tx.run("INSERT INTO callgate_answers VALUES (?, ?, ?, ?)", session, call_id, body, now_s)
            self._dialect.announce(tx)
            return True

        return await self._database.attempt(
            work, durable=True, silence_s=self.patience_s,
            on_late=lambda is_left: self._database.post(withdraw) if is_left else None,
        )  # fmt: skip

    async def has_answer(self, session: str, call_id: str, body: str) -> bool:
        """Return whether this very answer is still there: taken or not, the journal does not have it.

        Raises:
            StoreError: the database cannot be used.
        """
        sql = "SELECT body FROM callgate_answers WHERE session = ? AND call_id = ?"
        rows = await self._database.do(lambda tx: tx.rows(sql, session, call_id), reads=True, silence_s=self.patience_s)
        return any(_read(str(found))[1] == body for (found,) in rows)

    async def take_answer(self, lease: Lease, call_id: str) -> str | None:
        """Mark an answer as taken by the owner of its session and return it; None if there is none, or the lease is lost.

        Raises:
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> str | None:
            found = _found(tx, lease.session, call_id)
            rows = tx.rows("SELECT 1 FROM callgate_sessions WHERE id = ? AND fence = ?", lease.session, lease.fence)
            if found is None or not rows:
                return None
            sql = "UPDATE callgate_answers SET body = ? WHERE session = ? AND call_id = ?"
            tx.run(sql, f"{lease.fence}{_MARK}{found[1]}", lease.session, call_id)
            return found[1]

        return await self._database.do(work)

    async def withdraw_answer(self, session: str, call_id: str, body: str) -> Withdrawal:
        """Remove this very answer, unless the owner of its session has taken it.

        Raises:
            StoreError: the database cannot be used.
        """
        work = partial(_withdrawn, dialect=self._dialect, session=session, call_id=call_id, body=body)
        return await self._database.do(work, durable=True)

    async def waiting_answers(self) -> list[tuple[str, str]]:
        """Session and call id of every answer that is in no journal yet.

        Raises:
            StoreError: the database cannot be used.
        """
        rows = await self._database.do(lambda tx: tx.rows("SELECT session, call_id FROM callgate_answers"), reads=True)
        return [(str(session), str(call_id)) for session, call_id in rows]


def _withdrawn(tx: Transaction, *, dialect: Dialect, session: str, call_id: str, body: str) -> Withdrawal:
    """Remove this very answer, unless the owner of its session has taken it."""
    found = _found(tx, session, call_id)
    if found is None or found[1] != body:
        return "gone"
    if _is_taken(tx, session, found[0]):
        return "taken"
    if found[0] is not None:  # Its taker can journal nothing from here on, should it still be there.
        tx.run("UPDATE callgate_sessions SET fence = fence + 1 WHERE id = ? AND fence = ?", session, found[0])
    _delete(tx, session, call_id)
    dialect.announce(tx)
    return "withdrawn"


def spend_answers(tx: Transaction, dialect: Dialect, lease: Lease, call_ids: Iterable[str]) -> None:
    """Delete the answers that the owner of a session has taken, in the transaction that journals them.

    Raises:
        LockedError: another transaction is at work on one of them; nothing was changed.
    """
    found = {call_id: _found(tx, lease.session, call_id) for call_id in call_ids}
    for call_id, answer in found.items():
        if answer is not None and answer[0] == lease.fence:
            _delete(tx, lease.session, call_id)
            dialect.announce(tx)


def _found(tx: Transaction, session: str, call_id: str) -> tuple[int | None, str, float] | None:
    """Return the fence of an answer's taker, the answer and its time; nobody else can change it before the transaction ends.

    A name is locked, and not the row: that never waits, so that operations that share a commit cannot wait for each other.
    """
    tx.lock(f"answer {session} {call_id}")
    rows = tx.rows("SELECT body, at_s FROM callgate_answers WHERE session = ? AND call_id = ?", session, call_id)
    return (*_read(str(rows[0][0])), float(rows[0][1])) if rows else None


def _read(body: str) -> tuple[int | None, str]:
    fence, mark, answer = body.partition(_MARK)
    return (int(fence), answer) if mark else (None, body)


def _is_taken(tx: Transaction, session: str, fence: int | None) -> bool:
    """Return whether the process that took an answer still holds its session."""
    if fence is None:
        return False
    rows = tx.locked_rows("fence, owner, expires_s", "callgate_sessions", "id", session)
    if not rows or rows[0][0] != fence:
        return False
    _, owner, expires_s = rows[0]
    return owner is not None and expires_s > tx.lease_now_s() and not owners.is_gone(str(owner))


def _delete(tx: Transaction, session: str, call_id: str) -> None:
    tx.run("DELETE FROM callgate_answers WHERE session = ? AND call_id = ?", session, call_id)
