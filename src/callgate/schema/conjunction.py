"""Merge several schemas that all apply to one value, keyword by keyword.

Takes `Facet`s: schemas whose references and `allOf`s are already expanded. Simple keywords, types and listed values
become one `Shape`; the schemas of a property or item are returned as steps to them. May widen and never narrows: an
omitted keyword is reported. Knows no wire format.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from callgate.schema.limit_text import in_words
from callgate.schema.refs import Place, as_list, as_mapping, escaped
from callgate.schema.shape import ALL_TYPES, TYPES_OF, Limit, Losses, Shape, type_of, types_meet

__all__ = [
    "CONSTRAINING",
    "ONE_TYPE",
    "REFERENCES",
    "SIMPLE_LIMITS",
    "Facet",
    "heads_and_rest",
    "identity",
    "key_names",
    "knows",
    "merged",
    "settle",
    "view",
]

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

_SILENT = frozenset({
    "$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$comment", "$defs", "definitions",
    "$vocabulary", "allOf", "anyOf", "oneOf", "then", "else", "description", "type", "enum", "const", "properties",
    "required", "items", "prefixItems", "additionalItems", "additionalProperties", "propertyOrdering", *REFERENCES,
})  # fmt: skip
_CHECKED_HERE = frozenset({
    "not", "if", "contains", "minContains", "maxContains", "dependentRequired", "dependentSchemas", "dependencies",
    "unevaluatedProperties", "unevaluatedItems", "patternProperties", "propertyNames",
})  # fmt: skip
_ANNOTATIONS = frozenset({"default", "examples", "example", "contentEncoding", "contentMediaType", "deprecated"})
_STRICTER: dict[str, Callable[[Any, Any], Any]] = {
    "minimum": max, "exclusiveMinimum": max, "minLength": max, "minItems": max, "minProperties": max, "maximum": min,
    "exclusiveMaximum": min, "maxLength": min, "maxItems": min, "maxProperties": min,
}  # fmt: skip
_FIRST = frozenset({"multipleOf", "pattern", "format", "uniqueItems"})
# Drafts that define a keyword; elsewhere it is ignored, and applying it would narrow.
_SINCE = {
    "const": 6, "propertyNames": 6, "contains": 6, "if": 7, "dependentRequired": 2019, "dependentSchemas": 2019,
    "prefixItems": 2020, "unevaluatedProperties": 2019, "unevaluatedItems": 2019, "minContains": 2019, "maxContains": 2019,
    "$dynamicRef": 2020, "$recursiveRef": 2019,
}  # fmt: skip
_UNTIL = {"$recursiveRef": 2019}

SIMPLE_LIMITS = frozenset(_STRICTER) | _FIRST
"""Keywords that compare a value with something, and nothing more."""

CONSTRAINING = frozenset({*_CHECKED_HERE, *_STRICTER, *_FIRST, "type", "enum", "const"} | TYPES_OF.keys()) - _ANNOTATIONS
"""Keywords that keep a value out, other than references and unions."""


_ALL_TYPES = frozenset(ALL_TYPES)
ONE_TYPE = {name: frozenset({name}) for name in ALL_TYPES}
"""The types of a place that has only one."""


class Facet(NamedTuple):
    """One of several schemas that apply together."""

    place: Place
    node: Mapping[str, Any]
    constrains: bool = True
    """False: only its texts count, because its draft ignores siblings of a `$ref`."""
    annotates: bool = True
    """False: its texts are written elsewhere."""


def knows(draft: int, keyword: str) -> bool:
    """True if a keyword means something in a draft."""
    return _SINCE.get(keyword, 0) <= draft <= _UNTIL.get(keyword, 9999)


def merged(facets: Iterable[Facet], pointer: str, draft: int, losses: Losses) -> Shape:
    """Types, listed values, simple limits and texts of the facets, as a shape without anything below it."""
    shape = Shape(pointer=pointer)
    for facet in facets:
        node, at = facet.node, facet.place.pointer
        if facet.annotates:
            _annotate(shape, node)
        if facet.constrains:
            _restrict(shape, node, draft, at, losses)
        for keyword, value in node.items():
            if keyword not in _SILENT or (keyword in CONSTRAINING and not (facet.constrains and knows(draft, keyword))):
                _take(shape, facet, keyword, value, losses, draft)
    settle(shape)
    return shape


def _annotate(shape: Shape, node: Mapping[str, Any]) -> None:
    if not shape.text and isinstance(text := node.get("description"), str):
        shape.text = text
    if not shape.label and isinstance(title := node.get("title"), str):
        shape.label = title


def _restrict(shape: Shape, node: Mapping[str, Any], draft: int, at: str, losses: Losses) -> None:
    if "type" in node:
        named: Any = node["type"]
        types = ONE_TYPE.get(named) if isinstance(named, str) else frozenset(as_list(named))
        if types is not None and types <= _ALL_TYPES:
            shape.types = types_meet(shape.types, types) if shape.types is not None else types
        else:
            losses.add(at, "type", "a type that JSON does not have", "widened")
    if "enum" in node:
        _allow(shape, as_list(node["enum"]), f"{at}/enum")
    if "const" in node and knows(draft, "const"):
        _allow(shape, [node["const"]], f"{at}/const")


def _allow(shape: Shape, values: Iterable[Any], at: str) -> None:
    shape.where.setdefault("enum", at)
    unique: dict[Any, Any] = {}
    for value in values:
        unique.setdefault(identity(value), value)
    if shape.values is not None:
        held = {identity(value) for value in shape.values}
        unique = {mark: value for mark, value in unique.items() if mark in held}
    shape.values = list(unique.values())


def identity(value: Any) -> Any:
    """Return the key by which JSON values are equal: 1 equals 1.0, and does not equal true."""
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return ("object", frozenset((key, identity(item)) for key, item in members.items()))
    if isinstance(value, (list, tuple)):
        return ("array", tuple(identity(item) for item in cast("Sequence[Any]", value)))
    return value


def _take(shape: Shape, facet: Facet, keyword: str, value: Any, losses: Losses, draft: int) -> None:
    """Handle one simple keyword: as a limit, as text, or as a loss."""
    at = facet.place.pointer
    where = f"{at}/{escaped(keyword)}"
    if keyword in _ANNOTATIONS:
        if facet.annotates:
            shape.limits.setdefault(keyword, Limit(value, where))
    elif keyword in CONSTRAINING:
        if not facet.constrains or not knows(draft, keyword):
            losses.add(where, keyword, "its draft ignores it here", "left out")
        elif keyword == "if" and not facet.node.keys() & {"then", "else"}:
            pass  # A condition of nothing.
        elif keyword in _CHECKED_HERE:
            _check_here(shape, keyword, value, where, losses)
        else:
            _limit(shape, facet.node, keyword, Limit(value, where), losses)
    elif keyword == "title":
        if "const" not in facet.node:  # covered by a name for a value
            losses.add(where, keyword, "models take titles for names of functions", "left out")
    elif keyword not in ("nullable",) or value:
        losses.add(where, keyword, "not a keyword that limits the arguments", "left out")


def _check_here(shape: Shape, keyword: str, value: Any, where: str, losses: Losses) -> None:
    if keyword == "not" and (value is True or value == {}):
        shape.types = frozenset()
    if not _speaks(shape, keyword) or _says_nothing(keyword, value):
        return
    if keyword == "propertyNames" and key_names(value) is not None:
        return  # covered by properties
    word = in_words(keyword, value)
    if word:
        shape.notes.append(word)
    losses.add(where, keyword, "has no form on the wire", "stated in the description" if word else "checked locally")


def _says_nothing(keyword: str, value: Any) -> bool:
    if keyword == "not":
        return value is False
    if keyword in ("propertyNames", "unevaluatedProperties", "unevaluatedItems") and value is True:
        return True
    return keyword not in ("contains", "if") and (
        value == {} or (keyword == "propertyNames" and value == {"type": "string"})
    )


def key_names(value: Any) -> list[str] | None:
    """The keys that a `propertyNames` allows, if it lists them."""
    node = as_mapping(value)
    names = as_list(node.get("enum"))
    listed = bool(names) and len(names) <= 200 and node.keys() <= {"enum", "type", "description", "title"}
    return [name for name in names if isinstance(name, str)] if listed else None


def _speaks(shape: Shape, keyword: str) -> bool:
    about = TYPES_OF.get(keyword)
    return about is None or shape.types is None or bool(about & shape.types)


def _limit(shape: Shape, node: Mapping[str, Any], keyword: str, limit: Limit, losses: Losses) -> None:
    if isinstance(limit.value, bool) and keyword != "uniqueItems":
        # Draft 4: the flag makes the bound next to it exclusive.
        bound = node.get({"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}.get(keyword, ""))
        if limit.value is not True or bound is None:
            return
        limit = Limit(bound, limit.pointer)
    held = shape.limits.get(keyword)
    if keyword in _STRICTER:
        if not isinstance(limit.value, (int, float)):
            return
        if held is None or _STRICTER[keyword](held.value, limit.value) != held.value:
            shape.limits[keyword] = limit
    elif held is None:
        shape.limits[keyword] = limit
    elif held.value != limit.value and _speaks(shape, keyword):
        shape.notes.append(in_words(keyword, limit.value))
        losses.add(limit.pointer, keyword, "only one of several can be sent", "stated in the description")


_BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "minimum": operator.ge, "maximum": operator.le, "exclusiveMinimum": operator.gt, "exclusiveMaximum": operator.lt,
}  # fmt: skip
_LENGTHS: dict[str, tuple[Callable[[Any, Any], bool], type | tuple[type, ...]]] = {
    "minLength": (operator.ge, str), "maxLength": (operator.le, str), "minItems": (operator.ge, (list, tuple)),
    "maxItems": (operator.le, (list, tuple)), "minProperties": (operator.ge, Mapping),
    "maxProperties": (operator.le, Mapping),
}  # fmt: skip


def _fits(value: Any, keyword: str, limit: Any) -> bool:
    """True if a listed value satisfies a numeric or size limit, or the limit does not apply to its type."""
    if keyword in _BOUNDS:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return not is_number or _BOUNDS[keyword](value, limit)
    compare, kind = _LENGTHS[keyword]
    return not isinstance(value, kind) or compare(len(value), limit)


def settle(shape: Shape) -> None:
    """Take out values that no type or limit allows, and what speaks of types that cannot occur."""
    if shape.values is not None:
        decided = [word for word in shape.limits if word in _BOUNDS or word in _LENGTHS]
        for word in decided:
            limit = shape.limits.pop(word).value
            shape.values = [value for value in shape.values if _fits(value, word, limit)]
        shape.values = [value for value in shape.values if shape.may_be(type_of(value))]
        shape.types = frozenset(map(type_of, shape.values))
    if shape.types is not None:
        for keyword in [word for word in shape.limits if not _speaks(shape, word)]:
            del shape.limits[keyword]
        shape.is_never = not shape.types


# Subschemas ---------------------------------------------------------------------------------------------------------------


def view(facet: Facet, name: str) -> Sequence[str] | None:
    """Return the steps to one facet's schema of a property; None if it has none."""
    if not facet.constrains:
        return None
    if name in as_mapping(facet.node.get("properties")):
        return ("properties", name)
    # The validator decides which patterns a name matches.
    if as_mapping(facet.node.get("patternProperties")) or "additionalProperties" not in facet.node:
        return None
    return ("additionalProperties",)


def heads_and_rest(facet: Facet, draft: int) -> tuple[list[tuple[str | int, ...]], tuple[str, ...] | None]:
    """Return the steps to the schemas of the first items and of all others, in the keywords of the draft."""
    node = facet.node
    if not facet.constrains:
        return [], None
    items: Any = node.get("items")
    if draft >= 2020 and isinstance(node.get("prefixItems"), (list, tuple)):
        heads: list[tuple[str | int, ...]] = [("prefixItems", index) for index in range(len(node["prefixItems"]))]
        return heads, ("items",) if isinstance(items, (Mapping, bool)) else None
    if isinstance(items, (list, tuple)):
        heads = [("items", index) for index in range(len(cast("Sequence[Any]", items)))]
        return heads, ("additionalItems",) if "additionalItems" in node else None
    return [], ("items",) if isinstance(items, (Mapping, bool)) else None
