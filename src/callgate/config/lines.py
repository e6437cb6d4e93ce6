"""Where the keys of a TOML text are: the text in, a map of dotted keys to lines out.

`tomllib` reads the values and knows nothing of places; this file knows places and reads no value. A text that is not TOML
gives some answer, which nobody uses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Entry", "dotted", "entries_of", "line_of"]

_KEY_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEY = rf"{_KEY_PART}(?:[ \t]*\.[ \t]*{_KEY_PART})*"
_HEADER = re.compile(rf"[ \t]*\[(\[)?[ \t]*({_KEY})[ \t]*\]\]?[ \t]*(?:\#.*)?$")
_PAIR = re.compile(rf"[ \t]*({_KEY})[ \t]*=[ \t]*")


@dataclass(frozen=True, slots=True)
class Entry:
    """A header or a pair, by its lines, counted from 0."""

    key: tuple[str, ...]
    """With the table that it is in."""
    first: int
    last: int
    is_header: bool
    value_at: int = 0
    """Where on its first line the value begins."""


def entries_of(text: str) -> Iterator[Entry]:
    """Headers and pairs in the order in which they are written."""
    lines = text.split("\n")
    table: tuple[str, ...] = ()
    number = 0
    while number < len(lines):
        line = lines[number].rstrip("\r")
        if header := _HEADER.match(line):
            table = dotted(header[2])
            yield Entry(table, number, number, True)
        elif pair := _PAIR.match(line):
            last = _end_of_value(lines, number, pair.end())
            yield Entry((*table, *dotted(pair[1])), number, last, False, pair.end())
            number = last
        number += 1


def line_of(text: str, key: str) -> int:
    """The line, counted from 1, that says something of a key, or of the nearest table around it."""
    wanted = tuple(key.split("."))
    best = (0, 0)
    for entry in entries_of(text):
        if best[1] == 0 and entry.key[: len(wanted)] == wanted:
            best = (0, entry.first + 1)  # Only parts of it are written.
        common = entry.key == wanted[: len(entry.key)]
        # A key with dots inside its own name is found by its spelling.
        if ".".join(entry.key) == key or (common and len(entry.key) > best[0]):
            best = (len(wanted) if ".".join(entry.key) == key else len(entry.key), entry.first + 1)
    return best[1]


def dotted(key: str) -> tuple[str, ...]:
    """The parts of a key as it is written."""
    return tuple(part[1:-1] if part[0] in "\"'" else part for part in re.findall(_KEY_PART, key))


def _end_of_value(lines: list[str], number: int, column: int) -> int:
    """The last line of a value that begins here: strings and brackets may go on over several."""
    depth, quote = 0, ""
    while number < len(lines):
        line = lines[number]
        while column < len(line):
            char = line[column]
            if quote:
                if char == "\\" and quote[0] == '"':
                    column += 1
                elif line.startswith(quote, column):
                    column, quote = column + len(quote) - 1, ""
            elif char == "#":
                break
            elif char in "\"'":
                quote = char * 3 if line.startswith(char * 3, column) else char
                column += len(quote) - 1
            else:
                depth += (char in "[{") - (char in "]}")
            column += 1
        if depth <= 0 and len(quote) != 3:
            return number
        number, column = number + 1, 0
    return len(lines) - 1
