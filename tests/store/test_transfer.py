"""Whole stores are copied between databases: everything arrives, nothing of the target is overwritten."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Policy, ScriptedModel, tool
from callgate.errors import StoreError
from callgate.machine.facts import CallStarted
from callgate.store import Claim, open_store, transfer
from callgate.store.schema import TABLES
from callgate.store.sql import SqlStore
from callgate.store.store_reader import APART, CHUNK, OF_SESSION
from callgate.store.transfer import copy_store, store_digest
from callgate.testing import answer
from callgate.testing.scripted_model import call_with

PAIRS = [("sqlite", "postgres"), ("postgres", "sqlite"), ("sqlite", "sqlite"), ("postgres", "postgres")]


@pytest.fixture(params=PAIRS, ids="-to-".join)
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[SqlStore, SqlStore]:
    """A source and a target, both empty."""
    opened: list[SqlStore] = []
    for number, kind in enumerate(request.param):
        place = str(tmp_path / f"{number}.db")
        if kind == "postgres":
            place = _another_database(request.getfixturevalue("postgres_server"))
        store = open_store(place)
        assert isinstance(store, SqlStore)
        opened.append(store)
    return opened[0], opened[1]


def _another_database(server: str) -> str:
    import os

    import psycopg

    name = f"copy_{os.urandom(6).hex()}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{server}/{name}"


def run(stores: tuple[SqlStore, SqlStore], story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def told() -> None:
        try:
            async with asyncio.timeout(240):
                await story()
        finally:
            for store in stores:
                await store.aclose()

    asyncio.run(told())


async def copied(stores: tuple[SqlStore, SqlStore], **options: Any) -> transfer.Transfer:
    return await asyncio.to_thread(copy_store, stores[0].dialect, stores[1].dialect, **options)


async def filled(store: SqlStore, session: str, count: int, start: int = 0) -> None:
    lease = await store.acquire(session, owner="me")
    assert lease.position == start
    await store.append(lease, [CallStarted(id=f"{session}-{start + number}") for number in range(count)], position=start)
    await store.release(lease)


def test_every_table_is_copied_but_for_those_about_the_moment() -> None:
    copied = {"callgate_meta", "callgate_sessions", *OF_SESSION, *APART}
    assert set(TABLES) == copied | {"callgate_reservations", "callgate_rates", "callgate_uploads"}
    assert set(transfer.MOMENTARY) == {"callgate_reservations", "callgate_rates", "callgate_uploads"}


def test_sessions_times_keys_and_answers_arrive_and_both_sides_have_one_hash(stores: tuple[SqlStore, SqlStore]) -> None:
    source, target = stores

    async def story() -> None:
        for number in range(5):
            await filled(source, f"s{number} \u00e4", number + 1)
        await filled(source, "long", 3 * CHUNK + 1)
        held = Claim(key="k", digest="d", session="long", run="r", owner="me", position=3)
        await source.claim(held)
        assert await source.put_answer("s1 \u00e4", "call", '{"answer": "yes"}')
        seen: list[tuple[int, int]] = []
        done = await copied(stores, progress=lambda now, total: seen.append((now, total)))
        assert (done.sessions, done.facts, done.keys, done.conflicts) == (6, 616, 1, [])
        assert seen[-1] == (616, 616)
        assert await target.sessions() == await source.sessions()
        for info in await source.sessions():
            assert await target.load(info.id) == await source.load(info.id)
        assert await target.claim(replace(held, run="another", owner="you")) == held
        assert await target.waiting_answers() == [("s1 \u00e4", "call")]
        assert store_digest(source.dialect)[0] == done.sha256
        again = await copied(stores)
        assert (again.written, again.sessions, again.sha256) == (0, 6, done.sha256)

    run(stores, story)


def test_a_call_that_waits_in_the_source_is_answered_in_the_copy(stores: tuple[SqlStore, SqlStore]) -> None:
    source, target = stores
    effects: list[str] = []

    @tool
    def send(to: str) -> str:
        """Send."""
        effects.append(to)
        return "sent"

    def gate(store: SqlStore, *script: Any) -> Gate:
        return Gate(ScriptedModel(list(script)), [send], policy=Policy(default="ask"), store=store)

    async def later(*_: Any) -> str:
        return "later"

    async def story() -> None:
        first = gate(source, call_with("send", {"to": "ann"}))
        first.approve = later  # type: ignore[assignment]
        reply = await first.run("send it", session="s")
        [record] = reply.approvals
        await copied(stores)
        done = await gate(target, answer("done")).run(None, session="s", answers={record.call.id: "yes"})
        assert (done.text, effects) == ("done", ["ann"])

    run(stores, story)


def test_a_copy_that_was_interrupted_goes_on_with_what_is_missing(
    stores: tuple[SqlStore, SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = stores
    monkeypatch.setattr(transfer, "BATCH_ROWS", 1)

    class StoppedError(Exception):
        pass

    def interrupt(done: int, total: int) -> None:
        if done >= 4:
            raise StoppedError

    async def story() -> None:
        for name in ("a", "b", "c"):
            await filled(source, name, 2)
        with pytest.raises(StoppedError):
            await copied(stores, progress=interrupt)
        assert {info.id for info in await target.sessions()} == {"a", "b"}
        await filled(source, "a", 3, start=2)
        done = await copied(stores)
        assert (done.written, done.facts, done.sessions) == (5, 9, 3)
        assert await target.load("a") == await source.load("a")

    run(stores, story)


def test_a_session_that_went_on_in_the_target_or_is_in_use_there_is_left_alone(stores: tuple[SqlStore, SqlStore]) -> None:
    source, target = stores

    async def story() -> None:
        for name in ("on", "busy", "free"):
            await filled(source, name, 2)
        await copied(stores)
        await filled(target, "on", 1, start=2)
        await filled(target, "own", 1)
        await filled(source, "free", 1, start=2)
        lease = await target.acquire("busy", owner="me")
        done = await copied(stores)
        assert sorted(done.conflicts) == ["session 'busy' is in use by me", "session 'on' has other facts there"]
        assert (done.sessions, len(await target.load("on")), len(await target.load("own"))) == (1, 3, 1)
        await target.append(lease, [CallStarted(id="x")], position=2)
        with pytest.raises(StoreError, match="1 session that is not in the backup \\('own'\\)"):
            await copied(stores, others_allowed=False)

    run(stores, story)


def test_a_copy_is_the_source_at_one_moment_though_others_write_to_it(stores: tuple[SqlStore, SqlStore]) -> None:
    source, target = stores

    async def story() -> None:
        await filled(source, "a", 2)
        await filled(source, "b", 2)
        loop = asyncio.get_running_loop()

        def write(done: int, total: int) -> None:
            if done == 2:
                asyncio.run_coroutine_threadsafe(filled(source, "b", 1, start=2), loop).result(60)
                asyncio.run_coroutine_threadsafe(filled(source, "c", 1), loop).result(60)

        done = await copied(stores, progress=write)
        assert (done.sessions, done.facts, await target.load("c")) == (2, 4, [])

    run(stores, story)


def test_facts_of_kinds_that_are_not_known_are_copied_as_they_are(stores: tuple[SqlStore, SqlStore]) -> None:
    source, target = stores
    body = b'{"v": 1, "kind": "of_tomorrow"}'

    async def story() -> None:
        await filled(source, "a", 1)
        await source._database.do(lambda tx: tx.run("UPDATE callgate_facts SET body = ?", body))
        await copied(stores)
        assert await target._database.do(lambda tx: tx.rows("SELECT body FROM callgate_facts")) == [(body,)]

    run(stores, story)


def test_a_place_without_a_store_is_a_sentence_and_gets_no_tables(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE t (x)")
    source, target = open_store(tmp_path / "other.db"), open_store(tmp_path / "copy.db")
    assert isinstance(source, SqlStore)
    assert isinstance(target, SqlStore)
    with pytest.raises(StoreError, match=r"there is no store in .*other\.db"):
        copy_store(source.dialect, target.dialect)
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("t",)]


def test_a_session_that_was_deleted_in_the_target_is_not_brought_back_by_the_next_copy(
    stores: tuple[SqlStore, SqlStore],
) -> None:
    source, target = stores

    async def story() -> None:
        for name in ("kept", "gone", "again"):
            await filled(source, name, 2)
        await copied(stores)
        for name in ("gone", "again"):
            await target.delete(name)
        await filled(source, "gone", 1, start=2)
        await source.delete("again")
        await filled(source, "again", 3)
        done = await copied(stores)
        assert (done.sessions, done.deleted, done.conflicts) == (2, 1, [])
        assert {info.id for info in await target.sessions()} == {"kept", "again"}, "a new one of that name never was there"
        done = await copied(stores, with_deleted=True)
        assert (done.sessions, done.deleted) == (3, 0)
        assert len(await target.load("gone")) == 3
        assert await target.deletions(["gone"]) == {}
        await filled(target, "gone", 1, start=3)
        assert (await copied(stores)).conflicts == ["session 'gone' has other facts there"]

    run(stores, story)


def test_deletions_are_copied_and_the_last_one_of_a_name_counts(stores: tuple[SqlStore, SqlStore]) -> None:
    source, target = stores

    async def story() -> None:
        await filled(source, "kept", 1)
        digest = store_digest(source.dialect)[0]
        await source._database.do(lambda tx: tx.run("DROP TABLE callgate_deletions"))
        assert store_digest(source.dialect)[0] == digest, "as that of a backup from before there was such a table"
        await source.aclose()
        for name in ("first", "second"):
            await filled(source, name, 1)
            await filled(target, name, 1)
        await source.delete("first")
        await target.delete("first")
        await target.delete("second")
        await source.delete("second")
        last = {**await target.deletions(["first"]), **await source.deletions(["second"])}
        done = await copied(stores)
        assert (done.sha256, await target.deletions(["first", "second"])) == (store_digest(source.dialect)[0], last)
        await copied((target, source))
        assert await source.deletions(["first", "second"]) == last

    run(stores, story)
