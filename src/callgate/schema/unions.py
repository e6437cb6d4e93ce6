"""Merge the branches of `anyOf` and `oneOf`, given as shapes, into one shape. Knows no wire format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from callgate.schema.conjunction import identity
from callgate.schema.limit_text import shown
from callgate.schema.refs import as_list, as_mapping
from callgate.schema.shape import Key, Losses, Shape, never, types_meet, value_shapes

__all__ = ["Exclusive", "only_requires", "requirement_words", "united"]

_ONLY_REQUIRES = frozenset({"required", "title", "description", "not"})
_COMPARED_MAX = 60
_MEANINGS_MAX = 50


@dataclass(frozen=True, slots=True)
class Exclusive:
    """A `oneOf`, sent as any-of: that is a loss, unless no value could fit two branches anyway."""

    pointer: str
    branches: Sequence[Shape]

    def report(self, losses: Losses, shapes: Mapping[Key, Shape]) -> None:
        """Report the loss, if it is one."""
        branches = [_resolved(branch, shapes) for branch in self.branches if not branch.is_never]
        small = len(branches) <= _COMPARED_MAX
        if not small or not all(_is_apart(one, other, shapes) for one, other in combinations(branches, 2)):
            losses.add(self.pointer, "oneOf", "that only one alternative may fit cannot be said", "checked locally")


def _resolved(shape: Shape, shapes: Mapping[Key, Shape]) -> Shape:
    return shapes.get(shape.ref, shape) if shape.ref else shape


def _is_apart(one: Shape, other: Shape, shapes: Mapping[Key, Shape]) -> bool:
    """True if surely no value fits both."""
    if one.any_of or other.any_of:
        sides = [[_resolved(b, shapes) for b in side.any_of] or [side] for side in (one, other)]
        if any(branch.any_of for side in sides for branch in side):
            return False
        return all(_is_apart(first, second, shapes) for first in sides[0] for second in sides[1])
    if one.values is not None and other.values is not None:
        return {identity(value) for value in one.values}.isdisjoint(identity(value) for value in other.values)
    met = types_meet(one.types, other.types)
    if met is not None and not met:
        return True
    if not (one.is_only("object") and other.is_only("object")):
        return False
    marks = [name for name in one.properties if name in other.properties and name in one.required and name in other.required]
    pairs = [(one.properties[name], other.properties[name]) for name in marks]
    return any(a.values is not None and b.values is not None and _is_apart(a, b, shapes) for a, b in pairs)


def only_requires(node: Mapping[str, Any]) -> bool:
    """True if a branch only requires properties (or forbids some)."""
    return "required" in node and node.keys() <= _ONLY_REQUIRES and _names_only(node.get("not", {"required": []}))


def _names_only(node: Any) -> bool:
    holder = as_mapping(node)
    if list(holder) == ["anyOf"]:
        return all(list(as_mapping(branch)) == ["required"] for branch in as_list(holder["anyOf"]))
    return list(holder) == ["required"]


def requirement_words(keyword: str, nodes: Sequence[Mapping[str, Any]]) -> str:
    """`needs a or b and c`."""
    choices = [" and ".join(map(str, node["required"])) or "nothing" for node in nodes[:10]]
    which = "exactly one of: " if keyword == "oneOf" and len(choices) > 1 else ""
    return f"needs {which}{' or '.join(dict.fromkeys(choices))}"


def united(outer: Shape, branches: Sequence[Shape]) -> Shape:
    """A shape that any of the branches fits, with the texts of `outer`."""
    flat: list[Shape] = []
    for branch in branches:
        if branch.any_of and not (branch.text or branch.notes or branch.limits):
            flat += branch.any_of
        elif not branch.is_never:
            flat.append(branch)
    if not flat:
        return never(outer.pointer)
    if len(flat) == 1:
        return _within(outer, flat[0])
    if all(_is_values(branch) for branch in flat):
        return _listed(outer, flat)
    return replace(outer, any_of=flat, types=None)


def _within(outer: Shape, inner: Shape) -> Shape:
    """Return the only remaining branch; the text next to the union takes precedence."""
    if inner.ref and not (outer.text or outer.notes or outer.limits):
        return inner
    if inner.ref:
        return replace(outer, any_of=[inner], types=None)
    return replace(
        inner,
        text=outer.text or inner.text,
        notes=[*outer.notes, *inner.notes],
        limits={**inner.limits, **outer.limits},
    )


def _is_values(branch: Shape) -> bool:
    # Text in brackets is a restriction added by `with_words`, not the meaning of a value.
    is_limited = branch.limits or branch.notes or branch.text.endswith(")")
    return branch.values is not None and not (is_limited or branch.any_of)


def _listed(outer: Shape, branches: Sequence[Shape]) -> Shape:
    """Merge alternatives that are plain values: one list of them, and the meaning of each."""
    values = [value for branch in branches for one in value_shapes(branch) for value in one.values or ()]
    meanings = [
        f"{shown(branch.values[0])}: {branch.text or branch.label}"
        for branch in branches
        if branch.values and len(branch.values) == 1 and (branch.text or branch.label)
    ]
    unique = {identity(value): value for value in reversed(values)}
    where = {"enum": branches[0].where.get("enum", outer.pointer)}
    notes = [*outer.notes, "; ".join(meanings[:_MEANINGS_MAX])]
    return replace(outer, values=list(reversed(unique.values())), types=None, notes=notes, where=where)
