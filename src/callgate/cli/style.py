"""Marks, colours and wrapping of callgate's own lines: one vocabulary for every command.

Takes escaped text, returns text that fits a terminal. Where the output is not a terminal nothing is wrapped or coloured,
so that programs read whole lines.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

import click

from callgate.cli.escaping import visible
from callgate.cli.markdown import width_of
from callgate.cli.themes import code_of

__all__ = [
    "MARK",
    "MARKS",
    "MARKS_ASCII",
    "Piece",
    "columns_of",
    "counted",
    "echo",
    "echo_rows",
    "folded",
    "has_color",
    "is_terminal",
    "marks_of",
    "painted",
    "two_columns",
]

MARKS: Mapping[str, str] = {
    "call": "→", "done": "✓", "failed": "✗", "notice": "!", "note": "·", "question": "?", "cut": "…",
    "spinner": "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏",
}  # fmt: skip
MARKS_ASCII: Mapping[str, str] = {
    "call": "->", "done": "+", "failed": "x", "notice": "!", "note": "-", "question": "?", "cut": "...", "spinner": "|/-\\",
}  # fmt: skip
MARK = "  | "
"""Prefix of each line of untrusted text, so that none of it passes for a question."""
COLUMNS_MIN = 20
STACKED_COLUMNS = 50
"""In a narrower terminal the second of two columns stands below the first."""

Piece = tuple[str, "str | None"]
"""A text, and the meaning whose colour it has."""

_WORDS = re.compile(r"\s+|\S+")
_LISTED = re.compile(r"(?:[^\w\s]{1,2}|\[\d+\]|x) (?=\S)")


def is_terminal(stream: TextIO | None) -> bool:
    """True if the stream is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # The stream is closed.
        return False


def has_color(stream: TextIO | None, environ: Mapping[str, str] = os.environ) -> bool:
    """True if colours may be written to the stream."""
    return is_terminal(stream) and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def columns_of(stream: TextIO | None) -> int | None:
    """The width to wrap at; None where the stream is not a terminal."""
    return max(COLUMNS_MIN, shutil.get_terminal_size().columns - 1) if is_terminal(stream) else None


def marks_of(stream: TextIO | None) -> Mapping[str, str]:
    """The marks that the stream can write; plain ones where programs read it."""
    if not is_terminal(stream):
        return MARKS_ASCII
    try:
        "".join(MARKS.values()).encode((stream.encoding if stream is not None else None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return MARKS_ASCII
    return MARKS


def painted(text: str, color: str | None) -> str:
    """The text in the colour of a meaning: a finished call, a server that works and a good finding look the same."""
    code = code_of(color)
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


# Wrapping ----------------------------------------------------------------------------------------------------------------


def folded(pieces: Sequence[Piece], columns: int | None, *, indent: int | None = None) -> Iterator[list[Piece]]:
    """Wrap a line at its words; a word that is wider than the terminal stays whole, so that it can be copied.

    `indent` is that of the lines after the first; without it they stand below the first word after a mark. Lines of
    untrusted text keep their prefix, and are cut where they must be: the terminal never chooses where those break.
    """
    text = "".join(part for part, _ in pieces)
    if columns is None or (width_of(text) <= columns and "\n" not in text):
        yield list(pieces)
        return
    is_marked = text.startswith(MARK)
    prefix = MARK if is_marked else " " * min(_indent_of(text) if indent is None else indent, columns // 2)
    line: list[Piece] = []
    used, is_new = 0, True
    for word, color in _words(pieces):
        wide = width_of(word)
        if word.isspace():
            if not is_new or not used or used == _leading(text):
                line.append((word, color))
                used += wide
            continue
        if used + wide > columns and not is_new:
            yield _stripped(line)
            line, used = _prefix_pieces(prefix), width_of(prefix)
        for part in _cut(word, columns - used, columns - width_of(prefix)) if is_marked else (word,):
            if used + width_of(part) > columns and is_marked and used > width_of(prefix):
                yield _stripped(line)
                line, used = _prefix_pieces(prefix), width_of(prefix)
            line.append((part, color))
            used += width_of(part)
        is_new = False
    yield _stripped(line)


def two_columns(rows: Sequence[tuple[str, str]], columns: int | None) -> Iterator[list[Piece]]:
    """Rows of a name and its explanation, which wraps in its own column."""
    width = max((width_of(name) for name, _ in rows), default=0)
    for name, text in rows:
        if columns is not None and columns < STACKED_COLUMNS:
            yield [(name, "strong")]
            yield from folded([("    " + text, None)], columns, indent=4)
        else:
            padded = name + " " * (width - width_of(name) + 2)
            yield from folded([(padded, "strong"), (text, None)], columns, indent=width + 2)


def _words(pieces: Sequence[Piece]) -> Iterator[Piece]:
    for text, color in pieces:
        for word in _WORDS.findall(text):
            yield word, color


def _cut(word: str, first: int, room: int) -> Iterator[str]:
    """The pieces of a word that fit: the first one behind what the line has."""
    most = first if width_of(word) <= first else max(1, min(first, room))
    if width_of(word) > first and width_of(word) <= room:
        most = room
    begin = used = 0
    for place, char in enumerate(word):
        wide = width_of(char)
        if place > begin and used + wide > most:
            yield word[begin:place]
            begin, used, most = place, 0, room
        used += wide
    yield word[begin:]


def _prefix_pieces(prefix: str) -> list[Piece]:
    return [(prefix, None)]


def _leading(text: str) -> int:
    return len(text) - len(text.lstrip(" "))


def _indent_of(text: str) -> int:
    leading = _leading(text)
    listed = _LISTED.match(text, leading)
    return leading + (len(listed[0]) if listed else 0)


def _stripped(line: list[Piece]) -> list[Piece]:
    while line and line[-1][0].isspace():
        line.pop()
    return line


def counted(count: int, noun: str) -> str:
    """The number with its noun, as in `1 note` and `2 notes`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


# Commands ----------------------------------------------------------------------------------------------------------------


def echo(
    text: str | Sequence[Piece] = "", color: str | None = None, *, err: bool = False, indent: int | None = None
) -> None:
    """Print a line of a command, escaped; wrapped and coloured where that is a terminal."""
    pieces = [(text, color)] if isinstance(text, str) else text
    stream = sys.stderr if err else sys.stdout
    paints = has_color(stream)
    for line in folded([(visible(part), shade) for part, shade in pieces], columns_of(stream), indent=indent):
        click.echo("".join(painted(part, shade) if paints else part for part, shade in line), err=err, color=paints or None)


def echo_rows(rows: Sequence[tuple[str, str]]) -> None:
    """Print rows of a name and its explanation."""
    paints, columns = has_color(sys.stdout), columns_of(sys.stdout)
    for line in two_columns([(visible(name), visible(text)) for name, text in rows], columns):
        text = "".join(painted(part, shade) if paints else part for part, shade in line)
        click.echo(text, color=paints or None)
