"""Find the end of a call's arguments: count brackets, skip strings and comments, incrementally.

Takes the text after the opening bracket, in any pieces; returns how far it was read and what was found. Each character is
read once. This file does not know what the arguments mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, ClassVar, Literal, TypeAlias

__all__ = ["Form", "Found", "Scanner"]

Form: TypeAlias = Literal["(", "{"]
"""The brackets of the arguments: parentheses, or just the braces of the object."""


class Found(Enum):
    """The reason why a scan stopped."""

    NOTHING = "the piece is at its end"
    LINE = "a line has ended"
    CLOSE = "the call is closed"
    UNCLOSED = "the object is complete, its line has ended, and what follows does not close the parenthesis"


_SMART = {"“": "”", "‘": "’"}
# A line end before something that cannot begin a marker: no need to stop at it.
_PLAIN_LINE = r"\n(?=[^\s\u200b-\u200d\u2060\ufeffT*+0-9-])"
_INSIDE = {quote: rf"(?:[^{quote}\\\n]++|\\[^\n]|{_PLAIN_LINE})" for quote in "\"'”’"}
_WHOLE = "|".join(f"{q}{_INSIDE[q]}++{q}|{q}{q}(?=[^{q}])|{q}{{6}}" for q in "\"'")
"""Complete strings; three quotes and three quotes are an empty one too."""

_CODE_RUN = re.compile(rf"(?:[^\"'“‘/\n(){{}}]++|{_PLAIN_LINE}|{_WHOLE})*+")
_SPACE = re.compile(r"[^\S\n]*+")
_SAME = {bracket: re.compile(f"{re.escape(bracket)}++") for bracket in "(){}"}
_STRING = {quote: re.compile(f"{inside}*+") for quote, inside in _INSIDE.items()}


class Scanner:
    """One scan, from after the opening bracket on."""

    def __init__(self, form: Form) -> None:
        self._form: Form = form
        self._state = "start" if form == "(" else "code"
        self._quote = ""
        self._quotes = 0
        """The number of consecutive quotes, where that decides."""
        self._escaped = False
        self._depth = {"(": 0, "{": 0} | {form: 1}
        self._first_object = False
        """True if the first item in the parentheses is an object, and the scan is inside it."""
        self._line_ended = False
        self._saw_ascii = False
        self._base = 0
        self.position = 0
        """Characters read so far."""
        self.object_end: int | None = None
        """The end of the object, as long as nothing follows it."""

    @property
    def in_code(self) -> bool:
        """True if we are outside strings and comments."""
        return self._state in ("start", "code", "slash", "after") or (self._state == "opened" and self._quotes == 2)

    @property
    def lacks_only_close(self) -> bool:
        """True if the object is complete and its line has ended."""
        return self.object_end is not None and self._line_ended

    def forget_object(self) -> None:
        """Go on as if no object had been complete."""
        self._state, self.object_end = "code", None

    def run(self, text: str, place: int) -> tuple[Found, int]:
        """Scan from `place`; return why it stopped, and where. Text at `UNCLOSED` is left unread."""
        self._base = self.position - place
        met = Found.NOTHING
        while place < len(text) and met is Found.NOTHING:
            if self._escaped:
                self._escaped = False
                place += text[place] != "\n"  # The line end must be seen as such.
            else:
                met, place = self._STEPS[self._state](self, text, place)
        self.position = self._base + place
        return met, place

    def _start(self, text: str, place: int) -> tuple[Found, int]:
        place = _end(_SPACE, text, place)
        if place == len(text):
            return Found.NOTHING, place
        if text[place] == "\n":
            return Found.LINE, place + 1
        self._first_object = text[place] == "{"
        self._state = "code"
        return Found.NOTHING, place

    def _code(self, text: str, place: int) -> tuple[Found, int]:
        end = _end(_CODE_RUN, text, place)
        self._saw_ascii = self._saw_ascii or text.find('"', place, end) >= 0
        if end == len(text):
            return Found.NOTHING, end
        char = text[end]
        if char == "\n":
            return Found.LINE, end + 1
        if char in _SAME:
            return self._bracket(char, end, _end(_SAME[char], text, end))
        if char == "/":
            self._state = "slash"
        elif char not in _SMART:
            self._saw_ascii = self._saw_ascii or char == '"'
            self._state, self._quote, self._quotes = "opened", char, 1
        elif not self._saw_ascii:  # Typographic quotes are quotes only where there are no others.
            self._state, self._quote = "string", _SMART[char]
        return Found.NOTHING, end + 1

    def _bracket(self, char: str, begin: int, end: int) -> tuple[Found, int]:
        """A run of one and the same bracket; the one that closes the arguments ends the scan."""
        opening = "(" if char in "()" else "{"
        if char == opening:
            self._depth[opening] += end - begin
            return Found.NOTHING, end
        closing = begin + self._depth[opening]
        if closing > end or (opening == "{" and self._form == "(" and not self._first_object):
            self._depth[opening] -= end - begin
            return Found.NOTHING, end
        if opening == self._form:
            return Found.CLOSE, closing
        if opening == "(":  # Parentheses in an object without any around it close nothing.
            self._depth[opening] = 0
            return Found.NOTHING, end
        self._depth[opening] = 0
        self._first_object = self._line_ended = False
        self._state, self.object_end = "after", self._base + closing
        return Found.NOTHING, closing

    def _after(self, text: str, place: int) -> tuple[Found, int]:
        """After the object: a parenthesis closes the call, also on a later line; a line end may."""
        place = _end(_SPACE, text, place)
        if place == len(text):
            return Found.NOTHING, place
        char = text[place]
        if char == "\n":
            self._line_ended = True
            return Found.LINE, place + 1
        if char in ";." and not self._line_ended:
            return Found.NOTHING, place + 1
        if char != ")" and self._line_ended:
            return Found.UNCLOSED, place
        self.forget_object()
        return Found.NOTHING, place

    def _slash(self, text: str, place: int) -> tuple[Found, int]:
        self._state = {"/": "line_comment", "*": "comment"}.get(text[place], "code")
        return Found.NOTHING, place + (self._state != "code")

    def _line_comment(self, text: str, place: int) -> tuple[Found, int]:
        end = text.find("\n", place)
        if end < 0:
            return Found.NOTHING, len(text)
        self._state = "code"
        return Found.LINE, end + 1

    def _comment(self, text: str, place: int) -> tuple[Found, int]:
        found = _STAR.search(text, place)
        if found is None:
            return Found.NOTHING, len(text)
        if found[0] == "*":
            self._state = "star"
        return (Found.LINE if found[0] == "\n" else Found.NOTHING), found.end()

    def _star(self, text: str, place: int) -> tuple[Found, int]:
        if text[place] == "*":
            return Found.NOTHING, place + 1
        self._state = "code" if text[place] == "/" else "comment"
        return Found.NOTHING, place + (self._state == "code")

    def _opened(self, text: str, place: int) -> tuple[Found, int]:
        """After one or two opening quotes: a string, an empty one, or the beginning of a triple-quoted one."""
        if text[place] == self._quote:
            self._quotes += 1
            if self._quotes == 3:
                self._state, self._quotes = "triple", 0
            return Found.NOTHING, place + 1
        self._state = "string" if self._quotes == 1 else "code"
        return Found.NOTHING, place

    def _string(self, text: str, place: int) -> tuple[Found, int]:
        place = _end(_STRING[self._quote], text, place)
        if place == len(text):
            return Found.NOTHING, place
        if text[place] == self._quote:
            self._state = "code"
        return self._end_of_run(text, place)

    def _triple(self, text: str, place: int) -> tuple[Found, int]:
        if text[place] == self._quote:
            self._quotes += 1
            if self._quotes == 3:
                self._state = "code"
            return Found.NOTHING, place + 1
        self._quotes = 0
        place = _end(_STRING[self._quote], text, place)
        if place == len(text) or text[place] == self._quote:
            return Found.NOTHING, place
        return self._end_of_run(text, place)

    def _end_of_run(self, text: str, place: int) -> tuple[Found, int]:
        """The end of a run in a string: its quote, a line end, or a backslash with nothing to escape yet."""
        self._escaped = text[place] == "\\"
        return (Found.LINE if text[place] == "\n" else Found.NOTHING), place + 1

    _STEPS: ClassVar[Mapping[str, Callable[[Any, str, int], tuple[Found, int]]]] = {
        "start": _start, "code": _code, "after": _after, "slash": _slash, "line_comment": _line_comment,
        "comment": _comment, "star": _star, "opened": _opened, "string": _string, "triple": _triple,
    }  # fmt: skip


_STAR = re.compile(r"[*\n]")


def _end(pattern: re.Pattern[str], text: str, place: int) -> int:
    """Return the end of a pattern that matches everywhere."""
    match = pattern.match(text, place)
    assert match is not None
    return match.end()
