"""A file -> the lines that were asked for: bounded, decoded, and with a note of what was cut and how to go on.

The descriptor of a regular file comes in, text goes out. Which file it is was settled before.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from callgate.errors import ToolError
from callgate.files.bounds import Bounds
from callgate.files.paths import shown
from callgate.files.text import Encoding, NotTextError, decoded, encoding_of
from callgate.files.tree import read_at_most

__all__ = ["ReadText", "read_text", "read_whole"]


@dataclass(frozen=True, slots=True)
class ReadText:
    """The result of a read."""

    text: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRequest:
    """The requested lines, and the maximum size of them."""

    start: int | None
    end: int | None
    chars_max: int | None = None
    """Characters to give; None when only the bytes are bounded."""

    @property
    def everything(self) -> bool:
        """True if no lines were named."""
        return self.start is None and self.end is None


def read_text(
    path: str, descriptor: int, wanted: LineRequest, bounds: Bounds, is_cancelled: Callable[[], bool] = bool
) -> ReadText:
    """The text of a file, or of some of its lines, counted from 1, or from the end with negative numbers.

    Raises:
        ToolError: it is not text, or has no such lines.
    """
    _require_range(wanted)
    data = read_at_most(descriptor, bounds.read_bytes + 1)
    cut = len(data) > bounds.read_bytes
    encoding, text = _text(path, data[: bounds.read_bytes], whole=not cut)
    notes = [note for note in (encoding.note,) if note]
    if wanted.everything:
        return _whole(text, notes, wanted, _Cut(cut, max(os.fstat(descriptor).st_size, len(data))))
    if not cut:
        return _lines(path, text, notes, wanted, bounds)
    large = LargeFile(path, descriptor, encoding, bounds, is_cancelled)
    first, last = large.range(wanted)
    data, whole = large.lines(first, last)
    given = _text_inside(path, data, encoding)
    return _bounded(given, notes, wanted, _Range(first, last, whole=whole, count=None), bounds)


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
    except NotTextError as error:
        raise NotTextError(f"{shown(path)} {error}, and is not read as text.") from None


def _require_range(wanted: LineRequest) -> None:
    start, end = wanted.start, wanted.end
    if start == 0 or end == 0:
        raise ToolError("Lines are counted from 1, or from the end with negative numbers; there is no line 0.")
    if start is not None and end is not None and end < start and (start > 0) == (end > 0):
        raise ToolError(f"start_line={start} is after end_line={end}.")


@dataclass(frozen=True, slots=True)
class _Cut:
    """True if the file goes on behind what was read, and how large it is."""

    more: bool
    size: int


def _whole(text: str, notes: list[str], wanted: LineRequest, cut: _Cut) -> ReadText:
    given, inside_line = text, False
    too_long = wanted.chars_max is not None and len(text) > wanted.chars_max
    if cut.more or too_long:
        given, inside_line = _at_line_end(text[: wanted.chars_max] if too_long else text)
        notes.append(_goes_on(given, 1, f"of {cut.size} bytes", inside_line=inside_line))
    return ReadText(given, tuple(notes))


def _lines(path: str, text: str, notes: list[str], wanted: LineRequest, bounds: Bounds) -> ReadText:
    lines = text.split("\n")
    # What follows the last line feed is a line only if there is something.
    lines = [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    count = len(lines)
    first = max(_counted(wanted.start or 1, count), 1)
    last = min(_counted(wanted.end, count) if wanted.end is not None else count, count)
    if first > max(count, 1):
        raise ToolError(f"{shown(path)} has {count} lines, so there is no line {first}.")
    if last < first and count:
        raise ToolError(f"start_line={wanted.start} is after end_line={wanted.end}: the file has {count} lines.")
    given = "".join(lines[first - 1 : last])
    return _bounded(given, notes, wanted, _Range(first, last, whole=True, count=count), bounds)


@dataclass(frozen=True, slots=True)
class _Range:
    """The lines that were read, whether they are complete, and their number in all, if it is known."""

    first: int
    last: int | None
    whole: bool
    count: int | None


def _bounded(text: str, notes: list[str], wanted: LineRequest, taken: _Range, bounds: Bounds) -> ReadText:
    """The lines, cut to what may be given, with a note of where they are from."""
    chars_max = min(wanted.chars_max or bounds.read_bytes, bounds.read_bytes)
    given, inside_line = text, False
    if not taken.whole or len(text) > chars_max or len(text.encode()) > bounds.read_bytes:
        given, inside_line = _at_line_end(_within(text[:chars_max], bounds.read_bytes))
    wished = f"of lines {taken.first} to {taken.last or 'the last'}"
    if given != text or not taken.whole:
        notes.append(_goes_on(given, taken.first, wished, inside_line=inside_line))
    elif taken.count is None:
        notes.append(f"Lines {taken.first} to {taken.first + len(given.splitlines()) - 1} of a large file.")
    elif taken.first > 1 or (taken.last or 0) < taken.count:
        notes.append(f"Lines {taken.first} to {taken.last} of {taken.count}.")
    return ReadText(given, tuple(notes))


@dataclass(frozen=True, slots=True)
class LargeFile:
    """A file that is too large to be held, looked through piece by piece."""

    path: str
    descriptor: int
    encoding: Encoding
    bounds: Bounds
    is_cancelled: Callable[[], bool]

    def range(self, wanted: LineRequest) -> tuple[int, int | None]:
        """The first and the last line, counted from 1; None for the end.

        Raises:
            ToolError: lines are not known in such a file, or there are none such.
        """
        if self.encoding.codec.startswith(("utf-16", "utf-32")):
            raise ToolError(f"{shown(self.path)} is {self.encoding.codec} and too large for its lines to be counted.")
        start, end = wanted.start or 1, wanted.end
        if start < 0 or (end or 1) < 0:
            count = self._count()
            start = max(_counted(start, count), 1)
            end = None if end is None else _counted(end, count)
            if end is not None and end < start:
                raise ToolError(f"start_line={wanted.start} is after end_line={wanted.end}: the file has {count} lines.")
        return start, end

    def lines(self, first: int, last: int | None) -> tuple[bytes, bool]:
        """The bytes of the lines, as far as they may be given, and whether that is all of them."""
        line, taken, at_end = 1, bytearray(), False
        for piece in self._pieces():
            at_end = piece.endswith(b"\n")
            if line < first:
                count = piece.count(b"\n")
                if line + count < first:
                    line += count
                    continue
                piece = piece[_offset_after(piece, first - line) :]
                line = first
            taken += piece
            if last is not None and taken.count(b"\n") > last - first:
                return bytes(taken[: _offset_after(taken, last - first + 1)]), True
            if len(taken) > self.bounds.read_bytes:
                return bytes(taken), False
        if line < first or not taken:
            raise ToolError(f"{shown(self.path)} has {line - at_end} lines, so there is no line {first}.")
        return bytes(taken), True

    def _count(self) -> int:
        count, last = 0, b""
        for piece in self._pieces():
            count, last = count + piece.count(b"\n"), piece
        return count + (not last.endswith(b"\n"))

    def _pieces(self) -> Iterator[bytes]:
        offset = len(self.encoding.mark)
        while piece := os.pread(self.descriptor, min(1 << 20, self.bounds.read_bytes), offset):
            yield piece
            offset += len(piece)
            if self.is_cancelled():
                raise ToolError("The call was given up while it read the file.")
            if offset > self.bounds.scan_bytes:
                raise ToolError(
                    f"{shown(self.path)} is too large: these lines were not reached within {self.bounds.scan_bytes} bytes. "
                    "search_files finds lines by their text."
                )


def _offset_after(data: bytes | bytearray, count: int) -> int:
    """The place behind so many line feeds."""
    place = 0
    for _ in range(count):
        place = data.index(b"\n", place) + 1
    return place


def _text_inside(path: str, data: bytes, encoding: Encoding) -> str:
    """The text of bytes from inside a file; half a character at the end is left away."""
    try:
        text = decoded(encoding.mark + data, encoding, whole=False)
    except NotTextError as error:
        raise NotTextError(f"{shown(path)} {error}, and is not read as text.") from None
    if "\0" in text:
        raise NotTextError(f"{shown(path)} is a binary file (it holds NUL bytes), and is not read as text.")
    return text


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
