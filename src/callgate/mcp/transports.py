"""Transports to a server: a child process, streamable HTTP, and server-sent events for old servers.

What a server is comes in; a client of the SDK that is ready to be entered goes out, with a word on when it is of no use any
more. What servers may ask of us is the business of `requests.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

from callgate.mcp.child import LINE_BYTES_MAX, Child, child_streams
from callgate.mcp.connection import OpenedClient
from callgate.mcp.escapes import EscapeRepairer
from callgate.mcp.oauth import OAuthSession
from callgate.mcp.requests import Requests
from callgate.types import JsonObject

if TYPE_CHECKING:
    import httpx2
    from mcp.client._transport import TransportStreams
    from pydantic import TypeAdapter

__all__ = ["SILENCE_S", "Address", "Transport", "process_transport", "web_transport"]

logger = logging.getLogger("callgate.mcp")
# callgate reports failures itself; tracebacks of the SDK would otherwise land on a terminal without logging set up.
logging.getLogger("mcp").addHandler(logging.NullHandler())


class _SdkRecords(logging.Filter):
    """The records of the SDK's session, whose logger has a name that may be anybody's, as ours, without tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        """False for a record of the SDK."""
        if not record.pathname.endswith(_SESSION_FILE):
            return True
        logger.debug("%s", record.getMessage())
        return False


_SESSION_FILE = os.path.join("mcp", "client", "session.py")
logging.getLogger("client").addFilter(_SdkRecords())

Transport = Literal["http", "sse"]

CONNECT_S = 10.0
SILENCE_S = 300.0
"""The idle time-out of a server's stream."""


@contextlib.asynccontextmanager
async def process_transport(
    command: Sequence[str], env: Mapping[str, str] | None, cwd: str | None, requests: Requests
) -> AsyncGenerator[OpenedClient]:
    """A server that is run as a child process."""
    child = Child()
    opened = _opened(child_streams(child, command, env=env, cwd=cwd), child.last_words, requests)
    opened.gone = child.gone
    yield opened


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server at an address."""

    url: str
    headers: Mapping[str, str]
    silence_s: float


@contextlib.asynccontextmanager
async def web_transport(
    address: Address, transport: Transport, oauth: OAuthSession, requests: Requests
) -> AsyncGenerator[OpenedClient]:
    """A server at an address."""
    # A configured authorization header replaces OAuth.
    signed = contextlib.nullcontext() if "authorization" in map(str.lower, address.headers) else oauth.opened()
    async with signed as auth:
        streams = {"http": _http_streams, "sse": _sse_streams}[transport](address, auth)
        opened = _opened(streams, lambda: oauth.problem, requests)
        opened.is_hopeless = oauth.is_final
        yield opened


@contextlib.asynccontextmanager
async def _http_streams(address: Address, auth: httpx2.Auth | None) -> AsyncGenerator[TransportStreams]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(CONNECT_S, read=address.silence_s)
    # What is not packed cannot unpack to more than is read.
    headers = {"Accept-Encoding": "identity", **address.headers}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, event_hooks={"response": [_bound]}) as client,
        streamable_http_client(address.url, http_client=client, max_sse_event_size=LINE_BYTES_MAX) as streams,
    ):
        yield streams


async def _bound(response: httpx2.Response) -> None:
    """Limit the size of a whole answer to that of one message, and make its text readable for the SDK.

    Streams of events are bound event by event.
    """
    import httpx2

    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx2.DecodingError("the answer is compressed, which was not requested", request=response.request)
    is_endless = response.headers.get("content-type", "").startswith("text/event-stream")
    response.stream = _bounded(cast("httpx2.AsyncByteStream", response.stream), None if is_endless else LINE_BYTES_MAX)


def _bounded(stream: httpx2.AsyncByteStream, bytes_max: int | None) -> httpx2.AsyncByteStream:
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        """A body of at most so many bytes, without halves of characters."""

        async def __aiter__(self) -> AsyncIterator[bytes]:
            taken = 0
            repairer = EscapeRepairer()
            async for data in stream:
                taken += len(data)
                if bytes_max is not None and taken > bytes_max:
                    raise httpx2.ReadError(f"the answer is longer than {bytes_max >> 20} MiB")
                if passed := repairer.feed(data):
                    yield passed
            if rest := repairer.close():
                yield rest

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()


@contextlib.asynccontextmanager
async def _sse_streams(address: Address, auth: httpx2.Auth | None) -> AsyncGenerator[TransportStreams]:
    from mcp.client.sse import sse_client

    headers = dict(address.headers)
    async with sse_client(
        address.url, headers=headers, timeout=CONNECT_S, sse_read_timeout=address.silence_s, auth=auth
    ) as streams:
        yield streams


def _opened(
    streams: contextlib.AbstractAsyncContextManager[TransportStreams], last_words: Any, requests: Requests
) -> OpenedClient:
    from mcp.client import Client
    from mcp_types import (
        Implementation,
        PromptListChangedNotification,
        ResourceListChangedNotification,
        ResourceUpdatedNotification,
        ToolListChangedNotification,
    )

    from callgate import __version__

    ended, changed = asyncio.Event(), asyncio.Event()

    async def take(message: object) -> None:
        if isinstance(
            message, (ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification)
        ):
            changed.set()
        elif isinstance(message, ResourceUpdatedNotification):
            requests.updated(str(message.params.uri))

    @contextlib.asynccontextmanager
    async def watched() -> AsyncGenerator[Any]:
        async with streams as (incoming, outgoing):
            yield (
                _WatchedStream(incoming, ended),
                _LoggedStream(outgoing) if logger.isEnabledFor(logging.DEBUG) else outgoing,
            )

    client = Client(
        watched(),
        message_handler=take,
        logging_callback=requests.log.take,
        log_level=requests.log.level(),
        client_info=Implementation(name="callgate", version=__version__),
        **requests.callbacks(),
    )
    return OpenedClient(client, ended, changed, last_words)


def _repaired(message: Any) -> Any:
    """A result with what the SDK would refuse set right.

    It would refuse all items for the sake of one, and a result without a type, which the protocol says is complete.
    """
    result: Any = getattr(getattr(message, "message", None), "result", None)
    tools: Any = None
    if isinstance(result, dict):
        tools = cast("JsonObject", result).get("tools")
        cast("JsonObject", result).setdefault("resultType", "complete")
        _repair_items(cast("JsonObject", result))
    if isinstance(tools, list):
        listed = cast("list[Any]", tools)
        named = [cast("JsonObject", tool) for tool in listed if isinstance(tool, dict) and "name" in tool]
        if len(named) < len(listed):
            logger.warning("a server lists tools without a name; they are left out")
        result["tools"] = [_acceptable(_with_schema(tool)) for tool in named if isinstance(tool["name"], str)]
    return message


_LISTED = {"resources": "Resource", "resourceTemplates": "ResourceTemplate", "prompts": "Prompt"}
"""Field of a result -> the kind of its items."""


def _repair_items(result: JsonObject) -> None:
    """Leave out the items of a list that are not as MCP has them, and say so in place of content that is not."""
    import mcp_types

    for field in _LISTED.keys() & result.keys():
        if isinstance(items := result[field], list):
            kind = getattr(mcp_types, _LISTED[field])
            result[field] = [item for item in cast("list[Any]", items) if _is_valid(item, kind)]
            if count := len(cast("list[Any]", items)) - len(result[field]):
                logger.warning("a server lists %d invalid %s; they are left out", count, field)
    if isinstance(content := result.get("content"), list):
        blocks = cast("list[Any]", content)
        result["content"] = [item if _is_valid(item, mcp_types.ContentBlock) else _left_out(item) for item in blocks]
    if not isinstance(result.get("instructions"), (str, type(None))):
        logger.warning("the instructions of a server are no text; they are not used")
        del result["instructions"]


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _is_valid(item: Any, kind: Any) -> bool:
    from pydantic import ValidationError

    try:
        _adapter(kind).validate_python(item, by_name=False)
    except ValidationError:
        return False
    return True


def _left_out(item: Any) -> JsonObject:
    kind = cast("JsonObject", item).get("type") if isinstance(item, dict) else None
    return {"type": "text", "text": f"[left out: content of the type {str(kind)[:100]!r}, which is not as MCP has it]"}


def _is_sound(schema: JsonObject) -> bool:
    """True if the fields of an object's schema that MCP names are of its kinds."""
    required: Any = schema.get("required", [])
    return (
        isinstance(schema.get("properties", {}), dict)
        and isinstance(required, list)
        and all(isinstance(name, str) for name in cast("list[Any]", required))
        and isinstance(schema.get("$schema", ""), str)
    )


def _with_schema(tool: JsonObject) -> JsonObject:
    """The tool with a schema of type object; any other one is kept inside of it, to be reported later."""
    given: Any = tool.get("inputSchema")
    schema = cast("JsonObject", given) if isinstance(given, dict) else {}
    kinds: Any = schema.get("type")
    if kinds == "object" and _is_sound(schema):
        return tool
    listed = [str(kind).lower() for kind in (cast("list[Any]", kinds) if isinstance(kinds, list) else [kinds])]
    is_object = (kinds is None or "object" in listed) and _is_sound(schema)
    return {**tool, "inputSchema": {**schema, "type": "object"} if is_object else {"type": "object", "allOf": [schema]}}


def _acceptable(tool: JsonObject) -> JsonObject:
    """The tool itself, or what it cannot do without, where something else of it is not as MCP has it."""
    from mcp_types import Tool
    from pydantic import ValidationError

    output: Any = tool.get("outputSchema")
    described = cast("JsonObject", output) if isinstance(output, dict) else {}
    if output is not None and not (described.get("type") == "object" and _is_sound(described)):
        logger.warning("the output schema of the tool %r of a server is not one of an object; it is not used", tool["name"])
        tool = {key: value for key, value in tool.items() if key != "outputSchema"}
    try:
        Tool.model_validate(tool, by_name=False)
    except ValidationError as error:
        wrong = sorted({str(one["loc"][0]) for one in error.errors() if one["loc"]})
        logger.warning("the tool %r of a server has an invalid description: %s", tool["name"], ", ".join(wrong))
        kept = {key: tool[key] for key in ("name", "inputSchema")}
        return {**kept, "description": tool["description"]} if isinstance(tool.get("description"), str) else kept
    return tool


class _WatchedStream:
    """A stream of messages that says when it is over."""

    def __init__(self, stream: Any, ended: asyncio.Event) -> None:
        self._stream = stream
        self._ended = ended

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> _WatchedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> Any:
        self._ended.set()
        return await self._stream.__aexit__(*exc)

    def __aiter__(self) -> _WatchedStream:
        return self

    async def __anext__(self) -> Any:
        try:
            message = await self._stream.__anext__()
            _log("received", message)
            return _repaired(message)
        except BaseException:
            self._ended.set()
            raise


class _LoggedStream:
    """A stream of messages to a server that logs each of them."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def __aenter__(self) -> _LoggedStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> Any:
        return await self._stream.__aexit__(*exc)

    async def send(self, item: Any) -> None:
        """Hand a message on."""
        _log("sent", item)
        await self._stream.send(item)


def _log(direction: str, message: Any) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        inner = getattr(message, "message", message)
        written = inner.model_dump_json(by_alias=True, exclude_none=True) if hasattr(inner, "model_dump_json") else inner
        logger.debug("%s: %s", direction, written)
