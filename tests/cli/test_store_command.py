"""`callgate store`: tables are created by hand, and a store is copied while it is in use."""

from __future__ import annotations

import asyncio
import sqlite3
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
        assert (await copy.load("a"), await copy.sessions()) == ([CallStarted(id="x")], before)
        assert (await copy.claim(Claim(key="k", digest="d", session="b", run="other", owner="you"))).run == "r"
        await store.aclose()
        await copy.aclose()

    asyncio.run(story())
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o600
    assert not list(tmp_path.glob(".copy*"))
    assert shell("store", "backup", tmp_path / "copy.db", "--store", tmp_path / "s.db")[0] == 2
    assert shell("store", "backup", tmp_path / "other.db", "--store", tmp_path / "none.db")[0] == 1
