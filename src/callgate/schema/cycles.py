"""Recursive definitions: which may stay shared, and whether any value satisfies them.

Gemini follows a recursive definition only through optional properties, so the places that must be unrolled are returned.
An object that must contain another one of its kind, endlessly, cannot be declared at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from callgate.schema.refs import Place, Source, as_list, as_mapping
from callgate.schema.shape import Key, Shape

__all__ = ["is_endless", "needing_unrolling"]

_PLACES_MAX = 1_000


def needing_unrolling(shapes: Mapping[Key, Shape]) -> frozenset[str]:
    """Return the places of definitions that contain themselves on a required path."""
    arrows = {key: set(_unavoidable(shape)) for key, shape in shapes.items()}
    backwards: dict[Key, set[Key]] = {key: set() for key in arrows}
    for key, aims in arrows.items():
        for aim in aims:
            backwards[aim].add(key)
    # A node left after removing all ends and beginnings is on a cycle, or between two.
    return frozenset(key[0] for key in _endless(arrows, backwards) & _endless(backwards, arrows))


def _unavoidable(shape: Shape) -> Iterator[Key]:
    """Return references that are reached without passing an optional property."""
    stack = [shape]
    while stack:
        holder = stack.pop()
        if holder.ref is not None:
            yield holder.ref
        stack += [inner for inner, may_be_left_out in holder.children() if not may_be_left_out]


def _endless(arrows: Mapping[Key, set[Key]], backwards: Mapping[Key, set[Key]]) -> set[Key]:
    """Those from which the arrows can be followed for ever."""
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
    """True if an object must contain one of its own kind in a required property, so that none could be complete."""
    needed = {"": _needed(source, source.root, is_object=True)}
    todo = [*needed[""]]
    for place in todo:  # grows while it is walked
        if place.pointer not in needed:
            needed[place.pointer] = _needed(source, place)
            todo += needed[place.pointer]
        if len(needed) > _PLACES_MAX:
            return False
    # Those that need nothing, or only what can be complete, can be complete; the root cannot if it is none of them.
    left = {pointer: {place.pointer for place in places} for pointer, places in needed.items()}
    while complete := [pointer for pointer, others in left.items() if not others & left.keys()]:
        for pointer in complete:
            del left[pointer]
    return "" in left


def _needed(source: Source, place: Place, *, is_object: bool = False) -> list[Place]:
    """The schemas that a value must have a member for, if it must be an object."""
    together, seen = [place], {place.pointer}
    required: set[str] = set()
    for part in together:  # grows while it is walked
        node = as_mapping(part.schema)
        refers = "$ref" in node
        others = [target] if refers and (target := source.followed(part, "$ref")) is not None else []
        if not refers or source.draft > 7:
            is_object = is_object or node.get("type") == "object"
            required |= {name for name in as_list(node.get("required")) if isinstance(name, str)}
            others += [source.below(part, "allOf", index) for index in range(len(as_list(node.get("allOf"))))]
        together += [other for other in others if other.pointer not in seen]
        seen |= {other.pointer for other in others}
        if len(seen) > _PLACES_MAX:
            return []
    named = [(part, as_mapping(as_mapping(part.schema).get("properties"))) for part in together]
    members = [
        source.below(part, "properties", name)
        for part, properties in named
        for name in properties
        if name in required and not (source.draft <= 7 and "$ref" in part.schema)
    ]
    return members if is_object else []
