"""What a call in a worker costs beside one in a thread, and how soon a call that does not end is dead.

One run measures warm no-op calls in a thread, in a pool of ours and, where they are installed, in a pool of pebble, in
actors of Ray and in a pool of ours on Ray; the last once more as a program on a cluster that it joins by each kind of
address; how long eight workers take to be ready and how much memory each has; and how
late after its deadline a tool that spins or sleeps, and its child, are dead. The contestants take turns in short rounds, so
that a noisy machine is noisy for all of them. Each call of a peer has a deadline, as ours have, and its result comes to the
same loop.

    python benchmarks/workers.py [--strict]        --strict: ends with 1 if a goal is missed
    python benchmarks/workers.py --cluster         nothing but the calls on a cluster
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from callgate import Executor, FunctionCall, WorkerPool, tool
from callgate.workers import RayCluster

ROUNDS = 12
CALLS = 400
"""Of one contestant in one round, one by one; and as many again, several at once."""
AT_ONCE = 8
WORKERS = 4
STOPS = 30
"""Of each kind of tool that does not end."""
DEADLINE_S = 0.3
P50_MS_MAX = 1.0
CLUSTER_P50_MS_MAX = 5.0
CALLS_PER_S_MIN = 1500
LATE_MS_MAX = 200
RAY = {"num_cpus": 8, "object_store_memory": 80 * 1024 * 1024, "include_dashboard": False, "_node_ip_address": "127.0.0.1"}

HERE = Path(__file__).resolve()


@tool(read_only=True)
def no_op(number: int) -> int:
    """Gives back what it was given."""
    return number


@tool
def spin(note: str) -> None:
    """Starts a child and never returns."""
    bear_a_child(note)
    while True:
        pass


@tool
def doze(note: str) -> None:
    """Starts a child and sleeps."""
    bear_a_child(note)
    time.sleep(60)


def bear_a_child(note: str) -> None:
    """Starts a process that sleeps, and notes its id and our own."""
    child = subprocess.Popen(["sleep", "60"])
    Path(note).write_text(f"{os.getpid()} {child.pid}")


def pebble_no_op(number: int) -> int:
    return number


Call = Callable[[int], Awaitable[object]]


@dataclass
class Row:
    """What was measured of one contestant."""

    call: Call
    pids: Callable[[], Iterable[int]] | None
    """The processes of its workers; None if they cannot be looked at."""
    times_ms: list[float] = field(default_factory=list[float])
    rates: list[float] = field(default_factory=list[float])
    cpu_us: list[float] = field(default_factory=list[float])
    """Processor time of a call here and in the workers, several at once; it depends less on what else a machine does."""

    @property
    def p50_ms(self) -> float:
        return statistics.median(self.times_ms)

    @property
    def p99_ms(self) -> float:
        return sorted(self.times_ms)[int(len(self.times_ms) * 0.99)]

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    async def measure(self) -> None:
        for number in range(20):
            await self.call(number)
        for number in range(CALLS):
            started = time.perf_counter()
            await self.call(number)
            self.times_ms.append((time.perf_counter() - started) * 1000)
        used, started = cpu_s(self.pids), time.perf_counter()
        await asyncio.gather(*(self._several(CALLS // AT_ONCE) for _ in range(AT_ONCE)))
        self.rates.append(CALLS / (time.perf_counter() - started))
        self.cpu_us.append((cpu_s(self.pids) - used) / CALLS * 1e6)

    async def _several(self, count: int) -> None:
        for number in range(count):
            await self.call(number)


def through(executor: Executor) -> Call:
    return lambda n: executor.execute(FunctionCall(name="no_op", args={"number": n}, id=str(n)))


@asynccontextmanager
async def pebbles(count: int) -> AsyncIterator[Any]:
    from pebble import ProcessPool

    with ProcessPool(max_workers=count) as pool:
        yield pool
        pool.stop()


def pebble_pids(pool: Any) -> set[int]:
    return {process.pid for process in pool._pool_manager.worker_manager.workers.values()}


def with_pebble(pool: Any) -> Call:
    return lambda n: asyncio.wrap_future(pool.schedule(pebble_no_op, args=[n], timeout=30))


@asynccontextmanager
async def actors(count: int) -> AsyncIterator[list[Any]]:
    import ray

    class NoOp:
        def no_op(self, number: int) -> int:
            return number

        def pid(self) -> int:
            return os.getpid()

    ray.init(**{"log_to_driver": False, "configure_logging": False} | RAY)
    made = [ray.remote(NoOp).options(num_cpus=0).remote() for _ in range(count)]
    yield made
    ray.shutdown()


def with_ray(made: list[Any]) -> Call:
    def call(number: int) -> Awaitable[object]:
        future = made[number % len(made)].no_op.remote(number).future()
        return asyncio.wait_for(asyncio.wrap_future(future), 30)

    return call


@contextlib.contextmanager
def cluster_head() -> Iterator[dict[str, str]]:
    """A cluster of one machine, and its addresses."""
    ports: list[int] = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            ports.append(probe.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="cg-ray-", ignore_cleanup_errors=True) as folder:
        words = [
            "start", "--head", "--block", f"--port={ports[0]}", f"--ray-client-server-port={ports[1]}", "--num-cpus=8",
            "--include-dashboard=false", "--node-ip-address=127.0.0.1", "--object-store-memory=80000000",
            f"--temp-dir={folder}",
        ]  # fmt: skip
        command = [str(Path(sys.executable).with_name("ray")), *words]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as head:
            try:
                while head.poll() is None and not is_open(ports[1]):
                    time.sleep(0.1)
                yield {"ray://": f"ray://127.0.0.1:{ports[1]}", "host:port": f"127.0.0.1:{ports[0]}"}
            finally:
                head.terminate()


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def on_a_cluster() -> dict[str, list[float]]:
    """Calls of a program that joins a cluster: name -> p50, p99, calls a second. Each joins in a process of its own."""
    found: dict[str, list[float]] = {}
    with cluster_head() as addresses:
        for name, address in addresses.items():
            for way in ("direct", "relayed"):
                command = [sys.executable, str(HERE), "--joined", address, way]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                found[f"by {name}, {way}"] = [float(word) for word in done.stdout.split()[-3:]]
    return found


async def joined(address: str, way: str) -> None:
    """Measure the calls of this process on a cluster."""
    cluster = RayCluster(address=address, direct=way == "direct")
    async with WorkerPool([HERE], size=WORKERS, cluster=cluster) as pool:
        row = Row(lambda n: pool.execute(None, "no_op", {"number": n}), None)
        for _ in range(ROUNDS // 4):
            await row.measure()
        print(row.p50_ms, row.p99_ms, row.rate)


def print_cluster() -> bool:
    """Print the calls on a cluster; return whether a direct one meets its goal by both addresses."""
    rows = on_a_cluster()
    for name, (p50_ms, p99_ms, rate) in rows.items():
        print(f"{name:24}{p50_ms:10.3f}{p99_ms:10.3f}{rate:10.0f}")
    is_met = all(p50_ms <= CLUSTER_P50_MS_MAX for name, (p50_ms, *_) in rows.items() if "direct" in name)
    print(f"{'met' if is_met else 'MISSED'}: median of at most {CLUSTER_P50_MS_MAX} ms by both addresses of a cluster")
    return is_met


def is_there(module: str) -> bool:
    with contextlib.suppress(ImportError):
        __import__(module)
        return True
    return False


def memory_mib(pid: int) -> float:
    """What a process has for itself, in MiB."""
    rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(row.split()[1]) for row in rows if row.startswith(("Private_Clean", "Private_Dirty"))) / 1024


def cpu_s(pids: Callable[[], Iterable[int]] | None) -> float:
    """The processor time of this process and others until now."""
    if pids is None:
        return math.nan
    tasks = [task for pid in pids() for task in Path(f"/proc/{pid}/task").iterdir()]
    return time.process_time() + sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


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


async def lateness(pool: WorkerPool, name: str) -> list[float]:
    """Milliseconds after its deadline at which a tool and its child were seen dead, the soonest first."""
    late: list[float] = []
    for _ in range(STOPS):
        while pool.health["idle"] < WORKERS:  # noqa: ASYNC110 - a worker that starts in its place would compete with it
            await asyncio.sleep(0.01)
        with tempfile.TemporaryDirectory() as folder:
            note = f"{folder}/pids"
            task = asyncio.create_task(pool.execute(None, name, {"note": note}, timeout_s=DEADLINE_S))
            started = time.monotonic()
            pids: list[int] = []
            while not pids or any(map(is_alive, pids)):
                await asyncio.sleep(0.001)
                pids = pids or noted(note)
            late.append((time.monotonic() - started - DEADLINE_S) * 1000)
            await task
    return sorted(late)


async def in_turns(rows: dict[str, Row]) -> None:
    for _ in range(ROUNDS):
        for row in rows.values():
            await row.measure()


async def start_up() -> list[str]:
    """How soon eight workers are ready, and what each needs."""
    lines: list[str] = []
    started = time.perf_counter()
    async with WorkerPool([HERE], size=8) as eight:
        await eight.ready()
        lines.append(told("pool", time.perf_counter() - started, eight.pids))
    if is_there("pebble"):
        started = time.perf_counter()
        async with pebbles(8) as pool:
            # It starts its workers with the first calls, as copies of this process.
            await asyncio.gather(*(asyncio.wrap_future(pool.schedule(time.sleep, args=[0.2])) for _ in range(8)))
            ready_s = time.perf_counter() - started - 0.2
            lines.append(told("pebble (forks this process)", ready_s, pebble_pids(pool)))
    if is_there("ray"):
        started = time.perf_counter()
        async with actors(8) as made:
            pids = await asyncio.gather(*(asyncio.wrap_future(actor.pid.remote().future()) for actor in made))
            lines.append(told("Ray, with its start", time.perf_counter() - started, pids))
    return lines


def told(name: str, ready_s: float, pids: Any) -> str:
    memory = statistics.median(map(memory_mib, pids))
    return f"{name:32}eight workers ready in {ready_s:.2f} s, {memory:.1f} MiB of its own each"


def _number(value: float) -> str:
    return f"{'-' if math.isnan(value) else round(value):>10}"


async def main(*, strict: bool) -> int:
    load = os.getloadavg()[0]
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(WorkerPool([HERE], size=WORKERS))
        await pool.ready()
        rows = {
            "thread": Row(through(Executor([no_op])), tuple),
            "pool, by an executor": Row(through(Executor([pool])), lambda: pool.pids),
            "pool.execute": Row(lambda n: pool.execute(None, "no_op", {"number": n}), lambda: pool.pids),
        }
        if is_there("pebble"):
            peer = await stack.enter_async_context(pebbles(WORKERS))
            rows["pebble"] = Row(with_pebble(peer), lambda: pebble_pids(peer))
        if is_there("ray"):
            made = await stack.enter_async_context(actors(WORKERS))
            pids = await asyncio.gather(*(asyncio.wrap_future(actor.pid.remote().future()) for actor in made))
            rows["Ray, plain actors"] = Row(with_ray(made), lambda: pids)
            far = await stack.enter_async_context(WorkerPool([HERE], size=WORKERS, cluster=RayCluster()))
            rows["pool on Ray"] = Row(lambda n: far.execute(None, "no_op", {"number": n}), None)
        await in_turns(rows)
        late = {name: await lateness(pool, name) for name in ("spin", "doze")}
    print(f"load of the machine: {load:.1f} before, {os.getloadavg()[0]:.1f} after")
    print(f"{'':24}{'p50 ms':>10}{'p99 ms':>10}{'calls/s':>10}{'cpu us':>10}")
    for name, row in rows.items():
        print(f"{name:24}{row.p50_ms:10.3f}{row.p99_ms:10.3f}{row.rate:10.0f}{_number(statistics.median(row.cpu_us))}")
    print(*await start_up(), sep="\n")
    for name, ms in late.items():
        told_late = f"{ms[0]:.0f} / {statistics.median(ms):.0f} / {ms[len(ms) * 9 // 10]:.0f} / {ms[-1]:.0f} ms"
        print(f"{name} and its child dead after the deadline, {len(ms)} times: soonest / p50 / p90 / latest {told_late}")
    missed = judged(rows, max(ms[-1] for ms in late.values()))
    if is_there("ray") and not print_cluster():
        missed = 1
    return missed if strict else 0


def judged(rows: dict[str, Row], latest_ms: float) -> int:
    """Says which goals are met, and by how much a peer is beaten; 1 if one is missed."""
    ours = rows["pool.execute"]
    goals = {
        f"median of at most {P50_MS_MAX} ms": ours.p50_ms <= P50_MS_MAX,
        f"at least {CALLS_PER_S_MIN} calls a second": ours.rate >= CALLS_PER_S_MIN,
        f"dead within {LATE_MS_MAX} ms": latest_ms <= LATE_MS_MAX,
    }
    for peer in ("pebble", "Ray, plain actors"):
        if peer in rows:
            sooner, more = rows[peer].p50_ms / ours.p50_ms, ours.rate / rows[peer].rate
            goals[f"sooner than {peer} ({sooner:.2f} times)"] = sooner > 1
            goals[f"more calls a second than {peer} ({more:.2f} times)"] = more > 1
    for goal, met in goals.items():
        print(f"{'met' if met else 'MISSED'}: {goal}")
    return 0 if all(goals.values()) else 1


if __name__ == "__main__":
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")  # It would ask for a token, which has no part in a call.
    if sys.argv[1:2] == ["--joined"]:
        sys.exit(asyncio.run(joined(*sys.argv[2:])))
    if sys.argv[1:2] == ["--cluster"]:
        sys.exit(not print_cluster())
    sys.exit(asyncio.run(main(strict="--strict" in sys.argv[1:])))
