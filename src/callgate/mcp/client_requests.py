"""Requests of a served tool to the MCP client that called it: an answer of its user, a sample of its model, its folders.

A tool that runs for an MCP client asks here; elsewhere there is nobody to ask, which is an error that says so. Older clients
are asked while their request waits. Newer ones get what is asked as the result, and the call goes on with the answers that
come with their next request. Log records of Python that a tool writes are sent to the client too.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Protocol, cast

from callgate.config.known_secrets import redact_known
from callgate.errors import ToolError, ToolNotDeclarableError
from callgate.schema import check_arguments
from callgate.types import JsonObject, ToolContext, ToolDefinition

__all__ = ["CLIENT", "LEVELS", "CallingClient", "LogRelay", "SdkClient", "elicit", "roots", "sample"]

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""MCP's words for levels, from the least."""
_OURS = ("callgate", "mcp", "uvicorn", "httpx", "httpcore", "asyncio")
"""Loggers of the program itself: their records are not the tool's."""
TEXT_CHARS_MAX = 10_000


class CallingClient(Protocol):
    """The client of one call."""

    async def elicit(self, message: str, schema: JsonObject, key: str) -> JsonObject | None:
        """Ask the client's user; None if the user declined."""
        ...

    async def sample(self, prompt: str, max_tokens: int, key: str) -> str:
        """Ask the client's model."""
        ...

    async def roots(self, key: str) -> list[str]:
        """Ask for the addresses of the client's folders."""
        ...

    def log(self, level: str, text: str, logger: str) -> None:
        """Send a log line."""
        ...


CLIENT: ContextVar[CallingClient | None] = ContextVar("callgate_mcp_client", default=None)
"""The client that the call at hand is for."""


async def elicit(context: ToolContext[Any], message: str, schema: Mapping[str, Any], *, key: str = "") -> JsonObject | None:
    """Ask the user of the MCP client that called this tool for values that fit a flat JSON Schema; None if declined.

    The deadline of the call is paused meanwhile. `key` is the name of the question for newer clients, which may answer it
    before it is asked.

    Raises:
        ToolError: the tool was not called by an MCP client that can ask its user, or the answer does not fit.
    """
    with context.paused():
        return await _client("ask its user").elicit(message, dict(schema), key)


async def sample(context: ToolContext[Any], prompt: str, *, max_tokens: int = 1_000, key: str = "") -> str:
    """Ask the model of the MCP client that called this tool, which may ask its user first.

    Raises:
        ToolError: the tool was not called by an MCP client that lends its model.
    """
    with context.paused():
        return await _client("ask its model").sample(prompt, max_tokens, key)


async def roots(context: ToolContext[Any], *, key: str = "") -> list[str]:
    """Ask the MCP client that called this tool for the addresses of the folders that it works in.

    Raises:
        ToolError: the tool was not called by an MCP client that has such folders.
    """
    with context.paused():
        return await _client("ask for its folders").roots(key)


def _client(what: str) -> CallingClient:
    client = CLIENT.get()
    if client is None:
        raise ToolError(f"There is no MCP client to {what}: this works only while a client's call of the tool runs.")
    return client


class LogRelay(logging.Handler):
    """Log handler that sends the records of tools to the clients that called them. Known secrets are taken out."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record, if it was written in a call."""
        client = CLIENT.get()
        if client is None or record.name.partition(".")[0] in _OURS:
            return
        try:
            text = redact_known(record.getMessage())[:TEXT_CHARS_MAX]
            client.log(_level(record.levelno), text, record.name)
        except Exception:
            self.handleError(record)


def _level(number: int) -> str:
    steps = ((logging.CRITICAL, "critical"), (logging.ERROR, "error"), (logging.WARNING, "warning"), (logging.INFO, "info"))
    return next((word for least, word in steps if number >= least), "debug")


class SdkClient:
    """The client of a call, by the requests of the official SDK that belong to the call.

    Args:
        ctx: The request that made the call.
        least: The level from which on the client wants log lines; None means all.
        is_modern: True for a client that is sent no requests, and so is asked by the result of its own.
    """

    def __init__(self, ctx: Any, least: str | None, *, is_modern: bool = False) -> None:
        self._ctx = ctx
        self._is_modern = is_modern
        self._given: dict[str, Any] = {}
        self._open: dict[str, tuple[Any, type, asyncio.Future[Any]]] = {}
        """The open questions: the request, the type of an answer, and who waits for it."""
        self._count = 0
        self.missing: set[str] = set()
        """The capabilities that something was asked for in vain."""
        self.asks = asyncio.Event()
        """An event for something that is asked of a newer client."""
        self._loop = asyncio.get_running_loop()
        self._least = LEVELS.index(least) if least in LEVELS else 0
        self._sending: set[asyncio.Task[None]] = set()

    @property
    def input_requests(self) -> dict[str, Any]:
        """The requests that a newer client is to answer with its next one."""
        return {key: request for key, (request, _, _) in self._open.items()}

    def take(self, ctx: Any, given: Mapping[str, Any] | None) -> None:
        """Go on with this request of the client, and with the answers in it."""
        self._ctx = ctx
        self._given = dict(given or {})
        for key, (_, kind, waiting) in list(self._open.items()):
            if isinstance(found := self._given.pop(key, None), kind) and not waiting.done():
                waiting.set_result(found)
                del self._open[key]
        if not self._open:
            self.asks.clear()

    async def elicit(self, message: str, schema: JsonObject, key: str = "") -> JsonObject | None:
        """Ask the client's user."""
        from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult

        params = ElicitRequestFormParams(message=message, requested_schema=schema)
        result = await self._ask_client(
            key, "elicitation", ElicitRequest(params=params), ElicitResult,
            lambda ctx: ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id),
        )  # fmt: skip
        if result.action != "accept":
            return None
        content = dict(result.content or {})
        if self._is_modern and (problems := _problems(schema, content)):
            raise ToolError(f"The answer of the client's user does not fit: {'; '.join(problems)}")
        return content

    async def sample(self, prompt: str, max_tokens: int, key: str = "") -> str:
        """Ask the client's model."""
        from mcp_types import (
            CreateMessageRequest,
            CreateMessageRequestParams,
            CreateMessageResult,
            CreateMessageResultWithTools,
            SamplingMessage,
            TextContent,
        )

        said = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
        request = CreateMessageRequest(params=CreateMessageRequestParams(messages=[said], max_tokens=max_tokens))
        result = await self._ask_client(
            key, "sampling", request, CreateMessageResult | CreateMessageResultWithTools,
            lambda ctx: ctx.session.create_message([said], max_tokens=max_tokens, related_request_id=ctx.request_id),
        )  # fmt: skip
        said_back: Any = result.content
        blocks: list[Any] = cast("list[Any]", said_back) if isinstance(said_back, list) else [said_back]
        return "".join(block.text for block in blocks if block.type == "text")

    async def roots(self, key: str = "") -> list[str]:
        """Ask for the addresses of the client's folders."""
        from mcp_types import ListRootsRequest, ListRootsResult

        result = await self._ask_client(
            key, "roots", ListRootsRequest(), ListRootsResult, lambda ctx: ctx.session.list_roots()
        )
        return [str(root.uri) for root in result.roots]

    async def _ask_client(
        self, key: str, capability: str, request: Any, kind: Any, send: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        from mcp.shared.exceptions import MCPError

        if self._is_modern:
            return await self._later_answer(key, capability, request, kind)
        try:
            with warnings.catch_warnings(action="ignore"):
                sending = send(self._ctx)
            return await sending
        except MCPError as error:
            raise ToolError(f"The MCP client cannot be asked this: {error}") from error

    async def _later_answer(self, key: str, capability: str, request: Any, kind: Any) -> Any:
        """The answer that comes with the client's next request, or came with this one."""
        self._count += 1
        key = key or f"question_{self._count}"
        if getattr(self._ctx.session.client_capabilities, capability, None) is None:
            self.missing.add(capability)
            raise ToolError(f"The MCP client cannot be asked this: it does not declare {capability!r}.")
        if key in self._open:
            raise ToolError(f"Two questions to the MCP client have the key {key!r}.")
        if isinstance(found := self._given.pop(key, None), kind):
            return found
        waiting: asyncio.Future[Any] = self._loop.create_future()
        self._open[key] = (request, kind, waiting)
        self.asks.set()
        try:
            return await waiting
        finally:
            self._open.pop(key, None)

    def log(self, level: str, text: str, logger: str) -> None:
        """Send a log line; those of threads too."""
        if LEVELS.index(level) >= self._least:
            self._loop.call_soon_threadsafe(self._send, level, text, logger)

    def _send(self, level: str, text: str, logger: str) -> None:
        with warnings.catch_warnings(action="ignore"):
            work = self._ctx.session.send_log_message(level, text, logger, related_request_id=self._ctx.request_id)
        task = self._loop.create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled():
            task.exception()  # The client may be gone.

    async def settled(self) -> None:
        """Wait until all log lines of the call are sent: they come before its result."""
        await asyncio.sleep(0)
        if self._sending:
            await asyncio.wait(self._sending)


def _problems(schema: JsonObject, content: JsonObject) -> list[str]:
    try:
        return list(check_arguments(ToolDefinition(name="answer", input_schema=schema), content).problems)
    except ToolNotDeclarableError:
        return []  # The schema of the tool is no schema: nothing can be said of an answer.
