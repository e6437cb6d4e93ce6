"""A process ends, another one goes on: W60 over a real wire with a real kill, and a pause that outlives its process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from callgate.testing.fake_gemini import FakeGemini, call

PATIENCE_S = 60

# One life of a program that talks to Gemini: it kills itself at the named moment, if one is named.
LIFE = """
    import asyncio, os, signal, sys
    from callgate import Gate, tool
    from callgate.machine.facts import CallEnded
    from callgate.store.sqlite import sqlite_store

    place, folder, moment = sys.argv[1:]

    def die_at(now):
        if now == moment:
            os.kill(os.getpid(), signal.SIGKILL)

    class Dying:
        def __init__(self, store):
            self._store = store

        def __getattr__(self, name):
            return getattr(self._store, name)

        async def append(self, lease, facts, **options):
            ended = any(isinstance(fact, CallEnded) for fact in facts)
            if ended:
                die_at("tool returned")
            await self._store.append(lease, facts, **options)
            if ended:
                die_at("result kept")

    def count(name):
        with open(os.path.join(folder, name), "a") as file:
            file.write("x")
        die_at("tool runs")
        return f"{name} is done"

    @tool
    async def pay(amount: int) -> str:
        "Must not be done twice."
        return count("pay")

    @tool(idempotent=True)
    async def put(amount: int) -> str:
        "May be done again."
        return count("put")

    async def live():
        store = Dying(sqlite_store(place))
        async with Gate("gemini-3.8-flash", [pay, put], store=store) as gate:
            begun = bool(await store.load("s"))
            reply = await gate.run(None if begun else "Pay, please.", session="s")
        await store.aclose()
        print(reply.text)

    asyncio.run(live())
"""


def life(source: str, *words: object, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source), *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **more},
        check=False,
    )


UNKNOWN = "whether it had its effect is not known"


@pytest.mark.parametrize(
    ("moment", "name", "runs", "told"),
    [
        ("result kept", "pay", 1, "pay is done"),
        ("tool returned", "pay", 1, UNKNOWN),
        ("tool runs", "pay", 1, UNKNOWN),
        ("result kept", "put", 1, "put is done"),
        ("tool runs", "put", 2, "put is done"),
    ],
)
def test_w60_a_process_killed_between_a_tool_and_the_answer_repeats_nothing_and_sends_what_it_knows(
    moment: str, name: str, runs: int, told: str, tmp_path: Path
) -> None:
    with FakeGemini.in_thread([call(name, amount=5), "Done."]) as fake:
        env = {"GEMINI_API_KEY": "a-key", "GOOGLE_GEMINI_BASE_URL": fake.base_url}
        killed = life(LIFE, tmp_path / "sessions.db", tmp_path, moment, **env)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert len(fake.requests) == 1
        resumed = life(LIFE, tmp_path / "sessions.db", tmp_path, "never", **env)
        assert (resumed.returncode, resumed.stdout) == (0, "Done.\n"), resumed.stderr
        assert fake.refusals == []
        first, second = (_contents(request) for request in fake.requests)
    assert (tmp_path / name).read_text() == "x" * runs
    assert second[: len(first)] == first
    [response] = [part["functionResponse"]["response"] for part in second[-1]["parts"]]
    assert told in (response.get("result") or response["error"])


def _contents(request: Any) -> list[Any]:
    return json.loads(request.body)["contents"]


# A program that is asked to pause: whoever can be asked says `later` in the first life, and `answers` come in the second.
PAUSE = """
    import asyncio, json, sys
    from callgate import Gate, ScriptedModel, ToolDefinition, tool
    from callgate.testing import answer, call, text

    place, folder, decision = sys.argv[1:]

    def count(name):
        with open(f"{folder}/{name}", "a") as file:
            file.write("x")
        return f"{name} is done"

    @tool
    async def look(word: str) -> str:
        "Runs at once."
        return count("look")

    class Wipe:
        definition = ToolDefinition(name="wipe", kind="command", input_schema={"type": "object", "properties": {}})

        def problems(self, args):
            return ()

        async def run(self, args, context):
            return count("wipe")

    async def approve(call, definition, reason):
        return "later"

    async def live():
        begun = decision != "-"
        script = [text("All done.")] if begun else [answer(call("look", word="a"), call("wipe"), call("look", word="b"))]
        async with Gate(ScriptedModel(script), [look, Wipe()], store=place, approve=approve) as gate:
            reply = await gate.run(
                None if begun else "Go.", session="s", answers={sys.stdin.read(): decision} if begun else None
            )
        print(json.dumps({
            "reason": reply.finish_reason,
            "text": reply.text,
            "states": [record.state for record in reply.calls],
            "waiting": [record.call.id for record in reply.approvals],
            "answers": [part["functionResponse"]["response"] for content in reply.contents for part in content["parts"]
                        if "functionResponse" in part],
        }))

    asyncio.run(live())
"""


@pytest.mark.parametrize(
    ("decision", "state", "told", "effects"),
    [
        ("yes", "finished", {"result": "wipe is done"}, "x"),
        ("no", "denied", {"error": "The user did not allow this call."}, ""),
    ],
)
def test_a_run_that_waits_for_an_answer_ends_its_process_and_goes_on_in_another_one(
    decision: str, state: str, told: dict[str, str], effects: str, tmp_path: Path
) -> None:
    place = tmp_path / "sessions.db"
    (tmp_path / "wipe").touch()
    first = json.loads(life(PAUSE, place, tmp_path, "-").stdout)
    assert (first["reason"], first["states"], first["answers"]) == (
        "approval_needed", ["finished", "awaiting", "finished"], [],
    )  # fmt: skip
    command = [sys.executable, "-c", textwrap.dedent(PAUSE), str(place), str(tmp_path), decision]
    done = subprocess.run(command, input=first["waiting"][0], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    second = json.loads(done.stdout)
    assert (second["reason"], second["text"], second["states"]) == ("STOP", "All done.", ["finished", state, "finished"])
    assert second["answers"] == [{"result": "look is done"}, told, {"result": "look is done"}]
    assert (tmp_path / "look").read_text() == "xx"  # What was done before the pause was not done again.
    assert (tmp_path / "wipe").read_text() == effects
