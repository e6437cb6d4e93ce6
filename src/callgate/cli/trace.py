"""`callgate trace`: the timeline of a session as lines, as an image or as JSON.

Takes the id of a session, prints the times in its journal. `trace_lines.py` draws them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from callgate.cli.convert import echo_json
from callgate.cli.json_input import InputError
from callgate.cli.options import store_option
from callgate.cli.style import has_color
from callgate.config.known_secrets import redact_known
from callgate.errors import UsageError

if TYPE_CHECKING:
    from callgate.machine.facts import Fact
    from callgate.store import SessionInfo, Store

__all__ = ["trace"]

WIDTH_MAX = 160


@click.command()
@click.argument("session", default="latest")
@click.option("--svg", "file", metavar="FILE", help="Write it as a picture (SVG) to this file (- for stdout).")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Text, or JSON.")
@store_option
def trace(session: str, file: str | None, output: str, store: str | None) -> None:
    """Show the timeline of SESSION: model requests, tool runs and waits for approval.

    SESSION may be abbreviated as long as it is unambiguous; without it, or as `latest`, it is the session written to
    last.
    """
    from callgate.cli.trace_lines import timeline_lines
    from callgate.timeline import spans_of, svg_of

    info, facts = _read(session, store)
    spans = [replace(span, name=redact_known(span.name)) for span in spans_of(facts)]
    if facts and all(fact.at_s is None for fact in facts):
        click.echo("callgate: this session was written before times were stored: only calls have a length", err=True)
    if file is not None:
        _write(file, svg_of(spans, title=redact_known(_title(info))))
    elif output == "json":
        echo_json({"session": info.id, "spans": [span.to_json() for span in spans]})
    else:
        for line in timeline_lines(spans, width=_width(), marks=_marks(), color=_has_color(os.environ)):
            click.echo(line)


def _read(session: str, place: str | None) -> tuple[SessionInfo, list[Fact]]:
    from callgate.cli.state import opened_to_read
    from callgate.sessions import find

    async def work(store: Store) -> tuple[SessionInfo, list[Fact]]:
        info = await find(store, session)
        return info, await store.load(info.id)

    with opened_to_read(place) as store:
        try:
            return asyncio.run(work(store))
        except UsageError as error:
            raise InputError(f"{error}; `callgate sessions list` shows them") from error


def _write(file: str, text: str) -> None:
    if file == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(file).write_text(text, "utf-8")
    except OSError as error:
        raise click.ClickException(f"the picture cannot be written to {file!r}: {error.strerror or error}") from error
    click.echo(f"{file}: written", err=True)


def _title(info: SessionInfo) -> str:
    return f"{info.id} · {time.strftime('%Y-%m-%d %H:%M', time.localtime(info.created_s))}"


def _width() -> int:
    return min(shutil.get_terminal_size((100, 24)).columns, WIDTH_MAX)


def _marks() -> Mapping[str, str]:
    from callgate.cli.trace_lines import MARKS, MARKS_ASCII

    try:
        "".join(MARKS.values()).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return MARKS_ASCII
    return MARKS


def _has_color(env: Mapping[str, str]) -> bool:
    return has_color(sys.stdout, env)
