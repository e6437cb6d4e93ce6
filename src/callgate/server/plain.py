"""Requests of the plain kind, which nearly all are, without the steps that the others need.

The bytes of one read come in. If they are one whole POST of HTTP/1.1 in ASCII whose body has its length told once, a request
goes out; if they are anything else, nothing does, and `h11` reads them, which knows every other form and says what is none.
Answers to plain requests are written here: held against the same rules, and in one piece where they are ready in one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast
from urllib.parse import unquote

from uvicorn.protocols.http.h11_impl import RequestResponseCycle

__all__ = ["Cycle", "Request", "read"]

Header = tuple[bytes, bytes]

_TOKEN = rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+"
_HEAD = re.compile(rb"POST (/[!-~]*) HTTP/1\.1\r\n((?:" + _TOKEN + rb":[\t\x20-\x7e]*\r\n)+)\r\n")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_LINES = re.compile(rb"(?:" + _TOKEN + rb": [\t\x20-\x7e\x80-\xff]*\r\n)*")
_NOT_PLAIN = frozenset({b"transfer-encoding", b"expect", b"upgrade", b"te", b"trailer", b"http2-settings"})
"""What changes how a request is read."""
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
    """Whether the connection is to be closed behind it."""

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
    found = _HEAD.match(data)
    if found is None:
        return None
    headers: list[Header] = []
    hosts, lengths, is_last = 0, list[bytes](), False
    for line in found[2].splitlines():
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        headers.append((name, value))
        if name == b"host":
            hosts += 1
        elif name == b"content-length":
            lengths.append(value)
        elif name == b"connection":
            if (wish := value.lower()) not in (b"keep-alive", b"close"):
                return None
            is_last = is_last or wish == b"close"
        elif name in _NOT_PLAIN:
            return None
    if hosts != 1 or len(lengths) != 1 or not _LENGTH.fullmatch(lengths[0]):
        return None
    if int(lengths[0]) != len(data) - found.end():
        return None
    return Request(found[1], headers, data[found.end() :], is_last)


class Cycle(RequestResponseCycle):
    """One plain request and its answer, for uvicorn's connections."""

    _head: bytes = b""
    """The head, while it waits for the body to leave with it."""
    _left: int | None = None
    """Bytes of the body that are still to be sent, where its length was told."""
    _has_body = True

    def take(self, request: Request) -> None:
        """Takes the whole body of the request."""
        self.body = cast("Any", request.body)  # Bytes to some versions of uvicorn, to others whatever they make bytes of.
        self.more_body = False
        self.keep_alive = not request.is_last
        self.message_event.set()

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
            self._begin(message["status"], self.default_headers + list(message.get("headers", [])))
            return
        self._go_on(message.get("body", b""), is_last=not message.get("more_body", False))

    def _begin(self, status: int, headers: list[Header]) -> None:
        lines = b"".join([b"%b: %b\r\n" % header for header in headers])
        # A line end in a value would make two headers of one.
        if _LINES.fullmatch(lines) is None or lines.count(b"\r\n") != len(headers) or status not in _STATUS_LINES:
            raise RuntimeError(f"an answer with status {status} has a head that cannot be sent")
        names = {name.lower(): value for name, value in headers}
        if names.get(b"connection", b"").lower() == b"close":
            self.keep_alive = False
        elif not self.keep_alive:
            lines += b"connection: close\r\n"
        self._has_body = status not in _WITHOUT_BODY
        if b"content-length" in names:
            self._left = int(names[b"content-length"])
        elif self._has_body:
            lines += b"transfer-encoding: chunked\r\n"
        self._head = _STATUS_LINES[status] + lines + b"\r\n"
        if self._left is None:
            # What comes next may take long, and whoever asked wants to know that it will.
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
