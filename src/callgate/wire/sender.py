"""Letters out: each with its headers and credentials, over the connections of the event loop that sends it.

A request comes in; the head of its answer goes out, with the bytes of it to come. Whether an answer is a good one, and what
becomes of a request that got none, is not looked at here.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from callgate import __version__
from callgate.errors import ProtocolError
from callgate.telemetry import inject
from callgate.wire.credentials import redact
from callgate.wire.dialect import HttpRequest, Response

if TYPE_CHECKING:
    from callgate.wire.http11 import Address, Connections
    from callgate.wire.httpx_transport import Proxied

__all__ = ["CONNECTIONS_KEPT", "HEADERS", "Credentials", "Pool", "Sender", "Sending", "connections_max", "secrets_of"]

logger = logging.getLogger("callgate.wire")

HEADERS = {
    "accept": "*/*",
    "accept-encoding": "gzip",
    "content-type": "application/json",
    "user-agent": f"callgate/{__version__}",
}
CONNECTIONS_MAX = 1024
"""Requests to one server at once; a program that may have few files open makes fewer. Further ones wait."""
CONNECTIONS_KEPT = 128
KEPT_FOR_S = 60.0
"""The longest that a kept connection is likely to be open at the other end; one that is not costs nothing but time."""
ADDRESSES_MAX = 100


def connections_max() -> int:
    """How many connections there may be, so that the rest of the program can still open files of its own."""
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return CONNECTIONS_MAX
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CONNECTIONS_MAX if files == resource.RLIM_INFINITY else max(1, min(CONNECTIONS_MAX, files // 2))


class Sending(Protocol):
    """What a sender tells of a request on its way, and is told of it."""

    request: HttpRequest
    auth: Mapping[str, str]
    """The credentials that were sent."""
    is_watched: bool
    """Whether it must be known for sure if a connection is new: after one broke that may have been old."""
    is_stale: bool
    """Nothing came back yet, over a connection that had been used before, as far as is known."""


Credentials: TypeAlias = Callable[[], "dict[str, str] | Awaitable[dict[str, str]]"]
"""The headers that let a request in, or a wait for them where they have to be fetched."""


def secrets_of(auth: Mapping[str, str]) -> list[str]:
    """What of the credentials must appear in no error."""
    return [value.removeprefix("Bearer ") for value in auth.values()]


class Sender:
    """Sends letters to one server."""

    def __init__(self, *, auth: Credentials, connect_s: float) -> None:
        self._auth = auth
        self._connect_s = connect_s
        self._ssl: ssl.SSLContext | None = None
        self._addresses: dict[str, Address] = {}
        # Connections belong to the event loop that made them, and a gate may be used from several.
        self._pools: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Pool] = weakref.WeakKeyDictionary()

    def pool(self, loop: asyncio.AbstractEventLoop) -> Pool:
        """The connections of the running event loop. Whoever uses them counts among their users, and leaves."""
        pool = self._pools.get(loop)
        if pool is None:
            pool = self._pools[loop] = self._new_pool()
        pool.users += 1
        return pool

    def _new_pool(self) -> Pool:
        import httpx2

        from callgate.wire.httpx_transport import has_proxies

        if self._ssl is None:
            # Reading the trusted certificates takes longer than everything else here.
            self._ssl = httpx2.create_ssl_context()
        return Pool(trust=self._ssl, connect_s=self._connect_s, has_proxies=has_proxies())

    async def auth(self) -> dict[str, str]:
        """The credentials, as soon as they are there.

        Raises:
            ModelError: there are none.
        """
        auth = self._auth()
        return auth if isinstance(auth, dict) else await auth

    def send(self, pool: Pool, sending: Sending, *, until: float) -> Awaitable[Response]:
        """Sends a request; the answer is there as soon as its head is, `until` a time of the event loop at the latest.

        Raises:
            ModelError: there are no credentials, or they cannot be sent.
            httpx2.HTTPError: there is no connection, it broke or is too slow, or what came is not HTTP.
            TimeoutError: the head of the answer did not come in time.
        """
        auth = self._auth()
        if isinstance(auth, dict):
            return self._posted(pool, sending, auth, until=until)
        return self._sent_with(auth, pool, sending, until=until)

    async def _sent_with(
        self, fetched: Awaitable[dict[str, str]], pool: Pool, sending: Sending, *, until: float
    ) -> Response:
        """As `send`, when the credentials are there."""
        async with asyncio.timeout_at(until):
            auth = await fetched
        return await self._posted(pool, sending, auth, until=until)

    def _posted(self, pool: Pool, sending: Sending, auth: dict[str, str], *, until: float) -> Awaitable[Response]:
        sending.auth = auth
        request = sending.request
        address = self._address(request.url)
        if address.auth != auth:
            address.carries(_head(address.host, auth), auth)
        carried: dict[str, str] = {}
        inject(carried)
        more = [(name.encode(), value.encode()) for name, value in carried.items()] if carried else []
        if logger.isEnabledFor(logging.DEBUG):
            told = f"POST {request.url} {request.body.decode('utf-8', 'replace')}"
            logger.debug("request: %s", redact(told, secrets_of(auth)))
        connections = pool.proxied() if pool.has_proxies else pool.direct()
        return connections.post(address, more, request.body, sending, until=until)

    def _address(self, url: str) -> Address:
        known = self._addresses.get(url)
        if known is None:
            from callgate.wire.http11 import Address

            if len(self._addresses) > ADDRESSES_MAX:
                self._addresses.clear()
            known = self._addresses[url] = Address.of(url)
        return known

    async def aclose(self) -> None:
        """Closes the connections of the running event loop, those in use as soon as they are not any more."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.retire()


@dataclass(slots=True, kw_only=True)
class Pool:
    """The connections of one event loop; they outlive their retirement until the last request over them has ended."""

    trust: ssl.SSLContext
    connect_s: float
    has_proxies: bool
    users: int = 0
    is_retired: bool = False
    _direct: Connections | None = None
    _proxied: Proxied | None = None

    def direct(self) -> Connections:
        """Connections straight to the server."""
        if self._direct is None:
            from callgate.wire.http11 import Connections

            self._direct = Connections(
                self.trust, connect_s=self.connect_s, at_once=connections_max(), kept=CONNECTIONS_KEPT, kept_s=KEPT_FOR_S
            )
        return self._direct

    def proxied(self) -> Proxied:
        """Connections through proxies, and for whatever is not a request of a conversation."""
        if self._proxied is None:
            from callgate.wire.httpx_transport import Proxied

            self._proxied = Proxied(
                self.trust, connect_s=self.connect_s, at_once=connections_max(), kept=CONNECTIONS_KEPT, kept_s=KEPT_FOR_S
            )
        return self._proxied

    def leave(self) -> bool:
        """One of the `users` is done. Whether it was the last, and has to close what nobody needs any more."""
        self.users -= 1
        return self.is_retired and not self.users

    async def retire(self) -> None:
        """Nobody comes any more."""
        self.is_retired = True
        if not self.users:
            await self.aclose()

    async def aclose(self) -> None:
        """Closes the connections."""
        for connections in (self._direct, self._proxied):
            if connections is not None:
                await connections.aclose()


def _head(host: bytes, auth: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The headers that every request of a conversation has."""
    named = HEADERS | {name.lower(): value for name, value in auth.items()}
    try:
        return [(b"host", host), *((name.encode("ascii"), value.encode("ascii")) for name, value in named.items())]
    except UnicodeEncodeError:
        raise ProtocolError("the request cannot be sent: a header of the credentials is not plain ASCII") from None
