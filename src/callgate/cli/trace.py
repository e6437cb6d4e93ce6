"""`callgate trace`: what a session did and when, as lines in the terminal, as JSON, or as a picture.

The id of a session comes in; its timeline goes out. What happened when is read by `callgate.timeline`; text of models and
users is escaped before it is shown.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from callgate.cli.convert import echo_json
from callgate.cli.json_input import InputError
from callgate.cli.options import store_option
from callgate.cli.render import is_terminal, one_line
from callgate.cli.state import opened, store_place
from callgate.errors import UsageError
from callgate.facts import Fact
from callgate.sessions import find
from callgate.store import SessionInfo, Store
from callgate.timeline import Scale, Span, spans_of, svg_of
from callgate.timeline.scale import span_end
from callgate.timeline.svg import GOOD, duration_text

__all__ = ["timeline_lines", "trace"]

LABEL_CHARS, NOTE_CHARS, BAR_CHARS_MIN, WIDTH_MAX = 28, 22, 20, 160

_MARKS = {"request": "█", "execution": "█", "approval": "░", "waiting": "·", "cut": "╱"}
_MARKS_ASCII = {"request": "#", "execution": "=", "approval": "?", "waiting": ".", "cut": "/"}
_COLORS = {"request": "34", "execution": "32", "bad": "31", "approval": "33", "waiting": "90", "cut": "90"}


@click.command(short_help="Show what a session did and when.")
@click.argument("session")
@click.option("--svg", "file", metavar="FILE", help="Write it as a picture (SVG) to this file; - is stdout.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="A drawing of lines, or JSON.")
@store_option
def trace(session: str, file: str | None, output: str, store: str | None) -> None:
    """Shows the timeline of SESSION: when the model was asked, tools ran, and somebody was waited for.

    SESSION may be cut short as long as only one session begins so; `latest` is the one that was written to last.
    """
    info, facts = _read(session, store_place(store))
    spans = spans_of(facts)
    if facts and all(fact.at_s is None for fact in facts):
        click.echo("callgate: this session was written before times were kept: only calls have a length", err=True)
    if file is not None:
        _write(file, svg_of(spans, title=_title(info)))
    elif output == "json":
        echo_json({"session": info.id, "spans": [span.to_json() for span in spans]})
    else:
        for line in timeline_lines(spans, width=_width(), marks=_marks(), color=_has_color(os.environ)):
            click.echo(line)


def _read(session: str, place: str) -> tuple[SessionInfo, list[Fact]]:
    async def work(store: Store) -> tuple[SessionInfo, list[Fact]]:
        info = await find(store, session)
        return info, await store.load(info.id)

    with opened(place) as store:
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
    try:
        "".join(_MARKS.values()).encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return _MARKS_ASCII
    return _MARKS


def _has_color(env: Mapping[str, str]) -> bool:
    return is_terminal(sys.stdout) and not env.get("NO_COLOR") and env.get("TERM") != "dumb"


# Drawing -----------------------------------------------------------------------------------------------------------------


def timeline_lines(
    spans: Sequence[Span], *, width: int, marks: Mapping[str, str] = _MARKS, color: bool = False
) -> Iterator[str]:
    """The timeline as lines: a head for each run and each turn, a bar for each request and each call."""
    scale = Scale(spans)
    bars = max(width - LABEL_CHARS - NOTE_CHARS - 2, BAR_CHARS_MIN)
    children: dict[str | None, list[Span]] = {}
    for span in spans:
        children.setdefault(span.parent, []).append(span)
    if not spans:
        yield "Nothing was asked in this session."
    for run in children.get(None, []):
        state = "under way" if run.end_s is None else run.state
        yield f"{one_line(run.name, width - 30)}  ({duration_text(run.duration_s)}, {one_line(state, 30)})"
        for turn in children.get(run.id, []):
            yield f"  {turn.name}"
            for span in children.get(turn.id, []):
                label = f"    {one_line(span.name, LABEL_CHARS - 5)}"
                drawn = _bar(span, children.get(span.id, []), scale, bars, marks, color=color)
                yield f"{label:<{LABEL_CHARS}}{drawn} {_note(span, children)}"
    if scale.cuts:
        hidden = ", ".join(duration_text(cut.hidden_s) for cut in scale.cuts)
        yield f"{marks['cut']} left out, because neither the model nor a tool was at work: {hidden}"


def _note(span: Span, children: Mapping[str | None, list[Span]]) -> str:
    ran = next((child for child in reversed(children.get(span.id, [])) if child.kind == "execution"), span)
    waited = sum(child.duration_s or 0.0 for child in children.get(span.id, []) if child.kind == "approval")
    told = duration_text(ran.duration_s)
    if waited:
        told += f", asked {duration_text(waited)}"
    return told if span.state in GOOD or span.end_s is None else f"{told}, {one_line(span.state, 30)}"


def _bar(span: Span, inner: Sequence[Span], scale: Scale, width: int, marks: Mapping[str, str], *, color: bool) -> str:
    cells = [(" ", "")] * width
    for cut in scale.cuts:
        cells[min(int(cut.start * width), width - 1)] = (marks["cut"], "cut")
    layers = [("request" if span.kind == "request" else "waiting", span)]
    layers += [(child.kind, child) for child in inner]
    for kind, layer in layers:
        first = min(int(scale.place(layer.start_s) * width), width - 1)
        last = max(min(round(scale.place(span_end(layer, scale.end_s)) * width), width), first + 1)
        is_bad = kind == "execution" and layer.end_s is not None and layer.state not in GOOD
        cells[first:last] = [(marks[kind], "bad" if is_bad else kind)] * (last - first)
    if not color:
        return "".join(mark for mark, _ in cells)
    return "".join(f"\x1b[{_COLORS[kind]}m{mark}\x1b[0m" if kind else mark for mark, kind in cells)
