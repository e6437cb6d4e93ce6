"""Storage of journals: a conversation survives its process.

Facts go in by session, in order, and come out again. A store never changes or drops a fact, and it knows nothing of what the
facts mean. A run holds the lease of its session: one at a time, numbered, so that an owner who was thought dead cannot
write any more once another has taken over.
"""

from __future__ import annotations

import os
import re

from callgate.errors import UsageError
from callgate.store.idempotency import Claim, IdempotencyKeys
from callgate.store.memory import MemoryStore
from callgate.store.protocol import LEASE_S, Durability, Lease, SessionInfo, Store

__all__ = ["LEASE_S", "Claim", "Durability", "IdempotencyKeys", "Lease", "MemoryStore", "SessionInfo", "Store", "open_store"]

_POSTGRES = ("postgres://", "postgresql://")
_SQLITE = "sqlite:///"
_NO_PATH = re.compile(r"$|:memory:$|file:|.*://|[A-Za-z][\w+.-]+:/")
"""Text that is no path: a database of another kind, or a URL from which a slash is gone (a drive has one letter)."""


def open_store(
    store: Store | str | os.PathLike[str] | None,
    *,
    durable: Durability = "effects",
    replica: str | None = None,
    read_only: bool = False,
) -> Store:
    """A store object as it is; None is memory, a path is a SQLite file, a `postgresql://` URL is a database there.

    Nothing is opened before it is used. With `durable="everything"` every fact is on the disk before a run continues, not
    only those that precede an effect. `replica` is the URL of a read-only copy of the database, for lists and exports. With
    `read_only` neither the file nor its tables are made, and everything that writes to the store fails with a StoreError.

    Raises:
        UsageError: a URL of another kind, or no store at all.
    """
    if durable not in ("effects", "everything"):
        raise UsageError(f"durable={durable!r:.200}: use 'effects' or 'everything'")
    if store is None:
        return MemoryStore()
    if isinstance(store, os.PathLike):
        store = os.fspath(store)
    if not isinstance(store, str):
        if not hasattr(store, "acquire"):
            raise UsageError(f"store={store!r:.200}: use a path, a URL that begins with postgresql://, or a store")
        return store
    if store.startswith(_POSTGRES):
        from callgate.store.postgres import postgres_store

        return postgres_store(store, durable=durable, replica=replica, read_only=read_only)
    from callgate.store.sqlite import sqlite_store

    path = store.removeprefix(_SQLITE)
    from callgate.config.url_secrets import shown_url

    if _NO_PATH.match(path):
        raise UsageError(
            f"store={shown_url(store)!r}: use a path for SQLite, or a URL that begins with postgresql://; "
            "without store= sessions are kept in memory"
        )
    if replica is not None:
        raise UsageError(f"replica={shown_url(replica)!r}: a SQLite file has none; leave it out")
    return sqlite_store(path, durable=durable, read_only=read_only)
