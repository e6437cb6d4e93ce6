"""Recursive definitions: which may stay shared, and whether any value satisfies them.

Gemini follows a recursive definition only through optional properties, so the places that must be unrolled are returned.
An object that must contain another one of its kind, endlessly, cannot be declared at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from callgate.schema.conjunction import Facet, heads_and_rest, knows
from callgate.schema.refs import Place, Source, as_list, as_mapping
from callgate.schema.shape import Key, Shape

__all__ = ["is_endless", "needing_unrolling"]

_PLACES_MAX = 1_000
Name = TypeVar("Name", bound=Hashable)


def needing_unrolling(shapes: Mapping[Key, Shape]) -> frozenset[str]:
    """Return the places of definitions that contain themselves on a required path."""
    arrows = {key: set(_unavoidable(shape)) for key, shape in shapes.items()}
    return frozenset(key[0] for key in _circular(arrows))


def _unavoidable(shape: Shape) -> Iterator[Key]:
    """Return references that are reached without passing an optional property."""
    stack = [shape]
    while stack:
        holder = stack.pop()
        if holder.ref is not None:
            yield holder.ref
        stack += [inner for inner, may_be_left_out in holder.children() if not may_be_left_out]


def _circular(arrows: Mapping[Name, set[Name]]) -> set[Name]:
    """Return the nodes on a cycle, or between two: the rest after removing all ends and beginnings."""
    backwards: dict[Name, set[Name]] = {key: set() for key in arrows}
    for key, aims in arrows.items():
        for aim in aims:
            backwards[aim].add(key)
    return _endless(arrows, backwards) & _endless(backwards, arrows)


def _endless(arrows: Mapping[Name, set[Name]], backwards: Mapping[Name, set[Name]]) -> set[Name]:
    """Return the nodes from which the arrows can be followed for ever."""
    left = {key: len(aims) for key, aims in arrows.items()}
    ended = [key for key, count in left.items() if not count]
    for key in ended:  # grows while it is walked
        del left[key]
        for before in backwards[key]:
            if before in left:
                left[before] -= 1
                if not left[before]:
                    ended.append(before)
    return set(left)


def is_endless(source: Source) -> bool:
    """True if an object must contain one of its own kind, so that none could be complete.

    A value can be complete if everything that it must contain can be. What the schemas say beyond that is left out, so that
    the answer is never true of a schema that some object fits.
    """
    root = _Node(source.root, frozenset({"object"}))
    ways: dict[tuple[str, Kinds], list[Needs]] = {}
    todo = [root]
    for node in todo:  # grows while it is walked
        if node.key not in ways:
            ways[node.key] = found = list(_ways(source, node))
            todo += [other for needs in found for options in needs for other in options]
        if len(ways) > _PLACES_MAX:
            return False
    # A schema that is one of its own branches says nothing by it.
    complete = _circular(
        {
            key: {other.key for needs in found for options in needs for other in options if other.is_branch}
            for key, found in ways.items()
        }
    )
    while grown := [
        key
        for key, found in reversed(ways.items())
        if key not in complete and any(_is_met(needs, complete) for needs in found)
    ]:
        complete.update(grown)
    return root.key not in complete


Kinds: TypeAlias = frozenset[str]
_KINDS: Kinds = frozenset({"object", "array", "other"})


class _Node(NamedTuple):
    """A schema, and the kinds of value that it is asked about."""

    place: Place
    kinds: Kinds = _KINDS
    is_branch: bool = False
    """True if it is about the same value as the schema around it."""

    @property
    def key(self) -> tuple[str, Kinds]:
        return self.place.pointer, self.kinds


Needs: TypeAlias = list[list[_Node]]
"""Members that a value must have: of each list, one must be complete."""


def _is_met(needs: Needs, complete: set[tuple[str, Kinds]]) -> bool:
    return all(any(node.key in complete for node in options) for options in needs)


def _ways(source: Source, node: _Node) -> Iterator[Needs]:
    """The needs of each kind of value that may fit a schema."""
    parts, kinds = _together(source, node)
    unions = [
        [source.below(part, word, index) for index in range(len(as_list(part.schema[word])))]
        for part in parts
        for word in ("anyOf", "oneOf")
        if as_list(part.schema.get(word))
    ]
    for kind in sorted(kinds):
        members = _MEMBERS[kind](source, parts)
        branches = [[_Node(branch, frozenset({kind}), is_branch=True) for branch in union] for union in unions]
        yield [[_Node(place) for place in options] for options in members] + branches


def _together(source: Source, node: _Node) -> tuple[list[Place], Kinds]:
    """The schemas that apply to the same value, and the kinds that it may be of."""
    together, seen, kinds = [node.place], {node.place.pointer}, node.kinds
    parts: list[Place] = []
    for part in together:  # grows while it is walked
        schema = as_mapping(part.schema)
        refers = "$ref" in schema
        others = [target] if refers and (target := source.followed(part, "$ref")) is not None else []
        if schema and (not refers or source.draft > 7):
            if "enum" in schema or "const" in schema:
                return [], _KINDS  # Values that are listed are complete.
            named: Any = schema.get("type")
            if named is not None:
                types = [named] if isinstance(named, str) else as_list(named)
                kinds &= {name if name in ("object", "array") else "other" for name in types}
            parts.append(part)
            others += [source.below(part, "allOf", index) for index in range(len(as_list(schema.get("allOf"))))]
        together += [other for other in others if other.pointer not in seen]
        seen |= {other.pointer for other in others}
        if len(seen) > _PLACES_MAX:
            return [], _KINDS
    return parts, kinds


def _of_object(source: Source, parts: Sequence[Place]) -> Iterator[list[Place]]:
    required = {name for part in parts for name in as_list(part.schema.get("required")) if isinstance(name, str)}
    for part in parts:
        named = as_mapping(part.schema.get("properties"))
        patterns = as_mapping(part.schema.get("patternProperties"))
        others: Any = part.schema.get("additionalProperties")
        rest = [source.below(part, "additionalProperties")] if isinstance(others, Mapping) else []
        for name in sorted(required):
            if name in named:
                yield [source.below(part, "properties", name)]
            elif rest and not patterns:
                yield rest
        if _least(parts, "minProperties") and not required and (rest or others is False) and (named or patterns or rest):
            yield [
                *(source.below(part, "properties", name) for name in named),
                *(source.below(part, "patternProperties", name) for name in patterns),
                *rest,
            ]


def _of_array(source: Source, parts: Sequence[Place]) -> Iterator[list[Place]]:
    draft = source.draft
    needed = [
        part
        for part in parts
        if knows(draft, "contains")
        and isinstance(part.schema.get("contains"), Mapping)
        and (part.schema.get("minContains") != 0 or not knows(draft, "minContains"))
    ]
    yield from ([source.below(part, "contains")] for part in needed)
    least = max(_least(parts, "minItems"), bool(needed))
    for part in parts:
        heads, rest = heads_and_rest(Facet(part, part.schema), draft)
        yield from ([source.below(part, *steps)] for steps in heads[:least])
        if rest is not None and least > len(heads):
            yield [source.below(part, *rest)]


def _least(parts: Sequence[Place], keyword: str) -> int:
    given = [part.schema.get(keyword) for part in parts]
    return max((math.ceil(value) for value in given if type(value) in (int, float)), default=0)


_MEMBERS: dict[str, Callable[[Source, Sequence[Place]], Iterator[list[Place]]]] = {
    "object": _of_object, "array": _of_array, "other": lambda source, parts: iter(()),
}  # fmt: skip
