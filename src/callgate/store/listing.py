"""Pages of sessions, and one session by its id: asked of a store that can, and picked from its whole list otherwise.

A store comes in, `SessionInfo`s go out. `Store` asks for neither of the two methods in `Lists`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, TypeGuard

from callgate.machine.facts import Fact
from callgate.store.principals import keeps_principals
from callgate.store.protocol import SessionInfo, Store
from callgate.store.statistics import StoreStatistics

__all__ = [
    "Forgets", "Lists", "Place", "check_writes", "clean", "delete_older", "has_written", "now_s", "place_of", "read_facts",
    "session_info", "session_page",
]  # fmt: skip

Place: TypeAlias = "tuple[float, str]"
"""Position of a session in the list: the time of its last write, and its id."""
BATCH = 500
"""Sessions that are looked through at a time for those that match."""


class Lists(Protocol):
    """Optional methods of a store with many sessions."""

    async def session_page(
        self, *, limit: int, before: Place | None = None, principal: str | None = None
    ) -> list[SessionInfo]:
        """The sessions before a place (of a principal), the one written to last first; at most `limit` of them."""
        ...

    async def session_info(self, session: str) -> SessionInfo | None:
        """One session; None if there is none."""
        ...


class Forgets(Protocol):
    """An optional method of a store whose sessions expire."""

    async def delete_older(self, session: str, before_s: float) -> bool:
        """Forget the session if it was last written to before then; whether it was."""
        ...


class Reads(Protocol):
    """An optional method of a store with a replica."""

    async def read(self, session: str) -> list[Fact]:
        """Load the facts of a session for somebody who only looks at them; those of a replica may lag."""
        ...


def place_of(info: SessionInfo) -> Place:
    """Return the position of a session in the list."""
    return info.updated_s, info.id


def _has_pages(store: object) -> TypeGuard[Lists]:
    return hasattr(store, "session_page") and hasattr(store, "session_info")


async def session_info(store: Store, session: str) -> SessionInfo | None:
    """One session; None if there is none."""
    if _has_pages(store):
        return await store.session_info(session)
    return next((info for info in await store.sessions() if info.id == session), None)


async def session_page(
    store: Store,
    *,
    limit: int,
    before: Place | None = None,
    matches: Callable[[SessionInfo], bool] | None = None,
    principal: str | None = None,
) -> list[SessionInfo]:
    """The sessions before a place that match, the one that was written to last first; at most `limit` of them.

    With `principal` only those that belong to it.
    """
    if not _has_pages(store):
        known = sorted(await store.sessions(), key=place_of, reverse=True)
        known = [info for info in known if before is None or place_of(info) < before]
        if principal is not None:
            own = await store.owned([info.id for info in known], principal) if keeps_principals(store) else set[str]()
            known = [info for info in known if info.id in own]
        return [info for info in known if matches is None or matches(info)][:limit]
    if matches is None:
        return await store.session_page(limit=limit, before=before, principal=principal)
    found: list[SessionInfo] = []
    while len(found) < limit:
        batch = await store.session_page(limit=BATCH, before=before, principal=principal)
        found += [info for info in batch if matches(info)]
        if len(batch) < BATCH:
            break
        before = place_of(batch[-1])
    return found[:limit]


def _can_forget(store: object) -> TypeGuard[Forgets]:
    return hasattr(store, "delete_older")


async def delete_older(store: Store, session: str, before_s: float) -> bool:
    """Forget a session if it was last written to before then; whether it was.

    Raises:
        SessionBusyError: it is in use.
    """
    if _can_forget(store):
        return await store.delete_older(session, before_s)
    info = await session_info(store, session)
    return info is not None and info.updated_s < before_s and await store.delete(session)


class Clock(Protocol):
    """Optional methods of a store with a clock of its own, by which the times of its sessions go."""

    async def now_s(self) -> float:
        """Return the seconds since 1970 by that clock."""
        ...


def _has_clock(store: object) -> TypeGuard[Clock]:
    return hasattr(store, "now_s")


async def now_s(store: Store) -> float:
    """Return the time by which ages of sessions go: by the clock of the store, or of this machine."""
    return await store.now_s() if _has_clock(store) else time.time()


class Cleans(Protocol):
    """An optional method of a store that keeps more than sessions."""

    async def clean(self) -> None:
        """Forget idempotency keys, reserved names and usage that are older than they are kept."""
        ...


def _can_clean(store: object) -> TypeGuard[Cleans]:
    return hasattr(store, "clean")


async def check_writes(store: Store, within_s: float) -> None:
    """See whether something can be written, where a store can tell.

    Raises:
        StoreError: it cannot, or nothing answers for so long.
    """
    check: Callable[[float], Awaitable[None]] | None = getattr(store, "check_writes", None)
    if check is not None:
        await check(within_s)


def has_written(store: Store, since_s: float) -> bool:
    """Return whether facts were written since that time by the monotonic clock, and none in vain; False if unknown."""
    statistics: StoreStatistics | None = getattr(store, "statistics", None)
    return statistics is not None and statistics.write_error is None and statistics.written_s >= since_s


async def clean(store: Store) -> None:
    """Forget what a store keeps beside sessions and is too old, where it has such things."""
    if _can_clean(store):
        await store.clean()


def _can_read(store: object) -> TypeGuard[Reads]:
    return hasattr(store, "read")


async def read_facts(store: Store, session: str) -> list[Fact]:
    """Load the facts of a session for somebody who only looks at them; from a replica, where the store has one."""
    return await (store.read(session) if _can_read(store) else store.load(session))
