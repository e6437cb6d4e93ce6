"""Deleted sessions are remembered for a month, by a hash, for whatever else is kept of them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from callgate.machine.facts import CallStarted
from callgate.store import MemoryStore, open_store
from callgate.store.deletions import PAGE, deletions
from callgate.store.sql import SqlStore

MONTH_S = 31 * 86_400.0


async def began(store: SqlStore, session: str) -> None:
    lease = await store.acquire(session, owner="me")
    await store.append(lease, [CallStarted(id="x")], position=0)
    await store.release(lease)


def test_a_deletion_is_known_to_every_process_and_only_that_session_counts(open_sql: Callable[[], SqlStore]) -> None:
    async def story() -> None:
        here, there = open_sql(), open_sql()
        for session in ("gone", "stays"):
            await began(here, session)
        before_s = await here.now_s()
        assert await here.delete("gone")
        assert not await here.delete("never was")
        names = ["gone", "stays", "never was", *map(str, range(2 * PAGE))]
        found = await deletions(there, names)
        assert list(found) == ["gone"]
        assert before_s <= found["gone"] <= await here.now_s()
        rows = await here._database.do(lambda tx: tx.rows("SELECT * FROM callgate_deletions"))
        assert "gone" not in str(rows), "a name may say who somebody is"

    asyncio.run(story())


def test_a_session_of_the_same_name_is_another_one_and_an_older_one_that_is_there_was_not_deleted(
    open_sql: Callable[[], SqlStore],
) -> None:
    async def story() -> None:
        store = open_sql()
        await began(store, "again")
        await store.delete("again")
        first = await deletions(store, ["again"])
        await began(store, "again")
        assert await deletions(store, ["again"]) == first
        await store._database.do(lambda tx: tx.run("UPDATE callgate_sessions SET created_s = created_s - 3600"))
        assert await deletions(store, ["again"]) == {}, "as after a copy from a store where it was deleted"

    asyncio.run(story())


def test_a_deletion_is_forgotten_after_a_month(open_sql: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        store = open_sql()
        await began(store, "a")
        await store.delete("a")
        now_s = await store.now_s()
        monkeypatch.setattr(store._dialect, "now_s", lambda tx: now_s + MONTH_S - 60)
        await store.clean()
        assert list(await deletions(store, ["a"])) == ["a"]
        monkeypatch.setattr(store._dialect, "now_s", lambda tx: now_s + MONTH_S + 60)
        await store.clean()
        assert await deletions(store, ["a"]) == {}

    asyncio.run(story())


def test_a_store_that_remembers_nothing_has_no_deletions(tmp_path: Path) -> None:
    async def story() -> None:
        assert await deletions(MemoryStore(), ["a"]) == {}
        store = open_store(tmp_path / "s.db")
        assert isinstance(store, SqlStore)
        await began(store, "a")
        await store.aclose()
        with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
            connection.execute("DROP TABLE callgate_deletions")  # As an older version made it.
        reader = open_store(tmp_path / "s.db", read_only=True)
        assert await deletions(reader, ["a"]) == {}
        await reader.aclose()

    asyncio.run(story())
