"""Sessions in which a call may wait for an answer, found without reading all sessions each time.

The last fact of a session says whether a call of it can wait. Stores that can look at many at once are asked for those that
were written to since the last look; of other stores every session is looked at, once for each of its states.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Collection
from typing import Protocol, TypeGuard

from callgate.errors import NewerSessionError, StoreError
from callgate.machine import codec, facts
from callgate.store import SessionInfo, Store

__all__ = ["WaitingSessions"]

logger = logging.getLogger("callgate.outages")

OVERLAP_S = 60.0
"""A transaction may become visible so much later than the time in it."""
AT_ONCE = 200
_NOT_WAITING = (facts.ModelAnswered, facts.Cancelled, facts.ModelFailed, facts.OutputChecked, facts.RunStarted)
"""Facts after which no call waits: an answer about a call is asked for after it was checked and decided about."""
_KINDS = frozenset(codec.kind_name(kind) for kind in _NOT_WAITING)


class _LastKinds(Protocol):
    async def last_kinds(self, *, since_s: float, besides: Collection[str]) -> list[tuple[SessionInfo, str]]: ...

    async def session_page(self, *, limit: int) -> list[SessionInfo]: ...


def _has_kinds(store: object) -> TypeGuard[_LastKinds]:
    return hasattr(store, "last_kinds")


class WaitingSessions:
    """The sessions of a store in which a call may wait."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._since_s = 0.0
        self._may_wait: dict[str, SessionInfo] = {}
        self._not_waiting: dict[str, int] = {}
        """Sessions of other stores in which no call waits, with how many facts they had when that was seen."""
        self._lock = asyncio.Lock()
        self._failed_s = -math.inf
        """Time of the last look that failed."""
        self._failure = ""

    async def warm(self) -> None:
        """Look for the first time, which is at all sessions, before somebody waits for it; only where a store is shared."""
        if _has_kinds(self._store):
            try:
                await self.look()
            except StoreError as error:
                logger.warning("the store cannot be read: %s", error)

    async def look(self) -> list[SessionInfo]:
        """Return the sessions as they are now, the one that was written to last first.

        Raises:
            StoreError: the store cannot be used.
        """
        asked_s = time.monotonic()
        async with self._lock:
            if self._failed_s >= asked_s:  # Another look would take as long: nobody waits for one after the other.
                raise StoreError(self._failure)
            try:
                if _has_kinds(self._store):
                    await self._look_at_new(self._store)
                else:
                    await self._look_at_all()
            except StoreError as error:
                self._failed_s, self._failure = time.monotonic(), str(error)
                raise
        return sorted(self._may_wait.values(), key=lambda info: (info.updated_s, info.id), reverse=True)

    async def _look_at_new(self, store: _LastKinds) -> None:
        # The first look is at all sessions, and few of them matter; from then on those that wait no more matter too.
        is_first = self._since_s == 0.0
        newest = await store.session_page(limit=1)
        for info, kind in await store.last_kinds(since_s=self._since_s, besides=_KINDS if is_first else ()):
            if kind in _KINDS:
                self._may_wait.pop(info.id, None)
            else:
                self._may_wait[info.id] = info
        if newest:
            self._since_s = max(self._since_s, newest[0].updated_s - OVERLAP_S)

    async def _look_at_all(self) -> None:
        infos = await self._store.sessions()
        self._may_wait = {}
        for start in range(0, len(infos), AT_ONCE):
            some = infos[start : start + AT_ONCE]
            for info, waits in zip(some, await asyncio.gather(*map(self._waits, some)), strict=True):
                if waits:
                    self._may_wait[info.id] = info

    async def _waits(self, info: SessionInfo) -> bool:
        if self._not_waiting.get(info.id) == info.facts:
            return False
        try:
            last = await self._store.load(info.id, start=info.facts - 1)
        except NewerSessionError:
            return False
        waits = not (len(last) == 1 and isinstance(last[0], _NOT_WAITING))
        if not waits:
            self._not_waiting[info.id] = info.facts
        return waits
