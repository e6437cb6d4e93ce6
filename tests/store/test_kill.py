"""kill -9 at random instants of real conversations: nothing happens twice, nothing finished is lost, everything goes on."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CALLS = 12
STEPS_MAX = 40
"""A life is ended after at most so many steps; a whole conversation has about three times as many."""

# Imports once, then forks a process for every line that it is given: so a kill costs milliseconds. A life says a dot before
# and behind everything it does, and is ended some dots and a moment later: on a slow machine too it gets somewhere.
NURSERY = """
    import asyncio, json, os, sys, tempfile
    import callgate.store.sqlite, callgate.store.postgres, psycopg
    from callgate import Gate, Limits, ScriptedModel, tool
    from callgate.history.repair import validate
    from callgate.errors import UsageError
    from callgate.sessions import load
    from callgate.store import open_store
    from callgate.testing import text
    from callgate.testing.scripted_model import call_with

    CALLS = int(sys.argv[1])

    words = os.open(os.devnull, os.O_WRONLY)

    def step():
        os.write(words, b".\\n")

    class Watched:
        def __init__(self, store):
            self.store = store

        def __getattr__(self, name):
            work = getattr(self.store, name)

            async def watched(*args, **options):
                step()
                try:
                    return await work(*args, **options)
                finally:
                    step()

            return watched

    def said(request):
        assert validate(request.contents, sendable=True) == []
        done = sum("functionCall" in part for content in request.contents for part in content["parts"])
        name = ("send", "put", "look")[done % 3]
        return call_with(name, {"number": done}) if done < CALLS else text("Done.")

    def effect(folder, number):
        step()
        with open(os.path.join(folder, str(number)), "ab", buffering=0) as file:
            file.write(b"x")
        step()
        return number

    async def converse(place, session, folder):
        @tool
        async def send(number: int) -> int:
            "Must not be done twice."
            return effect(folder, number)

        @tool(idempotent=True)
        async def put(number: int) -> int:
            "May be done again."
            return number

        @tool(read_only=True)
        async def look(number: int) -> int:
            "Changes nothing."
            return number

        store = Watched(open_store(place))
        gate = Gate(ScriptedModel([said], repeat_last=True), [send, put, look], store=store, limits=Limits(turns=CALLS + 2))
        async with gate:
            known = {info.id for info in await store.sessions()}
            try:
                reply = await gate.run(None if session in known else "Go.", session=session)
            except UsageError:  # It had come to its end, and died before it could tell.
                reply = (await load(store, session)).reply
        await store.aclose()
        return reply

    with tempfile.TemporaryDirectory() as folder:  # Imports what a conversation needs.
        asyncio.run(converse(None, "first", folder))
    words = 1
    for line in sys.stdin:
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            reply = asyncio.run(converse(order["store"], order["session"], order["folder"]))
            answers = [part["functionResponse"]["response"] for content in reply.contents for part in content["parts"]
                       if "functionResponse" in part]
            with open(order["report"] + ".new", "w") as file:
                json.dump({"text": reply.text, "answers": answers, "problems": validate(reply.contents)}, file)
            os.rename(order["report"] + ".new", order["report"])
            os._exit(0)
        os.write(1, f"{pid}\\n".encode())  # At once: a dot of the child must not come between the two.
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), "over", flush=True)
"""


class Nursery:
    """Gives birth to processes that hold a conversation."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self._orders, self._words = child.stdin, child.stdout

    def live(self, order: dict[str, str], *, steps: int, moment_s: float) -> bool:
        """One life of so many steps and a moment; whether it was ended by force, and not by itself."""
        self._orders.write(json.dumps(order) + "\n")
        self._orders.flush()
        pid, done, killed = 0, 0, False
        while not (word := self._words.readline().strip()).endswith("over"):
            assert word, "the nursery is gone"
            if word != ".":  # The first dots of a life may come before its number.
                pid = int(word)
            done += word == "."
            if done >= steps and pid and not killed:
                time.sleep(moment_s)
                with contextlib.suppress(ProcessLookupError):  # It has just ended by itself.
                    os.kill(pid, signal.SIGKILL)
                killed = True
        assert word in ("0 over", "-9 over"), "a life ended in an error"
        return word == "-9 over"


@pytest.fixture
def nursery() -> Iterator[Nursery]:
    pytest.importorskip("psycopg")
    command = [sys.executable, "-c", textwrap.dedent(NURSERY), str(CALLS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        yield Nursery(child)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_conversation_that_is_killed_again_and_again_goes_on_and_repeats_nothing(
    kind: str, nursery: Nursery, tmp_path: Path, scale: int, request: pytest.FixtureRequest
) -> None:
    store = str(tmp_path / "sessions.db") if kind == "sqlite" else request.getfixturevalue("postgres_url")
    dice, kills, conversation = random.Random(kind), 0, 0
    while kills < 60 * scale:
        conversation += 1
        folder = tmp_path / f"effects-{conversation}"
        folder.mkdir()
        report = tmp_path / f"report-{conversation}"
        order = {"store": store, "session": f"talk {conversation}", "folder": str(folder), "report": str(report)}
        while not report.exists():
            kills += nursery.live(order, steps=dice.randint(1, STEPS_MAX), moment_s=dice.choice([0, dice.uniform(0, 0.003)]))
        check(folder, json.loads(report.read_text()))


def check(folder: Path, done: dict[str, Any]) -> None:
    """One conversation when it is over."""
    assert done["text"] == "Done."
    assert done["problems"] == []
    assert len(done["answers"]) == CALLS
    for number, answer in enumerate(done["answers"]):
        effects = (folder / str(number)).stat().st_size if (folder / str(number)).exists() else 0
        if number % 3:  # Done again where it had been interrupted.
            assert answer == {"result": number}
        elif "result" in answer:
            assert (answer, effects) == ({"result": number}, 1)
        else:
            assert "whether it had its effect is not known" in answer["error"]
            assert effects <= 1


FIGHTER = """
    import asyncio, json, os, sys
    import callgate.store.sqlite
    from callgate.errors import SessionBusyError, SessionLostError
    from callgate.machine.facts import CallStarted
    from callgate.store import open_store
    from callgate.store.owner import new_owner

    async def fight(place, log, rounds):
        store = open_store(place)
        won = 0
        while won < rounds:
            try:
                lease = await store.acquire("prize", owner=new_owner())
            except SessionBusyError:
                await asyncio.sleep(0.001)
                continue
            # Both write to the same file: two owners at once would be seen there.
            with open(log, "ab", buffering=0) as file:
                file.write(b"+")
                await store.append(lease, [CallStarted(id=str(os.getpid()))], position=lease.position)
                file.write(b"-")
            await store.release(lease)
            won += 1
            await asyncio.sleep(0)
        await store.aclose()

    asyncio.run(fight(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_two_processes_that_fight_for_a_session_never_both_own_it(
    kind: str, tmp_path: Path, scale: int, request: pytest.FixtureRequest
) -> None:
    store = str(tmp_path / "sessions.db") if kind == "sqlite" else request.getfixturevalue("postgres_url")
    log, rounds = tmp_path / "log", 100 * scale
    command = [sys.executable, "-c", textwrap.dedent(FIGHTER), store, str(log), str(rounds)]
    fighters = [subprocess.Popen(command) for _ in range(2)]
    assert [fighter.wait(timeout=120 * scale) for fighter in fighters] == [0, 0]
    assert log.read_bytes() == b"+-" * (2 * rounds)
