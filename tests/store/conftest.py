"""The stores that every test of a store runs on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from callgate.store import MemoryStore, Store, open_store
from callgate.store.sql import SqlStore


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def open_it(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens one store again and again: another object each time, but the same sessions (but for the one in memory)."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda: store
    if request.param == "sqlite":
        return lambda: open_store(str(tmp_path / "state" / "sessions.db"))
    url = request.getfixturevalue("postgres_url")
    return lambda: open_store(url)


@pytest.fixture(params=["sqlite", "postgres"])
def open_sql(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], SqlStore]:
    """Opens a store in a database: SQLite and PostgreSQL."""
    place = str(tmp_path / "state" / "sessions.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")

    def opened() -> SqlStore:
        store = open_store(place)
        assert isinstance(store, SqlStore)
        return store

    return opened
