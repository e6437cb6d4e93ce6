"""Describe a tool as text: its parameters as lines, and an example call.

Deterministic. Names and descriptions may come from an untrusted server, so none of them can begin a line or look like a
marker.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, cast

from callgate import strict_json
from callgate.types import JsonObject, ToolDefinition

__all__ = ["example_arguments", "harmless", "one_line_json", "parameter_lines"]

DESCRIPTION_CHARS_MAX = 1_000
PARAMETER_CHARS_MAX = 300
DEPTH_MAX = 6
LINES_MAX = 200
VALUE_CHARS_MAX = 80
"""Of a value in a schema, such as a default, so much is shown."""

_MARKER = re.compile(r"TOOL_(CALL|RESULT)", re.IGNORECASE)
# Line ends that JSON does not escape, and invisible characters: direction marks, zero widths, tags.
_UNSEEN = re.compile("[\x7f-\x9f\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e0fff]")
_BOUNDS = {
    "minimum": "at least {}", "exclusiveMinimum": "more than {}", "maximum": "at most {}",
    "exclusiveMaximum": "less than {}", "minLength": "at least {} characters", "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items", "pattern": "pattern {}", "format": "{}", "multipleOf": "a multiple of {}",
}  # fmt: skip


def harmless(text: str, chars_max: int = DESCRIPTION_CHARS_MAX) -> str:
    """Put the text on one line, without control and invisible characters or markers, and shortened."""
    visible = "".join(
        char if char.isspace() or unicodedata.category(char)[0] != "C" else " " for char in text[: 8 * chars_max]
    )
    line = _MARKER.sub(lambda match: match[0].replace("_", "-"), " ".join(visible.split()))
    if len(line) <= chars_max:
        return line
    cut = line[:chars_max]
    return cut.rsplit(" ", 1)[0][: chars_max - 2].rstrip(" .,;") + " …"


def one_line_json(value: Any) -> str:
    """Encode JSON on one line without markers or invisible characters; the value is unchanged."""
    text = strict_json.dump(value).decode("utf-8")
    text = _UNSEEN.sub(lambda match: json.dumps(match[0])[1:-1], text)
    return _MARKER.sub(lambda match: match[0].replace("_", "\\u005f"), text)


def parameter_lines(definition: ToolDefinition) -> list[str]:
    """Describe each parameter in one line, with those of nested objects indented below."""
    schema = definition.input_schema
    lines: list[str] = []
    for line in _properties(schema, schema, 0):
        if len(lines) == LINES_MAX:
            return [*lines, "- … and more"]
        lines.append(line)
    return lines


def example_arguments(definition: ToolDefinition) -> JsonObject:
    """Arguments that look like the tool's: its required parameters, with values of the right kind."""
    schema = definition.input_schema
    properties = _object(_resolved(schema, schema).get("properties"))
    required = _required(schema)
    names = [name for name in properties if name in required] or list(properties)[:1]
    return {name: _sample(_object(properties[name]), schema, 0) for name in names[:6] if _is_plain(name)}


def _properties(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Iterator[str]:
    schema = _resolved(schema, root)
    required = _required(schema)
    for name, given in _object(schema.get("properties")).items():
        inner = _resolved(_object(given), root)
        facts = [_kind(inner, root), *_facts(inner)]
        if name in required:
            facts.append("required")
        told = harmless(str(inner.get("description") or inner.get("title") or ""), PARAMETER_CHARS_MAX)
        shown = name if _is_plain(name) else _short_json(name)
        yield f"{'  ' * depth}- {shown} ({', '.join(filter(None, facts))})" + (f": {told}" if told else "")
        if depth < DEPTH_MAX:
            for nested in _objects_in(inner, root):
                yield from _properties(nested, root, depth + 1)


def _objects_in(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The objects whose parameters are shown below: the value itself, a list's items, or what it may be instead."""
    if schema.get("properties"):
        yield schema
    items = _resolved(_object(schema.get("items")), root)
    if items.get("properties"):
        yield items
    for choice in _choices(schema):
        resolved = _resolved(choice, root)
        if resolved.get("properties"):
            yield resolved


def _kind(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int = 0) -> str:
    if depth > DEPTH_MAX:
        return "any"
    if isinstance(schema.get("enum"), list):
        values = cast("list[Any]", schema["enum"])
        shown = [_short_json(value) for value in values[:40]]
        return "one of " + " | ".join(shown) + (" | …" if len(values) > len(shown) else "")
    if "const" in schema:
        return f"always {_short_json(schema['const'])}"
    choices = [_kind(_resolved(choice, root), root, depth + 1) for choice in _choices(schema)[:8]]
    if choices:
        return " or ".join(dict.fromkeys(choices))
    kind: Any = schema.get("type")
    kinds = [str(item) for item in cast("list[Any]", kind)] if isinstance(kind, list) else [str(kind)] if kind else []
    if "array" in kinds and schema.get("items"):
        place = kinds.index("array")
        kinds[place] = f"array of {_kind(_resolved(_object(schema['items']), root), root, depth + 1)}"
    if not kinds:
        return "object" if schema.get("properties") else "any"
    return harmless(" or ".join(kinds), 200)


def _facts(schema: Mapping[str, Any]) -> Iterator[str]:
    for keyword, words in _BOUNDS.items():
        value = schema.get(keyword)
        if isinstance(value, (int, float, str)) and not isinstance(value, bool):
            yield words.format(harmless(str(value), 80))
    if "default" in schema:
        yield f"default {_short_json(schema['default'])}"


def _sample(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    schema = _resolved(schema, root)
    for key in ("enum", "examples", "const", "default", "example"):
        known: Any = schema.get(key)
        if key in ("enum", "examples"):
            known = cast("list[Any]", known)[0] if isinstance(known, list) and known else None
        if known is not None and len(one_line_json(known)) <= VALUE_CHARS_MAX:
            return known
    kind: Any = schema.get("type")
    choices = _choices(schema)
    if kind is None and choices:
        return _sample(choices[0], root, depth + 1) if depth < DEPTH_MAX else None
    kind = str(cast("list[Any]", kind)[0]) if isinstance(kind, list) and kind else str(cast("Any", kind))
    if kind == "object" and depth < DEPTH_MAX:
        properties, required = _object(schema.get("properties")), _required(schema)
        return {name: _sample(_object(properties[name]), root, depth + 1) for name in properties if name in required}
    if kind == "array" and depth < DEPTH_MAX:
        return [_sample(_object(schema.get("items")), root, depth + 1)] if schema.get("items") else []
    return _SAMPLES.get(kind, "...")


_SAMPLES: Mapping[str, Any] = {"integer": 1, "number": 1.5, "boolean": True, "object": {}, "array": [], "null": None}


def _is_plain(name: str) -> bool:
    return re.fullmatch(r"[\w.$-]{1,64}", name) is not None and not _MARKER.search(name)


def _short_json(value: Any) -> str:
    told = one_line_json(value)
    return told if len(told) <= VALUE_CHARS_MAX else f"{told[:VALUE_CHARS_MAX]}…"


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Resolve local references; a dangling or circular one gives an empty schema."""
    for _ in range(16):
        reference: Any = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        target: Any = root
        for step in reference.removeprefix("#").split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            target = cast("Mapping[str, Any]", target).get(step) if isinstance(target, Mapping) else None
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        schema = {**_object(target), **beside} if reference.startswith("#") else beside
    return {}


def _choices(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for key in ("anyOf", "oneOf"):
        options: Any = schema.get(key)
        if isinstance(options, list):
            found += [_object(option) for option in cast("list[Any]", options)]
    return found


def _required(schema: Mapping[str, Any]) -> frozenset[str]:
    names: Any = schema.get("required")
    return (
        frozenset(name for name in cast("list[Any]", names) if isinstance(name, str))
        if isinstance(names, list)
        else frozenset()
    )


def _object(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
