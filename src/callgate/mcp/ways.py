"""The ways to a server: a child process, streamable HTTP, and server-sent events for old servers.

What a server is comes in; a client of the SDK that is ready to be entered goes out, with a word on when it is of no use any
more. Nothing is offered to servers beyond calling their tools: they can ask us for no model, no files and no answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, cast

from callgate.mcp.child import Child, child_streams
from callgate.mcp.connection import Opened
from callgate.types import JsonObject

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

__all__ = ["Transport", "process_way", "web_way"]

logger = logging.getLogger("callgate.mcp")

Transport = Literal["http", "sse"]

CONNECT_S = 10.0
SILENCE_S = 300.0
"""How long a stream of a server may be silent."""


@contextlib.asynccontextmanager
async def process_way(command: Sequence[str], env: Mapping[str, str] | None, cwd: str | None) -> AsyncGenerator[Opened]:
    """A server that is run as a child process."""
    child = Child()
    yield _opened(child_streams(child, command, env=env, cwd=cwd), child.last_words)


@contextlib.asynccontextmanager
async def web_way(
    url: str, transport: Transport, headers: Mapping[str, str] | None, timeout_s: float | None
) -> AsyncGenerator[Opened]:
    """A server at an address."""
    streams = {"http": _http_streams, "sse": _sse_streams}[transport](
        url, dict(headers or {}), max(SILENCE_S, timeout_s or 0)
    )
    yield _opened(streams, str)


@contextlib.asynccontextmanager
async def _http_streams(url: str, headers: dict[str, str], silence_s: float) -> AsyncGenerator[TransportStreams]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    async with (
        httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(CONNECT_S, read=silence_s)) as client,
        streamable_http_client(url, http_client=client) as streams,
    ):
        yield streams


@contextlib.asynccontextmanager
async def _sse_streams(url: str, headers: dict[str, str], silence_s: float) -> AsyncGenerator[TransportStreams]:
    from mcp.client.sse import sse_client

    async with sse_client(url, headers=headers, timeout=CONNECT_S, sse_read_timeout=silence_s) as streams:
        yield streams


def _opened(streams: contextlib.AbstractAsyncContextManager[TransportStreams], last_words: Any) -> Opened:
    from mcp.client import Client
    from mcp_types import Implementation, ToolListChangedNotification

    from callgate import __version__

    ended, changed = asyncio.Event(), asyncio.Event()

    async def take(message: object) -> None:
        if isinstance(message, ToolListChangedNotification):
            changed.set()

    @contextlib.asynccontextmanager
    async def watched() -> AsyncGenerator[Any]:
        async with streams as (incoming, outgoing):
            yield _Watched(incoming, ended), _Told(outgoing) if logger.isEnabledFor(logging.DEBUG) else outgoing

    client = Client(watched(), message_handler=take, client_info=Implementation(name="callgate", version=__version__))
    return Opened(client, ended, changed, last_words)


def _mended(message: Any) -> Any:
    """A list of tools with what the SDK would refuse set right, for it would refuse all tools for the sake of one."""
    result: Any = getattr(getattr(message, "message", None), "result", None)
    tools: Any = cast("JsonObject", result).get("tools") if isinstance(result, dict) else None
    if isinstance(tools, list):
        listed = cast("list[Any]", tools)
        named = [cast("JsonObject", tool) for tool in listed if isinstance(tool, dict) and "name" in tool]
        if len(named) < len(listed):
            logger.warning("a server lists tools without a name; they are left out")
        result["tools"] = [_with_schema(tool) for tool in named if isinstance(tool["name"], str)]
    return message


def _with_schema(tool: JsonObject) -> JsonObject:
    schema: Any = tool.get("inputSchema")
    if not isinstance(schema, dict) or cast("JsonObject", schema).get("type") is None:
        return {**tool, "inputSchema": {"type": "object", **cast("JsonObject", schema if isinstance(schema, dict) else {})}}
    return tool


class _Watched:
    """A stream of messages that says when it is over."""

    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> _Watched:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> Any:
        self._ended.set()
        return await self._stream.__aexit__(*exc)

    def __aiter__(self) -> _Watched:
        return self

    async def __anext__(self) -> Any:
        try:
            message = await self._stream.__anext__()
            _log("received", message)
            return _mended(message)
        except BaseException:
            self._ended.set()
            raise


class _Told:
    """A stream of messages to a server that logs each of them."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> _Told:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> Any:
        return await self._stream.__aexit__(*exc)

    async def send(self, item: Any) -> None:
        """Hands a message on."""
        _log("sent", item)
        await self._stream.send(item)


def _log(way: str, message: Any) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        inner = getattr(message, "message", message)
        written = inner.model_dump_json(by_alias=True, exclude_none=True) if hasattr(inner, "model_dump_json") else inner
        logger.debug("%s: %s", way, written)
