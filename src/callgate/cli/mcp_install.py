"""`callgate mcp install CLIENT`: our tools in the configuration of another program, with the diff and a way back.

Takes the name of a client and the options of `callgate mcp serve`; changes the client's file. No server is started.
"""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from callgate.cli.json_input import InputError
from callgate.cli.mcp_serve import serve
from callgate.cli.render import escape
from callgate.errors import UsageError
from callgate.types import JsonObject

__all__ = ["install"]

_RECORD = "mcp-installed.json"
"""The file in the state directory that holds what `--undo` puts back."""
_PATHS = frozenset({"root", "mcp", "policy", "audit"})
"""Options of `callgate mcp serve` that name a file or folder; a client starts it somewhere else."""
_MAC, _WINDOWS = "Library/Application Support", "AppData/Roaming"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Client:
    """A program that MCP servers can be installed in."""

    title: str
    home: Mapping[str, str]
    """The platform, or `""` for all others -> its file, from the home directory on."""
    project: str | None = None
    """Its file in a project."""
    key: str = "mcpServers"
    """The key of the servers in the file."""
    url: str | None = "url"
    """The field for the address of a server that runs elsewhere; None if it takes none."""
    has_type: bool = False
    """True if each server names its transport."""

    def file(self, *, is_project: bool) -> Path:
        """Return the client's file.

        Raises:
            UsageError: it has none in a project.
        """
        if is_project:
            if self.project is None:
                raise UsageError(f"{self.title} has no file in a project: leave out --project")
            return Path(self.project)
        if sys.platform.startswith("linux") and (base := os.environ.get("XDG_CONFIG_HOME")):
            found = self.home[""]
            if found.startswith(".config/"):
                return Path(base) / found.removeprefix(".config/")
        return Path.home() / self.home.get(sys.platform, self.home[""])

    def row(self, command: Sequence[str], url: str | None, headers: Mapping[str, str]) -> JsonObject:
        """Return the entry of a server.

        Raises:
            UsageError: the client takes no addresses.
        """
        if url is None:
            kind: JsonObject = {"type": "stdio"} if self.has_type else {}
            return kind | {"command": command[0], "args": list(command[1:])}
        if self.url is None:
            raise UsageError(f"{self.title} starts its servers itself: leave out --url, and name tools after --")
        kind = {"type": "http"} if self.has_type else {}
        return kind | {self.url: url} | ({"headers": dict(headers)} if headers else {})


_DESKTOP = "Claude/claude_desktop_config.json"
CLIENTS: Mapping[str, _Client] = {
    "claude-desktop": _Client(
        title="Claude Desktop", url=None,
        home={"": f".config/{_DESKTOP}", "darwin": f"{_MAC}/{_DESKTOP}", "win32": f"{_WINDOWS}/{_DESKTOP}"},
    ),
    "cursor": _Client(title="Cursor", home={"": ".cursor/mcp.json"}, project=".cursor/mcp.json"),
    "vscode": _Client(
        title="VS Code", key="servers", has_type=True, project=".vscode/mcp.json",
        home={"": ".config/Code/User/mcp.json", "darwin": f"{_MAC}/Code/User/mcp.json",
              "win32": f"{_WINDOWS}/Code/User/mcp.json"},
    ),
    "gemini-cli": _Client(
        title="Gemini CLI", home={"": ".gemini/settings.json"}, project=".gemini/settings.json", url="httpUrl"
    ),
}  # fmt: skip
"""The clients, by their names on the command line."""


@click.command("install", short_help="Add your tools to another program.")
@click.argument("client", type=click.Choice(list(CLIENTS)))
@click.argument("options", nargs=-1, metavar="[-- OPTIONS]")
@click.option("--name", default="callgate", show_default=True, help="The name of the server in the client.")
@click.option("--url", metavar="URL", help="The address of a service that runs, such as http://127.0.0.1:8081/mcp.")
@click.option("--header", multiple=True, metavar="NAME:VALUE", help="Sent with every request to the address; repeatable.")
@click.option("--project", is_flag=True, help="The client's file in the current folder, not the one of the user.")
@click.option("--force", is_flag=True, help="Replace a server of this name.")
@click.option("--dry-run", is_flag=True, help="Show the change, and write nothing.")
@click.option("--undo", is_flag=True, help="Undo the last installation in this client; repeat it for the one before.")
def install(client: str, options: Sequence[str], **given: Any) -> None:
    """Add your tools to the configuration of another program, and print the diff.

    \b
        callgate mcp install cursor -- -T my_tools.py --root docs
        callgate mcp install vscode --project --url http://127.0.0.1:8081/mcp
        callgate mcp install cursor --undo

    OPTIONS are those of `callgate mcp serve`; paths in them become absolute. Exit codes: 0, 2 wrong usage, 42 bad input.
    """
    from callgate.cli.mcp_file import pairs
    from callgate.mcp.edit import with_server

    chosen, name = CLIENTS[client], given["name"]
    try:
        path = chosen.file(is_project=given["project"])
        if given["undo"]:
            _undo(path, is_dry=given["dry_run"])
            return
        if bool(options) == (given["url"] is not None):
            raise click.UsageError("give either options of `callgate mcp serve` after --, or --url")
        if not name.strip():
            raise click.UsageError("--name is empty: give the server a name")
        if not name.isprintable():
            raise click.UsageError(f"--name {name!r}: a name has no control characters")
        if given["url"] is not None and not _is_address(given["url"]):
            raise click.UsageError(f"--url {given['url']!r}: give an http or https address")
        if given["header"] and given["url"] is None:
            raise click.UsageError("--header goes with --url")
        row = chosen.row(_command(options), given["url"], pairs(given["header"], ":", "--header"))
        before, after = _changed(
            path, lambda text: with_server(text, name, row, force=given["force"], key=chosen.key), is_dry=given["dry_run"]
        )
    except UsageError as error:
        raise InputError(str(error)) from error
    if given["dry_run"]:
        return
    if after == before:
        click.echo(f"callgate: {chosen.title} has this server already; nothing was changed", err=True)
        return
    _remember(path, [*_installed(path), {"name": name, "key": chosen.key, "before": before, "after": after}])
    undo = f"callgate mcp install {client}{' --project' if given['project'] else ''} --undo"
    click.echo(f"callgate: restart {chosen.title} to use it; to undo this: {undo}", err=True)


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url
    except ValueError:
        return False


def _command(options: Sequence[str]) -> list[str]:
    """The command that a client starts, with the options of `callgate mcp serve` as they were meant here."""
    words = [sys.executable, "-m", "callgate", "mcp", "serve"]
    context = serve.make_context("serve", list(options))
    for param in serve.params:
        if not isinstance(param, click.Option):
            continue
        if context.get_parameter_source(param.name) is not ParameterSource.COMMANDLINE:
            continue
        value: Any = context.params[param.name]
        option = next((word for word in param.opts if word.startswith("--")), param.opts[0])
        if param.is_flag:
            words.append(option)
            continue
        for one in cast("Sequence[Any]", value) if param.multiple else [value]:
            words += [option, _absolute(param.name, str(one))]
    if context.params.get("http"):
        raise click.UsageError("a client talks to it by its pipes: leave out --http, or name a running one by --url")
    return words


def _absolute(option: str, value: str) -> str:
    if option in _PATHS:
        return os.path.abspath(os.path.expanduser(value))
    if option == "tool":
        file, colon, function = value.rpartition(":")
        file = file if colon and file.endswith(".py") else value
        if file.endswith(".py"):
            path = os.path.abspath(os.path.expanduser(file))
            if not os.path.isfile(path):
                raise click.UsageError(f"-T {value!r}: there is no file {path!r}")
            return path + (f":{function}" if file != value else "")
    return value


# The file ----------------------------------------------------------------------------------------------------------------


def _changed(path: Path, change: Callable[[str], str], *, is_dry: bool) -> tuple[str | None, str]:
    """Change a file and print the diff; return its text before, None if there was none, and after."""
    from callgate.mcp.edit import change_file, file_text

    before = file_text(path)
    after = change(before or "")
    shown = f"{path}" if path.is_absolute() else os.path.join(".", path)
    lines = difflib.unified_diff(
        (before or "").splitlines(), after.splitlines(), "/dev/null" if before is None else shown, shown, n=1, lineterm=""
    )
    click.echo("\n".join(escape(line) for line in lines))
    if not is_dry:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{str(path.parent)!r} cannot be made: {error.strerror or error}") from error
        change_file(path, lambda text: after if text == (before or "") else change(text))
    return before, after


def _undo(path: Path, *, is_dry: bool) -> None:
    """Put back what was there before the last installation in a file.

    A file that nobody has changed since gets its old text, byte for byte; in any other one only the entry is put back. The
    installation before it is then the last one.

    Raises:
        UsageError: nothing was installed there, or the entry is gone.
    """
    from callgate.mcp.edit import ServerMissingError, with_server, without_server

    installed = _installed(path)
    if not installed:
        raise UsageError(f"callgate has installed nothing in {str(path)!r}")
    *rest, entry = installed
    before: str | None = entry["before"]

    def change(text: str) -> str:
        if text == entry["after"]:
            return before or ""
        servers: Any = json.loads((before or "").strip() or "{}").get(entry["key"]) or {}
        if entry["name"] in servers:
            return with_server(text, entry["name"], servers[entry["name"]], force=True, key=entry["key"])
        return without_server(text, entry["name"], key=entry["key"])[0]

    try:
        _, after = _changed(path, change, is_dry=is_dry)
    except ServerMissingError:
        if not is_dry:
            _remember(path, rest)  # Somebody took it back by hand.
        raise
    if is_dry:
        return
    if before is None and not after:
        path.unlink()
    _remember(path, rest)


def _record_file() -> Path:
    from callgate.cli.state import state_dir

    return Path(state_dir()) / _RECORD


def _records() -> JsonObject:
    try:
        found: Any = json.loads(_record_file().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("JsonObject", found) if isinstance(found, dict) else {}


def _installed(path: Path) -> list[JsonObject]:
    """The changes of the installations in a file, the oldest first."""
    found = _records().get(str(path.absolute()))
    return cast("list[JsonObject]", found) if isinstance(found, list) else []


def _remember(path: Path, installed: Sequence[JsonObject]) -> None:
    """Keep what the installations in a file changed, for its owner alone."""
    from callgate.config.trust_store import write_atomically

    records = {key: value for key, value in _records().items() if key != str(path.absolute())}
    if installed:
        records[str(path.absolute())] = [*installed]
    try:
        write_atomically(_record_file(), json.dumps(records, indent=2) + "\n")
    except OSError as error:
        click.echo(f"callgate: --undo will not work: {_record_file()} cannot be written: {error.strerror}", err=True)
