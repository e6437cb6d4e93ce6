"""The base of the fake servers: connections, the script, and a life in a thread or an event loop.

Serves connections from a script; the fake of each API defines requests and answers. HTTP/1.1 is implemented by hand, so
that every rule of it can be broken.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ssl
import sys
import threading
from collections.abc import Generator, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from types import TracebackType
from typing import Any, Self

from callgate import strict_json
from callgate.errors import JsonError, UsageError
from callgate.testing.answers import Mint
from callgate.testing.exchange import Clock, Exchange, Request, reset_connection
from callgate.testing.fault_row import FaultStep
from callgate.testing.google_fields import as_object
from callgate.testing.http_lines import LINE_MAX, BadHttpError, HttpRequest, read_request
from callgate.testing.script import Item, Script, Step, script_from_file
from callgate.types import JsonObject

__all__ = ["FakeServer", "model_request", "run_command"]

_LOOPBACK = "127.0.0.1"


@dataclass(eq=False)
class FakeServer:
    """A server that answers from a script. Enter it to start it; leave it and every socket and task of it is gone."""

    script: Iterable[Item] | None = None
    """The answers, one per request. None means a demo: tools are called once with example arguments, text is echoed."""
    _: KW_ONLY
    strict: bool = True
    """Refuse what the real server would refuse. A refused request takes no step of the script."""
    clock: Clock = field(default_factory=Clock)
    """The time of faults that wait."""
    api_key: str | None = None
    """The only key (or bearer token) that is accepted; None accepts all requests."""
    models: Sequence[str] | None = None
    """The only models that exist; None lets any name be a model."""
    repeat_last: bool = False
    """Repeat the last item when the script is at its end, instead of answering with an error."""
    compress: bool = False
    """Send gzip to clients that take it."""
    port: int = 0
    """The port to listen on; 0 lets the system choose."""
    tls: ssl.SSLContext | None = None
    """Speak TLS with this context."""

    requests: list[Request] = field(default_factory=list[Request], init=False)
    """Every request so far, refused ones included."""
    errors: list[Exception] = field(default_factory=list[Exception], init=False)
    """Exceptions of functions in the script; their requests were answered with a 500."""
    connections: int = field(default=0, init=False)
    """Connections that were ever accepted."""
    base_url: str = field(default="", init=False)
    """The base URL, once the server is started."""

    def __post_init__(self) -> None:
        items = [self._demo] if self.script is None else self.script
        self._script = Script.of(items, repeat_last=self.repeat_last or self.script is None)
        self._mint = Mint()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._is_closing = False

    # Life -------------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, _LOOPBACK, self.port, limit=LINE_MAX, ssl=self.tls)
        port = self._server.sockets[0].getsockname()[1]
        self.base_url = f"{'https' if self.tls else 'http'}://{_LOOPBACK}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None, "the server was never started"
        self._is_closing = True
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await self.until_idle()
        await self._server.wait_closed()

    @classmethod
    @contextlib.contextmanager
    def in_thread(cls, script: Iterable[Item] | None = None, **options: Any) -> Generator[Self]:
        """The server in a thread of its own, for code that is not async. `options` are the fields of the class."""
        fake = cls(script, **options)
        ready, done = threading.Event(), asyncio.Event()
        loop = asyncio.new_event_loop()
        failed: list[BaseException] = []

        async def serve() -> None:
            async with fake:
                ready.set()
                await done.wait()

        def run() -> None:
            try:
                loop.run_until_complete(serve())
            except OSError as error:  # the port is taken; raised in the thread that asked for it
                failed.append(error)
            finally:
                loop.close()
                ready.set()

        thread = threading.Thread(target=run, name="fake-server", daemon=True)
        thread.start()
        ready.wait()
        if failed:
            raise failed[0]
        try:
            yield fake
        finally:
            loop.call_soon_threadsafe(done.set)
            thread.join()

    @property
    def open_connections(self) -> int:
        """Connections that are open at this moment."""
        return len(self._tasks)

    async def until_idle(self) -> None:
        """Wait until no connection is open: until the server, too, has noticed that its clients are gone."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def steps_left(self) -> int:
        """Script items that no request has taken yet."""
        return len(self._script.items)

    # For each API to define -------------------------------------------------------------------------------------------

    def _demo(self, request: JsonObject) -> Any:
        """Return the answer of a server without a script."""
        raise NotImplementedError

    def _exchange(self, http: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange:
        """A recorded request with what may be done about it."""
        raise NotImplementedError

    async def _answer(self, exchange: Exchange) -> None:
        """Answer a request, by the script or otherwise."""
        raise NotImplementedError

    # Connections ------------------------------------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Called synchronously on connection, so that the exit knows every task.
        if self._is_closing:
            writer.transport.abort()
            return
        self.connections += 1
        task = asyncio.get_running_loop().create_task(self._connection(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._script.next_on_accept(self.clock):
                reset_connection(writer)
                return
            # Every write waits until the system has it, so that a reset never swallows what was sent before it. Over TLS a
            # limit of 0 would count as reached by an empty buffer, and no write would ever end.
            writer.transport.set_write_buffer_limits(1 if self.tls else 0)
            while await self._one_request(reader, writer):
                pass
        except (ConnectionError, ssl.SSLError, asyncio.CancelledError):
            writer.transport.abort()  # the client went away, or the server is being closed: there is no peer to answer
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _one_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer the next request; return whether the connection lives on."""
        try:
            http = await read_request(reader, writer)
        except BadHttpError as error:
            writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n" + str(error).encode())
            await writer.drain()
            return False
        if http is None:
            return False
        exchange = self._exchange(http, reader, writer)
        await self._answer(exchange)
        if exchange.is_stale:
            await reader.read(1)
            return False
        return exchange.reusable and http.keep_alive

    async def _take_step(self, exchange: Exchange) -> None:
        try:
            await self._perform(exchange, self._script.take(as_object(exchange.request.json), self.clock))
        except OSError:
            raise  # the connection is gone
        except Exception as error:  # a step may be the user's code: it must not take the server down
            self.errors.append(error)
            if exchange.has_sent:
                exchange.reset()
                return
            await exchange.error(500, "INTERNAL", f"A step of the fake's script failed: {type(error).__name__}: {error}")

    async def _perform(self, exchange: Exchange, step: Step | None) -> None:
        if step is None:
            told = f"The fake's script is at its end: this is request {len(self.requests)}."
            await exchange.error(500, "INTERNAL", told)
        elif isinstance(step, FaultStep):
            await step.act(exchange)
        else:
            await exchange.answer(step)


# The command -------------------------------------------------------------------------------------------------------------


def model_request(http: HttpRequest, *, at: float) -> Request:
    """A request whose body is an object that names its model and says whether to stream."""
    try:
        parsed: Any = strict_json.parse(http.body, depth_max=1_000) if http.body else None
    except JsonError:
        parsed = None
    fields = as_object(parsed)
    return Request(
        method=http.method, path=http.path, query=http.query | {"alt": "sse"}, headers=http.headers, body=http.body,
        http=http, json=parsed, model=str(fields.get("model", "")), streaming=fields.get("stream") is True, at=at,
    )  # fmt: skip


def run_command(kind: type[FakeServer], name: str, argv: Sequence[str] | None) -> int:
    """Run a server until it is interrupted: `python -m callgate.testing.NAME [--port N] [--script FILE]`."""
    parser = argparse.ArgumentParser(prog=f"python -m callgate.testing.{name}", description=kind.__doc__)
    parser.add_argument("--port", type=int, default=0, help="the port on 127.0.0.1; 0 lets the system choose")
    parser.add_argument(
        "--script", help="a JSON file with the list of answers; without one, tools are called and text echoed"
    )
    parser.add_argument("--repeat-last", action="store_true", help="repeat the last answer of the script for ever")
    parser.add_argument(
        "--strict", action=argparse.BooleanOptionalAction, default=True, help="refuse what the real server refuses"
    )
    options = parser.parse_args(argv)
    try:
        script = script_from_file(options.script) if options.script else None
        fake = kind(script, port=options.port, strict=options.strict, repeat_last=options.repeat_last)
        asyncio.run(_serve(fake))
    except (UsageError, OSError) as error:
        sys.stderr.write(f"{name}: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


async def _serve(fake: FakeServer) -> None:
    async with fake:
        sys.stdout.write(f"{fake.base_url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()
