"""Claims of idempotency keys: one process is first, others find its claim, and only the last to ask can release it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from callgate.machine.facts import CallStarted
from callgate.store import Claim, MemoryStore, Store
from callgate.store.idempotency import KEPT_S, KEYS_MAX, IdempotencyKeys, MemoryIdempotencyKeys, has_idempotency_keys
from callgate.store.sql import SqlStore
from callgate.store.sql_idempotency import CLEAN_S

A = CallStarted(id="a")
FIRST = Claim(key="k", digest="d", session="s", run="run-1", owner="one", position=3)
SECOND = replace(FIRST, session="s-2", run="run-2", owner="two", position=0)
OpenClaims = Callable[[], Any]


def run(story: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(300):
            return await story()

    return asyncio.run(bounded())


def test_the_first_has_the_key_and_others_find_its_claim(open_it: OpenClaims) -> None:
    async def story() -> None:
        store, other = open_it(), open_it()
        assert has_idempotency_keys(store)
        assert await store.claim(FIRST) == FIRST
        assert await other.claim(SECOND) == FIRST
        assert await store.claim(SECOND) == replace(FIRST, owner="two")
        assert await other.claim(replace(SECOND, key="k2")) == replace(SECOND, key="k2")
        await store.aclose()
        await other.aclose()
        again = open_it()
        assert await again.claim(SECOND) == replace(FIRST, owner="two")
        await again.aclose()

    run(story)


def test_another_digest_finds_the_claim_and_changes_nothing_in_it(open_it: OpenClaims) -> None:
    async def story() -> None:
        store = open_it()
        await store.claim(FIRST)
        assert await store.claim(replace(SECOND, digest="other")) == FIRST
        await store.unclaim(FIRST)
        assert await store.claim(SECOND) == SECOND
        await store.aclose()

    run(story)


@pytest.mark.parametrize("change", [{"owner": "nobody"}, {"run": "another"}, {"key": "another"}])
def test_a_key_is_given_free_by_its_last_owner_alone(open_it: OpenClaims, change: dict[str, str]) -> None:
    async def story() -> None:
        store = open_it()
        await store.claim(FIRST)
        await store.unclaim(replace(FIRST, **change))
        assert await store.claim(SECOND) == FIRST
        await store.unclaim(FIRST)  # Somebody else has asked for it since.
        assert (await store.claim(SECOND)).run == "run-1"
        await store.unclaim(replace(FIRST, owner="two"))
        assert await store.claim(SECOND) == SECOND
        await store.aclose()

    run(story)


def test_of_many_at_once_one_is_first(open_it: OpenClaims) -> None:
    async def story() -> None:
        stores = [open_it() for _ in range(4)]
        wanted = [replace(FIRST, run=f"run-{number}", session=f"s-{number}") for number in range(40)]
        held = await asyncio.gather(*(stores[number % 4].claim(claim) for number, claim in enumerate(wanted)))
        assert len(set(held)) == 1
        assert held[0] in wanted
        for store in stores:
            await store.aclose()

    run(story)


def test_a_claim_that_is_given_free_while_another_asks_for_it_is_taken_by_that_one(open_it: OpenClaims) -> None:
    async def story() -> None:
        one, two = open_it(), open_it()
        for number in range(20):
            key = f"k{number}"
            first, second = replace(FIRST, key=key), replace(SECOND, key=key)
            await one.claim(first)
            held, _ = await asyncio.gather(two.claim(second), one.unclaim(first))
            # Either it came too late, and then it has asked for what nobody else may give free, or the key is its own.
            assert held in (first, second)
            assert (await one.claim(first)).owner == "two"
        await one.aclose()
        await two.aclose()

    run(story)


def test_the_claims_of_a_deleted_session_say_so(open_it: OpenClaims) -> None:
    async def story() -> None:
        store: Any = open_it()
        lease = await store.acquire("s", owner="me")
        await store.append(lease, [A], position=0)
        await store.release(lease)
        await store.claim(FIRST)
        other = replace(FIRST, key="k2", session="another")
        await store.claim(other)
        assert await store.delete("s")
        assert await store.claim(FIRST) == replace(FIRST, run="")
        assert await store.claim(other) == other
        await store.aclose()

    run(story)


def test_a_session_that_was_given_free_before_anything_was_written_keeps_its_claim(open_it: OpenClaims) -> None:
    async def story() -> None:
        store: Any = open_it()
        await store.claim(FIRST)
        await store.release(await store.acquire("s", owner="me"))
        assert await store.claim(FIRST) == FIRST
        await store.aclose()

    run(story)


def test_a_claim_holds_for_a_day(open_it: OpenClaims, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000_000.0]

    async def story() -> list[int]:
        store = open_it()
        if isinstance(store, SqlStore):
            monkeypatch.setattr(store._dialect, "now_s", lambda tx: now[0], raising=False)
        else:
            monkeypatch.setattr("callgate.store.idempotency.time.monotonic", lambda: now[0])
        for key in ("k", "k2", "k3"):
            await store.claim(replace(FIRST, key=key))
        now[0] += KEPT_S - CLEAN_S / 2
        assert (await store.claim(SECOND)).run == "run-1"
        now[0] += CLEAN_S / 2
        counts = [await count(store)]
        assert await store.claim(SECOND) == SECOND  # Its own time is over, whether or not the others were cleaned up.
        counts.append(await count(store))
        now[0] += CLEAN_S
        await store.claim(replace(SECOND, key="k4"))
        counts.append(await count(store))
        await store.aclose()
        return counts

    before, meanwhile, after = run(story)
    assert before == 3
    assert meanwhile in (1, 3)
    assert after == 2


async def count(store: Any) -> int:
    if isinstance(store, MemoryStore):
        return len(store._keys._held)
    return (await store._database.do(lambda tx: tx.rows("SELECT count(*) FROM callgate_claims")))[0][0]


def test_memory_holds_so_many_claims_and_no_more() -> None:
    async def story() -> None:
        claims: IdempotencyKeys = MemoryIdempotencyKeys()
        for number in range(KEYS_MAX + 1):
            await claims.claim(replace(FIRST, key=f"k{number}"))
        assert (await claims.claim(replace(SECOND, key="k1"))).run == "run-1"
        assert (await claims.claim(replace(SECOND, key="k0"))).run == "run-2"

    run(story)


def test_an_anonymous_session_that_memory_forgets_leaves_a_claim_that_says_so() -> None:
    async def story() -> None:
        store = MemoryStore(sessions_max=1)
        claim = replace(FIRST, session="s-000000000001")
        await store.claim(claim)
        for session in ("s-000000000001", "s-000000000002"):
            lease = await store.acquire(session, owner="me")
            await store.append(lease, [A], position=0)
            await store.release(lease)
        assert await store.claim(claim) == replace(claim, run="")

    run(story)


def test_a_store_without_claims_is_still_a_store() -> None:
    class Own:
        """What `Store` asks for, and nothing else."""

        def __init__(self) -> None:
            store = MemoryStore()
            self.acquire, self.renew, self.release, self.load = store.acquire, store.renew, store.release, store.load
            self.append, self.sessions, self.copy = store.append, store.sessions, store.copy
            self.delete, self.aclose = store.delete, store.aclose

    store: Store = Own()
    assert not has_idempotency_keys(store)


RACER = """
    import asyncio, sys
    from callgate.store import Claim, open_store

    async def race(place, name):
        store = open_store(place)
        await store.sessions()
        print("ready", flush=True)
        sys.stdin.readline()
        wins = 0
        for number in range(60):
            claim = Claim(key=f"k{number}", digest="d", session="s", run=name, owner=name)
            wins += (await store.claim(claim)).run == name
        await store.aclose()
        print(wins, flush=True)

    asyncio.run(race(*sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_of_two_processes_each_key_has_one(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    place = request.getfixturevalue("postgres_url") if kind == "postgres" else str(tmp_path / "sessions.db")
    command = [sys.executable, "-c", textwrap.dedent(RACER), place]
    racers = [subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for name in "ab"]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    wins = [int(racer.communicate(timeout=60)[0]) for racer in racers]
    assert sum(wins) == 60, wins
