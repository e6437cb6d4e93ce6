"""The tools of a command line: what its options name, in, objects that a gate takes, out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from callgate.cli.tools import file_tools, load_tools

__all__ = ["gather_tools", "mcp_servers"]

Say = Callable[[str], None]


def gather_tools(
    tool: Sequence[str], *, root: str | None, mcp: Sequence[str], unnamed: Sequence[object], here: bool, say: Say
) -> list[object]:
    """Functions, file tools and MCP servers; `unnamed` are the functions when neither functions nor servers are named.

    With `here` the file tools work in the current folder when nobody named anything.

    Raises:
        ToolLoadError: a function cannot be loaded.
        UsageError: the folder or a file of servers cannot be used.
    """
    servers = mcp_servers(mcp, say)
    named = load_tools(tool) if tool else [] if servers else list(unnamed)
    files = file_tools(root, [*tool, *mcp]) if here or root is not None else []
    return [*named, *files, *servers]


def mcp_servers(files: Sequence[str], say: Say) -> list[object]:
    """The servers of the files; what is not understood in them is said, and harms nobody else."""
    if not files:
        return []
    from callgate.mcp import read_servers

    read = [read_servers(file) for file in files]
    for sentence in (sentence for one in read for sentence in one.warnings):
        say(sentence)
    return [server for one in read for server in one.servers]
