"""Which shared definitions may stay shared. Shapes in, the places of those that must be unrolled out.

Gemini follows a definition into itself only through properties that are not required.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from callgate.schema.shape import Key, Shape

__all__ = ["needing_unrolling"]


def needing_unrolling(shapes: Mapping[Key, Shape]) -> frozenset[str]:
    """The places of definitions that lie inside themselves on a way that cannot be left out."""
    arrows = {key: set(_unavoidable(shape)) for key, shape in shapes.items()}
    backwards: dict[Key, set[Key]] = {key: set() for key in arrows}
    for key, aims in arrows.items():
        for aim in aims:
            backwards[aim].add(key)
    # What neither ends nor begins anywhere goes round, or lies between two that do.
    return frozenset(key[0] for key in _endless(arrows, backwards) & _endless(backwards, arrows))


def _unavoidable(shape: Shape) -> Iterator[Key]:
    """References that are met without passing a property that is not required."""
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
