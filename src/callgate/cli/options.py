"""The options of a chat: flags, their choices, and the object they become.

Turns click's values into one frozen `Options`. Other sources of settings (files, the environment) fill in `given` before
`options_of` is called; later code looks nowhere else. Imports nothing slow, because help and shell completion need it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

if TYPE_CHECKING:
    from callgate.config import Settings

__all__ = [
    "API_NAMES", "APPROVAL_MODES", "CALL_MODES", "OUTPUTS", "PROVIDER_NAMES", "SECONDS", "Options", "options_of",
    "session_options", "set_option", "store_option", "workers_option",
]  # fmt: skip


class _Seconds(click.FloatRange):
    """Seconds from 0 on. Python reads `inf` and `nan` as numbers, and no wait ends or begins with them."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        return found


SECONDS = _Seconds(0)

F = TypeVar("F", bound="Callable[..., Any]")

# Here once more, so that help needs no import of what they belong to; a test compares.
PROVIDER_NAMES = ("demo", "gemini", "openai", "openai-responses", "anthropic", "embedded")
API_NAMES = ("generateContent", "interactions")
CALL_MODES = ("auto", "native", "prompted")
APPROVAL_MODES = ("default", "auto_edit", "yolo", "plan")
OUTPUTS = ("text", "json", "stream-json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a chat."""

    prompt: str | None = None
    tool: tuple[str, ...] = ()
    workers: str | None = None
    root: str | None = None
    mcp: tuple[str, ...] = ()
    attach: tuple[str, ...] = ()
    provider: str | None = None
    model: str | None = None
    mode: Literal["auto", "native", "prompted"] = "auto"
    system: str | None = None
    approval_mode: Literal["default", "auto_edit", "yolo", "plan"] | None = None
    policy: str | None = None
    audit: str | None = None
    output: Literal["text", "json", "stream-json"] = "text"
    stdin: bool | None = None
    """True: wait for piped input; None: only for a short time."""
    example: bool = False
    debug: bool = False
    settings: Settings | None = None
    """All other settings of files, the environment and `--set`."""


def options_of(given: Mapping[str, Any], settings: Settings | None = None) -> Options:
    """The options that were given.

    Raises:
        click.UsageError: the prompt was given twice.
    """
    known = {field.name: given[field.name] for field in fields(Options) if field.name in given and field.name != "settings"}
    option = given.get("prompt_option")
    if option is not None:
        if known.get("prompt") is not None:
            raise click.UsageError("the prompt is given twice: use -p, or an argument")
        known["prompt"] = option
    return Options(**known, settings=settings)


# Options of several commands ---------------------------------------------------------------------------------------------


def _sessions_here(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """The ids of sessions, for a shell that completes them. What cannot be read has none."""
    from click.shell_completion import CompletionItem

    from callgate.cli.state import session_ids

    found = session_ids(ctx.params.get("store"))
    return [CompletionItem(id, help=title) for id, title in found if id.startswith(incomplete)]


def _named(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Refuse an empty name, as of a variable that is not set: it would mean the usual store."""
    if value is not None and not value.strip():
        raise click.BadParameter("it is empty: name the store, or leave the option out")
    return value


store_option = click.option(
    "--store", metavar="PATH|URL", callback=_named, help="Store of sessions: a SQLite file or postgresql://..."
)

workers_option = click.option(
    "--workers",
    metavar="PLACE",
    help="Run the tools of -T in worker processes: 'local', 'ray', or the address of a Ray cluster (ray://host:10001).",
)

_OPTIONS = (
    click.option(
        "-r",
        "--resume",
        metavar="ID",
        shell_complete=_sessions_here,
        help="Continue this session ('latest', or the beginning of an id).",
    ),
    click.option("-c", "--continue", "go_on", is_flag=True, help="Continue the newest session."),
    click.option("--ephemeral", is_flag=True, help="Do not store this conversation."),
    store_option,
)


def session_options(command: F) -> F:
    """Add the options that name the store and the session."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def set_option(command: F) -> F:
    """Add the option `--set KEY=VALUE`."""
    return click.option(
        "--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a setting (see `config show`); repeatable."
    )(command)
