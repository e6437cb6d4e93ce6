"""`callgate config`: effective settings, where they come from, and the files that hold them.

Takes keys and values; prints tables or JSON, and changes files. Secrets are never shown. `callgate.config` defines the
settings.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from callgate.cli.convert import echo_json
from callgate.cli.json_input import InputError
from callgate.cli.render import escape, one_line
from callgate.cli.settings import settings_here
from callgate.config import (
    SETTINGS,
    ConfigError,
    Settings,
    config_file,
    is_trusted,
    load_settings,
    masked,
    parsed_text,
    project_file,
    setting_of,
    trust,
    trusted_folders,
    untrust,
    with_value,
    without_value,
    write_atomically,
)
from callgate.config.places import PROJECT_NAMES
from callgate.config.values import fitting
from callgate.errors import UsageError
from callgate.types import JsonObject

__all__ = ["config"]

VALUE_CHARS_MAX = 60

_project = click.option("--project", "in_project", is_flag=True, help="Use the file of the project instead of yours.")


@click.group(invoke_without_command=True)
@click.pass_context
def config(ctx: click.Context) -> None:
    """Show and change settings; without a command, show them.

    Precedence: flag > environment > project file > user file > default.

    Exit codes: 0, 1 an error, 2 wrong usage, 42 a wrong key or value.
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(show)


@config.command("show")
@click.option("--all", "everything", is_flag=True, help="Include limits, and settings without a value.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="A table, or JSON.")
def show(*, everything: bool, output: str) -> None:
    """Show every effective setting and its source; secrets are masked."""
    settings = settings_here()
    if output == "json":
        echo_json(_as_json(settings))
        return
    rows = [
        (key, _shown(key, settings), _origin(settings, key))
        for key in SETTINGS
        if everything
        or settings.values[key].source != "default"
        or (settings[key] not in (None, (), {}) and not key.startswith("limits."))
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for key, value, origin in rows:
        click.echo(f"{key:<{widths[0]}}  {value:<{widths[1]}}  {origin}")
    if not everything:
        left_out = len(SETTINGS) - len(rows)
        click.echo(f"({left_out} more settings have no value or are limits at their default; --all lists them)")
    for notice in settings.notices:
        click.echo(f"callgate: {escape(notice)}", err=True)


def _as_json(settings: Settings) -> JsonObject:
    return {
        "settings": {
            key: {"value": masked(SETTINGS[key], found.value), "source": found.source, "where": found.where}
            for key, found in settings.values.items()
        },
        "user_file": str(settings.user_file),
        "project_file": None if settings.project_file is None else str(settings.project_file),
        "is_trusted": settings.is_trusted,
        "notices": list(settings.notices),
    }


def _shown(key: str, settings: Settings) -> str:
    value = masked(SETTINGS[key], settings[key])
    return one_line("-" if value in (None, ()) else _written(value), VALUE_CHARS_MAX)


def _written(value: Any) -> str:
    return value if isinstance(value, str) else str(list(value) if isinstance(value, tuple) else value)  # pyright: ignore[reportUnknownArgumentType]


def _origin(settings: Settings, key: str) -> str:
    found = settings.values[key]
    return found.source if not found.where else f"{found.source}: {escape(found.where)}"


@config.command("path")
def path() -> None:
    """Print the paths of your settings file and of the project's."""
    click.echo(f"user     {escape(str(config_file(os.environ)))}")
    found = project_file(Path.cwd())
    if found is None:
        click.echo(f"project  none ({' or '.join(PROJECT_NAMES)} in this folder)")
    else:
        state = "trusted" if is_trusted(found.parent, os.environ) else "not trusted, so it is not read"
        click.echo(f"project  {escape(str(found))} ({state})")


@config.command("get")
@click.argument("key")
def get(key: str) -> None:
    """Print the value of KEY, or nothing if it has none."""
    _known(key)
    settings = settings_here()
    value = masked(SETTINGS[key], settings[key])
    if isinstance(value, (tuple, dict)):
        echo_json(value)
    elif value is not None:
        click.echo(escape(str(value).lower() if isinstance(value, bool) else str(value)))


@config.command("set")
@click.argument("key")
@click.argument("value")
@_project
def set_value(key: str, value: str, *, in_project: bool) -> None:
    """Set KEY to VALUE in your file; comments are preserved."""
    setting = _known(key)
    if setting.secret:
        raise click.UsageError(f"{key} is a secret, and others can see a command line: write it into the file yourself")
    fitted, problem = fitting(setting, parsed_text(setting, value))
    if problem is not None:
        raise InputError(f"{key} {problem}")
    if in_project and setting.project == "no":
        raise InputError(f"a project's file cannot set {key}: set it in your own")
    _change(in_project, lambda text: with_value(text, key, fitted))


@config.command("unset")
@click.argument("key")
@_project
def unset(key: str, *, in_project: bool) -> None:
    """Remove KEY from your file."""
    _known(key)
    _change(in_project, lambda text: without_value(text, key))


@config.command("trust", short_help="Trust the settings file of a project.")
@click.argument("folder", required=False)
def trust_folder(folder: str | None) -> None:
    """Trust the settings file of the project in FOLDER (default: this one)."""
    chosen = _project_folder(folder)
    try:
        click.echo(f"{escape(trust(chosen, os.environ))} is trusted: its project file is read from now on")
    except OSError as error:
        raise click.ClickException(f"the list of trusted folders cannot be written: {error.strerror or error}") from error


@config.command("untrust")
@click.argument("folder", required=False)
@click.option("--list", "listed", is_flag=True, help="Only list the trusted folders.")
def untrust_folder(folder: str | None, *, listed: bool) -> None:
    """Stop trusting the settings file of the project in FOLDER."""
    if listed:
        for one in trusted_folders(os.environ):
            click.echo(escape(one))
        return
    chosen = _project_folder(folder)
    try:
        was = untrust(chosen, os.environ)
    except OSError as error:
        raise click.ClickException(f"the list of trusted folders cannot be written: {error.strerror or error}") from error
    click.echo(f"{escape(str(chosen))} {'is not trusted any more' if was else 'was not trusted'}")


def _project_folder(folder: str | None) -> Path:
    if folder is not None:
        if not os.path.isdir(folder):
            raise InputError(f"{folder!r} is not a folder")
        return Path(os.path.realpath(folder))
    found = project_file(Path.cwd())
    return Path.cwd() if found is None else found.parent


def _known(key: str) -> Any:
    try:
        return setting_of(key)
    except KeyError as error:
        raise InputError(str(error.args[0])) from None


def _change(in_project: bool, change: Callable[[str], str]) -> None:
    of_project = project_file(Path.cwd()) or Path.cwd() / PROJECT_NAMES[0]
    file = of_project if in_project else config_file(os.environ)
    was_trusted = in_project and is_trusted(file.parent, os.environ)
    try:
        text = file.read_text("utf-8") if file.exists() else ""
        write_atomically(file, change(text))
        if was_trusted:
            trust(file.parent, os.environ)  # It is the user who changed it.
        load_settings(os.environ)
    except ConfigError as error:
        click.echo(f"callgate: {escape(str(error))}", err=True)
    except (UsageError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: {error}") from error
    except OSError as error:
        raise click.ClickException(f"{file} cannot be written: {error.strerror or error}") from error
    click.echo(f"{escape(str(file))}: written")
    if in_project and not is_trusted(file.parent, os.environ):
        click.echo("callgate: its folder is not trusted, so it is not read; run `callgate config trust`", err=True)
