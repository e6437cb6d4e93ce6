"""`callgate mcp login` and `logout`: authenticate at remote MCP servers, and delete the stored tokens.

Takes a file with `mcpServers` and a name; adds a token to the token file, or removes it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from callgate.cli.json_input import InputError
from callgate.cli.mcp_file import default_file
from callgate.cli.render import escape, is_terminal
from callgate.errors import UsageError

if TYPE_CHECKING:
    from callgate.mcp import Host, McpServer

__all__ = ["login", "logout"]


@click.command(short_help="Log in at a server.")
@click.argument("file", required=False)
@click.argument("name", required=False)
def login(file: str | None, name: str | None) -> None:
    """Log in at the server NAME of FILE (mcp.json or .mcp.json unless given), in a browser.

    The token is stored and refreshed from then on.

    Exit codes: 0, 1 authentication failed, 2 wrong usage, 42 bad input.
    """
    if not is_terminal(sys.stderr):
        raise click.ClickException("a login needs a person: run this at a terminal")

    from callgate.cli.mcp_prompts import show_login
    from callgate.mcp import Host

    async def show(server: str, url: str) -> None:
        await show_login(lambda line: click.echo(line, err=True), server, url)

    server, name = _remote(file, name, Host(login=show))
    problem = asyncio.run(_tried(server))
    if problem is not None:
        raise click.ClickException(f"{name}: {escape(problem)}")
    click.echo(f"{name}: works, {len(server.runnables())} tools")


@click.command(short_help="Delete the token of a server.")
@click.argument("file", required=False)
@click.argument("name", required=False)
def logout(file: str | None, name: str | None) -> None:
    """Delete the token of the server NAME of FILE (mcp.json or .mcp.json unless given)."""
    from callgate.mcp.tokens import TokenFile

    server, name = _remote(file, name, None)
    try:
        was_there = TokenFile().forget(server.url or "")
    except UsageError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{name}: {'token deleted' if was_there else 'there was no login'}")


def _remote(file: str | None, name: str | None, host: Host | None) -> tuple[McpServer, str]:
    """Return the server of that name; a single argument is the name."""
    from callgate.mcp import read_servers

    if name is None:
        file, name = None, file
    if name is None:
        raise click.UsageError("name the server, as in `callgate mcp login NAME`")
    file = file or default_file()
    try:
        read = read_servers(file, host=host)
    except UsageError as error:
        raise InputError(str(error)) from error
    found = [server for server in read.servers if server.name == name]
    if not found and (left_out := [one for one in read.warnings if one.startswith(f"MCP server {name!r} was left out")]):
        raise InputError(left_out[0])
    if not found or found[0].url is None:
        raise InputError(f"{file!r} has no server {name!r} with a url")
    return found[0], name


async def _tried(server: McpServer) -> str | None:
    await server.start(server)
    problem = server.problem
    await server.aclose(server)
    return problem
