"""Idempotency keys as rows of a table; and what a store keeps beside sessions is forgotten in time.

Times go by the clock that the sessions are dated by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.store.idempotency import KEPT_S, Claim
from callgate.store.reservations import SqlReservations, clean_reservations
from callgate.store.sql_principals import clean

if TYPE_CHECKING:
    from callgate.store.database import Database
    from callgate.store.dialect import Dialect, Transaction

__all__ = ["SqlIdempotencyKeys"]

CLEAN_S = 600.0
"""Seconds between two searches for expired claims, while new ones are made."""


class SqlIdempotencyKeys(SqlReservations):
    """Idempotency keys in a table, and the upkeep of all that is kept beside sessions: reservations, too."""

    _database: Database
    _dialect: Dialect
    patience_s: float
    _is_durable: bool
    _clean_s = 0.0

    async def claim(self, claim: Claim) -> Claim:
        """Claim the key if it is free; return the claim that holds it, with its owner until now.

        Raises:
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> Claim:
            now = tx.now_s()
            tx.lock(f"key {claim.key}")
            self._clean_sometimes(tx, now)
            columns = "key, digest, session, run, owner, position"
            rows = tx.locked_rows(f"{columns}, at_s", "callgate_claims", "key", claim.key)
            if rows and rows[0][-1] <= now - KEPT_S:
                tx.run("DELETE FROM callgate_claims WHERE key = ?", claim.key)
                rows = []
            if not rows:
                tx.run(
                    "INSERT INTO callgate_claims VALUES (?, ?, ?, ?, ?, ?, ?)",
                    claim.key, claim.digest, claim.session, claim.run, claim.owner, claim.position, now,
                )  # fmt: skip
                return claim
            held = Claim(**dict(zip(columns.split(", "), rows[0], strict=False)))
            if held.digest == claim.digest and held.owner != claim.owner:
                tx.run("UPDATE callgate_claims SET owner = ? WHERE key = ?", claim.owner, claim.key)
            return held

        return await self._database.attempt(work, durable=self._is_durable, patience_s=self.patience_s)

    async def unclaim(self, claim: Claim) -> None:
        """Release the key, unless another request has claimed it since.

        Raises:
            StoreError: the database cannot be used.
        """

        def work(tx: Transaction) -> None:
            tx.lock(f"key {claim.key}")
            if tx.locked_rows("run, owner", "callgate_claims", "key", claim.key) == [(claim.run, claim.owner)]:
                tx.run("DELETE FROM callgate_claims WHERE key = ?", claim.key)

        await self._database.do(work)

    async def now_s(self) -> float:
        """Return the seconds since 1970 by the clock that the times of sessions go by.

        Raises:
            StoreError: the database cannot be used.
        """
        return await self._database.do(lambda tx: tx.now_s(), reads=True, silence_s=self.patience_s)

    async def clean(self) -> None:
        """Forget idempotency keys, reserved names and usage that are older than they are kept.

        Raises:
            StoreError: the database cannot be used.
        """
        await self._database.do(self._clean)

    def _clean_sometimes(self, tx: Transaction, now_s: float) -> None:
        if now_s >= self._clean_s:
            self._clean_s = now_s + CLEAN_S
            self._clean(tx)

    def _clean(self, tx: Transaction) -> None:
        old = f"SELECT key FROM callgate_claims WHERE at_s <= ?{self._dialect.row_lock}"
        tx.run(f"DELETE FROM callgate_claims WHERE key IN ({old})", tx.now_s() - KEPT_S)
        clean(tx)
        clean_reservations(tx)
