"""Answers for calls that wait in another process: left, taken, withdrawn, and spent with the fact that journals them."""

from __future__ import annotations

import asyncio

import pytest

from callgate.errors import SessionLostError
from callgate.machine.facts import ApprovalAnswered, RunStarted
from callgate.store.answer_signal import POLL_HEARD_S, POLL_S
from callgate.store.protocol import Lease

YES = ApprovalAnswered(id="c", answer="yes")


async def owned(store, session: str = "s", *, owner: str = "here", lease_s: float = 30.0) -> Lease:
    lease = await store.acquire(session, owner=owner, lease_s=lease_s)
    if lease.position == 0:
        await store.append(lease, [RunStarted(content={"role": "user", "parts": [{"text": "hello"}]})], position=0)
    return lease


def test_an_answer_is_there_until_the_journal_has_it(open_sql) -> None:
    async def story() -> None:
        store, other = open_sql(), open_sql()
        lease = await owned(store)
        assert await other.put_answer("s", "c", "yes")
        assert not await other.put_answer("s", "c", "no")
        assert await store.take_answer(lease, "c") == "yes"
        assert await store.take_answer(lease, "c") == "yes"  # A second time, where the outcome of the first is not known.
        assert await other.withdraw_answer("s", "c", "yes") == "taken"
        assert await other.has_answer("s", "c", "yes")
        assert not await other.put_answer("s", "c", "no")
        await store.append(lease, [YES], position=1)
        assert not await other.has_answer("s", "c", "yes")
        assert await other.withdraw_answer("s", "c", "yes") == "gone"
        assert await other.waiting_answers() == []

    asyncio.run(story())


@pytest.mark.parametrize("end", ["release", "expire"])
def test_an_answer_whose_taker_lost_its_session_can_be_withdrawn_and_never_counts(open_sql, end) -> None:
    async def story() -> None:
        store, other = open_sql(), open_sql()
        lease = await owned(store, lease_s=-1.0 if end == "expire" else 30.0)
        await other.put_answer("s", "c", "yes")
        assert await store.take_answer(lease, "c") == "yes"
        if end == "release":
            await store.release(lease)
        assert await other.withdraw_answer("s", "c", "yes") == "withdrawn"
        with pytest.raises(SessionLostError):
            await store.append(lease, [YES], position=1)

    asyncio.run(story())


def test_the_next_owner_takes_an_answer_that_the_first_one_could_not_journal(open_sql) -> None:
    async def story() -> None:
        store, other = open_sql(), open_sql()
        first = await owned(store, lease_s=-1.0)
        await other.put_answer("s", "c", "yes")
        assert await store.take_answer(first, "c") == "yes"
        second = await owned(other, owner="there")
        assert await store.take_answer(first, "c") is None  # The lease is lost.
        assert await other.take_answer(second, "c") == "yes"
        await other.append(second, [YES], position=1)
        assert await store.waiting_answers() == []

    asyncio.run(story())


def test_an_answer_that_was_not_taken_stays_when_another_one_is_journalled(open_sql) -> None:
    async def story() -> None:
        store, other = open_sql(), open_sql()
        lease = await owned(store)
        await other.put_answer("s", "c", "no")
        await store.append(lease, [YES], position=1)  # It was answered where it waited.
        assert await other.withdraw_answer("s", "c", "no") == "withdrawn"

    asyncio.run(story())


def test_an_answer_left_twice_in_the_same_words_is_two_answers(open_sql) -> None:
    async def story() -> None:
        store, other = open_sql(), open_sql()
        assert await store.put_answer("s", "c", "first")
        assert not await other.put_answer("s", "c", "second")
        assert await store.withdraw_answer("s", "c", "first") == "withdrawn"
        assert await other.put_answer("s", "c", "second")
        assert not await store.has_answer("s", "c", "first")
        assert await store.withdraw_answer("s", "c", "first") == "gone"  # Another one stands in its place.
        assert await other.has_answer("s", "c", "second")

    asyncio.run(story())


def test_an_answer_of_a_process_that_died_long_ago_makes_room(open_sql, monkeypatch) -> None:
    monkeypatch.setattr("callgate.store.answers.STALE_S", -1.0)

    async def story() -> None:
        store = open_sql()
        lease = await owned(store)
        assert await store.put_answer("s", "c", "old")
        assert await store.put_answer("s", "c", "new")
        assert await store.take_answer(lease, "c") == "new"
        assert not await store.put_answer("s", "c", "newer")  # Its taker lives.

    asyncio.run(story())


def test_answers_in_one_commit_wait_for_no_other_process(open_sql) -> None:
    """Two processes that answer the same calls in different orders, many at a time."""

    async def story() -> None:
        store, other = open_sql(), open_sql()
        calls = [f"c{number}" for number in range(100)]
        given = await asyncio.gather(
            *(store.put_answer("s", call_id, "here") for call_id in calls),
            *(other.put_answer("s", call_id, "there") for call_id in reversed(calls)),
        )
        assert sum(given) == 100
        assert store.statistics.failures == other.statistics.failures == 0

    asyncio.run(story())


def test_postgres_signals_answers_of_other_processes(postgres_url) -> None:
    from callgate.store import open_store

    async def story() -> None:
        store, other = open_store(postgres_url), open_store(postgres_url)
        signal = store.answer_signal()
        try:
            while not signal.is_heard:
                await signal.wait(signal.mark)
            mark = signal.mark
            await other.put_answer("s", "c", "yes")
            while signal.mark == mark:
                await signal.wait(mark)
            lease = await owned(other)
            await other.take_answer(lease, "c")
            mark = signal.mark
            await other.append(lease, [ApprovalAnswered(id="c", answer="yes")], position=1)
            while signal.mark == mark:
                await signal.wait(mark)
        finally:
            await signal.aclose()
            await store.aclose()
            await other.aclose()

    asyncio.run(asyncio.wait_for(story(), 120))


def test_without_signals_a_wait_is_short(open_sql) -> None:
    assert POLL_S < POLL_HEARD_S < 1

    async def story() -> None:
        store = open_sql()
        signal = store.answer_signal()
        signal._connect = None
        await signal.wait(signal.mark)
        assert not signal.is_heard
        await signal.aclose()

    asyncio.run(story())
