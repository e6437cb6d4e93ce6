"""The store's thread: it outlives whatever happens in an operation, and nobody waits for one that is gone."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, ScriptedModel
from callgate.errors import JsonError, StoreError
from callgate.machine import codec
from callgate.machine.facts import CallEnded, CallStarted, RunStarted
from callgate.store import Lease, database, lane
from callgate.store.database import Database
from callgate.store.dialect import Transaction
from callgate.store.sql import SqlStore
from callgate.store.sqlite import Sqlite, sqlite_store
from callgate.types import ToolResult

ODD = [
    UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed"), MemoryError(), KeyboardInterrupt(), SystemExit(1),
    GeneratorExit(), RuntimeError("odd"),
]  # fmt: skip


def run(story: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(300):
            return await story()

    return asyncio.run(bounded())


def open_database(tmp_path: Path) -> Database:
    return Database(Sqlite(tmp_path / "sessions.db"))


def mark(key: str) -> Callable[[Transaction], int]:
    return lambda tx: tx.run("INSERT INTO callgate_meta VALUES (?, '')", key)


def marks(tx: Transaction) -> list[str]:
    return [key for (key,) in tx.rows("SELECT key FROM callgate_meta WHERE key <> 'schema' ORDER BY key")]


def raising(error: BaseException) -> Callable[[Transaction], None]:
    def work(tx: Transaction) -> None:
        mark("half done")(tx)
        raise error

    return work


class Held:
    """Keeps the thread busy, so that what is asked for meanwhile comes in one batch."""

    def __init__(self) -> None:
        self.begun, self.release = threading.Event(), threading.Event()

    def __call__(self, tx: Transaction) -> None:
        self.begun.set()
        assert self.release.wait(60)

    async def until_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.wait, 60)


@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
def test_an_operation_that_raises_anything_fails_alone_and_leaves_nothing_behind(
    tmp_path: Path, error: BaseException
) -> None:
    async def story() -> None:
        store = open_database(tmp_path)
        with pytest.raises(StoreError, match=rf"sessions\.db failed with {type(error).__name__}") as raised:
            await store.do(raising(error))
        assert raised.value.__cause__ is error
        await store.do(mark("next"))
        assert await store.do(marks) == ["next"]
        await store.aclose()

    run(story)


@pytest.mark.parametrize("error", ODD, ids=lambda error: type(error).__name__)
def test_an_operation_that_raises_anything_does_not_fail_the_others_of_its_commit(
    tmp_path: Path, error: BaseException
) -> None:
    async def story() -> None:
        store, held = open_database(tmp_path), Held()
        first = asyncio.create_task(store.do(held))
        await held.until_begun()
        others = [asyncio.create_task(store.do(work)) for work in (mark("a"), raising(error), mark("b"))]
        await asyncio.sleep(0)
        held.release.set()
        outcomes = await asyncio.gather(first, *others, return_exceptions=True)
        assert outcomes[:2] + outcomes[3:] == [None, 1, 1]
        assert isinstance(outcomes[2], StoreError)
        assert await store.do(marks) == ["a", "b"]
        await store.aclose()

    run(story)


def test_a_fault_of_the_store_itself_is_answered_and_the_thread_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        store = open_database(tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(lane, "failure", lambda dialect, error: 1 / 0)
            with pytest.raises(StoreError, match="failed with ZeroDivisionError"):
                await store.do(raising(RuntimeError()))
        await store.do(mark("next"))
        assert await store.do(marks) == ["next"]
        await store.aclose()

    run(story)


def test_a_connection_that_cannot_be_opened_for_any_reason_is_a_store_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="null byte"):
        run(lambda: sqlite_store(f"{tmp_path}/a\0b").sessions())


def test_a_caller_that_is_cancelled_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "CANCEL_S", 0.05)

    async def story() -> None:
        store, held = open_database(tmp_path), Held()
        stuck = asyncio.create_task(store.do(held))
        await held.until_begun()
        waiting = asyncio.create_task(store.do(mark("never begun")))
        await asyncio.sleep(0)
        for task in (stuck, waiting):
            task.cancel()
        await asyncio.wait({stuck, waiting})
        assert stuck.cancelled()
        assert waiting.cancelled()
        held.release.set()
        await store.do(mark("next"))
        assert await store.do(marks) == ["next"]
        await store.aclose()

    run(story)


def test_a_caller_that_is_cancelled_learns_of_it_after_the_operation(tmp_path: Path) -> None:
    async def story() -> None:
        store, held, after = open_database(tmp_path), Held(), list[str]()

        async def caller() -> None:
            await store.do(held)
            after.append("carried out")
            await asyncio.sleep(60)

        task = asyncio.create_task(caller())
        await held.until_begun()
        task.cancel()
        await asyncio.sleep(0)
        held.release.set()
        await asyncio.wait({task})
        assert (task.cancelled(), after) == (True, ["carried out"])
        await store.aclose()

    run(story)


def test_a_look_that_is_over_together_with_its_time_limit_leaves_no_cancellation_behind(tmp_path: Path) -> None:
    async def story() -> None:
        database = open_database(tmp_path)
        await database.do(marks, reads=True)

        async def look() -> str:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.01):  # clock: the loop is held for longer
                    await database.do(marks, reads=True)
            await asyncio.sleep(0)
            return "over"

        task = asyncio.create_task(look())
        await asyncio.sleep(0)
        busy(database)
        assert await task == "over"
        await database.aclose()

    run(story)


def busy(database: Database) -> None:
    """Keep the event loop until the threads have done everything, and for longer than a short time limit."""
    while database.statistics.waiting or any(lane.busy_since_s for lane in database._lanes):
        time.sleep(0.01)  # clock: a thread does it
    time.sleep(0.05)  # clock: the limit is 0.01 s


def test_a_run_whose_release_is_over_together_with_its_time_limit_leaves_no_cancellation_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callgate.run.sessions.RELEASE_WAIT_S", 0.01)

    async def story() -> None:
        store = sqlite_store(tmp_path / "s.db")

        class Slow(SqlStore):
            async def release(self, lease: Lease) -> None:
                asyncio.get_running_loop().call_soon(busy, self._database)
                await super().release(lease)

        async with Gate(ScriptedModel(["Hello."]), store=Slow(store.dialect)) as gate:
            reply = await gate.run("Hi.", session="s")
            await asyncio.sleep(0)
            assert reply.text == "Hello."

    run(story)


def test_an_operation_whose_thread_is_gone_fails_and_the_next_one_gets_a_new_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "LOOK_S", 0.01)

    async def story() -> None:
        store = open_database(tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(lane.Lane, "_serve", lambda self: None)
            with pytest.raises(StoreError, match=r"no program writes to .*sessions\.db any more"):
                await store.do(marks)
        assert await store.do(marks) == []
        await store.aclose()

    run(story)


def test_a_thread_that_cannot_be_started_is_a_store_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    async def story() -> None:
        store = open_database(tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", start)
            with pytest.raises(StoreError, match="interpreter shutdown"):
                await store.do(marks)
        assert await store.do(marks) == []
        await store.aclose()

    run(story)


def test_a_forked_child_fails_what_its_parent_waited_for_and_has_a_thread_of_its_own(tmp_path: Path) -> None:
    program = """
        import asyncio, os, sys, threading
        from callgate.errors import StoreError
        from callgate.store.sqlite import sqlite_store

        async def main():
            store = sqlite_store(sys.argv[1])
            begun, release = threading.Event(), threading.Event()

            def held():
                begun.set()
                release.wait(60)

            waiting = asyncio.create_task(store._database.persist(lambda tx: None, prepare=held))
            while not begun.is_set():
                await asyncio.sleep(0)
            child = os.fork()
            if child == 0:  # Which must leave the event loop alone: it shares the loop's file descriptors.
                try:
                    await waiting
                except StoreError as error:
                    assert "has forked" in str(error)
                    threading.Thread(target=lambda: os._exit(7 if asyncio.run(store.sessions()) == [] else 8)).start()
                    release.wait(60)
                finally:
                    os._exit(9)
            await asyncio.to_thread(lambda: print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
            release.set()
            await waiting
            await store.aclose()

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program), str(tmp_path / "sessions.db")],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("7\n", 0), done.stderr


class WatchedLock:
    """A lock that calls `between` when it is let go of for the first time."""

    def __init__(self, between: Callable[[], None]) -> None:
        self._lock, self._between = threading.Lock(), [between]

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()
        if self._between:
            self._between.pop()()


def test_an_operation_of_another_thread_while_the_store_is_closed_does_not_hold_up_either(tmp_path: Path) -> None:
    store, before = open_database(tmp_path), set(threading.enumerate())
    found: list[Any] = []

    def elsewhere() -> None:
        async def operation() -> None:
            found.append(await store.do(marks))

        thread = threading.Thread(target=lambda: asyncio.run(operation()))
        thread.start()
        thread.join()

    async def story() -> None:
        await store.do(mark("first"))
        store._lock = WatchedLock(elsewhere)  # type: ignore[assignment]
        await store.aclose()
        assert found == [["first"]]
        await store.aclose()
        assert set(threading.enumerate()) <= before

    run(story)


# Encoding ---------------------------------------------------------------------------------------------------------------


def ended(value: Any) -> CallEnded:
    return CallEnded(id="a", result=ToolResult(call_id="a", name="f", status="finished", value=value))


def test_facts_are_encoded_off_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[str] = []
    encode = codec.encode

    def watched(fact: Any) -> bytes:
        threads.append(threading.current_thread().name)
        return encode(fact)

    async def story() -> None:
        store = sqlite_store(tmp_path / "sessions.db")
        monkeypatch.setattr(codec, "encode", watched)
        lease = await store.acquire("x", owner="me")
        await store.append(lease, [ended(list(range(10_000)))], position=0)
        assert await store.load("x") == [ended(list(range(10_000)))]
        await store.aclose()

    run(story)
    assert threads == ["callgate-store"]


@pytest.mark.parametrize(
    "value", [float("nan"), object(), "\udcff", {"a": {1: object()}}], ids=["nan", "object", "text", "deep"]
)
def test_an_append_that_cannot_be_encoded_fails_alone_and_writes_nothing(tmp_path: Path, value: Any) -> None:
    async def story() -> None:
        store, held = sqlite_store(tmp_path / "sessions.db"), Held()
        one, two = [await store.acquire(session, owner="me") for session in ("one", "two")]
        first = asyncio.create_task(store._database.do(held))
        await held.until_begun()
        bad = asyncio.create_task(store.append(one, [CallStarted(id="a"), ended(value)], position=0))
        good = asyncio.create_task(store.append(two, [CallStarted(id="b")], position=0))
        await asyncio.sleep(0)
        held.release.set()
        outcomes = await asyncio.gather(first, bad, good, return_exceptions=True)
        assert isinstance(outcomes[1], JsonError)
        assert (outcomes[0], outcomes[2]) == (None, None)
        assert (await store.load("one"), await store.load("two")) == ([], [CallStarted(id="b")])
        await store.append(one, [CallStarted(id="c")], position=0)
        assert await store.load("one") == [CallStarted(id="c")]
        await store.aclose()

    run(story)


def test_an_append_whose_value_fails_in_a_way_of_its_own_is_a_store_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(fact: Any) -> bytes:
        raise RuntimeError("not today")

    async def story() -> None:
        store = sqlite_store(tmp_path / "sessions.db")
        lease = await store.acquire("x", owner="me")
        with monkeypatch.context() as patched:
            patched.setattr(codec, "encode", encode)
            with pytest.raises(StoreError, match="failed with RuntimeError: not today"):
                await store.append(lease, [CallStarted(id="a")], position=0)
        await store.append(lease, [CallStarted(id="b")], position=0)
        assert await store.load("x") == [CallStarted(id="b")]
        await store.aclose()

    run(story)


def test_a_title_that_no_database_can_hold_does_not_keep_the_facts_out(tmp_path: Path) -> None:
    async def story() -> None:
        store = sqlite_store(tmp_path / "sessions.db")
        lease = await store.acquire("x", owner="me")
        await store.append(lease, [RunStarted(content={"role": "user", "parts": [{"text": "a\0b"}]})], position=0)
        assert [info.title for info in await store.sessions()] == ["a\ufffdb"]
        await store.aclose()

    run(story)
