"""Health is about writing: a store that can be read, but not written, is down, and up again with the first write."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, ScriptedModel
from callgate.server import health as health_page
from callgate.store.statistics import StoreStatistics

from .conftest import Site

TRIGGER = "CREATE TRIGGER full BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"


@pytest.fixture(autouse=True)
def _look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.store.sql.TRY_S", 0.0)


def fill(path: Path, *tables: str) -> None:
    """Let every further insertion fail; without tables, none."""
    with sqlite3.connect(path) as connection:
        connection.execute("DROP TRIGGER IF EXISTS full")
        for table in tables:
            connection.execute(TRIGGER.format(table=table))
    connection.close()


def health(site: Site) -> tuple[int, str, str]:
    answer = site.get("/health")
    return answer.status, answer.json["status"], answer.json["store"]["state"]


def metric(site: Site, name: str) -> int:
    lines = site.get("/metrics").body.decode().splitlines()
    return sum(int(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def sessions(site: Site) -> list[str]:
    return [session["id"] for session in site.get("/api/v1/sessions").json["sessions"]]


def test_a_store_that_cannot_be_written_is_down_until_it_can(serve: Callable[..., Site], tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    site = serve(Gate(ScriptedModel(["one", "two"]), store=str(path)))
    assert health(site) == (200, "healthy", "ok")
    assert site.chat({"prompt": "a", "session": "s"}).status == 200
    fill(path, "callgate_facts")
    assert site.chat({"prompt": "b", "session": "s"}).error == (503, "store_unavailable")
    assert health(site) == (503, "down", "down")
    assert "is full" in site.get("/api/v1/health").json["store"]["error"]
    assert metric(site, "callgate_store_writes_failing") == 1
    fill(path)
    assert health(site) == (200, "healthy", "ok")
    assert metric(site, "callgate_store_writes_failing") == 0
    assert site.chat({"prompt": "b", "session": "s"}).status == 200
    assert sessions(site) == ["s"]


def test_a_service_that_has_written_nothing_for_a_while_tries_to(
    serve: Callable[..., Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sessions.db"
    site = serve(Gate(ScriptedModel([]), store=str(path)))
    monkeypatch.setattr("callgate.store.sql.WRITTEN_S", 0.0)
    assert health(site) == (200, "healthy", "ok")
    fill(path, "callgate_facts")
    assert health(site) == (503, "down", "down")
    fill(path)
    assert health(site) == (200, "healthy", "ok")
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT COUNT(*) FROM callgate_facts").fetchone() == (0,)
    connection.close()
    assert sessions(site) == []


def test_a_store_that_fails_is_not_tried_by_every_probe(
    serve: Callable[..., Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sessions.db"
    site = serve(Gate(ScriptedModel([]), store=str(path)))
    monkeypatch.setattr("callgate.store.sql.WRITTEN_S", 0.0)
    monkeypatch.setattr("callgate.store.sql.TRY_S", 1e9)
    assert health(site) == (200, "healthy", "ok")
    fill(path, "callgate_facts")
    assert health(site) == (503, "down", "down")
    failures = metric(site, "callgate_store_failures_total")
    assert [health(site) for _ in range(3)] == [(503, "down", "down")] * 3
    assert metric(site, "callgate_store_failures_total") == failures


def test_a_store_that_is_busy_with_runs_is_not_down(
    serve: Callable[..., Site], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(ScriptedModel(["one"], repeat_last=True), store=str(tmp_path / "sessions.db"))
    site = serve(gate)
    read = gate.store.load

    async def load(session: str, *, start: int = 0) -> list[Any]:
        if session == health_page.PROBE:  # It waits its turn, behind hundreds of runs that begin.
            await asyncio.Event().wait()
        return await read(session, start=start)

    monkeypatch.setattr(gate.store, "load", load)
    with ThreadPoolExecutor() as clients:
        asked = clients.submit(health, site)
        while not asked.done():
            assert site.chat({"prompt": "a"}).status == 200
        assert asked.result() == (200, "healthy", "ok")
    monkeypatch.setattr(health_page, "STORE_S", 0.1)
    assert health(site) == (503, "down", "down")
    assert site.get("/api/v1/health").json["store"]["error"] == "no answer within 0.1 s"


def test_a_request_with_a_key_that_the_store_refuses_is_a_failed_run(serve: Callable[..., Site], tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    site = serve(Gate(ScriptedModel(["one", "two"]), store=str(path)))
    assert site.chat({"prompt": "a"}, Idempotency_Key="k1").status == 200
    fill(path, "callgate_claims")
    answers = [site.chat({"prompt": "b"}, Idempotency_Key="k2").error for _ in range(3)]
    assert answers == [(503, "store_unavailable")] * 3
    assert metric(site, 'callgate_runs_total{outcome="store_unavailable"}') == 3


@pytest.mark.slow
def test_a_database_that_is_set_to_read_only_is_down_until_it_is_not(
    serve: Callable[..., Site], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    psycopg: Any = pytest.importorskip("psycopg")
    monkeypatch.setattr("callgate.store.sql.WRITTEN_S", 0.0)
    site = serve(Gate(ScriptedModel(["one"]), store=postgres_url))
    assert health(site) == (200, "healthy", "ok")
    server, _, name = postgres_url.rpartition("/")

    def set_read_only(word: str) -> None:
        with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = {word}")
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])

    set_read_only("on")
    assert health(site) == (503, "down", "down")
    assert site.chat({"prompt": "a"}, Idempotency_Key="k").error == (503, "store_unavailable")
    assert "can only be read" in site.get("/api/v1/health").json["store"]["error"]
    set_read_only("off")
    assert health(site) == (200, "healthy", "ok")
    assert site.chat({"prompt": "a"}).status == 200
    assert metric(site, 'callgate_runs_total{outcome="store_unavailable"}') == 1


REOPENS = """
import asyncio, os, sys
import callgate.store.lane
from callgate.errors import StoreError
from callgate.store import open_store

callgate.store.lane.CHECK_S = 0.0
path = sys.argv[1]

async def main() -> None:
    store = open_store(path)
    await store.release(await store.acquire("s", owner="a"))
    await store.aclose()
    os.chmod(path, 0o400)
    if os.geteuid() == 0:  # Root may write in any case.
        os.chown(path, 65534, 65534)
        os.chown(os.path.dirname(path), 65534, 65534)
        os.seteuid(65534)
    store = open_store(path)
    assert await store.sessions() == []
    try:
        await store.acquire("s", owner="a")
    except StoreError:
        print("refused")
    os.chmod(path, 0o600)
    await store.release(await store.acquire("s", owner="a"))
    await store.aclose()
    print("written")

asyncio.run(main())
"""


def test_a_file_that_could_only_be_read_when_it_was_opened_is_written_as_soon_as_it_can_be() -> None:
    with tempfile.TemporaryDirectory() as folder:  # One below folders that another user may enter.
        command = [sys.executable, "-c", REOPENS, f"{folder}/sessions.db"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout.split(), done.stderr, done.returncode) == (["refused", "written"], "", 0)


def test_the_log_has_a_line_when_the_store_begins_to_fail_and_one_when_it_is_written_again(caplog) -> None:
    statistics = StoreStatistics()
    for error in (None, "the disk is full", "the disk is full", None, None, "the disk is full", None):
        statistics.wrote(error)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "the store cannot be written: the disk is full"), ("WARNING", "the store is written again"),
    ]  # fmt: skip
