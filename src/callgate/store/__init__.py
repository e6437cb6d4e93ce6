"""Where the journal of a conversation is kept, so that it survives.

Facts go in by session, in order, and come out again. A store never changes or drops a fact, and it knows nothing of what the
facts mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from callgate.errors import UsageError
from callgate.facts import Fact
from callgate.store.memory import MemoryStore

__all__ = ["MemoryStore", "Store", "open_store"]


class Store(Protocol):
    """Keeps the facts of sessions."""

    async def load(self, session: str) -> list[Fact]:
        """All facts of the session, oldest first; none when it is new."""
        ...

    async def append(self, session: str, facts: Sequence[Fact], *, position: int, durable: bool = False) -> None:
        """Adds facts behind the `position` facts that the writer knows of; with `durable` they must survive a crash.

        Raises:
            SessionBusy: the session has other facts there; somebody else has written to it.
        """
        ...


def open_store(store: Store | str | None) -> Store:
    """A store object as it is; None opens one in memory.

    Raises:
        UsageError: a path or URL, which this version cannot open.
    """
    if store is None:
        return MemoryStore()
    if isinstance(store, str):
        raise UsageError(f"store={store!r}: this version keeps sessions in memory only; pass None or a store object")
    return store
