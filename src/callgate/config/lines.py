"""Positions of the keys in a TOML text: the text in, a map of dotted keys to lines out.

`tomllib` reads the values and knows nothing of places; this file knows places and reads no value. A text that is not TOML
gives some answer, which nobody uses.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass

from callgate.types import JsonObject

__all__ = ["Entry", "KeyLines", "dotted", "entries_of", "line_of", "toml_of"]

_PARTS_MAX = 100

_KEY_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEY = rf"{_KEY_PART}(?:[ \t]*\.[ \t]*{_KEY_PART})*"
_DOTTED = re.compile(r"[\w\"'-]++(?:[ \t]*+\.[ \t]*+[\w\"'-]++)*+")
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
    """Column of the value on its first line."""


def toml_of(text: str) -> JsonObject:
    """The values of a TOML text, in linear time: `tomllib` takes quadratic time for a key of many parts.

    Raises:
        tomllib.TOMLDecodeError: the text is not TOML, or a key in it has more parts than anybody writes.
    """
    if any(map(_has_long_key, text.split("\n"))):
        raise tomllib.TOMLDecodeError(f"a key has more than {_PARTS_MAX} parts")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except (RecursionError, ValueError) as error:
        why = "its values are nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise tomllib.TOMLDecodeError(why) from None


def _has_long_key(line: str) -> bool:
    """True if words with dots between them, which may be a key, are too many. Each character is looked at once."""
    if line.count(".") < _PARTS_MAX:
        return False
    return any(found[0].count(".") >= _PARTS_MAX for found in _DOTTED.finditer(line))


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


class KeyLines:
    """The lines of a text by the keys that they speak of; made once for any number of keys."""

    def __init__(self, text: str) -> None:
        self._spelled: dict[str, int] = {}
        self._first: dict[tuple[str, ...], int] = {}
        self._parts: dict[tuple[str, ...], int] = {}
        for entry in entries_of(text):
            self._spelled[".".join(entry.key)] = entry.first + 1
            self._first.setdefault(entry.key, entry.first + 1)
            for length in range(1, min(len(entry.key), _PARTS_MAX)):
                self._parts.setdefault(entry.key[:length], entry.first + 1)

    def line_of(self, key: str) -> int:
        """The line, counted from 1, that says something of a key, or of the nearest table around it; 0 if none does."""
        if key in self._spelled:  # Also a key with dots inside its own name, which is found by its spelling.
            return self._spelled[key]
        wanted = tuple(key.split("."))
        around = (self._first[wanted[:length]] for length in range(len(wanted), 0, -1) if wanted[:length] in self._first)
        return next(around, self._parts.get(wanted, 0))  # Perhaps only parts of it are written.


def line_of(text: str, key: str) -> int:
    """Shortcut for `KeyLines.line_of` with one key."""
    return KeyLines(text).line_of(key)


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
