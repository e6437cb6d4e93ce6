"""Recognize well-formed schemas without compiling them.

Most tools use few and common keywords. Whether such a schema is well formed is decided in one walk, so its validator is
compiled with the first call, not with the declaration. Returns None for everything that only the validator can judge:
patterns, anchors, unknown dialects and keywords. Compiles nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, TypeAlias, cast

from callgate.schema.shape import ALL_TYPES

__all__ = ["sound_objects"]

_Check: TypeAlias = "Callable[[Any, list[Any]], bool]"

_TYPES = frozenset(ALL_TYPES)
_DIALECT = re.compile(r"https?://json-schema\.org/(draft-07/schema|draft/2020-12/schema)#?")
_LOCAL = re.compile(r"#/(\$defs|definitions)/([A-Za-z0-9_.-]+)")
_LEVELS_MAX = 40
_OBJECTS_MAX = 5_000
_EXACT_MAX = 2**53


def sound_objects(schema: Any) -> int | None:
    """Return the number of JSON objects in a schema that is certainly usable; None if the validator must decide."""
    count = 0
    level: list[Any] = [schema]
    for _ in range(_LEVELS_MAX):
        deeper: list[Any] = []
        for node in level:
            if type(node) is dict:
                if not _is_sound(cast("dict[Any, Any]", node), schema, deeper):
                    return None
            elif type(node) is not bool or not count:
                return None
        count += len(level)
        if not deeper:
            return count
        if count + len(deeper) > _OBJECTS_MAX:
            return None
        level = deeper
    return None


def _is_sound(node: dict[Any, Any], root: dict[str, Any], deeper: list[Any]) -> bool:
    """True if one schema is well formed, apart from its subschemas, which are added to `deeper`."""
    for keyword, value in node.items():
        check = _CHECKS.get(keyword)
        if check is not None:
            if not check(value, deeper):
                return False
        elif keyword == "$ref":
            if not _leads_to_a_schema(value, root):
                return False
        elif keyword != "$schema" or node is not root or not _is_dialect(value):
            return False
    return True


def _leads_to_a_schema(reference: Any, root: dict[str, Any]) -> bool:
    """True if a reference leads to a definition that is not itself a reference, as those may run in a circle."""
    found = _LOCAL.fullmatch(reference) if type(reference) is str else None
    definitions = root.get(found[1]) if found else None
    target = cast("dict[str, Any]", definitions).get(found[2]) if found and type(definitions) is dict else None
    return type(target) is dict and "$ref" not in target


def _is_dialect(value: Any) -> bool:
    return type(value) is str and _DIALECT.fullmatch(value) is not None


def _text(value: Any, _: list[Any]) -> bool:
    return type(value) is str and (value.isascii() or _is_unicode(value))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _type(value: Any, _: list[Any]) -> bool:
    if type(value) is str:
        return value in _TYPES
    listed = cast("list[Any]", value) if type(value) is list else []
    names = [name for name in listed if type(name) is str and name in _TYPES]
    return bool(names) and len(set(names)) == len(listed)


def _number(value: Any, _: list[Any]) -> bool:
    return (type(value) is int and -_EXACT_MAX <= value <= _EXACT_MAX) or (type(value) is float and math.isfinite(value))


def _count(value: Any, _: list[Any]) -> bool:
    return type(value) is int and 0 <= value <= _EXACT_MAX


def _flag(value: Any, _: list[Any]) -> bool:
    return type(value) is bool


def _scalar(value: Any) -> bool:
    kind = cast("type[object]", type(value))
    if kind is str:
        return _text(value, [])
    return value is None or kind is bool or _number(value, [])


def _value(value: Any, _: list[Any]) -> bool:
    if type(value) is list:
        return all(_scalar(item) for item in cast("list[Any]", value))
    return value == {} or _scalar(value)


def _values(value: Any, _: list[Any]) -> bool:
    return type(value) is list and value != [] and all(_scalar(item) for item in cast("list[Any]", value))


def _names(value: Any, _: list[Any]) -> bool:
    if type(value) is not list:
        return False
    names = cast("list[Any]", value)
    return all(_text(name, []) for name in names) and len(set(names)) == len(names)


def _schema(value: Any, deeper: list[Any]) -> bool:
    deeper.append(value)
    return True


def _schemas(value: Any, deeper: list[Any]) -> bool:
    if type(value) is not list or not value:
        return False
    deeper += cast("list[Any]", value)
    return True


def _named_schemas(value: Any, deeper: list[Any]) -> bool:
    if type(value) is not dict:
        return False
    members = cast("dict[Any, Any]", value)
    deeper += members.values()
    return all(_text(name, []) for name in members)


_CHECKS: dict[str, _Check] = {
    "type": _type, "description": _text, "title": _text, "format": _text, "default": _value, "const": _value,
    "examples": _values, "enum": _values, "required": _names, "properties": _named_schemas, "$defs": _named_schemas,
    "definitions": _named_schemas, "items": _schema, "additionalProperties": _schema, "anyOf": _schemas, "oneOf": _schemas,
    "allOf": _schemas, "minimum": _number, "maximum": _number, "exclusiveMinimum": _number, "exclusiveMaximum": _number,
    "minLength": _count, "maxLength": _count, "minItems": _count, "maxItems": _count, "minProperties": _count,
    "maxProperties": _count, "uniqueItems": _flag,
}  # fmt: skip
