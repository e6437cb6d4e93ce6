"""Convert Gemini's Schema message to JSON Schema.

The message has types in capitals, null as `nullable`, large counts as text and field names in either case. Keys below
`properties` are user-defined and stay as they are. A schema that is JSON Schema already is returned unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from callgate.types import JsonObject

__all__ = ["json_schema_from"]

_TYPES = frozenset({"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"})
_COUNTS = frozenset({"minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength"})
_SPELLED = {
    "any_of": "anyOf", "min_items": "minItems", "max_items": "maxItems", "min_properties": "minProperties",
    "max_properties": "maxProperties", "min_length": "minLength", "max_length": "maxLength",
    "property_ordering": "propertyOrdering", "additional_properties": "additionalProperties", "ref": "$ref", "defs": "$defs",
}  # fmt: skip
_NUMBERS: Mapping[Any, type[int] | type[float]] = {"integer": int, "number": float}


def json_schema_from(schema: JsonObject) -> JsonObject:
    """Return the equivalent JSON Schema."""
    node = {_SPELLED.get(key, key): value for key, value in schema.items()}
    kind = node.get("type")
    if isinstance(kind, str) and kind in _TYPES:
        node["type"] = kind.lower()
    elif kind == "TYPE_UNSPECIFIED":
        del node["type"]
    for key, value in [*node.items()]:
        node[key] = _child(key, value)
    if node.get("format") == "enum":
        del node["format"]
        node |= _numeric_enum(node)
    if "example" in node:
        node["examples"] = [node.pop("example")]
    _order(node)
    return _with_null(node) if node.pop("nullable", False) else node


def _child(key: str, value: Any) -> Any:
    if key in ("items", "additionalProperties") and isinstance(value, dict):
        return json_schema_from(cast("JsonObject", value))
    if key in ("properties", "$defs") and isinstance(value, dict):
        children = cast("JsonObject", value).items()
        return {name: _child("items", child) for name, child in children}
    if key == "anyOf" and isinstance(value, list):
        return [_child("items", option) for option in cast("list[Any]", value)]
    if key in _COUNTS and isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value


def _numeric_enum(node: JsonObject) -> JsonObject:
    """An enum of numbers, which the message can only write as text."""
    kind: Any = node.get("type")
    number = _NUMBERS.get(kind) if isinstance(kind, str) else None
    values: Any = node.get("enum")
    if number is None or not isinstance(values, list):
        return {}
    try:
        numbers = [number(value) for value in cast("list[Any]", values)]
    except (TypeError, ValueError, OverflowError):
        return {}
    return {"enum": numbers} if all(map(math.isfinite, numbers)) else {}


def _order(node: JsonObject) -> None:
    ordering: Any = node.pop("propertyOrdering", None)
    properties: Any = node.get("properties")
    if isinstance(ordering, list) and isinstance(properties, dict):
        given = cast("JsonObject", properties)
        names = [name for name in cast("list[Any]", ordering) if isinstance(name, str) and name in given]
        node["properties"] = {name: given[name] for name in dict.fromkeys([*names, *given])}


def _with_null(node: JsonObject) -> JsonObject:
    if isinstance(node.get("anyOf"), list):
        return node | {"anyOf": [*node["anyOf"], {"type": "null"}]}
    if isinstance(node.get("type"), str) and node["type"] != "null":
        node = node | {"type": [node["type"], "null"]}
    values: Any = node.get("enum")
    return node | {"enum": [*values, None]} if isinstance(values, list) and None not in values else node
