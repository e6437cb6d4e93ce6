"""`store copy`, `restore` and `backup` that are killed, run twice, find no room or see the clock jump: all arrives, once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from callgate.cli import cli
from callgate.machine.facts import CallStarted
from callgate.store import Claim, open_store, transfer
from callgate.store.dialect import Transaction
from callgate.store.sql import SqlStore
from callgate.store.transfer import copy_store, store_digest

SESSIONS, FACTS = 60, 140
"""Of a source: about five commits of a copy."""

# Imports once, then forks a process for every line that it is given, so that a kill costs milliseconds. A life writes a dot
# before every statement and every commit, and is killed from outside some dots and a moment later.
NURSERY = """
    import json, os, sys
    import callgate.cli.store, callgate.store.sqlite, callgate.store.postgres, psycopg
    from callgate.cli import main
    from callgate.store import transfer
    from callgate.store.dialect import Transaction

    def stepping(owner, name):
        work = getattr(owner, name)

        def watched(*args, **options):
            os.write(1, b".\\n")
            return work(*args, **options)

        setattr(owner, name, watched)

    for owner, name in ((Transaction, "run"), (Transaction, "run_many"), (transfer._Copy, "_commit")):
        stepping(owner, name)
    words = os.open(os.devnull, os.O_WRONLY)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            order = json.loads(line)
            said = os.open(order["said"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(said, 2)
            real, sys.stdout = sys.stdout, os.fdopen(os.dup(said), "w")
            code = main(order["words"])
            sys.stdout.flush()
            os._exit(code)
        os.write(1, f"{pid}\\n".encode())
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), "over", flush=True)
"""


class Nursery:
    """Gives birth to processes that carry out a command."""

    def __init__(self, child: subprocess.Popen[str], said: Path) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self._orders, self._words, self._said = child.stdin, child.stdout, said
        self.steps = 0
        """Of the last life."""

    def live(self, *words: object, steps: int | None = None, moment_s: float = 0.0) -> int:
        """Carry out a command and return its exit code; -9 if it was killed after so many steps and a moment."""
        self._orders.write(json.dumps({"words": [str(word) for word in words], "said": str(self._said)}) + "\n")
        self._orders.flush()
        pid, self.steps, killed = 0, 0, False
        while not (word := self._words.readline().strip()).endswith("over"):
            assert word, "the nursery is gone"
            if word != ".":  # The first dots of a life may come before its number.
                pid = int(word)
            self.steps += word == "."
            if steps is not None and self.steps >= steps and pid and not killed:
                time.sleep(moment_s)  # clock: the instant of the kill is what is tried
                with contextlib.suppress(ProcessLookupError):  # It has just ended by itself.
                    os.kill(pid, signal.SIGKILL)
                killed = True
        return int(word.split()[0])

    @property
    def said(self) -> str:
        """The output of the last life."""
        return self._said.read_text()


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    pytest.importorskip("psycopg")
    command = [sys.executable, "-c", textwrap.dedent(NURSERY)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        yield Nursery(child, tmp_path / "said")


def filled(place: str, *, sessions: int = SESSIONS, facts: int = FACTS) -> None:
    """Make a store with sessions of different lengths, waiting answers, keys, owners and usage."""

    async def story() -> None:
        store = open_store(place)
        assert isinstance(store, SqlStore)
        for number in range(sessions):
            session, count = f"s{number:03}", facts * number // sessions + 1
            lease = await store.acquire(session, owner="me")
            await store.append(lease, [CallStarted(id=f"{session}-{place}") for place in range(count)], position=0)
            await store.release(lease)
            await store.claim(Claim(key=f"k{number}", digest="d", session=session, run=f"r{number}", owner="me"))
            if number % 3 == 0:
                assert await store.put_answer(session, "call", '{"answer": "yes"}')
            if number % 4 == 0:
                assert await store.assign(session, "ann") in (None, "ann")
        await store.aclose()

    asyncio.run(story())


async def went_on(place: str, session: str) -> None:
    store = open_store(place)
    lease = await store.acquire(session, owner="me")
    await store.append(lease, [CallStarted(id="another")], position=lease.position)
    await store.release(lease)
    await store.aclose()


def dialect(place: str) -> Any:
    store = open_store(place)
    assert isinstance(store, SqlStore)
    return store.dialect


def rows(place: str, sql: str) -> list[tuple[Any, ...]]:
    with closing(dialect(place).connect_to_read()) as connection:
        return [tuple(row) for row in connection.execute(sql).fetchall()]


def has_tables(place: str) -> bool:
    kind = dialect(place)
    with closing(kind.connect_to_read()) as connection:
        return "callgate_sessions" in kind.tables(Transaction(connection, kind))


COUNTS = "SELECT id, facts FROM callgate_sessions ORDER BY id"
FACT_COUNTS = "SELECT session, COUNT(*), MIN(position), MAX(position) FROM callgate_facts GROUP BY session ORDER BY session"
BODIES = "SELECT session, position, body FROM callgate_facts"


def check_part(source: str, target: str) -> None:
    """What a killed copy left: sessions that are whole, and nothing else."""
    if "://" not in target and not Path(target).exists():
        return
    if not has_tables(target):  # It was killed before.
        return
    counts = dict(rows(target, COUNTS))
    wanted = dict(rows(source, COUNTS))
    assert counts.items() <= wanted.items()
    assert rows(target, FACT_COUNTS) == [(session, count, 0, count - 1) for session, count in sorted(counts.items())]
    assert set(rows(target, BODIES)) <= set(rows(source, BODIES))


PAIRS = [("sqlite", "sqlite"), ("sqlite", "postgres"), ("postgres", "sqlite"), ("postgres", "postgres")]


@pytest.fixture(params=PAIRS, ids="-to-".join)
def places(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """A source that is filled, and a place for the target."""
    found = [str(tmp_path / "source.db"), str(tmp_path / "target.db")]
    for number, kind in enumerate(request.param):
        if kind == "postgres":
            found[number] = another_database(request.getfixturevalue("postgres_server"))
    filled(found[0])
    return found[0], found[1]


def another_database(server: str) -> str:
    import psycopg

    name = f"kills_{os.urandom(6).hex()}"
    with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return f"{server}/{name}"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["copy", "restore"])
def test_a_copy_or_restore_that_is_killed_again_and_again_goes_on_and_everything_is_there_once(
    command: str, places: tuple[str, str], nursery: Nursery, tmp_path: Path, scale: int
) -> None:
    source, target = places
    words: list[object] = ["store", "copy", source, target]
    if command == "restore":
        if "://" in source:
            pytest.skip("a backup is a file")
        backup = str(tmp_path / "backup.db")
        assert nursery.live("store", "backup", backup, "--store", source) == 0
        source, words = backup, ["store", "restore", backup, "--store", target]
    dice, kills = random.Random(f"{places} {command}"), 0
    most = 40
    while kills < 25 * scale:
        moment_s = dice.choice([0, dice.uniform(0, 0.002), dice.uniform(0, 0.02)])
        code = nursery.live(*words, steps=dice.randint(1, most), moment_s=moment_s)
        assert code in (0, -9), nursery.said
        kills += code == -9
        most = most + 40 if code else 40
        check_part(source, target)
        if code == 0:
            with closing(dialect(target).connect()) as connection:  # The next one begins anew.
                for table in ("facts", "sessions", "answers", "claims", "principals"):
                    connection.execute(f"DELETE FROM callgate_{table}")
                if "://" not in target:
                    connection.commit()
    assert nursery.live(*words) == 0, nursery.said
    assert store_digest(dialect(source))[0] == store_digest(dialect(target))[0]
    assert store_digest(dialect(source))[0] in nursery.said
    assert nursery.live(*words) == 0
    assert "0 facts were new" in nursery.said


@pytest.mark.slow
def test_a_restore_over_a_session_that_went_on_writes_no_session_at_whatever_instant_it_is_killed(
    places: tuple[str, str], nursery: Nursery, tmp_path: Path
) -> None:
    source, target = places
    backup = str(tmp_path / "backup.db")
    assert nursery.live("store", "backup", backup, "--store", source) == 0
    filled(target, sessions=2, facts=2)
    asyncio.run(went_on(target, "s000"))
    before, words = store_digest(dialect(target)), ["store", "restore", backup, "--store", target]
    assert nursery.live(*words) == 1, nursery.said
    assert "nothing was written to" in nursery.said
    for step in range(1, nursery.steps + 1):
        assert nursery.live(*words, steps=step) in (1, -9), nursery.said
        assert store_digest(dialect(target)) == before


@pytest.mark.slow
def test_two_copies_into_one_target_at_once_both_succeed_and_everything_is_there_once(
    places: tuple[str, str], tmp_path: Path
) -> None:
    source, target = places
    words = [sys.executable, "-m", "callgate", "store", "copy", source, target]
    both = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(2)]
    said = [one.communicate()[0] for one in both]
    assert [one.returncode for one in both] == [0, 0], said
    digest = store_digest(dialect(source))[0]
    assert all(digest in text for text in said), said
    assert store_digest(dialect(target))[0] == digest
    new = [int(text.split(" facts were new")[0].split()[-1]) for text in said]
    assert sum(new) == sum(count for _, count in rows(source, COUNTS)), "each fact was written by one of them"
    assert rows(target, "SELECT key FROM callgate_meta WHERE key LIKE 'copy%'") == []


def test_two_copies_of_different_stores_into_one_target_at_once_keep_both(tmp_path: Path) -> None:
    filled(str(tmp_path / "a.db"), sessions=10, facts=20)
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, closing(sqlite3.connect(tmp_path / "b.db")) as other:
        connection.backup(other)
        for table, column in (("sessions", "id"), ("facts", "session"), ("answers", "session"), ("claims", "session"),
                              ("principals", "session"), ("claims", "key")):  # fmt: skip
            other.execute(f"UPDATE callgate_{table} SET {column} = 'b' || {column}")
        other.commit()
    words = [sys.executable, "-m", "callgate", "store", "copy"]
    both = [subprocess.Popen([*words, str(tmp_path / name), str(tmp_path / "t.db")]) for name in ("a.db", "b.db")]
    assert [one.wait() for one in both] == [0, 0]
    wanted = sorted([*rows(str(tmp_path / "a.db"), COUNTS), *rows(str(tmp_path / "b.db"), COUNTS)])
    assert rows(str(tmp_path / "t.db"), COUNTS) == wanted
    assert len(rows(str(tmp_path / "t.db"), "SELECT key FROM callgate_claims")) == 20


# No room -----------------------------------------------------------------------------------------------------------------


LIMITED = """
    import resource, signal, sys
    from callgate.cli import main
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), int(sys.argv[1])))
    raise SystemExit(main(sys.argv[2:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("command", ["copy", "restore", "backup"])
def test_a_copy_that_finds_no_room_says_so_and_goes_on_when_there_is(command: str, tmp_path: Path) -> None:
    source, target = str(tmp_path / "s.db"), str(tmp_path / "t.db")
    filled(source)
    words = {
        "copy": ["store", "copy", source, target],
        "restore": ["store", "restore", source, "--store", target],
        "backup": ["store", "backup", target, "--store", source],
    }[command]
    room = 2 * Path(source).stat().st_size
    program = [sys.executable, "-c", textwrap.dedent(LIMITED)]
    parts: list[int] = []
    for limit in (20_000, room // 8, room // 4):
        done = subprocess.run([*program, str(limit), *words], capture_output=True, text=True, check=False)
        assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
        assert "is full" in done.stderr or "cannot be used: disk I/O error" in done.stderr, done.stderr
        check_part(source, target)
        has_part = Path(target).exists() and has_tables(target)
        parts.append(len(rows(target, COUNTS)) if has_part else 0)
    assert parts == sorted(parts)
    done = subprocess.run([*program, str(8 * room), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert store_digest(dialect(source))[0] == store_digest(dialect(target))[0]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB, where this user may make one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "callgate-test", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a disk; the limit of a file's size is tried instead, above")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["copy", "restore", "backup"])
def test_on_a_disk_that_is_full_a_copy_says_so_and_goes_on_when_there_is_room(
    command: str, small_disk: Path, tmp_path: Path
) -> None:
    source, target = str(tmp_path / "s.db"), str(small_disk / "t.db")
    filled(source, facts=250)
    words = {
        "copy": ["store", "copy", source, target],
        "restore": ["store", "restore", source, "--store", target],
        "backup": ["store", "backup", target, "--store", source],
    }[command]
    ballast, size = small_disk / "ballast", 2 * 2**20
    command_line = [sys.executable, "-m", "callgate", *words]
    codes: list[int] = []
    for kept in (size, size - 40_000, size - 300_000, size - 700_000, 0):
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            for _ in range(0, kept, 4096):
                file.write(b"x" * 4096)
        done = subprocess.run(command_line, capture_output=True, text=True, check=False)
        codes.append(done.returncode)
        if done.returncode:
            assert "is full" in done.stderr, done.stderr
            assert "Traceback" not in done.stderr
            with contextlib.suppress(sqlite3.Error):  # It cannot even be looked at without a page of room.
                check_part(source, target)
        ballast.unlink()
    assert (codes[0], codes[-1]) == (1, 0), codes
    assert store_digest(dialect(source))[0] == store_digest(dialect(target))[0]


# The clock ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump_s", [-7200.0, 7200.0, 400 * 86_400.0])
def test_a_clock_that_jumps_during_a_copy_changes_nothing(
    jump_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = str(tmp_path / "s.db"), str(tmp_path / "t.db")
    filled(source, sessions=20, facts=30)
    monkeypatch.setattr(transfer, "BATCH_ROWS", 20)
    real, steps = time.time, [0]

    def jumping(done: int, total: int) -> None:
        steps[0] += 1

    monkeypatch.setattr(time, "time", lambda: real() + (jump_s if steps[0] % 2 else 0.0))
    done = copy_store(dialect(source), dialect(target), progress=jumping)
    assert (done.sessions, done.conflicts, steps[0]) == (20, [], 20)
    times = "SELECT id, created_s, updated_s FROM callgate_sessions ORDER BY id"
    assert rows(target, times) == rows(source, times)
    assert store_digest(dialect(target))[0] == done.sha256 == store_digest(dialect(source))[0]


def test_a_backup_under_way_is_not_taken_for_an_abandoned_one_when_the_clock_jumps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = str(tmp_path / "s.db")
    filled(source, sessions=3, facts=3)
    real, inner = copy_store, list[tuple[int, str]]()

    def copied(*args: Any, **options: Any) -> transfer.Transfer:
        done = real(*args, **options)
        if not inner:
            inner.append((0, ""))
            for file in tmp_path.glob(".*.callgate-partial*"):
                os.utime(file, (0, 0))  # As if this one had been written to long ago.
            result = CliRunner().invoke(cli, ["store", "backup", str(tmp_path / "second.db"), "--store", source])
            inner[0] = (result.exit_code, result.output)
        return done

    monkeypatch.setattr("callgate.cli.store.copy_store", copied)
    result = CliRunner().invoke(cli, ["store", "backup", str(tmp_path / "first.db"), "--store", source])
    assert (result.exit_code, inner[0][0]) == (0, 0), (result.output, inner)
    for name in ("first.db", "second.db"):
        assert store_digest(dialect(str(tmp_path / name)))[0] == store_digest(dialect(source))[0]
    assert list(tmp_path.glob(".*.callgate-partial*")) == []
