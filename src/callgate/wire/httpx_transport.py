"""Requests through httpx2 or httpx: where a proxy is to be used, where the program brings a client along, and for all if
CALLGATE_HTTP=httpx2 says so.

The same comes in and goes out as in `http11.py`. This file tries nothing again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from ssl import SSLContext
from typing import Any

import httpx2

from callgate.errors import UsageError
from callgate.wire.connection import Header
from callgate.wire.content_codec import DecodedBody
from callgate.wire.failures import ConnectError, ConnectTimeoutError, StaleConnectionError
from callgate.wire.http11 import STALE_S, Address
from callgate.wire.network import SendTimeoutError
from callgate.wire.proxies import Proxy

__all__ = ["HttpxResponse", "HttpxTransport", "httpx_client"]

PIECE_BYTES = 64 * 1024
"""Bodies leave in pieces of this size, each of which must be taken in time."""


def httpx_client(
    trust: SSLContext, *, connect_s: float, at_once: int, kept: int, kept_s: float, proxy: Proxy | None
) -> httpx2.AsyncClient:
    """A client of our own, by way of the proxy if there is one.

    Raises:
        UsageError: the proxy is of a kind that cannot be used.
    """
    try:
        return httpx2.AsyncClient(
            # The caller times the wait for an answer, per phase; the client itself only times what happens before.
            timeout=httpx2.Timeout(None, connect=connect_s),
            limits=httpx2.Limits(max_connections=at_once, max_keepalive_connections=kept, keepalive_expiry=kept_s),
            verify=trust,
            follow_redirects=False,
            proxy=None if proxy is None else proxy.url,
            trust_env=False,
        )
    except ImportError:
        assert proxy is not None
        raise UsageError(f"{proxy.description} needs a package for SOCKS: pip install 'callgate[socks]'") from None
    except (ValueError, httpx2.InvalidURL) as error:
        if proxy is None:
            raise
        raise UsageError(f"{proxy.description} cannot be used: {error}") from None


class HttpxTransport:
    """One client of httpx2 or httpx, with the times that callgate keeps.

    Args:
        client: The client. `aclose` closes it only if there is also a `fresh` one.
        fresh: A client of the same kind that keeps no connections, for requests that must have a new one.
        write_s: How long the server may take nothing of a request.
        proxy: The proxy that the client goes through, for messages.
    """

    def __init__(
        self,
        client: Any,
        fresh: httpx2.AsyncClient | None = None,
        *,
        connect_s: float = 10.0,
        write_s: float = 60.0,
        proxy: Proxy | None = None,
    ) -> None:
        self._client = client
        self._fresh = fresh
        self._connect_s = connect_s
        self._write_s = write_s
        self._proxy = proxy
        self._has_answered = False
        """True if there may be a connection that had been used before."""

    @property
    def client(self) -> Any:
        """The client.

        Raises:
            UsageError: the program has closed it.
        """
        if getattr(self._client, "is_closed", False):
            raise UsageError("the client passed as http= is closed: keep it open as long as the model is used")
        return self._client

    async def post(
        self, address: Address, more: list[Header], body: bytes, *, within_s: float, until: float, fresh: bool = False
    ) -> HttpxResponse:
        """Send a body with the headers of the address and `more`; the answer is there as soon as its head is.

        Args:
            address: Where to.
            more: Headers of this request alone.
            body: What is sent.
            within_s: How long each read of the head may take, when all of the request has left.
            until: When to stop waiting at the latest, by the clock of the event loop.
            fresh: Whether a reused connection will not do, as far as the client supports that.

        Raises:
            StaleConnectionError: a connection that may have been used before broke at once.
            SendTimeoutError: the server took nothing of the request for too long.
            TimeoutError: the head of the answer did not come in time.
            UsageError: the program has closed its client.
        """
        client = self.client if not fresh or self._fresh is None else self._fresh
        timeouts = {"connect": self._connect_s, "read": within_s, "write": self._write_s, "pool": None}
        extensions: dict[str, Any] = {"timeout": timeouts}
        connecting = None
        if self._fresh is not None:  # Only a client of our own is known to report what it does.
            connecting = _Connecting(timeouts, self._connect_s)
            extensions["trace"] = connecting.trace
        request = client.build_request(
            address.method,
            address.url,
            headers=[*address.headers(more), (b"content-length", b"%d" % len(body))],
            content=body if len(body) <= PIECE_BYTES else _pieces(body),
            extensions=extensions,
        )
        was_used = self._has_answered and not fresh
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout_at(until):
                response = await client.send(request, stream=True, follow_redirects=False)
        except Exception as error:
            if type(error).__name__ == "ReadTimeout" and connecting is not None and not connecting.is_over:
                raise ConnectTimeoutError("the proxy does not answer") from error
            if type(error).__name__ in ("ReadTimeout", "WriteTimeout"):
                raise (TimeoutError if type(error).__name__ == "ReadTimeout" else SendTimeoutError)() from error
            if was_used and _is_broken(error) and loop.time() - began < STALE_S:
                raise StaleConnectionError("a connection that was kept had been closed") from error
            if self._proxy is not None and type(error).__name__ in ("ConnectError", "ConnectTimeout"):
                kind = ConnectError if type(error).__name__ == "ConnectError" else ConnectTimeoutError
                raise kind(f"{str(error) or 'no answer'}, through {self._proxy.description}") from error
            raise
        self._has_answered = True
        timeouts["read"] = None  # From here on each piece is timed.
        return HttpxResponse(response)

    async def aclose(self) -> None:
        """Close all connections of a client of our own."""
        if self._fresh is not None:
            await self._client.aclose()
            await self._fresh.aclose()


class _Connecting:
    """The time before a request leaves: what a proxy says to CONNECT is part of connecting, and has its time-out."""

    def __init__(self, timeouts: dict[str, float | None], connect_s: float) -> None:
        self.is_over = False
        self._timeouts = timeouts
        self._read_s, timeouts["read"] = timeouts["read"], connect_s

    async def trace(self, event: str, details: Mapping[str, Any]) -> None:
        """Give the answer its own time as soon as the request itself is sent."""
        if event.endswith(".send_request_headers.started") and details["request"].method != b"CONNECT":
            self.is_over, self._timeouts["read"] = True, self._read_s


class HttpxResponse:
    """One answer: its head, and its bytes as they come."""

    def __init__(self, response: Any) -> None:
        self._response = response
        self.encoding: str = response.headers.get("content-encoding", "")
        # The client itself knows fewer forms. An answer that a hook of the program has read is decoded already.
        is_raw = bool(self.encoding) and not response.is_stream_consumed
        self._pieces = response.aiter_raw() if is_raw else response.aiter_bytes()
        self._body = DecodedBody(self.encoding if is_raw else "", lambda: anext(self._pieces, None))
        self.is_over = False
        """True if it is known that no more pieces come."""
        self.status_code = response.status_code
        self.headers = response.headers
        self.idle_s: float | None = None
        """The time-out for the next piece."""

    async def piece(self) -> bytes | None:
        """The next bytes, decoded; None at the end."""
        async with asyncio.timeout(self.idle_s):
            piece = await self._body.piece()
        self.is_over = piece is None
        return piece

    async def aclose(self) -> None:
        """Let go of the connection."""
        try:
            if self.is_over and self._has_more():
                await self._response.extensions["network_stream"].aclose()
        finally:
            await self._response.aclose()

    def _has_more(self) -> bool:
        """True if bytes followed the answer, which would be taken for the next one.

        The client looks at the socket before it uses a connection again, but not at what it has already read from it; there
        is no public way to ask for that. The fault table holds this, on this path too.
        """
        found: Any = self._response
        for name in ("stream", "_stream", "_httpcore_stream", "_stream", "_connection", "_h11_state"):
            found = getattr(found, name, None)
        return found is not None and bool(found.trailing_data[0])


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    view = memoryview(body)
    for start in range(0, len(body), PIECE_BYTES):
        yield bytes(view[start : start + PIECE_BYTES])


def _is_broken(error: Exception) -> bool:
    """True if the connection broke, by the names that httpx and httpx2 have in common."""
    return type(error).__name__ in ("ReadError", "WriteError", "RemoteProtocolError")
