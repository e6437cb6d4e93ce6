"""Retention: a sweeper deletes sessions that nobody has written to for longer than they are kept, and what is left of them.

A store and the limits come in; old sessions are deleted, with what else is kept of them. Several processes may sweep
one store at the same time. A session in use, or one that was written to again, is left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

from callgate.errors import SessionBusyError, StoreError
from callgate.server.options import ServiceOptions
from callgate.store import SessionInfo, Store
from callgate.store.anonymous import is_anonymous
from callgate.store.listing import clean, session_page
from callgate.store.listing import now_s as store_now_s

__all__ = ["Sweeper"]

logger = logging.getLogger("callgate.server")

EVERY_S = 600.0
"""Seconds between two searches for old sessions."""
PAGE = 200
"""Sessions that are looked at in one step; requests come in between."""


class Sweeper:
    """Deletion of old sessions, while the service runs."""

    def __init__(
        self,
        store: Store,
        options: ServiceOptions,
        *,
        delete: Callable[[str, float], Awaitable[bool]],
        is_live: Callable[[str], bool],
        forget: Callable[[str], object] | None = None,
        prune: Callable[[Store], Awaitable[object]] | None = None,
    ) -> None:
        self._store, self._options = store, options
        self._delete, self._is_live, self._forget, self._prune = delete, is_live, forget, prune
        self.swept = 0
        """Sessions that were deleted."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Sweep every now and then, until the context is left."""
        task = asyncio.create_task(self._sweep_often())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _sweep_often(self) -> None:
        work: Callable[[], Awaitable[object]] = self._prune_here  # Of sessions that were deleted while nobody ran here.
        while True:
            try:
                await work()
            except StoreError as error:
                logger.warning("old sessions could not be deleted: %s", error)
            work = self.sweep
            # Not at once, and not when all other processes do.
            await asyncio.sleep(EVERY_S * random.uniform(0.5, 1.5))

    async def _prune_here(self) -> None:
        """Delete what this machine keeps outside of the store and is too old, or of a session that is gone."""
        if self._prune is not None:
            await self._prune(self._store)

    async def sweep(self) -> int:
        """Delete the sessions that are too old now; return how many.

        Raises:
            StoreError: the store cannot be used.
        """
        await self._prune_here()
        await clean(self._store)
        count = 0
        now_s = await store_now_s(self._store)  # Sessions are dated by its clock, and that of this machine may be wrong.
        ages = [age for age in (self._options.keep_sessions_s, self._options.keep_anonymous_s) if age is not None]
        before = (now_s - min(ages), "") if ages else None
        while before is not None:
            page = await session_page(self._store, limit=PAGE, before=before)
            for info in page:
                count += await self._swept(info, now_s)
            before = (page[-1].updated_s, page[-1].id) if len(page) == PAGE else None
        if count:
            self.swept += count
            logger.info("%d sessions were deleted because they were too old", count)
        return count

    async def _swept(self, info: SessionInfo, now_s: float) -> bool:
        kept_s = self._kept_s(info.id)
        if kept_s is None or info.updated_s >= now_s - kept_s or info.owner is not None or self._is_live(info.id):
            return False
        with contextlib.suppress(SessionBusyError):
            if await self._delete(info.id, now_s - kept_s):
                if self._forget is not None:
                    await asyncio.to_thread(self._forget, info.id)
                return True
        return False

    def _kept_s(self, session: str) -> float | None:
        """Return how long a session is kept: the shorter of the two times, where both are about it."""
        ages = [self._options.keep_sessions_s, self._options.keep_anonymous_s if is_anonymous(session) else None]
        return min((age for age in ages if age is not None), default=None)
