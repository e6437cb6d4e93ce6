"""What the service costs: a bare ASGI echo, plain chat, chat with tools and many open streams, side by side in one run.

Each server is a process of its own; the model is one more, of a few lines, that never keeps anybody waiting
(`_chat_server.py`). Rounds are interleaved and medians are shown, with the processor time of the server for each request,
which other programs on the machine disturb least. Whoever asks is this process: it must have time to spare, or it would be
what is measured, so its own share of a processor is shown too. The floor is the echo with one request to the model by a bare
socket: less than that no chat can cost.

    python benchmarks/service.py [--quick] [--litellm PATH]     ends with 1 if a goal is missed
    python benchmarks/service.py --soak                         two minutes x CALLGATE_SCALE at half load

`--litellm` names the `litellm` program of an environment that has its proxy, to be measured beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
CONNECTIONS = 32
STREAMS = 500
RATIO_MIN = 0.35
SLOPE_MAX_MIB_MIN = 1.0
CHAT = "/api/v1/chat"
KEY = "sk-" + "0123456789abcdef" * 4
"""LiteLLM's proxy does not start without one."""
PROMPTS = 97
"""Different prompts, each of another length: no two requests in a row are the same."""


@dataclass
class Server:
    """One process that is measured."""

    process: subprocess.Popen[bytes]
    port: int

    def cpu_s(self) -> float:
        # The clock of another process, as Linux numbers it: in nanoseconds, where its statistics count in hundredths.
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def rss_mib(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


@dataclass
class Measured:
    """What came of some rounds."""

    rates: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    waits_ms: list[float] = field(default_factory=list)
    asking: list[float] = field(default_factory=list)
    """The share of a processor that asking took."""

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)

    @property
    def cpu(self) -> float:
        return statistics.median(self.cpu_ms)

    def quantile(self, share: float) -> float:
        waits = sorted(self.waits_ms)
        return waits[min(len(waits) - 1, int(share * len(waits)))]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@contextlib.contextmanager
def started(command: list[str], port: int) -> Iterator[Server]:
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 120
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    break
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise SystemExit(f"{command} did not start:\n{log.read().decode(errors='replace')[-2000:]}")
                time.sleep(0.1)
            yield Server(process, port)
        finally:
            process.terminate()
            process.wait(30)


@contextlib.contextmanager
def own(what: str, *words: str) -> Iterator[Server]:
    port = free_port()
    with started([sys.executable, str(HERE / "_chat_server.py"), what, str(port), *words], port) as server:
        yield server


# The load ---------------------------------------------------------------------------------------------------------------


def request(body: Any, path: str, accept: str = "*/*") -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nAuthorization: Bearer {KEY}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def asking(prompt: str) -> list[bytes]:
    """Requests to chat that differ, as those of people do."""
    return [request({"prompt": f"{prompt} {number:03}{'.' * 3 * number}"}, CHAT) for number in range(PROMPTS)]


class Asker(asyncio.Protocol):
    """One connection that sends a request as soon as the one before is answered, with as few steps as there can be."""

    def __init__(self, data: Iterator[bytes], waits: list[float], until: float, pause_s: float) -> None:
        self.data = data
        self.waits = waits
        self.until = until
        self.pause_s = pause_s
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.came = b""
        self.begun = 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.begun = time.perf_counter()
        self.transport.write(next(self.data))

    def data_received(self, data: bytes) -> None:
        self.came = self.came + data if self.came else data
        head, end, body = self.came.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]):
            return
        now = time.perf_counter()
        if not head.startswith(b"HTTP/1.1 200 "):
            self.over.set_exception(AssertionError(self.came[:1000]))
            return
        self.came = b""
        self.waits.append(1000 * (now - self.begun))
        if now >= self.until:
            self.transport.close()
        elif self.pause_s:
            asyncio.get_running_loop().call_later(self.pause_s, self.send)
        else:
            self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(exc) if exc is not None else self.over.set_result(None)


async def load(port: int, data: Sequence[bytes], *, connections: int, seconds: float, pause_s: float = 0.0) -> list[float]:
    """How long each request took, in milliseconds, from so many connections at once."""
    waits: list[float] = []
    until = time.perf_counter() + seconds
    loop = asyncio.get_running_loop()
    endless = itertools.cycle(data)
    askers = [Asker(endless, waits, until, pause_s) for _ in range(connections)]
    for asker in askers:
        await loop.create_connection(lambda asker=asker: asker, "127.0.0.1", port)
    await asyncio.gather(*(asker.over for asker in askers))
    return waits


def measure(server: Server, data: Sequence[bytes], into: Measured, *, connections: int, seconds: float) -> None:
    cpu, own_cpu, begun = server.cpu_s(), time.process_time(), time.perf_counter()
    waits = asyncio.run(load(server.port, data, connections=connections, seconds=seconds))
    passed_s = time.perf_counter() - begun
    into.rates.append(len(waits) / passed_s)
    into.asking.append((time.process_time() - own_cpu) / passed_s)
    into.cpu_ms.append(1000 * (server.cpu_s() - cpu) / len(waits))
    into.waits_ms += waits


async def open_streams(port: int, count: int) -> dict[str, float]:
    """Many streams of a hundred pieces in ten seconds each, all at once."""
    data = request({"prompt": "Trickle"}, CHAT, "text/event-stream")
    firsts: list[float] = []
    pieces = 0

    async def one() -> None:
        nonlocal pieces
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        begun = time.perf_counter()
        writer.write(data)
        seen = b""
        while b"event: run_ended" not in seen[-4000:]:
            more = await reader.read(65536)
            assert more, "the stream broke off"
            assert b"event: error" not in more, more[:1000]
            assert seen or b" 200 " in more[:20], more[:1000]
            if b"event: text_delta" in more and b"event: text_delta" not in seen:
                firsts.append(1000 * (time.perf_counter() - begun))
            pieces += more.count(b"event: text_delta")
            seen = seen[-4000:] + more
        writer.close()

    begun = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(count)))
    firsts.sort()
    return {
        "seconds": time.perf_counter() - begun,
        "pieces": pieces,
        "first p50 ms": firsts[len(firsts) // 2],
        "first p99 ms": firsts[int(0.99 * len(firsts))],
    }


# The whole --------------------------------------------------------------------------------------------------------------


def compare(*, rounds: int, seconds: float, litellm: str | None) -> bool:
    plain, tools = asking("Hello there"), asking("Use tools")
    with contextlib.ExitStack() as stack:
        model = stack.enter_context(own("model"))
        url = f"http://127.0.0.1:{model.port}"
        echo, service = stack.enter_context(own("echo")), stack.enter_context(own("service", url))
        direct = [
            request({"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}, "/v1beta/models/m:generateContent")
        ]
        rows: dict[str, tuple[Server, list[bytes]]] = {
            "bare ASGI echo": (echo, plain),
            "floor: echo + socket": (stack.enter_context(own("floor", url)), plain),
            "bare proxy, httpx2": (stack.enter_context(own("proxy", url)), plain),
            "plain chat": (service, plain),
            "chat, 2 turns, 4 calls": (service, tools),
        }
        if litellm is not None:
            rows["LiteLLM proxy, plain"] = (stack.enter_context(litellm_proxy(litellm, url)), [_openai_request()])
        many = {name: Measured() for name in rows}
        alone = {name: Measured() for name in (*rows, "the model itself")}
        rows_alone = rows | {"the model itself": (model, direct)}
        for _ in range(rounds):
            for name, (server, data) in rows.items():
                measure(server, data, many[name], connections=CONNECTIONS, seconds=seconds)
            for name, (server, data) in rows_alone.items():
                measure(server, data, alone[name], connections=1, seconds=seconds / 2)
        itself = alone["the model itself"]
        print(f"{CONNECTIONS} connections; added: by one client alone, over the model itself\n")
        print(f"{'':24}{'req/s':>8}{'p50 ms':>9}{'p99 ms':>9}{'CPU ms':>9}{'added p50':>11}{'added p99':>11}", end="")
        print(f"{'RSS MiB':>9}{'asking':>8}")
        for name, (server, _) in rows.items():
            one, all_ = alone[name], many[name]
            added = [one.quantile(share) - itself.quantile(share) for share in (0.5, 0.99)]
            print(
                f"{name:24}{all_.rate:8.0f}{all_.quantile(0.5):9.2f}{all_.quantile(0.99):9.2f}{all_.cpu:9.3f}"
                f"{added[0]:11.2f}{added[1]:11.2f}{server.rss_mib():9.1f}{statistics.median(all_.asking):8.0%}"
            )
        before = service.rss_mib()
        streams = asyncio.run(open_streams(service.port, STREAMS))
        print(f"\n{STREAMS} open streams: " + ", ".join(f"{key} {value:.1f}" for key, value in streams.items()))
        print(f"RSS {before:.1f} -> {service.rss_mib():.1f} MiB")
        base = many["bare ASGI echo"]
        print(f"\nshare of the bare echo (load of the machine: {os.getloadavg()[0]:.1f})")
        for name in ("floor: echo + socket", "bare proxy, httpx2", "plain chat"):
            print(
                f"{name:24}{many[name].rate / base.rate:8.1%} by requests, {base.cpu / many[name].cpu:.1%} by processor time"
            )
        ratio = many["plain chat"].rate / base.rate
        word = "met" if ratio >= RATIO_MIN else "MISSED"
        print(f"goal {word}: plain chat has {ratio:.1%} of the requests of the bare echo (goal {RATIO_MIN:.0%})")
    return ratio >= RATIO_MIN


@contextlib.contextmanager
def litellm_proxy(program: str, url: str) -> Iterator[Server]:
    """LiteLLM's proxy before the same model server."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "config.yaml")
        parameters = {"model": "openai/m", "api_base": f"{url}/v1", "api_key": "k"}
        models = [{"model_name": "m", "litellm_params": parameters}]
        config.write_text(json.dumps({"model_list": models, "general_settings": {"master_key": KEY}}))
        words = [program, "--config", str(config), "--port", str(port), "--host", "127.0.0.1", "--num_workers", "1"]
        with started(words, port) as server:
            yield server


def _openai_request() -> bytes:
    body = {"model": "m", "messages": [{"role": "user", "content": "Hello there"}]}
    return request(body, "/v1/chat/completions")


def soak(seconds: float) -> bool:
    """Half load for a while: memory must not grow after the warm-up, and descriptors go back to where they were."""
    tools = asking("Use tools")
    with own("model") as model, own("service", f"http://127.0.0.1:{model.port}") as service:
        asyncio.run(load(service.port, tools, connections=8, seconds=max(10.0, seconds / 6)))
        base = service.descriptors()
        points: list[tuple[float, float]] = []
        begun = time.monotonic()
        count = 0
        while (now := time.monotonic() - begun) < seconds:
            waits = asyncio.run(load(service.port, tools, connections=8, seconds=5, pause_s=0.05))
            count += len(waits)
            points.append((now, service.rss_mib()))
        time.sleep(20)  # Longer than connections are kept.
        after = service.descriptors()
    slope = 60 * statistics.linear_regression(*zip(*points, strict=True)).slope
    print(f"soak: {count} conversations in {seconds:.0f} s, RSS {points[0][1]:.1f} -> {points[-1][1]:.1f} MiB, ", end="")
    print(f"slope {slope:+.2f} MiB/min (goal {SLOPE_MAX_MIB_MIN}), descriptors {base} -> {after}")
    is_met = slope <= SLOPE_MAX_MIB_MIN and after <= base
    print("goal met" if is_met else "goal MISSED: memory grows, or descriptors stay open")
    return is_met


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--litellm", metavar="PATH")
    given = parser.parse_args()
    if given.soak:
        return 0 if soak(120.0 * SCALE) else 1
    rounds, seconds = (2, 2.0) if given.quick else (5, 4.0)
    return 0 if compare(rounds=rounds, seconds=seconds, litellm=given.litellm) else 1


if __name__ == "__main__":
    sys.exit(main())
