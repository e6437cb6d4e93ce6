"""The journal in memory: the same objects, and an end to sessions that nobody named."""

from __future__ import annotations

import asyncio
from typing import Any

from callgate.machine.facts import CallStarted, Fact
from callgate.store import MemoryStore, open_store

A, B, C = (CallStarted(id=name) for name in "abc")


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


async def write(store: MemoryStore, session: str, *facts: Fact) -> None:
    lease = await store.acquire(session, owner="me")
    await store.append(lease, facts, position=lease.position)
    await store.release(lease)


def test_facts_come_back_as_the_same_objects() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await write(store, "x", A, B, C)
        assert [fact is known for fact, known in zip(await store.load("x"), (A, B, C), strict=True)] == [True] * 3

    run(scenario())


def test_lists_that_go_in_and_out_do_not_lead_to_the_journal() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        given: list[Fact] = [A]
        lease = await store.acquire("x", owner="me")
        await store.append(lease, given, position=0)
        given.append(B)
        (await store.load("x")).append(C)
        assert await store.load("x") == [A]

    run(scenario())


def test_sessions_without_a_name_are_forgotten_oldest_first() -> None:
    async def scenario() -> None:
        store = MemoryStore(sessions_max=2)
        for session in ("named", "s-1", "s-2"):
            await write(store, session, A)
        await write(store, "s-1", B)
        await write(store, "s-3", A)
        assert [len(await store.load(session)) for session in ("named", "s-1", "s-2", "s-3")] == [1, 2, 0, 1]

    run(scenario())


def test_a_session_in_use_is_not_forgotten() -> None:
    async def scenario() -> None:
        store = MemoryStore(sessions_max=1)
        lease = await store.acquire("s-1", owner="me")
        await store.append(lease, [A], position=0)
        await write(store, "s-2", A)
        await store.append(lease, [B], position=1)
        assert await store.load("s-1") == [A, B]

    run(scenario())


def test_none_opens_a_store_in_memory() -> None:
    assert isinstance(open_store(None), MemoryStore)
    store = MemoryStore()
    assert open_store(store) is store
