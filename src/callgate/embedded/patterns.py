"""Regular expressions and formats of strings as pieces of a grammar, as far as a grammar can say them.

A pattern of a JSON Schema comes in; an expression for the inside of a JSON string goes out, or None where the pattern holds
something that is not worth approximating. What the expression lets through matches the pattern; the reverse need not hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from callgate.embedded.gbnf import class_char

__all__ = ["FORMATS", "pattern_rule"]

_DATE = '[0-9]{4} "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | "1" [0-9] | "2" [0-8])'
_TIME = '([0-1] [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9]'
_ZONE = '("Z" | [-+] ("0" [0-9] | "1" [0-2]) ":" ("00" | "30"))'

FORMATS: Mapping[str, str] = MappingProxyType({
    "date": f"({_DATE})",
    "time": f"({_TIME} {_ZONE})",
    "date-time": f'({_DATE} "T" {_TIME} {_ZONE})',
    "uuid": '([0-9a-f]{8} "-" [0-9a-f]{4} "-" [0-9a-f]{4} "-" [0-9a-f]{4} "-" [0-9a-f]{12})',
})  # fmt: skip
"""The formats that a grammar holds. Days end at 28, so that every date exists."""

PATTERN_CHARS_MAX = 200
REPEAT_MAX = 64

_CLASSES = {"d": "0-9", "w": "A-Za-z0-9_", "s": " "}
_PLAIN = frozenset(" !#%&',-/:;<=>@_`~") | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_ESCAPABLE = frozenset(".-/+*?()[]{}^$|@:,;=#&%!~ _")
_ANY = "[A-Za-z0-9 _.,:;/@+-]"


class _NotExpressibleError(Exception):
    """The pattern holds something that this file does not translate."""


def pattern_rule(pattern: str) -> str | None:
    """The pattern as an expression of the grammar; None if it is anything but plain, anchored at both ends."""
    if (
        len(pattern) > PATTERN_CHARS_MAX
        or not pattern.startswith("^")
        or not pattern.endswith("$")
        or pattern.endswith("\\$")
    ):
        return None
    reader = _Reader(pattern[1:-1])
    try:
        made = reader.alternation()
        return f"({made})" if reader.at_end() else None
    except _NotExpressibleError:
        return None


class _Reader:
    """A recursive-descent parser for regular expressions."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0

    def at_end(self) -> bool:
        return self._place >= len(self._text)

    def alternation(self) -> str:
        arms = [self._sequence()]
        while self._peek() == "|":
            self._take()
            arms.append(self._sequence())
        return " | ".join(arms)

    def _sequence(self) -> str:
        pieces: list[str] = []
        while not self.at_end() and self._peek() not in "|)":
            pieces.append(self._atom() + self._repeat())
        return " ".join(pieces) or '""'

    def _atom(self) -> str:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == ".":
            return _ANY
        if char == "\\":
            escaped = self._take()
            if escaped in _CLASSES:
                return f"[{_CLASSES[escaped]}]"
            if escaped in _ESCAPABLE:
                return f'"{escaped}"'
            raise _NotExpressibleError
        if char in _PLAIN:
            return f'"{char}"'
        raise _NotExpressibleError

    def _group(self) -> str:
        if self._text.startswith("?:", self._place):
            self._place += 2
        elif self._peek() == "?":
            raise _NotExpressibleError
        inner = self.alternation()
        if self._take() != ")":
            raise _NotExpressibleError
        return f"({inner})"

    def _class(self) -> str:
        inside: list[str] = []
        if self._peek() in ("^", "]"):
            raise _NotExpressibleError
        while (char := self._take()) != "]":
            if char == "\\":
                escaped = self._take()
                if escaped not in _CLASSES and escaped not in _ESCAPABLE:
                    raise _NotExpressibleError
                inside.append(_CLASSES.get(escaped) or class_char(escaped))
            elif char == "-" and inside and self._peek() not in ("]", ""):
                inside.append("-")
            elif char in _PLAIN or char in ".+*?()${}|^":
                inside.append(class_char(char))
            else:
                raise _NotExpressibleError
        return f"[{''.join(inside)}]"

    def _repeat(self) -> str:
        char = self._peek()
        if char in ("*", "+", "?"):
            self._take()
            made = char
        elif char == "{":
            end = self._text.find("}", self._place)
            made = self._text[self._place : end + 1] if end > 0 else ""
            lowest, _, highest = made[1:-1].partition(",")
            if (
                not lowest.isdigit()
                or (highest and not highest.isdigit())
                or max(int(lowest), int(highest or 0)) > REPEAT_MAX
            ):
                raise _NotExpressibleError
            self._place = end + 1
        else:
            return ""
        if self._peek() in ("?", "+"):
            raise _NotExpressibleError
        return made

    def _peek(self) -> str:
        return self._text[self._place] if self._place < len(self._text) else ""

    def _take(self) -> str:
        if self.at_end():
            raise _NotExpressibleError
        self._place += 1
        return self._text[self._place - 1]
