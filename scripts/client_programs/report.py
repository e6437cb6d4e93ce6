"""What every client is asked to do, and how a program of one says how it went: one line of JSON for each way to ask.

Runs in the environment of the client, so nothing but the standard library is imported here.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

BASE, TOKEN = os.environ["SERVICE_URL"], os.environ["SERVICE_TOKEN"]
PROMPTS: dict[str, str] = json.loads(os.environ["PROMPTS"])
EXPECTED: dict[str, Any] = json.loads(os.environ["EXPECTED"])
LEFT = Path(os.environ["LEFT_FILE"])
"""A line for each stream that the service left while the model was still speaking."""
LEFT_S = 150
"""Far above the minute for which a stored response goes on without its client, who may come back."""
MODEL, UNKNOWN = "callgate", "no-such-model"


def weather(city: str) -> str:
    """Tell the weather of a city."""
    WEATHER_ASKED.append(city)
    return f"{city} is cold"


WEATHER_ASKED: list[str] = []
WEATHER = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


class Way:
    """One way to ask with a client. A subclass has a method for each deed that the client offers; the others say why not."""

    lacks: Mapping[str, str] = MappingProxyType({})

    def status(self, error: BaseException) -> int:
        """The HTTP status that an exception tells of, itself, in its causes, or at least in its words."""
        seen: BaseException | None = error
        while seen is not None:
            for name in ("status_code", "code", "status"):
                if isinstance(found := getattr(seen, name, None), int):
                    return found
            seen = seen.__cause__ or seen.__context__
        found = re.search(r"\b[45]\d\d\b", str(error))
        return int(found[0]) if found else 0


def run(ways: Iterable[type[Way]]) -> None:
    """Try every deed in every way, and print what came of it."""
    for way in ways:
        rows = {deed: _tried(way, deed) for deed in EXPECTED}
        print(json.dumps({"way": way.__doc__ or way.__name__, "rows": rows}), flush=True)


def _tried(way: type[Way], deed: str) -> str:
    if not hasattr(way, deed):
        return f"- {way.lacks.get(deed, 'not offered by the client')}"
    WEATHER_ASKED.clear()
    left_before = len(LEFT.read_text().splitlines())
    try:
        made = way()
        said = getattr(made, deed)(PROMPTS[deed])
        got = asyncio.run(said) if inspect.isawaitable(said) else said
    except Exception as error:
        if deed != "error":
            return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        got = made.status(error)
    if deed in ("parallel", "its"):
        got = [sorted(WEATHER_ASKED), got]
    if deed == "stream":
        got = ["".join(got), len(list(got)) > 1]
    if deed == "abort":
        got = [got, _was_left(left_before)]
    return "ok" if got == EXPECTED[deed] else f"got {json.dumps(got, default=str)[:300]}"


def _was_left(before: int) -> bool:
    """Whether the service leaves the model, too, while this process is still there."""
    deadline = time.monotonic() + LEFT_S
    while time.monotonic() < deadline:
        if len(LEFT.read_text().splitlines()) > before:
            return True
        time.sleep(0.05)
    return False


async def first_of(stream: Any) -> str:
    """The first words of an async stream that is then given up, as a task that is cancelled does it."""
    begun = asyncio.Event()
    words: list[str] = []

    async def read() -> None:
        async for piece in stream:
            if piece:
                words.append(piece)
                begun.set()

    task = asyncio.create_task(read())
    waits = asyncio.create_task(begun.wait())
    await asyncio.wait({task, waits}, return_when=asyncio.FIRST_COMPLETED)
    waits.cancel()
    if task.done() and (error := task.exception()):
        raise error
    task.cancel()
    await asyncio.wait({task})
    return words[0] if words else ""
