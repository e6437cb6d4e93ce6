"""Patterns that the validator cannot read, in words that it can: a schema of plain dicts in, changed in place.

JSON Schema asks for the patterns of JavaScript; what people write is also Python's, and JavaScript's with its old liberties
(`[\\w-.]`). Most of that has another spelling with the same meaning. A pattern that only Python reads is taken out, so that
it costs the tool a check and not its place, and is told as a loss; one that nobody reads stays, and the schema is refused
for it.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

from callgate.schema.refs import Source, escaped

__all__ = ["Settled", "respell_patterns"]


@dataclass(frozen=True, slots=True)
class Settled:
    """A pattern that the validator could not read, and what became of it."""

    pointer: str
    keyword: str
    said: str
    is_checked: bool

    def __str__(self) -> str:
        return f"{self.pointer}: {self.said}"


# Inside a class: a hyphen beside a shorthand is itself. Elsewhere: ends of text, characters by number, a brace by itself.
_SPELLINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<!\\)\[\^\]"), r"[\\s\\S]"),
    (re.compile(r"(\\[wWdDsS])-(?=[^\]])"), r"\1\\-"),
    (re.compile(r"(?<!\\)-(?=\\[wWdDsS])"), r"\\-"),
    (re.compile(r"\[\\b\]"), r"[\\x08]"),
    (re.compile(r"(?<!\\)\\0(?![0-9])"), r"\\x00"),
    (re.compile(r"(?<!\\)\\Z"), r"\\z"),
    (re.compile(r"(?<!\\)\{(?![0-9]|,[0-9])"), r"\\{"),
)
_NAMED = re.compile(r"(?<!\\)\((?:\?<([A-Za-z_]\w*)>)?(?!\?)")
_BACK = re.compile(r"\\k<([A-Za-z_]\w*)>")


def respell_patterns(schema: dict[str, Any], is_readable: Callable[[str], bool]) -> list[Settled]:
    """Puts every pattern right that the validator cannot read and that can be; says where and how."""
    found: list[Settled] = []
    nodes = [(place.pointer, place.schema) for place in Source(schema).places()]
    # What has not been evaluated depends on every pattern around it, so none of them may be taken out.
    can_drop = not any(isinstance(node, dict) and "unevaluatedProperties" in node for _, node in nodes)
    for pointer, held in nodes:
        if isinstance(held, dict):
            node = cast("dict[str, Any]", held)
            found += _settle_own(node, pointer, is_readable)
            found += _settle_keys(node, pointer, is_readable, can_drop=can_drop)
    return found


def _settle_own(node: dict[str, Any], pointer: str, is_readable: Callable[[str], bool]) -> Iterator[Settled]:
    pattern = node.get("pattern")
    if not isinstance(pattern, str) or is_readable(pattern):
        return
    at = f"{pointer}/pattern"
    spelled = _spelled(pattern, is_readable)
    if spelled is not None:
        node["pattern"] = spelled
        yield Settled(at, "pattern", f"{pattern[:100]!r} is read as {spelled[:100]!r}", is_checked=True)
    elif _is_pythons(pattern):
        del node["pattern"]
        yield Settled(at, "pattern", f"{pattern[:100]!r} cannot be read, and is not checked", is_checked=False)


def _settle_keys(
    node: dict[str, Any], pointer: str, is_readable: Callable[[str], bool], *, can_drop: bool
) -> Iterator[Settled]:
    held = node.get("patternProperties")
    if not isinstance(held, dict):
        return
    keyed = cast("dict[str, Any]", held)
    for key in [key for key in keyed if not is_readable(key)]:
        at = f"{pointer}/patternProperties/{escaped(key)}"
        spelled = _spelled(key, is_readable)
        if spelled is not None and spelled not in keyed:
            keyed[spelled] = keyed.pop(key)
            yield Settled(at, "patternProperties", f"read as {spelled[:100]!r}", is_checked=True)
        elif spelled is None and can_drop and _is_pythons(key):
            del keyed[key]
            # Which other keys there are is not known any more either.
            node.pop("additionalProperties", None)
            yield Settled(at, "patternProperties", "cannot be read; these and other keys are not checked", is_checked=False)


def _spelled(pattern: str, is_readable: Callable[[str], bool]) -> str | None:
    """The pattern in another spelling that can be read, if there is one."""
    for spelling, instead in _SPELLINGS:
        pattern = spelling.sub(instead, pattern)
    groups = [found[1] for found in _NAMED.finditer(pattern)]
    pattern = _BACK.sub(lambda back: f"\\{groups.index(back[1]) + 1}" if back[1] in groups else back[0], pattern)
    if is_readable(pattern):
        return pattern
    plain = re.sub(r"(?<!\\)\(\?<[A-Za-z_]\w*>", "(", pattern)
    return plain if is_readable(plain) else None


def _is_pythons(pattern: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
