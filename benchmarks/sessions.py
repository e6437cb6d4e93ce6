"""What it costs to keep sessions: processor time of a turn in memory and in SQLite, early and late, and memory of idle ones.

A turn is a prompt, a call and an answer of a scripted model, without a network. Both stores are measured in one process, in
turns of a hundred; processor time counts all threads, that of the store too. Memory is what a fresh process has more after a
thousand sessions of one turn each.

    python benchmarks/sessions.py        ends with 1 if a goal is missed
"""

from __future__ import annotations

import asyncio
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from callgate import Gate, Limits, ScriptedModel
from callgate.machine.codec import encode
from callgate.machine.facts import Fact, RunStarted
from callgate.store import Lease, MemoryStore, Store, open_store
from callgate.testing import call, text

TURNS = 1_020
MARKS = (10, 1_000)
WINDOW = 9
"""Turns on either side of a mark that count as being around it."""
REPETITIONS = 3
GROWTH_MAX = 1.5
"""How much more a turn at the last mark may cost than one at the first."""
IDLE = 1_000
IDLE_KIB_MAX = 64.0
"""What an idle session may take of the memory of its process."""

LIMITS = Limits(repeats=10_000)


async def look_up(number: int) -> dict[str, object]:
    """Looks a number up."""
    return {"number": number, "found": True, "text": "a line of some length, as tools return it " * 4}


def gate_on(store: Store, turns: int) -> Gate:
    """A gate whose model makes one call and gives one answer a turn; all turns have the same length."""
    script = [item for turn in range(turns) for item in (call("look_up", number=100_000 + turn), text("It is there."))]
    return Gate(ScriptedModel(script, strict=False, piece_chars=0), tools=[look_up], limits=LIMITS, store=store)


class Counting(MemoryStore):
    """Counts the facts of each turn and the bytes that they are in a journal."""

    def __init__(self) -> None:
        super().__init__()
        self.turns: list[tuple[int, int]] = []

    async def append(self, lease: Lease, facts: Sequence[Fact], *, position: int, durable: bool = False) -> None:
        await super().append(lease, facts, position=position, durable=durable)
        if any(isinstance(fact, RunStarted) for fact in facts):
            self.turns.append((0, 0))
        count, size = self.turns[-1]
        self.turns[-1] = count + len(facts), size + sum(len(encode(fact)) for fact in facts)


def journalled(turns: int) -> list[tuple[int, int]]:
    """Facts and bytes that each turn of a conversation adds to its journal."""
    store = Counting()

    async def talk() -> None:
        gate = gate_on(store, turns)
        for turn in range(turns):
            await gate.run(f"Number {100_000 + turn}, please.", session="talk")

    asyncio.run(talk())
    return store.turns


async def _timed(gate: Gate, first: int, count: int) -> list[float]:
    seconds: list[float] = []
    for turn in range(first, first + count):
        begun = time.process_time()
        reply = await gate.run(f"Number {100_000 + turn}, please.", session="talk")
        seconds.append(time.process_time() - begun)
        assert (reply.finish_reason, len(reply.calls)) == ("STOP", 1), reply.finish_reason
    return seconds


async def both(turns: int, folder: str) -> tuple[list[float], list[float]]:
    """Seconds of processor time of every turn, in memory and in SQLite, measured by turns."""
    stores = MemoryStore(), open_store(os.path.join(folder, "sessions.db"))
    gates = [gate_on(store, turns) for store in stores]
    seconds: tuple[list[float], list[float]] = ([], [])
    for first in range(0, turns, 100):
        for gate, taken in zip(gates, seconds, strict=True):
            taken.extend(await _timed(gate, first, min(100, turns - first)))
    await stores[1].aclose()
    return seconds


def rss_kib() -> float:
    """Memory of this process, as the system counts it."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


async def idle(kind: str) -> float:
    """KiB that each of many idle sessions takes, with one store."""
    with tempfile.TemporaryDirectory() as folder:
        store = MemoryStore() if kind == "memory" else open_store(os.path.join(folder, "sessions.db"))
        gate = gate_on(store, IDLE + 50)
        for number in range(50):
            await gate.run("Number 100000, please.", session=f"warm {number}")
        before = rss_kib()
        for number in range(IDLE):
            await gate.run("Number 100000, please.", session=f"idle {number}")
        after = rss_kib()
        await store.aclose()
    return (after - before) / IDLE


def _idle_in_fresh_process(kind: str) -> float:
    done = subprocess.run([sys.executable, __file__, "--idle", kind], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> int:
    """Prints the figures; 1 if a goal is missed."""
    around: dict[tuple[str, int], list[float]] = {}
    for _ in range(REPETITIONS):
        with tempfile.TemporaryDirectory() as folder:
            for name, taken in zip(("memory", "SQLite"), asyncio.run(both(TURNS, folder)), strict=True):
                for mark in MARKS:
                    around.setdefault((name, mark), []).extend(taken[max(0, mark - WINDOW - 1) : mark + WINDOW])
    micros = {key: statistics.median(values) * 1e6 for key, values in around.items()}
    print(f"{TURNS} turns, {REPETITIONS} repetitions, medians over the turns around each mark")
    print(f"{'turn':>6}{'memory us':>12}{'SQLite us':>12}{'journal us':>12}{'SQLite/memory':>15}")
    for mark in MARKS:
        memory, sqlite = micros["memory", mark], micros["SQLite", mark]
        print(f"{mark:>6}{memory:>12.0f}{sqlite:>12.0f}{sqlite - memory:>12.0f}{sqlite / memory:>15.2f}")
    first, last = (micros["SQLite", mark] for mark in (MARKS[0], MARKS[-1]))
    kib = {kind: _idle_in_fresh_process(kind) for kind in ("memory", "sqlite")}
    print(f"turn {MARKS[-1]} / turn {MARKS[0]} in SQLite: {last / first:.2f} (goal: at most {GROWTH_MAX})")
    print(f"an idle session, of {IDLE}: {kib['memory']:.1f} KiB in memory, {kib['sqlite']:.1f} KiB with SQLite", end="")
    print(f" (goal: at most {IDLE_KIB_MAX:g})")
    return 0 if last / first <= GROWTH_MAX and max(kib.values()) <= IDLE_KIB_MAX else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--idle"]:
        print(asyncio.run(idle(sys.argv[2])))
    else:
        sys.exit(main())
