"""HTTP/1.1 by the shortest way: one body out, one answer in, over connections that are kept.

What stands on the wire is written and read by `h11`. Redirects, cookies, other protocols and proxies are left out: the first
three are never wanted here, and where a proxy is to be used `proxied.py` asks in the usual way. This file knows nothing of
what a body says, and tries nothing again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any

import h11
import httpx2

from callgate.wire.network import Socket, connect

__all__ = ["Address", "Connection", "Connections", "DirectAnswer", "Header"]

Header = tuple[bytes, bytes]

HEAD_BYTES_MAX = 100 * 1024

Origin = tuple[bytes, str, int]
"""Scheme, host and port."""

_PORTS = {b"http": 80, b"https": 443}


@dataclass(slots=True)
class Address:
    """Where requests go, taken apart: the same for every request of a conversation."""

    url: httpx2.URL
    origin: Origin
    target: bytes
    host: bytes
    """As the header says it."""
    auth: dict[str, str] | None = field(default=None, repr=False)
    """The credentials that are in `head`."""
    head: list[Header] = field(default_factory=list[Header], repr=False)
    """The headers that stay the same."""

    @classmethod
    def of(cls, text: str) -> Address:
        """The address of a URL.

        Raises:
            httpx2.InvalidURL: it is none.
            httpx2.UnsupportedProtocol: it is none of HTTP.
        """
        request = httpx2.Request("POST", text)
        url = request.url
        if url.raw_scheme not in _PORTS or not url.raw_host:
            raise httpx2.UnsupportedProtocol(f"the URL {text[:200]!r} is not one of http:// or https://")
        origin = (url.raw_scheme, url.raw_host.decode("ascii"), url.port or _PORTS[url.raw_scheme])
        return cls(url, origin, url.raw_path, request.headers["host"].encode("ascii"))


class Connection:
    """One connection and what is known of its state."""

    def __init__(self, origin: Origin, socket: Socket) -> None:
        self.origin = origin
        self.socket = socket
        self.is_used = False
        """Whether it had carried a request before this one, so that the server may have closed it meanwhile."""
        self.kept_until = 0.0
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._failure: httpx2.RemoteProtocolError | None = None
        self._unread: bytes = b""
        """What came behind a head."""
        self._chunks: Chunks | None = None
        self._body: list[bytes] = []

    def send(self, target: bytes, head: list[Header], body: bytes) -> None:
        """Writes a whole request.

        Raises:
            httpx2.LocalProtocolError: a header cannot be sent.
        """
        try:
            # Content-Length is among the headers, so what h11 makes of the body is the body itself.
            sent = self._http.send(h11.Request(method=b"POST", target=target, headers=head))
            self._http.send(h11.Data(data=body))
            self._http.send(h11.EndOfMessage())
        except h11.LocalProtocolError as error:
            raise httpx2.LocalProtocolError(str(error)) from error
        assert sent is not None
        self.socket.write(sent, body)

    async def answer_head(self) -> h11.Response:
        """Waits for the head of the answer, however long it takes.

        Raises:
            httpx2.HTTPError: the connection broke, or what came is not HTTP.
        """
        while not isinstance(event := await self._head_event(), h11.Response):
            if not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                raise httpx2.RemoteProtocolError("the server wants to speak another protocol")
        is_chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
        # Only where h11 has been given nothing of the body can chunks be kept from it.
        self._chunks = Chunks() if is_chunked and not self._http.trailing_data[0] else None
        return event

    async def _head_event(self) -> Any:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data, self._unread = self._unread or await self.socket.read(), b""
                if not data:
                    raise httpx2.RemoteProtocolError("Server disconnected without sending a response.")
                end = data.find(b"\r\n\r\n") + 4
                if end > 3:
                    data, self._unread = data[:end], data[end:]
                self._http.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise httpx2.RemoteProtocolError(str(error)) from error
        return event

    async def piece(self, timeout_s: float | None) -> bytes | None:
        """The next piece of the body: all that has arrived, or what arrives next; None at the end.

        Raises:
            httpx2.HTTPError: the connection broke or is too slow, or what came is not HTTP.
        """
        if not self._body:
            self._read_events()  # A body may have come with its head, or have no bytes at all.
        while not self._body:
            if self._failure is not None:
                raise self._failure
            if self._http.their_state is not h11.SEND_BODY:
                return None
            data, self._unread = self._unread or await self.socket.read(timeout_s), b""
            self._take(data)
        pieces, self._body = self._body, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _take(self, data: bytes) -> None:
        """Reads what came. Whole chunks need not go through h11, which takes long for each."""
        chunks = self._chunks
        if chunks is None or not data:
            self._receive(data)
            return
        if beginning := chunks.end_of_open(data):
            self._receive(beginning)
        self._body += chunks.whole(data, len(beginning))
        if chunks.open_part:
            self._receive(chunks.open_part)
        if chunks.is_over:
            self._chunks = None
            self._receive(chunks.rest)

    def _receive(self, data: bytes) -> None:
        self._http.receive_data(data)
        self._read_events()

    def _read_events(self) -> None:
        """The body as far as h11 has it. What is wrong with it is told when what was right has been given out."""
        http = self._http
        try:
            while self._failure is None and http.their_state is h11.SEND_BODY:
                event = http.next_event()
                if not isinstance(event, h11.Data):
                    return
                self._body.append(bytes(event.data))
        except h11.RemoteProtocolError as error:
            self._failure = httpx2.RemoteProtocolError(str(error))

    @property
    def can_be_kept(self) -> bool:
        """Whether another request may follow: the answer was complete, and nothing came behind it."""
        http = self._http
        is_over = http.our_state is h11.DONE and http.their_state is h11.DONE and not self._unread
        return is_over and http.trailing_data == (b"", False) and not self.socket.has_something

    def keep(self, until: float) -> None:
        """Makes ready for the next request."""
        self._http.start_next_cycle()
        self.is_used, self.kept_until = True, until


class Chunks:
    """Finds the chunks of a body that are there as a whole, when what stands around them is as plain as it mostly is.

    The beginning of a chunk whose end has not come is `open_part`, to be read by h11, and so is its end. From a line on that
    is anything but a size, or is the size of nothing, all is `rest` and left to h11.
    """

    def __init__(self) -> None:
        self.rest: bytes = b""
        """Of a line with a size, the part that has come."""
        self.open_part: bytes = b""
        self.is_over = False
        self._open_bytes: int = 0

    def end_of_open(self, data: bytes) -> bytes:
        """The part of the data that belongs to a chunk which began before."""
        end = data[: self._open_bytes]
        self._open_bytes -= len(end)
        return end

    def whole(self, data: bytes, start: int) -> list[bytes]:
        """The contents of the chunks that are whole, from `start` on."""
        found: list[bytes] = []
        if self.rest:
            data, start = self.rest + data[start:], 0
        self.rest = self.open_part = b""
        while (line := _SIZE_LINE.match(data, start)) is not None and (size := int(line[1], 16)):
            begin = line.end()
            end = begin + size
            if len(data) < end + 2:
                self.open_part, self._open_bytes = data[start:], end + 2 - len(data)
                return found
            if data[end : end + 2] != b"\r\n":
                break
            found.append(data[begin:end])
            start = end + 2
        self.rest = data[start:]
        self.is_over = bool(self.rest) and _SIZE_BEGUN.fullmatch(self.rest) is None
        return found


_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_SIZE_BEGUN = re.compile(rb"[0-9A-Fa-f]{1,8}\r?")


class DirectAnswer:
    """One answer: its head, and its bytes as they come."""

    def __init__(self, connections: Connections, connection: Connection, head: h11.Response) -> None:
        self._connections = connections
        self._connection: Connection | None = connection
        self._raw = head.headers
        self._headers: httpx2.Headers | None = None
        self._decoded: AsyncIterator[bytes] | None = None
        self.status_code = head.status_code
        self.idle_s: float | None = None
        """How long a piece may take to come."""
        encoding = [value.decode("latin-1") for name, value in head.headers if name == b"content-encoding"]
        self.encoding = ",".join(encoding)
        """How the body is encoded on its way; mostly not at all."""

    @property
    def headers(self) -> httpx2.Headers:
        """The headers, by name in any case."""
        if self._headers is None:
            self._headers = httpx2.Headers(self._raw.raw_items())
        return self._headers

    async def piece(self) -> bytes | None:
        """The next bytes, decoded; None at the end."""
        if self.encoding:
            if self._decoded is None:
                encoded = httpx2.Response(self.status_code, headers=self.headers, stream=_Encoded(self))
                self._decoded = encoded.aiter_bytes()
            return await anext(self._decoded, None)
        return await self.raw_piece()

    async def raw_piece(self) -> bytes | None:
        """The next bytes as they come."""
        return None if self._connection is None else await self._connection.piece(self.idle_s)

    async def aclose(self) -> None:
        """Lets go of the connection: for the next request if all is well, for good otherwise."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await self._connections.release(connection)


class _Encoded(httpx2.AsyncByteStream):
    """Bytes for the decoders of the HTTP client."""

    def __init__(self, answer: DirectAnswer) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._answer.raw_piece()) is not None:
            yield piece


class Connections:
    """The connections of one event loop."""

    def __init__(self, trust: SSLContext, *, connect_s: float, at_once: int, kept: int, kept_s: float) -> None:
        trust.set_alpn_protocols(["http/1.1"])
        self._trust = trust
        self._connect_s = connect_s
        self._kept_max = kept
        self._kept_s = kept_s
        self._room = asyncio.Semaphore(at_once)
        self._idle: list[Connection] = []
        """Those that wait for a request, the one that was used last at the end."""
        self._loop = asyncio.get_running_loop()

    async def post(self, address: Address, head: list[Header], body: bytes, sending: Any) -> DirectAnswer:
        """Sends a body; the answer is there as soon as its head is.

        `sending` is told in `is_stale` whether the connection had been used before.
        """
        sending.is_stale = False
        connection = await self.take(address.origin)
        sending.is_stale = connection.is_used
        try:
            connection.send(address.target, head, body)
            return DirectAnswer(self, connection, await connection.answer_head())
        except BaseException:
            await self.release(connection)
            raise

    async def take(self, origin: Origin) -> Connection:
        """A connection to the origin: one that was kept, or a new one. Whoever takes it gives it to `release`."""
        await self._room.acquire()
        try:
            return await self._kept_one(origin) or await self._new_one(origin)
        except BaseException:
            self._room.release()
            raise

    async def release(self, connection: Connection) -> None:
        """Takes a connection back."""
        self._room.release()
        if not connection.can_be_kept:
            await connection.socket.aclose()
            return
        connection.keep(self._loop.time() + self._kept_s)
        self._idle.append(connection)
        if len(self._idle) > self._kept_max:
            await self._idle.pop(0).socket.aclose()

    async def aclose(self) -> None:
        """Closes those that are not in use."""
        while self._idle:
            await self._idle.pop().socket.aclose()

    async def _kept_one(self, origin: Origin) -> Connection | None:
        for index in range(len(self._idle) - 1, -1, -1):
            if index < len(self._idle) and self._idle[index].origin == origin:
                connection = self._idle.pop(index)
                if connection.kept_until > self._loop.time() and not connection.socket.is_readable():
                    return connection
                await connection.socket.aclose()
        return None

    async def _new_one(self, origin: Origin) -> Connection:
        scheme, host, port = origin
        trust = self._trust if scheme == b"https" else None
        return Connection(origin, await connect(host, port, trust=trust, timeout_s=self._connect_s))
