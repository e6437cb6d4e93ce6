"""Remove unions from the root of a schema: one plain object that is at least as wide.

OpenAI and Anthropic refuse a request with a tool whose arguments are `anyOf`, `oneOf` or `allOf` as a whole. The
alternatives are merged: every property is declared, properties common to all stay required, and the rest is described in
text. The merged keywords are returned for the report of losses. Knows no format.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from callgate.schema.refs import Place, Source, as_list, as_mapping, with_references
from callgate.schema.shape import TYPES_OF
from callgate.types import JsonObject

__all__ = ["with_open_root", "without_root_unions"]

_UNIONS = ("anyOf", "oneOf")
_DEPTH_MAX = 5
_NAMED_MAX = 8
_PARTS_MAX = 1_000
_MERGED = frozenset({"type", "properties", "required", "description", "title", "$comment", "allOf", "$ref"})


class _Object(NamedTuple):
    """The requirements of one schema for an object, its own parts merged."""

    properties: dict[str, Any]
    required: list[str]
    is_closed: bool
    words: tuple[str, ...] = ()


def without_root_unions(schema: Mapping[str, Any], refused: Sequence[str]) -> tuple[JsonObject, dict[str, str]]:
    """The schema without the refused keywords at its root, and each that was there with what was done instead."""
    found = {keyword: "widened" for keyword in refused if keyword in schema}
    if not found:
        return dict(schema), found
    source = Source(schema)
    merged = _Merger(source).object(source.root, 0)
    # The properties evaluated by the alternatives are unknown now, so nothing may be required of the rest.
    found |= {keyword: "widened" for keyword in ("unevaluatedProperties",) if keyword in schema}
    whole = {key: value for key, value in schema.items() if key not in found}
    whole["type"] = "object"
    if merged.properties:
        whole["properties"] = merged.properties
    if merged.required:
        whole["required"] = merged.required
    if words := [f"({word})" for word in dict.fromkeys(merged.words)]:
        whole["description"] = " ".join([schema["description"], *words] if schema.get("description") else words)
    if "allOf" in found and all(_MERGED.issuperset(as_mapping(part)) for part in as_list(schema["allOf"])):
        found["allOf"] = "merged into one object"
    for keyword in _UNIONS:
        if keyword in found and merged.words:
            found[keyword] = "merged into one object; what is needed when is stated in the description"
    return whole, found


_OTHERS = ["array", "boolean", "null", "number", "string"]
_OF_OBJECTS = frozenset(word for word, types in TYPES_OF.items() if types == frozenset({"object"})) | {
    "$comment", "$defs", "$id", "$ref", "$schema", "default", "definitions", "deprecated", "description", "examples", "id",
    "title",
}  # fmt: skip


def with_open_root(schema: JsonObject, given: Mapping[str, Any]) -> tuple[JsonObject, bool]:
    """Restrict the root of a schema to objects where `given` accepted others too; references to the root stay as wide.

    The second value is True if they accept more than before.
    """
    source = Source(schema)

    def is_root(place: Place, keyword: str) -> bool:
        target = source.followed(place, keyword)
        return target is not None and not target.pointer

    holder = "definitions" if "definitions" in schema or source.draft <= 7 else "$defs"
    definitions = as_mapping(schema.get(holder))
    name = next(name for name in ("any", *map(str, range(len(definitions) + 1))) if name not in definitions)
    opened = with_references(source, lambda place, keyword: f"#/{holder}/{name}" if is_root(place, keyword) else None)
    if opened is None:
        return schema, False
    any_value = {"anyOf": [{"$ref": "#"}, {"type": _OTHERS}]}
    return {**opened, holder: {**as_mapping(opened.get(holder)), name: any_value}}, not _OF_OBJECTS.issuperset(given)


class _Merger:
    """Merger of the parts of one schema, up to a bounded number."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.left = _PARTS_MAX

    def object(self, place: Place, depth: int) -> _Object:
        """Merge one schema with its siblings."""
        node = as_mapping(place.schema)
        if self.source.draft <= 7 and "$ref" in node:
            node = {"$ref": node["$ref"]}  # siblings of a reference are ignored
        properties = dict(as_mapping(node.get("properties")))
        required = [name for name in as_list(node.get("required")) if isinstance(name, str)]
        words: list[str] = []
        self.left -= 1
        if depth > _DEPTH_MAX or self.left < 0:
            return _Object(properties, required, False)
        parts = [self.source.below(place, "allOf", index) for index in range(len(as_list(node.get("allOf"))))]
        if "$ref" in node and (target := self.source.target(place, "$ref")) is not None:
            parts.append(target)
        joined = [self.object(part, depth + 1) for part in parts]
        for keyword in _UNIONS:
            branches = [self.source.below(place, keyword, index) for index in range(len(as_list(node.get(keyword))))]
            told = [self.object(branch, depth + 1) for branch in branches if _may_be_object(branch.schema)]
            if told:
                joined.append(_either(told, keyword))
        for part in joined:
            for name, inner in part.properties.items():
                both = [one for one in (properties.get(name, inner), inner) if one != {}]
                properties[name] = {"allOf": both} if len(both) > 1 and both[0] != both[1] else both[0] if both else {}
            required += [name for name in part.required if name not in required]
            words += part.words
        is_closed = node.get("additionalProperties") is False and "patternProperties" not in node
        is_closed = is_closed or any(part.is_closed for part in joined)
        return _Object(properties, required, is_closed, tuple(words))


def _may_be_object(schema: Any) -> bool:
    named = as_mapping(schema).get("type", "object")
    return schema is not False and (named == "object" or "object" in as_list(named))


def _either(branches: Sequence[_Object], keyword: str) -> _Object:
    """Merge alternatives into one object that allows whatever any of them allows."""
    properties: dict[str, Any] = {}
    for name in dict.fromkeys(name for branch in branches for name in branch.properties):
        variants = [branch.properties[name] for branch in branches if name in branch.properties]
        is_open = any(name not in branch.properties and not branch.is_closed for branch in branches)
        properties[name] = _open(variants) if is_open else _any_of(variants)
    required = [name for name in branches[0].required if all(name in branch.required for branch in branches)]
    choices = [
        " and ".join(name for name in branch.required if name not in required) or "nothing more" for branch in branches
    ]
    needs = list(dict.fromkeys(choices))[:_NAMED_MAX]
    which = "exactly one of: " if keyword == "oneOf" else ""
    words = (f"needs {which}{' or '.join(needs)}",) if len(needs) > 1 else ()
    inner = tuple(word for branch in branches for word in branch.words)
    return _Object(properties, required, all(branch.is_closed for branch in branches), (*words, *inner))


def _any_of(variants: Sequence[Any]) -> Any:
    distinct = [variant for index, variant in enumerate(variants) if variant not in variants[:index]]
    return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}


def _open(variants: Sequence[Any]) -> JsonObject:
    """A property of only some alternatives: the others accept anything, so its type is described in text."""
    nodes = [as_mapping(variant) for variant in variants]
    text = next((str(node["description"]) for node in nodes if node.get("description")), "")
    kinds = dict.fromkeys(str(kind) for node in nodes for kind in _kinds(node))
    words = f"({' or '.join(kinds)})" if kinds else ""
    return {"description": " ".join(filter(None, (text, words)))} if text or words else {}


def _kinds(node: Mapping[str, Any]) -> Sequence[Any]:
    if "enum" in node:
        return [f"one of {', '.join(map(repr, as_list(node['enum'])[:_NAMED_MAX]))}"]
    if "const" in node:
        return [repr(node["const"])]
    return as_list(node.get("type")) or ([node["type"]] if "type" in node else [])
