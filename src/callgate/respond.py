"""Any Python value -> JSON-safe data -> the `functionResponse` part that answers a call.

What a tool returned comes in, plain JSON data and a part for the history go out. This file knows nothing of how a tool ran;
it never fails on a value, whatever it is, and it never sends more than the limit allows.

What becomes of a value:

| Python | JSON |
|---|---|
| None, bool, str, list, dict | themselves (lone surrogates become U+FFFD) |
| int | itself; text beyond 2**53, because the server reads numbers as doubles |
| float | itself; `"NaN"`, `"Infinity"`, `"-Infinity"` as text |
| Decimal, Fraction, UUID, paths, addresses, patterns | text |
| date, time, datetime | ISO 8601 text; timedelta as `PT<seconds>S` |
| Enum | its value |
| bytes, bytearray, memoryview | `{"base64": "..."}` |
| tuple, deque, range, generators | list |
| set, frozenset | list in a stable order |
| named tuples, dataclasses, attrs classes, pydantic models | objects of their fields |
| numpy and pandas scalars, arrays, frames | what their `item`, `tolist` or `to_dict` gives |
| `Media` | a reference to a media part |
| anything else | `{"unserialisable": "module.Class"}`, without its repr |
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import json
import math
import operator
import pathlib
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, ValuesView
from typing import Any, cast

from callgate import parts, strict_json
from callgate.types import FunctionCall, JsonObject, Media, Part, ToolResult

__all__ = ["Encoded", "json_safe", "to_function_response"]

NODES_MAX = 1_000_000
_EXACT_INT_MAX = 2**53


@dataclasses.dataclass(frozen=True, slots=True)
class Encoded:
    """A value made safe for JSON, the media it held, and what was changed on the way."""

    value: Any
    media: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()


def json_safe(value: object, *, depth_max: int = strict_json.DEPTH_MAX) -> Encoded:
    """The value as plain JSON data by the table above. Never raises and never loops, whatever the value is."""
    encoder = _Encoder(depth_max)
    return Encoded(encoder.encode(value, 0), tuple(encoder.media), tuple(dict.fromkeys(encoder.notes)))


def to_function_response(call: FunctionCall, result: ToolResult, *, output_chars: int = 40_000) -> Part:
    """The part that answers `call`: `{"result": value}` or `{"error": sentence}`, with `notes` beside it if there are any.

    A value longer than `output_chars` characters of JSON is sent as text with its middle left out. A value that holds a
    `$ref` key is sent as JSON text, because the server would try to resolve it; references to the result's own media stay.
    """
    notes = list(result.notes)
    if result.is_error:
        response: JsonObject = {"error": _cut(result.error or "failed without a message", output_chars, notes)}
    else:
        response = {"result": _sendable(result, output_chars, notes)}
    if notes:
        response["notes"] = notes
    return parts.response_part(call, response, result.media)


def _sendable(result: ToolResult, output_chars: int, notes: list[str]) -> Any:
    value = json_safe(result.value).value
    encoded = strict_json.dump(value)
    if isinstance(value, str):
        return _cut(value, output_chars, notes)
    if len(encoded) > output_chars:
        text = encoded.decode()
        if len(text) > output_chars:
            return _cut(text, output_chars, notes)
    if b'"$ref"' in encoded and _has_foreign_ref(value, parts.display_names(result.media)):
        notes.append("The result is given as JSON text.")
        return encoded.decode()
    return value


def _cut(text: str, chars_max: int, notes: list[str]) -> str:
    if len(text) <= chars_max:
        return text
    half = chars_max // 2
    left_out = len(text) - 2 * half
    notes.append(
        f"The result has {len(text)} characters; {left_out} in the middle were left out. Ask for a smaller part to see them."
    )
    return f"{text[:half]}\n[... {left_out} characters left out ...]\n{text[-half:]}"


def _has_foreign_ref(value: Any, own: set[str]) -> bool:
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value)
        if "$ref" in items and not (len(items) == 1 and items["$ref"] in own):
            return True
        return any(_has_foreign_ref(item, own) for item in items.values())
    return isinstance(value, list) and any(_has_foreign_ref(item, own) for item in cast("list[Any]", value))


class _Encoder:
    """Walks one value. Keeps the path (for cycles), a budget of nodes (for shared structures) and what it had to change."""

    def __init__(self, depth_max: int) -> None:
        self.depth_max = depth_max
        self.media: list[Part] = []
        self.notes: list[str] = []
        self.nodes = 0
        self.path: set[int] = set()

    def encode(self, value: Any, depth: int) -> Any:
        kind = cast("type[Any]", type(value))
        if kind is str:
            # Encoding is the quickest way to find out that nothing has to be done.
            return value if value.isascii() else strict_json.without_surrogates(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if -_EXACT_INT_MAX <= value <= _EXACT_INT_MAX else self.big_int(value)
        if kind is float:
            return value if math.isfinite(value) else self.not_finite(value)
        self.nodes += 1
        if depth >= self.depth_max:
            return self.marker("cut", f"nested deeper than {self.depth_max} levels")
        if self.nodes > NODES_MAX:
            return self.marker("cut", f"more than {NODES_MAX} values")
        if id(value) in self.path:
            return self.marker("cut", "refers to itself")
        self.path.add(id(value))
        try:
            return self.structure(value, kind, depth + 1)
        finally:
            self.path.discard(id(value))

    def structure(self, value: Any, kind: type[Any], depth: int) -> Any:
        if kind is dict:
            return self.mapping(value, depth)
        if kind is list or kind is tuple:
            return [self.encode(item, depth) for item in value]
        if isinstance(value, Media):
            return self.reference(value)
        for known, convert in _CONVERSIONS:
            if isinstance(value, known):
                return self.encode_converted(convert, value, depth)
        if (names := _field_names(kind)) is not None:
            return {name: self.encode(getattr(value, name, None), depth) for name in names}
        for method in _METHODS:
            if callable(getattr(kind, method, None)):
                return self.encode_converted(operator.methodcaller(method), value, depth)
        return self.marker("unserialisable", f"{kind.__module__}.{kind.__qualname__}")

    def encode_converted(self, convert: Callable[[Any], Any], value: Any, depth: int) -> Any:
        try:
            return self.encode(convert(value), depth)
        except Exception as error:  # the value's own code failed; the call itself succeeded
            kind = cast("type[Any]", type(value))
            self.notes.append(f"A value of type {kind.__qualname__} could not be written ({type(error).__name__}).")
            return {"unserialisable": f"{kind.__module__}.{kind.__qualname__}"}

    def mapping(self, value: Mapping[Any, Any], depth: int) -> JsonObject:
        result: JsonObject = {}
        for key, item in value.items():
            name = self.key(key)
            if name in result:
                self.notes.append(f"Two keys are both written as {name!r}; the later one is shown.")
            result[name] = self.encode(item, depth)
        return result

    def key(self, key: Any) -> str:
        if isinstance(key, enum.Enum):
            key = key.value
        if isinstance(key, str):
            return strict_json.without_surrogates(key)
        plain = self.encode(key, self.depth_max - 2)
        return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)

    def reference(self, media: Media) -> JsonObject:
        suffix = media.mime_type.rpartition("/")[2].partition(";")[0].partition("+")[0] or "bin"
        name = media.name or f"media_{len(self.media) + 1}.{suffix}"
        if name in parts.display_names(self.media):
            name = f"{len(self.media) + 1}_{name}"
        self.media.append(parts.inline_part(dataclasses.replace(media, name=name)))
        return {"$ref": name}

    def big_int(self, value: int) -> str:
        self.notes.append("Integers beyond 2**53 are written as text.")
        # CPython refuses to print integers of more than 4,300 digits in one go.
        return str(value) if value.bit_length() < 14_000 else hex(value)

    def not_finite(self, value: float) -> str:
        self.notes.append("Numbers that are not finite are written as text.")
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")

    def marker(self, key: str, text: str) -> JsonObject:
        self.notes.append(f"A value was replaced by a marker: {key}, {text}.")
        return {key: text}


def _field_names(kind: type[Any]) -> list[str] | None:
    """The fields of a dataclass or attrs class; None for any other class."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    attributes: Any = getattr(kind, "__attrs_attrs__", None)
    return [attribute.name for attribute in attributes] if attributes is not None else None


def _as_text(value: object) -> str:
    return str(value)


def _stable(value: Iterable[Any]) -> list[Any]:
    items = list(value)
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=lambda item: (type(item).__qualname__, repr(item)))


def _bytes(value: Any) -> JsonObject:
    return {"base64": base64.b64encode(bytes(value)).decode("ascii")}


def _exact(value: Any) -> Any:
    """A subclass of a JSON type (numpy's float64, IntEnum members, str subclasses) as the JSON type itself."""
    for base in (str, bool, int, float):
        if isinstance(value, base):
            return base(value)
    return value


# Order matters: a row takes a value before the rows below it. Enum stands first because members may also be str or int.
_CONVERSIONS: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    (enum.Enum, lambda v: v.value),
    ((str, int, float), _exact),
    ((datetime.datetime, datetime.date, datetime.time), lambda v: v.isoformat()),
    (datetime.timedelta, lambda v: f"PT{v.total_seconds():g}S"),
    ((decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PurePath), _as_text),
    ((ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network), _as_text),
    (re.Pattern, lambda v: v.pattern),
    ((bytes, bytearray, memoryview), _bytes),
    ((set, frozenset), _stable),
    (Mapping, dict),
    ((collections.deque, range, Iterator, KeysView, ValuesView, list), list),
    (tuple, lambda v: v._asdict() if hasattr(v, "_asdict") else list(v)),
)

# Duck typing for the rest: pydantic, pandas, numpy, and whatever else says how to be turned into plain data.
_METHODS = ("model_dump", "to_dict", "tolist", "item", "isoformat")
