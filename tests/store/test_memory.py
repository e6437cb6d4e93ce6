"""The journal in memory: the same objects, and an end to sessions that nobody named."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callgate import Gate, ScriptedModel
from callgate.errors import UsageError
from callgate.machine.facts import CallStarted, Fact
from callgate.store import MemoryStore, anonymous, open_store
from callgate.store.anonymous import new_session_id

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
        one, two, three = (new_session_id() for _ in range(3))
        for session in ("named", "s-name", one, two):
            await write(store, session, A)
        await write(store, one, B)
        await write(store, three, A)
        found = [len(await store.load(session)) for session in ("named", "s-name", one, two, three)]
        assert found == [1, 1, 2, 0, 1]

    run(scenario())


def test_a_session_in_use_is_not_forgotten() -> None:
    async def scenario() -> None:
        store = MemoryStore(sessions_max=1)
        session = new_session_id()
        lease = await store.acquire(session, owner="me")
        await store.append(lease, [A], position=0)
        await write(store, new_session_id(), A)
        await store.append(lease, [B], position=1)
        assert await store.load(session) == [A, B]

    run(scenario())


def test_a_run_that_names_a_forgotten_session_is_told_so() -> None:
    async def scenario() -> None:
        gate = Gate(ScriptedModel(["one", "two", "three", "four"]), store=MemoryStore(sessions_max=1))
        forgotten = (await gate.run("1")).session
        kept = (await gate.run("2")).session
        for _ in range(2):
            with pytest.raises(UsageError, match=r"no session 's-\w+' any more: .*Name your sessions.*sessions_max"):
                await gate.run("Go on.", session=forgotten)
        assert (await gate.run("3", session=kept)).text == "three"
        assert (await gate.run("4", session="named")).text == "four"
        assert [info.id for info in await gate.store.sessions()] == ["named", kept]

    run(scenario())


def test_a_run_that_names_a_session_of_another_process_is_told_so() -> None:
    with pytest.raises(UsageError, match="there is no session 's-0123456789ab' any more"):
        run(Gate(ScriptedModel(["one"])).run("Go on.", session="s-0123456789ab"))


def test_a_run_that_failed_before_it_began_may_be_tried_again_under_its_made_up_id() -> None:
    async def scenario() -> None:
        session = new_session_id()
        gate = Gate(ScriptedModel(["one"]), tools=[])
        with pytest.raises(UsageError):
            await gate.run(None, session=session)
        assert (await gate.run("1", session=session)).text == "one"

    run(scenario())


def test_ids_that_are_never_used_take_up_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anonymous, "NEW_MAX", 10)
    made = [new_session_id() for _ in range(40)]
    known = [session for session in made if anonymous.is_new(session)]
    assert made[-len(known) :] == known
    assert 9 <= len(known) <= 10


def test_none_opens_a_store_in_memory() -> None:
    assert isinstance(open_store(None), MemoryStore)
    store = MemoryStore()
    assert open_store(store) is store
