"""`callgate model`: download, list and locate the files of the embedded model.

Progress goes to stderr, results to stdout. `callgate.embedded.weights` defines the files and their checks.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from callgate.cli.render import is_terminal
from callgate.errors import UsageError

if TYPE_CHECKING:
    from callgate.embedded.weights import GgufFile

__all__ = ["model"]

BAR_CHARS = 30


@click.group()
def model() -> None:
    """Fetch and list the files of the embedded model, which answers without a key and a network.

    Exit codes: 0, 1 a file is missing or cannot be fetched, 2 wrong usage.
    """


@model.command(short_help="Download the weights.")
def fetch() -> None:
    """Download the weights (98 MB) into the cache, unless they are there."""
    from callgate.embedded import weights

    found, progress = weights.find_base(), _Progress()
    if found is None or _state(found, weights.BASE) != "ready":
        try:
            found = weights.fetch(progress)
        except UsageError as error:
            raise click.ClickException(str(error)) from error
        finally:
            progress.end()
    click.echo(found)


@model.command("list")
def list_files() -> None:
    """List the files and whether they are intact."""
    from callgate.embedded import weights

    rows = [(weights.BASE, weights.find_base()), (weights.ADAPTER, weights.find_adapter())]
    click.echo(f"{weights.MODEL_NAME}: a small language model for tool calls, on this machine's CPU")
    for file, path in rows:
        state = "missing" if path is None else _state(path, file)
        click.echo(f"  {file.name}  {file.bytes / 1e6:.1f} MB  {file.licence}  {state}")
        click.echo(f"    {path or f'from {file.source}: callgate model fetch'}")


def _state(path: str, file: GgufFile) -> str:
    from callgate.embedded import weights

    try:
        weights.check_file(path, file)
    except weights.FilesMissingError:
        return "broken"
    return "ready"


@model.command()
def path() -> None:
    """Print the path of the weights."""
    from callgate.embedded import weights

    found = weights.find_base()
    if found is None:
        raise click.ClickException(f"the weights are not on this machine: {weights.HOW_TO_GET}")
    click.echo(found)


class _Progress:
    """A progress bar on a terminal, one line per step elsewhere."""

    def __init__(self) -> None:
        self._bar = is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb"
        self._step = ""

    def __call__(self, what: str, done: int, of: int) -> None:
        if self._bar:
            filled = BAR_CHARS * done // of
            bar = "#" * filled + "-" * (BAR_CHARS - filled)
            click.echo(f"\r{what:<8} [{bar}] {done / 1e6:5.1f} of {of / 1e6:.1f} MB", nl=False, err=True)
        elif what != self._step:
            click.echo(f"{what}: {of / 1e6:.1f} MB", err=True)
        self._step = what

    def end(self) -> None:
        """End the line of the bar."""
        if self._bar and self._step:
            click.echo(err=True)
