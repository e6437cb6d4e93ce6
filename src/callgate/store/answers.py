"""Answers for calls that wait in another process: any process may leave one, and the owner of the session takes it.

An answer is a row that is written once and taken once: between two processes that answer at the same time, and between the
owner and a process that takes its answer back, the store decides. `Store` asks for none of these methods; a store of one
process needs none.
"""

from __future__ import annotations

from typing import Protocol, TypeGuard

from callgate.store.database import Database, Transaction

__all__ = ["Answers", "SqlAnswers", "keeps_answers"]


class Answers(Protocol):
    """Methods of a store that several processes share."""

    async def put_answer(self, session: str, call_id: str, body: str) -> bool:
        """Leave an answer; False if there is one already."""
        ...

    async def take_answer(self, session: str, call_id: str) -> str | None:
        """Take an answer away; None if there is none (any more)."""
        ...

    async def waiting_answers(self) -> list[tuple[str, str]]:
        """Session and call id of every answer that nobody has taken."""
        ...


def keeps_answers(store: object) -> TypeGuard[Answers]:
    """True if a store keeps answers for other processes."""
    return hasattr(store, "put_answer") and hasattr(store, "take_answer") and hasattr(store, "waiting_answers")


class SqlAnswers:
    """Answers as rows of a table."""

    _database: Database

    async def put_answer(self, session: str, call_id: str, body: str) -> bool:
        """Leave an answer; False if there is one already.

        Raises:
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> bool:
            sql = "INSERT INTO callgate_answers VALUES (?, ?, ?, ?) ON CONFLICT (session, call_id) DO NOTHING"
            return tx.run(sql, session, call_id, body, tx.now_s()) == 1

        return await self._database.do(work, durable=True)

    async def take_answer(self, session: str, call_id: str) -> str | None:
        """Take an answer away; None if there is none (any more).

        Raises:
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> str | None:
            rows = tx.rows(
                "DELETE FROM callgate_answers WHERE session = ? AND call_id = ? RETURNING body", session, call_id
            )  # fmt: skip
            return str(rows[0][0]) if rows else None

        return await self._database.do(work, durable=True)

    async def waiting_answers(self) -> list[tuple[str, str]]:
        """Session and call id of every answer that nobody has taken.

        Raises:
            StoreError: the database cannot be used.
        """
        rows = await self._database.do(lambda tx: tx.rows("SELECT session, call_id FROM callgate_answers"))
        return [(str(session), str(call_id)) for session, call_id in rows]
