"""Estimate the cost of checking a value: the number of steps, counted without taking them.

Unions whose branches lead to the same schemas multiply: ten branches fifteen deep are 10^15 steps for one small value.
The validator takes them all and cannot be interrupted, so they are counted first, each pair of a schema and a value once.
Checks nothing and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, cast

from callgate.schema.refs import Place, Source, as_list, as_mapping

__all__ = ["COST_MAX", "ValidationCost"]

COST_MAX = 10_000_000
"""The count stops here."""

EXPANDED_MAX = 500
"""A schema that is no longer than this with all references replaced is held against a value at once."""

_CHAIN_MAX = 32
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_SAME_VALUE = ("not", "if", "then", "else")
_SAME_VALUE_MAPS = ("dependentSchemas", "dependencies")

_Step = TypeVar("_Step", bound=Hashable)


class _Pair(NamedTuple):
    """A schema and a value checked against it, each by identity."""

    pointer: str
    value: int


class ValidationCost:
    """The cost of the parts of one schema."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._source = Source(schema)
        self._beside: dict[str, list[Place]] = {}
        places = [place for place in self._source.places() if isinstance(place.schema, Mapping)]
        nodes = [as_mapping(place.schema) for place in places]
        self.may_multiply = any(word in node for node in nodes for word in _REFERENCES)
        """True if there are references: without them the cost is at most the number of parts."""
        self._places = {place.pointer: place for place in places}

    @cached_property
    def is_unbounded(self) -> bool:
        """True if a schema refers to itself, or if following all references leads to too many schemas.

        Otherwise no value is held against more than so many schemas.
        """
        if not self.may_multiply or len(self._places) > EXPANDED_MAX:
            return self.may_multiply
        return self._expanded("", {}, _CHAIN_MAX) > EXPANDED_MAX

    def _expanded(self, start: str, totals: dict[str, int], chain_left: int) -> int:
        """The number of schemas at and below a place, with references replaced by their targets."""
        if start in totals or not chain_left:
            return totals.get(start, COST_MAX)
        totals[start] = COST_MAX  # What leads here again is a circle.
        inside = [place for at, place in self._places.items() if at == start or at.startswith(f"{start}/")]
        references = [(place, word) for place in inside for word in _REFERENCES if word in as_mapping(place.schema)]
        total = len(inside)
        for place, word in references:
            target = self._source.target(place, word)
            total += 0 if target is None else self._expanded(target.pointer, totals, chain_left - 1)
        totals[start] = min(total, COST_MAX)
        return totals[start]

    def of_one_value(self) -> int:
        """The maximum number of steps at a single value, excluding the values below it."""
        totals: dict[str, int] = {}
        for pointer in list(self._places) if self.may_multiply else ():
            if pointer not in totals:
                _count(pointer, lambda at: [inner.pointer for inner in self.beside(self._places[at])], totals)
        return max(totals.values(), default=0)

    def of(self, value: Any) -> int:
        """The steps that a check of this value may take."""
        values: dict[int, Any] = {id(value): value}

        def steps(pair: _Pair) -> Iterator[_Pair]:
            place, held = self._places[pair.pointer], values[pair.value]
            for inner in self.beside(place):
                yield _Pair(inner.pointer, pair.value)
            for inner, _, item in self.below(place, held):
                values[id(item)] = item
                yield _Pair(inner.pointer, id(item))

        return _count(_Pair("", id(value)), steps, {})

    @property
    def root(self) -> Place:
        """The schema itself."""
        return self._source.root

    def beside(self, place: Place) -> list[Place]:
        """Return the schemas that apply to a value because this one does."""
        found = self._beside.get(place.pointer)
        if found is None:
            node = as_mapping(place.schema)
            inner = [self._source.below(place, word) for word in _SAME_VALUE if word in node]
            inner += [branch for word in ("anyOf", "oneOf") for branch in self.branches(place, word)]
            for word in _SAME_VALUE_MAPS:
                inner += [self._source.below(place, word, name) for name in as_mapping(node.get(word))]
            found = self._beside[place.pointer] = [*self.musts(place), *self._known(inner)]
        return found

    def musts(self, place: Place) -> list[Place]:
        """Return the schemas that the value must fit in any case."""
        targets = [self._source.target(place, word) for word in _REFERENCES if word in as_mapping(place.schema)]
        return self._known([*(target for target in targets if target is not None), *self.branches(place, "allOf")])

    def branches(self, place: Place, word: str) -> list[Place]:
        """Return the schemas in one of the lists of a schema."""
        return [self._source.below(place, word, index) for index in range(len(as_list(as_mapping(place.schema).get(word))))]

    def below(self, place: Place, value: Any) -> Iterator[tuple[Place, str | int, Any]]:
        """Return the schemas that apply to parts of a value because of this one, with the parts and their keys."""
        node = as_mapping(place.schema)
        if isinstance(value, dict):
            named, patterns = as_mapping(node.get("properties")), as_mapping(node.get("patternProperties"))
            for key, item in cast("dict[str, Any]", value).items():
                ways: list[tuple[str | int, ...]] = [("patternProperties", pattern) for pattern in patterns]
                ways += [("properties", key)] if key in named else [("additionalProperties",)]
                yield from ((inner, key, item) for inner in self._there(place, [*ways, ("unevaluatedProperties",)]))
        elif isinstance(value, list):
            word = "prefixItems" if "prefixItems" in node else "items"
            listed = len(as_list(node.get(word)))
            for index, item in enumerate(cast("list[Any]", value)):
                ways = [(word, index)] if index < listed else [("items",), ("additionalItems",)]
                yield from (
                    (inner, index, item) for inner in self._there(place, [*ways, ("contains",), ("unevaluatedItems",)])
                )

    def _there(self, place: Place, ways: Iterable[tuple[str | int, ...]]) -> list[Place]:
        node = as_mapping(place.schema)
        return self._known([self._source.below(place, *way) for way in ways if way[0] in node])

    def _known(self, places: Iterable[Place]) -> list[Place]:
        """Filter the places: schemas with something in them."""
        found = [place for place in places if isinstance(place.schema, Mapping)]
        for place in found:
            self._places.setdefault(place.pointer, place)
        return found


def _count(start: _Step, steps: Callable[[_Step], Iterable[_Step]], totals: dict[_Step, int]) -> int:
    """Count one, plus everything reachable from `start`, as often as it is reached."""
    totals[start] = 0  # A circle adds nothing.
    open_ones = [(start, iter(steps(start)))]
    sums = [1]
    while open_ones:
        for step in open_ones[-1][1]:
            if step in totals:
                sums[-1] += totals[step]
            else:
                totals[step] = 0
                open_ones.append((step, iter(steps(step))))
                sums.append(1)
                break
        else:
            done, _ = open_ones.pop()
            totals[done] = min(sums.pop(), COST_MAX)
            if sums:
                sums[-1] += totals[done]
    return totals[start]
