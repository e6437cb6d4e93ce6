"""What every store promises, each in turn: facts in order, one owner at a time, nothing from an owner who was replaced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from callgate import Gate, Limits, ScriptedModel
from callgate.errors import SessionBusyError, SessionLostError, StoreError, UsageError
from callgate.machine.facts import CallStarted, Fact, RunStarted
from callgate.sessions import load
from callgate.store import Lease, SessionInfo, Store, open_store
from callgate.store.listing import place_of, session_info, session_page
from callgate.store.sql import SqlStore
from callgate.testing import call

A, B, C = (CallStarted(id=name) for name in "abc")
Open = Callable[[], Store]


def run(story: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(300):
            return await story()

    return asyncio.run(bounded())


async def write(store: Store, session: str, *facts: Fact) -> None:
    lease = await store.acquire(session, owner="writer")
    await store.append(lease, facts, position=lease.position)
    await store.release(lease)


def test_facts_come_back_in_order_also_to_another_process(open_it: Open) -> None:
    async def story() -> None:
        store = open_it()
        assert await store.load("x") == []
        lease = await store.acquire("x", owner="me")
        assert lease == Lease(session="x", fence=1, position=0)
        await store.append(lease, [A, B], position=0)
        await store.append(lease, (C,), position=2, durable=True)
        await store.release(lease)
        await store.aclose()
        again = open_it()
        assert await again.load("x") == [A, B, C]
        assert await again.load("x", start=2) == [C]
        assert await again.load("y") == []
        assert await again.acquire("x", owner="you") == Lease(session="x", fence=2, position=3)
        await again.aclose()

    run(story)


def test_a_session_has_one_owner(open_it: Open) -> None:
    async def story() -> None:
        store, other = open_it(), open_it()
        lease = await store.acquire("x", owner="me")
        with pytest.raises(SessionBusyError, match="session 'x' is in use"):
            await other.acquire("x", owner="you")
        await store.renew(lease)
        await store.release(lease)
        await other.acquire("x", owner="you")
        await store.aclose()
        await other.aclose()

    run(story)


def test_an_owner_who_was_replaced_cannot_write_any_more(open_it: Open) -> None:
    async def story() -> None:
        store = open_it()
        await write(store, "x", A)
        old = await store.acquire("x", owner="me", lease_s=0.001)
        await asyncio.sleep(0.01)  # clock: longer than the lease; more is as good
        new = await open_it().acquire("x", owner="me" if type(store).__name__ == "MemoryStore" else "you")
        assert new.fence == old.fence + 1
        with pytest.raises(SessionLostError, match="taken over"):
            await store.append(old, [B], position=1)
        with pytest.raises(SessionLostError):
            await store.renew(old)
        if isinstance(store, SqlStore):
            assert store.statistics.lost == 1
        await store.release(old)  # Not theirs to give any more.
        await store.append(new, [C], position=1)
        assert await store.load("x") == [A, C]
        await store.aclose()

    run(story)


@pytest.mark.parametrize("position", [0, 2, -1])
def test_a_writer_who_does_not_know_the_newest_facts_is_refused(open_it: Open, position: int) -> None:
    async def story() -> None:
        store = open_it()
        await write(store, "x", A)
        lease = await store.acquire("x", owner="me")
        with pytest.raises(SessionLostError, match="has 1 facts"):
            await store.append(lease, [B], position=position)
        assert await store.load("x") == [A]
        await store.aclose()

    run(story)


def test_sessions_are_listed_with_their_first_words_the_newest_first(open_it: Open) -> None:
    async def story() -> list[SessionInfo]:
        store = open_it()
        said = RunStarted(content={"role": "user", "parts": [{"text": "  What is\nthe weather?  "}]})
        for session in ("one", "two"):
            await write(store, session, said, A)
        lease = await store.acquire("one", owner="me")
        await store.append(lease, [B], position=2)
        await store.release(await store.acquire("empty", owner="me"))
        listed = await store.sessions()
        await store.aclose()
        return listed

    one, two = run(story)
    assert [(info.id, info.title, info.facts, info.owner) for info in (one, two)] == [
        ("one", "What is the weather?", 3, "me"),
        ("two", "What is the weather?", 2, None),
    ]
    assert one.created_s <= two.created_s <= two.updated_s <= one.updated_s


def test_a_copy_goes_its_own_way(open_it: Open) -> None:
    async def story() -> None:
        store = open_it()
        await write(store, "x", A, B, C)
        await store.copy("x", "y", facts=2)
        await store.copy("x", "z")
        await write(store, "y", C)
        assert [len(await store.load(session)) for session in ("x", "y", "z")] == [3, 3, 3]
        assert await store.load("y") == [A, B, C]
        with pytest.raises(UsageError, match="there is no session 'nobody'"):
            await store.copy("nobody", "w")
        with pytest.raises(UsageError, match="already"):
            await store.copy("x", "y")
        await store.aclose()

    run(story)


def test_a_session_is_deleted_only_when_nobody_works_on_it(open_it: Open) -> None:
    async def story() -> None:
        store = open_it()
        await write(store, "x", A)
        lease = await store.acquire("x", owner="me")
        with pytest.raises(SessionBusyError, match="not deleted"):
            await store.delete("x")
        await store.release(lease)
        assert await store.delete("x") is True
        assert await store.delete("x") is False
        assert await store.load("x") == []
        assert await store.sessions() == []
        await store.aclose()

    run(story)


def test_many_sessions_write_at_once_and_none_is_mixed_up(open_it: Open) -> None:
    async def story() -> None:
        store = open_it()

        async def one(session: str) -> None:
            lease = await store.acquire(session, owner=session)
            for position in range(20):
                await store.append(lease, [CallStarted(id=f"{session}-{position}")], position=position)
            await store.release(lease)

        await asyncio.gather(*(one(f"session {number}") for number in range(30)))
        for number in range(30):
            expected = [CallStarted(id=f"session {number}-{position}") for position in range(20)]
            assert await store.load(f"session {number}") == expected
        await store.aclose()

    run(story)


def test_a_conversation_goes_on_in_another_gate(open_it: Open) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    async def story() -> None:
        first = Gate(ScriptedModel([call("add", a=1, b=2), "Three."]), [add], store=open_it())
        assert (await first.run("1 + 2?", session="sum")).text == "Three."
        model = ScriptedModel(["As I said: three."])
        second = Gate(model, [add], store=open_it())
        reply = await second.run("What was it?", session="sum")
        assert [content["role"] for content in model.requests[0].contents] == ["user", "model", "user", "model", "user"]
        assert (reply.text, len(reply.contents)) == ("As I said: three.", 6)

    run(story)


def test_gates_that_take_turns_see_what_the_other_added(open_it: Open) -> None:
    async def story() -> list[str]:
        one, two = (Gate(ScriptedModel(script), store=open_it()) for script in (["a", "c"], ["b"]))
        await one.run("1", session="s")
        await two.run("2", session="s")
        reply = await one.run("3", session="s")
        return [content["parts"][0]["text"] for content in reply.contents]

    assert run(story) == ["1", "a", "2", "b", "3", "c"]


def test_a_run_waits_for_another_owner_and_gives_up_with_a_sentence(open_it: Open) -> None:
    async def story() -> None:
        store = open_it()
        lease = await store.acquire("s", owner="somebody")
        gate = Gate(ScriptedModel(["Hi."]), store=open_it(), limits=Limits(session_wait_s=0.05))
        with pytest.raises(SessionBusyError, match="session 's' is in use"):
            await gate.run("Hi.", session="s")
        patient = Gate(ScriptedModel(["Hi."]), store=open_it())
        running = asyncio.create_task(patient.run("Hi.", session="s"))
        await asyncio.sleep(0.05)  # clock: that it still waits has no event; less time would only show less
        assert not running.done()
        await store.release(lease)
        assert (await running).text == "Hi."
        await store.aclose()

    run(story)


@pytest.mark.parametrize("session", ["", " ", "a" * 201, "a\0b", "line\nbreak", "\udcff", 7, None, ["a"]])
def test_an_impossible_id_is_refused_everywhere_and_the_store_goes_on(open_it: Open, session: Any) -> None:
    store = open_it()

    async def story() -> None:
        await write(store, "x", A)
        for operation in (
            lambda: store.acquire(session, owner="me"),
            lambda: store.load(session),
            lambda: store.copy(session, "y"),
            lambda: store.copy("x", session),
            lambda: store.delete(session),
            lambda: load(store, session),
            lambda: Gate(ScriptedModel(["Hi."]), store=store).run("Hi.", session=session or "\0"),
        ):
            with pytest.raises(UsageError, match="cannot be the id of a session"):
                await operation()
        assert await store.load("x") == [A]
        await store.aclose()

    run(story)


def test_sessions_come_in_pages_and_one_by_one(open_it: Open) -> None:
    async def story() -> None:
        store = open_it()
        for number in range(7):
            await write(store, f"s{number}", A)
        whole = sorted(await store.sessions(), key=place_of, reverse=True)
        pages: list[SessionInfo] = []
        while page := await session_page(store, limit=3, before=place_of(pages[-1]) if pages else None):
            pages += page
        assert pages == whole
        assert await session_page(store, limit=9, matches=lambda info: info.id in ("s1", "s5")) == [
            info for info in whole if info.id in ("s1", "s5")
        ]
        assert await session_info(store, "s3") == next(info for info in whole if info.id == "s3")
        assert await session_info(store, "nobody") is None
        await store.aclose()

    run(story)


def test_a_store_that_is_opened_for_reading_only_says_so_and_writes_nothing(open_sql: Callable[[], SqlStore]) -> None:
    async def story() -> None:
        store = open_sql()
        place = getattr(store.dialect, "_url", store.dialect.place)
        looking = open_store(place, read_only=True)
        with pytest.raises(StoreError, match="there is no store in"):
            await looking.sessions()
        await write(store, "x", A, B)
        assert ([info.id for info in await looking.sessions()], await looking.load("x")) == (["x"], [A, B])
        for work in (looking.acquire("y", owner="me"), looking.delete("x"), looking.copy("x", "y")):
            with pytest.raises(StoreError, match="was opened for reading only: nothing was written to it"):
                await work
        await looking.aclose()
        assert [info.id for info in await store.sessions()] == ["x"]

    run(story)
