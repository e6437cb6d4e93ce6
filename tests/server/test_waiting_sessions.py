"""Sessions in which a call may wait are looked for when the service starts, before somebody asks for them."""

from __future__ import annotations

import asyncio

from callgate import Gate, Policy, ScriptedModel, tool
from callgate.errors import StoreError
from callgate.server import Service
from callgate.server.waiting_sessions import WaitingSessions
from callgate.store import open_store
from callgate.testing import call


@tool
def pay(amount: int) -> str:
    """Pays."""
    return f"paid {amount}"


def test_a_service_that_starts_knows_the_calls_that_wait_before_it_is_asked(tmp_path) -> None:
    async def story() -> None:
        path = str(tmp_path / "sessions.db")
        first = Service(Gate(ScriptedModel([call("pay", amount=1)]), [pay], policy=Policy(default="ask"), store=path))
        async with first:
            assert len((await first.gate.run("pay", session="s")).approvals) == 1
        store = open_store(path)
        seen: list[float] = []
        look = store.last_kinds  # type: ignore[attr-defined]

        async def last_kinds(**how):
            seen.append(how["since_s"])
            return await look(**how)

        store.last_kinds = last_kinds  # type: ignore[attr-defined]
        second = Service(Gate(ScriptedModel([]), [pay], store=store))
        async with second:
            await asyncio.wait(second._warming)
            assert seen == [0.0]
            assert [info.id for info in await second.waiting_sessions.look()] == ["s"]
            assert seen[1] > 0.0  # Only what is new.
        await store.aclose()

    asyncio.run(story())


def test_a_store_that_cannot_be_read_at_the_start_costs_a_line_in_the_log(caplog) -> None:
    class Broken:
        async def session_page(self, *, limit: int):
            raise StoreError("it is away")

        async def last_kinds(self, **how):
            raise AssertionError

    asyncio.run(WaitingSessions(Broken()).warm())  # type: ignore[arg-type]
    [record] = caplog.records
    assert (record.name, record.getMessage()) == ("callgate.outages", "the store cannot be read: it is away")


def test_those_who_ask_at_once_wait_for_one_failure_of_the_store_and_not_for_one_after_another() -> None:
    class Away:
        def __init__(self) -> None:
            self.asked, self.answers, self.is_away = 0, asyncio.Event(), True

        async def session_page(self, *, limit: int):
            self.asked += 1
            await self.answers.wait()
            if self.is_away:
                raise StoreError("it is away")
            return []

        async def last_kinds(self, **how):
            return []

    async def story() -> None:
        store = Away()
        sessions = WaitingSessions(store)  # type: ignore[arg-type]
        looks = [asyncio.create_task(sessions.look()) for _ in range(5)]
        while not store.asked:  # noqa: ASYNC110 - the double has no event for it
            await asyncio.sleep(0)
        store.answers.set()
        failures = await asyncio.gather(*looks, return_exceptions=True)
        assert (store.asked, [str(error) for error in failures]) == (1, ["it is away"] * 5)
        store.is_away = False
        assert await sessions.look() == []

    asyncio.run(story())
