"""Tools as an MCP server: clients can list and call all tools of a gate, with the same permission checks.

Requests of the protocol come in, tools and results go out, on the official SDK, for clients of both of its eras: those that
shake hands, and those whose every request stands alone. By which way the messages travel is `pipes.py`'s and `web.py`'s
business, what becomes of a call is `dispatcher.py`'s. This module imports the SDK; nothing else does so for its sake.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import weakref
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass
from os import PathLike
from typing import Any
from uuid import uuid4

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    InputRequiredResult,
    ListToolsResult,
    NotificationParams,
    PaginatedRequestParams,
    SetLevelRequestParams,
    SubscribeRequestParams,
    Tool,
    UnsubscribeRequestParams,
)

from callgate import __version__
from callgate.calls.dispatcher import CallDispatcher, DeferredCall
from callgate.calls.environment import Ask
from callgate.content.tool_names import unknown_name_sentence
from callgate.errors import UsageError
from callgate.mcp.client_requests import CLIENT, LogRelay, SdkClient
from callgate.mcp.host import Elicit
from callgate.mcp.offers import offer_of, page_of
from callgate.mcp.progress import ProgressPump
from callgate.mcp.questions import KEY, Questions, can_be_asked, identity_of, is_modern
from callgate.mcp.serialization import ServedTool, listed, result_of
from callgate.mcp.served_offers import OfferHandlers, ServedOffers
from callgate.mcp.waiting_calls import WaitingCall, WaitingCalls
from callgate.permission import AuditLog, Policy, RateLimits
from callgate.permission.guard import Guard
from callgate.tools.executor import Executor
from callgate.types import FunctionCall, JsonObject, Limits, ToolDefinition, ToolResult

__all__ = ["ToolServer"]

logger = logging.getLogger("callgate.mcp")

LOOK_S = 0.25
"""The interval of checks for changed tools."""
NOBODY = (
    "This client has no way to ask the user (elicitation), so the call is refused: start the server with "
    "--approval-mode auto_edit or yolo, or with a rule in a --policy file that allows it."
)
NOBODY_IN_YOLO = "This client has no way to ask the user (elicitation), and no --approval-mode allows it: use one that has."

Context = ServerRequestContext[Any, Any]


@dataclass(eq=False, slots=True)
class _Owner:
    """The owner of what the tools need while it is running."""

    elicit: Elicit | None


class ToolServer:
    """Tools as an MCP server.

    ```python
    server = ToolServer.of([get_weather, FileTools("docs")], policy=Policy(rules=["deny write_file"]))
    await serve_pipes(server)  # or http_app(server) in any ASGI server
    ```

    What must be asked about is asked of the client's user, if the client can do that, and refused if not.

    Args:
        executor: The tools.
        guard: What decides about calls: policy, limits in time, audit log. A gate's own can be shared.
        name: The server's name for clients.
        instructions: A description of the server as a whole, for the client's model.
        nobody: The error of a call that needs approval from a client that cannot be asked.
        spelled: Makes text of others fit to be shown in a question.
        offers: Functions that `resource` or `prompt` has marked.
    """

    elicit: Elicit | None = None
    """Answer questions of the tools' own servers in calls that a gate makes of them."""

    def __init__(
        self,
        executor: Executor,
        guard: Guard,
        *,
        name: str = "callgate",
        instructions: str | None = None,
        nobody: str | None = None,
        spelled: Callable[[str], str] | None = None,
        offers: Iterable[object] = (),
    ) -> None:
        self.executor = executor
        self.policy = guard.policy
        self._audit = guard.audit
        said = nobody or (NOBODY_IN_YOLO if guard.policy.mode == "yolo" else NOBODY)
        self._new_dispatcher = lambda: CallDispatcher(executor, guard, nobody=said)
        self.offers = ServedOffers(offers, executor, guard, self._run, nobody=said)
        self._subscribers: dict[str, weakref.WeakSet[Connection]] = {}
        self._levels: weakref.WeakKeyDictionary[Connection, str] = weakref.WeakKeyDictionary()
        self._relay = LogRelay()
        self._dispatcher: CallDispatcher | None = None
        self.questions = Questions(spelled)
        self._waiting = WaitingCalls()
        self._listed: dict[str, tuple[ToolDefinition, ServedTool]] = {}
        self._bus = InMemorySubscriptionBus()
        self._connections: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._session = f"mcp-{uuid4().hex[:16]}"
        self._users = 0
        self.sdk = _Server(
            name,
            version=__version__,
            instructions=instructions,
            lifespan=lambda _: self.running(),
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=ListenHandler(self._bus),
            **self._handlers(OfferHandlers(self.offers)),
        )
        """The SDK's own server, for those who want to serve it in a way of their own."""
        self.sdk.add_request_handler("logging/setLevel", SetLevelRequestParams, self._set_level)
        self.sdk.add_notification_handler("notifications/initialized", NotificationParams, self._initialized)

    @classmethod
    def of(
        cls,
        tools: Iterable[object],
        *,
        policy: Policy | None = None,
        limits: Limits | None = None,
        rates: RateLimits | None = None,
        audit: AuditLog | str | PathLike[str] | None = None,
        **more: Any,
    ) -> ToolServer:
        """A server of tools, as a gate takes them, and of functions that `resource` or `prompt` has marked.

        `more` is for the constructor.

        Raises:
            ToolNotDeclarableError: a tool cannot be declared, or two have one name.
        """
        tools = list(tools)
        executor = Executor([item for item in tools if offer_of(item) is None], limits=limits)
        log = AuditLog(audit) if isinstance(audit, (str, PathLike)) else audit
        guard = Guard(tools=executor, policy=policy or Policy(), rates=rates or RateLimits(), audit=log)
        return cls(executor, guard, offers=[item for item in tools if offer_of(item) is not None], **more)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[ToolServer]:
        """Keep what the tools need running. Every way of serving enters it; it may be entered more than once."""
        owner = _Owner(self.elicit)
        self._users += 1
        dispatcher = self._dispatcher = self._dispatcher or self._new_dispatcher()
        watcher: asyncio.Task[None] | None = None
        try:
            if self._users == 1:
                logging.getLogger().addHandler(self._relay)
            await self.executor.start_tools(owner)
            for complaint in self.executor.complaints():
                logger.warning("%s", complaint)
            if self._users == 1 and self.executor.is_live:
                watcher = asyncio.create_task(self._watch())
            yield self
        finally:
            self._users -= 1
            if watcher is not None:
                watcher.cancel()
            # A cancelled caller must not leave a process behind, so the end is a task of its own.
            ending = asyncio.create_task(self._end(dispatcher, owner))
            try:
                await asyncio.shield(ending)
            except asyncio.CancelledError:
                await asyncio.wait({ending})
                raise

    async def _end(self, dispatcher: CallDispatcher, owner: object) -> None:
        if self._users == 0:
            self._dispatcher = None
            logging.getLogger().removeHandler(self._relay)
            self._waiting.stop()
            await dispatcher.aclose()
            await self.offers.aclose()
            if self._audit is not None:
                self._audit.close()
        await self.executor.stop_tools(owner)

    # What clients ask for -------------------------------------------------------------------------------------------------

    def definitions(self) -> list[ToolDefinition]:
        """The tools in the list: all that the policy does not deny in any case."""
        self.executor.refresh()
        return self.policy.declarable(self.executor.definitions)

    def _handlers(self, of: OfferHandlers) -> dict[str, Any]:
        """The handlers of what this server has beside tools; what it does not have is not declared."""
        found: dict[str, Any] = {}
        if self.offers.has_resources:
            found |= {
                "on_list_resources": of.list_resources, "on_list_resource_templates": of.list_templates,
                "on_read_resource": of.read, "on_subscribe_resource": self._subscribe,
                "on_unsubscribe_resource": self._unsubscribe,
            }  # fmt: skip
        if self.offers.has_prompts:
            found |= {"on_list_prompts": of.list_prompts, "on_get_prompt": of.get_prompt}
        return found | ({"on_completion": of.complete} if found else {})

    async def _list_tools(self, ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        try:
            page, following = page_of(self.definitions(), params.cursor if params is not None else None)
        except UsageError as error:
            raise MCPError(INVALID_PARAMS, str(error)) from error
        served = [self._served(definition).tool for definition in page]
        return ListToolsResult(tools=[Tool.model_validate(tool, by_name=False) for tool in served], next_cursor=following)

    async def _call_tool(self, ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        assert self._dispatcher is not None, "requests come only while the server runs"
        self.executor.refresh()
        if params.name not in self.executor:
            raise MCPError(INVALID_PARAMS, unknown_name_sentence(params.name, [d.name for d in self.definitions()]))
        served = self._served(self.executor.definition(params.name))
        try:
            result = await self._run(ctx, params, self._dispatcher)
        except DeferredCall as later:
            return later.args[0]
        return CallToolResult.model_validate(result_of(result, served), by_name=False)

    async def _run(self, ctx: Context, params: CallToolRequestParams, dispatcher: CallDispatcher | None) -> ToolResult:
        """Run a call of a client; None is the dispatcher of the tools.

        Raises:
            DeferredCall: an answer of the client's user is needed first.
        """
        dispatcher = dispatcher or self._dispatcher
        assert dispatcher is not None, "requests come only while the server runs"
        call = FunctionCall(name=params.name, args=params.arguments or {}, id=f"mcp-{uuid4().hex}")
        session, lasts = self._session_of(ctx)
        ask: Ask | None = None
        if can_be_asked(ctx):
            ask = self.questions.asker(ctx, params, lasts=lasts)
        owner = f"{self.questions.client_name(ctx)} {identity_of(params.name, call.args)}"
        waiting = self._waiting.take(params.request_state, owner)
        client = waiting.client if waiting else SdkClient(ctx, self._levels.get(_connection(ctx)), is_modern=is_modern(ctx))
        if waiting is None and params.request_state is not None and KEY not in (params.input_responses or {}):
            raise MCPError(INVALID_PARAMS, "Its requestState stands for no call that waits for an answer of this client.")
        client.take(ctx, params.input_responses)
        token = CLIENT.set(client)
        try:
            async with ProgressPump(ctx.session.report_progress) as progress:
                if waiting is None:
                    waiting = WaitingCall(owner, client)
                    waiting.in_flight = dispatcher.take(call, session=session, ask=ask, progress=waiting.report)
                waiting.progress = progress
                return await self._result(waiting)
        finally:
            CLIENT.reset(token)
            await client.settled()

    async def _result(self, call: WaitingCall) -> ToolResult:
        """Wait for the end of a call, or until it asks the client something.

        Raises:
            DeferredCall: the answers are needed first.
            MCPError: the call failed because a newer client does not declare what it was asked for.
        """
        asks = asyncio.create_task(call.client.asks.wait())
        try:
            await asyncio.wait({call.in_flight.work, asks}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)  # What is asked at the same time is one result.
        except asyncio.CancelledError:
            # Cancelled by the client, or the connection is over. The call itself goes on to its end.
            call.in_flight.stop("The client cancelled it.")
            raise
        finally:
            asks.cancel()
        wanted = call.client.input_requests
        if call.in_flight.work.done() or not wanted:
            result = await call.in_flight.work
            if result.is_error and (missing := call.client.missing):
                lacks: JsonObject = {"requiredCapabilities": {name: {} for name in sorted(missing)}}
                raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, str(result.error), lacks)
            return result
        mark = self._waiting.keep(call, self.questions.mark_prefix)
        raise DeferredCall(InputRequiredResult(input_requests=wanted, request_state=mark))

    async def _set_level(self, ctx: Context, params: SetLevelRequestParams) -> EmptyResult:
        self._levels[_connection(ctx)] = params.level
        return EmptyResult()

    async def _subscribe(self, ctx: Context, params: SubscribeRequestParams) -> EmptyResult:
        await self.offers.require_resource(str(params.uri))
        self._subscribers.setdefault(str(params.uri), weakref.WeakSet()).add(_connection(ctx))
        return EmptyResult()

    async def _unsubscribe(self, ctx: Context, params: UnsubscribeRequestParams) -> EmptyResult:
        self._subscribers.get(str(params.uri), weakref.WeakSet()).discard(_connection(ctx))
        return EmptyResult()

    async def resource_updated(self, uri: str) -> None:
        """Notify the clients that have subscribed to a resource that it has changed."""
        await self._bus.publish(ResourceUpdated(uri=uri))
        for connection in list(self._subscribers.get(uri, ())):
            await connection.notify("notifications/resources/updated", {"uri": uri})

    def _served(self, definition: ToolDefinition) -> ServedTool:
        known = self._listed.get(definition.name)
        if known is None or known[0] is not definition:
            known = self._listed[definition.name] = (definition, listed(definition))
        return known[1]

    def _session_of(self, ctx: Context) -> tuple[str, bool]:
        """The client of a call, and whether it will be recognised at its next one."""
        transport_id = _connection(ctx).session_id
        if transport_id is not None:
            # The id gives access to the session, so it must not be logged.
            return f"mcp-{hashlib.sha256(transport_id.encode()).hexdigest()[:16]}", True
        if ctx.request is None:
            return self._session, True  # A pipe has one client.
        return f"mcp-{uuid4().hex[:16]}", False

    # Tools that come and go -----------------------------------------------------------------------------------------------

    async def _initialized(self, ctx: Context, params: NotificationParams) -> None:
        self._connections.add(_connection(ctx))

    async def _watch(self) -> None:
        known = self.executor.definitions
        while True:
            await asyncio.sleep(LOOK_S)
            self.executor.refresh()
            if (now := self.executor.definitions) != known:
                known = now
                await self.announce()

    async def announce(self) -> None:
        """Tell all clients that the tools are others now; done by itself for tools of servers."""
        await self._bus.publish(ToolsListChanged())
        for connection in list(self._connections):
            await connection.notify("notifications/tools/list_changed", None)


class _Server(Server[Any]):
    """The SDK's server; the tools that it lists may change, whichever way it is reached."""

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        """Declare that changes of the tool list are reported."""
        options = notification_options or NotificationOptions(tools_changed=True)
        return super().create_initialization_options(options, experimental_capabilities, extensions)


def _connection(ctx: Context) -> Connection:
    # The one thing that outlives a request, and the SDK hands it to nobody.
    return ctx.session._connection  # pyright: ignore[reportPrivateUsage]
