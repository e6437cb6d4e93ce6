"""A process that is killed at random instants, again and again: no call runs twice, and none is lost.

The conversation is the same without state at the server, with it, and in the background; a server that forgets now and then
changes nothing either.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.interactions.conftest import run

from callgate.history.repair import validate
from callgate.store import open_store
from callgate.testing.fake_interactions import FakeInteractions

CALLS = 12
PROGRAM = """
import asyncio, json, os, sys
from callgate import Gate, InteractionsModel, Limits, UsageError, tool
from callgate.gemini.surface import Surface

url, store, effects, settings = sys.argv[1:5]

@tool
def act(number: int) -> str:
    '''Has an effect that must happen once.'''
    with open(effects, "a") as file:
        file.write(f"{number}\\n")
        file.flush()
        os.fsync(file.fileno())
    return f"done {number}"

async def main():
    surface = Surface(kind="developer", base_url=url, version="v1beta", api_key="k")
    model = InteractionsModel("gemini-3.8-flash", surface=surface)
    limits = Limits(turns=100, repeats=100)
    async with Gate(model, [act], store=store, mode="native", settings=json.loads(settings), limits=limits) as gate:
        print("ready", flush=True)
        known = await gate.store.load("s")
        async def watch(event):
            print(type(event).__name__, flush=True)
        try:
            reply = await gate.run(None if known else "Go.", session="s", watch=watch)
        except UsageError as error:  # It was killed after the end.
            assert "nothing to continue" in str(error)
        print("over", flush=True)
asyncio.run(main())
"""


def player(fake: list[FakeInteractions]) -> Any:
    """A model that calls `act` with 0, 1, 2, ..., whatever the results say, and then ends."""

    def play(request: dict[str, Any]) -> Any:
        previous = fake[0].state.stored.get(str(request.get("previous_interaction_id")))
        steps = [*(previous.steps if previous else ()), *request["input"]]
        number = sum(step["type"] == "function_call" for step in steps)
        return {"functionCall": {"name": "act", "args": {"number": number}}} if number < CALLS else "Finished."

    return play


@pytest.mark.slow
@pytest.mark.usefixtures("unjudged")
@pytest.mark.parametrize("settings", ['{"store": false}', '{"store": true}', '{"background": true}'])
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_at_random_instants_double_nothing_and_lose_nothing(tmp_path: Path, settings: str, seed: int) -> None:
    dice = random.Random(f"{seed} {settings}")
    store, effects = tmp_path / "sessions.db", tmp_path / "effects.txt"
    effects.touch()
    holder: list[FakeInteractions] = []
    kills = 0
    with FakeInteractions.in_thread([player(holder)], repeat_last=True, polls=0) as fake:
        holder.append(fake)
        for _ in range(60):
            child = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, fake.base_url, str(store), str(effects), settings],
                stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert child.stdout is not None
            left = dice.randrange(2, 14)
            last = ""
            for line in child.stdout:
                last = line.strip()
                left -= 1
                if left == 0 and not last.startswith("over"):
                    break
            is_over = last.startswith("over")
            child.kill()
            child.wait()
            child.stdout.close()
            if is_over:
                break
            kills += 1
            if dice.random() < 0.2:
                fake.forget()
        assert is_over
    # A process that dies between the request and its answer cannot know the id of the run that it began.
    assert [breach for breach in fake.breaches if not breach.startswith("IR77")] == []
    done = Counter(effects.read_text().split())
    assert {number: count for number, count in done.items() if count > 1} == {}
    assert kills >= 2

    async def story() -> Any:
        from callgate.machine.machine import RunMachine

        opened = open_store(str(store))
        found = await opened.load("s")
        await opened.aclose()
        return RunMachine(found)

    machine = run(story)
    contents = machine.conversation.contents
    assert validate(contents) == []
    calls = [part["functionCall"] for content in contents for part in content["parts"] if "functionCall" in part]
    assert sorted(call["args"]["number"] for call in calls) == list(range(CALLS))
    told = [part["functionResponse"] for content in contents for part in content["parts"] if "functionResponse" in part]
    # Each call has one response: its result, or the truth that nobody knows.
    assert len(told) == CALLS
    for call, response in zip(calls, told, strict=True):
        number = call["args"]["number"]
        if "result" in response["response"]:
            assert (response["response"]["result"], done[str(number)]) == (f"done {number}", 1)
        else:
            assert "error" in response["response"]
