"""A service that strangers can reach, and everybody else: slow clients, hostile bodies, many sessions, side by side.

Each service is a `callgate serve` of its own, with a model server of a few lines that never keeps anybody waiting.

- slow clients: the slowest of ten chats with a token, while 2,000 sockets are silent in four ways; and of all chats while
  slowhttptest attacks;
- hostile bodies: a probe asks for `/health/live` again and again on a connection of its own while bodies of the largest size
  that is taken come in; shown is the longest that a response took, so what the event loop did meanwhile;
- many sessions: what listing and one chat cost with 50,000 sessions beside 50, as the median of many, by two services that
  are asked in turns.

    python benchmarks/exposure.py [slow|bodies|sessions] [--store URL ...]     ends with 1 if a goal is missed
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import itertools
import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from service import Server, own

TOKEN = "t" * 40
MODEL = "gemini-2.5-flash"
SOCKETS = 2_000
BYTES = 10 * 1024 * 1024 - 1_000
"""A little less than a body may have."""
VALUES = 100_000
"""Commas and colons that a body may have."""
KINDS = {"many": (BYTES, 1), "as many as are taken of": (VALUES, 1), "2,000 long": (VALUES, 5_300)}
"""Commas and colons of a body at most, and letters of its texts."""
CHAT_S_MAX = 1.0
GAP_S_MAX = 0.25
GROWTH_MAX = 2.0
FEW, MANY = 50, 50_000

SILENT = {
    "nothing": b"",
    "half a head": b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A",
    "a body after its response": b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\nx",
    "a body that does not come": b"POST /api/v1/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n{",
}
ATTACKS = {
    "slowhttptest, slow heads": ["-H"],
    "slowhttptest, slow bodies": ["-B", "-s", "5000"],
    "slowhttptest, slow reading": ["-X", "-k", "3", "-w", "1", "-y", "8", "-n", "1", "-z", "8"],
}


@contextlib.contextmanager
def serving(model: Server, folder: Path, *words: str) -> Iterator[int]:
    """The port of a `callgate serve` that ends with the block."""
    (folder / "token").write_text(TOKEN)
    (folder / "token").chmod(0o600)
    base = {"GEMINI_API_KEY": "a-key", "GOOGLE_GEMINI_BASE_URL": f"http://127.0.0.1:{model.port}"}
    command = [sys.executable, "-m", "callgate", "serve", "--port", "0", "--provider", "gemini", "--token-file", "token"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, *words], stderr=log, cwd=folder, env={**os.environ, **base})
    try:
        deadline = time.monotonic() + 120
        while "serves at http" not in (said := (folder / "log").read_text()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the service did not start:\n{said[-2000:]}")
            time.sleep(0.05)
        yield int(said.partition("serves at http")[2].partition(" ")[0].partition("#")[0].rstrip("/").rpartition(":")[2])
    finally:
        process.terminate()
        process.wait(60)


def ask(
    port: int, method: str, path: str, body: Any = None, *, keep: http.client.HTTPConnection | None = None
) -> tuple[int, bytes]:
    connection = keep or http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body)
    connection.request(method, path, data, {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"})
    response = connection.getresponse()
    answer = response.status, response.read()
    if keep is None:
        connection.close()
    return answer


def chat_s(port: int, **more: Any) -> float:
    begun = time.perf_counter()
    status, answer = ask(port, "POST", "/api/v1/chat", {"prompt": "hello", **more})
    assert status == 200, (status, answer[:1000])
    return time.perf_counter() - begun


# Slow clients -------------------------------------------------------------------------------------------------------------


def slow_clients(model: Server, stores: Sequence[str]) -> Iterator[tuple[str, float, float]]:
    with tempfile.TemporaryDirectory() as folder, serving(model, Path(folder), "--store", *(stores[:1] or ["s.db"])) as port:
        chat_s(port)
        for name, head in SILENT.items():
            with contextlib.ExitStack() as stack:
                for _ in range(SOCKETS):
                    connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
                    with contextlib.suppress(OSError):  # It may have been closed in favour of a later one.
                        connection.sendall(head)
                yield f"{SOCKETS} sockets, {name}", max(chat_s(port) for _ in range(10)), CHAT_S_MAX
        program = shutil.which("slowhttptest")
        if program is None:
            print("slowhttptest is not installed: its attacks are left out")
            return
        for name, words in ATTACKS.items():
            url = f"http://127.0.0.1:{port}/health"
            command = [program, *words, "-c", str(SOCKETS), "-r", "1000", "-i", "3", "-l", "8", "-u", url]
            attack = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            waits = [chat_s(port)]
            while attack.poll() is None:
                waits.append(chat_s(port))
            yield f"{name}, {len(waits)} chats", max(waits), CHAT_S_MAX


# Hostile bodies -----------------------------------------------------------------------------------------------------------


def filled(start: str, piece: str, end: str) -> bytes:
    """A body of the largest size: `piece` as often as it fits."""
    return (start + piece * ((BYTES - len(start) - len(end)) // len(piece)) + end).encode()


def listed(start: str, piece: str, end: str, values: int) -> bytes:
    """A body of the largest size: `piece` as often as it fits in a list, with at most so many commas and colons."""
    count = (BYTES - len(start) - len(end)) // len(piece + ",")
    count = min(count, (values - _separators(start + end)) // (_separators(piece) + 1))
    numbered = (piece.replace("NUMBER", str(number)) for number in range(count))
    return (start + ",".join(numbered) + end).encode()[:BYTES]


def _separators(text: str) -> int:
    return text.count(",") + text.count(":")


CHAT, SESSION, COMPLETIONS = "POST /api/v1/chat", "/api/v1/sessions/here", "POST /v1/chat/completions"
MESSAGES, RESPONSES, INTERACTIONS = "POST /v1/messages", "POST /v1/responses", "POST /v1beta/interactions"
GENERATE, UI, MCP = f"POST /v1beta/models/{MODEL}:generateContent", "POST /api/v1/ui/chat", "POST /mcp"
NAMED = f'{{"model":"{MODEL}","max_tokens":9,'
USER, KEY, PART = '{"role":"user","content":"x"}', '"kNUMBER":0', '{"type":"text","text":"x"}'
CONTENT = '{"role":"user","parts":[{"text":"x"}]}'
UI_MESSAGE = '{"id":"m","role":"user","parts":[{"type":"text","text":"x"}]}'
TOOL = '{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"integer"}}}}}'
CALL = '{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}'
CALLED = '{"role":"tool","tool_call_id":"c","content":"x"}'
ASKED = f'{NAMED}"messages":[{USER},{{"role":"assistant","tool_calls":['
FUNCTION = '"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"enum":['
IMAGE = '{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,'
MODEL_CALL = '{"role":"model","parts":[{"functionCall":{"name":"f","args":{"a":['
RESPONDED = '{"role":"user","parts":[{"functionResponse":{"name":"f","response":{}}}]}'
RPC = '{"jsonrpc":"2.0","id":1,"method":'
TEXTS: dict[str, tuple[str, str, str, str]] = {
    "long prompt": (CHAT, '{"prompt":"', "x", '"}'),
    "escapes": (CHAT, '{"prompt":"', "\\u00e9", '"}'),
    "nesting": (CHAT, '{"prompt":', "[", "}"),
    "one long integer": (CHAT, '{"prompt":', "11", "}"),
    "name of a file": ("POST /api/v1/files", '{"size":1,"mime_type":"text/plain","name":"', "x", '"}'),
    "long title": (f"PATCH {SESSION}", '{"title":"', "x", '"}'),
    "arguments": (COMPLETIONS, ASKED + CALL[:-5] + "[0", ",1", f']"}}}}]}},{CALLED},{USER}]}}'),
    "picture": (COMPLETIONS, f'{NAMED}"messages":[{IMAGE}', "AAAA", '"}}]}]}'),
    "long input": (RESPONSES, f'{NAMED}"input":"', "x", '"}'),
}
"""Texts that fill a body: method and path, the beginning, what is repeated, the end."""
LISTS: dict[str, tuple[str, str, str, str]] = {
    "parts": (CHAT, '{"prompt":[', '{"text":"x"}', "]}"),
    "numbers": (CHAT, '{"prompt":[', "1", "]}"),
    "keys": (CHAT, "{", KEY, "}"),
    "keys of a file": ("POST /api/v1/files", "{", KEY, "}"),
    "keys beside a title": (f"PATCH {SESSION}", "{", KEY, "}"),
    "a list for a fork": (f"POST {SESSION}/fork", '{"after":[', "1", "]}"),
    "a list for an undo": (f"POST {SESSION}/undo", '{"exchanges":[', '"x"', "]}"),
    "arguments of an approval": ("POST /api/v1/approvals/here/c", '{"answer":"yes","arguments":{"a":[', "1", "]}}"),
    "messages": (COMPLETIONS, f'{NAMED}"messages":[', USER, "]}"),
    "parts of a message": (COMPLETIONS, f'{NAMED}"messages":[{{"role":"user","content":[', PART, "]}]}"),
    "tools": (COMPLETIONS, f'{NAMED}"messages":[{USER}],"tools":[', TOOL, "]}"),
    "calls": (COMPLETIONS, ASKED, CALL, f"]}},{USER}]}}"),
    "enumeration": (COMPLETIONS, f'{NAMED}"messages":[{USER}],{FUNCTION}', '"x"', "]}}}}}]}"),
    "messages to Anthropic": (MESSAGES, f'{NAMED}"messages":[', USER, "]}"),
    "blocks": (MESSAGES, f'{NAMED}"messages":[{{"role":"user","content":[', PART, "]}]}"),
    "items": (RESPONSES, f'{NAMED}"input":[', USER, "]}"),
    "metadata": (RESPONSES, f'{NAMED}"input":"x","metadata":{{', KEY, "}}"),
    "contents": (GENERATE, '{"contents":[', CONTENT, "]}"),
    "parts of a content": (GENERATE, '{"contents":[{"role":"user","parts":[', '{"text":"x"}', "]}]}"),
    "arguments of the past": (GENERATE, f'{{"contents":[{CONTENT},{MODEL_CALL}', "1", f"]}}}}}}]}},{RESPONDED}]}}"),
    "steps": (INTERACTIONS, f'{{"model":"{MODEL}","input":[', f'{{"type":"user_input","content":[{PART}]}}', "]}"),
    "content": (INTERACTIONS, f'{{"model":"{MODEL}","input":[', PART, "]}"),
    "messages of the AI SDK": (UI, '{"id":"a","messages":[', UI_MESSAGE, "]}"),
    "parameters": (MCP, f'{RPC}"initialize","params":{{"a":[', "1", "]}}"),
    "batch": (MCP, "[", f'{RPC}"ping"}}', "]"),
}
"""Lists and objects that do."""


class Probe:
    """Asks for the cheapest route all the time, in a thread of its own; keeps the slowest response."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._port = port
        self._is_over = threading.Event()
        self.slowest_s = 0.0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._is_over.is_set():
            begun = time.perf_counter()
            ask(self._port, "GET", "/health/live", keep=self._connection)
            self.slowest_s = max(self.slowest_s, time.perf_counter() - begun)
            time.sleep(0.002)

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._connection.close()


LONG = "/api/v1/sessions/long"
DEEDS: dict[str, tuple[str, str, Any]] = {
    "a chat": ("POST", "/api/v1/chat", {"prompt": "hello", "session": "long"}),
    "read": ("GET", LONG, None),
    "traced": ("GET", f"{LONG}/trace", None),
    "forked": ("POST", f"{LONG}/fork", None),
    "undone": ("POST", f"{LONG}/undo", None),
    "listed": ("GET", "/api/v1/sessions", None),
    "deleted": ("DELETE", LONG, None),
}


def hostile_bodies(model: Server, stores: Sequence[str]) -> Iterator[tuple[str, float, float]]:
    for words in (("--store", *(stores[:1] or ["s.db"])), ("--ephemeral",)):
        with tempfile.TemporaryDirectory() as folder, serving(model, Path(folder), *words) as port:
            chat_s(port)  # What is loaded for the first request is not meant.
            for number in range(5):
                body = filled('{"session":"long","prompt":"', "x", '"}')
                yield probed(f"{words[0]}: long session, chat {number + 1}", port, "POST", "/api/v1/chat", body)
            for name, (method, path, deed) in DEEDS.items():
                yield probed(f"{words[0]}: long session, {name}", port, method, path, deed)
    with tempfile.TemporaryDirectory() as folder, serving(model, Path(folder), "--store", *(stores[:1] or ["s.db"])) as port:
        chat_s(port, session="here")
        for name, (place, body) in bodies():
            method, _, path = place.partition(" ")
            yield probed(f"{path}: {name}, {len(body) / 1e6:.1f} MB", port, method, path, body)


def bodies() -> Iterator[tuple[str, tuple[str, bytes]]]:
    for name, (place, start, piece, end) in TEXTS.items():
        yield name, (place, filled(start, piece, end))
    for (name, (place, start, piece, end)), kind in itertools.product(LISTS.items(), KINDS):
        values, letters = KINDS[kind]
        yield f"{kind} {name}", (place, listed(start, piece.replace('"x"', f'"{"x" * letters}"'), end, values))


def probed(name: str, port: int, method: str, path: str, body: Any) -> tuple[str, float, float]:
    with Probe(port) as probe:
        begun = time.perf_counter()
        status, answer = ask(port, method, path, body)
        took_s = time.perf_counter() - begun
    said = answer[:70].decode(errors="replace") if status >= 300 else ""
    return f"{name} ({status} after {took_s:.1f} s) {said}", probe.slowest_s, GAP_S_MAX


# Many sessions ------------------------------------------------------------------------------------------------------------


def many_sessions(model: Server, stores: Sequence[str]) -> Iterator[tuple[str, float, float]]:
    """Costs with many sessions beside those with few: two services at once, asked in turns, so that a machine that is busy
    for a while is so for both."""
    if len(stores) == 1:
        raise SystemExit("many sessions need two stores: --store FEW MANY")
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        ports: dict[int, int] = {}
        for index, count in enumerate((FEW, MANY)):
            folder = Path(name) / str(count)
            folder.mkdir()
            url = stores[index] if stores else str(folder / "s.db")
            fill(url, count)
            ports[count] = stack.enter_context(serving(model, folder, "--store", url))
        for name, (work, times) in COSTS.items():
            waits = {count: list[float]() for count in ports}
            for count in [*ports] * (WARM_UP + times):
                begun = time.perf_counter()
                work(ports[count])
                waits[count].append(time.perf_counter() - begun)
            few_s, many_s = (statistics.median(waits[count][WARM_UP:]) for count in (FEW, MANY))
            yield f"{name}: {1000 * few_s:.2f} ms at {FEW}, {1000 * many_s:.2f} ms at {MANY}", many_s / few_s, GROWTH_MAX


WARM_UP = 5
COSTS: dict[str, tuple[Callable[[int], object], int]] = {
    "listing": (lambda port: ask(port, "GET", "/api/v1/sessions"), 60),
    "reading one": (lambda port: ask(port, "GET", "/api/v1/sessions/filled-7"), 60),
    "a chat in a new session": (chat_s, 60),
    "a chat in an old session": (lambda port: chat_s(port, session="filled-25"), 10),
}
"""What is done at a port, and how often."""


def fill(url: str, count: int) -> None:
    """Write so many sessions of one exchange each."""
    from callgate import Gate, ScriptedModel
    from callgate.store import open_store

    async def run() -> None:
        store = open_store(url)
        gate = Gate(ScriptedModel(["Hi."], repeat_last=True), store=store)
        async with gate:
            numbers = iter(range(count))

            async def work() -> None:
                for number in numbers:
                    await gate.run("hello", session=f"filled-{number}")

            await asyncio.gather(*(work() for _ in range(32)))

    asyncio.run(run())


GOALS = {"slow": CHAT_S_MAX, "bodies": GAP_S_MAX, "sessions": GROWTH_MAX}
PARTS = {"slow": slow_clients, "bodies": hostile_bodies, "sessions": many_sessions}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which of them; all without")
    parser.add_argument(
        "--store", nargs="+", default=[], metavar="URL",
        help="SQLite files or postgresql://... that may be written to, two for many sessions; without them fresh files",
    )  # fmt: skip
    words = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(3 * SOCKETS, hard), hard))
    missed = 0
    with own("model") as model:
        for part in words.parts or PARTS:
            print(f"\n{part}: at most {GOALS[part]}")
            for name, value, goal in PARTS[part](model, words.store):
                missed += value > goal
                print(f"  {value:7.3f}  {'met   ' if value <= goal else 'MISSED'}  {name}", flush=True)
    load = os.getloadavg()[0]
    print(f"\n{missed} goals missed; load {load:.2f}.")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
