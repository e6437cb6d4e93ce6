"""PostgreSQL as it is operated: foreign locks, frozen processes, silent servers, restarts, poolers and small roles."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from callgate.errors import SessionBusyError, StoreError, UsageError
from callgate.machine.facts import CallStarted, Renamed
from callgate.store import LEASE_S, Claim, database, lane, open_store, postgres, schema
from callgate.store.dialect import Transaction
from callgate.store.idempotency import has_idempotency_keys
from callgate.store.postgres import Postgres
from callgate.store.sql import SqlStore

psycopg = pytest.importorskip("psycopg")

SOON_S = 60.0
"""Well below the limits of the store as `far_limits` has them: an answer within it waited for none of them."""


@pytest.fixture
def far_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for a limit of the store waits for ever."""
    monkeypatch.setattr(database, "LOCKED_S", 600.0)
    monkeypatch.setattr(database, "AWAY_S", 600.0)
    monkeypatch.setattr(lane, "SILENT_S", 600.0)
    monkeypatch.setattr(postgres, "LIMITS", dict.fromkeys(postgres.LIMITS, "600s") | {"lock_timeout": "1s"})


def run(story: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(120):
            return await story

    return asyncio.run(bounded())


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[SqlStore]:
    store = open_store(url)
    assert isinstance(store, SqlStore)
    try:
        yield store
    finally:
        await store.aclose()


async def begun(store: SqlStore, *sessions: str) -> None:
    for session in sessions:
        lease = await store.acquire(session, owner="me")
        await store.append(lease, [CallStarted(id="a")], position=0)
        await store.release(lease)


async def frozen_backend(url: str, store: SqlStore, *sessions: str) -> int:
    """Freeze the server process of the only connection of a store, over which sessions were begun."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "GROW_S", 600.0)  # On a busy machine it would get another connection meanwhile.
        await begun(store, *sessions)
    await until_idle(store)
    [frozen] = await backends(url, store)
    until_it_reads(url, frozen)
    os.kill(frozen, signal.SIGSTOP)
    return frozen


def until_it_reads(url: str, backend: int) -> None:
    """Wait until a server process waits for its client: one that is frozen earlier may hold a lock that all others need."""
    state = "SELECT wait_event FROM pg_stat_activity WHERE pid = %s"
    with psycopg.connect(url, autocommit=True) as watcher:
        while watcher.execute(state, [backend]).fetchone() != ("ClientRead",):
            pass


async def until_idle(store: SqlStore) -> None:
    """Wait until the threads of a store have done everything: they answer callers a moment before."""
    while any(lane.busy_since_s for lane in store._database._lanes):  # noqa: ASYNC110 - a thread, not a task
        await asyncio.sleep(0.01)  # clock: a thread does it


def fact(id: str) -> list[CallStarted]:
    return [CallStarted(id=id)]


# Locks -------------------------------------------------------------------------------------------------------------------


def test_while_a_table_is_locked_writers_wait_and_those_who_only_look_get_an_error_soon(postgres_url: str) -> None:
    async def story() -> None:
        async with opened(postgres_url) as store:
            await begun(store, *(f"s{number}" for number in range(12)))
            store.patience_s = 1.5
            leases = [await store.acquire(f"s{number}", owner="me") for number in range(12)]
            with psycopg.connect(postgres_url) as stray:
                stray.execute("LOCK TABLE callgate_facts, callgate_principals IN ACCESS EXCLUSIVE MODE")
                looks = [store.load("s1"), store.read("s2"), store.principal_of("s3"), store.acquire("s4", owner="you")]
                looks += [store.load(f"s{number % 12}") for number in range(60)]
                appends = [asyncio.create_task(store.append(lease, fact("b"), position=1)) for lease in leases]
                started_s = time.monotonic()
                refusals = await asyncio.gather(*looks, return_exceptions=True)
                assert time.monotonic() - started_s < 45  # clock: one after the other they would wait for 96 s
                assert [isinstance(one, (StoreError, SessionBusyError)) for one in refusals] == [True] * 64, refusals
            await asyncio.gather(*appends)
            assert await store.load("s11") == [*fact("a"), *fact("b")]

    run(story())


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM callgate_sessions WHERE id = 'a' FOR UPDATE",
        "UPDATE callgate_sessions SET title = 'x' WHERE id = 'a'",
        "DELETE FROM callgate_sessions WHERE id = 'a'",
    ],
)
@pytest.mark.usefixtures("far_limits")
def test_a_session_whose_row_is_locked_is_busy_at_once_and_costs_no_other_session(postgres_url: str, sql: str) -> None:
    async def story() -> None:
        async with opened(postgres_url) as store:
            await begun(store, "a", "b")
            with psycopg.connect(postgres_url) as stray:
                stray.execute(sql)
                async with asyncio.timeout(SOON_S):
                    for _ in range(2 * store._dialect.connections):
                        with pytest.raises(SessionBusyError, match="'a' is in use"):
                            await store.acquire("a", owner="me")
                    assert (await store.acquire("b", owner="me")).position == 1
                    assert len(await store.sessions()) == 2
                stray.rollback()
            assert (await store.acquire("a", owner="me")).position == 1

    run(story())


@pytest.mark.usefixtures("far_limits")
def test_a_new_session_that_another_transaction_is_beginning_is_busy_at_once(postgres_url: str) -> None:
    async def story() -> None:
        async with opened(postgres_url) as store, opened(postgres_url) as other:
            await begun(store, "b")
            entered, leave = asyncio.Event(), asyncio.Event()
            loop = asyncio.get_running_loop()

            def frozen(tx: Any) -> None:
                tx.lock("session new")
                tx.run("INSERT INTO callgate_sessions VALUES ('new', '', 0, 0, NULL, 0, 0, 0)")
                loop.call_soon_threadsafe(entered.set)
                asyncio.run_coroutine_threadsafe(leave.wait(), loop).result(60)

            held = asyncio.create_task(other._database.do(frozen))
            await entered.wait()
            async with asyncio.timeout(SOON_S):
                with pytest.raises(SessionBusyError):
                    await store.acquire("new", owner="me")
                await store.acquire("b", owner="me")
            leave.set()
            await held
            await store.acquire("new", owner="me")

    run(story())


@pytest.mark.usefixtures("far_limits")
def test_an_append_to_a_locked_session_waits_without_holding_up_others_and_can_be_cancelled(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with opened(postgres_url) as store:
            mine = await store.acquire("a", owner="me")
            others = [await store.acquire(f"b{number}", owner="me") for number in range(8)]
            with psycopg.connect(postgres_url) as stray:
                stray.execute("SELECT * FROM callgate_sessions WHERE id = 'a' FOR UPDATE")
                waiting = [asyncio.create_task(store.append(mine, fact("x"), position=0)) for _ in range(2)]
                async with asyncio.timeout(SOON_S):
                    for lease in others:
                        await store.append(lease, fact("y"), position=0)
                    waiting[1].cancel()
                    await asyncio.wait({waiting[1]})
                assert waiting[1].cancelled()
                assert not waiting[0].done()
                stray.rollback()
            await waiting[0]
            assert await store.load("a") == fact("x")
            with psycopg.connect(postgres_url) as stray:
                stray.execute("SELECT * FROM callgate_sessions WHERE id = 'a' FOR UPDATE")
                monkeypatch.setattr(database, "LOCKED_S", 0.05)
                with pytest.raises(StoreError, match=r"'a' in postgresql.* locked by another transaction"):
                    await store.renew(mine)
                with pytest.raises(SessionBusyError, match="'a' was not deleted"):
                    await store.delete("a")

    run(story())


@pytest.mark.usefixtures("far_limits")
def test_a_locked_key_delays_no_other_key(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def claim(key: str) -> Claim:
        return Claim(key=key, digest="d", session="s", run="r", owner="me")

    async def story() -> None:
        async with opened(postgres_url) as store:
            assert has_idempotency_keys(store)
            await store.claim(claim("a"))
            with psycopg.connect(postgres_url) as stray:
                stray.execute("SELECT * FROM callgate_claims WHERE key = 'a' FOR UPDATE")
                waiting = asyncio.create_task(store.claim(claim("a")))
                async with asyncio.timeout(SOON_S):
                    await store.claim(claim("b"))
                    await store.unclaim(claim("b"))
                assert not waiting.done()
            assert (await waiting).run == "r"

    run(story())


@pytest.mark.usefixtures("far_limits")
def test_a_frozen_process_in_the_middle_of_a_transaction_costs_its_own_sessions_only(postgres_url: str) -> None:
    program = """
        import asyncio, sys
        from callgate.machine.facts import CallStarted, Renamed
        from callgate.store import open_store, postgres

        async def main():
            postgres.LIMITS["idle_in_transaction_session_timeout"] = "600s"
            store = open_store(sys.argv[1])
            lease = await store.acquire("a", owner="frozen")
            await store.append(lease, [CallStarted(id="a")], position=0)

            def middle(tx):
                tx.run("UPDATE callgate_sessions SET title = 'half' WHERE id = 'a'")
                print("in the middle", flush=True)
                sys.stdin.read()

            await store._database.do(middle)

        asyncio.run(main())
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), postgres_url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdin
    assert child.stdout

    async def story() -> None:
        async with opened(postgres_url) as store:
            async with asyncio.timeout(SOON_S):
                await begun(store, "b")
                with pytest.raises(SessionBusyError):
                    await store.acquire("a", owner="me")
                await begun(store, *(f"c{number}" for number in range(5)))

    try:
        assert child.stdout.readline() == "in the middle\n"
        child.send_signal(signal.SIGSTOP)
        run(story())
    finally:
        child.kill()
        child.communicate()


# Silence and restarts ----------------------------------------------------------------------------------------------------


async def backends(url: str, store: SqlStore) -> list[int]:
    """The server processes of the connections of a store."""
    with psycopg.connect(url) as looking:
        found = looking.execute(
            "SELECT pid FROM pg_stat_activity WHERE application_name = 'callgate' AND datname = current_database()"
        )
        return [pid for (pid,) in found]


def test_a_server_process_that_does_not_answer_is_cut_and_other_sessions_go_on(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LOOK_S", 0.05)

    async def story() -> None:
        async with opened(postgres_url) as store:
            frozen = await frozen_backend(postgres_url, store, "a")
            monkeypatch.setattr(lane, "SILENT_S", 0.2)
            try:
                stuck = asyncio.create_task(store.load("a"))
                await asyncio.sleep(0)
                async with asyncio.timeout(300):
                    with pytest.raises(StoreError, match="cannot be reached"):
                        await stuck
                    monkeypatch.setattr(lane, "SILENT_S", 60.0)
                    assert len(await store.load("a")) == 1
            finally:
                os.kill(frozen, signal.SIGCONT)

    run(story())


def test_lists_and_views_give_up_a_database_that_answers_nothing_and_wait_for_one_that_is_slow(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[bool] = []

    async def asked(*_: object) -> bool:
        answers.append(is_alive)
        return is_alive

    is_alive = True
    monkeypatch.setattr(database.Database, "_answers", asked)

    async def story() -> None:
        nonlocal is_alive
        async with opened(postgres_url) as store:
            await begun(store, "a")
            store.patience_s = 0.05
            assert await store._look(lambda tx: tx.rows("SELECT 1 FROM pg_sleep(1)")) == [(1,)]
            assert answers
            is_alive = False
            frozen = await backends(postgres_url, store)
            for process in frozen:
                os.kill(process, signal.SIGSTOP)
            try:
                with pytest.raises(StoreError, match=r"no answer from .* within 0.05 s"):
                    await store.sessions()
            finally:
                for process in frozen:
                    os.kill(process, signal.SIGCONT)

    run(story())


def test_a_list_is_waited_for_while_every_connection_answers_others(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Postgres, "connections", 2)

    async def story() -> None:
        async with opened(postgres_url) as store:
            await begun(store, "a")
            store.patience_s = 1.5

            def slow(tx: Transaction) -> None:
                tx.rows("SELECT pg_sleep(0.05)")

            for _ in range(100):  # Each with a commit of its own, so that the list waits for all of them.
                store._database._put(database.Operation(slow, is_alone=True))
            assert [info.id for info in await store.sessions()] == ["a"]

    run(story())


async def until_busy(store: SqlStore) -> None:
    while not any(lane.busy_since_s for lane in store._database._lanes):  # noqa: ASYNC110 - a thread, not a task
        await asyncio.sleep(0)


def test_a_look_whose_connection_is_silent_is_answered_on_another_one(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "PROBE_PART", 0.99)  # After 0.6 s, another one has a minute to answer.

    async def story() -> None:
        async with opened(postgres_url) as store:
            store.patience_s = 60.0
            backend = await frozen_backend(postgres_url, store, "a")
            [one] = store._database._lanes
            try:
                looks = [store.load("a"), store.sessions(), store.session_info("a"), store.principal_of("a")]
                facts, infos, info, principal = await asyncio.gather(*looks)
                assert one.busy_since_s is not None, "the first connection is still silent"
            finally:
                os.kill(backend, signal.SIGCONT)
            assert (facts, infos, principal) == (fact("a"), [info], None)
            await begun(store, "b")  # Late answers of the first connection do no harm.

    run(story())


def test_while_all_connections_are_stuck_there_is_one_more(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane, "STUCK_S", 0.05)
    monkeypatch.setattr(database, "LOOK_S", 0.05)
    monkeypatch.setattr(database, "CLOSE_S", 0.05)

    async def story() -> None:
        async with opened(postgres_url) as store:
            await begun(store, "a")

            def stuck(tx: Transaction) -> None:
                tx.rows("SET LOCAL statement_timeout = 0; SELECT pg_sleep(3600)")

            tasks = []
            for _ in range(store.dialect.connections):  # One at a time, or they would share a commit.
                tasks.append(asyncio.create_task(store._database.do(stuck)))
                await asyncio.sleep(0)
                while store.statistics.waiting:  # noqa: ASYNC110 - a thread, not a task
                    await asyncio.sleep(0.01)  # clock: a thread takes it
            assert [info.id for info in await store.sessions()] == ["a"]
            assert [task.done() for task in tasks] == [False] * 4
        await asyncio.gather(*tasks, return_exceptions=True)

    run(story())


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_silent_connection_is_cut_soon_if_another_server_has_taken_the_place_of_its_own(
    is_replaced: bool, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "STUCK_S", 0.05)
    monkeypatch.setattr(lane, "SILENT_S", 3600.0)
    monkeypatch.setattr(database, "LOOK_S", 0.05)
    monkeypatch.setattr(database, "CLOSE_S", 0.05)

    async def story() -> None:
        async with opened(postgres_url) as store:
            frozen = await frozen_backend(postgres_url, store, "a")
            if is_replaced:  # Connections from here on lead to the one that was promoted.
                monkeypatch.setattr(store.dialect, "server_of", lambda connection: "started later")
            try:
                stuck = asyncio.create_task(store._database.do(lambda tx: tx.rows("SELECT 1")))
                await until_busy(store)
                await begun(store, "b")
                if is_replaced:
                    with pytest.raises(StoreError, match="cannot be reached"):
                        await stuck
                    return
                for number in range(20):
                    await begun(store, f"c{number}")
                assert not stuck.done()
            finally:
                os.kill(frozen, signal.SIGCONT)
            assert await stuck == [(1,)]

    run(story())


@pytest.mark.usefixtures("far_limits")
def test_while_one_connection_is_silent_others_are_used(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with opened(postgres_url) as store:
            frozen = await frozen_backend(postgres_url, store, "a")
            try:
                stuck = asyncio.create_task(store.load("a"))
                await until_busy(store)
                async with asyncio.timeout(SOON_S):
                    await begun(store, "b", "c")
                    assert len(await store.load("a")) == 1
                    stuck.cancel()  # A cancelled read does not wait for its answer.
                    await asyncio.wait({stuck})
                monkeypatch.setattr(database, "CLOSE_S", 0.1)
                async with asyncio.timeout(SOON_S):
                    await store.aclose()  # Nor does a closing.
            finally:
                os.kill(frozen, signal.SIGCONT)

    run(story())


def test_the_first_operations_after_a_restart_of_the_database_succeed(postgres_url: str) -> None:
    async def story() -> None:
        async with opened(postgres_url) as store:
            lease = await store.acquire("a", owner="me")
            for number in range(3):
                with psycopg.connect(postgres_url, autocommit=True) as looking:
                    for pid in await backends(postgres_url, store):
                        looking.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
                await store.append(lease, fact(f"x{number}"), position=number)
            assert len(await store.load("a")) == 3

    run(story())


def test_a_connection_that_is_lost_at_the_commit_is_not_used_to_write_twice(postgres_url: str) -> None:
    async def story() -> None:
        async with opened(postgres_url) as store:
            lease = await store.acquire("a", owner="me")
            connection = store._database._lanes[0]._connection
            commit = connection.commit

            def lost() -> None:
                commit()
                store._dialect.cut(connection)
                commit()
                connection.execute("SELECT 1")

            connection.commit = lost
            await store.append(lease, fact("x"), position=0)
            await store.append(lease, fact("y"), position=1)
            assert await store.load("a") == [*fact("x"), *fact("y")]
            assert store.statistics.retries == 1

    run(story())


def test_what_a_run_writes_while_the_database_is_away_is_written_when_it_is_back_and_what_begins_is_refused(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with opened(postgres_url) as store:
            leases = [await store.acquire(session, owner="me") for session in ("a", "b")]
            connect, refused = store.dialect.connect, asyncio.Event()
            loop, is_away = asyncio.get_running_loop(), True

            def away() -> Any:
                if is_away:
                    loop.call_soon_threadsafe(refused.set)
                    return psycopg.connect("postgresql://127.0.0.1:1/none")
                return connect()

            monkeypatch.setattr(store.dialect, "connect", away)
            with psycopg.connect(postgres_url, autocommit=True) as looking:
                for pid in await backends(postgres_url, store):
                    looking.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
            writes = [asyncio.create_task(store.append(lease, fact("x"), position=0)) for lease in leases]
            renewal = asyncio.create_task(store.renew(leases[0]))
            await refused.wait()
            with pytest.raises(StoreError, match="cannot be reached"):
                await store.acquire("c", owner="me")
            is_away = False
            await asyncio.gather(*writes, renewal)
            assert [await store.load(session) for session in ("a", "b")] == [fact("x"), fact("x")]

    run(story())


def test_a_run_whose_database_stays_away_ends_with_an_error(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "AWAY_S", 0.2)

    async def story() -> None:
        async with opened(postgres_url) as store:
            lease = await store.acquire("a", owner="me")
            nowhere = "postgresql://127.0.0.1:1/none"
            monkeypatch.setattr(store.dialect, "connect", lambda: psycopg.connect(nowhere))
            with psycopg.connect(postgres_url, autocommit=True) as looking:
                for pid in await backends(postgres_url, store):
                    looking.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
            with pytest.raises(StoreError, match="cannot be reached"):
                await store.append(lease, fact("x"), position=0)

    run(story())


def test_after_a_time_in_which_the_database_could_only_be_read_it_is_written_to_again(postgres_url: str) -> None:
    name = postgres_url.rpartition("/")[2]

    async def story() -> None:
        async with opened(postgres_url) as store, opened(postgres_url) as other:
            await begun(store, "a")
            await begun(other, "b")
            with psycopg.connect(postgres_url, autocommit=True) as looking:
                looking.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
                for pid in [*await backends(postgres_url, store)]:
                    looking.execute("SELECT pg_terminate_backend(%s, 60000)", [pid])
                with pytest.raises(StoreError, match="can only be read"):
                    await store.acquire("a", owner="me")
                looks, refused = store.sessions(), store.acquire("c", owner="me")
                infos, error = await asyncio.gather(looks, refused, return_exceptions=True)
                assert {info.id for info in infos} == {"a", "b"}
                assert isinstance(error, StoreError)
                looking.execute("SET default_transaction_read_only = off")
                looking.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
            await begun(store, "d")

    run(story())


# Poolers and roles -------------------------------------------------------------------------------------------------------


def test_nothing_outlasts_a_transaction_so_that_a_pooler_can_stand_in_between(postgres_url: str) -> None:
    async def story() -> None:
        async with opened(postgres_url) as store:
            lease = await store.acquire("a", owner="me")
            for number in range(12):  # More often than psycopg waits before it prepares a statement.
                await store.append(lease, fact("x"), position=number)
            [lane] = store._database._lanes
            found = lane._connection.execute("SELECT name FROM pg_prepared_statements").fetchall()
            limits = lane._connection.execute("SELECT current_setting('lock_timeout')").fetchall()
            assert (found, limits) == ([], [("0",)])

    run(story())


def test_every_transaction_has_limits_unless_the_url_sets_others(postgres_url: str) -> None:
    def limits(tx: Transaction) -> list[str]:
        names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "synchronous_commit")
        return [tx.rows(f"SHOW {name}")[0][0] for name in names]

    async def story(url: str) -> list[str]:
        async with opened(url) as store:
            return await store._database.do(limits)

    assert run(story(postgres_url)) == ["1s", "15s", "15s", "off"]
    own = "?options=-c%20statement_timeout%3D60s%20-c%20synchronous_commit%3Don"
    assert run(story(postgres_url + own)) == ["1s", "1min", "15s", "on"]


def test_a_database_whose_transactions_are_serializable_by_default_is_used_by_many_at_once(postgres_url: str) -> None:
    async def story() -> None:
        with psycopg.connect(postgres_url, autocommit=True) as owner:
            name = postgres_url.rpartition("/")[2]
            owner.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = serializable")
        async with opened(postgres_url) as one, opened(postgres_url) as another:
            await asyncio.gather(*(begun((one, another)[number % 2], f"s{number}") for number in range(20)))
            assert len(await one.sessions()) == 20

    run(story())


def other_encoding(server: str, encoding: str) -> str:
    """The URL of a new database whose encoding is not UTF8."""
    name = f"test_{os.urandom(6).hex()}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as owner:
        owner.execute(f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    return f"{server}/{name}"


def test_a_database_that_cannot_hold_every_text_is_refused_when_it_is_opened(postgres_server: str) -> None:
    async def story() -> None:
        async with opened(other_encoding(postgres_server, "LATIN1")) as store:
            with pytest.raises(StoreError, match=r"has the encoding LATIN1, .*ENCODING 'UTF8'"):
                await store.acquire("s", owner="me")

    run(story())


@pytest.mark.parametrize("option", ["", "?client_encoding=latin1"])
def test_titles_of_every_script_are_listed_whatever_encoding_the_client_is_set_to(postgres_server: str, option: str) -> None:
    async def story() -> None:
        async with opened(other_encoding(postgres_server, "SQL_ASCII") + option) as store:
            lease = await store.acquire("日本", owner="me")
            await store.append(lease, [Renamed(title="Grüße 😀")], position=0)
            assert [(info.id, info.title) for info in await store.sessions()] == [("日本", "Grüße 😀")]

    run(story())


def test_a_copy_may_take_long_but_not_hold_its_locks_when_it_is_frozen(postgres_url: str) -> None:
    async def story() -> None:
        async with opened(postgres_url) as store:
            with contextlib.closing(store.dialect.connect()) as connection:
                store.dialect.begin_long(connection)
                names = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
                assert [connection.execute(f"SHOW {name}").fetchone()[0] for name in names] == ["10s", "0", "2min"]

    run(story())


def test_a_full_disk_of_the_database_is_named_so() -> None:
    dialect = Postgres("postgresql://me:secret@db/x")
    said = dialect.sentence(psycopg.errors.DiskFull('could not extend file "base/1": No space left on device'))
    assert said.startswith("the disk of the database postgresql://me@db/x is full (could not extend file")


def small_role(url: str, *rights: str) -> str:
    """A role that may not create tables in the database, and its URL."""
    role = f"small_{os.urandom(4).hex()}"
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
        owner.execute(f"CREATE ROLE {role} LOGIN")
        for right in rights:
            owner.execute(f"GRANT {right} ON ALL TABLES IN SCHEMA public TO {role}")
    return url.replace("callgate@", f"{role}@")


def test_a_role_that_may_not_create_tables_uses_those_that_are_there(postgres_url: str) -> None:
    async def story() -> None:
        with pytest.raises(StoreError, match="callgate store migrate"):
            async with opened(small_role(postgres_url)) as store:
                await store.sessions()
        async with opened(postgres_url) as store:
            await begun(store, "a")
        async with opened(small_role(postgres_url, "SELECT, INSERT, UPDATE, DELETE")) as store:
            await begun(store, "b")
            assert len(await store.sessions()) == 2

    run(story())


def test_a_database_that_can_only_be_read_is_listed_and_says_so_when_it_is_written_to(postgres_url: str) -> None:
    async def story() -> None:
        async with opened(postgres_url) as store:
            await begun(store, "a")
        async with opened(postgres_url + "?options=-c%20default_transaction_read_only%3Don") as store:
            assert [info.id for info in await store.sessions()] == ["a"]
            assert len(await store.load("a")) == 1
            with pytest.raises(StoreError, match="can only be read"):
                await store.acquire("b", owner="me")

    run(story())


def test_a_process_that_runs_meets_tables_of_a_newer_version_and_changes_nothing_in_them(
    open_sql: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "CHECK_S", 0.0)

    async def story() -> None:
        store = open_sql()
        await begun(store, "a")
        lease = await store.acquire("a", owner="me")
        await store._database.do(lambda tx: tx.run("UPDATE callgate_meta SET value = '2' WHERE key = 'schema'"))
        for work in (
            store.append(lease, fact("b"), position=1),
            store.acquire("b", owner="me"),
            store.sessions(),
            store.delete("a"),
            store.renew(lease),
        ):
            with pytest.raises(StoreError, match=r"another version of callgate \(schema 2, and this one knows 1\)"):
                await work
        monkeypatch.setattr(schema, "SCHEMA_VERSION", 2)
        assert await store.load("a") == fact("a")

    run(story())


def test_a_table_that_was_dropped_is_noticed_by_operations_that_do_not_use_it_and_made_again(
    open_sql: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lane, "CHECK_S", 0.0)
    monkeypatch.setattr(lane, "TABLES_S", 0.0)

    async def story() -> None:
        store = open_sql()
        await begun(store, "a")
        for dropped in (table for table in schema.TABLES if table != "callgate_facts"):
            await store._database.do(lambda tx, dropped=dropped: tx.run(f"DROP TABLE {dropped}"))
            assert await store.load("a") == fact("a")
            assert dropped in await store._database.do(store.dialect.tables)
            assert f"lacked tables, which were made: {dropped}." in caplog.text

    run(story())


def test_an_operation_that_meets_a_table_that_was_dropped_succeeds(open_sql: Callable[[], SqlStore]) -> None:
    async def story() -> None:
        store = open_sql()
        await begun(store, "a")
        await store._database.do(lambda tx: tx.run("DROP TABLE callgate_claims"))
        claim = Claim(key="k", digest="d", session="a", run="r", owner="me")
        assert await store.claim(claim) == claim

    run(story())


def test_a_store_without_all_tables_says_which_are_missing_where_they_may_not_be_made(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "CHECK_S", 0.0)
    monkeypatch.setattr(lane, "TABLES_S", 0.0)

    async def story() -> None:
        async with opened(postgres_url) as owner:
            await begun(owner, "a")
            async with opened(small_role(postgres_url, "SELECT, INSERT, UPDATE, DELETE")) as store:
                assert len(await store.load("a")) == 1
                await owner._database.do(lambda tx: tx.run("DROP TABLE callgate_claims"))
                for _ in range(2):
                    with pytest.raises(StoreError, match=r"lacks the tables callgate_claims, .*callgate store migrate"):
                        await store.load("a")
                assert len(await owner.load("a")) == 1
                role = store.dialect.place.partition("//")[2].partition("@")[0]
                await owner._database.do(lambda tx: tx.run(f"GRANT SELECT ON callgate_claims TO {role}"))
                assert len(await store.load("a")) == 1

    run(story())


def test_tables_of_a_newer_version_are_refused_and_left_alone(open_sql: Callable[[], SqlStore]) -> None:
    async def story() -> None:
        store = open_sql()
        await store._database.do(lambda tx: tx.run("UPDATE callgate_meta SET value = '2' WHERE key = 'schema'"))
        await store._database.do(lambda tx: tx.run("DROP TABLE callgate_claims"))
        await store.aclose()
        with pytest.raises(StoreError, match="another version of callgate"):
            await store.sessions()
        await store.aclose()
        connection = store._dialect.connect()
        try:
            store._dialect.begin(connection, durable=False)
            assert "callgate_claims" not in store._dialect.tables(Transaction(connection, store._dialect))
        finally:
            connection.close()

    run(story())


# Durability, replicas and impatience ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("durable", "expected"), [("effects", ["off", "on"]), ("everything", ["on", "on"])])
def test_facts_wait_for_the_disk_before_effects_or_always(postgres_url: str, durable: Any, expected: list[str]) -> None:
    async def story() -> None:
        store = open_store(postgres_url, durable=durable)
        assert isinstance(store, SqlStore)
        seen: list[str] = []
        begin = store._dialect.begin

        def begun(connection: Any, *, durable: bool) -> None:
            begin(connection, durable=durable)
            seen.append(connection.execute("SHOW synchronous_commit").fetchone()[0])

        lease = await store.acquire("a", owner="me")
        store._dialect.begin = begun  # type: ignore[method-assign]
        await store.append(lease, fact("x"), position=0)
        await store.append(lease, fact("y"), position=1, durable=True)
        assert seen == expected
        await store.aclose()

    run(story())


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes connections and says nothing, as a frozen one."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        yield server


def accepted(server: socket.socket) -> int:
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            server.accept()[0].close()
            count += 1
    return count


def test_of_several_servers_one_that_was_silent_is_tried_last(postgres_url: str, silent: socket.socket) -> None:
    given = psycopg.conninfo.conninfo_to_dict(postgres_url)
    hosts = {"host": f"127.0.0.1,{given['host']}", "port": f"{silent.getsockname()[1]},{given['port']}"}
    url = psycopg.conninfo.make_conninfo(postgres_url, **hosts, target_session_attrs="read-write")
    dialect = Postgres(url)
    for _ in range(3):
        dialect.connect().close()
    assert accepted(silent) == 1  # Each try would cost its time-out.


def test_that_none_of_several_servers_can_be_used_is_said_of_each(silent: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        ports = (silent.getsockname()[1], gone.getsockname()[1])
    dialect = Postgres("postgresql://u@{0}:{1},{0}:{2}/d".format("127.0.0.1", *ports))
    with pytest.raises(psycopg.OperationalError) as said:
        dialect.connect()
    assert [f"127.0.0.1:{port}: " in str(said.value) for port in ports] == [True, True]
    assert dialect.passing(said.value) == "away"


@pytest.mark.parametrize(
    "more", ["port=1,2,3", "port=1,2 hostaddr=127.0.0.1,127.0.0.1", "port=1,2 load_balance_hosts=random"]
)
def test_an_order_of_servers_that_the_driver_knows_is_left_to_it(more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[dict[str, Any]] = []

    def connect(url: str, **options: Any) -> None:
        tried.append(options)
        raise psycopg.OperationalError

    monkeypatch.setattr(psycopg, "connect", connect)
    with pytest.raises(psycopg.OperationalError):
        Postgres(f"host=a,b {more}").connect()
    assert [{"host", "port"} & set(options) for options in tried] == [set()]


def test_a_durability_that_is_none_is_refused(postgres_url: str) -> None:
    with pytest.raises(UsageError, match="use 'effects' or 'everything'"):
        open_store(postgres_url, durable="sometimes")  # type: ignore[arg-type]


def test_lists_and_exports_are_read_from_the_replica_while_it_answers(postgres_url: str, postgres_server: str) -> None:
    copy = f"{postgres_server}/replica_{os.urandom(4).hex()}"
    with psycopg.connect(f"{postgres_server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {copy.rpartition('/')[2]}")

    async def story() -> None:
        async with opened(copy) as replica:
            await begun(replica, "old")
        store = open_store(postgres_url, replica=copy)
        assert isinstance(store, SqlStore)
        await begun(store, "old", "new")
        assert [info.id for info in await store.sessions()] == ["old"]
        assert [info.id for info in await store.session_page(limit=5)] == ["old"]
        assert (await store.read("new"), len(await store.load("new"))) == ([], 1)
        with psycopg.connect(f"{postgres_server}/postgres", autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {copy.rpartition('/')[2]} WITH (FORCE)")
        assert {info.id for info in await store.sessions()} == {"old", "new"}
        assert len(await store.read("new")) == 1
        await store.aclose()

    run(story())


def test_a_run_that_begins_does_not_wait_for_a_silent_server_and_its_lease_is_released_later(postgres_url: str) -> None:
    async def story() -> None:
        async with opened(postgres_url) as store:
            frozen = await frozen_backend(postgres_url, store, "a", "b")
            store.patience_s = 0.2
            try:
                with pytest.raises(StoreError, match=r"no answer from .* within 0\.2 s"):
                    await store.acquire("a", owner="first")
            finally:
                os.kill(frozen, signal.SIGCONT)
            store.patience_s = 60.0
            while True:  # The first one is carried out now, and released since nobody wants it.
                try:
                    lease = await store.acquire("a", owner="second")
                    break
                except SessionBusyError:
                    await asyncio.sleep(0)
            assert lease.position == 1
            assert store.statistics.failures == 1

    run(story())


async def cancelled(store: SqlStore) -> None:
    """Begin to acquire a session, and cancel it."""
    task = asyncio.create_task(store.acquire("a", owner="me"))
    await until_busy(store)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def refused(store: SqlStore) -> None:
    """Begin to acquire a session, which the store gives up."""
    store.patience_s = 0.2
    with pytest.raises(StoreError, match=r"no answer from .* within 0\.2 s"):
        await store.acquire("a", owner="me")
    store.patience_s = 60.0


@asynccontextmanager
async def frozen_connection(url: str, store: SqlStore, *sessions: str) -> AsyncIterator[None]:
    """Freeze the server process of the store's connection; after the thaw, everything that it was asked is done."""
    frozen = await frozen_backend(url, store, *sessions)
    try:
        yield
    finally:
        os.kill(frozen, signal.SIGCONT)
    await until_idle(store)


@pytest.mark.parametrize("given_up", [refused, cancelled])
def test_a_run_keeps_its_session_though_one_of_the_same_owner_was_given_up_before(
    postgres_url: str, given_up: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CANCEL_S", 0.2)

    async def story() -> None:
        async with opened(postgres_url) as store:
            async with frozen_connection(postgres_url, store, "a"):
                await given_up(store)
                lease = await store.acquire("a", owner="me")
            await store.append(lease, fact("b"), position=1)
            await store.release(lease)
            assert (await store.acquire("a", owner="other")).position == 2

    run(story())


GIVEN_UP: dict[str, Callable[[SqlStore], Coroutine[Any, Any, object]]] = {
    "deletion": lambda store: store.delete("a"),
    "fork": lambda store: store.copy("a", "b"),
    "answer": lambda store: store.put_answer("a", "call", "yes"),
    "owner": lambda store: store.assign("new", "somebody"),
    "key": lambda store: store.claim(Claim(key="k", digest="d", session="a", run="r", owner="o", position=1)),
}
"""Operations that their callers count as not done when they have given up."""


@pytest.mark.parametrize("name", GIVEN_UP)
def test_what_was_given_up_while_the_database_did_not_answer_is_not_done_when_it_does(
    postgres_url: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "CANCEL_S", 0.2)

    async def story() -> None:
        async with opened(postgres_url) as store:
            async with frozen_connection(postgres_url, store, "a"):
                task = asyncio.create_task(GIVEN_UP[name](store))
                await until_busy(store)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                lease = await store.acquire("a", owner="me")
                await store.append(lease, fact("b"), position=1)
                await store.release(lease)
            assert [(info.id, info.facts) for info in await store.sessions()] == [("a", 2)]
            tables = ("callgate_answers", "callgate_principals", "callgate_claims")
            left = [await store._database.do(lambda tx, table=table: tx.rows(f"SELECT * FROM {table}")) for table in tables]
            assert left == [[], [], []]

    run(story())


def test_a_lease_lasts_no_longer_than_its_term_though_the_clock_was_put_back(open_sql: Callable[[], SqlStore]) -> None:
    async def story() -> None:
        store = open_sql()
        await store.acquire("a", owner="elsewhere")
        later = "UPDATE callgate_sessions SET expires_s = expires_s + 3600"
        await store._database.do(lambda tx: tx.run(later))
        with pytest.raises(SessionBusyError):
            await store.acquire("a", owner="me")
        [(left_s,)] = await store._database.do(
            lambda tx: [(float(tx.rows("SELECT expires_s FROM callgate_sessions")[0][0]) - tx.lease_now_s(),)]
        )
        assert 0 < left_s <= LEASE_S

    run(story())


# Signals -----------------------------------------------------------------------------------------------------------------


def test_after_the_listening_connection_was_lost_other_connections_of_the_process_are_read(postgres_url: str) -> None:
    async def story() -> None:
        async with opened(postgres_url) as store:
            await begun(store, "a")
            signals = store.dialect.answer_signal()
            while not signals.is_heard:
                await signals.wait(signals.mark)
            with psycopg.connect(postgres_url, autocommit=True) as other:
                sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%%' AND datname = %s"
                assert other.execute(sql, (other.info.dbname,)).fetchall() == [(True,)]
            while signals.is_heard:
                await signals.wait(signals.mark)
            for _ in range(20):  # One of them gets the number that was the connection's.
                here, there = socket.socketpair()
                reader, writer = await asyncio.open_connection(sock=here)
                there.send(b"x")
                assert await reader.readexactly(1) == b"x"
                open_too.append((writer, there))
            for writer, there in open_too:
                writer.close()
                await writer.wait_closed()
                there.close()
            await signals.aclose()

    open_too: list[tuple[asyncio.StreamWriter, socket.socket]] = []
    run(story())
