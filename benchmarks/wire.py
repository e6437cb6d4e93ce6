"""What a turn and a stream cost over the wire: callgate, a hand-written loop and google-genai, side by side in one run.

A part of `bench.py` for those who work on the wire: the same tasks with the interpreter at hand, in a minute and without
other environments. Each system runs in a process of its own against the same server in another one; processor time of the
client's process is what counts, so a slow server hurts nobody. Runs are interleaved and the medians are shown.

The server is one of a few lines that never looks into a body (`_wire_server.py` says why). `--fake` takes the fake server
of the tests, which judges every request: minutes instead of seconds a run, a client with cold caches, and the same goals.

Then the same for the Interactions API, without and with state at the server, beside google-genai's client for it
(`interactions.py`): what a turn costs, and how many bytes it sends, as a conversation grows.

    python benchmarks/wire.py [--quick] [--fake] [--docs]        ends with 1 if a goal is missed
"""

from __future__ import annotations

import argparse
import json
import sys

import _venvs
from _child import MARKS, WINDOW
from bench import HERE, Figures, Goal, Results, output_of, serving, show, show_goals

import interactions

SYSTEMS = ("callgate", "hand-written", "google-genai")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions, and the SDK for 100 turns only")
    parser.add_argument("--fake", action="store_true", help="against callgate.testing.fake_gemini instead of a bare server")
    parser.add_argument("--docs", action="store_true", help="write the tables of both APIs into the documentation")
    given = parser.parse_args()
    results = Results()
    for number in range(3):
        for system in SYSTEMS:
            is_short = system == "google-genai" and given.quick
            if number == 0 or not is_short:
                measure(results, system, (MARKS[1] if is_short else MARKS[-1]) + WINDOW, fake=given.fake)
    show(results)
    found = goals(results)
    show_goals(found)
    show_aiohttp(results, (MARKS[0] + WINDOW), fake=given.fake)
    print("\nBoth APIs of Gemini, text only, one request a turn:")
    turns = MARKS[1] if given.quick else MARKS[-1]
    rows = interactions.rows(turns)
    interactions.show(rows)
    if given.docs:
        interactions.write(rows)
    stored = interactions.goals(rows)
    found += [Goal(*goal) for goal in stored]
    show_goals(found[-len(stored) :])
    return 0 if all(goal.is_met for goal in found) else 1


def measure(results: Results, system: str, turns: int, *, fake: bool) -> None:
    with serving(turns, fake=fake) as url:
        for task in ("turns", "stream"):
            command = [sys.executable, str(HERE / "_child.py"), system, task, url, str(turns)]
            figures: Figures = json.loads(output_of(command).splitlines()[-1])
            results.add(task, system, figures)


def show_aiohttp(results: Results, turns: int, *, fake: bool) -> None:
    """What a turn and a stream cost beside the same loop on aiohttp, another quick client; nobody need beat it."""
    try:
        python = _venvs.python_of("aiohttp")
    except _venvs.MissingError as error:
        print(f"\naiohttp cannot be had here, so it was not measured: {error}")
        return
    with serving(turns, fake=fake) as url:
        for task, name in (("turns", f"turn {MARKS[0]}"), ("stream", "MB/s")):
            command = [str(python), str(HERE / "_child.py"), "aiohttp", task, url, str(turns)]
            theirs = json.loads(output_of(command).splitlines()[-1])[name]
            ours = results.get(task, "callgate", name)
            if ours and theirs:
                print(f"{task}: callgate {ours:.2f}, a loop on aiohttp {theirs:.2f}; the ratio is {ours / theirs:.2f}")


def goals(results: Results) -> list[Goal]:
    def ratio(task: str, name: str, other: tuple[str, str]) -> float | None:
        ours, theirs = results.get(task, "callgate", name), results.get(task, *other)
        return None if ours is None or not theirs else ours / theirs

    return [
        Goal("turn 10 / hand-written", ratio("turns", "turn 10", ("hand-written", "turn 10")), 1.3),
        Goal("turn 400 / hand-written", ratio("turns", "turn 400", ("hand-written", "turn 400")), 1.0),
        Goal("turn 400 / own turn 10", ratio("turns", "turn 400", ("callgate", "turn 10")), 1.2),
        Goal("streaming / hand-written", ratio("stream", "MB/s", ("hand-written", "MB/s")), 0.7, at_least=True),
        Goal("streaming / google-genai", ratio("stream", "MB/s", ("google-genai", "MB/s")), 3.0, at_least=True),
    ]


if __name__ == "__main__":
    sys.exit(main())
