"""The interface to HTTP clients of the program.

`GeminiModel(..., http=...)` and `OpenAIModel(..., http=...)` take an `httpx2.AsyncClient`, an `httpx.AsyncClient`, or any
object that is a `Transport`: for recordings, for other protocols, for tests. It stays the program's own and is never closed.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol, TypeAlias

from callgate.errors import UsageError
from callgate.wire.connection import Header
from callgate.wire.http11 import Address

__all__ = ["CustomTransport", "HttpClientLike", "Transport", "TransportResponse", "transport_of"]


class TransportResponse(Protocol):
    """One response: its head, and its body as it arrives."""

    @property
    def status_code(self) -> int:
        """The status, such as 200."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by name in lower case."""
        ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """The body in pieces as they arrive, decompressed."""
        ...

    async def aclose(self) -> None:
        """Release the connection; called once, also in the middle of the body."""
        ...


class Transport(Protocol):
    """A sender of single requests. It must neither retry nor follow redirects: callgate does the one and refuses the
    other."""

    async def post(self, url: str, *, headers: Mapping[str, str], content: bytes) -> TransportResponse:
        """Send a body and wait for the head of the response.

        It may be cancelled at any time, and is when it takes too long.

        Raises:
            OSError: there is no connection, or it broke (`ConnectionError`), or it took too long (`TimeoutError`). These
                are tried again like those of callgate's own client; whatever else is raised reaches the caller.
        """
        ...


HttpClientLike: TypeAlias = Any
"""An `httpx2.AsyncClient`, an `httpx.AsyncClient` or a `Transport`."""


class CustomTransport:
    """A `Transport` of the program, with the times that callgate keeps."""

    client = None
    """It has no client for requests other than `post`."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def post(
        self, address: Address, more: list[Header], body: bytes, *, within_s: float, until: float, fresh: bool = False
    ) -> CustomResponse:
        """Send a body; the answer is there as soon as its head is, `until` a time of the event loop at the latest.

        How much of the body has left is not known, so only `until` bounds the wait.
        """
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in address.headers(more)}
        headers["accept-encoding"] = "identity"
        async with asyncio.timeout_at(until):
            return CustomResponse(await self._transport.post(str(address.url), headers=headers, content=body))

    async def aclose(self) -> None:
        """Do nothing: the transport is the program's."""


class CustomResponse:
    """An answer of a `Transport`."""

    encoding = ""

    def __init__(self, response: TransportResponse) -> None:
        self._response = response
        self._pieces = response.aiter_bytes()
        self.status_code = response.status_code
        self.headers = response.headers
        self.is_over = False
        self.idle_s: float | None = None
        """The time-out for the next piece."""

    async def piece(self) -> bytes | None:
        """The next bytes; None at the end."""
        async with asyncio.timeout(self.idle_s):
            piece = await anext(self._pieces, None)
        self.is_over = piece is None
        return piece

    async def aclose(self) -> None:
        """Release the connection."""
        await self._response.aclose()


def transport_of(http: HttpClientLike) -> Any:
    """The transport for the client of the program.

    Raises:
        UsageError: it is none.
    """
    if callable(getattr(http, "build_request", None)) and callable(getattr(http, "send", None)):
        from callgate.wire.httpx_transport import HttpxTransport

        if not inspect.iscoroutinefunction(http.send):
            raise UsageError(f"http={http!r} is a client for programs without async: pass an AsyncClient")
        return HttpxTransport(http)
    if callable(getattr(http, "post", None)):
        return CustomTransport(http)
    raise UsageError(
        f"http={http!r} cannot send requests: pass an httpx2.AsyncClient, an httpx.AsyncClient, or an object with "
        "`async def post(url, *, headers, content)`"
    )
