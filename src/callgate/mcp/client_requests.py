"""Requests of a served tool to the MCP client that called it: an answer of its user, a sample of its model, a log line.

A tool that runs for an MCP client asks here; elsewhere there is nobody to ask, which is an error that says so. Log records
of Python that a tool writes are sent to the client too.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol, cast

from callgate.config.known_secrets import redact_known
from callgate.errors import ToolError
from callgate.types import JsonObject, ToolContext

__all__ = ["CLIENT", "LEVELS", "CallingClient", "LogRelay", "elicit", "sample"]

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""MCP's words for levels, from the least."""
_OURS = ("callgate", "mcp", "uvicorn", "httpx", "httpcore", "asyncio")
"""Loggers of the program itself: their records are not the tool's."""
TEXT_CHARS_MAX = 10_000


class CallingClient(Protocol):
    """The client of one call."""

    async def elicit(self, message: str, schema: JsonObject) -> JsonObject | None:
        """Ask the client's user; None if the user declined."""
        ...

    async def sample(self, prompt: str, max_tokens: int) -> str:
        """Ask the client's model."""
        ...

    def log(self, level: str, text: str, logger: str) -> None:
        """Send a log line."""
        ...


CLIENT: ContextVar[CallingClient | None] = ContextVar("callgate_mcp_client", default=None)
"""The client that the call at hand is for."""


async def elicit(context: ToolContext[Any], message: str, schema: Mapping[str, Any]) -> JsonObject | None:
    """Ask the user of the MCP client that called this tool for values that fit a flat JSON Schema; None if declined.

    The deadline of the call is paused meanwhile.

    Raises:
        ToolError: the tool was not called by an MCP client that can ask its user.
    """
    with context.paused():
        return await _client("ask its user").elicit(message, dict(schema))


async def sample(context: ToolContext[Any], prompt: str, *, max_tokens: int = 1_000) -> str:
    """Ask the model of the MCP client that called this tool, which may ask its user first.

    Raises:
        ToolError: the tool was not called by an MCP client that lends its model.
    """
    with context.paused():
        return await _client("ask its model").sample(prompt, max_tokens)


def _client(what: str) -> CallingClient:
    client = CLIENT.get()
    if client is None:
        raise ToolError(f"There is no MCP client to {what}: this works only while a client's call of the tool runs.")
    return client


class LogRelay(logging.Handler):
    """Sends the log records of tools to the clients that called them. Known secrets are taken out."""

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
    """The client of a call, by a request of the official SDK."""

    def __init__(self, ctx: Any, least: str | None) -> None:
        self._session, self._request_id = ctx.session, ctx.request_id
        self._loop = asyncio.get_running_loop()
        self._least = LEVELS.index(least) if least in LEVELS else 0
        self._sending: set[asyncio.Task[None]] = set()

    async def elicit(self, message: str, schema: JsonObject) -> JsonObject | None:
        """Ask the client's user."""
        result = await self._ask_client(self._session.elicit_form(message, schema, related_request_id=self._request_id))
        return result.content or {} if result.action == "accept" else None

    async def sample(self, prompt: str, max_tokens: int) -> str:
        """Ask the client's model."""
        from mcp_types import SamplingMessage, TextContent

        said = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
        with warnings.catch_warnings(action="ignore"):
            asked = self._session.create_message([said], max_tokens=max_tokens, related_request_id=self._request_id)
        result = await self._ask_client(asked)
        said_back: Any = result.content
        blocks: list[Any] = cast("list[Any]", said_back) if isinstance(said_back, list) else [said_back]
        return "".join(block.text for block in blocks if block.type == "text")

    async def _ask_client(self, request: Any) -> Any:
        from mcp.shared.exceptions import MCPError

        try:
            return await request
        except MCPError as error:
            raise ToolError(f"The MCP client cannot be asked this: {error}") from error

    def log(self, level: str, text: str, logger: str) -> None:
        """Send a log line; those of threads too."""
        if LEVELS.index(level) >= self._least:
            self._loop.call_soon_threadsafe(self._send, level, text, logger)

    def _send(self, level: str, text: str, logger: str) -> None:
        with warnings.catch_warnings(action="ignore"):
            work = self._session.send_log_message(level, text, logger, related_request_id=self._request_id)
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
