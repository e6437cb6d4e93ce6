"""The interface to HTTP clients of the program.

`http=...` of `GeminiModel`, `OpenAIModel` and the other models takes an `httpx2.AsyncClient`, an `httpx.AsyncClient`, or any
object that is a `Transport`: for recordings, for other protocols, for tests. It stays the program's own and is never closed.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol, TypeAlias, cast

import httpx2

from callgate.errors import UsageError
from callgate.wire.connection import Header
from callgate.wire.failures import ConnectTimeoutError, ReadError
from callgate.wire.http11 import Address

__all__ = ["CustomTransport", "HttpClientLike", "Transport", "TransportResponse", "transport_of"]


logger = logging.getLogger("callgate.wire")

CLOSE_S = 5.0
"""The time-out for closing an answer of the program's transport."""
_END = object()


class TransportResponse(Protocol):
    """One response: its head, and its body as it arrives."""

    @property
    def status_code(self) -> int:
        """The status, such as 200."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by name in any case."""
        ...

    def aiter_bytes(self) -> AsyncIterator[bytes]:
        """The body in pieces as they arrive, decompressed."""
        ...

    async def aclose(self) -> None:
        """Release the connection; called once, also in the middle of the body."""
        ...


class Transport(Protocol):
    """A sender of single requests. It must neither retry nor follow redirects: callgate does the one and refuses the
    other.

    Stored interactions are also fetched and deleted: for these it needs `async def request(method, url, *, headers)`.
    """

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
    """No client for requests other than `post`."""

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
        limit = asyncio.timeout_at(until)
        try:
            async with limit:
                if address.method == "POST":
                    sent: Any = self._transport.post(address.url, headers=headers, content=body)
                    if not inspect.isawaitable(sent):
                        raise UsageError("the transport's post() is not async: write `async def post(...)`")
                    response = await sent
                else:
                    response = await self._requested(address, headers)
        except TimeoutError as error:
            if limit.expired():
                raise
            # A time of the transport's own, which is no reason to say that callgate's was over.
            raise ConnectTimeoutError(f"the transport gave up: {str(error) or type(error).__name__}") from error
        except StopAsyncIteration as error:
            # It would end the stream of chunks that waits for this, as if the answer were empty.
            raise RuntimeError("the transport's post() raised StopAsyncIteration") from error
        return CustomResponse(response)

    async def _requested(self, address: Address, headers: Mapping[str, str]) -> TransportResponse:
        request: Any = getattr(self._transport, "request", None)
        if request is None:
            raise UsageError(f"the transport has no request(method, url, *, headers), which {address.method} needs")
        return await request(address.method, address.url, headers=headers)

    async def aclose(self) -> None:
        """Do nothing: the transport is the program's."""


class CustomResponse:
    """An answer of a `Transport`.

    Raises:
        UsageError: it is none.
    """

    encoding = ""

    def __init__(self, response: TransportResponse) -> None:
        status: Any = getattr(response, "status_code", None)
        if not isinstance(status, int) or not callable(getattr(response, "aiter_bytes", None)):
            raise UsageError(
                f"the transport's post() returned {type(response).__name__}: a response has status_code (an int), headers, "
                "aiter_bytes() and aclose()"
            )
        self._response = response
        self._pieces = response.aiter_bytes()
        self.status_code = status
        self.headers = httpx2.Headers(cast("Any", response.headers))
        self.is_over = False
        self.idle_s: float | None = None
        """The time-out for the next piece."""

    async def piece(self) -> bytes | None:
        """The next bytes; None at the end."""
        limit = asyncio.timeout(self.idle_s)
        try:
            async with limit:
                piece: Any = await anext(self._pieces, _END)
        except TimeoutError as error:
            if limit.expired():
                raise
            raise ReadError(f"the transport gave up: {str(error) or type(error).__name__}") from error
        self.is_over = piece is _END
        if piece is _END or isinstance(piece, bytes):
            return None if piece is _END else piece
        if isinstance(piece, (bytearray, memoryview)):
            return bytes(cast("bytearray", piece))
        raise UsageError(f"the transport's aiter_bytes() yielded {type(piece).__name__}: it must yield bytes")

    async def aclose(self) -> None:
        """Release the connection. An answer that is there stays one, whatever the transport raises now."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._response.aclose()
        except Exception as error:
            logger.warning("the transport could not close a response: %r", error)


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
    if callable(getattr(http, "post", None)) and not inspect.ismodule(http):
        return CustomTransport(http)
    raise UsageError(
        f"http={http!r} cannot send requests: pass an httpx2.AsyncClient, an httpx.AsyncClient, or an object with "
        "`async def post(url, *, headers, content)`"
    )
