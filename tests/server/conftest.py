"""A service on a real port, in a thread of its own, and clients that say exactly what they mean."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from callgate import Gate, ScriptedModel, tool
from callgate.server import Service, ServiceOptions
from callgate.server.listen import Server, server_for

WAIT_S = 60
SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))


@dataclass
class Answer:
    """One HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        """Status and short code, after a look at the whole shape."""
        assert self.headers["content-type"] == "application/json", self
        assert set(self.json) == {"error", "message", "code"}, self.body
        assert self.json["code"] == self.status
        assert self.json["message"]
        return self.status, self.json["error"]


@dataclass
class Site:
    """A running service and ways to talk to it."""

    service: Service
    server: Server
    loop: asyncio.AbstractEventLoop
    port: int

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)

    def raw(self, data: bytes) -> bytes:
        """What comes back for these bytes until the other side closes."""
        with self.connect() as connection:
            connection.sendall(data)
            return b"".join(iter(lambda: connection.recv(65536), b""))

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request on a connection of its own; underscores in header names stand for dashes."""
        lines = {"Host": f"127.0.0.1:{self.port}", "Connection": "close"}
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if body is not None:
            lines |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
        lines |= {name.replace("_", "-"): value for name, value in headers.items()}
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value)
        return parsed(self.raw(head.encode("latin-1") + b"\r\n" + data))

    def get(self, path: str, **headers: str) -> Answer:
        return self.request("GET", path, **headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.request("POST", path, body, **headers)

    def chat(self, body: Any, **headers: str) -> Answer:
        return self.post("/api/v1/chat", body, **headers)

    @contextlib.contextmanager
    def stream(self, method: str, path: str, body: Any = None, **headers: str) -> Iterator[Stream]:
        """Events as they come."""
        data = b"" if body is None else json.dumps(body).encode()
        lines = {"Host": "localhost", "Accept": "text/event-stream"} | {k.replace("_", "-"): v for k, v in headers.items()}
        if body is not None:
            lines |= {"Content-Type": "application/json", "Content-Length": str(len(data))}
        head = f"{method} {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        with self.connect() as connection:
            connection.sendall(head.encode() + b"\r\n" + data)
            yield Stream(connection)

    def stream_chat(self, body: Any, **headers: str) -> contextlib.AbstractContextManager[Stream]:
        return self.stream("POST", "/api/v1/chat", body, **headers)

    def on_loop(self, work: Callable[[], Any]) -> Any:
        """Runs a function on the loop of the service."""

        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(WAIT_S)

    def until(self, holds: Callable[[], Any], what: str = "it") -> None:
        """Waits until something holds on the loop of the service."""
        deadline = time.monotonic() + WAIT_S
        while not self.on_loop(holds):
            assert time.monotonic() < deadline, f"{what} did not come to hold"
            time.sleep(0.01)


class Stream:
    """The events of one streamed answer."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.headers: dict[str, str] = {}
        while (line := self._file.readline().strip()) != b"":
            name, _, value = line.partition(b":")
            self.headers[name.decode().lower()] = value.strip().decode()
        self._text = b""
        self._over = False
        self.comments = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while (event := self.next()) is not None:
            yield event

    def next(self) -> dict[str, Any] | None:
        """The next event with its `id`; None at the end."""
        while True:
            block, found, rest = self._text.partition(b"\n\n")
            if found:
                self._text = rest
                if block.startswith(b":"):
                    self.comments += 1
                    continue
                fields = dict(line.split(": ", 1) for line in block.decode().splitlines())
                event = json.loads(fields["data"])
                assert fields["event"] == event["type"]
                return {"id": fields.get("id"), **event}
            if self._over or not self.read_more():
                return None

    def until(self, kind: str) -> dict[str, Any]:
        """The next event of that type."""
        for event in self:
            if event["type"] == kind:
                return event
        raise AssertionError(f"the stream ended without {kind!r}")

    def close(self) -> None:
        self._file.close()

    def read_more(self) -> bool:
        """Waits for more bytes; False at the end."""
        line = self._file.readline()
        size = int(line, 16) if line.strip() else 0
        if size == 0:
            self._over = True
            return False
        self._text += self._file.read(size)
        self._file.readline()
        return True


def parsed(data: bytes) -> Answer:
    head, _, body = data.partition(b"\r\n\r\n")
    assert head, "the connection was closed without a word"
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        pieces = []
        while body:
            size, _, body = body.partition(b"\r\n")
            pieces.append(body[: int(size, 16)])
            body = body[int(size, 16) + 2 :]
        body = b"".join(pieces)
    return Answer(int(first.split()[1]), headers, body)


@contextlib.contextmanager
def serving(service: Service) -> Iterator[Site]:
    """The service on a free port until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    server = server_for(service)
    ready = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []
    startup = server.startup

    async def started(sockets: list[socket.socket] | None = None) -> None:
        await startup(sockets=sockets)
        loops.append(asyncio.get_running_loop())
        ready.set()

    server.startup = started  # type: ignore[method-assign]
    thread = threading.Thread(target=server.run, args=([listener],), name="service")
    thread.start()
    try:
        assert ready.wait(WAIT_S), "the service did not start"
        yield Site(service, server, loops[0], listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(WAIT_S)
        listener.close()
        assert not thread.is_alive(), "the service did not end"


@pytest.fixture
def serve() -> Iterator[Callable[..., Site]]:
    """`serve(gate, **options)`: a site that ends with the test."""
    with contextlib.ExitStack() as stack:

        def start(gate: Gate, *, providers: Any = None, undo: Any = None, **options: Any) -> Site:
            options = {"stop_s": 2.0} | options
            service = Service(gate, options=ServiceOptions(**options), providers=providers, undo=undo)
            return stack.enter_context(serving(service))

        yield start


@tool(read_only=True)
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


@tool
def poke(where: str) -> str:
    """Pokes."""
    return f"poked {where}"


class Stage:
    """A model whose script is set by each test, behind one service."""

    name = "stage"

    def __init__(self) -> None:
        self.model = ScriptedModel([])

    def plays(self, *script: Any) -> ScriptedModel:
        self.model = ScriptedModel(script)
        return self.model

    def generate(self, request: Any) -> Any:
        return self.model.generate(request)


class Slow:
    """A tool that runs until it is let go, and knows what happened to it."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.started = threading.Event()
        self.states: list[str] = []

    @property
    def tool(self) -> Any:
        @tool(name="slow", read_only=True)
        async def slow() -> str:
            """Takes its time."""
            self.started.set()
            try:
                while not self.go.is_set():  # noqa: ASYNC110 - the flag is set by another thread
                    await asyncio.sleep(0.005)
            except asyncio.CancelledError:
                self.states.append("cancelled")
                raise
            self.states.append("finished")
            return "done"

        return slow


@pytest.fixture
def slow() -> Slow:
    return Slow()
