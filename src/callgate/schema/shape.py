"""The intermediate form of a schema, before it is written in one of the wire's dialects.

A `Shape` is the set of values allowed in a place: references resolved, `allOf` merged, unions as lists of shapes. It is
at least as wide as its schema. This file holds the data only; `lower` makes shapes, `wire_json` and `wire_message` write
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

__all__ = [
    "ALL_TYPES",
    "TYPES_OF",
    "Key",
    "Limit",
    "Losses",
    "Lost",
    "Shape",
    "default_fits",
    "never",
    "type_of",
    "types_meet",
    "value_shapes",
]

ALL_TYPES = ("string", "number", "integer", "boolean", "array", "object", "null")
"""Every type, in the order in which several of them are written."""

Key: TypeAlias = tuple[str, int]
"""A shared definition: its place in the source, and its nesting depth in itself."""

TYPES_OF: dict[str, frozenset[str]] = {
    keyword: frozenset(types.split())
    for keywords, types in {
        "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf": "number integer",
        "minLength maxLength pattern contentEncoding contentMediaType contentSchema": "string",
        "minItems maxItems uniqueItems contains minContains maxContains unevaluatedItems items prefixItems": "array",
        "additionalItems": "array",
        "minProperties maxProperties patternProperties propertyNames dependentRequired dependentSchemas": "object",
        "dependencies unevaluatedProperties properties required additionalProperties": "object",
        "format": "string number integer",
    }.items()
    for keyword in keywords.split()
}
"""The types that a keyword applies to; values of other types are unrestricted."""


Lost: TypeAlias = tuple[str, str, str, str]
"""The place, keyword, reason and replacement of a `Loss`: there are many, and few are read."""


class Limit(NamedTuple):
    """One simple keyword, and its place."""

    value: Any
    pointer: str


@dataclass(slots=True)
class Shape:
    """The values allowed in a place. Unset fields do not restrict anything."""

    pointer: str = ""
    types: frozenset[str] | None = None
    """None: any type."""
    text: str = ""
    label: str = ""
    """The title, which only documents the values of a union."""
    values: list[Any] | None = None
    limits: dict[str, Limit] = field(default_factory=dict[str, Limit])
    notes: list[str] = field(default_factory=list[str])
    """Restrictions that no dialect can express, as text."""
    properties: dict[str, Shape] = field(default_factory=dict[str, "Shape"])
    required: list[str] = field(default_factory=list[str])
    ordering: list[str] = field(default_factory=list[str])
    additional: Shape | bool | None = None
    items: Shape | None = None
    prefix: list[Shape] = field(default_factory=list["Shape"])
    any_of: list[Shape] = field(default_factory=list["Shape"])
    ref: Key | None = None
    is_never: bool = False
    where: dict[str, str] = field(default_factory=dict[str, str])
    """The places of structural keywords in the source."""

    @property
    def is_any(self) -> bool:
        """True if the value is unrestricted, texts aside."""
        said = self.values is not None or self.limits or self.properties or self.required or self.items or self.prefix
        return self.types is None and not (said or self.any_of or self.ref or self.is_never or self.additional is not None)

    @property
    def enum_at(self) -> tuple[str, str]:
        """The place and keyword of the listed values."""
        at = self.where.get("enum", self.pointer)
        return at, at.rpartition("/")[2] if "enum" in self.where else "enum"

    def is_only(self, name: str) -> bool:
        """True if this type is the only one."""
        return self.types is not None and len(self.types) == 1 and name in self.types

    def may_be(self, name: str) -> bool:
        """True if a value of this type is allowed. An integer is a number."""
        return self.types is None or name in self.types or (name == "integer" and "number" in self.types)

    def children(self) -> Iterator[tuple[Shape, bool]]:
        """Every shape directly below, and whether it may be left out because it is a property that is not required."""
        for name, inner in self.properties.items():
            yield inner, name not in self.required
        for inner in (*self.prefix, *self.any_of, self.items, self.additional):
            if isinstance(inner, Shape):
                yield inner, False


@dataclass(slots=True)
class Losses:
    """Losses, without duplicates."""

    _found: dict[tuple[str, str, str], str] = field(default_factory=dict[tuple[str, str, str], str])

    def add(self, pointer: str, keyword: str, reason: str, instead: str) -> None:
        """Add a loss; the first one of its kind in a place counts."""
        self._found.setdefault((pointer, keyword, instead), reason)

    def all(self) -> tuple[Lost, ...]:
        """Every loss, by its place."""
        return tuple([(pointer, keyword, self._found[pointer, keyword, instead], instead)
                      for pointer, keyword, instead in sorted(self._found)])  # fmt: skip


def never(pointer: str) -> Shape:
    """A place that allows no value."""
    return Shape(pointer=pointer, is_never=True)


def type_of(value: Any) -> str:
    """The JSON type of a value; a whole number is an integer."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        return "integer" if value == int(value) else "number"
    if value is None:
        return "null"
    return "string" if isinstance(value, str) else "object" if isinstance(value, Mapping) else "array"


def types_meet(first: frozenset[str] | None, second: frozenset[str] | None) -> frozenset[str] | None:
    """The types that both allow."""
    if first is None or second is None:
        return second if first is None else first
    both = first & second
    for one, other in ((first, second), (second, first)):
        if "integer" in one and "number" in other and "integer" not in other and "number" not in one:
            both |= {"integer"}
    return both


def default_fits(shape: Shape) -> bool:
    """True if the default is of an allowed type; null is not worth mentioning."""
    limit = shape.limits.get("default")
    if limit is None or limit.value is None:
        return False
    kind = type_of(limit.value)
    branches = [branch for branch in shape.any_of if branch.ref is None]
    return shape.may_be(kind) and (
        len(branches) < len(shape.any_of) or not branches or any(b.may_be(kind) for b in branches)
    )


def value_shapes(shape: Shape) -> list[Shape]:
    """Split a shape of listed values into one shape per type, without texts."""
    groups: dict[str, list[Any]] = {}
    for value in shape.values or ():
        kind = type_of(value)
        if shape.may_be(kind):
            groups.setdefault("number" if kind == "integer" else kind, []).append(value)
    found: list[Shape] = []
    for kind, values in groups.items():
        whole = kind == "number" and all(type_of(value) == "integer" for value in values)
        limits = {word: limit for word, limit in shape.limits.items() if kind in TYPES_OF.get(word, ())}
        found.append(replace(
            shape, types=frozenset({"integer" if whole else kind}), values=values, text="", notes=[], limits=limits
        ))  # fmt: skip
    return sorted(found, key=lambda one: _rank(one.types or ()))


def _rank(types: Iterable[str]) -> int:
    return min((ALL_TYPES.index(name) for name in types), default=0)
