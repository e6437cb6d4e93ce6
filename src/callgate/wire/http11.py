"""A small HTTP/1.1 client: one body out, one answer in, over a pool of keep-alive connections.

What stands on the wire is the business of `connection.py`. Redirects, cookies and other protocols are never wanted here;
proxies are the business of `httpx_transport.py`. This file knows nothing of what a body says, and tries nothing again.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import TYPE_CHECKING
from urllib.parse import unquote

from callgate.wire.connection import Connection, Head, Header, Origin, request_lines
from callgate.wire.failures import LocalProtocolError, ReadError, RemoteProtocolError, StaleConnectionError
from callgate.wire.network import connect

if TYPE_CHECKING:
    from callgate.wire.content_codec import DecodedBody

__all__ = ["STALE_S", "Address", "Connections", "DirectAnswer"]

STALE_S = 1.0
"""A kept connection that breaks within this time, and without a byte, had been closed before the request came."""
_PORTS = {b"http": 80, b"https": 443}
_PLAIN_URL = re.compile(
    r"(?P<scheme>https?)://(?P<host>[a-z0-9-]++(?:\.[a-z0-9-]++)*+)(?::(?P<port>[1-9][0-9]{0,4}))?"
    r"(?P<target>(?:/[A-Za-z0-9_~:@!$&()*+,;=-][A-Za-z0-9_~:@!$&()*+,;=.-]*+)++(?:\?[A-Za-z0-9_~=&.-]++)?)"
)
"""A URL that can be sent as it is: no name to encode, no character to quote, no path to shorten. All others, which are few,
are read by httpx2, whose import takes longer than the rest of a first request."""
_ZONE = re.compile(r"(?P<host>https?://(?:[^/?#@]*@)?\[[0-9a-f:.]+)%(?:25)?(?P<zone>[^\]/?#]+)\]", re.IGNORECASE)
"""An address of IPv6 with the name of an interface, whose percent sign a URL should quote and people do not."""


@dataclass(slots=True)
class Address:
    """A parsed URL with its constant headers: the same for every request of a conversation."""

    url: str
    origin: Origin
    target: bytes
    host: bytes
    """The value of the Host header."""
    auth: dict[str, str] | None = field(default=None, repr=False)
    """The credentials that are in `head`."""
    head: list[Header] = field(default_factory=list[Header], repr=False)
    """The headers that stay the same."""
    method: str = "POST"
    _lines: bytes | None = field(default=None, repr=False)
    """The encoded request line and headers."""

    @classmethod
    def of(cls, text: str, method: str = "POST") -> Address:
        """The address of a URL.

        Raises:
            LocalProtocolError: it is none, or none of HTTP.
        """
        plain = _PLAIN_URL.fullmatch(text)
        if plain is None:
            return cls._of_odd(text, method)
        scheme, host = plain["scheme"].encode("ascii"), plain["host"]
        port = int(plain["port"] or _PORTS[scheme])
        shown = host if port == _PORTS[scheme] else f"{host}:{port}"
        return cls(text, (scheme, host, port), plain["target"].encode("ascii"), shown.encode("ascii"), method=method)

    @classmethod
    def _of_odd(cls, text: str, method: str) -> Address:
        import httpx2

        zoned = _ZONE.match(text)
        # The server is not given the zone: it is a name on this machine.
        asked = text if zoned is None else f"{zoned['host']}]{text[zoned.end() :]}"
        zone = "" if zoned is None else f"%{unquote(zoned['zone'])}"
        try:
            request = httpx2.Request(method, asked)
        except httpx2.InvalidURL as error:
            raise LocalProtocolError(str(error)) from error
        url = request.url
        if url.raw_scheme not in _PORTS or not url.raw_host:
            raise LocalProtocolError(f"the URL {text[:200]!r} is not one of http:// or https://")
        origin = (url.raw_scheme, url.raw_host.decode("ascii") + zone, url.port or _PORTS[url.raw_scheme])
        full = str(url).replace("]", f"{zone}]", 1)
        return cls(full, origin, url.raw_path, request.headers["host"].encode("ascii"), method=method)

    def carries(self, head: list[Header], auth: dict[str, str]) -> None:
        """Set the headers of all following requests."""
        self.head, self.auth, self._lines = head, auth, None

    def headers(self, more: list[Header]) -> list[Header]:
        """The headers of a request; `more` are those of one request alone, and beat the others."""
        names = {name for name, _ in more}
        return [*(header for header in self.head if header[0] not in names), *more]

    def lines(self, more: list[Header]) -> bytes:
        """The request line and the headers as they are sent; `more` are those of one request alone.

        Raises:
            LocalProtocolError: a header cannot be sent.
        """
        if more:
            return request_lines(self.target, self.headers(more), self.method)
        if self._lines is None:
            self._lines = request_lines(self.target, self.head, self.method)
        return self._lines


class DirectAnswer:
    """One answer: its head, and its bytes as they come."""

    __slots__ = ("_connection", "_connections", "_decoded", "_head", "_headers", "encoding", "idle_s", "status_code")

    def __init__(self, connections: Connections, connection: Connection, head: Head) -> None:
        self._connections = connections
        self._connection: Connection | None = connection
        self._head = head
        self._headers: Mapping[str, str] | None = None
        self._decoded: DecodedBody | None = None
        self.status_code = head.status
        self.encoding = head.encoding
        self.idle_s: float | None = None
        """The time-out for the next piece."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by name in any case."""
        if self._headers is None:
            import httpx2

            self._headers = httpx2.Headers(self._head.headers)
        return self._headers

    @property
    def is_over(self) -> bool:
        """True if the end of the body has been seen."""
        return self._connection is None or (not self.encoding and self._connection.is_complete)

    def piece(self) -> Awaitable[bytes | None]:
        """The next bytes, decoded; None at the end."""
        if not self.encoding and self._connection is not None:
            return self._connection.piece(self.idle_s)
        if self._decoded is None:
            from callgate.wire.content_codec import DecodedBody  # Few answers need it.

            self._decoded = DecodedBody(self.encoding, self.raw_piece)
        return self._decoded.piece()

    def raw_piece(self) -> Awaitable[bytes | None]:
        """The next bytes as they come."""
        assert self._connection is not None, "a closed answer is not read"
        return self._connection.piece(self.idle_s)

    async def aclose(self) -> None:
        """Release the connection: back to the pool if it is clean, closed otherwise."""
        connection, self._connection = self._connection, None
        if connection is not None and (left := self._connections.take_back(connection)) is not None:
            await left.socket.aclose()


class Connections:
    """The connections of one event loop."""

    def __init__(
        self,
        trust: Callable[[], SSLContext],
        *,
        connect_s: float,
        write_s: float = 60.0,
        at_once: int,
        kept: int,
        kept_s: float,
    ) -> None:
        self._trust = trust
        self._connect_s = connect_s
        self._write_s = write_s
        self._kept_max = kept
        self._kept_s = kept_s
        self._limit = ConnectionLimit(at_once)
        self._idle: list[Connection] = []
        """Idle connections, the most recently used last."""
        self._timer: asyncio.TimerHandle | None = None
        """The timer that closes expired connections."""

    async def post(
        self, address: Address, more: list[Header], body: bytes, *, within_s: float, until: float, fresh: bool = False
    ) -> DirectAnswer:
        """Send a body with the headers of the address and `more`; the answer is there as soon as its head is.

        Args:
            address: Where to.
            more: Headers of this request alone.
            body: What is sent.
            within_s: How long to wait for the head of the answer when all of the request has left.
            until: When to stop waiting at the latest, by the clock of the event loop.
            fresh: Whether a connection that was used before will not do.

        Raises:
            StaleConnectionError: a connection that had been used before broke at once.
            HttpError: there is no connection, it broke or is too slow, or what came is not HTTP.
            SendTimeoutError: the server took nothing of the request for too long.
            TimeoutError: the head of the answer did not come in time.
        """
        lines = address.lines(more)
        has_place = self._limit.take_free()
        connection = self._idle_connection(address.origin) if has_place and not fresh else None
        if connection is None:
            async with asyncio.timeout_at(until):
                connection = await self._waited_for(address.origin, has_place=has_place, fresh=fresh)
        began = time.monotonic() if connection.is_used else 0.0
        try:
            connection.send(lines, body)
            head = await connection.answer_head(within_s, until, self._write_s)
        except BaseException as error:
            is_silent = not connection.has_begun and isinstance(error, (ReadError, RemoteProtocolError))
            if (left := self.take_back(connection)) is not None:
                await left.socket.aclose()
            if began and is_silent and time.monotonic() - began < STALE_S:
                raise StaleConnectionError("a connection that was kept had been closed") from error
            raise
        return DirectAnswer(self, connection, head)

    def take_back(self, connection: Connection) -> Connection | None:
        """Return a connection to the pool; the result is a connection to close, if there is one."""
        self._limit.leave()
        if not connection.can_be_kept:
            return connection
        connection.keep(time.monotonic() + self._kept_s)
        self._idle.append(connection)
        if self._timer is None:
            self._set_timer(self._kept_s)
        return self._idle.pop(0) if len(self._idle) > self._kept_max else None

    async def aclose(self) -> None:
        """Close the idle connections."""
        self._stop_timer()
        while self._idle:
            await self._idle.pop().socket.aclose()

    def drop(self) -> None:
        """Close the connections of an event loop that was closed."""
        for connection in self._idle:
            connection.socket.drop()
        self._idle.clear()

    def _set_timer(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._close_expired)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_expired(self) -> None:
        """Close expired connections and schedule the next check."""
        self._timer = None
        now = time.monotonic()
        while self._idle and self._idle[0].kept_until <= now:
            self._idle.pop(0).socket.abort()
        if self._idle:
            self._set_timer(max(0.001, self._idle[0].kept_until - now))

    def _idle_connection(self, origin: Origin) -> Connection | None:
        """An idle connection to the origin, if there is one."""
        idle = self._idle
        for index in range(len(idle) - 1, -1, -1):
            if idle[index].origin == origin:
                connection = idle.pop(index)
                if connection.kept_until > time.monotonic() and not connection.socket.is_readable():
                    return connection
                connection.socket.abort()
        return None

    async def _waited_for(self, origin: Origin, *, has_place: bool, fresh: bool) -> Connection:
        """A connection to the origin as soon as the limit allows it, usually a new one."""
        if not has_place:
            await self._limit.wait()
        try:
            if not fresh and (kept := self._idle_connection(origin)) is not None:
                return kept
            scheme, host, port = origin
            trust = self._trust() if scheme == b"https" else None
            return Connection(origin, await connect(host, port, trust=trust, timeout_s=self._connect_s))
        except BaseException:
            self._limit.leave()
            raise


class ConnectionLimit:
    """A limit on concurrent connections, first come first served."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting = 0
        self._handed_on = asyncio.Semaphore(0)

    def take_free(self) -> bool:
        """Take a slot if one is free; return True if it was."""
        if not self._free:
            return False
        self._free -= 1
        return True

    async def wait(self) -> None:
        """Wait for a slot and take it."""
        self._waiting += 1
        try:
            await self._handed_on.acquire()
        finally:
            self._waiting -= 1

    def leave(self) -> None:
        """Release a slot."""
        if self._waiting:
            self._handed_on.release()
        else:
            self._free += 1
