"""The options of one run, and the configuration that they make of a gate's: its own tools, instructions and headers."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, cast

from callgate.errors import UsageError
from callgate.permission import Approval
from callgate.run.config import GateConfig
from callgate.run.inputs import split_tools
from callgate.tools.find_tools import FindTools
from callgate.types import ToolChoice

if TYPE_CHECKING:
    from callgate.mcp.host import Elicit
    from callgate.tools.executor import Executor
    from callgate.tools.toolsets import LiveToolset

__all__ = ["ManyOptions", "RunOptions", "RunToolsOwner", "config_for_run"]

Headers = Mapping[str, Mapping[str, str]]


class ManyOptions(TypedDict, total=False):
    """The options of `run` that `run_many` takes, too."""

    history: Iterable[Mapping[str, Any]] | None
    """Contents to start from instead, repaired where they break a rule."""
    tool_choice: ToolChoice
    """`auto`, `required`, `none`, `validated` or a tool's name; applies to the first request."""
    deps: Any
    """An object for tools that declare a `ToolContext[Type]` parameter."""
    tools: Iterable[object] | None
    """Further tools for this run."""
    instructions: str | None
    """Further system text for this run, after the gate's own."""
    headers: Headers | None
    """Name of an MCP server -> headers for this run, such as a user's own token."""


class RunOptions(ManyOptions, total=False):
    """The options of `run` that `stream`, `run_sync` and `stream_sync` take, too."""

    session: str | None
    """The id of a conversation to continue; a new id starts one; None starts one with a generated id."""
    answers: Mapping[str, Approval] | None
    """Answers to the pending approvals of a paused session, by call id."""


@dataclass(eq=False, slots=True)
class RunToolsOwner:
    """The owner of the servers that one run starts for itself."""

    elicit: Elicit | None = None


def config_for_run(
    config: GateConfig, tools: Iterable[object] | None, instructions: str | None, headers: Headers | None
) -> GateConfig:
    """The configuration of one run: the gate's own, with the options that only this run has.

    Raises:
        UsageError: there is no such server, or a tool cannot be used.
        ToolNotDeclarableError: a tool cannot be declared, or its name is taken.
    """
    if instructions is not None:
        if not isinstance(cast("Any", instructions), str):
            raise UsageError(f"instructions={instructions!r:.100}: use text")
        config = replace(config, system="\n\n".join(filter(None, [config.system, instructions])))
    if tools is not None and (isinstance(tools, (str, Mapping)) or not isinstance(cast("Any", tools), Iterable)):
        raise UsageError(f"tools={tools!r:.100}: use a list of tools")
    if headers is not None and not isinstance(cast("Any", headers), Mapping):
        raise UsageError(f"headers={headers!r:.100}: use a mapping such as {{'server': {{'Authorization': '...'}}}}")
    given = [] if tools is None else list(tools)
    if not given and not headers:
        return config
    functions, built_in = split_tools(given)
    executor = config.executor.extended(functions, _with_headers(config.executor, headers or {}))
    declarer = config.declarer
    if declarer.tools_shown is not None:
        policy = config.guard.policy
        executor.replace(FindTools(lambda: policy.declarable(executor.definitions)))
    guard = copy.copy(config.guard)
    guard.tools = executor
    # Results of all tools depend on what the run has of its own: tools call each other.
    guard.of_run = (*given, _digest(headers or {}))
    declarer = declarer.for_executor(executor, built_in)
    config = replace(config, guard=guard, declarer=declarer)
    config.declare()  # Raises now what would fail in the first request.
    return config


def _digest(headers: Headers) -> str:
    """A hash of headers: names have no case, and values are not kept."""
    pairs = sorted((name, key.lower(), value) for name, more in headers.items() for key, value in more.items())
    return hashlib.sha256(repr(pairs).encode("utf-8", "surrogatepass")).hexdigest()


def _with_headers(executor: Executor, headers: Headers) -> dict[str, LiveToolset]:
    """Name of a server -> the same server with headers of its own, and so with a connection of its own."""
    from callgate.mcp.server import McpServer

    known = {server.name: server for server in executor.live if isinstance(server, McpServer)}
    if unknown := [name for name in headers if name not in known]:
        has = ", ".join(map(repr, known)) or "none"
        raise UsageError(f"headers= names the MCP server {unknown[0]!r}, which the gate does not have; it has {has}")
    for name, more in headers.items():
        _check_headers(name, more)
    return {name: known[name].with_headers(more) for name, more in headers.items()}


def _check_headers(server: str, headers: object) -> None:
    """Refuse headers that cannot be sent."""
    if not isinstance(headers, Mapping):
        raise UsageError(f"headers= of {server!r} are a {type(headers).__name__}: use a mapping of names to values")
    for name, value in cast("Mapping[Any, Any]", headers).items():
        is_text = isinstance(name, str) and isinstance(value, str) and bool(name)
        if not is_text or not (name + value).isprintable() or not (name + value).isascii():
            raise UsageError(
                f"headers= of {server!r}: {str(name)[:100]!r} cannot be sent: names and values are ASCII in one line"
            )
