"""Requests of the plain kind, which nearly all are, without the steps that the others need.

The bytes of one read come in. If they are one whole POST of HTTP/1.1 in ASCII whose body has its length told, and no header
is there twice, a request goes out; if they are anything else, nothing does, and `h11` reads them, which knows every other
form and says what is none. Answers to plain requests are written here: held against the same rules, and in one piece where
they are ready in one.
"""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Protocol, cast
from urllib.parse import unquote

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import RequestResponseCycle
from uvicorn.server import ServerState

__all__ = ["Cycle", "Request", "read"]

Header = tuple[bytes, bytes]

KNOWN_MAX = 512
KNOWN_BYTES = 4096
"""So many heads, of so many bytes at most, are known again when they come again."""

_TOKEN = rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+"
_HEAD = re.compile(rb"POST (/[!-~]*) HTTP/1\.1\r\n((?:" + _TOKEN + rb":[\t\x20-\x7e]*\r\n)+)\r\n")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_ANSWER_LINE = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-z]+: [\t\x20-\x7e\x80-\xff]*\r\n")
"""Names are in lower case, as ASGI wants them."""
_NOT_PLAIN = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer", b"http2-settings"})
"""Headers that change how a request is read."""
_WITHOUT_BODY = frozenset({204, 304})
_STATUS_LINES = {
    status.value: b"HTTP/1.1 %d %b\r\n" % (status.value, status.phrase.encode()) for status in HTTPStatus if status >= 200
}


@dataclass(slots=True)
class Request:
    """A request that came whole."""

    target: bytes
    headers: list[Header]
    """Names in lower case."""
    body: bytes
    is_last: bool
    """True if the connection is to be closed after it."""

    def scope(self, around: dict[str, Any]) -> dict[str, Any]:
        """The request as ASGI tells it; `around` is what its connection knows."""
        raw_path, _, query = self.target.partition(b"?")
        path = raw_path.decode("ascii")
        return {
            **around,
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw_path,
            "query_string": query,
            "headers": self.headers,
        }


def read(data: bytes) -> Request | None:
    """The request that the bytes are, if they are a plain one and nothing else."""
    end = data.find(b"\r\n\r\n") + 4
    head = (_read_head if end <= KNOWN_BYTES else _read_head.__wrapped__)(data[:end])
    if head is None or head.length != len(data) - end:
        return None
    return Request(head.target, [*head.headers], data[end:], head.is_last)


@dataclass(frozen=True, slots=True)
class _Head:
    target: bytes
    headers: tuple[Header, ...]
    length: int
    is_last: bool


@lru_cache(maxsize=KNOWN_MAX)
def _read_head(data: bytes) -> _Head | None:
    """The head that the bytes are. A client says much the same each time, and what was read once need not be read again."""
    found = _HEAD.fullmatch(data)
    if found is None:
        return None
    parted = [line.partition(b":") for line in found[2].splitlines()]
    headers = tuple([(name.lower(), value.strip(b" \t")) for name, _, value in parted])
    named = dict(headers)
    length, wish = named.get(b"content-length", b""), named.get(b"connection", b"keep-alive").lower()
    if len(named) < len(headers) or b"host" not in named or not _NOT_PLAIN.isdisjoint(named):
        return None
    if wish not in (b"keep-alive", b"close") or not _LENGTH.fullmatch(length):
        return None
    return _Head(found[1], headers, int(length), wish == b"close")


class _Connection(Protocol):
    """The part of a connection that a cycle uses."""

    transport: asyncio.Transport
    flow: FlowControl
    logger: logging.Logger
    server_state: ServerState

    def on_response_complete(self) -> None: ...


class Cycle(RequestResponseCycle):
    """One plain request and its answer, for uvicorn's connections: what of theirs is the same for each stays with them."""

    disconnected = False
    waiting_for_100_continue = False
    more_body = False
    response_started = False
    response_complete = False
    _is_taken = False
    """True if the application has the body."""
    _head: bytes = b""
    """The head, while it waits for the body to leave with it."""
    _left: int | None = None
    """Bytes of the body that are still to be sent, where its length was told."""
    _has_body = True
    task: asyncio.Task[None]
    """Has it answered."""

    def __init__(self, request: Request, scope: dict[str, Any], connection: _Connection) -> None:
        self.scope = cast("Any", scope)
        self.body = cast("Any", request.body)  # Bytes to some versions of uvicorn, to others whatever they make bytes of.
        self.keep_alive = not request.is_last
        self.transport = connection.transport
        self.flow = connection.flow
        self.logger = connection.logger
        self.default_headers = connection.server_state.default_headers
        self.on_response = connection.on_response_complete
        self.message_event = asyncio.Event()

    async def receive(self) -> Any:
        """Gives the body, and then waits for the end."""
        if not self._is_taken:
            self._is_taken = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        if not self.disconnected and not self.response_complete:
            self.flow.resume_reading()
            await self.message_event.wait()
            self.message_event.clear()
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Any) -> None:
        """Takes the next part of the answer.

        Raises:
            RuntimeError: it cannot be sent, or not now.
        """
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        expected = "http.response.body" if self.response_started else "http.response.start"
        if self.response_complete or message["type"] != expected:
            raise RuntimeError(f"an answer went on with {message['type']!r} where that cannot be")
        if not self.response_started:
            self.response_started = True
            self._begin(message["status"], [*self.default_headers, *message.get("headers", ())])
            return
        if self._head:
            # Answers that are ready in the same round of the loop leave one right after the other. Otherwise each may wake
            # its client in the middle of the work for the next one, and that costs more than the writing.
            await asyncio.sleep(0)
            if self.disconnected:
                return
        self._go_on(message.get("body", b""), is_last=not message.get("more_body", False))

    def _begin(self, status: int, headers: list[Header]) -> None:
        if status not in _STATUS_LINES:
            raise RuntimeError(f"an answer with status {status} has a head that cannot be sent")
        lines = b"".join(map(_line, headers))
        named = dict(headers)
        if named.get(b"connection", b"").lower() == b"close":
            self.keep_alive = False
        elif not self.keep_alive:
            lines += b"connection: close\r\n"
        self._has_body = status not in _WITHOUT_BODY
        if b"content-length" in named:
            self._left = int(named[b"content-length"])
        elif self._has_body:
            lines += b"transfer-encoding: chunked\r\n"
        self._head = _STATUS_LINES[status] + lines + b"\r\n"
        if self._left is None:
            # The body may take long: the client sees at once that it is coming.
            self.transport.write(self._head)
            self._head = b""

    def _go_on(self, body: bytes, *, is_last: bool) -> None:
        data = body
        if not self._has_body:
            data = b""
        elif self._left is None:
            data = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            data += b"0\r\n\r\n" if is_last else b""
        else:
            self._left -= len(body)
            if self._left < 0 or (is_last and self._left):
                raise RuntimeError("an answer has more or less bytes than its Content-Length says")
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
    """A header as it is sent. Most are the same in all answers.

    Raises:
        RuntimeError: it would not be read as one header.
    """
    line = b"%b: %b\r\n" % header
    if _ANSWER_LINE.fullmatch(line) is None:
        raise RuntimeError(f"an answer has the header {header[0]!r}, which cannot be sent")
    return line
