"""Limits as text: a keyword and its value in, a phrase for a description out. Knows no wire format.

Keywords that a dialect lacks are written in brackets after the description, where a model reads them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from callgate.schema.refs import as_list, as_mapping

if TYPE_CHECKING:
    from callgate.schema.shape import Shape

__all__ = ["described", "in_words", "listed", "shown", "with_words"]

_CHARS_MAX = 120
_LISTED_MAX = 20
_LISTED_CHARS_MAX = 400
_DEPTH_MAX = 2
_PROPERTIES_MAX = 8
_ENCODER = json.JSONEncoder(ensure_ascii=False)  # `json.dumps` makes one for each value.


def with_words(text: str, words: Iterable[str]) -> str:
    """Append phrases to a description, each once and in brackets."""
    said = [f"({word})" for word in dict.fromkeys(words) if word and f"({word})" not in text]
    return " ".join([text, *said] if text else said)


def shown(value: Any) -> str:
    """A JSON value, cut."""
    try:
        text = str(value) if type(value) is int else _ENCODER.encode(value)
    except ValueError:
        text = "…"  # an integer that is too long to be written
    return text if len(text) <= _CHARS_MAX else f"{text[: _CHARS_MAX - 1]}…"


def listed(values: Iterable[Any]) -> str:
    """The values, or as many of them as can be read."""
    words: list[str] = []
    rest, chars = 0, 0
    for value in values:
        word = shown(value)
        chars += len(word) + 2
        if len(words) < _LISTED_MAX and chars <= _LISTED_CHARS_MAX:
            words.append(word)
        else:
            rest += 1
    return ", ".join(words) + (f" and {rest} more" if rest else "")


def in_words(keyword: str, value: Any) -> str:
    """Describe a keyword; empty if there is no phrase for it."""
    write = _WORDS.get(keyword)
    return write(value) if write else ""


def _count(what: str, bound: str) -> Callable[[Any], str]:
    return lambda value: f"{bound} {shown(value)} {what}{'' if value == 1 else 's'}"


def _default(value: Any) -> str:
    # A null default mostly occurs in places where null itself is not allowed.
    return "" if value is None else f"default {shown(value)}"


def _examples(value: Any) -> str:
    return f"for example {listed(as_list(value)[:3])}" if as_list(value) else ""


def _not(value: Any) -> str:
    node = as_mapping(value)
    if list(node) == ["const"]:
        return "not empty" if node["const"] == "" else f"not {shown(node['const'])}"
    if list(node) == ["enum"]:
        return f"none of {listed(node['enum'])}"
    if list(node) == ["required"] and node["required"]:
        return f"not {' together with '.join(map(str, node['required'][:5]))}"
    return ""


def _dependent(value: Any) -> str:
    pairs = as_mapping(value)
    needs = [(name, as_list(needed)) for name, needed in pairs.items() if as_list(needed)]
    return "; ".join(f"{name} needs {' and '.join(map(str, needed[:5]))}" for name, needed in needs[:5])


def _pattern_keys(value: Any) -> str:
    patterns = list(as_mapping(value))
    return f"keys match {' or '.join(_cut(pattern) for pattern in patterns[:3])}" if patterns else ""


def _key_words(value: Any) -> str:
    node = as_mapping(value)
    words = [
        "match " + _cut(str(limit)) if keyword == "pattern" else in_words(keyword, limit)
        for keyword, limit in node.items()
        if keyword in ("pattern", "minLength", "maxLength")
    ]
    return "keys: " + ", ".join(words) if words else ""


def _cut(text: str) -> str:
    return text if len(text) <= _CHARS_MAX else f"{text[: _CHARS_MAX - 1]}…"


_WORDS: dict[str, Callable[[Any], str]] = {
    "minimum": lambda value: f"at least {shown(value)}",
    "maximum": lambda value: f"at most {shown(value)}",
    "exclusiveMinimum": lambda value: f"more than {shown(value)}",
    "exclusiveMaximum": lambda value: f"less than {shown(value)}",
    "multipleOf": lambda value: f"a multiple of {shown(value)}",
    "minLength": _count("character", "at least"),
    "maxLength": _count("character", "at most"),
    "pattern": lambda value: f"pattern {_cut(str(value))}",
    "format": lambda value: f"format {_cut(str(value))}",
    "contentEncoding": lambda value: f"encoded as {_cut(str(value))}",
    "contentMediaType": lambda value: f"media type {_cut(str(value))}",
    "minItems": _count("item", "at least"),
    "maxItems": _count("item", "at most"),
    "uniqueItems": lambda value: "no two items alike" if value else "",
    "minContains": _count("such item", "at least"),
    "minProperties": _count("key", "at least"),
    "maxProperties": _count("key", "at most"),
    "patternProperties": _pattern_keys,
    "propertyNames": _key_words,
    "dependentRequired": _dependent,
    "dependencies": _dependent,
    "not": _not,
    "default": _default,
    "examples": _examples,
    "example": lambda value: f"for example {shown(value)}",
    "deprecated": lambda value: "deprecated" if value is True else "",
}


def described(shape: Shape, depth: int = 0) -> str:
    """Describe a shape, such as `array of integer`, for places where only text is left."""
    if shape.any_of:
        return " or ".join(dict.fromkeys(described(branch, depth) for branch in shape.any_of[:5]))
    if shape.values is not None:
        return f"one of {listed(shape.values)}"
    if shape.types is None or shape.ref:
        return "any value"
    return " or ".join(_described_type(shape, name, depth) for name in sorted(shape.types))


def _described_type(shape: Shape, name: str, depth: int) -> str:
    if name == "array" and shape.items and not shape.prefix and depth < _DEPTH_MAX:
        return f"array of {described(shape.items, depth + 1)}"
    if name == "object" and depth < _DEPTH_MAX:
        inner = [
            f"{key}{'' if key in shape.required else '?'}: {described(value, depth + 1)}"
            for key, value in list(shape.properties.items())[:_PROPERTIES_MAX]
        ]
        return (
            "object {" + ", ".join(inner) + (", …" if len(shape.properties) > _PROPERTIES_MAX else "") + "}"
            if inner
            else name
        )
    words = [word for keyword, limit in shape.limits.items() if (word := in_words(keyword, limit.value))]
    return f"{name} ({', '.join(words[:3])})" if words else name
