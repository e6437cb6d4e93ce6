"""Requests out: each with its headers and credentials, over the connections of the event loop that sends it.

A request comes in; the head of its answer goes out, with the bytes of it to come. Which way a request takes (a connection of
our own, a proxy, a client of the program) is decided per URL. Whether an answer is a good one, and what becomes of a request
that got none, is not looked at here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from callgate import __version__
from callgate.errors import ProtocolError, UsageError
from callgate.telemetry import inject
from callgate.wire.credentials import checked_headers, redact, secrets_of
from callgate.wire.dialect import HttpRequest, Response

if TYPE_CHECKING:
    from callgate.wire.http11 import Address, Connections
    from callgate.wire.httpx_transport import HttpxTransport
    from callgate.wire.proxies import Proxy
    from callgate.wire.transport import HttpClientLike

__all__ = ["CONNECTIONS_KEPT", "HEADERS", "Credentials", "HttpOptions", "Pool", "Sender", "connections_max", "http_options"]

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
SWITCH = "CALLGATE_HTTP"
"""The variable that names the HTTP client for all requests: `own`, or `httpx2`."""


def connections_max() -> int:
    """The connection limit, which leaves the rest of the program enough file descriptors."""
    try:
        import resource
    except ImportError:  # Windows has no such limit.
        return CONNECTIONS_MAX
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return CONNECTIONS_MAX if files == resource.RLIM_INFINITY else max(1, min(CONNECTIONS_MAX, files // 2))


Credentials: TypeAlias = Callable[[], "dict[str, str] | Awaitable[dict[str, str]]"]
"""The headers that let a request in, or a wait for them where they have to be fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """The HTTP options of a model."""

    http: HttpClientLike | None = None
    """The program's own HTTP client, instead of callgate's."""
    ssl: ssl.SSLContext | None = None
    """The TLS context, instead of the system's default."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Headers of every request, checked, by name in lower case."""


def http_options(
    http: HttpClientLike | None,
    context: ssl.SSLContext | None,
    headers: Mapping[str, str] | None,
    *,
    has_client: bool = False,
) -> HttpOptions:
    """Validate the HTTP options of a model. One that `has_client` of its own has their options.

    Raises:
        UsageError: a header cannot be sent, or the context is none for a client.
    """
    if has_client and (http is not None or context is not None or headers):
        raise UsageError("pass http=, ssl= and headers= to the client that you pass, or no client")
    if context is not None and not isinstance(context, ssl.SSLContext):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"ssl={context!r}: pass an ssl.SSLContext, such as ssl.create_default_context(cafile=...)")
    if context is not None and context.protocol == ssl.PROTOCOL_TLS_SERVER:
        raise UsageError("ssl= is a context for servers: pass one for clients, such as ssl.create_default_context()")
    return HttpOptions(http=http, ssl=context, headers=checked_headers(headers))


class Sender:
    """A sender of requests to one server.

    Raises:
        UsageError: the program's own client is none, or the environment names one that is not known.
    """

    def __init__(
        self, *, auth: Credentials, connect_s: float, write_s: float = 60.0, options: HttpOptions | None = None
    ) -> None:
        self._auth = auth
        self._connect_s = connect_s
        self._write_s = write_s
        options = options or HttpOptions()
        self._ssl = options.ssl
        self._headers = options.headers
        self._own: Any = None
        """The transport around the program's client."""
        if options.http is not None:
            from callgate.wire.transport import transport_of

            if options.ssl is not None:
                raise UsageError("pass ssl= or http=, not both: a client of your own has a context of its own")
            self._own = transport_of(options.http)
        switch = os.environ.get(SWITCH, "").strip() or "own"
        if switch not in ("own", "httpx2"):
            raise UsageError(f"{SWITCH}={switch}: use 'own' or 'httpx2'")
        self._is_short = switch == "own"
        """True if requests that need no proxy go over connections of our own."""
        self._addresses: dict[tuple[str, str], tuple[Address, Proxy | None]] = {}
        # Connections belong to the event loop that made them, and a gate may be used from several.
        self._pools: dict[asyncio.AbstractEventLoop, Pool] = {}

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of every request."""
        return self._headers

    def pool(self, loop: asyncio.AbstractEventLoop) -> Pool:
        """The pool of the running event loop. The caller counts as its user until it calls `leave`."""
        pool = self._pools.get(loop)
        if pool is None:
            self._drop_dead()
            pool = self._pools[loop] = self._new_pool()
            pool.watch_loop()
        pool.users += 1
        return pool

    def _drop_dead(self) -> None:
        """Close what event loops left open that were closed themselves."""
        for loop in [loop for loop in list(self._pools) if loop.is_closed()]:
            if (pool := self._pools.pop(loop, None)) is not None:
                pool.drop()

    def _new_pool(self) -> Pool:
        return Pool(trust=self._trust, connect_s=self._connect_s, write_s=self._write_s)

    def _trust(self) -> ssl.SSLContext:
        """The TLS context, made for the first request that needs one: reading the trusted certificates takes longer than
        everything else here."""
        if self._ssl is None:
            import httpx2

            try:
                self._ssl = httpx2.create_ssl_context()
            except OSError as error:  # ssl.SSLError is one too.
                given = {name: os.environ[name] for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)}
                named = [f"{name}={path}" for name, path in given.items() if not os.path.isdir(path)]
                said = getattr(error, "reason", None) or error.strerror or error
                raise UsageError(f"{' and '.join(named) or 'the trusted certificates'}: cannot be read: {said}") from None
            self._ssl.set_alpn_protocols(["http/1.1"])
        return self._ssl

    def credentials(self) -> dict[str, str] | Awaitable[dict[str, str]]:
        """The headers that let a request in, or a wait for them."""
        return self._auth()

    def send(
        self, pool: Pool, request: HttpRequest, auth: dict[str, str], *, within_s: float, until: float, fresh: bool
    ) -> Awaitable[Response]:
        """Send a request; the answer is there as soon as its head is.

        Args:
            pool: The connections of the running event loop.
            request: What to send.
            auth: What lets it in.
            within_s: How long to wait for the head of the answer when all of the request has left.
            until: When to stop waiting at the latest, by the clock of the event loop.
            fresh: Whether a connection that was used before will not do.

        Raises:
            ModelError: a header cannot be sent.
            UsageError: the proxy that the environment names cannot be used.
            HttpError: there is no connection, it broke or is too slow, or what came is not HTTP.
            TimeoutError: the head of the answer did not come in time.
        """
        url = request.url if isinstance(request.url, str) else request.url()
        method = request.method
        address, proxy = self._addresses.get((method, url)) or self._address(url, method)
        if address.auth != auth:
            address.carries(_head(address.host, self._headers, auth), auth)
        more = _own_headers(request.headers)
        if logger.isEnabledFor(logging.DEBUG):
            text = f"{method} {url} {request.body.decode('utf-8', 'replace')}"
            logger.debug("request: %s", redact(text, secrets_of(auth)))
        way = self._way(pool, proxy)
        return way.post(address, more, request.body, within_s=within_s, until=until, fresh=fresh)

    def client_for(self, pool: Pool, url: str) -> Any:
        """The client of httpx2 or httpx for whatever is no request of a conversation; None if there is none."""
        if self._own is not None:
            return self._own.client
        return pool.through(self._address(url)[1]).client

    def _way(self, pool: Pool, proxy: Proxy | None) -> Connections | HttpxTransport:
        if self._own is not None:
            return self._own
        return pool.direct() if proxy is None and self._is_short else pool.through(proxy)

    def _address(self, url: str, method: str = "POST") -> tuple[Address, Proxy | None]:
        from callgate.wire.http11 import Address
        from callgate.wire.proxies import proxy_for

        if len(self._addresses) > ADDRESSES_MAX:
            self._addresses.clear()
        address = Address.of(url, method)
        scheme, host, port = address.origin
        proxy = None if self._own is not None else proxy_for(scheme.decode("ascii"), host, port)
        known = self._addresses[method, url] = (address, proxy)
        return known

    async def aclose(self) -> None:
        """Close the connections of the running event loop, those in use as soon as they are not any more."""
        pool = self._pools.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.retire()


@dataclass(slots=True, kw_only=True)
class Pool:
    """The connections of one event loop; they outlive their retirement until the last request over them has ended."""

    trust: Callable[[], ssl.SSLContext]
    connect_s: float
    write_s: float
    users: int = 0
    is_retired: bool = False
    _direct: Connections | None = None
    _proxied: dict[Proxy | None, HttpxTransport] = field(default_factory=dict["Proxy | None", "HttpxTransport"])
    _end_of_loop: AsyncGenerator[None] | None = None

    def direct(self) -> Connections:
        """Connections straight to the server."""
        if self._direct is None:
            from callgate.wire.http11 import Connections

            limits = {"at_once": connections_max(), "kept": CONNECTIONS_KEPT}
            self._direct = Connections(
                self.trust, connect_s=self.connect_s, write_s=self.write_s, kept_s=KEPT_FOR_S, **limits
            )
        return self._direct

    def through(self, proxy: Proxy | None) -> HttpxTransport:
        """Connections through a proxy, and for whatever is not a request of a conversation.

        Raises:
            UsageError: the proxy is of a kind that cannot be used.
        """
        found = self._proxied.get(proxy)
        if found is None:
            from callgate.wire.httpx_transport import HttpxTransport, httpx_client

            clients = [
                httpx_client(
                    self.trust(), connect_s=self.connect_s, at_once=connections_max(), kept=kept, kept_s=KEPT_FOR_S,
                    proxy=proxy,
                )
                for kept in (CONNECTIONS_KEPT, 0)
            ]  # fmt: skip
            found = HttpxTransport(*clients, connect_s=self.connect_s, write_s=self.write_s, proxy=proxy)
            self._proxied[proxy] = found
        return found

    def leave(self) -> bool:
        """Release the pool; True for the last user of a retired pool, who has to close it."""
        self.users -= 1
        return self.is_retired and not self.users

    async def retire(self) -> None:
        """Retire the pool: close it when its last user leaves."""
        self.is_retired = True
        if not self.users:
            await self.aclose()

    def watch_loop(self) -> None:
        """Close the connections when the running event loop ends, unless they are closed before.

        A loop that is shut down closes the async generators that were begun on it, and there is no other word of its end.
        """
        self._end_of_loop = self._until_loop_ends()
        with contextlib.suppress(StopIteration):  # It waits at its yield.
            self._end_of_loop.asend(None).send(None)

    async def _until_loop_ends(self) -> AsyncGenerator[None]:
        try:
            yield
        finally:
            await self._close_all()

    async def aclose(self) -> None:
        """Close the connections."""
        end, self._end_of_loop = self._end_of_loop, None
        if end is not None:
            await end.aclose()
        else:
            await self._close_all()

    async def _close_all(self) -> None:
        for connections in (self._direct, *self._proxied.values()):
            if connections is not None:
                await connections.aclose()

    def drop(self) -> None:
        """Close the connections of an event loop that was closed; httpx2 can do nothing for its own then."""
        if self._direct is not None:
            self._direct.drop()


def _head(host: bytes, headers: Mapping[str, str], auth: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """The headers that every request of a conversation has."""
    named = {**HEADERS, **headers, **{name.lower(): value for name, value in auth.items()}}
    try:
        return [(b"host", host), *((name.encode("ascii"), value.encode("ascii")) for name, value in named.items())]
    except UnicodeEncodeError:
        raise ProtocolError("the request cannot be sent: a header of the credentials is not plain ASCII") from None


def _own_headers(headers: Mapping[str, str] | None) -> list[tuple[bytes, bytes]]:
    """The headers that one request has by itself."""
    carried = dict(headers) if headers else {}
    inject(carried)
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in carried.items()] if carried else []
