"""`callgate mcp add` and `callgate mcp remove`: edit the file of MCP servers.

Takes arguments, changes the file, prints what was done. No server is started.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click

from callgate.cli.json_input import InputError
from callgate.cli.render import escape
from callgate.errors import UsageError
from callgate.types import JsonObject

__all__ = ["add_server", "default_file", "pairs", "remove_server"]

FILES = ("mcp.json", ".mcp.json")
"""The default files: the first of these in the current folder, or else a new one."""

_FILE = click.option(
    "--file", metavar="FILE", help="The file with mcpServers; without it mcp.json or .mcp.json in the current folder."
)
_VARIABLE = re.compile(r"\$\{?[A-Za-z_]")


@click.command("add", short_help="Add a server to a file.", context_settings={"ignore_unknown_options": False})
@click.argument("name")
@click.argument("command", nargs=-1)
@click.option("--url", metavar="URL", help="The URL of a remote server, instead of a command.")
@click.option(
    "--card",
    metavar="URL",
    help="The server card of a remote server, or the site whose catalog names one, to read the URL from.",
)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="A variable for the command; repeatable.")
@click.option("--header", multiple=True, metavar="NAME:VALUE", help="Sent with every request to the address; repeatable.")
@click.option("--sse", is_flag=True, help="The URL is that of an older server that uses the HTTP+SSE transport.")
@click.option("--force", is_flag=True, help="Replace a server of this name.")
@_FILE
def add_server(
    name: str, command: Sequence[str], url: str | None, env: Sequence[str], header: Sequence[str], **more: Any
) -> None:
    """Add the server NAME to a file, as a COMMAND to run or as a URL.

    \b
        callgate mcp add git -- uvx mcp-server-git
        callgate mcp add docs --url https://example.com/mcp --header 'Authorization: Bearer $DOCS_TOKEN'
        callgate mcp add docs --card https://example.com

    The rest of the file is unchanged. Exit codes: 0, 2 wrong usage, 42 bad input.
    """
    from callgate.mcp.edit import change_file, with_server

    if (bool(command), url is not None, more["card"] is not None).count(True) != 1:
        raise click.UsageError("give either a command after --, or --url, or --card")
    if more["card"] is not None and (env or more["sse"]):
        raise click.UsageError("--env goes with a command, --sse with --url")
    if (command and (header or more["sse"])) or (url is not None and env):
        raise click.UsageError("--env goes with a command, --header and --sse with --url")
    variables, headers = pairs(env, "=", "--env"), pairs(header, ":", "--header")
    row: JsonObject = {"command": command[0], "args": list(command[1:])} if command else _address(url or "", more["sse"])
    unset: list[str] = []
    if more["card"] is not None:
        row, unset = _described(name, more["card"])
        url, headers = row["url"], row.pop("headers", {}) | headers
    row |= ({"env": variables} if variables else {}) | ({"headers": headers} if headers else {})
    path = _file(more["file"])
    try:
        _check(name, command, url)
        change_file(path, lambda text: with_server(text, name, row, force=more["force"]))
    except UsageError as error:
        raise InputError(str(error)) from error
    place = escape(str(path))
    click.echo(f"{escape(name)} was added to {place}; to try it: callgate mcp test {place} {escape(name)}")
    if unset:
        click.echo(f"callgate: set {', '.join(unset)} before you use it: its card requires them", err=True)
    for where, secret in _secrets(command, url, variables, headers):
        click.echo(
            f"callgate: {where} looks like a secret, and stands in the file as it is: "
            f"write '${_variable(secret)}' instead, and set that variable",
            err=True,
        )


@click.command("remove", short_help="Remove a server from a file.")
@click.argument("name")
@_FILE
def remove_server(name: str, file: str | None) -> None:
    """Remove the server NAME from a file, and print what was removed, so that it can be put back.

    Exit codes: 0, 2 wrong usage, 42 bad input.
    """
    from callgate.mcp.edit import change_file, without_server

    path = _file(file)
    removed: JsonObject = {}

    def change(text: str) -> str:
        after, removed[name] = without_server(text, name)
        return after

    if not path.exists():
        raise InputError(f"there is no file {str(path)!r}")
    try:
        change_file(path, change)
    except UsageError as error:
        raise InputError(str(error)) from error
    click.echo(json.dumps({"mcpServers": removed}, indent=2))
    click.echo(f"callgate: {escape(name)} is removed from {escape(str(path))}; the lines above restore it", err=True)


def _file(named: str | None) -> Path:
    if named is not None:
        return Path(named)
    return Path(default_file())


def default_file() -> str:
    """The file of servers in the current folder; `mcp.json` if there is none yet."""
    return next((name for name in FILES if Path(name).exists()), FILES[0])


def _check(name: str, command: Sequence[str], url: str | None) -> None:
    from callgate.mcp import McpServer

    # A variable in an address is filled in later, so its value cannot be judged now.
    if url is None or not _VARIABLE.search(url):
        McpServer(name, command=list(command) or None, url=url)


def _described(name: str, url: str) -> tuple[JsonObject, list[str]]:
    """The entry of a server by its card, and the variables that it needs. What the card says of itself is printed."""
    import asyncio

    from callgate.mcp.server_card import read_card

    try:
        card = asyncio.run(read_card(url))
    except UsageError as error:
        raise InputError(str(error)) from error
    click.echo(f"{escape(card.name)} {escape(card.version)} says of itself: {escape(card.description)}", err=True)
    return card.entry(name)


def _address(url: str, is_old: bool) -> JsonObject:
    return {"type": "sse" if is_old else "http", "url": url}


def pairs(given: Sequence[str], sign: str, option: str) -> dict[str, str]:
    """Read the values of a repeatable option, each as NAME, a sign and VALUE.

    Raises:
        click.UsageError: one has another form.
    """
    found_pairs: dict[str, str] = {}
    for text in given:
        name, found, value = text.partition(sign)
        if not found or not name.strip():
            raise click.UsageError(f"{option} {text!r}: write it as NAME{sign}VALUE")
        if sign == ":" and not text.isprintable():
            raise click.UsageError(f"{option} {text!r}: a header is one line of printable text")
        found_pairs[name.strip()] = value.strip() if sign == ":" else value
    return found_pairs


def _secrets(
    command: Sequence[str], url: str | None, variables: dict[str, str], headers: dict[str, str]
) -> list[tuple[str, str]]:
    """Secrets that should not be in a file: where each is, and a name for it."""
    found = [(f"the variable {name}", name) for name, value in variables.items() if _is_secret(name, value)]
    found += [(f"the header {name}", name) for name, value in headers.items() if _is_secret(name, value)]
    found += [("an argument of the command", "TOKEN") for word in command if _is_secret("", word)][:1]
    parts = urlsplit(url or "")
    if (parts.password or _is_secret("", url or "")) and not _VARIABLE.search(url or ""):
        found.append(("the address", "TOKEN"))
    return found


def _is_secret(name: str, value: str) -> bool:
    from callgate.permission.redact import Redactor, is_secret_name

    if not value or _VARIABLE.search(value):
        return False
    return is_secret_name(name) or Redactor().text(value) != value


def _variable(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper() or "TOKEN"
