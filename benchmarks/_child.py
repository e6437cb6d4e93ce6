"""One measurement of one system, in a process of its own and with the interpreter of that system's own environment.

    python _child.py SYSTEM TASK URL [TURNS]        prints one line of JSON

Nothing of callgate is imported here unless callgate is the system.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import importlib
import json
import logging
import os
import statistics
import sys
import time
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from _schemas import schema

sys.path.insert(0, str(Path(__file__).resolve().parent))

MODULES = {
    "callgate": "by_callgate",
    "hand-written": "by_hand",
    "raw sockets": "by_sockets",
    "google-genai": "by_google_genai",
    "pydantic-ai": "by_pydantic_ai",
    "LiteLLM": "by_litellm",
    "LangChain": "by_langchain",
}
ASIDE = {"aiohttp": "by_aiohttp"}
"""Measured beside a single benchmark, and not among the systems."""
MARKS = (10, 100, 400)
WINDOW = 5
WAIT_S = 0.05
TOOLS = 500


class Meter:
    """Notes the processor time at every call of the one tool, which all systems have in common."""

    def __init__(self) -> None:
        self.at: list[float] = []

    async def look_up(self, number: int) -> dict[str, Any]:
        """Looks a number up."""
        self.at.append(time.process_time())
        return {"number": number, "found": True, "text": "a line of some length, as tools return it " * 4}

    def around(self, mark: int) -> float | None:
        """Median milliseconds of a turn around this one."""
        costs = [after - before for before, after in zip(self.at, self.at[1:], strict=False)]
        near = costs[max(0, mark - WINDOW) : mark + WINDOW]
        return 1000 * statistics.median(near) if len(self.at) >= mark else None


def turns(system: Any, url: str, count: int) -> dict[str, Any]:
    """Milliseconds of processor time of a turn, early and late. A short talk before it loads what is loaded late."""
    meter = Meter()

    async def look_up(number: int) -> dict[str, Any]:
        """Looks a number up."""
        return await meter.look_up(number)

    start, cpu = time.perf_counter(), time.process_time()
    asyncio.run(system.turns(url, look_up, count))
    took = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - start}
    return {**{f"turn {mark}": meter.around(mark) for mark in MARKS}, **took, "turns": len(meter.at)}


def large_events(system: Any, url: str, count: int) -> dict[str, Any]:
    """The same in events of 64 KB."""
    return stream(system, f"{url}/events", count)


def stream_memory(system: Any, url: str, count: int) -> dict[str, Any]:
    """The most memory that Python's objects take while an answer of 5 MB is streamed, after a first time."""
    import tracemalloc

    stream_kept = getattr(system, "stream_kept", system.stream)
    asyncio.run(stream_kept(url))
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    asyncio.run(stream_kept(url))
    return {"MB": (tracemalloc.get_traced_memory()[1] - before) / 1e6}


def stream(system: Any, url: str, count: int) -> dict[str, Any]:
    """Megabytes of text for a second of processor time, after a first time that loads what is loaded late."""
    rates: list[float] = []
    for _ in range(3):
        gc.collect()
        before = time.process_time()
        size = asyncio.run(system.stream(url))
        rates.append(size / 1e6 / (time.process_time() - before))
        assert size > 5_000_000, size
    return {"MB/s": statistics.median(rates[1:])}


def parallel(system: Any, url: str, count: int) -> dict[str, Any]:
    """Milliseconds of wall time of a run with twenty calls of 50 ms, async and sync, by a client that is warm."""

    async def wait(number: int) -> str:
        """Waits."""
        await asyncio.sleep(WAIT_S)
        return f"waited {number}"

    def wait_sync(number: int) -> str:
        """Waits."""
        time.sleep(WAIT_S)
        return f"waited {number}"

    wait_sync.__name__ = wait_sync.__qualname__ = "wait"
    result: dict[str, Any] = {}
    for kind, tool in (("async", wait), ("sync", wait_sync)):
        took: list[float] = []

        async def timed(run: Callable[[], Awaitable[Any]], took: list[float] = took) -> Any:
            last = None
            for _ in range(6):
                start = time.perf_counter()
                last = await run()
                took.append(time.perf_counter() - start)
            return last

        asyncio.run(system.parallel(f"{url}/parallel", tool, timed))
        result[kind] = 1000 * statistics.median(took[1:])
    return result


def large_call(system: Any, url: str, count: int) -> dict[str, Any]:
    """Milliseconds of processor time for one streamed call with a megabyte of arguments, and its answer."""
    sizes: list[int] = []

    async def store(text: str) -> int:
        """Stores a text."""
        sizes.append(len(text))
        return len(text)

    took: list[float] = []
    for _ in range(4):
        gc.collect()
        before = time.process_time()
        asyncio.run(system.large_call(f"{url}/args", store))
        took.append(time.process_time() - before)
    assert sizes == [1024 * 1024] * 4, sizes
    return {"ms": 1000 * statistics.median(took[1:])}


def large_calls(system: Any, url: str, count: int) -> dict[str, Any]:
    """Milliseconds of processor time for a call with a megabyte of text and its answer, by a client that is warm."""

    async def store(text: str) -> int:
        """Stores a text."""
        return len(text)

    return _warm_calls(system, f"{url}/args", store)


def large_rows(system: Any, url: str, count: int) -> dict[str, Any]:
    """The same with a megabyte in rows."""

    async def store(rows: list[dict[str, Any]]) -> int:
        """Stores rows."""
        return len(rows)

    return _warm_calls(system, f"{url}/rows", store)


def _warm_calls(system: Any, url: str, store: Callable[..., Awaitable[int]]) -> dict[str, Any]:
    took: list[float] = []

    async def timed(run: Callable[[], Awaitable[Any]]) -> None:
        for _ in range(8):
            gc.collect()
            before = time.process_time()
            await run()
            took.append(time.process_time() - before)

    asyncio.run(system.large_calls(url, store, timed))
    return {"ms": 1000 * min(took[2:])}


def raw_tools(system: Any, url: str, count: int) -> dict[str, Any]:
    """Milliseconds of processor time from 500 raw definitions through a new client to its first answer, and again with
    equal definitions and another client."""
    first, again = [], []
    for number in range(4):
        given = [
            {"name": f"tool_{number}_{n}", "description": f"Does the thing {n}.", "schema": schema(n)} for n in range(TOOLS)
        ]
        for took in (first, again):
            tools = copy.deepcopy(given)
            gc.collect()
            before = time.process_time()
            asyncio.run(system.raw_tools(f"{url}/done", tools))
            took.append(1000 * (time.process_time() - before))
    return {"first": min(first[1:]), "again": min(again[1:])}


def declaring(system: Any, url: str, count: int) -> dict[str, Any]:
    """Milliseconds of processor time to put 500 tools into a request, the first time and again."""
    tools = [{"name": f"tool_{n}", "description": f"Does the thing {n}.", "schema": schema(n)} for n in range(TOOLS)]
    system.declaring(tools)
    again = _best(system.declaring, lambda: tools)
    return {"first": _best(system.declaring, lambda: copy.deepcopy(tools)), "again": again}


def _best(work: Callable[[Any], object], prepared: Callable[[], Any]) -> float:
    took: list[float] = []
    for _ in range(5):
        given = prepared()
        gc.collect()
        before = time.process_time()
        work(given)
        took.append(1000 * (time.process_time() - before))
    return min(took)


TASKS: dict[str, Callable[[Any, str, int], dict[str, Any]]] = {
    "turns": turns,
    "stream": stream,
    "parallel": parallel,
    "large_call": large_call,
    "large_calls": large_calls,
    "large_rows": large_rows,
    "large_events": large_events,
    "stream_memory": stream_memory,
    "raw_tools": raw_tools,
    "declaring": declaring,
}


def system_of(name: str) -> Any:
    """The adapter of a system."""
    return importlib.import_module(f"systems.{(MODULES | ASIDE)[name]}")


def main() -> None:
    name, task, url = sys.argv[1:4]
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    # What systems say about themselves must not be taken for the result.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps(TASKS[task](system_of(name), url, count)), file=out, flush=True)


if __name__ == "__main__":
    main()
