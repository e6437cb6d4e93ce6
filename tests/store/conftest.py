"""The stores that every test of a store runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from callgate.store import MemoryStore, Store, open_store
from callgate.store.sql import SqlStore


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def open_it(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Opens one store again and again: another object each time, but the same sessions (but for the one in memory)."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else tmp_path / "state" / "sessions.db"
    memory = MemoryStore()
    opened: list[Store] = []

    def open_another() -> Store:
        opened.append(memory if request.param == "memory" else open_store(str(url)))
        return opened[-1]

    yield open_another
    for store in opened:
        asyncio.run(store.aclose())


@pytest.fixture(params=["sqlite", "postgres"])
def open_sql(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], SqlStore]]:
    """Opens a store in a database: SQLite and PostgreSQL."""
    place = str(tmp_path / "state" / "sessions.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")

    opened: list[SqlStore] = []

    def open_another() -> SqlStore:
        store = open_store(place)
        assert isinstance(store, SqlStore)
        opened.append(store)
        return store

    yield open_another
    for store in opened:
        asyncio.run(store.aclose())
