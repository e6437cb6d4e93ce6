"""Whose a session is, and what was used up: the same on every store."""

from __future__ import annotations

import asyncio
import datetime
from dataclasses import replace

from callgate.machine.facts import RunStarted
from callgate.store import Claim
from callgate.store.listing import session_page
from callgate.store.principals import Used, keeps_principals


async def begin(store, session: str) -> None:
    lease = await store.acquire(session, owner="here")
    await store.append(lease, [RunStarted(content={"role": "user", "parts": [{"text": "hello"}]})], position=0)
    await store.release(lease)


def test_a_session_belongs_to_whoever_names_it_first(open_it) -> None:
    async def story() -> None:
        store, other = open_it(), open_it()
        assert keeps_principals(store)
        assert await store.principal_of("s") is None
        assert await store.assign("s", "alice") == "alice"
        assert await other.assign("s", "bob") == "alice"
        await begin(store, "s")
        assert await other.assign("s", "bob") == await other.principal_of("s") == "alice"

    asyncio.run(story())


def test_a_session_of_nobody_cannot_be_taken(open_it) -> None:
    async def story() -> None:
        store = open_it()
        await begin(store, "old")
        assert await store.assign("old", "alice") is None
        assert await store.principal_of("old") is None

    asyncio.run(story())


def test_the_name_of_a_deleted_session_stays_with_its_principal(open_it) -> None:
    async def story() -> None:
        store = open_it()
        await store.assign("s", "alice")
        await begin(store, "s")
        assert await store.delete("s")
        assert await store.assign("s", "bob") == "alice"

    asyncio.run(story())


def test_however_many_sessions_are_asked_about_those_of_a_principal_are_found(open_it) -> None:
    async def story() -> None:
        store = open_it()
        await store.assign("s3", "alice")
        await store.assign("s69999", "alice")
        await store.assign("s4", "bob")
        sessions = [f"s{number}" for number in range(70_000)]
        assert await store.owned(sessions, "alice") == {"s3", "s69999"}
        assert await store.owned([], "alice") == set()

    asyncio.run(story())


def test_names_and_usage_that_were_kept_for_long_enough_are_forgotten(open_sql, monkeypatch) -> None:
    day_s = 86_400.0
    now = [20_000 * day_s]

    async def story() -> None:
        store = open_sql()
        monkeypatch.setattr(store._dialect, "now_s", lambda tx: now[0])
        await store.assign("gone", "alice")
        await store.add_usage("alice", "2024-10-01", Used(5, 1.0))
        await store.add_usage("alice", "2024-10-02", Used(5, 1.0))
        claim = Claim(key="k", digest="d", session="gone", run="r", owner="me")
        await store.claim(claim)
        await store.clean()
        assert await store.principal_of("gone") == "alice"
        now[0] += 2 * day_s + 1  # 2024-10-06
        await store.clean()
        assert await store.principal_of("gone") is None
        assert (await store.claim(replace(claim, run="another"))).run == "another"
        now[0] = datetime.datetime(2024, 11, 2, tzinfo=datetime.UTC).timestamp()
        await store.clean()
        assert (await store.usage("alice", "2024-10-01"), await store.usage("alice", "2024-10-02")) == (Used(), Used(5, 1.0))
        assert await store.now_s() == now[0]

    asyncio.run(story())


def test_pages_of_a_principal_hold_its_sessions_alone(open_it) -> None:
    async def story() -> None:
        store = open_it()
        for number in range(6):
            await store.assign(f"s{number}", "alice" if number % 2 else "bob")
            await begin(store, f"s{number}")
        await begin(store, "nobody")
        page = await session_page(store, limit=2, principal="alice")
        rest = await session_page(store, limit=9, before=(page[-1].updated_s, page[-1].id), principal="alice")
        assert sorted(info.id for info in [*page, *rest]) == ["s1", "s3", "s5"]
        assert await store.owned(["s0", "s1", "nobody", "none"], "alice") == {"s1"}
        assert len(await session_page(store, limit=9)) == 7

    asyncio.run(story())


def test_usage_adds_up_by_principal_and_period(open_it) -> None:
    async def story() -> None:
        store, other = open_it(), open_it()
        await store.add_usage("alice", "2026-01-01", Used(10, 0.5))
        await other.add_usage("alice", "2026-01-01", Used(5, 0.25))
        await other.add_usage("alice", "2026-01-02", Used(1, 0.0))
        assert await store.usage("alice", "2026-01-01") == Used(15, 0.75)
        assert await store.usage("bob", "2026-01-01") == Used()

    asyncio.run(story())


def test_the_last_facts_of_sessions_are_known_by_kind(open_sql) -> None:
    async def story() -> None:
        store = open_sql()
        await begin(store, "a")
        await begin(store, "b")
        found = await store.last_kinds(since_s=0.0)
        assert sorted((info.id, kind) for info, kind in found) == [("a", "run_started"), ("b", "run_started")]
        assert await store.last_kinds(since_s=found[0][0].updated_s + 1) == []
        assert await store.last_kinds(since_s=0.0, besides=["run_started", "cancelled"]) == []
        assert await store.last_kinds(since_s=0.0, besides=["cancelled"]) == found

    asyncio.run(story())


def test_the_last_facts_of_many_sessions_are_looked_at_some_at_a_time(open_sql, monkeypatch) -> None:
    monkeypatch.setattr("callgate.store.sql.KINDS_PAGE", 2)

    async def story() -> None:
        store = open_sql()
        for number in range(5):
            await begin(store, f"s{number}")
        found = [(info.id, kind) for info, kind in await store.last_kinds(since_s=0.0)]
        assert sorted(found) == [(f"s{number}", "run_started") for number in range(5)]
        assert await store.last_kinds(since_s=0.0, besides=["run_started"]) == []

    asyncio.run(story())
