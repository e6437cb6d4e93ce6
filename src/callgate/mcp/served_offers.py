"""Resources and prompts of a tool server: those of functions, and those of the MCP servers among its tools.

Requests of the protocol come in, lists and contents go out. Every read is a call with the permission, limits and audit log
of a tool: of the function, or of the server's tool `read_resource`.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CompleteRequestParams,
    CompleteResult,
    GetPromptRequestParams,
    GetPromptResult,
    InputRequiredResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    PaginatedRequestParams,
    Prompt,
    ReadResourceRequestParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)

from callgate.calls.dispatcher import CallDispatcher, DeferredCall
from callgate.errors import ToolError, UsageError
from callgate.mcp.offers import Offer, offer_of, page_of, template_args, words_for
from callgate.mcp.serialization import ServedTool, result_of
from callgate.mcp.server import McpServer
from callgate.permission.guard import Guard
from callgate.strict_json import objects_in
from callgate.tools.executor import Executor
from callgate.types import JsonObject, ToolDefinition, ToolResult

__all__ = ["OfferHandlers", "ServedOffers"]

Run = Callable[[Any, CallToolRequestParams, CallDispatcher | None], Awaitable[ToolResult]]
"""Run a call of a client; None is the dispatcher of the tools."""
NOT_FOUND = -32002
_READ = "read_resource"
_PLAIN = ServedTool({}, None, is_wrapped=False, is_mcp=True)


class ServedOffers:
    """Resources and prompts, and where each is read."""

    def __init__(self, offers: Iterable[object], executor: Executor, guard: Guard, run: Run, *, nobody: str) -> None:
        marked = [(item, offer) for item in offers if (offer := offer_of(item)) is not None]
        self._executor = Executor([item for item, _ in marked], limits=executor.limits)
        self._tools = executor
        self._offers: dict[str, Offer] = dict(
            zip((one.name for one in self._executor.definitions), (offer for _, offer in marked), strict=True)
        )
        own = copy.copy(guard)
        own.tools = self._executor
        self._dispatcher = CallDispatcher(self._executor, own, nobody=nobody)
        self._run = run

    async def aclose(self) -> None:
        """Stop what is being read."""
        await self._dispatcher.aclose()

    @property
    def servers(self) -> list[McpServer]:
        """The MCP servers among the tools."""
        return [one for one in self._tools.toolsets if isinstance(one, McpServer) and one.problem is None]

    @property
    def has_resources(self) -> bool:
        """True if there are resources, or may be some."""
        return self._has_servers or any(offer.uri is not None for offer in self._offers.values())

    @property
    def has_prompts(self) -> bool:
        """True if there are prompts, or may be some."""
        return self._has_servers or any(offer.uri is None for offer in self._offers.values())

    @property
    def _has_servers(self) -> bool:
        return any(isinstance(one, McpServer) for one in self._tools.toolsets)

    # Lists ----------------------------------------------------------------------------------------------------------------

    async def resources(self, *, templates: bool) -> list[JsonObject]:
        """The resources, or their templates, in MCP's form."""
        found = [
            _resource(offer.uri, definition.name, definition.description, offer.mime_type, offer.title, templates)
            for definition, offer in self._own()
            if offer.uri is not None and offer.is_template == templates
        ]
        for server in self.servers:
            found += [
                _resource(one.uri, one.name, one.description, one.mime_type, None, templates)
                for one in await _list_or_empty(server.resources())
                if one.is_template == templates
            ]
        return found

    async def prompts(self) -> list[tuple[JsonObject, McpServer | None, str]]:
        """The prompts in MCP's form; the server that each is of, and its name there."""
        found: dict[str, tuple[JsonObject, McpServer | None, str]] = {}
        for definition, offer in self._own():
            if offer.uri is None:
                title = {"title": offer.title} if offer.title else {}
                listed = {"name": definition.name, "description": definition.description, **title}
                found[definition.name] = ({**listed, "arguments": _arguments(definition)}, None, definition.name)
        for server in self.servers:
            for one in await _list_or_empty(server.prompts()):
                name = one.name if one.name not in found else f"{server.name}__{one.name}"
                taken = [
                    {"name": each.name, "description": each.description, "required": each.required} for each in one.arguments
                ]
                found[name] = ({"name": name, "description": one.description, "arguments": taken}, server, one.name)
        return list(found.values())

    def _own(self) -> list[tuple[ToolDefinition, Offer]]:
        return [(definition, self._offers[definition.name]) for definition in self._executor.definitions]

    # Reading --------------------------------------------------------------------------------------------------------------

    async def read(self, ctx: Any, params: ReadResourceRequestParams) -> list[JsonObject]:
        """The contents of a resource.

        Raises:
            MCPError: there is none, or it cannot be read.
            DeferredCall: an answer of the client's user is needed first.
        """
        uri = str(params.uri)
        place, args, mime_type = await self._found(uri)
        if isinstance(place, McpServer):
            return _contents(await self._of_server(ctx, place, {"uri": uri}, params), uri, mime_type)
        return _contents(await self._run(ctx, _call(place.name, args, params), self._dispatcher), uri, mime_type)

    async def require_resource(self, uri: str) -> None:
        """Refuse an address that no resource has.

        Raises:
            MCPError: there is none.
        """
        await self._found(uri)

    async def _found(self, uri: str) -> tuple[ToolDefinition | McpServer, Mapping[str, str], str | None]:
        """Find the source of a resource: the function with its arguments, or the server; and its type.

        Raises:
            MCPError: there is none.
        """
        for definition, offer in self._own():
            args = template_args(offer.uri, uri) if offer.uri is not None else None
            if args is not None:
                return definition, args, offer.mime_type
        for server in self.servers:
            for one in await _list_or_empty(server.resources()):
                if uri == one.uri or (one.is_template and template_args(one.uri, uri) is not None):
                    return server, {}, one.mime_type
        raise MCPError(NOT_FOUND, f"There is no resource {uri!r}.", {"uri": uri})

    async def get_prompt(self, ctx: Any, params: GetPromptRequestParams) -> JsonObject:
        """The messages of a prompt.

        Raises:
            MCPError: there is none, or its arguments do not fit.
            DeferredCall: an answer of the client's user is needed first.
        """
        name, args = params.name, params.arguments or {}
        for listed, server, own_name in await self.prompts():
            if listed["name"] != name:
                continue
            if server is None:
                result = await self._run(ctx, _call(name, args, params), self._dispatcher)
            else:
                result = await self._of_server(ctx, server, {"prompt": own_name, "arguments": dict(args)}, params)
            return {"description": listed["description"], "messages": _messages(result)}
        raise MCPError(INVALID_PARAMS, f"There is no prompt {name!r}.")

    async def _of_server(
        self, ctx: Any, server: McpServer, args: JsonObject, params: ReadResourceRequestParams | GetPromptRequestParams
    ) -> ToolResult:
        """Read by the tool that the server's resources are read with, and so with its permission."""
        names = (_READ, f"{server.name}__{_READ}")
        for definition in self._tools.definitions:
            if definition.server == server.name and definition.name in names:
                return await self._run(ctx, _call(definition.name, args, params), None)
        raise MCPError(NOT_FOUND, f"The server {server.name!r} has nothing that can be read.")

    async def complete(self, params: CompleteRequestParams) -> list[str]:
        """The values that an argument may have."""
        ref: Any = params.ref
        wanted = ref.name if ref.type == "ref/prompt" else ref.uri
        for definition, offer in self._own():
            if wanted == (definition.name if offer.uri is None else offer.uri):
                return words_for(definition, params.argument.name, params.argument.value)
        for server in self.servers:
            found = await server.complete(ref, params.argument.name, params.argument.value)
            if found:
                return found
        return []


def _call(
    name: str, args: Mapping[str, Any], params: ReadResourceRequestParams | GetPromptRequestParams
) -> CallToolRequestParams:
    """The call that a request is carried out by, with the answers that came with it."""
    return CallToolRequestParams(
        name=name, arguments=dict(args), input_responses=params.input_responses, request_state=params.request_state
    )


class OfferHandlers:
    """The handlers of requests, as the SDK calls them."""

    def __init__(self, offers: ServedOffers) -> None:
        self._offers = offers

    async def list_resources(self, ctx: Any, params: PaginatedRequestParams | None) -> ListResourcesResult:
        """List the resources."""
        page, following = _page(await self._offers.resources(templates=False), params)
        listed = [Resource.model_validate(one, by_name=False) for one in page]
        return ListResourcesResult(resources=listed, next_cursor=following)

    async def list_templates(self, ctx: Any, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        """List the templates of resources."""
        page, following = _page(await self._offers.resources(templates=True), params)
        listed = [ResourceTemplate.model_validate(one, by_name=False) for one in page]
        return ListResourceTemplatesResult(resource_templates=listed, next_cursor=following)

    async def list_prompts(self, ctx: Any, params: PaginatedRequestParams | None) -> ListPromptsResult:
        """List the prompts."""
        page, following = _page([listed for listed, _, _ in await self._offers.prompts()], params)
        return ListPromptsResult(prompts=[Prompt.model_validate(one, by_name=False) for one in page], next_cursor=following)

    async def read(self, ctx: Any, params: ReadResourceRequestParams) -> ReadResourceResult | InputRequiredResult:
        """Read a resource."""
        try:
            contents = await self._offers.read(ctx, params)
        except DeferredCall as later:
            return later.args[0]
        return ReadResourceResult.model_validate({"contents": contents}, by_name=False)

    async def get_prompt(self, ctx: Any, params: GetPromptRequestParams) -> GetPromptResult | InputRequiredResult:
        """Fill in a prompt."""
        try:
            found = await self._offers.get_prompt(ctx, params)
        except DeferredCall as later:
            return later.args[0]
        return GetPromptResult.model_validate(found, by_name=False)

    async def complete(self, ctx: Any, params: CompleteRequestParams) -> CompleteResult:
        """Complete an argument."""
        values = await self._offers.complete(params)
        found = {"values": values, "total": len(values), "hasMore": False}
        return CompleteResult.model_validate({"completion": found}, by_name=False)


def _page(items: list[Any], params: PaginatedRequestParams | None) -> tuple[list[Any], str | None]:
    try:
        return page_of(items, params.cursor if params is not None else None)
    except UsageError as error:
        raise MCPError(INVALID_PARAMS, str(error)) from error


async def _list_or_empty(work: Awaitable[list[Any]]) -> list[Any]:
    """The list of a server; empty if it cannot be asked now."""
    try:
        return await work
    except ToolError:
        return []


def _resource(
    uri: str | None, name: str, description: str, mime_type: str | None, title: str | None, is_template: bool
) -> JsonObject:
    listed: JsonObject = {"uriTemplate" if is_template else "uri": uri, "name": name}
    more = {"description": description, "mimeType": mime_type, "title": title}
    return listed | {key: value for key, value in more.items() if value}


def _arguments(definition: ToolDefinition) -> list[JsonObject]:
    schema = definition.input_schema
    properties: dict[str, JsonObject] = schema.get("properties") or {}
    required = schema.get("required") or ()
    return [
        {"name": name, "description": str(about.get("description") or ""), "required": name in required}
        for name, about in properties.items()
    ]


def _blocks(result: ToolResult) -> list[JsonObject]:
    """The content of a result.

    Raises:
        MCPError: the call failed, or was not allowed.
    """
    if result.is_error:
        raise MCPError(INVALID_PARAMS, result.error or "It cannot be read.")
    return objects_in(result_of(result, _PLAIN)["content"])


def _contents(result: ToolResult, uri: str, mime_type: str | None) -> list[JsonObject]:
    contents: list[JsonObject] = []
    for block in _blocks(result):
        kind = {"mimeType": mime_type} if mime_type else {}
        if block["type"] == "text":
            contents.append({"uri": uri, **kind, "text": block["text"]})
        elif block["type"] == "resource":
            inner: JsonObject = block["resource"]
            contents.append({**inner, "uri": uri, "mimeType": mime_type or inner.get("mimeType")})
        elif "data" in block:
            contents.append({"uri": uri, "mimeType": block["mimeType"], "blob": block["data"]})
    return contents


def _messages(result: ToolResult) -> list[JsonObject]:
    return [{"role": "user", "content": block} for block in _blocks(result)]
