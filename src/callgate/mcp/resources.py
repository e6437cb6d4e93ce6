"""Resources and prompts of servers, and the two tools by which a model reads them.

Names and addresses come in, plain values go out. The words are MCP's; how a server is reached is `connection.py`'s business.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from callgate.errors import ToolError
from callgate.mcp.connection import PAGES_MAX, Connection
from callgate.mcp.content import value_of
from callgate.types import JsonObject, Media, ToolContext, ToolDefinition

if TYPE_CHECKING:
    from mcp.client import Client

__all__ = [
    "PromptArgument",
    "Resource",
    "ResourceServer",
    "ResourceTool",
    "ServerPrompt",
    "get_prompt",
    "list_prompts",
    "list_resources",
    "read_resource",
    "resource_tools",
]  # fmt: skip

OFFERS_MAX = 1000
"""Resources, and prompts, of one server that are taken."""
SHOWN_MAX = 100
"""The limit of each that a model is shown at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource of a server. The URI of a template has placeholders in braces."""

    uri: str
    """The address, or the template of one."""
    name: str
    """A name for people."""
    description: str = ""
    """Its content in words; empty if the server does not say."""
    mime_type: str | None = None
    """The type of its content, if known."""
    size: int | None = None
    """Bytes, if known."""
    is_template: bool = False
    """True if `uri` is a template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptArgument:
    """An argument of a prompt."""

    name: str
    """Name of the argument."""
    description: str = ""
    """Its purpose; empty if the server does not say."""
    required: bool = False
    """True if the prompt cannot be made without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPrompt:
    """A prompt that a server has written for its users."""

    name: str
    """Name of the prompt."""
    description: str = ""
    """Its purpose; empty if the server does not say."""
    arguments: tuple[PromptArgument, ...] = ()
    """The arguments that it takes."""


# Of one connection -------------------------------------------------------------------------------------------------------


async def list_resources(connection: Connection) -> list[Resource]:
    """The resources of a server, then its templates.

    Raises:
        ToolError: the server is not there, went away, or refused to list them.
    """
    if not connection.about.get("resources"):
        return []
    plain = await _all_pages(connection, lambda client, cursor: client.list_resources(cursor=cursor), "resources")
    templates: list[Any] = []
    try:
        templates = await _all_pages(
            connection, lambda client, cursor: client.list_resource_templates(cursor=cursor), "resource_templates"
        )
    except ToolError:
        # Many servers have resources and have never heard of templates.
        if connection.problem:
            raise
    found = [_resource(item, item.uri, is_template=False) for item in plain]
    return [*found, *(_resource(item, item.uri_template, is_template=True) for item in templates)]


async def list_prompts(connection: Connection) -> list[ServerPrompt]:
    """The prompts of a server.

    Raises:
        ToolError: the server is not there, went away, or refused to list them.
    """
    if not connection.about.get("prompts"):
        return []
    listed = await _all_pages(connection, lambda client, cursor: client.list_prompts(cursor=cursor), "prompts")
    return [
        ServerPrompt(
            name=item.name,
            description=item.description or "",
            arguments=tuple(
                PromptArgument(name=one.name, description=one.description or "", required=bool(one.required))
                for one in item.arguments or ()
            ),
        )
        for item in listed
    ]


async def read_resource(connection: Connection, uri: str) -> object:
    """The contents of a resource: text, or media.

    Raises:
        ToolError: the server is not there, went away, or has no such resource.
    """
    result = await connection.ask(lambda client: client.read_resource(uri, cache_mode="bypass"))
    blocks = [_bare({"resource": item.model_dump(mode="json", by_alias=True)}) for item in result.contents]
    return value_of({"content": blocks}) if blocks else "The resource is empty."


async def get_prompt(connection: Connection, name: str, args: Mapping[str, str]) -> list[str | Media]:
    """A prompt of a server, filled in, as `Gate.run` takes it. Where an assistant speaks in it too, each says who speaks.

    Raises:
        ToolError: the server is not there, went away, or refused the prompt.
    """
    result = await connection.ask(lambda client: client.get_prompt(name, {key: str(args[key]) for key in args}))
    several = len({message.role for message in result.messages}) > 1
    pieces: list[str | Media] = []
    for message in result.messages:
        value = value_of({"content": [_bare(message.content.model_dump(mode="json", by_alias=True, exclude_none=True))]})
        piece = value if isinstance(value, (str, Media)) else str(value)
        if several:
            pieces.append(f"{message.role}:")
        pieces.append(piece)
    return pieces


async def _all_pages(connection: Connection, fetch: Callable[[Client, str | None], Awaitable[Any]], field: str) -> list[Any]:
    found: list[Any] = []
    cursor: str | None = None
    for _ in range(PAGES_MAX):
        at = cursor
        page = await connection.ask(lambda client, at=at: fetch(client, at))
        found += getattr(page, field)
        cursor = page.next_cursor
        if not cursor or len(found) >= OFFERS_MAX:
            break
    return found[:OFFERS_MAX]


def _resource(item: Any, uri: object, *, is_template: bool) -> Resource:
    size = getattr(item, "size", None)
    return Resource(
        uri=str(uri), name=item.name, description=item.description or "", mime_type=item.mime_type,
        size=size, is_template=is_template,
    )  # fmt: skip


def _bare(block: JsonObject) -> JsonObject:
    """A resource that was asked for by its address: its text alone, or its bytes."""
    resource: JsonObject | None = block.get("resource")
    if resource is None:
        return block
    if resource.get("text") is not None:
        return {"type": "text", "text": resource["text"]}
    return {"type": "resource", "resource": {key: value for key, value in resource.items() if value is not None}}


# For the model -----------------------------------------------------------------------------------------------------------


class ResourceServer(Protocol):
    """A server that has resources and prompts."""

    name: str
    trust: bool

    async def resources(self) -> list[Resource]: ...  # noqa: D102

    async def prompts(self) -> list[ServerPrompt]: ...  # noqa: D102

    async def read_resource(self, uri: str, context: ToolContext | None = None) -> object: ...  # noqa: D102

    async def get_prompt(  # noqa: D102
        self, name: str, args: Mapping[str, str] | None = None, context: ToolContext | None = None
    ) -> list[str | Media]: ...


_LIST = ToolDefinition(
    name="list_resources",
    kind="mcp",
    description="Lists what the server {server} has beside its tools: resources, which can be read, and prompts, which it "
    "has written for its users. A resource whose uri has places in braces is read with these filled in.",
    input_schema={
        "type": "object",
        "properties": {"contains": {"type": "string", "description": "List only those in which this text occurs."}},
        "additionalProperties": False,
    },
    # Nothing of the model's goes to the server, and the server is asked for no more than its list of tools is.
    read_only=True,
)
_READ = ToolDefinition(
    name="read_resource",
    kind="mcp",
    description="Reads a resource of the server {server} by its uri, or one of its prompts by its name and arguments. "
    "list_resources says which there are.",
    input_schema={
        "type": "object",
        "properties": {
            "uri": {"type": "string", "description": "The resource to read."},
            "prompt": {"type": "string", "description": "The prompt to read, instead of a resource."},
            "arguments": {
                "type": "object",
                "description": "The arguments of the prompt.",
                "additionalProperties": {"type": "string"},
            },
        },
        "additionalProperties": False,
    },
)


class ResourceTool:
    """One of the two tools by which a model reads a server's resources and prompts."""

    def __init__(self, server: ResourceServer, definition: ToolDefinition, work: Callable[..., Awaitable[object]]) -> None:
        described = definition.description.replace("{server}", repr(server.name))
        self.definition = replace(definition, description=described, server=server.name)
        self._server = server
        self._work = work

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """Check that either `uri` or `prompt` is given."""
        if self._work is _read and ("uri" in args) == ("prompt" in args):
            return ["give either 'uri' or 'prompt'"]
        return ()

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """List, or reads."""
        return await self._work(self._server, args, context)


def resource_tools(server: ResourceServer) -> list[ResourceTool]:
    """The two tools for one server. What is read of one that is not trusted is asked about, like its tools."""
    read = replace(_READ, read_only=server.trust, idempotent=server.trust)
    return [ResourceTool(server, _LIST, _list), ResourceTool(server, read, _read)]


async def _list(server: ResourceServer, args: Mapping[str, Any], context: ToolContext) -> object:
    wanted = args.get("contains", "").casefold()
    resources = [_fields(one) for one in await server.resources()]
    prompts = [
        {**_fields(one), **({"arguments": [_fields(argument) for argument in one.arguments]} if one.arguments else {})}
        for one in await server.prompts()
    ]
    found: JsonObject = {}
    for kind, listed in (("resources", resources), ("prompts", prompts)):
        fitting = [one for one in listed if wanted in str(one).casefold()]
        found[kind] = fitting[:SHOWN_MAX]
        if len(fitting) > SHOWN_MAX:
            found["note"] = f"Only {SHOWN_MAX} of each are listed; say more with 'contains'."
    return found


async def _read(server: ResourceServer, args: Mapping[str, Any], context: ToolContext) -> object:
    if "uri" in args:
        return await server.read_resource(args["uri"], context)
    return await server.get_prompt(args["prompt"], args.get("arguments"), context)


def _fields(one: Resource | ServerPrompt | PromptArgument) -> JsonObject:
    names = [name for name in one.__slots__ if name != "arguments"]
    return {name: value for name in names if (value := getattr(one, name)) not in ("", None, False)}
