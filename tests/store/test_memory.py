"""The journal in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callgate.errors import SessionBusy
from callgate.facts import CallStarted
from callgate.store import MemoryStore, open_store

A, B, C = (CallStarted(id=name) for name in "abc")


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def test_facts_come_back_as_the_same_objects_in_order() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        assert await store.load("x") == []
        await store.append("x", [A, B], position=0)
        await store.append("x", (C,), position=2, durable=True)
        loaded = await store.load("x")
        assert [fact is known for fact, known in zip(loaded, (A, B, C), strict=True)] == [True] * 3
        assert await store.load("y") == []

    run(scenario())


def test_lists_that_go_in_and_out_do_not_lead_to_the_journal() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        given = [A]
        await store.append("x", given, position=0)
        given.append(B)
        (await store.load("x")).append(C)
        assert await store.load("x") == [A]

    run(scenario())


@pytest.mark.parametrize("position", [0, 2, -1])
def test_a_writer_who_does_not_know_the_newest_facts_is_refused(position: int) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await store.append("x", [A], position=0)
        with pytest.raises(SessionBusy, match="'x'"):
            await store.append("x", [B], position=position)
        assert await store.load("x") == [A]

    run(scenario())


def test_a_refused_writer_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        store = MemoryStore(sessions_max=1)
        await store.append("s-1", [A], position=0)
        with pytest.raises(SessionBusy):
            await store.append("s-2", [B], position=5)
        assert await store.load("s-1") == [A]

    run(scenario())


def test_sessions_without_a_name_are_forgotten_oldest_first() -> None:
    async def scenario() -> None:
        store = MemoryStore(sessions_max=2)
        for session in ("named", "s-1", "s-2"):
            await store.append(session, [A], position=0)
        await store.append("s-1", [B], position=1)
        await store.append("s-3", [A], position=0)
        assert [len(await store.load(session)) for session in ("named", "s-1", "s-2", "s-3")] == [1, 2, 0, 1]

    run(scenario())


def test_a_session_is_not_forgotten_while_it_is_written_to() -> None:
    async def scenario() -> None:
        store = MemoryStore(sessions_max=2)
        for session in ("one", "two", "three"):
            await store.append(session, [A], position=0)
        await store.append("s-1", [A], position=0)
        await store.append("s-1", [B], position=1)
        assert await store.load("s-1") == [A, B]

    run(scenario())


def test_a_store_is_opened_or_taken_as_it_is() -> None:
    store = MemoryStore()
    assert open_store(store) is store
    assert isinstance(open_store(None), MemoryStore)
