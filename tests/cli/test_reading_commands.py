"""Commands that look at sessions never make a store: a wrong path is a sentence and an exit code, and nothing is changed."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from callgate import Gate, ScriptedModel
from callgate.cli import main
from callgate.testing import answer

LOOKS = {
    "list": ["sessions", "list", "--store"],
    "list json": ["sessions", "list", "--all", "-o", "json", "--store"],
    "show": ["sessions", "show", "latest", "--store"],
    "export": ["sessions", "export", "latest", "--store"],
    "trace": ["trace", "--store"],
    "delete": ["sessions", "delete", "latest", "--yes", "--store"],
    "delete by age": ["sessions", "delete", "--older-than", "1d", "--yes", "--store"],
    "delete by owner": ["sessions", "delete", "--owner", "ann", "--yes", "--store"],
    "fork": ["sessions", "fork", "latest", "--store"],
    "rewind": ["sessions", "rewind", "latest", "--store"],
    "resume": ["chat", "hello", "--provider", "demo", "-r", "latest", "--store"],
    "continue": ["chat", "hello", "--provider", "demo", "-c", "--store"],
    "backup": ["store", "backup", "made.db", "--store"],
    "restore": ["store", "restore"],
    "copy": ["store", "copy"],
}
"""Every command that needs what is in a store; the place comes last."""


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


def words_of(command: str, place: str) -> list[str]:
    after = {"restore": ["--store", "made.db"], "copy": ["made.db"]}.get(command, [])
    return [*LOOKS[command], place, *after]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", LOOKS)
@pytest.mark.parametrize("place", ["none.db", "sqlite:///none.db", "empty.db", "text.db", "other.db", "folder"])
def test_a_place_without_a_store_is_a_sentence_and_is_not_touched(
    command: str, place: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "empty.db").touch()
    (folder / "text.db").write_text("no database, but a text of some length\n" * 50)
    with closing(sqlite3.connect(folder / "other.db")) as other:
        other.execute("CREATE TABLE songs (title TEXT)")
    (folder / "folder").mkdir()
    before = tree(folder)
    assert main(words_of(command, place)) in (1, 2)
    said = capsys.readouterr()
    assert said.out == ""
    assert place.removeprefix("sqlite:///") in said.err
    assert "Traceback" not in said.err
    assert tree(folder) == before


@pytest.mark.parametrize("command", [command for command in LOOKS if command not in ("restore", "copy")])
def test_a_folder_that_does_not_exist_is_not_made(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words_of(command, "gone/s.db")) == 42
    assert "is in a folder that does not exist" in capsys.readouterr().err
    assert tree(folder) == {}


def test_a_copy_does_not_make_the_folder_of_its_target(folder: Path) -> None:
    kept(folder / "s.db")
    assert main(["store", "copy", "s.db", "gone/t.db"]) == 42
    assert main(["store", "copy", "s.db", ""]) == 2
    assert list(tree(folder)) == ["s.db"]


ON_NOTHING = ["sessions list", "sessions show x", "trace", "sessions delete x -y", "sessions delete --older-than 1d -y",
              "chat hi -r x"]  # fmt: skip


@pytest.mark.parametrize("words", ON_NOTHING)
def test_the_usual_file_that_is_not_there_yet_is_an_empty_store_and_is_not_made(
    words: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    code = main(words.split())
    said = capsys.readouterr()
    assert (code, "session" in said.out + said.err) in ((0, True), (42, True)), said
    assert [path for path in tree(folder) if path.endswith(".db")] == []


def test_a_store_that_a_setting_names_must_be_there_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CALLGATE_STORE", str(folder / "typo.db"))
    assert main(["sessions", "delete", "--owner", "ann", "--yes"]) == 1
    assert "there is no store" in capsys.readouterr().err
    assert tree(folder) == {}


def kept(place: Path) -> None:
    async def story() -> None:
        async with Gate(ScriptedModel([answer("one")]), store=place) as gate:
            await gate.run("hello", session="a")

    asyncio.run(story())


@pytest.mark.parametrize("command", ["list", "list json", "show", "export", "trace", "backup"])
def test_looking_at_a_backup_leaves_it_byte_for_byte(command: str, folder: Path) -> None:
    kept(folder / "s.db")
    assert main(["store", "backup", "backup.db", "--store", "s.db"]) == 0
    before = tree(folder)
    assert main(words_of(command, "backup.db")) == 0
    after = tree(folder)
    after.pop("made.db", None)
    assert after == before


def test_a_database_without_tables_is_looked_at_and_gets_none(
    folder: Path, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import psycopg

    for command in LOOKS:
        if command not in ("restore", "resume", "continue"):
            assert main(words_of(command, postgres_url)) == 1, command
            assert "there is no store in postgresql://" in capsys.readouterr().err, command
    with psycopg.connect(postgres_url) as database:
        assert database.execute("SELECT COUNT(*) FROM pg_tables WHERE schemaname = 'public'").fetchall() == [(0,)]


AS_NOBODY = """
import os, sys, concurrent.futures.thread
import callgate.cli.sessions, callgate.cli.render, callgate.store.sqlite
from callgate.cli import main
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
raise SystemExit(main(["sessions", "list", "--store", sys.argv[1]]))
"""


@pytest.mark.parametrize("closed", ["s.db", "."])
def test_a_store_that_this_user_may_not_read_is_not_said_to_be_missing(closed: str, folder: Path) -> None:
    inner = folder / "inner"
    inner.mkdir()
    kept(inner / "s.db")
    (inner / closed).chmod(0)
    try:
        words = [sys.executable, "-c", AS_NOBODY, str(inner / "s.db")]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    finally:
        (inner / closed).chmod(0o700)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert "s.db cannot be read (" in done.stderr
