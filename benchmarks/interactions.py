"""What a turn costs by the Interactions API, in processor time and in bytes, as a conversation grows.

callgate by both APIs, without and with state at the server, beside google-genai's own client; each in a process of its own,
against fake servers in another one that echo and judge nothing. Text only, one request a turn.

    python benchmarks/interactions.py [--turns 400]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

MODEL = "gemini-3.8-flash"
SYSTEMS = ("generateContent", "interactions", "interactions, stored", "google-genai", "google-genai, stored")
EARLY, WINDOW = 10, 10
SAID = "The quick brown fox jumps over the lazy dog, and goes on for as long as it takes to fill two lines of text. "


class Row(NamedTuple):
    """A system's milliseconds of processor time and bytes of a request, at an early turn and at a late one."""

    system: str
    then_ms: float
    now_ms: float
    then: int
    now: int


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=400)
    parser.add_argument("--child", nargs=2, metavar=("SYSTEM", "URL"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        system, url = given.child
        print(json.dumps(measured(system, url, given.turns)))
        return 0
    show(rows(given.turns), given.turns)
    return 0


def rows(turns: int, systems: Sequence[str] = SYSTEMS) -> Iterator[Row]:
    """The figures of each system, as they are there."""
    for system in systems:
        module = "fake_gemini" if system == "generateContent" else "fake_interactions"
        server = subprocess.Popen(
            [sys.executable, "-m", f"callgate.testing.{module}", "--no-strict"], stdout=subprocess.PIPE, text=True
        )
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            command = [sys.executable, __file__, "--turns", str(turns), "--child", system, url]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
        finally:
            server.kill()
            server.wait()
        yield Row(system, *json.loads(done.stdout.splitlines()[-1]))


def show(found: Iterable[Row], turns: int) -> dict[str, Row]:
    """Print the figures as they come; returns them by their system."""
    print(
        f"{'':24}{f'turn {EARLY} ms':>12}{f'turn {turns} ms':>12}{'ratio':>8}{'bytes then':>12}{'bytes now':>12}{'ratio':>8}"
    )
    shown: dict[str, Row] = {}
    for row in found:
        shown[row.system] = row
        times, sizes = row.now_ms / row.then_ms, row.now / row.then
        print(
            f"{row.system:24}{row.then_ms:12.2f}{row.now_ms:12.2f}{times:8.2f}{row.then:12,}{row.now:12,}{sizes:8.2f}",
            flush=True,
        )
    return shown


def goals(found: Mapping[str, Row]) -> list[tuple[str, float, float]]:
    """The title, the value and the most of each goal: with state at the server, a turn does not grow with the history."""
    stored = found["interactions, stored"]
    return [
        ("stored: late turn / early turn", stored.now_ms / stored.then_ms, 1.2),
        ("stored: late bytes / early bytes", stored.now / stored.then, 1.05),
    ]


def measured(system: str, url: str, turns: int) -> tuple[float, float, int, int]:
    """Milliseconds of processor time and bytes of a request, around the early turn and around the last one."""
    if system.startswith("google-genai"):
        costs, sizes = of_google_genai(url, turns, stored=system.endswith("stored"))
    else:
        costs, sizes = asyncio.run(of_callgate(system, url, turns))
    early, late = slice(EARLY - WINDOW // 2, EARLY + WINDOW // 2), slice(turns - WINDOW, turns)
    return statistics.median(costs[early]), statistics.median(costs[late]), sizes[EARLY - 1], sizes[turns - 1]


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
