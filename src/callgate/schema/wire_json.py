"""Write a shape as `parametersJsonSchema`: JSON Schema in the keywords that Gemini documents, and no others.

The keywords are `$defs $ref type format description enum items prefixItems minItems maxItems minimum maximum anyOf
properties additionalProperties required propertyOrdering`. Anything else goes into the description as text, with a loss.
A `$ref` has no siblings and points into `$defs`. Follows no reference of the source.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from callgate.schema.limit_text import in_words, listed, with_words
from callgate.schema.shape import ALL_TYPES, Key, Limit, Losses, Shape, default_fits, value_shapes
from callgate.schema.shared_refs import shared_only_where_needed
from callgate.types import JsonObject

__all__ = ["COUNT_MAX", "UNDOCUMENTED", "JsonWriter", "bounds", "string_branches", "widened_values"]

COUNT_MAX = 2**31 - 1
"""The largest number of items or characters that is worth sending."""

UNDOCUMENTED = "not a keyword that Gemini documents"
"""The reason why a simple keyword is not sent."""

_SAID = frozenset({"minimum", "maximum", "format", "minItems", "maxItems"})
_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_SCALARS = frozenset({"string", "number", "integer", "boolean", "null"})
_LISTED_MAX = 20
_EXACT_MAX = 2**53
_NAME = re.compile(r"[^A-Za-z0-9_]+")


def bounds(shape: Shape, losses: Losses) -> tuple[JsonObject, list[str]]:
    """Return `minimum` and `maximum`, and text for an exclusive bound."""
    found: JsonObject = {}
    words: list[str] = []
    if _BOUNDS.isdisjoint(shape.limits):
        return found, words
    limits = {
        word: limit for word, limit in shape.limits.items() if word in _BOUNDS and abs(limit.value) <= sys.float_info.max
    }
    for word, limit in shape.limits.items():
        if word in _BOUNDS and word not in limits:
            losses.add(limit.pointer, word, "beyond the range of a double", "checked locally")
    for keyword, exclusive, sign in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
        plain, strict = limits.get(keyword), limits.get(exclusive)
        if strict is None or (plain is not None and sign * plain.value > sign * strict.value):
            if plain is not None:
                found[keyword] = plain.value
            continue
        value = strict.value
        if shape.types is not None and "number" not in shape.types and abs(value) < _EXACT_MAX:
            found[keyword] = math.floor(value) + 1 if sign > 0 else math.ceil(value) - 1
        else:
            found[keyword] = value
            words.append(in_words(exclusive, value))
            losses.add(
                strict.pointer, exclusive, "only bounds that are allowed themselves can be sent", "stated in the description"
            )
    return found, words


def widened_values(shape: Shape, losses: Losses) -> str:
    """Return text for values that no enum can list, with their loss; empty if the type alone loses nothing."""
    values = shape.values or []
    if shape.is_only("null") or (shape.is_only("boolean") and len(values) == 2):
        return ""
    losses.add(*shape.enum_at, "only strings and numbers can be listed", "stated in the description")
    return f"only {listed(values)}" if len(values) == 1 else f"one of {listed(values)}"


def string_branches(values: list[Any]) -> list[JsonObject]:
    """Many strings including an empty one: list the others, and allow any string next to them."""
    return [{"type": "string", "enum": [value for value in values if value != ""]}, {"type": "string"}]


class JsonWriter:
    """Writer of the shapes of one schema."""

    def __init__(self, shapes: Mapping[Key, Shape], losses: Losses) -> None:
        self.shapes = shapes
        self.losses = losses
        self._names = _names(shapes)

    def document(self, root: Shape) -> JsonObject:
        """The whole schema, with the definitions that it shares."""
        node = self.node(root)
        if "anyOf" in node:
            node = {"type": "object", **node}
        definitions = {name: self.node(self.shapes[key]) for key, name in self._names.items()}
        return shared_only_where_needed(node, definitions)

    def node(self, shape: Shape) -> JsonObject:
        """Write one schema."""
        if shape.ref is not None:
            if self.shapes[shape.ref].is_never:
                self.losses.add(shape.pointer, "$ref", "leads to a schema that nothing fits", "widened")
                return {}
            return {"$ref": f"#/$defs/{self._names[shape.ref]}"}
        if shape.any_of:
            branches = _unique(self.node(branch) for branch in shape.any_of)
            text = self._described(shape, [])
            if len(branches) == 1 and not (text and "$ref" in branches[0]):
                return _headed({**branches[0], **text}, {})
            return {**text, "anyOf": branches}
        if shape.values is not None:
            return self._values(shape)
        return self._plain(shape)

    def _described(self, shape: Shape, words: list[str]) -> JsonObject:
        if not (shape.notes or words or shape.limits):
            return {"description": shape.text} if shape.text else {}
        words = [*shape.notes, *words]
        for keyword, limit in shape.limits.items():
            if keyword not in _SAID and not keyword.startswith("exclusive"):
                words.append(self._in_words(shape, keyword, limit))
        text = with_words(shape.text, words)
        return {"description": text} if text else {}

    def _in_words(self, shape: Shape, keyword: str, limit: Limit) -> str:
        word = in_words(keyword, limit.value) if keyword != "default" or default_fits(shape) else ""
        instead = (
            "stated in the description" if word else "left out" if keyword in ("default", "examples") else "checked locally"
        )
        if word or keyword not in ("uniqueItems", "deprecated"):
            self.losses.add(limit.pointer, keyword, UNDOCUMENTED, instead)
        return word

    def _values(self, shape: Shape) -> JsonObject:
        groups = value_shapes(shape)
        if not groups:
            return self._plain(shape)
        if (limit := shape.limits.get("format")) is not None:
            self.losses.add(limit.pointer, "format", "listed values have none", "left out")
        if len(groups) == 1:
            node, words = self._group(groups[0])
            return _headed(node, self._described(shape, words))
        branches: list[JsonObject] = []
        for group in groups:
            node, words = self._group(group)
            branches += node.get("anyOf") or [_headed(node, _text(words))]
        return {**self._described(shape, []), "anyOf": branches}

    def _group(self, shape: Shape) -> tuple[JsonObject, list[str]]:
        """Write listed values of one type."""
        (kind,) = shape.types or ("string",)
        values = shape.values or []
        if kind == "string" and "" in values:
            self.losses.add(*shape.enum_at, "an empty string cannot be listed", "widened")
            if len(values) <= _LISTED_MAX:
                return {"type": kind}, [f"one of {listed(values)}"]
            return {"anyOf": string_branches(values)}, []
        if kind in ("string", "number", "integer"):
            return {"type": kind, "enum": values}, []
        return {"type": kind}, [widened_values(shape, self.losses)]

    def _plain(self, shape: Shape) -> JsonObject:
        node: JsonObject = {}
        if shape.types is not None:
            types = list(shape.types) if len(shape.types) == 1 else [name for name in ALL_TYPES if name in shape.types]
            node["type"] = types[0] if len(types) == 1 else types
            if types[0] in _SCALARS and len(types) == 1 and not shape.limits:
                return node | self._described(shape, [])
        found, words = bounds(shape, self.losses)
        if (limit := shape.limits.get("format")) and isinstance(limit.value, str):
            node["format"] = limit.value
        node |= self._described(shape, words)
        if shape.may_be("object"):
            self._object(shape, node)
        if shape.may_be("array"):
            self._array(shape, node)
        return node | found

    def _object(self, shape: Shape, node: JsonObject) -> None:
        if shape.properties:
            node["properties"] = {name: self.node(inner) for name, inner in shape.properties.items()}
        if required := [name for name in shape.required if name in shape.properties]:
            node["required"] = required
        if shape.ordering:
            node["propertyOrdering"] = shape.ordering
        if shape.additional is not None:
            inner = self.node(shape.additional) if isinstance(shape.additional, Shape) else shape.additional
            node["additionalProperties"] = True if inner == {} else inner

    def _array(self, shape: Shape, node: JsonObject) -> None:
        if shape.prefix:
            node["prefixItems"] = [self.node(inner) for inner in shape.prefix]
        if shape.items is not None:
            node["items"] = self.node(shape.items)
        for keyword in ("minItems", "maxItems"):
            limit = shape.limits.get(keyword)
            if limit is not None and limit.value <= COUNT_MAX:
                node[keyword] = int(limit.value)


def _headed(node: JsonObject, text: JsonObject) -> JsonObject:
    return {**{key: node[key] for key in ("type",) if key in node}, **text, **node}


def _text(words: list[str]) -> JsonObject:
    text = with_words("", words)
    return {"description": text} if text else {}


def _unique(nodes: Iterator[JsonObject]) -> list[JsonObject]:
    found: dict[str, JsonObject] = {}
    for node in nodes:
        found.setdefault(repr(node), node)
    return list(found.values())


def _names(shapes: Mapping[Key, Shape]) -> dict[Key, str]:
    """A name for each shared definition, after the last step of its place."""
    names: dict[Key, str] = {}
    taken: set[str] = set()
    for key in sorted(shapes):
        pointer, level = key
        wanted = _NAME.sub("_", pointer.rpartition("/")[2].replace("~1", "_").replace("~0", "_")) or "root"
        wanted = f"{wanted}_{level}" if level > 1 else wanted
        name, number = wanted, 1
        while name in taken:
            number += 1
            name = f"{wanted}_{number}"
        taken.add(name)
        names[key] = name
    return names
