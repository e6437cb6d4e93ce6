"""`callgate store`: tables are created by hand, and a store is copied while it is in use."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from callgate.cli import cli
from callgate.machine.facts import CallStarted
from callgate.store import Claim, open_store, transfer
from callgate.store.dialect import Dialect
from callgate.store.sql import SqlStore


def shell(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli, [str(word) for word in words])
    return result.exit_code, result.output


def dialect_of(place: str) -> Dialect:
    store = open_store(place)
    assert isinstance(store, SqlStore)
    return store.dialect


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_tables_are_checked_and_created(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    place = str(tmp_path / "s.db") if kind == "sqlite" else request.getfixturevalue("postgres_url")
    code, out = shell("store", "migrate", "--check", "--store", place)
    assert (code, "missing: callgate_meta, callgate_sessions" in out) == (1, True)
    assert shell("store", "migrate", "--check", "--store", place)[0] == 1, "a check changes nothing"
    assert "created: callgate_meta" in shell("store", "migrate", "--store", place)[1]
    for words in (["--check"], []):
        code, out = shell("store", "migrate", *words, "--store", place)
        assert (code, "schema 1 is current" in out) == (0, True)


def test_tables_of_a_newer_version_are_not_migrated(tmp_path: Path) -> None:
    shell("store", "migrate", "--store", tmp_path / "s.db")
    with sqlite3.connect(tmp_path / "s.db") as connection:
        connection.execute("UPDATE callgate_meta SET value = '7'")
    connection.close()
    assert shell("store", "migrate", "--check", "--store", tmp_path / "s.db")[0] == 1
    code, out = shell("store", "migrate", "--store", tmp_path / "s.db")
    assert (code, "another version of callgate (schema 7" in out) == (1, True)


def test_a_backup_of_a_store_in_use_holds_everything_that_was_committed(tmp_path: Path) -> None:
    async def story() -> None:
        store = open_store(tmp_path / "s.db")
        assert isinstance(store, SqlStore)
        lease = await store.acquire("a", owner="me")
        await store.append(lease, [CallStarted(id="x")], position=0)
        await store.claim(Claim(key="k", digest="d", session="a", run="r", owner="me"))
        before = await store.sessions()
        code, out = await asyncio.to_thread(shell, "store", "backup", tmp_path / "copy.db", "--store", tmp_path / "s.db")
        assert (code, "1 sessions" in out) == (0, True), out
        await store.append(lease, [CallStarted(id="y")], position=1)
        copy = open_store(tmp_path / "copy.db")
        assert isinstance(copy, SqlStore)
        assert (await copy.load("a"), await copy.sessions()) == (
            [CallStarted(id="x")],
            [replace(info, owner=None) for info in before],
        )
        assert (await copy.claim(Claim(key="k", digest="d", session="b", run="other", owner="you"))).run == "r"
        await store.aclose()
        await copy.aclose()

    asyncio.run(story())
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob(".copy*"))
    assert shell("store", "backup", tmp_path / "copy.db", "--store", tmp_path / "s.db")[0] == 2
    assert shell("store", "backup", tmp_path / "other.db", "--store", tmp_path / "none.db")[0] == 1


def filled(place: Path | str, count: int) -> None:
    async def story() -> None:
        store = open_store(place)
        for number in range(count):
            lease = await store.acquire(f"s{number}", owner="me")
            await store.append(lease, [CallStarted(id="x")], position=0)
            await store.release(lease)
        await store.aclose()

    asyncio.run(story())


def listed(place: object) -> list[str]:
    async def story() -> list[str]:
        store = open_store(str(place))
        try:
            return sorted(info.id for info in await store.sessions())
        finally:
            await store.aclose()

    return asyncio.run(story())


def test_a_backup_of_either_store_is_restored_in_the_other(tmp_path: Path, postgres_url: str) -> None:
    filled(tmp_path / "s.db", 3)
    shell("store", "backup", tmp_path / "1.db", "--store", tmp_path / "s.db")
    code, out = shell("store", "restore", tmp_path / "1.db", "--store", postgres_url)
    assert (code, "3 sessions, 3 facts" in out, listed(postgres_url)) == (0, True, ["s0", "s1", "s2"]), out
    code, out = shell("store", "backup", tmp_path / "2.db", "--store", postgres_url)
    assert (code, "3 sessions, 3 facts" in out) == (0, True), out
    assert shell("store", "restore", tmp_path / "2.db", "--store", tmp_path / "new.db")[0] == 0
    assert listed(tmp_path / "new.db") == ["s0", "s1", "s2"]
    code, out = shell("store", "restore", tmp_path / "2.db", "--store", postgres_url)
    assert (code, "0 facts were new" in out) == (0, True), "it may be repeated"


def test_a_damaged_backup_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    filled(tmp_path / "s.db", 2)
    shell("store", "backup", tmp_path / "b.db", "--store", tmp_path / "s.db")
    with closing(sqlite3.connect(tmp_path / "b.db")) as connection:
        connection.execute("UPDATE callgate_facts SET body = ? WHERE session = 's1'", (b"{}",))
        connection.commit()
    code, out = shell("store", "restore", tmp_path / "b.db", "--store", tmp_path / "new.db")
    assert (code, "b.db is damaged: its hash is" in out, (tmp_path / "new.db").exists()) == (1, True, False)


def test_a_restore_says_if_the_file_has_no_hash_to_compare_it_with(tmp_path: Path) -> None:
    filled(tmp_path / "a.db", 2)
    assert shell("store", "backup", tmp_path / "b.db", "--store", tmp_path / "a.db")[0] == 0
    assert "has no hash in it" not in shell("store", "restore", tmp_path / "b.db", "--store", tmp_path / "1.db")[1]
    code, out = shell("store", "restore", tmp_path / "a.db", "--store", tmp_path / "2.db")
    assert (code, "a.db has no hash in it" in out) == (0, True)


def test_a_store_is_not_restored_over_another_one_but_can_be_copied_to_it(tmp_path: Path) -> None:
    filled(tmp_path / "s.db", 2)
    shell("store", "backup", tmp_path / "b.db", "--store", tmp_path / "s.db")
    filled(tmp_path / "other.db", 3)
    code, out = shell("store", "restore", tmp_path / "b.db", "--store", tmp_path / "other.db")
    assert (code, "1 session that is not in the backup ('s2')" in out) == (1, True), out
    code, out = shell("store", "copy", tmp_path / "b.db", tmp_path / "third.db")
    assert (code, "2 sessions, 2 facts" in out) == (0, True), out
    filled(tmp_path / "mine.db", 1)
    code, out = shell("store", "copy", tmp_path / "mine.db", tmp_path / "third.db")
    assert (code, "not copied: session 's0' has other facts there" in out) == (0, False), out


async def another_begins(store: SqlStore) -> None:
    await written(store, "s3", "y")


async def two_begin(store: SqlStore) -> None:
    await written(store, "s2", "y")
    await written(store, "s3", "y")


async def one_is_in_use(store: SqlStore) -> None:
    await store.append(await store.acquire("s3", owner="me"), [CallStarted(id="x")], position=0)


async def a_call_is_answered(store: SqlStore) -> None:
    await written(store, "s3", "x")
    assert await store.put_answer("s3", "call", '{"answer": "yes"}')


async def a_key_is_used(store: SqlStore) -> None:
    await written(store, "s3", "x")
    await store.claim(Claim(key="k", digest="d", session="s3", run="r", owner="me"))


async def written(store: SqlStore, session: str, call: str) -> None:
    lease = await store.acquire(session, owner="me")
    await store.append(lease, [CallStarted(id=call)], position=0)
    await store.release(lease)


CONFLICTS = [
    (another_begins, "session 's3' has other facts there. Restore", "session 's3'"),
    (two_begin, "session 's2' has other facts there; session 's3' has other facts there. Restore", "session 's2'"),
    (one_is_in_use, "session 's3' is in use by", "session 's3'"),
    (a_call_is_answered, "session 's3' has an answer there for a call that waits. Restore", "session 's3'"),
    (a_key_is_used, "1 idempotency key stands for another session there. Restore", "1 idempotency key stands"),
]


@pytest.mark.parametrize(("conflict", "why", "left_out"), CONFLICTS)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_restore_over_a_session_that_went_on_writes_nothing_and_says_why(
    kind: str,
    conflict: Callable[[SqlStore], Awaitable[None]],
    why: str,
    left_out: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    target = str(tmp_path / "t.db") if kind == "sqlite" else request.getfixturevalue("postgres_url")
    filled(tmp_path / "s.db", 4)

    async def story() -> None:
        for place in (tmp_path / "s.db", target):
            store = open_store(place)
            assert isinstance(store, SqlStore)
            if place == target:
                await conflict(store)
            else:
                await store.claim(Claim(key="k", digest="d", session="s0", run="r", owner="me"))
            await store.aclose()

    asyncio.run(story())
    shell("store", "backup", tmp_path / "b.db", "--store", tmp_path / "s.db")
    before = transfer.store_digest(dialect_of(target))
    code, out = shell("store", "restore", tmp_path / "b.db", "--store", target)
    assert (code, "nothing was written to" in out, why in out) == (1, True, True), out
    assert transfer.store_digest(dialect_of(target)) == before
    code, out = shell("store", "copy", tmp_path / "b.db", target)
    assert (code, len(listed(target)), f"not copied: {left_out}" in out) == (1, 4, True), out


def test_wrong_copies_are_refused(tmp_path: Path) -> None:
    filled(tmp_path / "s.db", 1)
    assert shell("store", "copy", tmp_path / "s.db", tmp_path / "s.db")[0] == 2
    code, out = shell("store", "copy", tmp_path / "none.db", tmp_path / "t.db")
    assert (code, "there is no store" in out, (tmp_path / "none.db").exists()) == (1, True, False)


# Tables ------------------------------------------------------------------------------------------------------------------


def test_a_look_at_the_tables_of_a_file_that_is_not_there_makes_none(tmp_path: Path) -> None:
    for words in (["--check"], ["--dry-run"]):
        shell("store", "migrate", *words, "--store", tmp_path / "folder" / "s.db")
    assert list(tmp_path.iterdir()) == []


def test_the_sql_of_a_dry_run_makes_the_tables_and_a_dry_run_none(tmp_path: Path, postgres_url: str) -> None:
    import psycopg

    code, statements = shell("store", "migrate", "--dry-run", "--store", tmp_path / "s.db")
    assert (code, statements.splitlines()[0]) == (0, "BEGIN;")
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        connection.executescript(statements)
    assert shell("store", "migrate", "--check", "--store", tmp_path / "s.db")[0] == 0
    assert shell("store", "migrate", "--dry-run", "--store", tmp_path / "s.db") == (0, "-- nothing to do\n")
    code, statements = shell("store", "migrate", "--dry-run", "--store", postgres_url)
    assert shell("store", "migrate", "--check", "--store", postgres_url)[0] == 1
    with psycopg.connect(postgres_url, autocommit=True) as database:
        database.execute(statements.encode())
    assert shell("store", "migrate", "--check", "--store", postgres_url)[0] == 0
    with psycopg.connect(postgres_url, autocommit=True) as database:
        database.execute("UPDATE callgate_meta SET value = '7'")
    code, out = shell("store", "migrate", "--dry-run", "--store", postgres_url)
    assert (code, "another version of callgate (schema 7" in out) == (1, True)
    assert shell("store", "migrate", "--check", "--dry-run", "--store", postgres_url)[0] == 2


def test_one_role_makes_the_tables_another_one_uses_them_and_a_third_one_reads_them(
    tmp_path: Path, postgres_url: str
) -> None:
    import psycopg

    owner, app, reader = (f"{name}_{os.urandom(4).hex()}" for name in ("owner", "app", "reader"))

    def url(role: str) -> str:
        return postgres_url.replace("callgate@", f"{role}@")

    with psycopg.connect(postgres_url, autocommit=True) as admin:
        for role in (owner, app, reader):
            admin.execute(f"CREATE ROLE {role} LOGIN".encode())
        admin.execute(f"ALTER DATABASE {admin.info.dbname} OWNER TO {owner}".encode())
        admin.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    code, out = shell("store", "migrate", "--store", url(app))
    assert (code, "lets this role do too little" in out) == (1, True), out
    assert shell("store", "migrate", "--store", url(owner))[0] == 0
    with psycopg.connect(url(owner), autocommit=True) as admin:
        for rights, role in (("SELECT, INSERT, UPDATE, DELETE", app), ("SELECT", reader)):
            admin.execute(f"GRANT {rights} ON ALL TABLES IN SCHEMA public TO {role}".encode())
            admin.execute(f"ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT {rights} ON TABLES TO {role}".encode())
        admin.execute("DROP TABLE callgate_usage")  # As one that a later version adds.
    assert shell("store", "migrate", "--check", "--store", url(app))[0] == 1
    assert "created: callgate_usage" in shell("store", "migrate", "--store", url(owner))[1]
    assert shell("store", "migrate", "--check", "--store", url(app))[0] == 0
    filled(url(app), 2)
    assert shell("sessions", "list", "--store", url(reader))[0] == 0
    assert shell("store", "backup", tmp_path / "b.db", "--store", url(reader))[0] == 0
    assert listed(tmp_path / "b.db") == ["s0", "s1"]
    code, out = shell("sessions", "delete", "s0", "--yes", "--store", url(reader))
    assert (code, "permission denied for table callgate_sessions" in out) == (1, True), out
    assert shell("sessions", "delete", "s0", "--yes", "--store", url(app))[0] == 0
    assert shell("store", "copy", "--with-deleted", tmp_path / "b.db", url(app))[0] == 0
    assert listed(url(reader)) == ["s0", "s1"]


# Backups that fail -------------------------------------------------------------------------------------------------------


def test_what_a_killed_backup_left_is_removed_after_a_day_and_not_before(tmp_path: Path) -> None:
    filled(tmp_path / "s.db", 1)
    old, new = tmp_path / ".1.callgate-partial", tmp_path / ".2.callgate-partial"
    for file in (old, old.with_name(f"{old.name}-wal"), new, new.with_name(f"{new.name}-wal")):
        file.touch()
        os.utime(file, (0, 0))
    os.utime(new.with_name(f"{new.name}-wal"))  # Somebody writes to it.
    assert shell("store", "backup", tmp_path / "b.db", "--store", tmp_path / "s.db")[0] == 0
    left = {file.name for file in tmp_path.iterdir() if not file.name.startswith("s.db-")}
    assert left == {"s.db", "b.db", new.name, f"{new.name}-wal"}


def test_a_backup_is_made_where_files_have_no_second_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    filled(tmp_path / "s.db", 2)
    name = "b" * 240  # Nearly as long as a name can be.
    assert shell("store", "backup", tmp_path / name, "--store", tmp_path / "s.db")[0] == 0
    assert listed(tmp_path / name) == ["s0", "s1"]


def test_a_backup_that_finds_no_room_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "s.db", 3)
    program = f"""
import resource, signal
from callgate.cli import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
raise SystemExit(main(["store", "backup", {str(tmp_path / "b.db")!r}, "--store", {str(tmp_path / "s.db")!r}]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, "b.db was not made, and nothing is left of it" in done.stderr) == (1, True), done.stderr
    assert {file.name for file in tmp_path.iterdir() if not file.name.startswith("s.db-")} == {"s.db"}


def test_a_backup_that_is_terminated_leaves_nothing(tmp_path: Path) -> None:
    filled(tmp_path / "s.db", 3)
    program = f"""
import os, signal
from callgate.cli import main, store
store._seal = lambda *_: os.kill(os.getpid(), signal.SIGTERM)
raise SystemExit(main(["store", "backup", {str(tmp_path / "b.db")!r}, "--store", {str(tmp_path / "s.db")!r}]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 128 + 15, done.stderr
    assert {file.name for file in tmp_path.iterdir() if not file.name.startswith("s.db-")} == {"s.db"}


@pytest.mark.parametrize(
    "words", [("store", "backup", "b.db"), ("sessions", "delete", "s0"), ("sessions", "list"), ("chat",), ("serve",)]
)
def test_a_store_without_a_name_is_not_the_usual_one(words: tuple[str, ...]) -> None:
    code, out = shell(*words, "--store", "")
    assert (code, "--store" in out and "it is empty" in out) == (2, True), out


def test_a_restore_does_not_change_the_backup_and_can_read_one_that_nobody_may_write(tmp_path: Path) -> None:
    filled(tmp_path / "s.db", 2)
    (tmp_path / "kept").mkdir()
    backup = tmp_path / "kept" / "b.db"
    shell("store", "backup", backup, "--store", tmp_path / "s.db")
    before = backup.read_bytes()
    backup.chmod(0o400)
    assert shell("store", "restore", backup, "--store", tmp_path / "new.db")[0] == 0
    assert (backup.read_bytes() == before, os.listdir(tmp_path / "kept")) == (True, ["b.db"])
    assert listed(tmp_path / "new.db") == ["s0", "s1"]


def test_two_backups_at_once_are_both_whole(tmp_path: Path) -> None:
    filled(tmp_path / "s.db", 30)
    words = [sys.executable, "-m", "callgate", "store", "backup"]
    both = [
        subprocess.Popen([*words, str(tmp_path / name), "--store", str(tmp_path / "s.db")], stdout=subprocess.DEVNULL)
        for name in ("1.db", "2.db")
    ]
    assert [one.wait() for one in both] == [0, 0]
    assert listed(tmp_path / "1.db") == listed(tmp_path / "2.db") == listed(tmp_path / "s.db")


# Copies ------------------------------------------------------------------------------------------------------------------


def test_a_store_is_not_copied_to_itself_under_another_name(tmp_path: Path, postgres_url: str) -> None:
    filled(tmp_path / "s.db", 1)
    (tmp_path / "link.db").symlink_to("s.db")
    (tmp_path / "folder").symlink_to(".")
    names = [tmp_path / "link.db", f"sqlite:///{tmp_path / 'folder' / 's.db'}"]
    shell("store", "migrate", "--store", postgres_url)
    others = [(tmp_path / "s.db", name) for name in names] + [(postgres_url, postgres_url.replace("127.0.0.1", "localhost"))]
    for source, target in others:
        code, out = shell("store", "copy", source, target)
        assert (code > 0, "FROM and TO are the same store" in out) == (True, True), out
    with closing(sqlite3.connect(tmp_path / "s.db")) as connection:
        assert connection.execute("SELECT COUNT(*) FROM callgate_meta WHERE key LIKE 'copy%'").fetchall() == [(0,)]


def test_an_answer_that_was_given_in_the_target_is_not_lost_to_a_second_copy(tmp_path: Path) -> None:
    filled(tmp_path / "s.db", 2)
    shell("store", "copy", tmp_path / "s.db", tmp_path / "t.db")

    async def answered() -> list[tuple[str, str]]:
        store = open_store(tmp_path / "t.db")
        assert isinstance(store, SqlStore)
        await store.put_answer("s1", "call", '{"answer": "yes"}')
        waiting = await store.waiting_answers()
        await store.aclose()
        return waiting

    before = asyncio.run(answered())
    code, out = shell("store", "copy", tmp_path / "s.db", tmp_path / "t.db")
    assert (code, "not copied: session 's1' has an answer there for a call that waits" in out) == (1, True), out
    assert asyncio.run(answered()) == before == [("s1", "call")]


def test_a_copy_says_how_many_sessions_are_in_the_target_alone(tmp_path: Path) -> None:
    filled(tmp_path / "s.db", 1)
    filled(tmp_path / "t.db", 3)
    with closing(sqlite3.connect(tmp_path / "t.db")) as connection:  # As a session that was deleted in the source since.
        connection.execute("DELETE FROM callgate_facts WHERE session = 's0'")
        connection.execute("DELETE FROM callgate_sessions WHERE id = 's0'")
        connection.commit()
    code, out = shell("store", "copy", tmp_path / "s.db", tmp_path / "t.db")
    assert (code, "; 2 other sessions are there, too" in out) == (0, True), out


def test_a_session_that_goes_on_in_the_target_right_after_it_was_copied_is_told_and_the_others_are_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(tmp_path / "s.db", 3)

    class Busy(transfer.StoreReader):
        """Somebody else writes to a session as soon as it is committed, and deletes another one."""

        def has(self, session: str) -> bool:
            if session == "s1":
                self._tx.run("INSERT INTO callgate_facts VALUES ('s1', 1, x'7b7d')")
                self._tx.run("UPDATE callgate_sessions SET facts = 2 WHERE id = 's1'")
            if session == "s2":
                self._tx.run("DELETE FROM callgate_sessions WHERE id = 's2'")
            return super().has(session)

    monkeypatch.setattr(transfer, "StoreReader", Busy)
    code, out = shell("store", "copy", tmp_path / "s.db", tmp_path / "t.db")
    assert (code, "1 sessions, 3 facts" in out) == (1, True), out
    for session in ("s1", "s2"):
        assert f"not copied: session '{session}' was written to after it was copied" in out


# A file and its log ------------------------------------------------------------------------------------------------------


def left_by_kill(path: Path) -> None:
    """Make a store whose process was killed: all sessions are in the write-ahead log alone."""
    program = """
import asyncio, os, sys
from callgate.machine.facts import CallStarted
from callgate.store.sqlite import sqlite_store

async def main():
    store = sqlite_store(sys.argv[1])
    for number in range(5):
        lease = await store.acquire(f"s{number}", owner="me")
        await store.append(lease, [CallStarted(id="a")], position=0)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    assert path.stat().st_size < path.with_name(f"{path.name}-wal").stat().st_size


@pytest.mark.parametrize("name", ["s.db", "link.db", "folder/s.db", "\udcff.db"])
def test_what_a_killed_process_left_in_the_log_is_salvaged_copied_and_backed_up(name: str, tmp_path: Path) -> None:
    original = tmp_path / "there"
    original.mkdir()
    file = original / (name if name.startswith("\udcff") else "s.db")
    left_by_kill(file)
    (original / "link.db").symlink_to(file)
    (original / "folder").symlink_to(original)
    place = original / name
    before = {one.name: one.read_bytes() for one in original.glob("*db*") if not one.name.endswith("-shm")}
    code, out = shell("sessions", "export", "--salvage", place)
    assert (code, "5 sessions could be read" in out) == (0, True), out
    ids = [f"s{number}" for number in range(5)]
    assert shell("store", "backup", tmp_path / "b.db", "--store", place)[0] == 0
    assert shell("store", "copy", place, tmp_path / "t.db")[0] == 0
    assert listed(tmp_path / "b.db") == listed(tmp_path / "t.db") == ids
    assert {one.name: one.read_bytes() for one in original.glob("*db*") if not one.name.endswith("-shm")} == before


def test_a_deletion_in_a_store_that_is_not_there_is_an_error_and_makes_none(tmp_path: Path) -> None:
    code, out = shell("sessions", "delete", "--owner", "ann", "--yes", "--store", tmp_path / "wrong.db")
    assert (code, "there is no store" in out, list(tmp_path.iterdir())) == (1, True, [])


def test_a_copy_leaves_out_what_was_deleted_in_its_target_and_a_restore_brings_it_back(tmp_path: Path) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    filled(source, 3)
    assert shell("store", "copy", source, target)[0] == 0
    [first, *others] = sorted(listed(target))
    assert shell("sessions", "delete", first, "--yes", "--store", target)[0] == 0
    code, out = shell("store", "copy", source, target)
    assert (code, sorted(listed(target))) == (0, others), out
    assert "not copied: 1 session deleted there since; to copy deleted ones again: --with-deleted" in out
    assert shell("store", "copy", source, target, "--with-deleted")[0] == 0
    assert sorted(listed(target)) == [first, *others]
    assert shell("store", "backup", tmp_path / "backup.db", "--store", target)[0] == 0
    assert shell("sessions", "delete", first, *others, "--yes", "--store", target)[0] == 0
    code, out = shell("store", "restore", tmp_path / "backup.db", "--store", target)
    assert (code, sorted(listed(target))) == (0, [first, *others]), out
