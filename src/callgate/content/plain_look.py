"""Recognize plain JSON, many values at a time: all values of a kind, and all values under a name, are looked at together.

Takes values as tools return them; returns their JSON text or a copy, or raises if something in them is not plain JSON.
`json_safe` then walks through them one by one, which takes several times as long and knows what to write instead.
"""

from __future__ import annotations

import functools
import marshal
import math
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import chain
from operator import itemgetter
from typing import Any, ClassVar, cast

from callgate import strict_json

__all__ = ["EXACT_INT_MAX", "PIECE_VALUES", "ExactLook", "NotPlainError", "PlainLook"]

EXACT_INT_MAX = 2**53
"""Larger integers are not exact in every reader of JSON."""
PIECE_VALUES = strict_json.PIECE_ITEMS
"""Values that are looked at in one go, during which no other thread runs."""
_WRITTEN_NODES = 25 * PIECE_VALUES
"""Nodes that are written in one go."""
_NAMES_MAX = 100
"""Names of rows for which a writer is made."""

_PLAIN = frozenset({str, int, float, bool, type(None), dict, list})
_type: Callable[[Any], Any] = type
"""`type`, without narrowing by the type checker."""


class NotPlainError(Exception):
    """Something is not plain JSON, or there is more of it than allowed."""


class PlainLook:
    """One look, with a budget of nodes: every list and object is one, and every value in them."""

    def __init__(self, nodes_max: int) -> None:
        self.nodes = 0
        self._nodes_max = nodes_max
        self._has_odd_rows = False
        """True once rows were found that are not alike: further ones are not tried."""
        self._alike = _ALIKE
        self._checks = _CHECKS

    def text(self, value: list[Any] | dict[Any, Any], levels_max: int) -> bytes:
        """The JSON text of a list or object: each piece is looked at and written, and none is copied.

        What a tool changes meanwhile is written as it is then, and is JSON in any case.

        Raises:
            NotPlainError: something is not plain, or there are more levels or nodes.
            JsonError: it became something that cannot be written.
        """
        written = BytesIO()  # Each piece is copied once and given up: megabytes are not held twice.
        written.writelines(self._texts(value, levels_max))
        return written.getvalue()

    def _texts(self, value: Any, levels_max: int) -> Iterator[bytes | memoryview]:
        if _type(value) is list and len(value) > PIECE_VALUES:
            yield b"["
            for index, piece in enumerate(_pieces(value)):
                yield b"," if index else b""
                yield memoryview(self._text(piece, levels_max))[1:-1]
            yield b"]"
        elif _type(value) is dict and any(_type(one) is list and len(one) > PIECE_VALUES for one in value.values()):
            members = cast("dict[Any, Any]", value).copy()
            self._enter([members], levels_max)
            self._names(members)
            for index, (name, member) in enumerate(members.items()):
                yield (b"," if index else b"{") + strict_json.dump(name) + b":"
                yield from self._texts(member, levels_max - 1)
            yield b"}"
        else:
            yield memoryview(self._text([value], levels_max + 1))[1:-1]

    def _text(self, values: list[Any], levels_max: int) -> bytes:
        before = self.nodes
        self._enter([values], levels_max)
        if (text := self._text_of_rows(values, levels_max - 1)) is not None:
            return text
        self._piece(values, levels_max - 1)
        write = strict_json.dump if self.nodes - before < _WRITTEN_NODES else strict_json.dump_pieces
        return write(values, is_finite=True)

    def _text_of_rows(self, rows: list[Any], levels_max: int) -> bytes | None:
        """The JSON text of objects with the same few names, of which the writer finds out that texts are texts.

        Nothing but the other values is looked at. None for anything else, of which nothing is counted.
        """
        if self._has_odd_rows or _type(rows[0]) is not dict or {*map(_type, rows)} != {dict}:
            return None
        names = [*rows[0]]
        texts = tuple(name for name, value in rows[0].items() if _type(value) is str)
        if not texts or len(names) >= min(len(rows), _NAMES_MAX):
            return None
        before = self.nodes
        try:
            self._names(names)
            self._count((len(names) + 1) * len(rows), levels_max)
            for name in names:
                if name not in texts:
                    self._piece([*map(itemgetter(name), rows)], levels_max - 1)
            if self.nodes - before < _WRITTEN_NODES:
                return _row_writer(tuple(names), texts).to_json(rows, warnings="error")
        except Exception:  # Of `_piece` or the writer, or a row has other names.
            self._has_odd_rows = True
        self.nodes = before
        return None

    def copy(self, values: list[Any], levels_max: int) -> list[Any]:
        """Copy the values, if there are lists or objects among them: their tool may go on to change these.

        Raises:
            NotPlainError: a value is not plain, or there are more levels or nodes.
        """
        kinds = {*map(_type, values)}
        if not kinds <= _PLAIN:
            raise NotPlainError
        if not kinds.isdisjoint(self._LOOKS):
            try:
                values = marshal.loads(marshal.dumps(values))
            except ValueError:
                raise NotPlainError from None
        self.values(values, levels_max)
        return values

    def values(self, values: list[Any], levels_max: int) -> None:
        """Look at values, piece by piece.

        Raises:
            NotPlainError: a value is not plain, or there are more levels or nodes.
        """
        for piece in _pieces(values):
            self._piece(piece, levels_max)

    def _piece(self, values: list[Any], levels_max: int) -> None:
        # Most columns hold values of one kind. This takes half the time of looking at their types, and lets through
        # subclasses of text and numbers, which are written as what they are.
        if (is_fine := self._alike.get(_type(values[0]))) is not None:
            try:
                if is_fine(values):
                    return
            except TypeError:
                pass
        kinds = {*map(_type, values)}
        if not kinds <= _PLAIN:
            raise NotPlainError
        for kind in kinds & self._checks.keys():
            if not self._checks[kind](values if len(kinds) == 1 else [value for value in values if _type(value) is kind]):
                raise NotPlainError
        for kind in kinds & self._LOOKS.keys():
            of_kind = values if len(kinds) == 1 else [value for value in values if _type(value) is kind]
            self._LOOKS[kind](self, of_kind, levels_max)

    def _lists(self, lists: list[list[Any]], levels_max: int) -> None:
        self._enter(lists, levels_max)
        self.values([*chain.from_iterable(lists)], levels_max - 1)

    def _objects(self, objects: list[dict[Any, Any]], levels_max: int) -> None:
        names, values = [*objects[0]], sum(map(len, objects))
        self._count(len(objects) + values, levels_max)
        # All have the same names if each has those of the first, and they have no more values than that.
        if values == len(names) * len(objects) and len(names) < len(objects):
            before = self.nodes
            self._names(objects[0])
            try:
                for name in names:
                    self._piece([*map(itemgetter(name), objects)], levels_max - 1)
            except KeyError:  # Others have other names.
                self.nodes = before
            else:
                return
        self._names(set[Any]().union(*objects))
        self.values([*chain.from_iterable(map(_values, objects))], levels_max - 1)

    def _names(self, names: Any) -> None:
        if not {*map(_type, names)} <= {str} or not _are_whole([*names]):
            raise NotPlainError

    def _enter(self, holders: list[Any], levels_max: int) -> None:
        """Count lists or objects, and what they hold."""
        self._count(sum(map(len, holders)) + len(holders), levels_max)

    def _count(self, nodes: int, levels_max: int) -> None:
        self.nodes += nodes
        if levels_max <= 0 or self.nodes > self._nodes_max:
            raise NotPlainError

    _LOOKS: ClassVar[dict[type, Callable[..., None]]] = {dict: _objects, list: _lists}


class ExactLook(PlainLook):
    """A look at values of JSON alone: no subclass is let through, integers are as long as JSON may have them.

    Characters have a budget, too.
    """

    def __init__(self, nodes_max: int, chars_max: float = math.inf) -> None:
        super().__init__(nodes_max)
        self._chars_left = chars_max
        self._alike = {}
        self._checks = {int: _are_short, float: _are_finite, str: self._are_few_and_whole}

    def is_fine(self, value: Any, levels_max: int = strict_json.DEPTH_MAX) -> bool:
        """True if a value is plain JSON within the budgets; False if it has to be looked at one by one."""
        try:
            self.values([value], levels_max)
        except Exception:  # Keys may have code of their own.
            return False
        return True

    def _are_few_and_whole(self, values: list[str]) -> bool:
        text = "".join(values)
        self._chars_left -= len(text)
        return self._chars_left >= 0 and strict_json.is_whole_text(text)


def _refuse(value: Any) -> Any:
    raise NotPlainError


@functools.lru_cache(maxsize=32)
def _row_writer(names: tuple[str, ...], texts: tuple[str, ...]) -> Any:
    """A writer of objects that refuses, without writing it otherwise, a text that is none, and any further name."""
    from pydantic_core import SchemaSerializer

    kinds = {name: {"type": "str" if name in texts else "any"} for name in names}
    row = {
        "type": "typed-dict",
        "fields": {name: {"type": "typed-dict-field", "schema": kind} for name, kind in kinds.items()},
        "extra_behavior": "allow",
        "extras_schema": {"type": "any", "serialization": {"type": "function-plain", "function": _refuse}},
    }
    # What is known to be finite may still be changed by another thread until it is written.
    return SchemaSerializer(cast("Any", {"type": "list", "items_schema": row}), cast("Any", {"ser_json_inf_nan": "strings"}))


def _pieces(values: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(values), PIECE_VALUES):
        if piece := values[start : start + PIECE_VALUES]:  # A tool may go on to shorten its list.
            yield piece


def _are_exact(values: list[int]) -> bool:
    return max({*map(int.bit_length, values)}) <= _EXACT_BITS


def _are_short(values: list[int]) -> bool:
    return max({*map(int.bit_length, values)}) <= strict_json.INT_BITS_MAX


def _are_finite(values: list[float]) -> bool:
    return all(map(math.isfinite, values))


def _are_whole(values: list[str]) -> bool:
    return strict_json.is_whole_text("".join(values))


_EXACT_BITS = 53
_CHECKS: dict[type, Callable[[list[Any]], bool]] = {int: _are_exact, float: _are_finite, str: _are_whole}
_ALIKE: dict[type, Callable[[list[Any]], bool]] = {int: _are_exact, str: _are_whole}
"""Checks that raise a `TypeError` for a value of another kind."""
_values: Callable[[dict[Any, Any]], Any] = dict[Any, Any].values
