"""One connection to a server, kept up by a task of its own.

How to open the connection comes in; the server's tools as it lists them, and results of calls, go out. The SDK's client
stands in that one task: what happens to it there (a server that dies may cancel whatever stands around it) happens to nobody
else. Calls are made from other tasks, and each one ends when the connection does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from callgate.errors import ToolError
from callgate.mcp.clock import PersonClock
from callgate.mcp.errors import ServerFailedError, UrlElicitationError, reason_of
from callgate.mcp.updates import ResourceUpdates
from callgate.types import JsonObject, Progress

if TYPE_CHECKING:
    from mcp.client import Client

__all__ = ["Connection", "OpenedClient", "Opener"]

logger = logging.getLogger("callgate.mcp")

T = TypeVar("T")

ATTEMPT_S = 60.0
"""The time-out for starting and listing tools, after which the server is restarted."""
STARTING = "it is still starting"
BACKOFF_S, BACKOFF_MAX_S = 0.5, 60.0
AGAIN_S = 5.0
"""The longest wait of a call for a server that is being restarted."""
CANCEL_S = 1.0
"""The time-out for telling the server of a cancelled call."""
GONE_S = 0.5
"""The longest wait for the exit code of a process that has closed its pipes."""
RESOURCES_S = 5.0
"""The time-out for listing resources and prompts, after which the server is taken to have none."""
PAGES_MAX = 100
TOOLS_MAX = 256
"""Tools of one server that are taken."""
PAGES_WANTED = -32042
"""The code by which a server says that a person must visit a page before the call can be made."""


class Opener(Protocol):
    """A function that opens a transport to a server; called anew for every attempt."""

    def __call__(self) -> AbstractAsyncContextManager[OpenedClient]:
        """The client, for as long as the context lasts."""
        ...


@dataclass(slots=True)
class OpenedClient:
    """A client of the SDK on its transport."""

    client: Client
    """The client, not entered yet."""
    ended: asyncio.Event
    """Set when nothing more will come from the server."""
    changed: asyncio.Event
    """Set when the server says that its tools are others now."""
    last_words: Callable[[], str]
    gone: asyncio.Event | None = None
    """Set when the process of the server has ended, if it is one of ours."""
    is_hopeless: Callable[[BaseException], bool] = lambda error: False
    """True if another attempt would end in the same way, or ask a person again who has said no."""


@dataclass(slots=True)
class _LiveConnection:
    client: Client
    lost: asyncio.Future[str]
    """A future that is done when the connection is over; its value says why."""
    ended: asyncio.Event


class Connection:
    """A supervised connection from `start` to `aclose`. Both, and calls, belong on one event loop."""

    def __init__(
        self,
        name: str,
        opener: Opener,
        on_change: Callable[[], None],
        *,
        transports: int = 1,
        clock: PersonClock | None = None,
        attempt_s: float = 0,
        updates: ResourceUpdates | None = None,
    ) -> None:
        self.name = name
        self.updates = updates or ResourceUpdates(name)
        self._clock = clock or PersonClock()
        self._transports = transports
        """The number of transports that the opener tries in turn."""
        self.tools: list[JsonObject] = []
        """The tools as the server lists them."""
        self.about: JsonObject = {}
        """The server's description of itself: `name`, `version`, `protocol`, `instructions`, `resources`, `prompts`."""
        self.has_resources = False
        """True if there is anything to read beside the tools."""
        self._attempt_s = max(ATTEMPT_S, attempt_s)
        self._problem: str | None = "it has not been started"
        self._opening: OpenedClient | None = None
        """The first attempt, while it is being made."""
        self._opener = opener
        self._on_change = on_change
        self._live: _LiveConnection | None = None
        self._tried = asyncio.Event()
        self._up = asyncio.Event()
        self._retry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def problem(self) -> str | None:
        """The reason why the server cannot be called now; None if it can."""
        said = self._opening.last_words() if self._opening and not self._tried.is_set() else ""
        return f"{self._problem}; {said}" if said else self._problem

    async def start(self, wait_s: float) -> None:
        """Begin to connect, and wait until that has succeeded or failed once, or for so long at most."""
        if self._task is None:
            self._problem = STARTING
            self._task = asyncio.create_task(self._supervise(), name=f"mcp server {self.name}")
        with contextlib.suppress(TimeoutError):
            async with self._clock.timeout(wait_s):
                await self._tried.wait()

    async def aclose(self) -> None:
        """End the connection, and the server if it is a child of ours."""
        task, self._task = self._task, None
        self._closing = True
        self.updates.close()
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
        self._down("it has been closed")

    # The task that keeps it up --------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        wait_s, failed = BACKOFF_S, list[str]()
        while True:
            try:
                why = await self._connected()
            except (Exception, BaseExceptionGroup, asyncio.CancelledError) as error:
                why = "the connection broke" if isinstance(error, asyncio.CancelledError) else reason_of(error)
                if isinstance(error, ServerFailedError) and not error.again:
                    self._down(why)
                    return
                # Until one of the transports has worked, a failure is reported with those of the others.
                failed = [] if self._live else [*failed, why][-self._transports :]
            else:
                failed = []
            # A broken connection may look like a cancellation, and a cancellation may come out of the SDK as something else.
            task = asyncio.current_task()
            if self._closing or (task is not None and task.cancelling()):
                self._down(why)
                return
            logger.info("mcp server %r: %s", self.name, why)
            if failed and len(failed) < self._transports:
                continue
            self._down("; or: ".join(dict.fromkeys(failed)) or why)
            wait_s = min(2 * wait_s, BACKOFF_MAX_S) if failed else BACKOFF_S
            self._retry.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._retry.wait(), wait_s * random.uniform(0.5, 1))

    async def _connected(self) -> str:
        """Connect, and stay until the connection is over; return the reason for that."""
        async with self._opener() as opened, contextlib.AsyncExitStack() as stack:
            self._opening = opened
            try:
                async with self._clock.timeout(self._attempt_s):
                    client = await stack.enter_async_context(opened.client)
                    client.session.validate_tool_result = _as_it_is
                    tools, self.has_resources = await _listed(client), await _has_resources(client)
            except TimeoutError:
                raise ServerFailedError(_sentence(f"it did not answer within {self._attempt_s:g} s", opened)) from None
            except (Exception, BaseExceptionGroup) as error:
                # A server that exits at once causes several errors; its own stderr explains best.
                await _a_moment(opened.ended)
                if opened.gone is not None and opened.ended.is_set():
                    await _a_moment(opened.gone, within_s=GONE_S)
                if opened.is_hopeless(error):
                    raise ServerFailedError(opened.last_words(), again=False) from error
                raise ServerFailedError("; ".join(filter(None, [reason_of(error), opened.last_words()]))) from error
            self.about = _about(client)
            self._live = _LiveConnection(client, asyncio.get_running_loop().create_future(), opened.ended)
            self._take(tools, None)
            self._up.set()
            listeners = {
                asyncio.create_task(_listen(client, opened.changed)), asyncio.create_task(self.updates.keep(client)),
            }  # fmt: skip
            try:
                await self._watch(client, opened)
            finally:
                for listener in listeners:
                    listener.cancel()
                await asyncio.wait(listeners, timeout=CANCEL_S)
            await _a_moment(opened.gone, within_s=GONE_S if opened.gone is not None and opened.ended.is_set() else 0.1)
            self._down(_sentence("the connection to it ended", opened))
            return self.problem or ""

    async def _watch(self, client: Client, opened: OpenedClient) -> None:
        while not opened.ended.is_set():
            await _first(opened.ended, opened.changed)
            if opened.changed.is_set() and not opened.ended.is_set():
                opened.changed.clear()
                await self._list_again(client)

    async def _list_again(self, client: Client) -> None:
        try:
            async with asyncio.timeout(ATTEMPT_S):
                tools, has_resources = await _listed(client), await _has_resources(client)
                if (tools, has_resources) != (self.tools, self.has_resources):
                    self.has_resources = has_resources
                    self._take(tools, None)
        except (Exception, BaseExceptionGroup) as error:
            # The tools that are known stay; if they are gone, calling them says so.
            logger.warning("mcp server %r: its changed tools could not be listed: %s", self.name, reason_of(error))

    def _take(self, tools: list[JsonObject], problem: str | None) -> None:
        self.tools, self._problem = tools, problem
        self._tried.set()
        self._on_change()

    def _down(self, why: str) -> None:
        live, self._live = self._live, None
        self._up.clear()
        self._problem = why
        self._tried.set()
        if live is not None and not live.lost.done():
            live.lost.set_result(why)

    # Calls ----------------------------------------------------------------------------------------------------------------

    async def call(self, name: str, args: Mapping[str, Any], report_progress: Progress) -> JsonObject:
        """The result of one call, as MCP has it. Deadlines are the caller's: cancelling the call tells the server.

        Raises:
            UrlElicitationError: a person must visit pages before the call can be made.
            ToolError: the server is not there, went away, or refused the call.
        """

        async def report(progress: float, total: float | None, message: str | None) -> None:
            text = message or f"{progress:g}" + (f" of {total:g}" if total else "")
            report_progress(text, progress / total if total else None)

        result = await self.ask(lambda client: client.call_tool(name, dict(args), progress_callback=report))
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def ask(self, request: Callable[[Client], Awaitable[T]]) -> T:
        """The server's answer to one request; the end of the connection ends it at once.

        Raises:
            ToolError: the server is not there, went away, or refused the request.
        """
        live = await self._reached()
        task = asyncio.ensure_future(request(live.client))
        try:
            await asyncio.wait({task, live.lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()  # Which tells the server too.
                await asyncio.wait({task}, timeout=CANCEL_S)
        if live.lost.done() and (task.cancelled() or task.exception()):
            raise self._lost_error(live.lost.result())
        if task.cancelled():
            raise ToolError(f"The MCP server {self.name!r} gave no result.")
        error = task.exception()
        if error is None:
            return task.result()
        raise await self._failed(live, error) from error

    async def _failed(self, live: _LiveConnection, error: BaseException) -> ToolError:
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED

        if not isinstance(error, MCPError):
            return ToolError(f"The MCP server {self.name!r} gave no usable result: {reason_of(error)}")
        if error.code == CONNECTION_CLOSED or "session terminated" in error.message.lower():
            # The connection is unusable, even if its task has not noticed: it is to open another one.
            live.ended.set()
            await asyncio.wait({live.lost}, timeout=CANCEL_S)
            return self._lost_error(live.lost.result() if live.lost.done() else error.message)
        kind = ToolError if error.code != PAGES_WANTED else UrlElicitationError
        refused = kind(f"The MCP server {self.name!r} refused the call: {error.message} (code {error.code})")
        if isinstance(refused, UrlElicitationError):
            refused.pages = error.error.data
        return refused

    def _lost_error(self, why: str) -> ToolError:
        return ToolError(
            f"The MCP server {self.name!r} went away during the call: {why}. Whether the call had its effect is not known."
        )

    async def _reached(self) -> _LiveConnection:
        """The connection as it is, or as soon as it is there again."""
        if self._live is None and self._task is not None and not self._task.done():
            self._retry.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._up.wait(), AGAIN_S)
        if self._live is None:
            raise ToolError(f"The MCP server {self.name!r} cannot be reached: {self.problem}. The call was not made.")
        return self._live


def _sentence(what: str, opened: OpenedClient) -> str:
    words = opened.last_words()
    return f"{what}: {words}" if words else what


async def _as_it_is(name: str, result: object) -> None:
    """Accept a result whether or not it fits the output schema: the call has had its effect."""


async def _first(*events: asyncio.Event) -> None:
    """Wait until one of them is set."""
    waits = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _a_moment(event: asyncio.Event | None, *, within_s: float = 0.1) -> None:
    """Wait a moment: the exit of a process is known a little later than the end of its pipes."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for((event or asyncio.Event()).wait(), within_s)


def _about(client: Client) -> JsonObject:
    info, can = client.server_info, client.server_capabilities
    return {
        "name": info.name if info else None,
        "version": info.version if info else None,
        "protocol": client.protocol_version,
        "instructions": client.instructions,
        "resources": can.resources is not None,
        "prompts": can.prompts is not None,
        "completions": can.completions is not None,
    }


async def _listed(client: Client) -> list[JsonObject]:
    """All pages of the server's tools. A server that has none is asked for none."""
    if client.server_capabilities.tools is None:
        return []
    found: list[JsonObject] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        page = await client.list_tools(cursor=cursor, cache_mode="bypass")
        found += [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in page.tools]
        cursor = page.next_cursor
        if not cursor or len(found) > TOOLS_MAX:
            break
    return found


async def _has_resources(client: Client) -> bool:
    """True if the server has resources or prompts: many say that they could have some, and have none."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED

    can = client.server_capabilities

    async def has_some(verb: Callable[..., Awaitable[Any]], field: str) -> bool:
        try:
            async with asyncio.timeout(RESOURCES_S):
                return bool(getattr(await verb(cache_mode="bypass"), field))
        except (Exception, BaseExceptionGroup) as error:
            if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED:
                raise
            logger.debug("a server does not list its %s: %s", field, reason_of(error))
            return False

    asked = [has_some(client.list_prompts, "prompts")] if can.prompts is not None else []
    if can.resources is not None:
        asked.append(has_some(client.list_resources, "resources"))
        asked.append(has_some(client.list_resource_templates, "resource_templates"))
    return any(await asyncio.gather(*asked))


async def _listen(client: Client, changed: asyncio.Event) -> None:
    """Subscribe to list changes, which newer servers report to subscribers only."""
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return
    try:
        listening = client.listen(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True)
        async with listening as events:
            changed.set()  # Changes before the subscription were not reported.
            async for _ in events:
                changed.set()
    except (Exception, BaseExceptionGroup) as error:
        logger.debug("a server does not report changes: %s", reason_of(error))
