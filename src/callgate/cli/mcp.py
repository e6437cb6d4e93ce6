"""`callgate mcp`: list and test MCP servers.

Takes a file with `mcpServers`; prints lines, or JSON for programs. `list` starts nothing; `test` starts every server,
lists its tools and stops it again. No tool is called. `mcp_file.py` edits the file, `mcp_serve.py` serves our own tools.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from callgate.cli.convert import echo_json
from callgate.cli.json_input import InputError
from callgate.cli.mcp_file import add_server, default_file, remove_server
from callgate.cli.mcp_install import install
from callgate.cli.mcp_login import login, logout
from callgate.cli.mcp_serve import serve
from callgate.cli.render import escape
from callgate.cli.style import counted, echo, marks_of
from callgate.errors import UsageError
from callgate.types import JsonObject

if TYPE_CHECKING:
    from callgate.mcp import McpServer, ServersFile
    from callgate.mcp.lock import Pins

__all__ = ["OWN_TOOLS", "mcp"]

OWN_TOOLS = (
    "list_files",
    "read_file",
    "read_files",
    "write_file",
    "edit_file",
    "search_files",
    "run_command",
    "find_tools",
    "read_result",
)
"""Names of callgate's own tools, which a server's should not be taken for."""

_OUTPUT = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Lines, or one JSON object."
)


@click.group()
def mcp() -> None:
    """List, test and edit MCP servers, and serve your tools as one."""


for _command in (add_server, remove_server, serve, install):
    mcp.add_command(_command)


mcp.add_command(login)
mcp.add_command(logout)


@mcp.command("list", short_help="List the servers of a file.")
@click.argument("file", required=False)
@_OUTPUT
def list_servers(file: str | None, output: str) -> None:
    """List the servers of FILE (mcp.json or .mcp.json unless given), and what is wrong with it. Starts nothing."""
    read = _read(file or default_file())
    from callgate.permission.redact import Redactor

    shown = Redactor().text
    rows: list[JsonObject] = [{"name": server.name, "where": shown(server.where)} for server in read.servers]
    if output == "json":
        echo_json({"servers": rows, "disabled": read.disabled, "warnings": read.warnings})
        return
    for row in rows:
        click.echo(f"{row['name']}  {escape(row['where'])}")
    for name in read.disabled:
        click.echo(f"{escape(name)}  disabled")
    _warn(read)


@mcp.command("test", short_help="Start servers, and print their tools.")
@click.argument("file", required=False)
@click.argument("name", required=False)
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds for each server to start, if its entry does not give it longer.",
)
@_OUTPUT
@click.pass_context
def test_servers(ctx: click.Context, file: str | None, name: str | None, wait_s: float, output: str) -> None:
    """Start the servers of FILE, or the one called NAME, and print their tools or why they do not start.

    Without FILE those of mcp.json or .mcp.json; a single argument that is not a file is then a NAME.

    Exit codes: 0, 1 a server does not work, 2 wrong usage, 42 bad input.
    """
    if file is not None and name is None and not os.path.exists(file) and not file.endswith(".json"):
        file, name = None, file
    file = file or default_file()
    read = _read(file)
    servers = [server for server in read.servers if name in (None, server.name)]
    if name is not None and not servers:
        raise InputError(f"{file!r} has no server {name!r} that can be started")
    rows, alike = asyncio.run(_tested(servers, wait_s))
    if output == "json":
        echo_json({"servers": rows, "warnings": read.warnings, "look_alikes": alike})
    else:
        for row in rows:
            _show(row)
        for sentence in alike:
            click.echo(f"! {escape(sentence)}")
        _warn(read)
    ctx.exit(1 if any(row["problem"] for row in rows) or (name is None and read.warnings) else 0)


@mcp.command("lock", short_help="Accept the tools of servers as they are now.")
@click.argument("file", required=False)
@click.argument("name", required=False)
@click.option("--check", is_flag=True, help="Change nothing; the exit code is 1 if something is not as it was accepted.")
@click.option(
    "--wait", "wait_s", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True,
    help="Seconds for each server to start, if its entry does not give it longer.",
)  # fmt: skip
@click.pass_context
def lock_servers(ctx: click.Context, file: str | None, name: str | None, check: bool, wait_s: float) -> None:
    """Accept the tools of the servers of FILE as they are now, or of the one called NAME, in a lock file beside it.

    From then on a tool that is new or has changed is left out until it is accepted again. The names of tools that differ are
    printed. mcp.lock belongs to mcp.json, and can be shared with it.

    Exit codes: 0, 1 a server does not work, or with --check something differs, 2 wrong usage, 42 bad input.
    """
    from callgate.mcp.lock import LockFile, Pins, differences, lock_beside

    if file is not None and name is None and not os.path.exists(file) and not file.endswith(".json"):
        file, name = None, file
    file = file or default_file()
    read = _read(file)
    servers = [server for server in read.servers if name in (None, server.name)]
    if name is not None and not servers:
        raise InputError(f"{file!r} has no server {name!r} that can be started")
    known = [*read.disabled, *(server.name for server in read.servers)]
    lock, accepted, failed = LockFile(lock_beside(file)), dict[str, Pins](), False
    try:
        for server, (pins, problem) in zip(servers, asyncio.run(_pinned(servers, wait_s)), strict=True):
            if pins is None:
                failed = True
                echo([(f"{marks_of(sys.stdout)['failed']} {server.name}", "failed"), (f"  {problem}", None)])
                continue
            before = lock.read(server.name) if lock.path.exists() else None
            differing = ["it was not accepted before"] if before is None else differences(before, pins)
            failed |= check and bool(differing)
            accepted[server.name] = pins
            said = escape("; ".join(differing)) or "as it was accepted"
            click.echo(f"{escape(server.name)}  {counted(len(pins.tools), 'tool')}: {said}")
        if not check and accepted:
            lock.write(accepted, keep=known if name is None and not read.warnings else None)
    except UsageError as error:
        raise InputError(str(error)) from error
    _warn(read)
    ctx.exit(1 if failed else 0)


async def _pinned(servers: list[McpServer], wait_s: float) -> list[tuple[Pins | None, str | None]]:
    async def of(server: McpServer) -> tuple[Pins | None, str | None]:
        server.start_s = max(server.start_s, wait_s)
        await server.start(server)
        try:
            return (server.pins(), None) if server.problem is None else (None, server.problem)
        finally:
            await server.aclose(server)

    return list(await asyncio.gather(*map(of, servers)))


def _read(file: str) -> ServersFile:
    from callgate.mcp import read_servers

    try:
        return read_servers(file)
    except UsageError as error:
        raise InputError(str(error)) from error


async def _tested(servers: list[McpServer], wait_s: float) -> tuple[list[JsonObject], list[str]]:
    from callgate.tools.confusable_names import look_alikes

    rows = list(await asyncio.gather(*(_one_tested(server, wait_s) for server in servers)))
    own = [(name, None) for name in OWN_TOOLS]
    named = [(tool["name"], row["name"]) for row in rows for tool in row["tools"]]
    return rows, [str(pair) for pair in look_alikes([*own, *named])]


async def _one_tested(server: McpServer, wait_s: float) -> JsonObject:
    server.start_s = max(server.start_s, wait_s)
    await server.start(server)
    try:
        return {
            "name": server.name,
            "problem": server.problem,
            "tools": [_tool_row(tool.definition) for tool in server.runnables()],
            "remarks": list(server.left_out),
        }
    finally:
        await server.aclose(server)


def _tool_row(definition: Any) -> JsonObject:
    from callgate.declaration import declare

    declaration = declare([definition])
    return {
        "name": definition.name,
        "description": definition.description,
        "problem": next(iter(declaration.quarantined.values()), None),
        "losses": len(declaration.losses),
    }


def _show(row: JsonObject) -> None:
    marks = marks_of(sys.stdout)
    if row["problem"]:
        echo([(f"{marks['failed']} {row['name']}", "failed"), (f"  {row['problem']}", None)])
        return
    echo([(f"{marks['done']} {row['name']}", "done"), (f"  {counted(len(row['tools']), 'tool')}", None)])
    for tool in row["tools"]:
        first = " ".join(tool["description"].split())[:80]
        echo(f"    {tool['name']}  {tool['problem'] or first}".rstrip(), indent=8)
    for remark in row["remarks"]:
        echo(f"    {remark}", "quiet", indent=4)


def _warn(read: ServersFile) -> None:
    for sentence in read.warnings:
        click.echo(f"callgate: {escape(sentence)}", err=True)
