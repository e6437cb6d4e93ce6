"""Plain requests, which nearly all are, without `h11`: a chat takes about a third less processor time.

If the bytes of one read are one whole POST of HTTP/1.1 in ASCII with a length and no header twice, a request goes out;
otherwise nothing does, and `h11` reads them. Responses to plain requests are checked and written here.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

from uvicorn.protocols.http.h11_impl import RequestResponseCycle

__all__ = ["Cycle", "Request", "read"]

Header = tuple[bytes, bytes]

KNOWN_MAX, KNOWN_BYTES = 512, 4096  # So many heads, of so many bytes at most, are known again when they come again.

_TOKEN = rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+"
_HEAD = re.compile(rb"POST (/[!-~]*) HTTP/1\.1\r\n((?:" + _TOKEN + rb":[\t\x20-\x7e]*\r\n)+)\r\n")
_LINE = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-z]+: [\t\x20-\x7e\x80-\xff]*\r\n")  # ASGI wants names in lower case.
_NOT_PLAIN = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer", b"http2-settings"})
_STATUS_LINES = {status.value: b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode()) for status in HTTPStatus}
_STATUS_LINES[499] = b"HTTP/1.1 499 Client Closed Request\r\n"


@dataclass(slots=True)
class Request:
    """A request that came whole; after one that `is_last` the connection is closed."""

    target: bytes
    headers: list[Header]
    body: bytes
    is_last: bool

    def scope(self, shared: dict[str, Any]) -> dict[str, Any]:
        """Return the request as ASGI describes it, with the entries that all requests of its connection share."""
        raw_path, _, query = self.target.partition(b"?")
        path = raw_path.decode("ascii")
        own = {"raw_path": raw_path, "query_string": query, "headers": self.headers, "method": "POST"}
        return {**shared, "type": "http", "http_version": "1.1", "path": unquote(path) if "%" in path else path, **own}


def read(data: bytes) -> Request | None:
    """Return the request that the bytes are, if they are a plain one and nothing else."""
    end = data.find(b"\r\n\r\n") + 4
    head = (_read_head if end <= KNOWN_BYTES else _read_head.__wrapped__)(data[:end])
    if head is None or head[0] != len(data) - end:
        return None
    return Request(head[1], [*head[2]], data[end:], head[3])


@lru_cache(maxsize=KNOWN_MAX)
def _read_head(data: bytes) -> tuple[int, bytes, tuple[Header, ...], bool] | None:
    """Return length of the body, target, headers, and whether it is the last request. Clients repeat their heads."""
    if (found := _HEAD.fullmatch(data)) is None:
        return None
    parted = [line.partition(b":") for line in found[2].splitlines()]
    headers = tuple([(name.lower(), value.strip(b" \t")) for name, _, value in parted])
    named = dict(headers)
    length, wanted = named.get(b"content-length", b""), named.get(b"connection", b"keep-alive").lower()
    is_plain = len(named) == len(headers) and b"host" in named and _NOT_PLAIN.isdisjoint(named)
    if not is_plain or wanted not in (b"keep-alive", b"close") or not (length.isdigit() and len(length) < 16):
        return None
    return int(length), found[1], headers, wanted == b"close"


class Cycle(RequestResponseCycle):
    """One plain request and its response, on one of uvicorn's connections."""

    disconnected = waiting_for_100_continue = more_body = response_started = response_complete = False
    _head: bytes = b""  # Waits for the body, to leave with it.
    _left: int | None = None  # Bytes of the body that are still to be sent, where its length is known.
    _has_body = True
    task: asyncio.Task[None]

    def __init__(self, request: Request, scope: dict[str, Any], connection: Any) -> None:
        body: Any = request.body  # Bytes to some versions of uvicorn, to others whatever they make bytes of.
        self.scope, self.body, self.keep_alive = scope, body, not request.is_last  # pyright: ignore
        self.transport, self.flow, self.logger = connection.transport, connection.flow, connection.logger
        self.default_headers = connection.server_state.default_headers
        self.on_response = connection.on_response_complete
        self.message_event = asyncio.Event()
        self.message_event.set()  # The body is there.

    async def send(self, message: Any) -> None:
        """Send the next part of the response; a RuntimeError if it cannot be sent, or not now."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        expected = "http.response.body" if self.response_started else "http.response.start"
        if self.response_complete or message["type"] != expected:
            raise RuntimeError(f"a response went on with {message['type']!r} where that cannot be")
        if not self.response_started:
            self.response_started = True
            self._begin(message["status"], [*self.default_headers, *message.get("headers", ())])
            return
        if self._head:  # Responses of one round of the loop leave together: a client that wakes costs more than the write.
            await asyncio.sleep(0)
        if not self.disconnected:
            self._go_on(message.get("body", b""), is_last=not message.get("more_body", False))

    def _begin(self, status: int, headers: list[Header]) -> None:
        if status < 200 or status not in _STATUS_LINES:
            raise RuntimeError(f"a response with status {status} cannot be sent")
        lines, named = b"".join(map(_line, headers)), dict(headers)
        if named.get(b"connection", b"").lower() == b"close":
            self.keep_alive = False
        elif not self.keep_alive:
            lines += b"connection: close\r\n"
        self._has_body = status not in (204, 304)
        if b"content-length" in named:
            self._left = int(named[b"content-length"])
        elif self._has_body:
            lines += b"transfer-encoding: chunked\r\n"
        self._head = _STATUS_LINES[status] + lines + b"\r\n"
        if self._left is None:  # The body may take long: the client sees at once that it is coming.
            self.transport.write(self._head)
            self._head = b""

    def _go_on(self, body: bytes, *, is_last: bool) -> None:
        data = body if self._has_body else b""
        if self._has_body and self._left is None:
            data = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"0\r\n\r\n" if is_last else b"")
        elif self._has_body and self._left is not None:
            self._left -= len(body)
            if self._left < 0 or (is_last and self._left):
                raise RuntimeError("a response has more or less bytes than its Content-Length says")
        self.transport.write(self._head + data)
        self._head = b""
        if is_last:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()


@lru_cache(maxsize=256)
def _line(header: Header) -> bytes:
    if _LINE.fullmatch(line := b"%b: %b\r\n" % header) is None:  # It would not be read as one header.
        raise RuntimeError(f"a response has the header {header[0]!r}, which cannot be sent")
    return line
