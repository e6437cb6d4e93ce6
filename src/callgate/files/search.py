"""A regular expression and files -> the lines that fit, in time that grows with the text and with nothing else.

The expressions are those of Rust's `regex`, reached through pydantic-core, which is here anyway: it never goes back,
so no expression that a model writes can keep the process busy. Python's `re` can (`(a+)+$`), and holds the interpreter
meanwhile. What that engine has no linear way for, look-around and back references, is refused in a sentence.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from callgate.errors import ToolError
from callgate.files.beneath import ALWAYS, NOFOLLOW, let_go
from callgate.files.bounds import Bounds
from callgate.files.paths import shown
from callgate.files.text import NotTextError, text_of
from callgate.files.tree import Found, Walk, read_at_most

__all__ = ["Query", "Search", "expression"]

PIECE_CHARS = 64 * 1024
"""Characters that are searched at once; the interpreter is blocked that long."""
REPEATS_MAX = 10_000
"""The product of all counts such as `{1000}` in an expression, which is about how large it becomes."""

_COUNT = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")
# Anchors of a whole text fit every line, but only one place of a text of many lines.
_TEXT_ANCHOR = re.compile(r"\\[Azb<>B]|\^|\$")


class Expression:
    """Test text in linear time."""

    def __init__(self, pattern: str, *, ignore_case: bool) -> None:
        from pydantic_core import SchemaError, SchemaValidator, core_schema

        flags = "(?i)" if ignore_case else ""
        try:
            schema = core_schema.str_schema(pattern=f"{flags}(?:{pattern})", regex_engine="rust-regex")
            self.fits = SchemaValidator(schema).isinstance_python
        except SchemaError as error:
            raise ToolError(
                f"The pattern {shown(pattern)} is no regular expression that can be used: {_why(error)}"
            ) from None
        self._is_anchored = bool(_TEXT_ANCHOR.search(pattern))

    def may_fit(self, text: str) -> bool:
        """True if a line of the text could fit, as far as that is quickly known."""
        return self._is_anchored or len(text) > PIECE_CHARS or self.fits(text)

    def lines(self, lines: Sequence[str]) -> Iterator[int]:
        """The numbers, from 0, of the lines that fit."""
        if self._is_anchored:
            yield from (number for number, line in enumerate(lines) if self.fits(line))
            return
        # What fits no piece of the text fits none of its lines, and most pieces fit nothing.
        start = 0
        while start < len(lines):
            stop, chars = start, 0
            while stop < len(lines) and chars < PIECE_CHARS:
                chars += len(lines[stop]) + 1
                stop += 1
            if self.fits("\n".join(lines[start:stop])):
                yield from (number for number in range(start, stop) if self.fits(lines[number]))
            start = stop


def expression(pattern: str, *, ignore_case: bool, chars_max: int) -> Expression:
    """An expression as a model wrote it.

    Raises:
        ToolError: it is none, too long, or would become too large.
    """
    if not pattern:
        raise ToolError("The pattern is empty; give a regular expression such as 'def \\w+'.")
    if len(pattern) > chars_max:
        raise ToolError(f"The pattern has {len(pattern)} characters; at most {chars_max} are possible.")
    counts = [max(int(low), int(high or low), 1) for low, high in _COUNT.findall(pattern)]
    if math.prod(counts) > REPEATS_MAX:
        raise ToolError(f"The pattern {shown(pattern)} repeats too much: its counts come to more than {REPEATS_MAX}.")
    return Expression(pattern, ignore_case=ignore_case)


def _why(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = next((line.removeprefix("error: ") for line in reversed(lines) if line.startswith("error: ")), lines[-1])
    hint = "; write it without" if "not supported" in text else "; put a backslash before signs that are meant as they are"
    return f"{text.rstrip('.')}{hint}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A search: the expression, and how much context is shown."""

    expression: Expression
    context: int = 0
    is_hidden: Callable[[str], bool] = bool
    """True for files that are not looked into."""
    hard_links: bool = False


class Search:
    """One search through the files of a walk."""

    def __init__(self, query: Query, walk: Walk, bounds: Bounds, *, chars_max: int | None) -> None:
        self._query = query
        self._walk = walk
        self._bounds = bounds
        self._room = chars_max
        self._bytes = 0
        self.matches: list[dict[str, Any]] = []
        self.notes: list[str] = []

    def run(self, files: Iterator[Found]) -> None:
        """Look into the files until there is no more room."""
        for found in files:
            if self._bytes > self._bounds.search_bytes:
                self.notes.append(
                    f"Stopped before {shown(found.path)}: the files are too many; give a narrower path or include."
                )
                break
            text = self._text(found)
            if text is not None and not self._look(found.path, text):
                break
            if self._walk.is_cancelled():
                raise ToolError("The call was given up while it searched.")

    def _text(self, found: Found) -> str | None:
        if self._query.is_hidden(found.path):
            self._walk.hide("not looked into")
            return None
        try:
            descriptor = os.open(found.name, os.O_RDONLY | NOFOLLOW | ALWAYS, dir_fd=found.folder)
        except OSError:
            self._walk.leave_out("Files that could not be read", found.path)
            return None
        try:
            known = os.fstat(descriptor)
            if not stat.S_ISREG(known.st_mode):
                return None
            if known.st_nlink > 1 and not self._query.hard_links:
                self._walk.leave_out("Files with several hard links, which are not read", found.path)
                return None
            data = read_at_most(descriptor, self._bounds.write_bytes + 1)
        finally:
            let_go(descriptor)
        self._bytes += len(data)
        if len(data) > self._bounds.write_bytes:
            self._walk.leave_out(f"Files larger than {self._bounds.write_bytes} bytes", found.path)
            return None
        try:
            return text_of(data)
        except NotTextError:
            return None

    def _look(self, path: str, text: str) -> bool:
        """Add the matches of one file; False when there is no room for more."""
        if not self._query.expression.may_fit(text):
            return True
        lines = text.replace("\r\n", "\n").split("\n")
        if lines and not lines[-1]:
            lines.pop()
        if any(len(line) > PIECE_CHARS for line in lines):
            self._walk.leave_out(f"Files with lines of which only {PIECE_CHARS} characters were looked at", path)
            lines = [line[:PIECE_CHARS] for line in lines]
        for number in self._query.expression.lines(lines):
            match = self._match(path, lines, number)
            size = sum(len(str(value)) + 12 for value in match.values())
            if len(self.matches) >= self._bounds.matches or (self._room is not None and size > self._room):
                self.notes.append(
                    f"Cut after {len(self.matches)} matches; the next one is at {shown(path)} line {number + 1}. "
                    "Give a narrower pattern, path or include."
                )
                return False
            self.matches.append(match)
            if self._room is not None:
                self._room -= size
        return True

    def _match(self, path: str, lines: Sequence[str], number: int) -> dict[str, Any]:
        match: dict[str, Any] = {"path": path, "line": number + 1, "text": self._cut(lines[number])}
        if self._query.context:
            match["before"] = [self._cut(line) for line in lines[max(0, number - self._query.context) : number]]
            match["after"] = [self._cut(line) for line in lines[number + 1 : number + 1 + self._query.context]]
        return match

    def _cut(self, line: str) -> str:
        most = self._bounds.line_chars
        return line if len(line) <= most else f"{line[:most]}… ({len(line)} characters)"
