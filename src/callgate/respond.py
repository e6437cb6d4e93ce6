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
| tuple, deque, range, generators | list (endless ones are cut) |
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
import itertools
import json
import math
import pathlib
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView
from typing import Any, cast

from callgate import parts, strict_json
from callgate.errors import JsonError
from callgate.types import FunctionCall, JsonObject, Media, Part, ToolResult

__all__ = ["Encoded", "is_longer", "json_safe", "media_in", "to_function_response", "value_in", "whole_text"]

NODES_MAX = 1_000_000
NOTES_MAX = 20
NOTE_CHARS_MAX = 500
_EXACT_INT_MAX = 2**53


@dataclasses.dataclass(frozen=True, slots=True)
class Encoded:
    """A value made safe for JSON, the media it held, and what was changed on the way."""

    value: Any
    media: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()


def json_safe(value: object, *, depth_max: int = strict_json.DEPTH_MAX) -> Encoded:
    """The value as plain JSON data by the table above. Never raises and never loops, whatever the value is."""
    return _encoded(value, _Encoder(depth_max))


def _encoded(value: object, encoder: _Encoder) -> Encoded:
    return Encoded(encoder.encode(value, 0), tuple(encoder.media), tuple(encoder.notes))


def to_function_response(
    call: FunctionCall, result: ToolResult, *, output_chars: int = 40_000, reader: str | None = None
) -> Part:
    """The part that answers `call`: `{"result": value}` or `{"error": sentence}`, with `notes` beside it if there are any.

    A value longer than `output_chars` characters of JSON is sent as text with its middle left out. A value that holds a
    `$ref` key is sent as JSON text, because the server would try to resolve it; references to the result's own media stay.
    `reader` is the tool that shows what was left out, if there is one.
    """
    notes = list(result.notes)
    media = list(result.media)
    if result.is_error:
        error = _without_tags(strict_json.without_surrogates(result.error or "failed without a message"), notes)
        response: JsonObject = {"error": _cut(error, output_chars, notes)}
    else:
        encoded = _encoded(result.value, _Encoder(strict_json.DEPTH_MAX, parts.display_names(media)))
        media += encoded.media
        notes += encoded.notes
        response = {"result": _sendable(encoded.value, media, output_chars, notes)}
    if reader is not None:
        how = f"Call {reader} with id={call.id!r} to read them."
        notes = [note.removesuffix(_HOW_TO_READ) + how if note.endswith(_HOW_TO_READ) else note for note in notes]
    if notes:
        response["notes"] = _bounded(notes)
    return parts.response_part(call, response, media)


def value_in(answer: Part) -> Any:
    """The value that a `functionResponse` part gives; None where it gives an error, or is not one of ours."""
    response: Any = parts.response_of(answer).get("response")
    return cast("JsonObject", response).get("result") if isinstance(response, dict) else None


def media_in(answer: Part) -> tuple[Part, ...]:
    """The media that a `functionResponse` part brings along."""
    return tuple(parts.response_media(answer))


def is_longer(result: ToolResult, chars: int) -> bool:
    """Whether a result has more characters than so many, which is mostly clear without writing it all out for the model."""
    if not result.is_error:
        try:
            # What is not JSON yet may grow when it is made so, but never by so much.
            if len(strict_json.dump(result.value)) <= chars // 8:
                return False
        except JsonError:
            pass  # Only the long way knows how to write it.
    return len(whole_text(result)) > chars


def whole_text(result: ToolResult) -> str:
    """A result as the text of which the model sees the beginning and the end when it is long."""
    if result.is_error:
        return strict_json.without_surrogates(result.error or "")
    value = json_safe(result.value).value
    return value if isinstance(value, str) else strict_json.dump(value).decode()


def _bounded(notes: list[str]) -> list[str]:
    texts = [strict_json.without_surrogates(note)[:NOTE_CHARS_MAX] for note in dict.fromkeys(notes)]
    left_out = len(texts) - NOTES_MAX
    return texts if left_out <= 0 else [*texts[:NOTES_MAX], f"{left_out} more note(s) were left out."]


def _sendable(value: Any, media: list[Part], output_chars: int, notes: list[str]) -> Any:
    if isinstance(value, str):
        return _cut(_without_tags(value, notes), output_chars, notes)
    encoded = strict_json.dump(value)
    if _TAGS_BEGIN in encoded:
        value = _without_tags(value, notes)
        encoded = strict_json.dump(value)
    if len(encoded) > output_chars:
        text = encoded.decode()
        if len(text) > output_chars:
            return _cut(text, output_chars, notes)
    if b'"$ref"' in encoded and _has_foreign_ref(value, parts.display_names(media)):
        notes.append("The result is given as JSON text.")
        return encoded.decode()
    return value


# Letters that nobody sees and models read: instructions are hidden in them. Only in flags (the English one is a black flag
# with "gbeng" in such letters) they have a use.
_TAGS_BEGIN = "\U000e0000".encode()[:2]
_TAGS = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{2,6}\U000e007f|[\U000e0000-\U000e007f]+")


def _without_tags(value: Any, notes: list[str]) -> Any:
    if isinstance(value, str):
        shown = value if value.isascii() else _TAGS.sub(lambda found: found[0] if found[0][0] == "\U0001f3f4" else "", value)
        if shown != value:
            notes.append("Hidden characters (Unicode tags) in it were left out.")
        return shown
    if isinstance(value, dict):
        members = cast("JsonObject", value).items()
        return {_without_tags(key, notes): _without_tags(member, notes) for key, member in members}
    return [_without_tags(item, notes) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _cut(text: str, chars_max: int, notes: list[str]) -> str:
    if len(text) <= chars_max:
        return text
    # The marker counts too. Its number is at most as long as that of all characters.
    half = max(chars_max - len(_LEFT_OUT.format(len(text))), 0) // 2
    left_out = len(text) - 2 * half
    notes.append(f"The result has {len(text)} characters; {left_out} in the middle were left out. {_HOW_TO_READ}")
    return text[:half] + _LEFT_OUT.format(left_out) + text[len(text) - half :]


_LEFT_OUT = "\n[... {} characters left out ...]\n"
_HOW_TO_READ = "Ask for a smaller part to see them."


def _has_foreign_ref(value: Any, own: set[str]) -> bool:
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value)
        if "$ref" in items and not (len(items) == 1 and isinstance(items["$ref"], str) and items["$ref"] in own):
            return True
        return any(_has_foreign_ref(item, own) for item in items.values())
    return isinstance(value, list) and any(_has_foreign_ref(item, own) for item in cast("list[Any]", value))


class _Encoder:
    """Walks one value. Keeps the path (for cycles), a budget of nodes (for shared structures) and what it had to change."""

    def __init__(self, depth_max: int, names_taken: Iterable[str] = ()) -> None:
        self.depth_max = depth_max
        self.media: list[Part] = []
        self.media_names = set(names_taken)
        self.notes: dict[str, None] = {}
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
            return self.marker("cut", _TOO_MANY)
        if id(value) in self.path:
            return self.marker("cut", "refers to itself")
        self.path.add(id(value))
        try:
            return self.structure(value, kind, depth + 1)
        except Exception as error:  # the value's own code failed; the call itself succeeded
            what, why = _name_of(kind), _name_of(type(error)).rpartition(".")[2]
            self.note(f"A value of type {what} could not be written ({why}).")
            return {"unserialisable": _name_of(kind)}
        finally:
            self.path.discard(id(value))

    def structure(self, value: Any, kind: type[Any], depth: int) -> Any:
        if kind is dict:
            return self.mapping(value, depth)
        if kind is list or kind is tuple:
            return self.listed(value, depth)
        if isinstance(value, Media):
            return self.reference(value)
        if isinstance(value, _LISTED):
            items = self.listed(cast("Iterable[Any]", value), depth)
            return sorted(items, key=_stable) if isinstance(value, (set, frozenset)) else items
        for known, convert in _CONVERSIONS:
            if isinstance(value, known):
                return self.encode(convert(value), depth)
        return self.foreign(value, kind, depth)

    def foreign(self, value: Any, kind: type[Any], depth: int) -> Any:
        """Classes that say themselves what they hold."""
        if (names := _field_names(kind)) is not None:
            return {name: self.encode(getattr(value, name, None), depth) for name in names}
        for method in _METHODS:
            if callable(getattr(kind, method, None)):
                return self.encode(getattr(value, method)(), depth)
        return self.marker("unserialisable", _name_of(kind))

    def listed(self, values: Iterable[Any], depth: int) -> list[Any]:
        room = max(NODES_MAX - self.nodes, 0)
        items = list(itertools.islice(values, room + 1))
        self.nodes += len(items)
        result = [self.encode(item, depth) for item in items[:room]]
        return result if len(items) <= room else [*result, self.marker("cut", _TOO_MANY)]

    def mapping(self, value: Mapping[Any, Any], depth: int) -> JsonObject:
        result: JsonObject = {}
        for key, item in value.items():
            self.nodes += 1
            if self.nodes > NODES_MAX:
                return result | self.marker("cut", _TOO_MANY)
            name = self.key(key)
            if name in result:
                self.note(f"Two keys are both written as {name[:100]!r}; the later one is shown.")
            result[name] = self.encode(item, depth)
        return result

    def key(self, key: Any) -> str:
        if type(key) is str and key.isascii():
            return key
        if isinstance(key, enum.Enum):
            key = key.value
        if isinstance(key, str):
            return strict_json.without_surrogates(str.__str__(key))
        plain = self.encode(key, self.depth_max - 2)
        return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)

    def reference(self, media: Media) -> JsonObject:
        suffix = media.mime_type.rpartition("/")[2].partition(";")[0].partition("+")[0] or "bin"
        wanted = strict_json.without_surrogates(media.name or f"media_{len(self.media) + 1}.{suffix}")
        prefixed = (f"{number}_{wanted}" for number in itertools.count(len(self.media) + 1))
        name = next(name for name in itertools.chain([wanted], prefixed) if name not in self.media_names)
        self.media.append(parts.inline_part(dataclasses.replace(media, name=name)))
        self.media_names.add(name)
        return {"$ref": name}

    def big_int(self, value: int) -> str:
        self.note("Integers beyond 2**53 are written as text.")
        # CPython refuses to print integers of more than 4,300 digits in one go, and can be told to stop at 640.
        return str(value) if value.bit_length() <= 2_000 else hex(value)

    def not_finite(self, value: float) -> str:
        self.note("Numbers that are not finite are written as text.")
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")

    def marker(self, key: str, text: str) -> JsonObject:
        self.note(f"A value was replaced by a marker: {key}, {text}.")
        return {key: text}

    def note(self, text: str) -> None:
        if len(self.notes) < NOTES_MAX:
            self.notes[text[:NOTE_CHARS_MAX]] = None


_TOO_MANY = f"more than {NODES_MAX} values"


def _name_of(kind: type[Any]) -> str:
    """The full name of a class, by way of `type` itself: a metaclass may answer anything."""
    try:
        return strict_json.without_surrogates(
            f"{type.__dict__['__module__'].__get__(kind)}.{type.__getattribute__(kind, '__qualname__')}"
        )
    except Exception:  # a class can be stranger than its values
        return "an unknown class"


def _field_names(kind: type[Any]) -> list[str] | None:
    """The fields of a dataclass or attrs class; None for any other class."""
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    attributes: Any = getattr(kind, "__attrs_attrs__", None)
    return [attribute.name for attribute in attributes] if attributes is not None else None


def _as_text(value: object) -> str:
    return str(value)


def _stable(plain: Any) -> tuple[int, float, bytes]:
    """The place of a set's item, already plain: numbers by size, then text, then the rest; the same in every process."""
    if isinstance(plain, (int, float)):
        return 0, plain, b""
    return 1 if isinstance(plain, str) else 2, 0, strict_json.dump(plain)


def _duration(value: datetime.timedelta) -> str:
    seconds, micros = divmod(abs(value) // datetime.timedelta(microseconds=1), 1_000_000)
    fraction = f".{micros:06}".rstrip("0") if micros else ""
    return f"{'-' if value < datetime.timedelta(0) else ''}PT{seconds}{fraction}S"


def _as_dict(value: Mapping[Any, Any]) -> dict[Any, Any]:
    return {key: value[key] for key in itertools.islice(value, NODES_MAX + 1)}


def _bytes(value: Any) -> JsonObject:
    return {"base64": base64.b64encode(bytes(value)).decode("ascii")}


def _exact(value: Any) -> Any:
    """A subclass of a JSON type (numpy's float64, IntEnum members, str subclasses) as the JSON type itself."""
    return next(base(value) for base in (str, int, float) if isinstance(value, base))


# What is walked item by item, and never further than the budget goes: an iterator may have no end.
_LISTED = (set, frozenset, collections.deque, range, Iterator, MappingView, list)

# Order matters: a row takes a value before the rows below it. Enum stands first because members may also be str or int.
_CONVERSIONS: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    (enum.Enum, lambda v: v.value),
    ((str, int, float), _exact),
    ((datetime.datetime, datetime.date, datetime.time), lambda v: v.isoformat()),
    (datetime.timedelta, _duration),
    ((decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PurePath), _as_text),
    ((ipaddress.IPv4Address, ipaddress.IPv6Address, ipaddress.IPv4Network, ipaddress.IPv6Network), _as_text),
    (re.Pattern, lambda v: v.pattern),
    ((bytes, bytearray, memoryview), _bytes),
    (Mapping, _as_dict),
    (tuple, lambda v: v._asdict() if hasattr(v, "_asdict") else list(v)),
)

# Duck typing for the rest: pydantic, pandas, numpy, and whatever else says how to be turned into plain data.
_METHODS: tuple[str, ...] = ("model_dump", "to_dict", "tolist", "item", "isoformat")
