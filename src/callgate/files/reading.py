"""A file -> the lines that were asked for: bounded, decoded, and with a note of what was cut and how to go on.

The descriptor of a regular file comes in, text goes out. Which file it is was settled before.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from callgate.errors import ToolError
from callgate.files.bounds import Bounds
from callgate.files.paths import shown
from callgate.files.text import Encoding, NotText, decoded, encoding_of
from callgate.files.tree import read_at_most

__all__ = ["ReadText", "read_text", "read_whole"]


@dataclass(frozen=True, slots=True)
class ReadText:
    """What was read."""

    text: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which lines, and how much of them at most."""

    start: int | None
    end: int | None
    chars_max: int | None = None
    """Characters to give; None when only the bytes are bounded."""

    @property
    def everything(self) -> bool:
        """Whether no lines were named."""
        return self.start is None and self.end is None


def read_text(
    path: str, descriptor: int, wanted: Wanted, bounds: Bounds, is_cancelled: Callable[[], bool] = bool
) -> ReadText:
    """The text of a file, or of some of its lines, counted from 1, or from the end with negative numbers.

    Raises:
        ToolError: it is not text, or has no such lines.
    """
    _require_range(wanted)
    size_max = bounds.read_bytes if wanted.everything else bounds.scan_bytes
    data = read_at_most(descriptor, min(size_max, bounds.read_bytes) + 1)
    cut = len(data) > bounds.read_bytes
    if cut and not wanted.everything:
        data += read_at_most(descriptor, size_max - len(data) + 1)
        cut = len(data) > size_max
    if is_cancelled():
        raise ToolError("The call was given up while it read the file.")
    encoding, text = _text(path, data[:size_max], whole=not cut)
    notes = [note for note in (encoding.note,) if note]
    size = max(os.fstat(descriptor).st_size, len(data))
    if wanted.everything:
        return _whole(text, notes, wanted, _Cut(cut, size))
    if cut:
        notes.append(f"Only the first {size_max} of {size} bytes were looked at.")
    return _lines(path, text, notes, wanted, bounds, cut=cut)


def read_whole(path: str, descriptor: int, bytes_max: int) -> tuple[Encoding, bytes, str]:
    """The encoding, the bytes and the text of a whole file.

    Raises:
        ToolError: it is not text, or larger than that.
    """
    data = read_at_most(descriptor, bytes_max + 1)
    if len(data) > bytes_max:
        raise ToolError(f"{shown(path)} is larger than {bytes_max} bytes, which is as much as can be edited.")
    encoding, text = _text(path, data, whole=True)
    return encoding, data, text


def _text(path: str, data: bytes, *, whole: bool) -> tuple[Encoding, str]:
    try:
        encoding = encoding_of(data, whole=whole)
        return encoding, decoded(data, encoding, whole=whole)
    except NotText as error:
        raise NotText(f"{shown(path)} {error}, and is not read as text.") from None


def _require_range(wanted: Wanted) -> None:
    start, end = wanted.start, wanted.end
    if start == 0 or end == 0:
        raise ToolError("Lines are counted from 1, or from the end with negative numbers; there is no line 0.")
    if start is not None and end is not None and end < start and (start > 0) == (end > 0):
        raise ToolError(f"start_line={start} lies behind end_line={end}.")


@dataclass(frozen=True, slots=True)
class _Cut:
    """Whether the file goes on behind what was read, and how large it is."""

    more: bool
    size: int


def _whole(text: str, notes: list[str], wanted: Wanted, cut: _Cut) -> ReadText:
    given, inside_line = text, False
    too_long = wanted.chars_max is not None and len(text) > wanted.chars_max
    if cut.more or too_long:
        given, inside_line = _at_line_end(text[: wanted.chars_max] if too_long else text)
        notes.append(_goes_on(given, 1, f"of {cut.size} bytes", inside_line=inside_line))
    return ReadText(given, tuple(notes))


def _lines(path: str, text: str, notes: list[str], wanted: Wanted, bounds: Bounds, *, cut: bool) -> ReadText:
    lines = text.split("\n")
    # What follows the last line feed is a line only if there is something.
    lines = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    count = len(lines)
    if cut and (min(wanted.start or 1, wanted.end or 1) < 0 or (wanted.start or 1) > count):
        raise ToolError(
            f"{shown(path)} is larger than {bounds.scan_bytes} bytes; lines behind its line {count}, or counted from its "
            "end, cannot be reached. search_files finds lines by their text."
        )
    first = max(_counted(wanted.start or 1, count), 1)
    last = min(_counted(wanted.end, count) if wanted.end is not None else count, count)
    if first > max(count, 1):
        raise ToolError(f"{shown(path)} has {count} lines, so there is no line {first}.")
    if last < first and count:
        raise ToolError(f"start_line={wanted.start} lies behind end_line={wanted.end}: the file has {count} lines.")
    given, inside_line = "".join(lines[first - 1 : last]), False
    chars_max = min(wanted.chars_max or bounds.read_bytes, bounds.read_bytes)
    whole = given
    if len(given) > chars_max or len(given.encode()) > bounds.read_bytes:
        given, inside_line = _at_line_end(_within(given[:chars_max], bounds.read_bytes))
    if given != whole:
        notes.append(_goes_on(given, first, f"of lines {first} to {last}", inside_line=inside_line))
    elif first > 1 or last < count or cut:
        notes.append(f"Lines {first} to {last} of {'more than ' if cut else ''}{count}.")
    return ReadText(given, tuple(notes))


def _counted(line: int, count: int) -> int:
    return line if line > 0 else count + 1 + line


def _within(text: str, bytes_max: int) -> str:
    return text.encode()[:bytes_max].decode(errors="ignore")


def _at_line_end(text: str) -> tuple[str, bool]:
    """The text up to its last line end, and whether it had to be cut inside a line."""
    end = text.rfind("\n") + 1
    return (text[:end], False) if end else (text, True)


def _goes_on(given: str, first: int, of_what: str, *, inside_line: bool) -> str:
    lines = given.count("\n")
    if inside_line:
        return (
            f"Cut after {len(given)} characters {of_what}, inside line {first}, which is longer than can be shown at once."
        )
    last = first + lines - 1
    return f"Cut: lines {first} to {last} {of_what} are given. Go on with start_line={last + 1}."
