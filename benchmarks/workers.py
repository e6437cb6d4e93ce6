"""What a call in a worker costs beside one in a thread, and how soon a call that does not end is dead.

One run measures warm no-op calls in a thread, in a pool of ours and, where it is installed, in a pool of pebble; how long
eight workers take to be ready and how much memory each has; and how late after its deadline a spinning tool and its child
are dead.

    python benchmarks/workers.py        ends with 1 if a goal is missed
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from callgate import Executor, FunctionCall, WorkerPool, tool

CALLS = 2000
AT_ONCE = 8
STOPS = 15
DEADLINE_S = 0.3
P50_MS_MAX = 1.0
CALLS_PER_S_MIN = 1500
LATE_MS_MAX = 200

HERE = Path(__file__).resolve()


@tool(read_only=True)
def no_op(number: int) -> int:
    """Gives back what it was given."""
    return number


@tool
def spin(note: str) -> None:
    """Starts a child, notes both process ids and never returns."""
    import subprocess

    child = subprocess.Popen(["sleep", "60"])
    Path(note).write_text(f"{os.getpid()} {child.pid}")
    while True:
        pass


def pebble_no_op(number: int) -> int:
    return number


async def timed(call: Callable[[int], Awaitable[object]]) -> tuple[float, float, float]:
    """Milliseconds of the median and of the 99th percentile one by one; calls a second when several run at once."""
    for number in range(50):
        await call(number)
    times: list[float] = []
    for number in range(CALLS):
        started = time.perf_counter()
        await call(number)
        times.append((time.perf_counter() - started) * 1000)

    async def several(count: int) -> None:
        for number in range(count):
            await call(number)

    started = time.perf_counter()
    await asyncio.gather(*(several(CALLS // AT_ONCE) for _ in range(AT_ONCE)))
    rate = CALLS / (time.perf_counter() - started)
    times.sort()
    return statistics.median(times), times[int(len(times) * 0.99)], rate


async def through(executor: Executor) -> tuple[float, float, float]:
    return await timed(lambda n: executor.execute(FunctionCall(name="no_op", args={"number": n}, id=str(n))))


async def with_pebble() -> tuple[float, float, float] | None:
    try:
        from pebble import ProcessPool
    except ImportError:
        return None
    with ProcessPool(max_workers=4) as pool:
        found = await timed(lambda n: asyncio.wrap_future(pool.schedule(pebble_no_op, args=[n], timeout=30)))
        pool.stop()
    return found


def memory_mib(pid: int) -> float:
    """What a process has for itself, in MiB."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(row.split()[1]) for row in rows if row.startswith(("Private_Clean", "Private_Dirty"))) / 1024


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def noted(path: str) -> list[int]:
    try:
        return [int(word) for word in Path(path).read_text().split()]
    except OSError:
        return []


async def lateness(pool: WorkerPool) -> list[float]:
    """Milliseconds after its deadline at which a spinning tool and its child were seen dead."""
    late: list[float] = []
    for _ in range(STOPS):
        await pool.ready()
        with tempfile.TemporaryDirectory() as folder:
            note = f"{folder}/pids"
            task = asyncio.create_task(pool.execute(None, "spin", {"note": note}, timeout_s=DEADLINE_S))
            started = time.monotonic()
            pids: list[int] = []
            while not pids or any(map(is_alive, pids)):
                await asyncio.sleep(0.001)
                pids = pids or noted(note)
            late.append((time.monotonic() - started - DEADLINE_S) * 1000)
            await task
    return late


async def main() -> int:
    rows = {"thread": await through(Executor([no_op]))}
    async with WorkerPool([HERE], size=4) as pool:
        await pool.ready()
        rows["pool, by an executor"] = await through(Executor([pool]))
        rows["pool.execute"] = await timed(lambda n: pool.execute(None, "no_op", {"number": n}))
        late = await lateness(pool)
    if (row := await with_pebble()) is not None:
        rows["pebble"] = row
    started = time.perf_counter()
    async with WorkerPool([HERE], size=8) as eight:
        await eight.ready()
        ready_s = time.perf_counter() - started
        memory = statistics.median(map(memory_mib, eight.pids))

    print(f"{'':24}{'p50 ms':>10}{'p99 ms':>10}{'calls/s':>10}")
    for name, (p50, p99, rate) in rows.items():
        print(f"{name:24}{p50:10.3f}{p99:10.3f}{rate:10.0f}")
    print(f"eight workers ready in {ready_s:.2f} s, {memory:.1f} MiB of its own each")
    print(
        f"a spinning tool and its child dead {statistics.median(late):.0f} ms after the deadline, at most {max(late):.0f} ms"
    )
    p50, _, rate = rows["pool.execute"]
    goals = {
        f"median of at most {P50_MS_MAX} ms": p50 <= P50_MS_MAX,
        f"at least {CALLS_PER_S_MIN} calls a second": rate >= CALLS_PER_S_MIN,
        f"dead within {LATE_MS_MAX} ms": max(late) <= LATE_MS_MAX,
    }
    if "pebble" in rows:
        goals["ahead of pebble"] = p50 < rows["pebble"][0] and rate > rows["pebble"][2]
    for goal, met in goals.items():
        print(f"{'met' if met else 'MISSED'}: {goal}")
    return 0 if all(goals.values()) else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
