"""Copy plain JSON, many values at a time: all values of a kind, and all values under a name, are looked at together.

Takes values as tools return them; returns their copy, or raises if something in them is not plain JSON. `json_safe` then
walks through them one by one, which takes several times as long and knows what to write instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain, islice
from operator import is_, itemgetter
from typing import Any, ClassVar

from callgate import strict_json

__all__ = ["EXACT_INT_MAX", "PIECE_VALUES", "NotPlainError", "PlainCopy"]

EXACT_INT_MAX = 2**53
"""Larger integers are not exact in every reader of JSON."""
PIECE_VALUES = 1_000
"""Values that are looked at in one go, during which no other thread runs."""

_PLAIN = frozenset({str, int, float, bool, type(None), dict, list})
_type: Callable[[Any], Any] = type
"""`type`, without narrowing by the type checker."""


class NotPlainError(Exception):
    """Something is not plain JSON, or there is more of it than allowed."""


class PlainCopy:
    """One copy, with a budget of nodes: every list and object is one, and every value in them."""

    def __init__(self, nodes_max: int) -> None:
        self.nodes = 0
        self._nodes_max = nodes_max

    def values(self, values: list[Any], levels_max: int) -> list[Any]:
        """Copy the lists and objects among the values; return the same list if there are none.

        Raises:
            NotPlainError: a value is not plain, or there are more levels or nodes.
        """
        if len(values) <= PIECE_VALUES:
            return self._piece(values, levels_max)
        pieces = [values[start : start + PIECE_VALUES] for start in range(0, len(values), PIECE_VALUES)]
        copied = [self._piece(piece, levels_max) for piece in pieces]
        return values if all(map(is_, copied, pieces)) else [*chain.from_iterable(copied)]

    def _piece(self, values: list[Any], levels_max: int) -> list[Any]:
        kinds = {*map(_type, values)}
        if not kinds <= _PLAIN:
            raise NotPlainError
        is_mixed = len(kinds) > 1
        for kind in kinds & _CHECKS.keys():
            if not _CHECKS[kind]([value for value in values if _type(value) is kind] if is_mixed else values):
                raise NotPlainError
        for kind in kinds & self._COPIES.keys():
            if not is_mixed:
                return self._COPIES[kind](self, values, levels_max)
            made = iter(self._COPIES[kind](self, [value for value in values if _type(value) is kind], levels_max))
            values = [next(made) if _type(value) is kind else value for value in values]
        return values

    # Copies are made first and looked at then: a tool may go on to change what it has returned.

    def _lists(self, lists: list[list[Any]], levels_max: int) -> list[list[Any]]:
        copies = [one.copy() for one in lists]
        self._enter(copies, levels_max)
        values = [*chain.from_iterable(copies)]
        copied = self.values(values, levels_max - 1)
        if copied is not values:
            made = iter(copied)
            for one in copies:
                one[:] = islice(made, len(one))
        return copies

    def _objects(self, objects: list[dict[Any, Any]], levels_max: int) -> list[dict[Any, Any]]:
        copies = [one.copy() for one in objects]
        count = self._enter(copies, levels_max)
        names: set[Any] = set[Any]().union(*copies)
        if not {*map(_type, names)} <= {str} or not _are_whole([*names]):
            raise NotPlainError
        if len(names) <= len(copies) and count == len(names) * len(copies):
            for name in names:
                self._column(copies, name, levels_max - 1)
            return copies
        values = [value for one in copies for value in one.values()]
        copied = self.values(values, levels_max - 1)
        if copied is not values:
            made = iter(copied)
            for one in copies:
                for name in one:
                    one[name] = next(made)
        return copies

    def _column(self, copies: list[dict[Any, Any]], name: str, levels_max: int) -> None:
        """Copy what stands under a name that all objects have."""
        values = [*map(itemgetter(name), copies)]
        copied = self.values(values, levels_max)
        if copied is not values:
            for one, value in zip(copies, copied, strict=True):
                one[name] = value

    def _enter(self, holders: list[Any], levels_max: int) -> int:
        """Count lists or objects, and what they hold."""
        count = sum(map(len, holders))
        self.nodes += count + len(holders)
        if levels_max <= 0 or self.nodes > self._nodes_max:
            raise NotPlainError
        return count

    _COPIES: ClassVar[dict[type, Callable[..., list[Any]]]] = {dict: _objects, list: _lists}


def _are_exact(values: list[int]) -> bool:
    return min(values) >= -EXACT_INT_MAX and max(values) <= EXACT_INT_MAX


def _are_finite(values: list[float]) -> bool:
    return all(map(math.isfinite, values))


def _are_whole(values: list[str]) -> bool:
    return strict_json.is_whole_text("".join(values))


_CHECKS: dict[type, Callable[[list[Any]], bool]] = {int: _are_exact, float: _are_finite, str: _are_whole}
