"""An answer on its way to a client: items in, bytes by an encoder out, until it ends or the client leaves.

The status is decided by the first bytes: what fails before them has a status of its own. Knows no format.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, Protocol, TypeGuard

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from callgate import strict_json
from callgate.errors import CallgateError
from callgate.server.errors import error_body, error_response, problem_of
from callgate.server.options import ServiceOptions
from callgate.server.sse import HEADERS, watch_disconnect
from callgate.types import JsonObject

__all__ = ["Encoder", "StreamingReply", "WholeAnswer"]

logger = logging.getLogger("callgate.server")

SETTLE_S = 5.0
"""Seconds that a stream waits for its first bytes before it starts without them."""
OPENING_S = 0.25
"""The same for a stream whose first event says that it has begun: only what fails at once has a status of its own."""
_END: Any = object()


class Encoder(Protocol):
    """Writer of one answer."""

    media_type: str
    streams: bool
    """True if it is sent while it comes."""
    ping: bytes
    """Bytes without meaning that keep the stream alive."""

    def feed(self, item: Any) -> bytes:
        """The next item; nothing where there is nothing to tell yet."""
        ...

    def end(self) -> bytes:
        """The last bytes of the response."""
        ...

    def failed(self, problem: JsonObject) -> bytes:
        """Report a failure in the middle; `end` follows."""
        ...


class OpeningEncoder(Encoder, Protocol):
    """Writer of an answer whose first event needs nothing of it."""

    def begin(self) -> bytes:
        """The first bytes; nothing if they were written, or are not wanted."""
        ...


class WholeAnswer:
    """Writer of an answer in one piece: it keeps the chunks, for `end` to write."""

    media_type = "application/json"
    streams = False
    ping = b""

    def __init__(self) -> None:
        self._chunks: list[JsonObject] = []

    def feed(self, item: JsonObject) -> bytes:
        """Keep the chunk."""
        self._chunks.append(item)
        return b""

    def failed(self, problem: JsonObject) -> bytes:
        """Write the failure alone: nothing is sent before the end."""
        return strict_json.dump(problem)


def _opens(encoder: Encoder) -> TypeGuard[OpeningEncoder]:
    return encoder.streams and hasattr(encoder, "begin")


class StreamingReply(Response):
    """An answer that is told as it comes, or when it is whole."""

    def __init__(
        self,
        items: AsyncGenerator[Any],
        encoder: Encoder,
        options: ServiceOptions,
        headers: Mapping[str, str],
        failure_headers: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        super().__init__(headers={**HEADERS, **headers}, media_type=encoder.media_type)
        del self.headers["content-length"]
        self._items = items
        self._encoder = encoder
        self._options = options
        self._failure_headers = failure_headers
        self._has_begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        async with contextlib.aclosing(self._items) as items, watch_disconnect(receive, asyncio.Event()) as left:
            leaving = asyncio.create_task(left.wait())
            try:
                await self._tell(items, leaving, scope, receive, send)
            except (TimeoutError, OSError):
                return  # The client does not read any more.
            finally:
                leaving.cancel()

    async def _tell(
        self, items: AsyncGenerator[Any], leaving: asyncio.Task[Any], scope: Scope, receive: Receive, send: Send
    ) -> None:
        while True:
            try:
                item = await self._next(items, leaving, send)
                # Writing is within: a whole answer that broke off is found out where it is put together.
                data = self._encoder.end() if item is _END else self._encoder.feed(item)
            except _DisconnectedError:
                return
            except Exception as error:
                await self._fail(error, scope, receive, send)
                return
            if item is _END:
                await self._send(send, data, more=False)
                return
            if data:
                await self._send(send, data)

    async def _next(self, items: AsyncGenerator[Any], leaving: asyncio.Task[Any], send: Send) -> Any:
        pending = asyncio.ensure_future(anext(items, _END))
        try:
            while not pending.done():
                settle_s = OPENING_S if _opens(self._encoder) else SETTLE_S
                wait_s = self._options.ping_s if self._has_begun else settle_s
                await asyncio.wait({pending, leaving}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    raise _DisconnectedError
                if not pending.done() and self._encoder.streams:
                    first = self._encoder.begin() if _opens(self._encoder) else b""
                    await self._send(send, first or self._encoder.ping)
            return pending.result()
        finally:
            if not pending.done():
                pending.cancel()
                await asyncio.wait({pending})

    async def _fail(self, error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
        problem = problem_of(error)
        if not isinstance(error, CallgateError):
            logger.error("%s %s failed", scope["method"], scope["path"], exc_info=error)
        if not self._has_begun:
            problem.headers = {**problem.headers, **self._failure_headers()}
            await error_response(problem, scope)(scope, receive, send)
            return
        _, body = error_body(problem, scope)
        await self._send(send, self._encoder.failed(body) + self._encoder.end(), more=False)

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        async with asyncio.timeout(self._options.stalled_s):
            if not self._has_begun:
                self._has_begun = True
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": body, "more_body": more})


class _DisconnectedError(Exception):
    """The client is gone."""
