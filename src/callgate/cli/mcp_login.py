"""`callgate mcp login` and `logout`: authenticate at remote MCP servers, and delete the stored tokens.

Takes a file with `mcpServers` and a name; adds a token to the token file, or removes it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from callgate.cli.json_input import InputError
from callgate.cli.render import escape, is_terminal
from callgate.errors import UsageError

if TYPE_CHECKING:
    from callgate.mcp import Host, McpServer

__all__ = ["login", "logout"]


@click.command()
@click.argument("file")
@click.argument("name")
def login(file: str, name: str) -> None:
    """Log in at the server NAME of FILE, in a browser. The token is stored and refreshed from then on.

    Exit codes: 0, 1 authentication failed, 2 wrong usage, 42 bad input.
    """
    if not is_terminal(sys.stderr):
        raise click.ClickException("a login needs a person: run this at a terminal")

    from callgate.cli.mcp_prompts import show_login
    from callgate.mcp import Host

    async def show(server: str, url: str) -> None:
        await show_login(lambda line: click.echo(line, err=True), server, url)

    server = _remote(file, name, Host(login=show))
    problem = asyncio.run(_tried(server))
    if problem is not None:
        raise click.ClickException(f"{name}: {escape(problem)}")
    click.echo(f"{name}: works, {len(server.runnables())} tools")


@click.command()
@click.argument("file")
@click.argument("name")
def logout(file: str, name: str) -> None:
    """Forget the token of the server NAME of FILE."""
    from callgate.mcp.tokens import TokenFile

    server = _remote(file, name, None)
    try:
        was_there = TokenFile().forget(server.url or "")
    except UsageError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"{name}: {'forgotten' if was_there else 'there was no login'}")


def _remote(file: str, name: str, host: Host | None) -> McpServer:
    from callgate.mcp import read_servers

    try:
        found = [server for server in read_servers(file, host=host).servers if server.name == name]
    except UsageError as error:
        raise InputError(str(error)) from error
    if not found or found[0].url is None:
        raise InputError(f"{file!r} has no server {name!r} with a url")
    return found[0]


async def _tried(server: McpServer) -> str | None:
    await server.start(server)
    problem = server.problem
    await server.aclose(server)
    return problem
