"""Requests by the HTTP client as it comes: through the proxies that the environment names, and whatever is no conversation.

The same goes in and comes out as in `http11.py`; what a proxy is and when it is used is the HTTP client's own knowledge.
"""

from __future__ import annotations

import asyncio
import urllib.request
from ssl import SSLContext
from typing import Any

import httpx2

from callgate.wire.connection import Header
from callgate.wire.http11 import Address

__all__ = ["Proxied", "ProxiedAnswer", "has_proxies"]


def has_proxies() -> bool:
    """Whether the environment names a proxy for anything that is sent from here."""
    return not {"http", "https", "all"}.isdisjoint(urllib.request.getproxies())


class Proxied:
    """The HTTP client of one event loop."""

    def __init__(self, trust: SSLContext, *, connect_s: float, at_once: int, kept: int, kept_s: float) -> None:
        self._connect_s = connect_s
        self.client = httpx2.AsyncClient(
            # Waiting for an answer is timed by whoever asks, per phase; the client itself only times what happens before.
            timeout=httpx2.Timeout(None, connect=connect_s),
            limits=httpx2.Limits(max_connections=at_once, max_keepalive_connections=kept, keepalive_expiry=kept_s),
            verify=trust,
            follow_redirects=False,
        )
        self.has_answered = False
        """Whether there may be a connection that had been used before."""

    async def post(
        self, address: Address, more: list[Header], body: bytes, sending: Any, *, until: float | None = None
    ) -> ProxiedAnswer:
        """Sends a body with the headers of the address and `more`; the answer is there as soon as its head is.

        `sending` is told in `is_stale` whether, as far as is known, the connection had been used before: the client is asked
        to tell only after one broke that may have been old, because that takes time. `until` is a time of the event loop.

        Raises:
            TimeoutError: the head of the answer did not come in time.
        """

        async def trace(event: str, info: Any) -> None:
            if event == "connection.connect_tcp.started":
                sending.is_stale = False

        timeouts = {"connect": self._connect_s, "read": None, "write": None, "pool": None}
        extensions: dict[str, Any] = {"timeout": timeouts} | ({"trace": trace} if sending.is_watched else {})
        sending.is_stale = self.has_answered
        head = [*address.head, (b"content-length", b"%d" % len(body)), *more]
        stream = httpx2.ByteStream(body)
        request = httpx2.Request("POST", address.url, headers=head, stream=stream, extensions=extensions)
        async with asyncio.timeout_at(until):
            answer = ProxiedAnswer(await self.client.send(request, stream=True), timeouts)
        self.has_answered = True
        return answer

    async def aclose(self) -> None:
        """Closes all connections."""
        await self.client.aclose()


class ProxiedAnswer:
    """One answer: its head, and its bytes as they come."""

    def __init__(self, response: httpx2.Response, timeouts: dict[str, float | None]) -> None:
        self._response = response
        self._timeouts = timeouts
        self._pieces = response.aiter_bytes()
        self.is_over = False
        """Whether it is known that no more pieces come."""
        self.status_code = response.status_code
        self.headers = response.headers
        self.idle_s: float | None = None
        """How long a piece may take to come."""
        self.encoding: str = response.headers.get("content-encoding", "")

    async def piece(self) -> bytes | None:
        """The next bytes, decoded; None at the end."""
        self._timeouts["read"] = self.idle_s  # The client itself times each read of the socket.
        piece = await anext(self._pieces, None)
        self.is_over = piece is None
        return piece

    async def aclose(self) -> None:
        """Lets go of the connection."""
        try:
            if self.is_over and self._has_more():
                await self._response.extensions["network_stream"].aclose()
        finally:
            await self._response.aclose()

    def _has_more(self) -> bool:
        """Whether bytes followed the answer, which would be taken for the next one.

        The client looks at the socket before it uses a connection again, but not at what it has already read from it; there
        is no public way to ask for that.
        """
        found: Any = self._response
        for name in ("stream", "_stream", "_httpcore_stream", "_stream", "_connection", "_h11_state"):
            found = getattr(found, name, None)
        return found is not None and bool(found.trailing_data[0])
