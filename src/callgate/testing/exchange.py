"""One request of a client, and everything that a server, honest or not, may do with it.

Takes a recorded request and a connection, writes bytes. Every script step works through an `Exchange`; this file knows
Gemini's framing (one JSON body, SSE, a JSON array) and nothing of scripts or faults.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from callgate.errors import UsageError
from callgate.testing.answers import Mint, chunks_of, encode_json, text, to_answer
from callgate.testing.examples import example_call
from callgate.testing.google_fields import Surface, as_object
from callgate.testing.http_lines import LAST_CHUNK, HttpRequest, chunk, head
from callgate.types import JsonObject

__all__ = ["JSON_TYPE", "SSE_TYPE", "Body", "Clock", "Exchange", "Request", "error_body", "named_event"]

JSON_TYPE = "application/json; charset=UTF-8"
SSE_TYPE = "text/event-stream"


@dataclass(frozen=True, slots=True)
class Clock:
    """The server's time. A fault that waits 90 seconds waits 0.9 of them with `Clock(scale=0.01)`."""

    scale: float = 1.0
    """Real seconds per second of this clock; more than 0."""

    def __post_init__(self) -> None:
        if not self.scale > 0:
            raise UsageError(f"Clock(scale={self.scale!r}): expected a number above 0, such as 0.01")

    async def sleep(self, seconds: float) -> None:
        """Sleep for a number of seconds of this clock."""
        await asyncio.sleep(seconds * self.scale)

    def now(self) -> float:
        """Seconds of this clock since some moment in the past; never goes back."""
        return time.monotonic() / self.scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request that the server received."""

    method: str
    """The HTTP method."""
    path: str
    """The path, without the query."""
    query: dict[str, str]
    """The parameters of the query."""
    headers: dict[str, str]
    """Names are lower case."""
    body: bytes
    """The body as it came, without its compression."""
    json: Any
    """The parsed body; None when it is empty or not JSON."""
    model: str = ""
    """The model that it asks, without `models/`."""
    surface: Surface = "developer"
    """The surface whose rules it is checked by."""
    streaming: bool = False
    """True if the answer is to come as a stream."""
    at: float = 0.0
    """Time of its arrival, in seconds of the server's clock."""
    http: HttpRequest = field(repr=False)
    """The request as it arrived."""

    @property
    def wants_sse(self) -> bool:
        """True if the stream is requested as server-sent events; else it is one JSON array in pieces."""
        return self.query.get("alt") == "sse" or self.query.get("$alt") == "sse"


@dataclass(frozen=True, slots=True)
class Body:
    """The body of an answer in the pieces in which it is sent."""

    content_type: str
    pieces: tuple[bytes, ...]
    streamed: bool
    """True if it is sent in chunks as it is produced, instead of with its length."""

    @property
    def data(self) -> bytes:
        """All of it."""
        return b"".join(self.pieces)

    @property
    def frames(self) -> list[bytes]:
        """The pieces as they look on the connection, without the end mark of a chunked body."""
        return [chunk(piece) for piece in self.pieces] if self.streamed else list(self.pieces)


def error_body(code: int, status: str, message: str, details: Sequence[JsonObject] = ()) -> JsonObject:
    """An error in Google's form."""
    error: JsonObject = {"code": code, "message": message, "status": status}
    return {"error": error | ({"details": list(details)} if details else {})}


@dataclass(slots=True, kw_only=True)
class Exchange:
    """A request, its connection, and what a step may do with them."""

    request: Request
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    clock: Clock
    mint: Mint
    compress: bool = False
    sent: bytes = b""
    """The body of a piece of an upload, which is not recorded."""
    cached_tokens: Callable[[JsonObject], int] = lambda body: 0
    """Return the number of tokens that a request takes from a cached content."""
    reusable: bool = True
    """True if the connection may serve another request after this one."""
    is_stale: bool = False
    """Close the connection at the first byte of the next request, as a server does whose idle time ran out just then."""
    has_sent: bool = False
    """True if anything was sent to the client."""
    planned: Any = None
    """The answer that a fault is to spoil; None lets the fault choose."""
    at: int | None = None
    """The byte offset in the body of a fault that has a place."""

    # Honest answers ---------------------------------------------------------------------------------------------------

    async def answer(self, item: Any) -> None:
        """Send an answer, whole or streamed as requested."""
        await self.send_body(self.body_of(item))

    async def error(
        self, code: int, status: str, message: str, *, details: Sequence[JsonObject] = (), **headers: str
    ) -> None:
        """Send an error in Google's form; `headers` are named with underscores."""
        body: Any = error_body(code, status, message, details)
        if self.request.streaming and not self.request.wants_sse:
            body = [body]
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await self.send_body(Body(JSON_TYPE, (encode_json(body, indent=2) + b"\n",), streamed=False), code, named)

    async def send_body(self, body: Body, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        """Send a whole response in good faith."""
        named = {"Content-Type": body.content_type, **(headers or {})}
        pieces = body.pieces
        if self.compress and "gzip" in self.request.headers.get("accept-encoding", ""):
            pieces, named = _gzipped(pieces), named | {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
        if body.streamed:
            await self.send(head(status, named | {"Transfer-Encoding": "chunked"}))
            for piece in pieces:
                await self.send(chunk(piece))
            await self.send(LAST_CHUNK)
        else:
            await self.send(head(status, named | {"Content-Length": str(sum(map(len, pieces)))}) + b"".join(pieces))

    def messages(self, item: Any) -> list[bytes]:
        """The JSON text of every response message of an answer."""
        wire = as_object(self.request.json)
        calling = as_object(as_object(wire.get("toolConfig")).get("functionCallingConfig"))
        cached = self.cached_tokens(wire)
        chunks = chunks_of(
            to_answer(item), self.mint, model=self.request.model, surface=self.request.surface,
            streaming=self.request.streaming, prompt_tokens=-(-len(self.request.body) // 4) + cached, cached_tokens=cached,
            partial_args=self.request.streaming and bool(calling.get("streamFunctionCallArguments")),
        )  # fmt: skip
        indent = None if self.request.wants_sse and self.request.streaming else 2
        return [made if isinstance(made, bytes) else encode_json(made, indent=indent) for made in chunks]

    def body_of(self, item: Any) -> Body:
        """Return the body of an answer in the requested form."""
        messages = self.messages(item)
        if not self.request.streaming:
            return Body(JSON_TYPE, (messages[0] + b"\n",), streamed=False)
        if self.request.wants_sse:
            return Body(SSE_TYPE, tuple(b"data: %b\r\n\r\n" % message for message in messages), streamed=True)
        return array_body(messages)

    def plan(self, default: Any = None) -> Any:
        """The answer that is to be spoiled: the script's, else the fault's own, else a sentence."""
        if self.planned is not None:
            return self.planned
        return text("The quick brown fox jumps over the lazy dog.", chunks=6) if default is None else default

    def tool_call(self) -> tuple[str, JsonObject]:
        """The name and example arguments of the first function that the request declares."""
        return example_call(self.request.json)

    # Raw deeds --------------------------------------------------------------------------------------------------------

    async def send(self, data: bytes) -> None:
        """Put bytes on the connection and wait until the system has taken them."""
        self.has_sent = True
        if self.writer.transport.is_closing():
            # asyncio says so when the next write is waited for, uvloop by a RuntimeError.
            raise ConnectionResetError("the client is gone")
        self.writer.write(data)
        await self.writer.drain()

    async def begin(self, body: Body, status: int = 200, **headers: str) -> None:
        """Send only the head of a response; the connection will not be used again."""
        self.reusable = False
        size = {"Transfer-Encoding": "chunked"} if body.streamed else {"Content-Length": str(len(body.data))}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        await self.send(head(status, {"Content-Type": body.content_type, **size, **named}))

    def reset(self) -> None:
        """End the connection with a TCP reset."""
        self.reusable = False
        reset_connection(self.writer)

    async def until_closed(self) -> None:
        """Wait until the client closes the connection."""
        self.reusable = False
        while await self.reader.read(1 << 16):
            pass


def array_body(messages: Sequence[bytes]) -> Body:
    """A stream as Google sends it without `alt=sse`: one JSON array in pieces."""
    pieces = [(b"[" if index == 0 else b",\r\n") + message + b"\n" for index, message in enumerate(messages)]
    return Body(JSON_TYPE, (*pieces, b"]\n"), streamed=True)


_TYPE = re.compile(rb'\{"type": "([a-z_.]+)"')


def named_event(message: bytes) -> bytes:
    """A server-sent event with the name that its JSON begins with, as `{"type": ...}`."""
    found = _TYPE.match(message)
    return b"event: %b\ndata: %b\n\n" % (found[1] if found else b"message", message)


def reset_connection(writer: asyncio.StreamWriter) -> None:
    """Make the close of a connection a reset: no goodbye, nothing more delivered."""
    connection: Any = writer.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _gzipped(pieces: Sequence[bytes]) -> tuple[bytes, ...]:
    packer = zlib.compressobj(wbits=31)
    packed = [packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) for piece in pieces]
    return (*packed, packer.flush())
