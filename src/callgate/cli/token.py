"""`callgate token`: named tokens for the access file of `callgate serve`.

A name comes in; a new token goes out to stdout, once, and its hash into the file. Nobody can read a token from the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import click

from callgate.cli.json_input import InputError
from callgate.errors import UsageError

__all__ = ["token"]

RIGHTS = ("chat", "approve", "admin")


@click.group()
def token() -> None:
    """Make and revoke named tokens for `callgate serve --access FILE`, which reads the file again when it changes."""


@token.command("new", short_help="Make a token.")
@click.argument("name")
@click.option("--file", "path", required=True, metavar="FILE", help="The access file; it is created if it does not exist.")
@click.option(
    "--right", "rights", type=click.Choice(RIGHTS), multiple=True, help="chat (default), approve, admin; repeatable."
)
@click.option("--owner", metavar="NAME", help="The owner of its sessions; several tokens may share one.")
def new(name: str, path: str, rights: tuple[str, ...], owner: str | None) -> None:
    """Make a token, print it, and add its hash to the access file."""
    from callgate.server.access_file import NAME, AccessFile, new_token

    if not NAME.fullmatch(name) or (owner is not None and not NAME.fullmatch(owner)):
        raise click.UsageError("a name has letters, digits and any of . _ @ + -")
    before = _read(path)
    if _section(name).search(before):
        raise InputError(f"{path} has a token {name!r} already; revoke it first: callgate token revoke {name}")
    made, digest = new_token()
    listed = ", ".join(f'"{right}"' for right in rights or ("chat",))
    lines = [f'[tokens."{name}"]', f'sha256 = "{digest}"', f"rights = [{listed}]"]
    lines += [f'owner = "{owner}"'] if owner is not None else []
    _write(path, f"{before.rstrip()}\n\n".lstrip() + "\n".join(lines) + "\n", check=AccessFile)
    click.echo(made)


@token.command("revoke", short_help="Remove a token.")
@click.argument("name")
@click.option("--file", "path", required=True, metavar="FILE", help="The access file.")
def revoke(name: str, path: str) -> None:
    """Remove a token from the access file; running services refuse it within a second."""
    before = _read(path)
    after = _section(name).sub("", before)
    if after == before:
        raise InputError(f"{path} has no token {name!r}")
    _write(path, after.lstrip())


@token.command("list", short_help="List the tokens.")
@click.option("--file", "path", required=True, metavar="FILE", help="The access file.")
def listed(path: str) -> None:
    """List names, rights and owners."""
    import tomllib

    try:
        found = tomllib.loads(_read(path)).get("tokens", {})
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not valid TOML: {error}") from error
    for name, fields in found.items():
        click.echo(f"{name}  {','.join(fields.get('rights', ['chat']))}  owner {fields.get('owner', name)}")


def _section(name: str) -> re.Pattern[str]:
    words = re.escape(name)
    return re.compile(rf"^\[tokens\.(?:\"{words}\"|'{words}'|{words})\]\n(?:(?!\[).*\n?)*", re.MULTILINE)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        if os.path.islink(path):
            message = f"{path} is a link to {os.readlink(path)!r}, which is not there: make that file, or remove the link"
            raise InputError(message) from None
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _write(path: str, text: str, check: Callable[[str], object] = str) -> None:
    """Replace the file at once, readable by its owner alone, if the check finds nothing wrong with the new one."""
    place = os.path.realpath(path)  # A link stays one.
    new_path = f"{place}.new"
    try:
        with os.fdopen(os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            check(new_path)
        except UsageError as error:
            os.unlink(new_path)
            raise InputError(f"{path} was not changed: {str(error).replace(new_path, path)}") from error
        os.replace(new_path, place)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error}") from error
