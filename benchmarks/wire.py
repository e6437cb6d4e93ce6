"""What a turn and a stream cost over the wire: callgate, a hand-written loop and google-genai, side by side in one run.

Each system runs in a process of its own against the same server in another one; processor time of the client's process
is what counts, so a slow server hurts nobody. Runs are interleaved and the medians are shown.

The server is one of a few lines that never looks into a body (`_wire_server.py` says why). `--fake` takes the fake server
of the tests, which judges every request: minutes instead of seconds a run, a client with cold caches, and the same goals.

    python benchmarks/wire.py [--quick] [--fake]        ends with 1 if a goal is missed
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MARKS = (10, 100, 400)
WINDOW = 5
MODEL = "gemini-3.8-flash"
MEGABYTES = 5

RATIO_TO_HAND_WRITTEN_MAX = 1.5
GROWTH_MAX = 1.2
STREAM_RATIO_TO_SDK_MIN = 3.0


class Meter:
    """Notes the processor time at every call of the one tool, which all systems have in common."""

    def __init__(self) -> None:
        self.at: list[float] = []

    def look_up(self, number: int) -> dict[str, Any]:
        """Looks a number up."""
        self.at.append(time.process_time())
        return {"number": number, "found": True, "text": "a line of some length, as tools return it " * 4}

    def around(self, mark: int) -> float | None:
        """Median milliseconds of a turn around this one."""
        costs = [after - before for before, after in zip(self.at, self.at[1:], strict=False)]
        near = costs[max(0, mark - WINDOW) : mark + WINDOW]
        return 1000 * statistics.median(near) if len(self.at) >= mark else None


# The systems ------------------------------------------------------------------------------------------------------------


async def callgate_turns(url: str, meter: Meter, turns: int) -> None:
    from callgate import Gate, GeminiModel, Limits
    from callgate.gemini.surface import Surface

    surface = Surface(kind="developer", base_url=url, version="v1beta", api_key="k")

    async def look_up(number: int) -> dict[str, Any]:
        """Looks a number up."""
        return meter.look_up(number)

    limits = Limits(turns=1000, calls=1000, repeats=1000)
    async with Gate(GeminiModel(MODEL, surface=surface), [look_up], limits=limits) as gate:
        reply = await gate.run("Begin.")
    assert len(reply.calls) == turns, reply.finish_reason


async def callgate_stream(url: str) -> int:
    from callgate import Gate, GeminiModel
    from callgate.events import TextDelta
    from callgate.gemini.surface import Surface

    surface = Surface(kind="developer", base_url=url, version="v1beta", api_key="k")
    size = 0
    async with Gate(GeminiModel(MODEL, surface=surface)) as gate:
        async for event in gate.stream("Talk."):
            if isinstance(event, TextDelta):
                size += len(event.text)
    return size


DECLARATION = {
    "name": "look_up",
    "description": "Looks a number up.",
    "parametersJsonSchema": {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]},
}


async def hand_written_turns(url: str, meter: Meter, turns: int) -> None:
    """What a careful person would write without a library: the whole history encoded for each request, by a fast encoder."""
    import httpx2
    from pydantic_core import from_json, to_json

    contents: list[Any] = [{"role": "user", "parts": [{"text": "Begin."}]}]
    body = {"contents": contents, "tools": [{"functionDeclarations": [DECLARATION]}]}
    headers = {"x-goog-api-key": "k", "content-type": "application/json"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as client:
        while True:
            response = await client.post(f"{url}/v1beta/models/{MODEL}:generateContent", content=to_json(body))
            content = from_json(response.content)["candidates"][0]["content"]
            contents.append(content)
            calls = [part["functionCall"] for part in content["parts"] if "functionCall" in part]
            if not calls:
                break
            parts = [
                {
                    "functionResponse": {
                        "id": call["id"],
                        "name": call["name"],
                        "response": {"result": meter.look_up(**call["args"])},
                    }
                }
                for call in calls
            ]
            contents.append({"role": "user", "parts": parts})
    assert len(meter.at) == turns


async def hand_written_stream(url: str) -> int:
    import httpx2
    from pydantic_core import from_json, to_json

    body = to_json({"contents": [{"role": "user", "parts": [{"text": "Talk."}]}]})
    headers = {"x-goog-api-key": "k", "content-type": "application/json"}
    size, rest = 0, b""
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as client,
        client.stream("POST", f"{url}/v1beta/models/{MODEL}:streamGenerateContent?alt=sse", content=body) as response,
    ):
        async for data in response.aiter_bytes():
            *events, rest = (rest + data).split(b"\r\n\r\n")
            for event in events:
                for part in from_json(event[5:])["candidates"][0]["content"]["parts"]:
                    size += len(part["text"])
    return size


def _genai(url: str) -> Any:
    from google import genai

    return genai.Client(api_key="k", http_options={"base_url": url, "api_version": "v1beta"})


async def genai_turns(url: str, meter: Meter, turns: int) -> None:
    from google.genai import types

    async def look_up(number: int) -> dict[str, Any]:
        """Looks a number up."""
        return meter.look_up(number)

    calling = types.AutomaticFunctionCallingConfig(maximum_remote_calls=turns + 10)
    config = types.GenerateContentConfig(tools=[look_up], automatic_function_calling=calling)
    client = _genai(url)  # Held on to: it closes its connections when it is collected.
    await client.aio.models.generate_content(model=MODEL, contents="Begin.", config=config)
    assert len(meter.at) == turns


async def genai_stream(url: str) -> int:
    size, client = 0, _genai(url)
    async for chunk in await client.aio.models.generate_content_stream(model=MODEL, contents="Talk."):
        size += len(chunk.text or "")
    return size


SYSTEMS: dict[
    str, tuple[Callable[[str, Meter, int], Coroutine[Any, Any, None]], Callable[[str], Coroutine[Any, Any, int]]]
] = {
    "callgate": (callgate_turns, callgate_stream),
    "hand-written": (hand_written_turns, hand_written_stream),
    "google-genai": (genai_turns, genai_stream),
}


def measure(system: str, url: str, turns: int) -> dict[str, float | None]:
    """Everything about one system, in this process."""
    run_turns, run_stream = SYSTEMS[system]
    meter = Meter()
    asyncio.run(run_turns(url, meter, turns))
    before = time.process_time()
    size = asyncio.run(run_stream(url))
    spent = time.process_time() - before
    assert size > MEGABYTES * 1_000_000, size
    return {**{f"turn {mark}": meter.around(mark) for mark in MARKS}, "MB/s": size / 1e6 / spent}


# The driver -------------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="one repetition, and the SDK for 100 turns only")
    parser.add_argument("--fake", action="store_true", help="against callgate.testing.fake_gemini instead of a bare server")
    parser.add_argument("--system", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--turns", type=int, default=MARKS[-1] + WINDOW, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.system:
        print(json.dumps(measure(given.system, given.url, given.turns)))
        return 0
    results: dict[str, list[dict[str, float | None]]] = {name: [] for name in SYSTEMS}
    for _ in range(1 if given.quick else 3):
        for name in SYSTEMS:
            turns = 105 if name == "google-genai" and given.quick else given.turns
            results[name].append(in_own_process(name, turns, fake=given.fake))
    return show({name: middle(rows) for name, rows in results.items()})


def in_own_process(system: str, turns: int, *, fake: bool = False) -> dict[str, float | None]:
    server = subprocess.Popen(
        [sys.executable, HERE / "_wire_server.py", str(turns), str(MEGABYTES), *(["--fake"] if fake else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        command = [
            sys.executable,
            __file__,
            "--system",
            system,
            "--url",
            server.stdout.readline().strip(),
            "--turns",
            str(turns),
        ]
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        return json.loads(done.stdout.splitlines()[-1])
    finally:
        server.stdin.close()
        server.wait()
        server.stdout.close()


def middle(rows: list[dict[str, float | None]]) -> dict[str, float | None]:
    return {
        key: statistics.median(values) if (values := [v for row in rows if (v := row[key]) is not None]) else None
        for key in rows[0]
    }


def show(systems: dict[str, dict[str, float | None]]) -> int:
    columns = [f"turn {mark}" for mark in MARKS] + ["MB/s"]
    print(
        f"{'':14}"
        + "".join(f"{column:>12}" for column in columns)
        + "   (ms of CPU a turn; streamed text per second of CPU)"
    )
    for name, row in systems.items():
        print(f"{name:14}" + "".join("           -" if (v := row[column]) is None else f"{v:12.2f}" for column in columns))
    ours, bare, sdk = systems["callgate"], systems["hand-written"], systems["google-genai"]
    goals = [
        ("turn 10 against the hand-written loop", ratio(ours, bare, "turn 10"), RATIO_TO_HAND_WRITTEN_MAX, "at most"),
        ("turn 400 against our own turn 10", (ours["turn 400"] or 0) / (ours["turn 10"] or 1), GROWTH_MAX, "at most"),
        ("streaming against google-genai", ratio(ours, sdk, "MB/s"), STREAM_RATIO_TO_SDK_MIN, "at least"),
    ]
    missed = 0
    for title, value, goal, how in goals:
        ok = value <= goal if how == "at most" else value >= goal
        missed += not ok
        print(f"{'ok    ' if ok else 'MISSED'} {title}: {value:.2f} ({how} {goal})")
    return 1 if missed else 0


def ratio(one: dict[str, float | None], other: dict[str, float | None], key: str) -> float:
    return (one[key] or 0) / (other[key] or 1)


if __name__ == "__main__":
    sys.exit(main())
