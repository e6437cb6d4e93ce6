"""Upkeep of a store: what it keeps beside sessions is forgotten in time, by the clock that the sessions are dated by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.store.idempotency import KEPT_S
from callgate.store.principals import clean

if TYPE_CHECKING:
    from callgate.store.database import Database
    from callgate.store.dialect import Dialect, Transaction

__all__ = ["SqlUpkeep"]

CLEAN_S = 600.0
"""How often claims that hold no longer are looked for, while new ones are made."""


class SqlUpkeep:
    """Upkeep of tables."""

    _database: Database
    _dialect: Dialect
    patience_s: float
    _clean_s = 0.0

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
