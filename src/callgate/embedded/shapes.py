"""A JSON Schema, one level at a time, in the few words that a grammar and a line of text have for it.

A schema and the root it belongs to come in; the same schema without references, without `allOf` and with its types as a list
goes out. What has no simple form is left out: the arguments are checked against the whole schema before a tool runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

__all__ = ["REF_HOPS_MAX", "TYPES", "alternatives", "as_object", "properties_of", "required_of", "resolved", "types_of"]

TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
REF_HOPS_MAX = 20

Schema = Mapping[str, Any]

_TELLING = {
    "properties": "object", "additionalProperties": "object", "required": "object",
    "items": "array", "prefixItems": "array", "minItems": "array", "maxItems": "array",
    "pattern": "string", "maxLength": "string", "minLength": "string", "format": "string",
    "minimum": "number", "maximum": "number", "multipleOf": "number",
}  # fmt: skip
"""The type that a keyword implies where no type is given."""


def as_object(value: object) -> Schema:
    """The value if it is an object, else an empty one."""
    return cast("Schema", value) if isinstance(value, Mapping) else {}


def resolved(schema: object, root: Schema, *, hops: int = REF_HOPS_MAX) -> Schema:
    """The schema behind references, with the parts of `allOf` laid over one another; `{}` where it cannot be found."""
    found = as_object(schema)
    while isinstance(found.get("$ref"), str):
        if hops == 0:
            return {}
        hops -= 1
        beside = {key: value for key, value in found.items() if key != "$ref"}
        found = {**_pointed_at(found["$ref"], root), **beside}
    members: object = found.get("allOf")
    if not isinstance(members, (list, tuple)) or not members or hops == 0:
        return found
    merged: dict[str, Any] = {key: value for key, value in found.items() if key != "allOf"}
    for member in cast("Sequence[object]", members):
        merged = _laid_over(merged, resolved(member, root, hops=hops - 1))
    return merged


def _laid_over(one: Mapping[str, Any], other: Schema) -> dict[str, Any]:
    merged = {**one, **other}
    if isinstance(one.get("properties"), Mapping) and isinstance(other.get("properties"), Mapping):
        merged["properties"] = {**one["properties"], **other["properties"]}
    if isinstance(one.get("required"), (list, tuple)) and isinstance(other.get("required"), (list, tuple)):
        merged["required"] = [*one["required"], *other["required"]]
    return merged


def _pointed_at(pointer: str, root: Schema) -> Schema:
    if pointer == "#":
        return root
    if not pointer.startswith("#/"):
        return {}
    place: Any = root
    for step in pointer[2:].split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, (list, tuple)) and key.isascii() and key.isdigit() and int(key) < len(cast("list[Any]", place)):
            place = cast("list[Any]", place)[int(key)]
        else:
            place = as_object(cast("object", place)).get(key)
    return as_object(place)


def alternatives(schema: Schema) -> list[Any]:
    """The members of `anyOf` or `oneOf`; none if it has neither."""
    for key in ("anyOf", "oneOf"):
        members: object = schema.get(key)
        if isinstance(members, (list, tuple)) and members:
            return list(cast("Sequence[Any]", members))
    return []


def types_of(schema: Schema) -> list[str]:
    """The types that are named or implied by a keyword; none where anything is valid."""
    named: object = schema.get("type")
    listed: list[Any] = [named] if isinstance(named, str) else list(cast("Sequence[Any]", named or ()))
    found = [each for each in listed if each in TYPES]
    if found or alternatives(schema):
        return found
    return [kind for keyword, kind in _TELLING.items() if keyword in schema][:1]


def properties_of(schema: Schema) -> dict[str, Any]:
    """The declared properties in their order."""
    return dict(as_object(schema.get("properties")))


def required_of(schema: Schema) -> list[str]:
    """The required properties, in the order of the schema's properties, the undeclared ones last."""
    raw: object = schema.get("required")
    names = [name for name in cast("Sequence[Any]", raw) if isinstance(name, str)] if isinstance(raw, (list, tuple)) else []
    declared = [name for name in properties_of(schema) if name in names]
    return list(dict.fromkeys([*declared, *names]))
