"""Rewrite patterns that the validator cannot compile, in place, in a schema of plain dicts.

JSON Schema requires JavaScript's patterns; people also write Python's, and JavaScript's with its legacy syntax
(`[\\w-.]`). Most of that has an equivalent spelling. A pattern that only Python compiles is removed, so that it costs the
tool a check and not its declaration, and is reported as a loss; one that nothing compiles stays, and the schema is
rejected.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from callgate.schema.refs import Source, escaped

__all__ = ["Settled", "respell_misread", "respell_patterns"]


@dataclass(frozen=True, slots=True)
class Settled:
    """A pattern that the validator could not compile, and what was done with it."""

    pointer: str
    keyword: str
    said: str
    is_checked: bool

    def __str__(self) -> str:
        return f"{self.pointer}: {self.said}"


_TOKEN = re.compile(
    r"\\(?:x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]+\}|c[A-Za-z]|k<[A-Za-z_]\w*>|[pP]\{[^}]*\}|[0-9]+|.)"
    r"|\(\?<(?![=!])[A-Za-z_]\w*>|\(\?|\[\^?\]?|\{[0-9]+(?:,[0-9]*)?\}|\{,[0-9]+\}|.",
    re.DOTALL,
)
_KNOWN = frozenset("AZabBcdDfknpPrsStuvwWxz")
"""Letters with a meaning after a backslash in JavaScript or Python; others are literals."""
_PLAIN_LETTERS = frozenset("cxuk")
"""Literals without a following number or letter."""
_SHORTHANDS = frozenset(f"\\{letter}" for letter in "wWdDsS")
_WHOLE_CLASSES = {"[^]": r"[\s\S]", "[]": r"[^\s\S]"}
"""Any character, and none, as JavaScript writes it."""
_OPERATORS = ("&&", "--", "~~")


class _Respelling:
    """One pattern with the semantics of JavaScript and Python, in the syntax of the validator's engine."""

    def __init__(self, pattern: str) -> None:
        self.tokens = _TOKEN.findall(pattern)
        self.names = [token[3:-1] if token.startswith("(?<") else "" for token in self.tokens if _captures(token)]
        self.ended: set[int] = set()
        """The groups closed so far, which back-references may name."""

    def spelled(self) -> str:
        found: list[str] = []
        groups: list[int] = []
        count, in_class = 0, False
        # In Python a bracket that closes nothing is one of the characters of a class, as in `[]a]`.
        last_closing = max((place for place, token in enumerate(self.tokens) if token == "]"), default=-1)
        for place, token in enumerate(self.tokens):
            if in_class:
                in_class = token != "]"
                found.append(self._in_class(place, token))
            elif token == "[^]" or (token == "[]" and place > last_closing):
                found.append(_WHOLE_CLASSES[token])
            elif token[0] == "[":
                in_class = token in ("[", "[^")
                found.append(token)
            else:
                if token[0] == "(":
                    count += _captures(token)
                    groups.append(count if _captures(token) else 0)
                elif token == ")" and groups:
                    self.ended.add(groups.pop())
                found.append(self._outside(token))
        return "".join(found)

    def _outside(self, token: str) -> str:
        if token == "\\Z":
            return r"\z"
        if token in ("\\<", "\\>"):
            return token[1]  # word boundaries, elsewhere
        if token == "{":
            return r"\{"
        if token.startswith("\\k<") and token[3:-1] in self.names:
            return self._back(self.names.index(token[3:-1]) + 1)
        if token[0] == "\\" and token[1:].isdigit() and token[1] != "0":
            return self._back(int(token[1:])) if int(token[1:]) <= len(self.names) else self._escape(token)
        return self._escape(token)

    def _back(self, number: int) -> str:
        return f"\\{number}" if number in self.ended else "(?:)"  # of a group that has matched nothing yet

    def _in_class(self, place: int, token: str) -> str:
        around = (self.tokens[place - 1], self.tokens[place + 1] if place + 1 < len(self.tokens) else "")
        if token == "-" and around[1] != "]" and not _SHORTHANDS.isdisjoint(around):
            return r"\-"  # a shorthand cannot bound a range
        if token == "\\b":
            return r"\x08"
        if token[0] == "[":
            return "".join(f"\\{char}" for char in token)
        if token in "&~" and token + around[1] in _OPERATORS:
            return f"\\{token}"
        return self._escape(token)

    def _escape(self, token: str) -> str:
        """Translate an escape that only some engines know."""
        if token[0] != "\\" or len(token) < 2:
            return token
        if token[1].isdigit():
            octal = token[1:4] if token[1] == "0" else ""
            if token == "\\0":
                return r"\x00"
            return token if octal else "".join(token[1:]) if token[1] in "89" else token
        is_plain = len(token) == 2 and token[1].isascii() and token[1].isalpha()
        if is_plain and (token[1] not in _KNOWN or token[1] in _PLAIN_LETTERS):
            return "\\\\c" if token[1] == "c" else token[1]
        return token


def _captures(token: str) -> bool:
    return token == "(" or token.startswith("(?<")


_MISREAD = re.compile(r"\\[<>1-9ehHGKRXk]")


def respell_misread(schema: dict[str, Any], is_readable: Callable[[str], bool]) -> list[Settled]:
    """Put every pattern right that the validator reads without complaint and takes for something else."""
    return _settled(schema, lambda pattern: not _may_be_misread(pattern), is_readable, can_drop=False)


def respell_patterns(schema: dict[str, Any], is_readable: Callable[[str], bool]) -> list[Settled]:
    """Rewrite every pattern that the validator cannot compile; return where and how."""
    # `unevaluatedProperties` depends on every pattern around it, so none of them may be removed.
    nodes = (place.schema for place in Source(schema).places())
    can_drop = not any(isinstance(node, dict) and "unevaluatedProperties" in node for node in nodes)
    return _settled(schema, is_readable, is_readable, can_drop=can_drop)


def _may_be_misread(pattern: str) -> bool:
    return bool(_MISREAD.search(pattern)) or pattern.count("[") > 1 or "&&" in pattern or "~~" in pattern


def _settled(
    schema: dict[str, Any], is_right: Callable[[str], bool], is_readable: Callable[[str], bool], *, can_drop: bool
) -> list[Settled]:
    found: list[Settled] = []
    for held, pointer, _ in list(Source(schema).places()):
        if isinstance(held, dict):
            node = cast("dict[str, Any]", held)
            pattern = node.get("pattern")
            if isinstance(pattern, str) and not is_right(pattern):
                found += _settle_own(node, pattern, pointer, is_readable)
            found += _settle_keys(node, pointer, is_right, is_readable, can_drop=can_drop)
    return found


def _settle_own(node: dict[str, Any], pattern: str, pointer: str, is_readable: Callable[[str], bool]) -> Iterator[Settled]:
    at = f"{pointer}/pattern"
    spelled = _spelled(pattern, is_readable)
    if spelled is not None and spelled != pattern:
        node["pattern"] = spelled
        yield Settled(at, "pattern", f"{pattern[:100]!r} is read as {spelled[:100]!r}", is_checked=True)
    elif spelled is None and not is_readable(pattern) and _is_pythons(pattern):
        del node["pattern"]
        yield Settled(at, "pattern", f"{pattern[:100]!r} cannot be read, and is not checked", is_checked=False)


def _settle_keys(
    node: dict[str, Any],
    pointer: str,
    is_right: Callable[[str], bool],
    is_readable: Callable[[str], bool],
    *,
    can_drop: bool,
) -> Iterator[Settled]:
    held = node.get("patternProperties")
    if not isinstance(held, dict):
        return
    keyed = cast("dict[str, Any]", held)
    for key in [key for key in keyed if not is_right(key)]:
        at = f"{pointer}/patternProperties/{escaped(key)}"
        spelled = _spelled(key, is_readable)
        if spelled is not None and spelled not in keyed:
            keyed[spelled] = keyed.pop(key)
            yield Settled(at, "patternProperties", f"read as {spelled[:100]!r}", is_checked=True)
        elif spelled is None and can_drop and _is_pythons(key):
            del keyed[key]
            # The set of other keys is unknown now, too.
            node.pop("additionalProperties", None)
            yield Settled(at, "patternProperties", "cannot be read; these and other keys are not checked", is_checked=False)


def _spelled(pattern: str, is_readable: Callable[[str], bool]) -> str | None:
    """Return the equivalent pattern for the validator, if there is one."""
    spelled = _Respelling(pattern).spelled()
    if is_readable(spelled):
        return spelled
    plain = re.sub(r"(?<!\\)\(\?<[A-Za-z_]\w*>", "(", spelled)
    return plain if is_readable(plain) else None


def _is_pythons(pattern: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
