"""Slips that many schemas share and whose meaning is plain, put right: a schema of plain dicts in, changed in place.

Serialisers write null for what was not set and `[]` for an empty map; people write `any`, `STRING`, and `required: true`
beside a property, or an `$id` as an older draft has it. None of it is JSON Schema, and each would fail the whole tool. What
could be meant in more than one way is left alone, for the validator to refuse. This file reads keywords by their place only:
a property may have any name.
"""

from __future__ import annotations

from typing import Any, cast

from callgate.schema.refs import Source, subschemas
from callgate.schema.shape import ALL_TYPES, TYPES_OF

__all__ = ["tidy"]

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependentRequired", "dependencies")
_NEVER_NULL = frozenset({
    *TYPES_OF, *_MAPS, "type", "enum", "description", "title", "not", "if", "then", "else", "allOf", "anyOf", "oneOf",
    "$ref", "$schema", "$id", "$anchor", "$comment", "examples", "$dynamicRef", "$dynamicAnchor", "readOnly", "writeOnly",
    "deprecated",
})  # fmt: skip
_TYPES = frozenset({*ALL_TYPES, "any"})
_FLAGS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))


def tidy(schema: dict[str, Any]) -> bool:
    """Puts a schema right; whether anything had to be."""
    is_changed = False
    draft = Source(schema).draft
    stack: list[dict[str, Any]] = [schema]
    while stack:
        node = stack.pop()
        for step in (_drop_nulls, _fill_maps, _name_types, _gather_required):
            is_changed |= step(node)
        if draft == 4:
            is_changed |= _settle_draft_4(node)
        elif draft > 7:
            is_changed |= _name_anchor(node)
        stack += [inner for _, inner in subschemas(node) if isinstance(inner, dict)]
    return is_changed


def _drop_nulls(node: dict[str, Any]) -> bool:
    empty = [keyword for keyword, value in node.items() if value is None and keyword in _NEVER_NULL]
    for keyword in empty:
        del node[keyword]
    return bool(empty)


def _fill_maps(node: dict[str, Any]) -> bool:
    is_changed = False
    for keyword in _MAPS:
        if node.get(keyword) == []:
            node[keyword] = {}
            is_changed = True
    members = node.get("properties")
    if isinstance(members, dict):
        properties = cast("dict[str, Any]", members)
        for name in [name for name, inner in properties.items() if inner is None]:
            properties[name] = {}
            is_changed = True
    return is_changed


def _name_types(node: dict[str, Any]) -> bool:
    held = node.get("type")
    listed = cast("list[Any]", held) if isinstance(held, list) else [held]
    names = [name.lower() if isinstance(name, str) and name.lower() in _TYPES else name for name in listed]
    if names == listed and "any" not in names:
        return False
    if "any" in names:
        del node["type"]
    else:
        node["type"] = list(dict.fromkeys(names)) if isinstance(held, list) else names[0]
    return True


def _gather_required(node: dict[str, Any]) -> bool:
    """Names that are listed twice, and properties that say of themselves that they are needed."""
    held = node.get("required")
    names = cast("list[Any]", held) if isinstance(held, list) else []
    members = node.get("properties")
    properties = cast("dict[str, Any]", members) if isinstance(members, dict) else {}
    needed: list[Any] = [name for index, name in enumerate(names) if name not in names[:index]]
    is_changed = len(needed) < len(names)
    for name, inner in properties.items():
        if isinstance(inner, dict) and isinstance(cast("dict[str, Any]", inner).get("required"), bool):
            is_changed = True
            if cast("dict[str, Any]", inner).pop("required") and name not in needed:
                needed.append(name)
    if is_changed and (held is None or isinstance(held, list)) and needed:
        node["required"] = needed
    return is_changed


def _settle_draft_4(node: dict[str, Any]) -> bool:
    """What draft 4 does not allow to stand there and what says nothing anyway."""
    empty = [flag for flag, bound in _FLAGS if isinstance(node.get(flag), bool) and bound not in node]
    empty += ["required"] if node.get("required") == [] else []
    for keyword in empty:
        del node[keyword]
    return bool(empty)


def _name_anchor(node: dict[str, Any]) -> bool:
    """An identifier with a fragment, which up to draft 7 is how a place gets a name."""
    own = node.get("$id")
    if not isinstance(own, str) or "#" not in own:
        return False
    resource, _, name = own.partition("#")
    if resource:
        node["$id"] = resource
    else:
        del node["$id"]
    if name and "$anchor" not in node:
        node["$anchor"] = name
    return True
