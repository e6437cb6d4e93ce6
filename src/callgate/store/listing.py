"""Pages of sessions, and one session by its id: asked of a store that can, and picked from its whole list otherwise.

A store comes in, `SessionInfo`s go out. `Store` asks for neither of the two methods in `Lists`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias, TypeGuard

from callgate.store.principals import keeps_principals
from callgate.store.protocol import SessionInfo, Store

__all__ = ["Lists", "Place", "place_of", "session_info", "session_page"]

Place: TypeAlias = "tuple[float, str]"
"""Where a session stands in the list: when it was written to, and its id."""
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


def place_of(info: SessionInfo) -> Place:
    """Where a session stands in the list."""
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
