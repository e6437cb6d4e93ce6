"""Requests by the shortest way: over the HTTP client's own connections, without the layers that callgate has no use for.

A URL, headers and a body come in; an answer goes out whose bytes are read as they arrive. Redirects, cookies, authentication
flows and proxies are what the layers left out are for: the first three are never wanted here, and where a proxy is to be used
the client is asked in the usual way.
"""

from __future__ import annotations

import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from ssl import SSLContext
from typing import Any, cast

import httpcore2
import httpx2

from callgate.wire.network import AsyncioBackend

__all__ = ["Connections", "DirectAnswer", "has_proxies", "of_client"]

Header = tuple[bytes, bytes]


def has_proxies() -> bool:
    """Whether the environment names a proxy for anything that is sent from here."""
    return not {"http", "https", "all"}.isdisjoint(urllib.request.getproxies())


class Connections:
    """The open connections of one event loop."""

    def __init__(self, *, trust: SSLContext, limits: httpx2.Limits) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=trust,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=AsyncioBackend(),
        )

    async def post(
        self, url: httpcore2.URL, headers: list[Header], body: bytes, extensions: dict[str, Any]
    ) -> DirectAnswer:
        """Sends a body; the answer is there as soon as its head is."""
        request = httpcore2.Request("POST", url, headers=headers, content=_Body(body), extensions=extensions)
        return DirectAnswer(await self._pool.handle_async_request(request))

    async def aclose(self) -> None:
        """Closes all of them."""
        await self._pool.aclose()


class _Body:
    """A body that is all there, as the HTTP client wants to be given it."""

    __slots__ = ("_body",)

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    def __aiter__(self) -> _Body:
        return self

    async def __anext__(self) -> bytes:
        body, self._body = self._body, None
        if body is None:
            raise StopAsyncIteration
        return body


class DirectAnswer:
    """One answer: its head, and its bytes as they come."""

    __slots__ = ("_headers", "_raw", "_stream", "extensions", "status_code")

    def __init__(self, response: httpcore2.Response) -> None:
        self._raw = cast("Iterable[Header]", response.headers)
        self._stream = cast("Any", response.stream)
        self._headers: httpx2.Headers | None = None
        self.status_code = response.status
        self.extensions = response.extensions

    @property
    def headers(self) -> httpx2.Headers:
        """The headers, by name in any case."""
        if self._headers is None:
            self._headers = httpx2.Headers(list(self._raw))
        return self._headers

    @property
    def is_success(self) -> bool:
        """Whether the server did what it was asked for."""
        return 200 <= self.status_code < 300

    @property
    def is_error(self) -> bool:
        """Whether it refused."""
        return 400 <= self.status_code < 600

    @property
    def encoding(self) -> str:
        """How the bytes are encoded on their way; mostly not at all."""
        return next((value.decode("latin-1") for name, value in self._raw if name.lower() == b"content-encoding"), "")

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """The bytes as they come, decoded."""
        if not self.encoding:
            return self._stream.__aiter__()
        return httpx2.Response(self.status_code, headers=self.headers, stream=_Encoded(self._stream)).aiter_bytes()

    async def aclose(self) -> None:
        """Lets go of the connection."""
        await self._stream.aclose()


class _Encoded(httpx2.AsyncByteStream):
    """Bytes for the decoders of the HTTP client."""

    def __init__(self, stream: AsyncGenerator[bytes]) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async with aclosing(self._stream.__aiter__()) as pieces:
            async for piece in pieces:
                yield piece


# What goes wrong on a connection has the same names in both libraries.
_NAMES = (
    "ConnectTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout", "ConnectError", "ReadError", "WriteError", "ProxyError",
    "UnsupportedProtocol", "LocalProtocolError", "RemoteProtocolError",
)  # fmt: skip
ERRORS: tuple[type[Exception], ...] = tuple(getattr(httpcore2, name) for name in _NAMES)


def of_client(error: Exception) -> Exception:
    """An error of a connection as the HTTP client tells it."""
    for name, kind in zip(_NAMES, ERRORS, strict=True):
        if isinstance(error, kind):
            told: Exception = getattr(httpx2, name)(str(error))
            told.__cause__ = error
            return told
    return error
