"""Sessions that an older callgate wrote load for ever: one file for each schema version, and what it must come to.

A file here is never changed. A new kind of fact, or a new field, gets a file of its own (`sessions-v1-*.json`).
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from callgate import Gate, ScriptedModel, types
from callgate.cli import main
from callgate.errors import StoreError
from callgate.history.repair import validate
from callgate.machine import codec, facts
from callgate.machine.machine import RunMachine
from callgate.sessions import facts_of, import_session, load, state_from_facts
from callgate.store import Claim, open_store
from callgate.store.dialect import Transaction
from callgate.store.idempotency import has_idempotency_keys
from callgate.store.sql import SqlStore
from callgate.testing import answer

FILES = sorted((Path(__file__).parent / "fixtures").glob("sessions-v*.json"))
WORDS = {
    "calls": types.FunctionCall, "salvaged": types.FunctionCall, "result": types.ToolResult, "decision": types.Decision,
    "usage": types.Usage, "limits": types.Limits, "tools": facts.KnownTool, "rule": types.SessionRule,
}  # fmt: skip


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_old_session_comes_to_what_it_came_to_then(file: Path, tmp_path: Path) -> None:
    old: dict[str, Any] = json.loads(file.read_text("utf-8"))
    found = facts_of(old)
    loop = RunMachine(found)
    expected = old["expected"]
    assert loop.conversation.contents == old["contents"]
    assert validate(loop.conversation.contents) == []
    assert (loop.phase, loop.usage.total_tokens, loop.cost) == (expected["phase"], expected["tokens"], expected["cost"])
    assert state_from_facts("old", found).exchanges == expected["turns"]

    async def story() -> list[facts.Fact]:
        store = open_store(str(tmp_path / "sessions.db"))
        await import_session(store, "old", found)
        loaded = await store.load("old")
        await store.aclose()
        return loaded

    assert asyncio.run(story()) == [*found, facts.Adopted()]
    assert main(["sessions", "show", "old", "--store", str(tmp_path / "sessions.db")]) == 0


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_old_session_goes_on_today_and_what_was_written_then_stays(file: Path, tmp_path: Path) -> None:
    found = facts_of(json.loads(file.read_text("utf-8")))

    async def story() -> None:
        store = open_store(str(tmp_path / "sessions.db"))
        lease = await store.acquire("old", owner="a process of then")
        await store.append(lease, found, position=0)
        await store.release(lease)
        async with Gate(ScriptedModel([answer("today")], repeat_last=True), store=store) as gate:
            if (await load(store, "old")).state != "idle":
                assert (await gate.run(None, session="old")).text == "today"
            reply = await gate.run("One more.", session="old")
        now = await store.load("old")
        assert (reply.text, now[: len(found)], len(now) > len(found)) == ("today", found, True)
        assert validate(RunMachine(now).conversation.contents) == []
        await store.aclose()

    asyncio.run(story())


def test_the_files_hold_every_kind_of_fact_and_every_field() -> None:
    lines = [line for file in FILES for line in json.loads(file.read_text("utf-8"))["facts"]]
    held = {(line["kind"], key) for line in lines for key in line} | {
        (word, key) for line in lines for word in WORDS if word in line for one in _each(line[word]) for key in one
    }
    known = {(codec._NAMES[kind], field.name) for kind in get_args(facts.JournalledFact) for field in fields(kind)}
    known |= {(word, field.name) for word, kind in WORDS.items() if is_dataclass(kind) for field in fields(kind)}
    known.discard(("result", "plain_json"))  # Never journalled.
    assert sorted(known - held) == [], "add a file to tests/store/fixtures with a journal that has these"


def _each(value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, (list, dict)):
        return []
    if isinstance(value, list):
        return value
    return list(value.values()) if all(isinstance(one, dict) for one in value.values()) else [value]


def test_a_database_that_was_made_before_there_were_claims_gets_a_table_for_them(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    claim = Claim(key="k", digest="d", session="old", run="r", owner="me")

    async def story(*, keeps: bool) -> None:
        store = open_store(str(path))
        if not keeps:
            await import_session(store, "old", facts_of(json.loads(FILES[0].read_text("utf-8"))))
        else:
            assert [info.id for info in await store.sessions()] == ["old"]
            assert has_idempotency_keys(store)
            assert await store.claim(claim) == claim
        await store.aclose()

    asyncio.run(story(keeps=False))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE callgate_claims").close()
        assert connection.execute("SELECT value FROM callgate_meta WHERE key = 'schema'").fetchall() == [("1",)]
    asyncio.run(story(keeps=True))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_session_with_a_kind_of_fact_that_is_not_known_is_refused_and_left_to_newer_processes(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place = str(tmp_path / "s.db") if kind == "sqlite" else request.getfixturevalue("postgres_url")
    tomorrow = b'{"v":1,"kind":"weather_changed","to":"rain"}'

    async def story() -> None:
        store = open_store(place)
        assert isinstance(store, SqlStore)
        gate = Gate(ScriptedModel([answer("one"), answer("two"), answer("three")]), store=store)
        await gate.run("hello", session="new")
        await gate.run("hello", session="old")
        rows = "SELECT session, position, body FROM callgate_facts ORDER BY session, position"

        def upgraded(tx: Transaction) -> None:
            [(facts,)] = tx.rows("SELECT facts FROM callgate_sessions WHERE id = 'new'")
            tx.run("INSERT INTO callgate_facts VALUES ('new', ?, ?)", facts, tomorrow)
            tx.run("UPDATE callgate_sessions SET facts = ? WHERE id = 'new'", facts + 1)

        await store._database.do(upgraded)
        before = await store._database.do(lambda tx: tx.rows(rows))
        with pytest.raises(StoreError, match=r"'new' .*kind 'weather_changed', which this callgate does not know: a newer"):
            await gate.run("go on", session="new")
        assert await store._database.do(lambda tx: tx.rows(rows)) == before, "nothing was written to it"
        lease = await store.acquire("new", owner="newer process")  # It is not held by the one that refused it.
        await store.release(lease)
        assert (await gate.run("go on", session="old")).text == "three"
        assert {info.id for info in await store.sessions()} == {"new", "old"}
        await store.aclose()

    asyncio.run(story())
