"""`callgate undo`: what the file tools wrote, and how to have it back.

An id of a change comes in; a list, a diff or the file as it was before goes out. Putting back is a write like any other, so
it can be undone, too. How that is done is the business of `files/`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from callgate.cli.json_input import InputError
from callgate.cli.render import escape
from callgate.cli.style import has_color, painted
from callgate.errors import UsageError

if TYPE_CHECKING:
    from callgate.files import Change
    from callgate.files.backups import Backups

__all__ = ["undo"]

LISTED = 20


@click.command()
@click.argument("change", metavar="[ID]", required=False)
@click.option("--list", "listing", is_flag=True, help="List the changes, newest first (the default without an ID).")
@click.option("--show", metavar="ID", help="Show what undoing this change would do.")
@click.option("--root", metavar="DIR", help="Only changes below this folder; by default the current one.")
@click.option("--all", "everywhere", is_flag=True, help="List the changes of all folders, not only the newest.")
@click.option("--force", is_flag=True, help="Undo it even if the file has changed since.")
def undo(change: str | None, *, listing: bool, show: str | None, root: str | None, everywhere: bool, force: bool) -> None:
    """Undo the change ID of a file, after showing what that does. `last` is the newest change.

    Exit codes: 0, 2 wrong usage, 42 it cannot be undone.
    """
    from callgate.files.backups import Backups, default_state_dir
    from callgate.files.bounds import Bounds

    backups = Backups(default_state_dir(), Bounds())
    below = os.path.abspath(root or ".")
    known = [found for found in backups.changes() if everywhere or _is_below(found, below)]
    try:
        if show is not None:
            click.echo(_diff(_chosen(backups, known, show)), nl=False)
        elif change is None or listing:
            _list(known, everywhere=everywhere)
        else:
            _restore(_chosen(backups, known, change), force=force)
    except UsageError as error:
        raise InputError(str(error)) from error


def _is_below(change: Change, folder: str) -> bool:
    """Return whether a change was made in a root at or around the folder, or below it."""
    return os.path.commonpath([change.root, folder]) in (change.root, folder)


def _chosen(backups: Backups, known: Sequence[Change], id: str) -> Change:
    if id != "last":
        return backups.change(id)
    newest = next(filter(_took_effect, known), None)
    if newest is None:
        raise UsageError("nothing was written here, so there is nothing to undo")
    return newest


def _took_effect(change: Change) -> bool:
    from callgate.files import FileTools

    try:
        with FileTools(change.root) as files:
            return files.took_effect(change)
    except UsageError:
        return True  # Its folder is gone, which undoing it says.


def _list(known: Sequence[Change], *, everywhere: bool) -> None:
    if not known:
        click.echo("Nothing was written here that could be undone.")
    for change in known if everywhere else known[:LISTED]:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(change.time_s))
        if not change.existed:
            what = f"new, {change.after_size} bytes"
        elif change.after_sha256 is None:
            what = f"removed, {change.size} bytes"
        else:
            what = f"{change.size} -> {change.after_size} bytes"
        place = os.path.join(change.root, change.path) if everywhere else change.path
        click.echo(escape(f"{change.id}  {when}  {change.tool:<10}  {place}  ({what})"))
    if len(known) > LISTED and not everywhere:
        click.echo(f"... and {len(known) - LISTED} more; --all lists them")


def _diff(change: Change) -> str:
    from callgate.files import FileTools

    with FileTools(change.root) as files:
        text = escape(files.diff(change.id))
    return text if not has_color(sys.stdout) else "".join(map(_colored, text.splitlines(keepends=True)))


def _colored(line: str) -> str:
    meanings = {"+": "added", "-": "removed", "@": "place"}
    return painted(line, meanings.get(line[:1]))


def _restore(change: Change, *, force: bool) -> None:
    from callgate.files import FileTools

    click.echo(_diff(change), nl=False)
    with FileTools(change.root) as files:
        done = files.undo(change.id, force=force)
    what = "was removed" if done.after_sha256 is None else f"is as it was before change {change.id}"
    click.echo(escape(f"{change.path} {what}. To take this back: callgate undo {done.id}"))
