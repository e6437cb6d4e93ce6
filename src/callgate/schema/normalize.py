"""Fix common schema errors whose meaning is unambiguous, in place, in a schema of plain dicts.

Serializers write null for unset fields and `[]` for an empty map; people write `any`, `STRING`, `int`, `required: true`
in a property, an `$id` of an older draft, or an unescaped `$ref` to a name such as `Map<string>`. None of it is JSON
Schema, and each would reject the whole tool. Ambiguous errors are left for the validator to reject. Keywords are
recognized by their place only: a property may have any name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, cast
from urllib.parse import quote

from callgate.schema.refs import Source, escaped, subschemas
from callgate.schema.shape import ALL_TYPES, TYPES_OF

__all__ = ["normalize_schema"]

_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependentRequired", "dependencies")
_NEVER_NULL = frozenset({
    *TYPES_OF, *_MAPS, "type", "enum", "description", "title", "not", "if", "then", "else", "allOf", "anyOf", "oneOf",
    "$ref", "$schema", "$id", "$anchor", "$comment", "examples", "$dynamicRef", "$dynamicAnchor", "readOnly", "writeOnly",
    "deprecated",
})  # fmt: skip
# Characters that a URI fragment must escape; a percent sign must begin an escape.
_NOT_IN_POINTER = re.compile(r"[^A-Za-z0-9\-._~:/?@!$&'()*+,;=%]|%(?![0-9A-Fa-f]{2})")
# Type names of other languages; each has one meaning in JSON.
_TYPES = {
    **{name: name for name in (*ALL_TYPES, "any")}, "str": "string", "int": "integer", "float": "number", "double": "number",
    "bool": "boolean", "list": "array", "dict": "object", "none": "null",
}  # fmt: skip
_TEXTS = ("description", "title", "$comment")
_FLAGS = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))


def normalize_schema(schema: dict[str, Any]) -> list[str]:
    """Fix a schema, and return where and how; empty if nothing was fixed."""
    found: list[str] = []
    draft = Source(schema).draft
    stack: list[tuple[dict[str, Any], str]] = [(schema, "")]
    while stack:
        node, pointer = stack.pop()
        for step in (*_STEPS, *_OF_DRAFT.get(draft, ())):
            found += [f"{pointer}/{what}" for what in step(node)]
        below = [(steps, cast("dict[str, Any]", inner)) for steps, inner in subschemas(node) if isinstance(inner, dict)]
        stack += [(inner, f"{pointer}/{'/'.join(map(escaped, steps))}") for steps, inner in reversed(below)]
    return found


def _drop_nulls(node: dict[str, Any]) -> Iterator[str]:
    for keyword in [keyword for keyword, value in node.items() if value is None and keyword in _NEVER_NULL]:
        del node[keyword]
        yield f"{keyword}: null is read as not there"


def _fill_maps(node: dict[str, Any]) -> Iterator[str]:
    for keyword in (*_MAPS, "items", "additionalProperties"):
        if node.get(keyword) == []:
            node[keyword] = {}
            yield f"{keyword}: an empty list is read as an empty object"
    properties = _members(node, "properties")
    for name in [name for name, inner in properties.items() if inner is None]:
        properties[name] = {}
        yield f"properties/{escaped(name)}: null is read as any value"


def _drop_idle(node: dict[str, Any]) -> Iterator[str]:
    """Drop keywords that do not restrict values and are invalid as they are."""
    idle = [keyword for keyword in _TEXTS if keyword in node and not isinstance(node[keyword], str)]
    idle += ["examples"] if "examples" in node and not isinstance(node["examples"], list) else []
    idle += ["allOf"] if node.get("allOf") == [] else []
    for keyword in idle:
        del node[keyword]
        yield f"{keyword}: it says nothing in this form, and is read as not there"


def _name_types(node: dict[str, Any]) -> Iterator[str]:
    held = node.get("type")
    listed = cast("list[Any]", held) if isinstance(held, list) else [held]
    names = [_TYPES.get(name.lower(), name) if isinstance(name, str) else name for name in listed]
    if "any" in names:
        del node["type"]
        yield "type: 'any' is read as any value"
    elif names != listed:
        node["type"] = list(dict.fromkeys(names)) if isinstance(held, list) else names[0]
        yield f"type: {held!r} is read as {node['type']!r}"


def _gather_required(node: dict[str, Any]) -> Iterator[str]:
    """Fix duplicate names in `required`, and properties that declare themselves required."""
    held = node.get("required")
    if held is not None and not isinstance(held, list):
        return
    names = cast("list[Any]", held or [])
    if all(type(name) is str for name in names):
        needed: list[Any] = list(dict.fromkeys(names))
    else:
        needed = [name for index, name in enumerate(names) if name not in names[:index]]
    if len(needed) < len(names):
        yield "required: a name that is listed twice is read once"
    for name, inner in _members(node, "properties").items():
        own: Any = cast("dict[str, Any]", inner).get("required") if isinstance(inner, dict) else None
        if isinstance(own, bool):
            del inner["required"]
            needed += [name] if own and name not in needed else []
            yield f"properties/{escaped(name)}/required: {str(own).lower()} is read as a word of the object around it"
    if needed:
        node["required"] = needed


def _escape_references(node: dict[str, Any]) -> Iterator[str]:
    """Escape a reference to a name that contains characters invalid in a URI."""
    held = node.get("$ref")
    if not isinstance(held, str) or not held.startswith("#/"):
        return
    escaped_one = "#" + _NOT_IN_POINTER.sub(lambda found: quote(found[0], safe="", errors="replace"), held[1:])
    if escaped_one != held:
        node["$ref"] = escaped_one
        yield f"$ref: {held!r} is read as {escaped_one!r}"


def _settle_draft_4(node: dict[str, Any]) -> Iterator[str]:
    """Drop siblings that draft 4 does not allow and that have no effect."""
    empty = [flag for flag, bound in _FLAGS if isinstance(node.get(flag), bool) and bound not in node]
    empty += ["required"] if node.get("required") == [] else []
    for keyword in empty:
        del node[keyword]
        yield f"{keyword}: it says nothing here, and is read as not there"


def _name_anchor(node: dict[str, Any]) -> Iterator[str]:
    """An identifier with a fragment, which up to draft 7 is how a place gets a name."""
    own = node.get("$id")
    if not isinstance(own, str) or "#" not in own:
        return
    resource, _, name = own.partition("#")
    del node["$id"]
    if resource:
        node["$id"] = resource
    if name and "$anchor" not in node:
        node["$anchor"] = name
    yield f"$id: {own!r} is read as an $anchor"


def _members(node: dict[str, Any], keyword: str) -> dict[str, Any]:
    held = node.get(keyword)
    return cast("dict[str, Any]", held) if isinstance(held, dict) else {}


_STEPS = (_drop_nulls, _drop_idle, _fill_maps, _name_types, _gather_required, _escape_references)
_OF_DRAFT: dict[int, tuple[Callable[[dict[str, Any]], Iterator[str]], ...]] = {
    4: (_settle_draft_4,), 2019: (_name_anchor,), 2020: (_name_anchor,),
}  # fmt: skip
