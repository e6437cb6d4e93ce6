"""Answers for calls that wait in another process: any process may leave one, and the owner of the session takes it.

An answer is a row that is written once and taken once: between two processes that answer at the same time, and between the
owner and a process that takes its answer back, the store decides. `Store` asks for none of these methods; a store of one
process needs none.
"""

from __future__ import annotations

from typing import Protocol, TypeGuard

from callgate.store.answer_signal import AnswerSignal
from callgate.store.database import Database
from callgate.store.dialect import Dialect, Transaction

__all__ = ["Answers", "SqlAnswers", "keeps_answers"]


class Answers(Protocol):
    """Methods of a store that several processes share."""

    async def put_answer(self, session: str, call_id: str, body: str) -> bool:
        """Leave an answer; False if there is one already."""
        ...

    async def take_answer(self, session: str, call_id: str, body: str | None = None) -> str | None:
        """Take an answer away, or only that one; None if it is not there (any more)."""
        ...

    async def has_answer(self, session: str, call_id: str, body: str) -> bool:
        """Return whether this very answer is still there."""
        ...

    async def waiting_answers(self) -> list[tuple[str, str]]:
        """Session and call id of every answer that nobody has taken."""
        ...

    def answer_signal(self) -> AnswerSignal:
        """Return a receiver of signals of answers that were left or taken; its user closes it."""
        ...


def keeps_answers(store: object) -> TypeGuard[Answers]:
    """True if a store keeps answers for other processes."""
    return all(hasattr(store, name) for name in ("put_answer", "take_answer", "has_answer", "answer_signal"))


class SqlAnswers:
    """Answers as rows of a table."""

    _database: Database
    _dialect: Dialect

    def answer_signal(self) -> AnswerSignal:
        """Return a receiver of signals of answers that were left or taken; its user closes it."""
        return self._dialect.answer_signal()

    async def put_answer(self, session: str, call_id: str, body: str) -> bool:
        """Leave an answer; False if there is one already.

        Raises:
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> bool:
            sql = "INSERT INTO callgate_answers VALUES (?, ?, ?, ?) ON CONFLICT (session, call_id) DO NOTHING"
            is_new = tx.run(sql, session, call_id, body, tx.now_s()) == 1
            if is_new:
                self._dialect.announce(tx)
            return is_new

        return await self._database.do(work, durable=True)

    async def has_answer(self, session: str, call_id: str, body: str) -> bool:
        """Return whether this very answer is still there.

        Raises:
            StoreError: the database cannot be used.
        """
        sql = "SELECT 1 FROM callgate_answers WHERE session = ? AND call_id = ? AND body = ?"
        return bool(await self._database.do(lambda tx: tx.rows(sql, session, call_id, body)))

    async def take_answer(self, session: str, call_id: str, body: str | None = None) -> str | None:
        """Take an answer away, or only that one; None if it is not there (any more).

        Raises:
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> str | None:
            only, values = ("", ()) if body is None else (" AND body = ?", (body,))
            sql = f"DELETE FROM callgate_answers WHERE session = ? AND call_id = ?{only} RETURNING body"
            rows = tx.rows(sql, session, call_id, *values)
            if rows:
                self._dialect.announce(tx)
            return str(rows[0][0]) if rows else None

        return await self._database.do(work, durable=True)

    async def waiting_answers(self) -> list[tuple[str, str]]:
        """Session and call id of every answer that nobody has taken.

        Raises:
            StoreError: the database cannot be used.
        """
        rows = await self._database.do(lambda tx: tx.rows("SELECT session, call_id FROM callgate_answers"))
        return [(str(session), str(call_id)) for session, call_id in rows]
