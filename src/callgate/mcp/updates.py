"""Changes of resources: subscriptions that outlive the connection.

Addresses come in, and each of them goes out when it is subscribed to and whenever the server says that it has changed. A
subscription is made anew on every connection; as a change may have been missed meanwhile, each address then counts as
changed. Older servers subscribe by a request, newer ones by a stream; both report changes by the same notification.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING, Any

from callgate.errors import ToolError
from callgate.mcp.errors import reason_of

if TYPE_CHECKING:
    from mcp.client import Client

__all__ = ["ResourceUpdates", "Watch"]

logger = logging.getLogger("callgate.mcp")

SUBSCRIBE_S = 10.0
"""The time-out of one subscription."""
AGAIN_S = 1.0
"""The delay before a stream of events that has ended is opened again."""


class Watch:
    """The addresses that one part of the program watches, on its own event loop."""

    def __init__(self, uris: Iterable[str]) -> None:
        self.uris = tuple(dict.fromkeys(uris))
        self._loop = asyncio.get_running_loop()
        self._changed: dict[str, None] = {}
        self._news = asyncio.Event()
        self._refusal = ""

    def tell(self, uri: str) -> None:
        """Note a change of this address, or of a part of it; from any thread."""
        for own in self.uris:
            if uri == own or uri.startswith(own.rstrip("/") + "/"):
                self._soon(own, "")

    def refuse(self, why: str) -> None:
        """End it: the server does not tell of changes; from any thread."""
        self._soon("", why)

    def _soon(self, uri: str, refusal: str) -> None:
        with contextlib.suppress(RuntimeError):  # The loop of the watcher is closed: nobody waits any more.
            self._loop.call_soon_threadsafe(self._note, uri, refusal)

    def _note(self, uri: str, refusal: str) -> None:
        if uri:
            self._changed[uri] = None
        self._refusal = refusal or self._refusal
        self._news.set()

    async def changes(self) -> AsyncGenerator[str]:
        """The address of each change; one that changed several times since the last look comes once.

        Raises:
            ToolError: the server does not report changes.
        """
        while True:
            while self._changed:
                uri = next(iter(self._changed))
                del self._changed[uri]
                yield uri
            if self._refusal:
                raise ToolError(self._refusal)
            self._news.clear()
            await self._news.wait()


class ResourceUpdates:
    """The watches on one server, on the event loop of its connection."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._watches: list[Watch] = []
        self._news = asyncio.Event()
        self._taken: set[str] = set()
        """The addresses of subscriptions that stand."""

    async def add(self, watch: Watch) -> None:
        """Subscribe to its addresses, now or as soon as the server is there."""
        self._watches.append(watch)
        for uri in self._taken:
            watch.tell(uri)
        self._news.set()

    async def remove(self, watch: Watch) -> None:
        """Cancel the subscriptions that nobody else has."""
        self._watches.remove(watch)
        self._news.set()

    def tell(self, uri: str) -> None:
        """Report a change that the server has told of."""
        for watch in self._watches:
            watch.tell(uri)

    async def keep(self, client: Client) -> None:
        """Hold the subscriptions on one connection, until it is cancelled."""
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        hold = self._by_stream if client.protocol_version in MODERN_PROTOCOL_VERSIONS else self._by_requests
        try:
            await hold(client)
        finally:
            self._taken = set()

    async def _by_requests(self, client: Client) -> None:
        # The SDK's own verbs for these warn that newer servers have another way.
        from mcp_types import (
            EmptyResult,
            SubscribeRequest,
            SubscribeRequestParams,
            UnsubscribeRequest,
            UnsubscribeRequestParams,
        )

        held: set[str] = set()
        while True:
            self._news.clear()
            wanted = {uri for watch in self._watches for uri in watch.uris}
            self._taken &= wanted
            for uri in sorted(held - wanted):
                with contextlib.suppress(Exception, BaseExceptionGroup):
                    async with asyncio.timeout(SUBSCRIBE_S):
                        request = UnsubscribeRequest(params=UnsubscribeRequestParams(uri=uri))
                        await client.session.send_request(request, EmptyResult)
            for uri in sorted(wanted - held):
                try:
                    async with asyncio.timeout(SUBSCRIBE_S):
                        request = SubscribeRequest(params=SubscribeRequestParams(uri=uri))
                        await client.session.send_request(request, EmptyResult)
                except (Exception, BaseExceptionGroup) as error:
                    if _is_final(error):
                        self._refuse({uri}, reason_of(error))
                else:
                    self._begin({uri})
            held = wanted
            await self._news.wait()

    async def _by_stream(self, client: Client) -> None:
        held: set[str] = set()
        stream: asyncio.Task[None] | None = None
        try:
            while True:
                self._news.clear()
                wanted = {uri for watch in self._watches for uri in watch.uris}
                if wanted != held:
                    await _end(stream)
                    self._taken = set()
                    stream = asyncio.create_task(self._streamed(client, wanted)) if wanted else None
                    held = wanted
                await self._news.wait()
        finally:
            await _end(stream)

    async def _streamed(self, client: Client, uris: set[str]) -> None:
        while True:
            try:
                async with client.listen(resource_subscriptions=sorted(uris)) as events:
                    honored = set(events.honored.resource_subscriptions or ())
                    self._begin(honored & uris)
                    self._refuse(uris - honored, "it does not report their changes")
                    async for _ in events:
                        pass  # Each event comes as a notification too.
            except (Exception, BaseExceptionGroup) as error:
                if _is_final(error):
                    self._refuse(uris, reason_of(error))
                    return
            await asyncio.sleep(AGAIN_S)

    def close(self) -> None:
        """End all watches: the server is closed."""
        for watch in self._watches:
            watch.refuse(f"The MCP server {self._server!r} has been closed")

    def _begin(self, uris: set[str]) -> None:
        """Have everybody look once: what changed before the subscription was not told."""
        self._taken |= uris
        for uri in uris:
            self.tell(uri)

    def _refuse(self, uris: set[str], why: str) -> None:
        if not uris:
            return
        logger.info("mcp server %r: no subscription to %s: %s", self._server, sorted(uris), why)
        for watch in self._watches:
            if lost := sorted(uris.intersection(watch.uris)):
                watch.refuse(f"The MCP server {self._server!r} does not report changes of {', '.join(lost)}: {why}")


def _is_final(error: BaseException) -> bool:
    """True if the server refuses; where a connection ends, the next one subscribes again."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, TimeoutError) or (isinstance(error, MCPError) and error.code != CONNECTION_CLOSED)


async def _end(task: asyncio.Task[Any] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.wait({task})
