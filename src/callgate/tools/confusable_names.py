"""Names of tools that a person, or a model, may confuse.

Takes names with their origin, returns pairs that look alike, each with the reason. Names of one origin are not compared,
nor is a name that two origins share: there the origin is part of the name. Pure.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

from callgate.content.lookalikes import latin
from callgate.types import ToolDefinition

__all__ = ["LookAlike", "look_alikes", "look_alikes_among"]

Named: TypeAlias = tuple[str, "str | None"]
"""A name, and the server it is of."""

CHARS_MIN = 5
"""In shorter names a difference of one letter is obvious."""

_SAME_TO_THE_EYE = str.maketrans({"0": "o", "1": "l", "i": "l", "5": "s"})
_SEPARATORS = frozenset("_-.:/ \u00b7\u2010\u2011\u2013\u2014")


@dataclass(frozen=True, slots=True)
class LookAlike:
    """Two tools of different places."""

    name: str
    place: str | None
    """The server that it lives on; None for a tool of the program itself."""
    like: str
    like_place: str | None
    why: str

    def __str__(self) -> str:
        other = f"{self.like!a} of {_source_name(self.like_place)}"
        return f"The tool {self.name!a} of {_source_name(self.place)} looks like {other}: {self.why}."


def look_alikes_among(definitions: Iterable[ToolDefinition]) -> list[LookAlike]:
    """The pairs among tools, under the names that their servers gave them."""
    return look_alikes((d.own_name, d.server) for d in definitions)


def look_alikes(tools: Iterable[Named]) -> list[LookAlike]:
    """Return the pairs among (name, server or None) that look alike; tools of the program come second in each."""
    return list(_pairs(frozenset(tools)))


@functools.lru_cache(maxsize=64)  # Called in every run, mostly with the same tools.
def _pairs(tools: frozenset[Named]) -> tuple[LookAlike, ...]:
    known = sorted(tools, key=lambda tool: (tool[1] is None, tool[1] or "", tool[0]))
    found: dict[tuple[int, int], str] = {}
    for pair in _sharing(known, _skeletons):
        found[pair] = _difference(known[pair[0]][0], known[pair[1]][0])
    told = {place for place, _ in found}
    for pair in _sharing(known, _shortened):
        first, second = (_plain(known[place][0]) for place in pair)
        # One that looks the same as another needs no word on those that look similar.
        if pair not in found and pair[0] not in told and _is_one_step(first, second):
            found[pair] = "they differ by one letter"
    return tuple(LookAlike(*known[first], *known[second], why) for (first, second), why in sorted(found.items()))


def _sharing(known: Sequence[Named], forms: Callable[[str], Iterator[str]]) -> Iterator[tuple[int, int]]:
    """Pairs of different names of different places that have a form in common."""
    having: defaultdict[str, list[int]] = defaultdict(list)
    for place, (name, _) in enumerate(known):
        for form in set(forms(name)):
            having[form].append(place)
    for places in having.values():
        for first, second in combinations(places, 2):
            if known[first][1] != known[second][1] and known[first][0] != known[second][0]:
                yield first, second


def _skeletons(name: str) -> Iterator[str]:
    """The name as the eye has it."""
    yield _plain(name).translate(_SAME_TO_THE_EYE).replace("rn", "m").replace("vv", "w")


def _shortened(name: str) -> Iterator[str]:
    """Return the name, and the name without each one of its letters: names at distance one share one of these."""
    plain = _plain(name)
    if len(plain) >= CHARS_MIN:
        yield plain
        yield from (plain[:place] + plain[place + 1 :] for place in range(len(plain)))


def _plain(name: str) -> str:
    """In Latin letters of one case, without marks and separators."""
    return "".join(char for char in latin(name) if char not in _SEPARATORS)


def _is_one_step(first: str, second: str) -> bool:
    """True if the names differ by one inserted, deleted, replaced or swapped letter. Digits are not confusing."""
    if _without_figures(first) == _without_figures(second):
        return False
    short, long = sorted((first, second), key=len)
    start = next((n for n, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(long) > len(short):
        return short[start:] == long[start + 1 :] and len(long) == len(short) + 1
    swapped = long[:start] + long[start + 1 : start + 2] + long[start : start + 1] + long[start + 2 :]
    return short[start + 1 :] == long[start + 1 :] or short == swapped


def _without_figures(text: str) -> str:
    return "".join(char for char in text if not char.isdigit())


def _difference(first: str, second: str) -> str:
    if not (first.isascii() and second.isascii()) and _plain(first) == _plain(second):
        return "letters of another script, or invisible characters"
    if first.casefold() == second.casefold():
        return "they differ only in upper and lower case"
    if _plain(first) == _plain(second):
        return "they differ only in case and separators"
    return "they differ in signs that look the same"


def _source_name(place: str | None) -> str:
    return "this program" if place is None else f"the MCP server {place!r}"
