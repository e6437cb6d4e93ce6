"""Reservations of runs and buckets of requests: over all processes of a store, and no longer than their processes live."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from callgate.store import MemoryStore
from callgate.store.owner import new_owner
from callgate.store.principals import Used
from callgate.store.protocol import LEASE_S
from callgate.store.reservations import Allowance, MemoryReservations, Reservation, keeps_requests, keeps_reservations

DAY = "2026-11-18"
ONE = Allowance(period=DAY, runs=1)
SIMULTANEOUS = 12


def run(id: str, tokens: int = 0, cost: float = 0.0, **more: Any) -> Reservation:
    known = {"principal": "ann", "account": "ann", "process": new_owner()} | more
    return Reservation(id=id, reserved=Used(tokens, cost), **known)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Any) -> Any:
    """Opens the same reservations again and again."""
    if request.param == "memory":
        alone = MemoryReservations(MemoryStore())
        yield lambda: alone
        return
    from callgate.store import open_store

    place = tmp_path / "sessions.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    stores: list[Any] = []

    def open_another() -> Any:
        stores.append(open_store(str(place)))
        return stores[-1]

    yield open_another
    for store in stores:
        asyncio.run(store.aclose())


def test_a_store_that_several_services_share_has_them(open_sql) -> None:
    store = open_sql()
    assert keeps_reservations(store)
    assert keeps_requests(store)
    assert not keeps_reservations(MemoryStore())
    assert not keeps_requests(MemoryStore())


def test_as_many_runs_as_are_allowed_are_under_way_at_a_time(opened) -> None:
    async def story() -> list[Any]:
        first, second = opened(), opened()
        found = [
            await first.reserve(run("1"), ONE),
            await second.reserve(run("2"), ONE),
            await second.reserve(run("3", principal="bob"), ONE),
        ]
        await first.settle(run("1"), DAY, Used())
        return [*found, await second.reserve(run("4"), ONE)]

    assert asyncio.run(story()) == [None, "runs", None, None]


@pytest.mark.parametrize(
    ("allowed", "reserved"),
    [(Allowance(period=DAY, tokens=10), Used(10)), (Allowance(period=DAY, cost=1.0), Used(0, 1.0))],
    ids=["tokens", "cost"],
)
def test_what_runs_under_way_may_use_is_not_given_to_others(opened, allowed: Allowance, reserved: Used) -> None:
    async def story() -> list[Any]:
        first, second = opened(), opened()
        one = replace(run("1"), reserved=reserved)
        found = [await first.reserve(one, allowed), await second.reserve(replace(one, id="2"), allowed)]
        await first.settle(one, DAY, Used(4, 0.4))  # It has used less.
        found.append(await second.reserve(replace(one, id="2"), allowed))
        await second.settle(replace(one, id="2"), DAY, Used(6, 0.6))
        return [*found, await first.reserve(replace(one, id="3"), allowed)]

    assert asyncio.run(story()) == [None, "reserved", None, "usage"]


def test_a_run_goes_on_until_what_was_used_is_the_quota(opened) -> None:
    allowed = Allowance(period=DAY, tokens=10)

    async def story() -> list[Any]:
        store = opened()
        assert await store.reserve(run("1", 3), allowed) is None
        assert await store.reserve(run("2", 3), allowed) is None
        found = [
            await store.extend(run("1", 8), Used(4), allowed),
            await store.extend(run("2", 6), Used(3), allowed),  # 8 are reserved, and 3 were used.
            await store.extend(run("1", 9), Used(6), allowed),  # Of the other, only what it has used is reserved now.
            await store.extend(run("1", 12), Used(10), allowed),
        ]
        await store.settle(run("1"), DAY, Used(10))
        return [*found, await store.reserve(run("3"), allowed)]

    assert asyncio.run(story()) == [None, "reserved", None, "usage", "usage"]


def test_of_many_that_begin_at_once_over_several_stores_as_many_begin_as_may(opened) -> None:
    async def story() -> list[Any]:
        stores = [opened() for _ in range(3)]
        allowed = Allowance(period=DAY, runs=2)
        return await asyncio.gather(
            *(stores[number % 3].reserve(run(str(number)), allowed) for number in range(SIMULTANEOUS))
        )

    found = asyncio.run(story())
    assert sorted(map(str, found)) == ["None"] * 2 + ["runs"] * (SIMULTANEOUS - 2)


def test_a_process_that_died_on_this_machine_leaves_no_runs_behind(open_sql) -> None:
    code = "from callgate.store.owner import new_owner; print(new_owner())"
    dead = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    async def story() -> list[Any]:
        store = open_sql()
        return [await store.reserve(run("1", process=dead), ONE), await store.reserve(run("2"), ONE)]

    assert asyncio.run(story()) == [None, None]


def test_the_runs_of_a_process_elsewhere_end_with_its_lease(open_sql, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> list[Any]:
        store, late_s = open_sql(), 0.0
        now_s = store.dialect.lease_now_s
        monkeypatch.setattr(type(store.dialect), "lease_now_s", lambda _, tx: now_s(tx) + late_s)
        elsewhere = run("1", process="elsewhere")
        found = [await store.reserve(elsewhere, ONE)]
        late_s = LEASE_S * 2 / 3
        await store.renew_reservations("elsewhere", ["1"])
        late_s = LEASE_S * 4 / 3
        found.append(await store.reserve(run("2"), ONE))
        late_s = LEASE_S * 2
        return [*found, await store.reserve(run("2"), ONE)]

    assert asyncio.run(story()) == [None, "runs", None]


def test_a_process_ends_what_it_does_not_know_any_more(opened) -> None:
    async def story() -> list[Any]:
        store = opened()
        one = run("1")
        assert await store.reserve(one, ONE) is None
        await store.renew_reservations(one.process, ["1"])
        kept = await store.reserve(run("2"), ONE)
        await store.renew_reservations(one.process, [])
        return [kept, await store.reserve(run("2"), ONE)]

    assert asyncio.run(story()) == ["runs", None]


def test_what_was_settled_is_not_counted_twice_when_nobody_knew(open_sql) -> None:
    async def story() -> list[Used]:
        store = open_sql()
        found = []
        for again in (False, True):
            await store.reserve(run("1"), ONE)
            await store.settle(run("1"), DAY, Used(5, 0.5), again=again)
            await store.settle(run("1"), DAY, Used(5, 0.5), again=True)
            found.append(await store.usage("ann", DAY))
        return found

    assert asyncio.run(story()) == [Used(5, 0.5), Used(10, 1.0)]


# Requests ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the stores, in a list."""
    from callgate.store.postgres import Postgres
    from callgate.store.sqlite import Sqlite

    clock = [1_000_000.0]
    for dialect in (Postgres, Sqlite):
        monkeypatch.setattr(dialect, "now_s", lambda _, tx: clock[0])
    return clock


def test_a_bucket_is_shared_and_refills_by_the_minute(open_sql, frozen: list[float]) -> None:
    async def story() -> list[Any]:
        first, second = open_sql(), open_sql()
        found = [
            await first.take_requests("ann", 8, least=1, most=8),  # A quarter of what is left.
            await second.take_requests("ann", 8, least=5, most=1),
            await first.take_requests("ann", 8, least=3, most=1),
            await second.take_requests("ann", 8, least=1, most=1),
            await second.take_requests("ann", 8, least=1, most=1, returned=1),
            await first.take_requests("bob", 8, least=1, most=1),
        ]
        frozen[0] += 15.0
        found.append(await first.take_requests("ann", 8, least=4, most=4))
        frozen[0] -= 1_000.0  # Somebody has set the clock.
        found.append(await first.take_requests("ann", 8, least=1, most=1))
        frozen[0] += 7.5
        return [*found, await first.take_requests("ann", 8, least=1, most=1)]

    taken = [(count, pytest.approx(wait_s)) for count, wait_s in asyncio.run(story())]
    assert taken == [(2, 0.0), (5, 0.0), (1, 7.5), (0, 7.5), (1, 7.5), (1, 0.0), (2, 7.5), (0, 7.5), (1, 7.5)]


def test_many_that_ask_at_once_get_no_more_than_there_is(open_sql, frozen: list[float]) -> None:
    async def story() -> int:
        stores = [open_sql() for _ in range(3)]
        found = await asyncio.gather(*(stores[number % 3].take_requests("ann", 20, least=1, most=4) for number in range(30)))
        return sum(count for count, _ in found)

    assert asyncio.run(story()) == 20


def test_old_buckets_and_reservations_are_forgotten(open_sql, frozen: list[float]) -> None:
    async def story() -> list[Any]:
        store = open_sql()
        await store.take_requests("ann", 8, least=8, most=8)
        await store.reserve(run("1"), ONE)
        await store.clean()
        kept = await store._database.do(lambda tx: tx.rows("SELECT principal FROM callgate_rates"))
        frozen[0] += 4_000.0
        await store.clean()
        return [kept, await store._database.do(lambda tx: tx.rows("SELECT principal FROM callgate_rates"))]

    assert asyncio.run(story()) == [[("ann",)], []]
