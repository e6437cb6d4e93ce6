"""`McpServer`: a server as a toolset, started with the gate and closed with it.

A command or an address comes in, runnable tools go out. What the server says of its own tools (that one only reads, say) is
believed only where the user trusts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import importlib.util
import os
import re
import shlex
from collections import Counter
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.parse import urlsplit

from callgate.base_errors import checked_values, expect
from callgate.config.known_secrets import remember_secrets, remember_secrets_in
from callgate.content.tool_names import is_reserved_server
from callgate.definitions.json_node import Node, ShapeError
from callgate.definitions.mcp import tools_from
from callgate.errors import ToolError, UsageError
from callgate.mcp import resources as resource_calls
from callgate.mcp.clock import PersonClock
from callgate.mcp.connection import TOOLS_MAX, Connection, OpenedClient
from callgate.mcp.content import value_of
from callgate.mcp.errors import UrlElicitationError
from callgate.mcp.host import NOBODY, Host
from callgate.mcp.lock import PinnedTools, Pins, pins_of
from callgate.mcp.oauth import OAuthSession
from callgate.mcp.oauth_client import OAuthClient
from callgate.mcp.requests import Requests
from callgate.mcp.resources import Resource, ResourceTool, ServerPrompt
from callgate.mcp.tokens import TokenFile
from callgate.mcp.transports import SILENCE_S, Address, Transport, process_transport, web_transport
from callgate.mcp.updates import Watch
from callgate.types import JsonObject, Media, ToolContext, ToolDefinition

if TYPE_CHECKING:
    from mcp.client import Client

__all__ = ["McpServer", "McpTool", "ServerStatus"]

T = TypeVar("T")

START_S = 10.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """The status of a server, for a person to read."""

    name: str
    """Name of the server."""
    where: str
    """The command, or the address without what is secret in it."""
    problem: str | None
    """The reason why it cannot be called now; None if it can."""
    about: JsonObject
    """Its description of itself: `name`, `version`, `protocol`, `instructions`, whether it knows `resources`, `prompts`."""
    tools: tuple[ToolDefinition, ...]
    """The tools that it offers."""
    remarks: tuple[str, ...]
    """Sentences on tools that are not offered."""


@checked_values
class McpServer:
    """An MCP server whose tools a model can call.

    ```python
    gate = Gate(model, tools=[McpServer("time", command=["mcp-server-time"])])
    ```

    It is started when the gate is first used and closed with it; if it dies it is started again. A server that cannot be
    started costs its tools and nothing else: an event `Notice("server_unavailable", ...)` says why.

    Args:
        name: What you call it. Stands before a tool's name (`name__tool`) where another tool is called the same.
        command: The program with its arguments, for a server that runs as a child process; or
        url: The address of one that runs elsewhere.
        env: Variables for the child. Of ours it sees only PATH, HOME, LANG, certificates, proxies and the like.
        headers: Sent with every request to the address.
        timeout_s: The deadline of one call; None means `Limits.call_timeout_s`.
        trust: Believe what the server says of its tools: that one only reads, or may be run twice. Such tools are not
            asked about.
        include: Take only these tools.
        exclude: Leave these tools out.
        cwd: The folder that the child runs in.
        transport: `http` (streamable HTTP) or `sse`; None tries one after the other.
        start_s: How long the first run waits for the server. One that takes longer joins when it is ready.
        instructions: Show the model what the server says about the use of its tools, marked as its words.
        oauth: The client to log in as, if one was registered beforehand; its scopes; or a client that logs in for itself.
        lock: A file of accepted definitions, as `callgate mcp lock` writes it: others of a server in it are left out, and
            all tools while it cannot be read.
        host: What the server may ask of this program: answers of a person, a login, a model, folders. By default nothing
            but answers of a person, where the gate has an `elicit`.

    Raises:
        UsageError: the arguments cannot be used, or the package `mcp` is not installed.
    """

    def __init__(  # noqa: PLR0913 - one server is one row of a file that everybody knows; all but the first are keyword-only
        self,
        name: str,
        *,
        command: Sequence[str] | None = None,
        url: str | None = None,
        env: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        trust: bool = False,
        include: Iterable[str] | None = None,
        exclude: Iterable[str] | None = None,
        cwd: str | Path | None = None,
        transport: Transport | None = None,
        start_s: float = START_S,
        host: Host | None = None,
        oauth: OAuthClient | None = None,
        instructions: bool = True,
        lock: str | os.PathLike[str] | None = None,
    ) -> None:
        _check(name, command, url, transport, {"timeout_s": timeout_s, "start_s": start_s})
        for what, given in (("env", env), ("headers", headers)):
            expect(
                given,
                (Mapping, type(None)),
                f"McpServer({name!r}): {what}={{}}",
                "names and values, as in {'NAME': 'value'}",
            )
        self.name = name
        self.version = 0
        self.command = None if command is None else tuple(command)
        self.url = url
        self.trust = trust
        self.host = host or NOBODY
        self._shows_instructions = instructions
        self._pinned = PinnedTools(name, lock)
        self._env, self._headers, self._oauth = env, headers, oauth
        if oauth is not None:
            remember_secrets(oauth.client_secret, oauth.private_key)
        remember_secrets_in({"env": env, "headers": headers})
        self._cwd = None if cwd is None else str(cwd)
        self._timeout_s, self.start_s = timeout_s, start_s
        self._include = None if include is None else frozenset(include)
        self._exclude = frozenset(exclude or ())
        self._transports: list[Transport] = [transport] if transport else _likely(url)
        self._tools: list[McpTool | ResourceTool] = []
        self.left_out: list[str] = []
        """Sentences on tools of the server that are not offered."""
        self._connection: Connection | None = None
        self._clock = PersonClock()
        self._requests = Requests(name, self.host, self._clock, self._has_person)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._owners: set[object] = set()

    def with_headers(self, headers: Mapping[str, str]) -> McpServer:
        """Return the same server with further headers, and so with a connection of its own: for one user's token.

        Raises:
            UsageError: the server has no address that headers could be sent to, or a header is not for programs to set.
        """
        if self.url is None:
            raise UsageError(f"the MCP server {self.name!r} is a program on this machine: headers are for one with a url=")
        if refused := sorted(name for name in headers if not name.strip() or name.strip().lower() in _OF_TRANSPORT):
            raise UsageError(f"the MCP server {self.name!r}: the header {refused[0]!r} is the transport's own")
        other = copy.copy(self)
        replaced = {name.lower() for name in headers}  # Names of headers have no case: the run's own value must win.
        kept = {name: value for name, value in (self._headers or {}).items() if name.lower() not in replaced}
        other._headers = {**kept, **headers}
        remember_secrets_in({"headers": headers})
        other.version, other._tools, other.left_out = 0, [], []
        other._pinned = copy.copy(self._pinned)
        other._connection = other._loop = None
        other._owners, other._clock = set(), PersonClock()
        other._requests = Requests(other.name, other.host, other._clock, other._has_person)
        return other

    def __repr__(self) -> str:
        return f"McpServer({self.name!r}, {len(self._tools)} tools)"

    # A live toolset -------------------------------------------------------------------------------------------------------

    def runnables(self) -> Sequence[McpTool | ResourceTool]:
        """The tools as the server listed them last."""
        return self._tools

    @property
    def problem(self) -> str | None:
        """The reason why the server cannot be called now; None if it can."""
        return self._connection.problem if self._connection else "it has not been started"

    @property
    def guidance(self) -> str:
        """The text of the server about the use of its tools, for the model; empty while it is not there."""
        connection = self._connection
        is_shown = self._shows_instructions and self._pinned.instructions_fit
        if connection is None or connection.problem or not is_shown:
            return ""
        return connection.about.get("instructions") or ""

    def complaints(self) -> Sequence[str]:
        """Problems of the server: why it is not available, and which of its tools were left out."""
        absent = [f"The MCP server {self.name!r} is not available: {self.problem}"] if self.problem else []
        return [*absent, *self.left_out]

    async def start(self, owner: object) -> None:
        """Start the server unless it runs; waits until its tools are known, or `start_s` at most.

        An owner that has an `elicit`, as a gate may, can answer questions.
        """
        if self._loop is None or self._loop.is_closed():
            self._loop, self._owners = asyncio.get_running_loop(), set()
            self._clock = PersonClock()
            self._requests = Requests(self.name, self.host, self._clock, self._has_person)
            self._connection = Connection(
                self.name, self._open, self._changed, transports=max(1, len(self._transports)), clock=self._clock,
                attempt_s=self.start_s if self.start_s > START_S else 0,
            )  # fmt: skip
            self._requests.updated = self._connection.updates.tell
        self._owners.add(owner)
        assert self._connection is not None
        await self._there(self._connection.start(self.start_s))

    async def aclose(self, owner: object) -> None:
        """Close the server when its last owner is done with it."""
        self._owners.discard(owner)
        if self._owners or self._loop is None or self._connection is None:
            return
        connection, loop = self._connection, self._loop
        self._connection = self._loop = None
        if not loop.is_closed():
            await _on(loop, connection.aclose())

    async def call(self, name: str, args: Mapping[str, Any], context: ToolContext) -> object:
        """Call a tool of the server by the server's own name for it.

        Raises:
            ToolError: the server is not there, went away, or says that the call failed.
        """
        connection, requests = self._running(), self._requests
        with requests.during(context):
            try:
                result = await self._there(connection.call(name, args, context.progress))
            except UrlElicitationError as wanted:
                # The server says that it has done nothing yet, so this is no second time.
                if not await self._there(requests.ask_to_visit(wanted.pages)):
                    raise
                result = await self._there(connection.call(name, args, context.progress))
        return value_of(result)

    def pins(self) -> Pins:
        """The digests of all that the server lists now, whatever was accepted before."""
        connection = self._running()
        return pins_of(connection.tools, connection.about.get("instructions"))

    # What it has beside tools ---------------------------------------------------------------------------------------------

    def status(self) -> ServerStatus:
        """The current status, without a request to the server."""
        return ServerStatus(
            name=self.name,
            where=self.where,
            problem=self.problem,
            about=dict(self._connection.about) if self._connection else {},
            tools=tuple(tool.definition for tool in self._tools),
            remarks=tuple(self.left_out),
        )

    @property
    def where(self) -> str:
        """The command, or the address without what may be secret in it."""
        if self.command is not None:
            return shlex.join(self.command)
        parts = urlsplit(self.url or "")
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()

    async def resources(self) -> list[Resource]:
        """The resources of the server. Raises `ToolError` if it cannot be asked."""
        return await self._there(resource_calls.list_resources(self._running()))

    async def prompts(self) -> list[ServerPrompt]:
        """The prompts that the server has written. Raises `ToolError` if it cannot be asked."""
        return await self._there(resource_calls.list_prompts(self._running()))

    async def read_resource(self, uri: str, context: ToolContext | None = None) -> object:
        """The contents of a resource: text, `Media`, or a list of these. Raises `ToolError` if it cannot be read."""
        with self._requests.during(context or _NO_CALL):
            return await self._there(resource_calls.read_resource(self._running(), uri))

    async def get_prompt(
        self, name: str, args: Mapping[str, str] | None = None, context: ToolContext | None = None
    ) -> list[str | Media]:
        """A prompt with its arguments filled in, as `Gate.run` takes it. Raises `ToolError` if it cannot be read."""
        with self._requests.during(context or _NO_CALL):
            return await self._there(resource_calls.get_prompt(self._running(), name, args or {}))

    async def updates(self, *uris: str) -> AsyncGenerator[str]:
        """The addresses of resources: each when the server takes the subscription, and again whenever it says it changed.

        ```python
        async for uri in server.updates("notes://today"):
            text = await server.read_resource(uri)
        ```

        A server that is restarted is subscribed to again. Several changes at once are told once.

        Raises:
            ToolError: the server does not report changes.
            UsageError: no address is given.
        """
        if not uris:
            raise UsageError(f"the MCP server {self.name!r}: updates() needs the address of a resource")
        watch, updates = Watch(uris), self._running().updates
        await self._there(updates.add(watch))
        try:
            async for uri in watch.changes():
                yield uri
        finally:
            if self._loop is not None:
                await self._there(updates.remove(watch))

    async def roots_changed(self) -> None:
        """Tell the server that the folders of its `Host.roots` are others now; newer servers ask each time."""
        from mcp_types import RootsListChangedNotification
        from mcp_types.version import MODERN_PROTOCOL_VERSIONS

        async def tell(client: Client) -> None:
            if client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
                await client.session.send_notification(RootsListChangedNotification())

        await self._there(self._running().ask(tell))

    async def complete(self, ref: Any, argument: str, value: str) -> list[str]:
        """The server's completions of an argument of a prompt or of a template; none if it offers none."""
        if not self._running().about.get("completions"):
            return []
        asked = {"name": argument, "value": value}
        try:
            found = await self._there(self._running().ask(lambda client: client.complete(ref, asked)))
        except ToolError:
            return []
        return list(found.completion.values)

    def _running(self) -> Connection:
        if self._connection is None:
            raise UsageError(f"the MCP server {self.name!r} is not running: it runs while a gate is in use")
        return self._connection

    # Internals ------------------------------------------------------------------------------------------------------------

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return await _on(self._loop, work)

    @contextlib.asynccontextmanager
    async def _open(self) -> AsyncGenerator[OpenedClient]:
        if self.command is not None:
            opening = process_transport(self.command, self._env, self._cwd, self._requests)
        else:
            # The other transport has its turn at the next attempt.
            transport = self._transports[0]
            self._transports = [*self._transports[1:], transport]
            url = self.url or ""
            address = Address(url=url, headers=self._headers or {}, silence_s=max(SILENCE_S, self._timeout_s or 0))
            oauth = OAuthSession(self.name, url, self.host, self._clock, TokenFile(), self._oauth)
            opening = web_transport(address, transport, oauth, self._requests)
        async with opening as opened:
            yield opened

    def _has_person(self) -> bool:
        return any(getattr(owner, "elicit", None) is not None for owner in self._owners)

    def _changed(self) -> None:
        assert self._connection is not None
        found: dict[str, McpTool] = {}
        instructions = self._connection.about.get("instructions") if self._shows_instructions else None
        firsts: dict[str, JsonObject] = {}
        for item in self._connection.tools:
            firsts.setdefault(item["name"], item)
        listed, self.left_out = self._pinned.accepted(list(firsts.values()), instructions)
        for name, count in Counter(item["name"] for item in self._connection.tools).items():
            if count > 1 and self._is_wanted(name):
                self.left_out.append(f"The MCP server {self.name!r} lists {name!r} twice; the first one is used.")
        for item in listed[:TOOLS_MAX]:
            definition = self._definition(item)
            if definition is None or not self._is_wanted(definition.name):
                continue
            found[definition.name] = McpTool(self, definition)
        if len(listed) > TOOLS_MAX:
            self.left_out.append(f"The MCP server {self.name!r} has more than {TOOLS_MAX} tools; the others are left out.")
        beside = resource_calls.resource_tools(self) if self._connection.has_resources else []
        self._tools = [*found.values(), *(tool for tool in beside if self._is_free(tool.definition.name, found))]
        self.version += 1
        if self._transports:  # This one works: it stays first.
            self._transports = [self._transports[-1], *self._transports[:-1]]

    def _is_free(self, name: str, found: Mapping[str, McpTool]) -> bool:
        return self._is_wanted(name) and name not in found

    def _is_wanted(self, name: str) -> bool:
        return name not in self._exclude and (self._include is None or name in self._include)

    def _definition(self, item: JsonObject) -> ToolDefinition | None:
        try:
            (tool,) = tools_from(Node(item))
        except ShapeError as error:
            self.left_out.append(f"A tool of the MCP server {self.name!r} was left out: {error}")
            return None
        believed = {} if self.trust else {"read_only": False, "idempotent": False}
        return replace(tool.definition, server=self.name, timeout_s=self._timeout_s, **believed)


class McpTool:
    """One tool of a server."""

    def __init__(self, server: McpServer, definition: ToolDefinition) -> None:
        self.definition = definition
        self._server = server

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """No problems beyond the schema: the server checks arguments itself."""
        return ()

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """Call the tool on its server."""
        return await self._server.call(self.definition.name, args, context)


_OF_TRANSPORT = frozenset({"host", "content-length", "transfer-encoding", "connection"})
"""Headers that say how a request is sent."""
_NO_CALL = ToolContext(call_id="", name="")
"""A program asks by itself, and no call of a model is under way."""


def _check(
    name: str, command: Sequence[str] | None, url: str | None, transport: str | None, times: Mapping[str, float | None]
) -> None:
    where = f"McpServer({name!r})"
    if not isinstance(cast("object", name), str) or not _NAME.fullmatch(name):
        raise UsageError(f"{where}: the name must be 1 to 40 letters, digits, '_', '-' or '.'")
    if is_reserved_server(name):
        raise UsageError(f"{where}: the name is reserved for the program's own tools in rules; give another one")
    if (command is None) == (url is None):
        raise UsageError(f"{where}: give either command=[...] or url='...'")
    if command is not None and not _is_command(command):
        raise UsageError(f"{where}: command={command!r} must be a list of strings, the program first")
    if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
        raise UsageError(f"{where}: the url must begin with http:// or https://")
    for key, time_s in times.items():
        if time_s is not None and not (type(time_s) in (int, float) and 0 < time_s < float("inf")):
            raise UsageError(f"{where}: {key}={time_s!r} is not a time; give a number of seconds above 0")
    if transport not in (None, "http", "sse"):
        raise UsageError(f"{where}: transport={transport!r}: use 'http', 'sse' or None")
    if importlib.util.find_spec("mcp") is None:
        raise UsageError(f"{where}: MCP servers need the package mcp; install it with: pip install 'callgate[mcp]'")


def _is_command(command: object) -> bool:
    if isinstance(command, (str, bytes)) or not isinstance(command, Sequence) or not command:
        return False
    return all(isinstance(word, (str, os.PathLike)) for word in cast("Sequence[object]", command))


def _likely(url: str | None) -> list[Transport]:
    if url is None:
        return []
    return ["sse", "http"] if urlsplit(url).path.rstrip("/").endswith("/sse") else ["http", "sse"]


async def _on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run it on the loop of the connection, which may be that of another gate's thread."""
    if loop is asyncio.get_running_loop():
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))
