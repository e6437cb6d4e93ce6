"""What a turn costs by the Interactions API, in processor time and in bytes, as a conversation grows.

callgate by both APIs, without and with state at the server, beside google-genai's own client; each in a process of its own,
against fake servers in another one that echo and judge nothing. Text only, one request a turn.

    python benchmarks/interactions.py [--turns 400] [--docs]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import _tables

MODEL = "gemini-3.8-flash"
SYSTEMS = ("generateContent", "interactions", "interactions, stored", "google-genai", "google-genai, stored")
TITLES = {
    "generateContent": "callgate, `generateContent`",
    "interactions": "callgate, `interactions`",
    "interactions, stored": "callgate, `interactions` with `store=True`",
    "google-genai": "google-genai's `client.interactions`, stateless",
    "google-genai, stored": "google-genai's `client.interactions`, `previous_interaction_id`",
}
MARKS, WINDOW, ROUNDS = (10, 100, 400), 5, 3
DOCS = Path(__file__).resolve().parent.parent / "docs"
SAID = "The quick brown fox jumps over the lazy dog, and goes on for as long as it takes to fill two lines of text. "


class Figure(NamedTuple):
    """The milliseconds of processor time and the bytes of a request, around one turn."""

    ms: float
    size: int


Row: TypeAlias = "dict[int, Figure]"
"""Turn -> what it cost."""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=MARKS[-1])
    parser.add_argument("--docs", action="store_true", help="write the tables of the documentation too")
    parser.add_argument("--child", nargs=2, metavar=("SYSTEM", "URL"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        system, url = given.child
        print(json.dumps(measured(system, url, given.turns)))
        return 0
    found = rows(given.turns)
    show(found)
    if given.docs:
        write(found)
    return 0


def marks_of(turns: int) -> list[int]:
    """The turns to look at in a conversation of this length."""
    return sorted({mark for mark in MARKS if mark <= turns} | {turns})


def rows(turns: int) -> dict[str, Row]:
    """The figures of each system: medians of rounds, which are interleaved."""
    found: dict[str, list[Row]] = {}
    for number in range(ROUNDS):
        for system in SYSTEMS:
            # The SDK checks the whole history again at every turn, so that one round of it takes minutes.
            if number == 0 or not system.startswith("google-genai"):
                found.setdefault(system, []).append(_one(system, turns))
    return {
        system: {mark: Figure(statistics.median(one[mark].ms for one in rounds), rounds[0][mark].size) for mark in rounds[0]}
        for system, rounds in found.items()
    }


def _one(system: str, turns: int) -> Row:
    module = "fake_gemini" if system == "generateContent" else "fake_interactions"
    server = subprocess.Popen(
        [sys.executable, "-m", f"callgate.testing.{module}", "--no-strict"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        command = [sys.executable, __file__, "--turns", str(turns), "--child", system, url]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    finally:
        server.kill()
        server.wait()
    return {mark: Figure(*figure) for mark, figure in json.loads(done.stdout.splitlines()[-1])}


def show(found: Mapping[str, Row]) -> None:
    """Print the figures, and how those of the last turn are to those of the first."""
    marks = list(next(iter(found.values())))
    titles = [f"turn {mark}, {unit}" for unit in ("ms", "bytes") for mark in (*marks, "ratio")]
    print(" " * 24 + "".join(f"{title.replace('turn ratio', 'ratio'):>16}" for title in titles))
    for system, row in found.items():
        first, last = row[marks[0]], row[marks[-1]]
        times = "".join(f"{row[mark].ms:16.2f}" for mark in marks) + f"{last.ms / first.ms:16.2f}"
        sizes = "".join(f"{row[mark].size:16,}" for mark in marks) + f"{last.size / first.size:16.2f}"
        print(f"{system:24}{times}{sizes}", flush=True)


def goals(found: Mapping[str, Row]) -> list[tuple[str, float, float]]:
    """The title, the value and the most of each goal: a turn does not grow with the history, but for its bytes."""

    def ratio(system: str) -> tuple[float, float]:
        first, *_, last = found[system].values()
        return last.ms / first.ms, last.size / first.size

    return [
        ("generateContent: late turn / early turn", ratio("generateContent")[0], 1.2),
        ("interactions: late turn / early turn", ratio("interactions")[0], 1.3),
        ("interactions, stored: late turn / early turn", ratio("interactions, stored")[0], 1.2),
        ("interactions, stored: late bytes / early bytes", ratio("interactions, stored")[1], 1.05),
    ]


def write(found: Mapping[str, Row]) -> None:
    """Replace the tables of the documentation."""
    marks = list(next(iter(found.values())))
    ends = f"turn {marks[-1]} / {marks[0]}"
    for name, shown in (("time", lambda figure: f"{figure.ms:.2f}"), ("bytes", lambda figure: f"{figure.size:,}")):
        rows: list[tuple[str, ...]] = []
        for system, row in found.items():
            first, last = ((each.ms if name == "time" else each.size) for each in (row[marks[0]], row[marks[-1]]))
            rows.append((TITLES[system], *(shown(row[mark]) for mark in marks), f"{last / first:.2f}"))
        _tables.replace(DOCS, f"apis, {name}", _tables.table(("", *(f"turn {mark}" for mark in marks), ends), rows))
    load = os.getloadavg()[0]
    where = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    _tables.replace(DOCS, "apis, where", f"{where}, load {load:.1f} at the end; rounds interleaved, medians.")


def measured(system: str, url: str, turns: int) -> list[tuple[int, tuple[float, int]]]:
    """The milliseconds of processor time and the bytes of a request, around each turn that is looked at."""
    if system.startswith("google-genai"):
        costs, sizes = of_google_genai(url, turns, stored=system.endswith("stored"))
    else:
        costs, sizes = asyncio.run(of_callgate(system, url, turns))
    return [
        (mark, (statistics.median(costs[max(mark - WINDOW, 0) : mark + WINDOW]), sizes[mark - 1]))
        for mark in marks_of(turns)
    ]


async def of_callgate(system: str, url: str, turns: int) -> tuple[list[float], list[int]]:
    from callgate import Gate, GeminiModel, InteractionsModel
    from callgate.gemini.surface import Surface
    from callgate.wire.sender import Sender

    sizes: list[int] = []
    send = Sender.send

    def counted(self: Sender, pool: Any, request: Any, *args: Any, **options: Any) -> Any:
        sizes.append(len(request.body))
        return send(self, pool, request, *args, **options)

    Sender.send = counted  # pyright: ignore[reportAttributeAccessIssue]
    surface = Surface(kind="developer", base_url=url, version="v1beta", api_key="k")
    model = (GeminiModel if system == "generateContent" else InteractionsModel)(MODEL, surface=surface)
    settings = {"store": True} if system.endswith("stored") else {}
    costs: list[float] = []
    async with Gate(model, mode="native", settings=settings) as gate:
        for number in range(turns):
            began = time.process_time()
            await gate.run(f"{number}: {SAID}", session="s")
            costs.append((time.process_time() - began) * 1_000)
    return costs, sizes


def of_google_genai(url: str, turns: int, *, stored: bool) -> tuple[list[float], list[int]]:
    from google import genai

    client = genai.Client(api_key="k", http_options={"base_url": url})
    steps: list[Any] = []
    previous: Any = None
    costs: list[float] = []
    sizes: list[int] = []
    for number in range(turns):
        began = time.process_time()
        said = {"type": "user_input", "content": [{"type": "text", "text": f"{number}: {SAID}"}]}
        if stored:
            more = {"previous_interaction_id": previous} if previous else {}
            body: dict[str, Any] = {"model": MODEL, "input": [said], **more}
        else:
            steps.append(said)
            body = {"model": MODEL, "input": steps, "store": False}
        answer = client.interactions.create(**body)
        previous = answer.id
        if not stored:
            steps += [step.model_dump(exclude_none=True) for step in answer.steps]
        costs.append((time.process_time() - began) * 1_000)
        sizes.append(len(json.dumps(body)))
    return costs, sizes


if __name__ == "__main__":
    sys.exit(main())
