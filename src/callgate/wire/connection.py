"""One HTTP/1.1 connection of a client: a request out, the head and the bytes of its answer in.

Plain answers, which nearly all are, are parsed here: a complete head of HTTP/1.1 in ASCII, a body with one kind of framing,
chunks without extensions. From the first byte on that is anything else, the answer is parsed by `h11`, which knows all forms
and rejects invalid ones. This file knows nothing of what a body says.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import h11

from callgate.wire.failures import LocalProtocolError, RemoteProtocolError
from callgate.wire.network import Socket

__all__ = ["Chunks", "Connection", "Head", "Header", "Origin", "request_lines"]

Header = tuple[bytes, bytes]

Origin = tuple[bytes, str, int]
"""Scheme, host and port."""

HEAD_BYTES_MAX = 100 * 1024

_PLAIN_HEAD = re.compile(
    rb"HTTP/1\.1 ([2-5][0-9]{2})(?: [\t\x20-\x7e]*)?\r\n(?:[-!#$%&'*+.^_`|~0-9a-zA-Z]+:[\t\x20-\x7e]*\r\n)*\r\n"
)
_WITHOUT_BODY = (204, 304)
_LENGTH_DIGITS_MAX = 15
_HEADER = re.compile(rb"\r\n([^:\r]+):[\t ]*([^\r]*)")
_FRAMING = re.compile(rb"\r\n((?i:content-length|transfer-encoding|connection|content-encoding)):[\t ]*([^\r]*)")
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_SIZE_BEGUN = re.compile(rb"[0-9A-Fa-f]{1,8}\r?")
_LAST_CHUNK = b"0\r\n\r\n"


@dataclass(slots=True)
class Head:
    """The head of an answer."""

    status: int
    encoding: str
    """The content encoding of the body; usually empty."""
    _raw: bytes
    _read: list[Header] | None = None

    @property
    def headers(self) -> list[Header]:
        """Headers by name in lower case, parsed on first access, because few answers need them."""
        if self._read is None:
            self._read = _headers_in(_HEADER, self._raw)
        return self._read


def request_lines(target: bytes, headers: list[Header], method: str = "POST") -> bytes:
    """The request line and the headers, all but the length of the body.

    Raises:
        LocalProtocolError: a header cannot be sent.
    """
    try:
        lines = h11.Connection(h11.CLIENT).send(h11.Request(method=method, target=target, headers=headers))
    except h11.LocalProtocolError as error:
        raise LocalProtocolError(str(error)) from error
    assert lines is not None
    return lines[:-2]


class Connection:
    """One connection and what is known of its state."""

    def __init__(self, origin: Origin, socket: Socket) -> None:
        self.origin = origin
        self.socket = socket
        self.is_used = False
        """True if it has carried an earlier request, so that the server may have closed it since."""
        self.has_begun = False
        """True if any byte of the answer has arrived."""
        self.kept_until = 0.0
        self._unread: bytes = b""
        """Data after the part that was parsed."""
        self._head: bytes = b""
        """The raw head of an answer that is parsed here."""
        self._length = 0
        self._left = 0
        """Bytes of the body that are missing, if its length is known."""
        self._chunks: Chunks | None = None
        self._is_over = False
        self._http: h11.Connection | None = None
        """The h11 parser of the answer, unless it is parsed here."""
        self._body: list[bytes] = []
        self._failure: RemoteProtocolError | None = None

    def send(self, lines: bytes, body: bytes) -> None:
        """Write a whole request; `lines` is the result of `request_lines`."""
        self.socket.write(b"%bcontent-length: %d\r\n\r\n" % (lines, len(body)), body)

    async def answer_head(self, within_s: float, until: float, write_s: float) -> Head:
        """Wait for the head of the answer.

        Args:
            within_s: How long to wait for it when all of the request has left.
            until: When to stop waiting at the latest, by the clock of the event loop.
            write_s: How long the server may take nothing of the request.

        Raises:
            HttpError: the connection broke, or what came is not HTTP.
            SendTimeoutError: the server took nothing of the request.
            TimeoutError: nothing came in time, or not all of the head.
        """
        loop = asyncio.get_running_loop()
        data = await self.socket.read(min(loop.time() + within_s, until), sending=(within_s, until, write_s))
        self.has_begun = bool(data)
        if (head := self._plain_head(data)) is not None:
            return head
        self._http, self._unread = _h11(), data
        async with asyncio.timeout_at(min(loop.time() + within_s, until)):
            return await self._h11_head()

    def _plain_head(self, data: bytes) -> Head | None:
        """The head of an answer that begins so, if it is complete and plain: one framing header, and
        no header that closes or upgrades the connection."""
        found = _PLAIN_HEAD.match(data)
        if found is None:
            return None
        head, status, encoding = found[0], int(found[1]), ""
        framing: list[Header] = []
        for name, value in _headers_in(_FRAMING, head):
            if name == b"content-encoding":
                encoding += ("," if encoding else "") + value.decode("ascii")
            elif name != b"connection" or value.lower() != b"keep-alive":
                framing.append((name, value))
        if len(framing) != 1 or status in _WITHOUT_BODY:
            return None
        name, value = framing[0]
        if name == b"content-length" and value.isdigit() and len(value) <= _LENGTH_DIGITS_MAX:
            self._length = self._left = int(value)
            self._is_over = self._left == 0
        elif name == b"transfer-encoding" and value == b"chunked":
            self._chunks = Chunks()
        else:
            return None
        self._head, self._unread = head, data[len(head) :]
        return Head(status, encoding, head)

    async def piece(self, timeout_s: float | None) -> bytes | None:
        """The next piece of the body: all that has arrived, or what arrives next; None at the end.

        Raises:
            HttpError: the connection broke, or what came is not HTTP.
            TimeoutError: nothing came in time.
        """
        if self._http is not None and not self._body:
            self._read_events()  # A body may have come with its head, or have no bytes at all.
        while not self._body:
            if self._failure is not None:
                raise self._failure
            if self.is_complete:
                return None
            data, self._unread = self._unread or await self.socket.read(_later(timeout_s)), b""
            self._take(data)
        pieces, self._body = self._body, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def is_complete(self) -> bool:
        """True if all of the answer has arrived."""
        if self._http is None:
            return self._is_over
        return self._failure is None and self._http.their_state is not h11.SEND_BODY

    def _take(self, data: bytes) -> None:
        if self._chunks is not None:
            self._take_chunks(self._chunks, data)
        elif self._http is not None:
            self._receive(data)
        elif data:
            self._body.append(data if len(data) <= self._left else data[: self._left])
            self._unread = data[self._left :]
            self._left -= len(self._body[-1])
            self._is_over = self._left == 0
        else:
            detail = f"received {self._length - self._left} bytes, expected {self._length}"
            self._failure = RemoteProtocolError(f"peer closed connection without sending complete message body ({detail})")

    def _take_chunks(self, chunks: Chunks, data: bytes) -> None:
        """Parse received data. Plain chunks bypass h11, which is slow for each."""
        self._body += chunks.take(data)
        if data and not chunks.is_over:
            return
        self._chunks = None
        if self._http is None and not chunks.is_open and chunks.rest == _LAST_CHUNK:
            self._is_over = True
            return
        if chunks.is_open:
            # h11 has seen nothing of the chunk that is cut or ends wrongly: it gets a short one in its place.
            place = len(self._body)
            self._receive(chunks.stand_in)
            del self._body[place:]
        self._receive(chunks.rest if chunks.is_over else b"")

    # What is not plain ----------------------------------------------------------------------------------------------------

    async def _h11_head(self) -> Head:
        while not isinstance(event := await self._head_event(), h11.Response):
            if not isinstance(event, h11.InformationalResponse) or event.status_code == 101:
                raise RemoteProtocolError("the server requested another protocol")
        assert self._http is not None
        is_chunked = any(name == b"transfer-encoding" for name, _ in event.headers)
        # Only where h11 has been given nothing of the body can chunks be kept from it.
        self._chunks = Chunks() if is_chunked and not self._http.trailing_data[0] else None
        headers = list(event.headers)
        encoding = b",".join([value for name, value in headers if name == b"content-encoding"])
        return Head(event.status_code, encoding.decode("latin-1"), b"", headers)

    async def _head_event(self) -> Any:
        assert self._http is not None
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                data, self._unread = self._unread or await self.socket.read(), b""
                if not data:
                    raise RemoteProtocolError("Server disconnected without sending a response.")
                end = data.find(b"\r\n\r\n") + 4
                if end > 3:
                    data, self._unread = data[:end], data[end:]
                self._http.receive_data(data)
        except h11.RemoteProtocolError as error:
            raise RemoteProtocolError(str(error)) from error
        return event

    def _receive(self, data: bytes) -> None:
        if self._http is None:
            self._http = _h11()
            self._http.receive_data(self._head)
            self._http.next_event()
        self._http.receive_data(data)
        self._read_events()

    def _read_events(self) -> None:
        """Read the body as far as h11 has it. A fault is raised after the valid data before it was returned."""
        http = self._http
        assert http is not None
        try:
            while self._failure is None and http.their_state is h11.SEND_BODY:
                event = http.next_event()
                if not isinstance(event, h11.Data):
                    return
                self._body.append(bytes(event.data))
        except h11.RemoteProtocolError as error:
            self._failure = RemoteProtocolError(str(error))

    # The next request ------------------------------------------------------------------------------------------------------

    @property
    def can_be_kept(self) -> bool:
        """True if the connection can be reused: request sent in full, answer complete, and no data after it."""
        if self._unread or self.socket.has_something or self.socket.has_unsent:
            return False
        http = self._http
        if http is None:
            return self._is_over
        return http.our_state is h11.DONE and http.their_state is h11.DONE and http.trailing_data == (b"", False)

    def keep(self, until: float) -> None:
        """Reset for the next request."""
        self.is_used, self.has_begun, self.kept_until = True, False, until
        self._http, self._chunks, self._is_over = None, None, False


def _later(seconds: float | None) -> float | None:
    return None if seconds is None else asyncio.get_running_loop().time() + seconds


def _headers_in(wanted: re.Pattern[bytes], head: bytes) -> list[Header]:
    return [(name.lower(), value.rstrip(b" \t")) for name, value in wanted.findall(head)]


def _h11() -> h11.Connection:
    """A connection that waits for an answer. What was asked for matters to it only as far as it was no HEAD."""
    http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)
    http.send(h11.Request(method=b"POST", target=b"/", headers=[(b"host", b""), (b"content-length", b"0")]))
    http.send(h11.EndOfMessage())
    return http


class Chunks:
    """A fast parser for chunks with plain framing, which is nearly all of them.

    From a line on that is anything but a size, or is the size of nothing, all is `rest`, for h11 to read; so is everything
    from the end of a chunk on that ends with anything but a line break.
    """

    def __init__(self) -> None:
        self.rest: bytes = b""
        """The part of a chunk-size line that has arrived."""
        self.is_over = False
        self._open_bytes: int = 0
        """Bytes that the last chunk lacks, with its line break."""

    @property
    def is_open(self) -> bool:
        """True if the end of a chunk has not come, or is none."""
        return self._open_bytes > 0

    @property
    def stand_in(self) -> bytes:
        """A chunk of one byte that lacks as much of its line break as the open one."""
        return b"1\r\nx\r" if self._open_bytes == 1 else b"1\r\nx"

    def take(self, data: bytes) -> list[bytes]:
        """The contents of chunks, as far as they have come."""
        found: list[bytes] = []
        start = 0
        if self._open_bytes:
            size = max(self._open_bytes - 2, 0)
            found, ending = [data[:size]] if size and data else [], data[size : self._open_bytes]
            if not _LINE_BREAK[size + 2 - self._open_bytes :].startswith(ending):
                self.rest, self.is_over = data[size:], True
                return found
            start = min(len(data), self._open_bytes)
            self._open_bytes -= start
            if self._open_bytes:
                return found
        elif self.rest:
            data = self.rest + data
        self.rest = b""
        while (line := _SIZE_LINE.match(data, start)) is not None and (size := int(line[1], 16)):
            begin = line.end()
            end = begin + size
            if not _LINE_BREAK.startswith(data[end : end + 2]):
                break
            if begin < len(data):
                found.append(data[begin:end])
            start = end + 2
            if len(data) < start:
                self._open_bytes = start - len(data)
                return found
        self.rest = data[start:]
        self.is_over = bool(self.rest) and _SIZE_BEGUN.fullmatch(self.rest) is None
        return found


_LINE_BREAK = b"\r\n"
