"""`callgate store`: tables are created by hand, and a store is copied while it is in use."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from callgate.cli import cli
from callgate.machine.facts import CallStarted
from callgate.store import Claim, open_store
from callgate.store.sql import SqlStore


def shell(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli, [str(word) for word in words])
    return result.exit_code, result.output


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


def filled(place: Path, count: int) -> None:
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


def test_a_store_is_not_restored_over_another_one_but_can_be_copied_to_it(tmp_path: Path) -> None:
    filled(tmp_path / "s.db", 2)
    shell("store", "backup", tmp_path / "b.db", "--store", tmp_path / "s.db")
    filled(tmp_path / "other.db", 3)
    code, out = shell("store", "restore", tmp_path / "b.db", "--store", tmp_path / "other.db")
    assert (code, "1 sessions that are not in the backup, such as 's2'" in out) == (1, True), out
    code, out = shell("store", "copy", tmp_path / "b.db", tmp_path / "third.db")
    assert (code, "2 sessions, 2 facts" in out) == (0, True), out
    filled(tmp_path / "mine.db", 1)
    code, out = shell("store", "copy", tmp_path / "mine.db", tmp_path / "third.db")
    assert (code, "not copied: session 's0' has other facts there" in out) == (0, False), out


def test_wrong_copies_are_refused(tmp_path: Path) -> None:
    filled(tmp_path / "s.db", 1)
    assert shell("store", "copy", tmp_path / "s.db", tmp_path / "s.db")[0] == 2
    code, out = shell("store", "copy", tmp_path / "none.db", tmp_path / "t.db")
    assert (code, "there is no store" in out, (tmp_path / "none.db").exists()) == (1, True, False)
