"""The journal in a file: whose it is, what happens when it is damaged or the disk is full, and what can still be read."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import sqlite3
import stat
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
from callgate.errors import SessionBusyError, StoreError
from callgate.machine.facts import CallStarted, Fact, Renamed, RunStarted, Unreadable
from callgate.sessions import load
from callgate.store import LEASE_S, database, sql, sqlite
from callgate.store.owner import is_gone, new_owner, shown
from callgate.store.sqlite import salvaged, sqlite_store
from callgate.testing import call, text


def run(story: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    return asyncio.run(story())


def facts_of(count: int) -> list[Fact]:
    return [CallStarted(id=f"{number:08d}" * 20) for number in range(count)]


async def filled(path: Path, session: str, facts: list[Fact]) -> None:
    store = sqlite_store(path)
    lease = await store.acquire(session, owner="me")
    await store.append(lease, facts, position=0)
    await store.release(lease)
    await store.aclose()


def test_the_file_and_its_folder_are_the_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state" / "sessions.db"
    before = os.umask(0)
    try:
        run(lambda: filled(path, "x", facts_of(1)))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_new_file_that_another_process_is_about_to_write_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")  # SQLite refuses to switch the file to its log at once now, it does not wait.
    release = threading.Timer(0.2, other.close)
    release.start()
    run(lambda: filled(path, "x", facts_of(1)))
    release.join()
    assert list(salvaged(path)) == [("x", facts_of(1), None)]


def test_a_new_file_that_stays_in_use_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "BUSY_S", 0.05)
    path = tmp_path / "sessions.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"was in use by another process for more than 0\.05 s; try again"):
            run(lambda: filled(path, "x", facts_of(1)))


def test_a_file_that_is_no_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    path.write_bytes(b"These are my notes.\n" * 100)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"is damaged .*nothing was written to it"):
        run(lambda: filled(path, "x", facts_of(1)))
    assert path.read_bytes() == before
    with pytest.raises(StoreError, match=r"nothing of .* can be read"):
        list(salvaged(path))


def test_what_a_damaged_file_still_holds_can_be_read_and_the_file_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    facts = facts_of(2_000)
    run(lambda: filled(path, "x", facts))
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size * 3 // 4)
        file.write(b"\xff" * 40_000)
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"damaged|cannot be read"):
        run(lambda: sqlite_store(path).load("x"))
    [(session, readable, problem)] = list(salvaged(path))
    assert session == "x"
    assert 0 < len(readable) < len(facts)
    assert readable == facts[: len(readable)]
    assert problem
    assert path.read_bytes() == before


def test_a_whole_file_is_salvaged_whole(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    run(lambda: filled(path, "x", facts_of(3)))
    assert list(salvaged(path)) == [("x", facts_of(3), None)]


def test_a_full_disk_is_a_sentence_and_loses_nothing_that_was_written(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    store = sqlite_store(path)

    async def story() -> None:
        lease = await store.acquire("x", owner="me")
        await store.append(lease, facts_of(1), position=0)
        # SQLite gives the same error for a file that may not grow as for a disk that is full.
        pages = sqlite3.connect(path).execute("PRAGMA page_count").fetchone()[0]
        await store._database.do(lambda tx: tx.run(f"PRAGMA max_page_count = {pages + 2}"))  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(StoreError, match="is full; everything up to here is kept"):
            await store.append(lease, facts_of(2_000), position=1)
        assert await store.load("x") == facts_of(1)
        await store.append(lease, facts_of(1), position=1)
        await store.aclose()

    run(story)


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be"):
        run(lambda: sqlite_store(tmp_path / "file" / "sessions.db").sessions())


def test_a_file_of_a_later_version_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    run(lambda: filled(path, "x", facts_of(1)))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE callgate_meta SET value = '99' WHERE key = 'schema'")
    with pytest.raises(StoreError, match="schema 99, and this one knows 1"):
        run(lambda: sqlite_store(path).sessions())


@pytest.mark.parametrize(
    ("held", "body"),
    [
        ("X'7B7D'", b"{}"),
        ("X'FF00'", b"\xff\x00"),
        ("CAST(X'7BFF' AS TEXT)", b"{\xff"),
        ("9000000000000", b"9000000000000"),
        ("""'{"v": 1, "kind": "of tomorrow"}'""", b'{"v": 1, "kind": "of tomorrow"}'),
        ("""'{"v": 1, "kind": "call_started", "id": {}}'""", b'{"v": 1, "kind": "call_started", "id": {}}'),
    ],
)
def test_a_damaged_row_costs_one_fact_and_is_copied_as_it_is(tmp_path: Path, held: str, body: bytes) -> None:
    path = tmp_path / "sessions.db"
    facts = facts_of(3)
    run(lambda: filled(path, "x", facts))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE callgate_facts SET body = {held} WHERE position = 1")

    async def story() -> list[Fact]:
        store = sqlite_store(path)
        found = await store.load("x")
        await store.copy("x", "copy")
        lease = await store.acquire("written", owner="me")
        await store.append(lease, found, position=0)
        assert await store.load("copy") == await store.load("written") == found
        assert await store.load("x", start=1) == found[1:]
        await store.aclose()
        return found

    first, damaged, last = run(story)
    assert (first, last) == (facts[0], facts[2])
    assert isinstance(damaged, Unreadable)
    assert (damaged.body, bool(damaged.problem)) == (body, True)
    assert ("x", [first, damaged, last], None) in list(salvaged(path))


def test_a_session_that_a_later_version_has_written_to_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    run(lambda: filled(path, "x", facts_of(1)))
    with sqlite3.connect(path) as connection:
        connection.execute("""INSERT INTO callgate_facts VALUES ('x', 1, '{"v": 2, "kind": "recovered"}')""")
    with pytest.raises(StoreError, match=r"session 'x' cannot be read: .*schema version 2"):
        run(lambda: sqlite_store(path).load("x"))


def test_a_dead_owners_session_is_free_at_once(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    program = """
        import asyncio, os, sys
        from callgate.store.owner import new_owner
        from callgate.store.sqlite import sqlite_store

        async def main():
            store = sqlite_store(sys.argv[1])
            await store.acquire("x", owner=new_owner(), lease_s=1000)
            print("held", flush=True)
            sys.stdin.read()

        asyncio.run(main())
    """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"held\n"
    with pytest.raises(SessionBusyError, match=f"in use by process {child.pid} on "):
        run(lambda: sqlite_store(path).acquire("x", owner=new_owner()))
    child.kill()
    child.wait()
    child.stdout.close()
    assert child.stdin is not None
    child.stdin.close()
    assert run(lambda: sqlite_store(path).acquire("x", owner=new_owner())).fence == 2


def test_an_owner_is_gone_only_when_that_is_sure() -> None:
    me = new_owner()
    assert not is_gone(me)
    host, world, pid, started, work = me.split("|")
    assert is_gone("|".join([host, world, pid, "1", work]))
    assert not is_gone("|".join(["elsewhere", world, pid, "1", work]))
    assert not is_gone("|".join([host, "another boot", pid, "1", work]))
    assert not is_gone("somebody")
    assert shown(me) == f"process {os.getpid()} on {host}"
    assert shown("somebody") == "somebody"
    assert started


def test_the_title_comes_with_the_first_words_and_stays_until_another_is_given(tmp_path: Path) -> None:
    async def story() -> list[str]:
        store = sqlite_store(tmp_path / "sessions.db")
        lease = await store.acquire("x", owner="me")
        titles: list[str] = []
        for position, words in enumerate(["", "First words.", "Second words."]):
            said = RunStarted(content={"role": "user", "parts": [{"text": words}]})
            await store.append(lease, [said], position=position)
            titles.append((await store.sessions())[0].title)
        for position, given in enumerate([Renamed(title="A name"), Renamed(title="Another"), said], start=3):
            await store.append(lease, [given], position=position)
            titles.append((await store.sessions())[0].title)
        await store.aclose()
        return titles

    assert run(story) == ["", "First words.", "First words.", "A name", "Another", "Another"]


@pytest.mark.parametrize(
    "damage",
    [
        *[f"DELETE FROM callgate_facts WHERE position = {position}" for position in (0, 1, 2)],
        "DELETE FROM callgate_facts WHERE position = (SELECT MAX(position) FROM callgate_facts)",
        "UPDATE callgate_sessions SET facts = 999", "UPDATE callgate_sessions SET facts = 0",
        "UPDATE callgate_sessions SET facts = 'x'",
    ],
)  # fmt: skip
def test_a_session_goes_on_where_rows_are_missing_or_their_count_is_wrong(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "sessions.db"

    async def story() -> list[str]:
        async with Gate(ScriptedModel(["One."]), store=path) as gate:
            await gate.run("First.", session="s")
        connection = sqlite3.connect(path)
        connection.execute(damage)
        connection.commit()
        connection.close()
        answers: list[str] = []
        for said in ("Two.", "Three."):
            async with Gate(ScriptedModel([said]), store=path) as gate:
                answers.append((await gate.run("Next.", session="s")).text)
        return answers

    assert asyncio.run(story()) == ["Two.", "Three."]


# A file that others have locked, or that cannot be written -----------------------------------------------------------------


def test_a_locked_file_holds_up_a_cancelled_run_for_a_moment_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "CANCEL_S", 0.05)
    monkeypatch.setattr(sql, "RELEASE_S", 0.05)
    monkeypatch.setattr("callgate.run.sessions.STOP_WAIT_S", 0.05)
    monkeypatch.setattr(sqlite, "BUSY_S", 600.0)  # What waits for that limit waits for ever.
    started = asyncio.Event()

    async def note() -> str:
        started.set()
        await asyncio.sleep(3600)
        return "never"

    async def story() -> None:
        path = tmp_path / "s.db"
        async with Gate(ScriptedModel([call("note"), text("Done.")]), tools=[note], store=str(path)) as gate:
            task = asyncio.create_task(gate.run("Go.", session="s"))
            await asyncio.wait_for(started.wait(), 60)
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as stray:
                stray.execute("BEGIN IMMEDIATE")
                task.cancel()
                assert await asyncio.wait({task}, timeout=60) == ({task}, set())
                assert task.cancelled()
                stray.execute("ROLLBACK")
        async with Gate(ScriptedModel([text("Again.")]), tools=[note], store=str(path)) as gate:
            assert (await load(gate.store, "s")).state == "interrupted"

    asyncio.run(story())


def test_operations_that_find_the_file_locked_fail_together_and_not_one_after_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_S", 0.2)

    async def story() -> None:
        store = sqlite_store(tmp_path / "s.db")
        await store.sessions()
        with contextlib.closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as stray:
            stray.execute("BEGIN IMMEDIATE")
            began_s = time.monotonic()
            waiting = [store.acquire(f"s{number}", owner="me") for number in range(400)]
            found = await asyncio.gather(*waiting, return_exceptions=True)
            assert {type(one) for one in found} == {StoreError}
            assert time.monotonic() - began_s < 400 * 0.2 / 2  # clock: one wait after another takes 80 s
        await store.aclose()

    asyncio.run(story())


def left_behind(path: Path, *, sessions: int) -> None:
    """Make a store as a killed process leaves it: everything is in its write-ahead log."""
    program = """
        import asyncio, os, sys
        from callgate.machine.facts import CallStarted
        from callgate.store.sqlite import sqlite_store

        async def main():
            store = sqlite_store(sys.argv[1])
            for number in range(int(sys.argv[2])):
                lease = await store.acquire(f"s{number}", owner="me")
                await store.append(lease, [CallStarted(id="a")], position=0)
            os.kill(os.getpid(), 9)

        asyncio.run(main())
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), str(path), str(sessions)], check=False, timeout=60)
    assert path.with_name(f"{path.name}-wal").stat().st_size


def test_lists_and_views_give_up_a_file_that_another_process_has_locked_and_wait_for_one_that_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sessions.db"
    monkeypatch.setattr(sqlite, "BUSY_S", 3600.0)
    slow, go_on = threading.Event(), threading.Event()

    async def story() -> None:
        await filled(path, "x", facts_of(1))
        store = sqlite_store(path)
        store.patience_s = 0.3
        await store.sessions()

        def long(tx: Any) -> str:
            slow.set()
            go_on.wait(60)
            return "over"

        wanted = asyncio.create_task(store._database.do(long, reads=True, silence_s=store.patience_s))
        await asyncio.to_thread(slow.wait, 60)
        behind = asyncio.create_task(store.sessions())
        await asyncio.sleep(4 * store.patience_s)  # clock: longer than a file that answers nothing is waited for
        go_on.set()
        assert (await wanted, len(await behind)) == ("over", 1)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as stray:
            stray.execute("BEGIN IMMEDIATE")
            looks = [store.sessions(), store.load("x"), store.read("x"), store.session_info("x"), store.delete("x")]
            errors = await asyncio.gather(*looks, return_exceptions=True)
            stray.execute("ROLLBACK")
        assert [str(error) for error in errors] == [f"no answer from {path} within 0.3 s"] * 5
        await store.aclose()

    run(story)


def test_what_was_given_up_while_the_file_was_locked_is_neither_read_nor_deleted_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, read = tmp_path / "sessions.db", list[int]()
    monkeypatch.setattr(sqlite, "BUSY_S", 3600.0)

    async def story() -> None:
        await filled(path, "x", facts_of(1))
        store = sqlite_store(path)
        await store.sessions()
        store.patience_s = 0.3
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as stray:
            stray.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError):
                await store.delete("x")  # It waits for the lock; what comes after it waits for the connection.
            for number in range(3):
                with pytest.raises(StoreError):
                    await store._database.do(lambda tx, n=number: read.append(n), reads=True, patience_s=0.3)
            stray.execute("ROLLBACK")
        store.patience_s = 60.0
        assert (len(await store.sessions()), read) == (1, [])
        await store.aclose()

    run(story)


@pytest.mark.parametrize("has_index", [True, False])
def test_what_only_the_write_ahead_log_holds_is_salvaged_and_no_file_is_changed(tmp_path: Path, has_index: bool) -> None:
    path = tmp_path / "odd name #1?.db"
    left_behind(path, sessions=5)
    if not has_index:
        path.with_name(f"{path.name}-shm").unlink()
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith("-shm")}
    found = list(salvaged(path))
    assert [(session, len(facts), problem) for session, facts, problem in found] == [
        (f"s{number}", 1, None) for number in range(5)
    ]
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir() if not file.name.endswith("-shm")} == before


@pytest.mark.parametrize("left", ["log and index", "log", "nothing"])
def test_a_file_that_may_not_be_written_can_be_listed_and_exported(
    tmp_path: Path, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    left_behind(path, sessions=3)
    if left == "log":
        path.with_name("s.db-shm").unlink()
    elif left == "nothing":
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def refused(file: Any, flags: int, *rest: Any) -> int:
        raise OSError(errno.EROFS, "Read-only file system", str(file))

    monkeypatch.setattr("callgate.store.sqlite.os.open", refused)

    async def story() -> None:
        store = sqlite_store(path)
        assert [len(await store.load(info.id)) for info in await store.sessions()] == [1, 1, 1]
        with pytest.raises(StoreError, match="cannot be written"):
            await store.acquire("new", owner="me")
        assert len(await store.sessions()) == 3
        await store.aclose()

    run(story)


@pytest.mark.parametrize("jump_s", [3600.0, -3600.0])
def test_a_live_owner_keeps_its_lease_though_the_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    async def story() -> None:
        owner, other = sqlite_store(tmp_path / "s.db"), sqlite_store(tmp_path / "s.db")
        lease = await owner.acquire("x", owner="elsewhere")
        now, up = time.time, sqlite.Sqlite.uptime_s
        monkeypatch.setattr(time, "time", lambda: now() + jump_s)
        late = sqlite_store(tmp_path / "s.db")  # Another process, which knows nothing of the time before.
        for store in (other, late):
            with pytest.raises(SessionBusyError):
                await store.acquire("x", owner="me")
        await owner.renew(lease)
        await owner.append(lease, facts_of(1), position=0)
        assert [info.owner for info in await late.sessions()] == ["elsewhere"]
        monkeypatch.setattr(sqlite.Sqlite, "uptime_s", staticmethod(lambda: up() + LEASE_S + 1))
        assert (await late.acquire("x", owner="me")).position == 1
        for store in (owner, other, late):
            await store.aclose()

    run(story)


def test_a_lease_of_another_boot_ends_after_its_term(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        before = sqlite_store(tmp_path / "s.db")
        await before.acquire("x", owner="elsewhere")
        up = sqlite.Sqlite.uptime_s
        monkeypatch.setattr(sqlite, "boot_id", lambda: "another")
        monkeypatch.setattr(sqlite.Sqlite, "uptime_s", staticmethod(lambda: 5.0))
        after = sqlite_store(tmp_path / "s.db")
        with pytest.raises(SessionBusyError):
            await after.acquire("x", owner="me")
        monkeypatch.setattr(sqlite.Sqlite, "uptime_s", staticmethod(lambda: 7.0 + LEASE_S))
        assert (await after.acquire("x", owner="me")).fence == 2
        monkeypatch.setattr(sqlite.Sqlite, "uptime_s", up)
        for store in (before, after):
            await store.aclose()

    run(story)


def test_where_no_time_since_the_boot_is_known_leases_go_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown() -> str:
        raise FileNotFoundError(errno.ENOENT, "no such file")

    async def story() -> None:
        monkeypatch.setattr(sqlite, "boot_id", unknown)
        store = sqlite_store(tmp_path / "s.db")
        await store.acquire("x", owner="elsewhere")
        with pytest.raises(SessionBusyError):
            await store.acquire("x", owner="me")
        now = time.time
        monkeypatch.setattr(time, "time", lambda: now() + LEASE_S + 1)
        assert (await store.acquire("x", owner="me")).fence == 2
        await store.aclose()

    run(story)


# A file that is replaced --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["removed", "replaced", "moved away"])
def test_what_is_written_after_the_file_was_replaced_is_in_the_file_that_is_there(way: str, tmp_path: Path) -> None:
    path = tmp_path / "s.db"

    async def story() -> None:
        await filled(tmp_path / "other.db", "of the other", facts_of(1))
        store = sqlite_store(path)
        await store.release(await store.acquire("before", owner="me"))
        for suffix in ("", "-wal", "-shm"):
            file = path.with_name(path.name + suffix)
            file.rename(tmp_path / f"away{suffix}") if way == "moved away" else file.unlink()
        if way == "replaced":
            (tmp_path / "other.db").rename(path)
        lease = await store.acquire("after", owner="me")
        await store.append(lease, facts_of(2), position=0)
        await store.release(lease)
        await store.aclose()
        again = sqlite_store(path)
        expected = {"after", "of the other"} if way == "replaced" else {"after"}
        assert {info.id for info in await again.sessions()} == expected
        assert await again.load("after") == facts_of(2)
        await again.aclose()

    run(story)


@pytest.mark.parametrize("way", ["replaced", "moved away"])
@pytest.mark.parametrize("is_read", [False, True], ids=["", "while another process reads it"])
def test_the_log_of_a_file_that_was_moved_alone_is_never_that_of_the_one_in_its_place(
    way: str, is_read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_S", 0.0 if is_read else sqlite.BUSY_S)
    path, away = tmp_path / "s.db", tmp_path / "away.db"
    there = {"of the other"} if way == "replaced" else set[str]()

    async def sessions(file: Path) -> set[str]:
        store = sqlite_store(file)
        found = {info.id for info in await store.sessions() if info.facts == len(await store.load(info.id))}
        await store.aclose()
        return found

    async def story() -> None:
        await filled(tmp_path / "other.db", "of the other", facts_of(1))
        first, second = sqlite_store(path), sqlite_store(path)
        for name, store in [("one", first), ("two", second)]:
            await store.append(await store.acquire(name, owner="me"), facts_of(3), position=0)
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as reader:
            if is_read:
                reader.execute("BEGIN").close()
                reader.execute("SELECT COUNT(*) FROM callgate_facts").fetchone()
                await first.append(await first.acquire("three", owner="me"), facts_of(3), position=0)
            if way == "replaced":
                (tmp_path / "other.db").rename(path)
            else:
                path.rename(away)
            for store in (first, second):
                assert {info.id for info in await store.sessions()} == there
            await filled(path, "after", facts_of(1))
        await first.aclose()
        await second.aclose()
        assert await sessions(path) == {"after"} | there

    run(story)
    assert "was moved or replaced while it was in use" in caplog.text
    if way == "moved away":
        for log in tmp_path.glob("s.db-wal.moved-*"):
            log.rename(away.with_name("away.db-wal"))
        assert run(lambda: sessions(away)) == {"one", "two"} | ({"three"} if is_read else set())


def test_a_replica_that_fails_is_not_asked_again_for_a_while(tmp_path, caplog, monkeypatch) -> None:
    async def story() -> None:
        store = sql.SqlStore(
            sqlite.Sqlite(tmp_path / "s.db"), replica=sqlite.Sqlite(tmp_path / "missing.db", read_only=True)
        )
        try:
            assert [await store.sessions() for _ in range(3)] == [[], [], []]
            assert sum("the replica is not used" in record.message for record in caplog.records) == 1
            monkeypatch.setattr(store, "_replica_after_s", 0.0)
            assert await store.sessions() == []
            assert sum("the replica is not used" in record.message for record in caplog.records) == 2
        finally:
            await store.aclose()

    asyncio.run(story())


def test_a_deleted_text_is_in_no_file_of_the_store_any_more(tmp_path: Path) -> None:
    path, secret = tmp_path / "sessions.db", "a text that nobody may read"

    def holders() -> list[str]:
        return [file.name for file in tmp_path.iterdir() if secret.encode() in file.read_bytes()]

    async def story() -> None:
        store = sqlite_store(path)
        for session in ("a", "b"):
            lease = await store.acquire(session, owner="me")
            content: Any = {"role": "user", "parts": [{"text": secret if session == "a" else "hello"}]}
            await store.append(lease, [RunStarted(content=content)], position=0)
            await store.release(lease)
        assert holders() != []
        assert await store.delete("a")
        assert holders() == []
        assert [info.id for info in await store.sessions()] == ["b"]
        await store.aclose()

    asyncio.run(story())
