"""Resources and prompts of MCP servers in a conversation: `/mcp read`, `/mcp ask`, `/SERVER:PROMPT` and `@SERVER:URI`.

Takes what the user typed; shows a resource, sends a prompt, or returns the resources that a text mentions, labelled as data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from callgate.cli.escaping import visible
from callgate.cli.stdin import labelled
from callgate.cli.style import MARK
from callgate.errors import ToolError, UsageError
from callgate.types import Media

if TYPE_CHECKING:
    from callgate.cli.command_context import CommandContext
    from callgate.mcp import McpServer

__all__ = ["ask_typed_prompt", "mentioned_resources", "use_server"]

RESULT_LINES_MAX = 2_000
_ENDING = re.compile(r"[.,;:!?)\]}']+$")


def use_server(context: CommandContext, words: Sequence[str]) -> None:
    """`read SERVER URI` shows a resource; `ask SERVER PROMPT KEY=VALUE ...` asks a prompt of the server's."""
    verb, name, what, *given = [*words, "", "", ""]
    if verb not in ("read", "ask") or not what:
        raise UsageError("/mcp takes nothing, `read SERVER ADDRESS`, or `ask SERVER PROMPT KEY=VALUE ...`")
    server = _server(context, name)
    if server is None:
        known = ", ".join(one.name for one in context.chat.servers)
        raise UsageError(f"there is no MCP server {name!r}; there are {known}")
    if verb == "ask":
        _ask(context, server, what, [word for word in given if word])
        return
    for part in _read(context, server, what):
        text = part if isinstance(part, str) else f"({part.mime_type}, {len(part.data):,} bytes)"
        for line in text.splitlines()[:RESULT_LINES_MAX]:
            context.say(MARK + visible(line))


def ask_typed_prompt(context: CommandContext, command: str, words: Sequence[str]) -> bool:
    """`/SERVER:PROMPT VALUE KEY=VALUE ...`: ask the prompt; return False if there is no such server."""
    name, colon, what = command.removeprefix("/").partition(":")
    server = _server(context, name)
    if server is None or not colon or not what:
        return False
    context.chat.start_servers()
    _ask(context, server, what, words)
    return True


def mentioned_resources(context: CommandContext, names: Sequence[str]) -> dict[str, list[str | Media]]:
    """The contents of what is mentioned as `SERVER:URI`, by the mention.

    Raises:
        UsageError: a server does not have such a resource, or cannot be asked.
    """
    found: dict[str, list[str | Media]] = {}
    for mention in names:
        name, _, uri = mention.partition(":")
        server = _server(context, name)
        if server is None or not uri:
            continue
        context.chat.start_servers()
        try:
            parts = _read(context, server, uri)
        except ToolError:
            if (shorter := _ENDING.sub("", uri)) in (uri, ""):
                raise
            uri, parts = shorter, _read(context, server, shorter)
        source = f"the resource {uri!r} of the MCP server {name!r}"
        found[mention] = [labelled(part, source) if isinstance(part, str) else part for part in parts]
    return found


def _server(context: CommandContext, name: str) -> McpServer | None:
    return next((one for one in context.chat.servers if one.name == name), None)


def _read(context: CommandContext, server: McpServer, uri: str) -> list[Any]:
    read = context.chat.run(server.read_resource(uri))
    return cast("list[Any]", read) if isinstance(read, list) else [read]


def _ask(context: CommandContext, server: McpServer, prompt: str, words: Sequence[str]) -> None:
    args = _args(context, server, prompt, words)
    context.leaves = not context.exchange(context.chat.run(server.get_prompt(prompt, args)))


def _args(context: CommandContext, server: McpServer, prompt: str, words: Sequence[str]) -> Mapping[str, str]:
    """The arguments of a prompt: by their names, and the others in the order in which the server lists them."""
    listed = next((one for one in context.chat.run(server.prompts()) if one.name == prompt), None)
    if listed is None:
        raise UsageError(f"the MCP server {server.name!r} has no prompt {prompt!r}; /mcp lists what it has")
    names = [argument.name for argument in listed.arguments]
    pairs = [word.partition("=") for word in words]
    args = {key: value for key, sign, value in pairs if sign and key in names}
    others = [word for word, (key, sign, _) in zip(words, pairs, strict=True) if not sign or key not in names]
    free = [name for name in names if name not in args]
    if len(others) > len(free):
        takes = " ".join(f"{name}=..." for name in names) or "no arguments"
        raise UsageError(f"the prompt {prompt!r} takes {takes}; {visible(others[len(free)])!r} is one too many")
    return {**args, **dict(zip(free, others, strict=False))}
