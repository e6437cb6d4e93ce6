"""Convert any Python value to JSON-safe data, and to the `functionResponse` part that answers a call.

Never fails on a value, whatever it is, and never sends more than the limit allows. Knows nothing of how a tool ran.

Conversions:

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
| numpy and pandas scalars, arrays, frames | the result of their `item`, `tolist` or `to_dict` |
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
from operator import is_
from typing import Any, TypeAlias, cast

from callgate import strict_json
from callgate.content.build import inline_part, media_part
from callgate.content.plain_look import EXACT_INT_MAX, PIECE_VALUES, NotPlainError, PlainLook
from callgate.errors import ToolError, UsageError
from callgate.types import JsonObject, Media, Part

__all__ = ["BIG_INT_NOTE", "NODES_MAX", "Encoded", "ReadMedia", "UnsendableMediaError", "is_small", "json_safe"]

NODES_MAX = 1_000_000
NOTES_MAX = 20
NOTE_CHARS_MAX = 500
BIG_INT_NOTE = "Integers beyond 2**53 are written as text."


ReadMedia: TypeAlias = Callable[[Media], Media]
"""Media -> the same with its bytes or its address. Raises a `UsageError` for what cannot be sent."""


@dataclasses.dataclass(frozen=True, slots=True)
class Encoded:
    """A JSON-safe value, its media, and notes on changes."""

    value: Any
    media: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()


def json_safe(value: object, *, depth_max: int = strict_json.DEPTH_MAX, read_media: ReadMedia | None = None) -> Encoded:
    """The value as plain JSON data by the table above. Never loops, and never raises, whatever the value is.

    Raises:
        UnsendableMediaError: `read_media` cannot read media in it.
    """
    return encoded_by(value, Encoder(depth_max, read_media=read_media))


def is_small(value: object, *, nodes_max: int = 2_000, chars_max: int = 200_000) -> bool:
    """True if `json_safe` is fast for the value: few values of common types, whose own code is not run.

    Does not change the value, and consumes no iterator in it.
    """
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        nodes_max -= 1
        if isinstance(item, (str, bytes)):
            chars_max -= len(item)
        elif type(item) in (dict, list, tuple):
            items = cast("dict[Any, Any] | list[Any]", item)
            if nodes_max < len(items):
                return False
            stack.extend([*items, *items.values()] if isinstance(items, dict) else items)
        elif not isinstance(item, _SCALARS):
            return False
        if nodes_max < 0 or chars_max < 0:
            return False
    return True


def encoded_by(value: object, encoder: Encoder) -> Encoded:
    return Encoded(encoder.encode(value, 0), tuple(encoder.media), tuple(encoder.notes))


class UnsendableMediaError(ToolError):
    """Media of a result that cannot be read or sent."""


class Encoder:
    """Walk over one value. Tracks the path (for cycles), a budget of nodes (for shared structures) and the changes."""

    def __init__(self, depth_max: int, names_taken: Iterable[str] = (), read_media: ReadMedia | None = None) -> None:
        self.depth_max = depth_max
        self.read_media = read_media
        """Read files of media; where there is none, media of a path cannot be written."""
        self.media: list[Part] = []
        self.media_names = set(names_taken)
        self.notes: dict[str, None] = {}
        self.nodes = 0
        self.path: set[int] = set()
        self.is_plain = True
        """False once something was not plain JSON."""

    def text(self, value: Any) -> bytes | None:
        """The JSON text of a long value, if all of it is plain JSON; None if it has to be walked through."""
        if not _is_long(value):
            return None
        try:
            return PlainLook(NODES_MAX).text(value, self.depth_max)
        except BaseException as error:  # Something is not plain; `encode` finds out what.
            if self.is_raised(error):
                raise
            return None

    def encode(self, value: Any, depth: int) -> Any:
        kind = cast("type[Any]", type(value))
        if kind is str:
            return value if value.isascii() else strict_json.without_surrogates(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if -EXACT_INT_MAX <= value <= EXACT_INT_MAX else self.big_int(value)
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
        except BaseException as error:  # the value's own code failed in some way; the call itself succeeded
            if self.is_raised(error):
                raise
            what, why = _name_of(kind), _name_of(type(error)).rpartition(".")[2]
            self.note(f"A value of type {what} could not be written ({why}).")
            return {"unserialisable": _name_of(kind)}
        finally:
            self.path.discard(id(value))

    def is_raised(self, error: BaseException) -> bool:
        """True for an error that is not the value's own."""
        if isinstance(error, UnsendableMediaError):
            return self.read_media is not None
        return isinstance(error, KeyboardInterrupt) and type(error) is not KeyboardInterrupt  # of a signal handler

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
        """Convert classes that serialize themselves."""
        if kind.__module__ == _SDK_TYPES:
            return self.encode(_sdk_value(value), depth)
        if (names := _field_names(kind)) is not None:
            return {name: self.encode(getattr(value, name, None), depth) for name in names}
        for method in _METHODS:
            if callable(getattr(kind, method, None)) and type(made := getattr(value, method)()) is not kind:
                return self.encode(made, depth)
        if callable(getattr(kind, "__float__", None)):  # numpy's long doubles have no plainer form
            return self.encode(float(value) if float(value) == value else str(value), depth)
        return self.marker("unserialisable", _name_of(kind))

    def listed(self, values: Iterable[Any], depth: int) -> list[Any]:
        room = max(NODES_MAX - self.nodes, 0)
        items = list(itertools.islice(values, room + 1))
        self.nodes += len(items)
        copied = self.plain(items[:room], depth) if len(items) >= _MANY and self.is_plain else []
        rest = items[len(copied) : room]
        result = copied + [item if _type(item) is str and item.isascii() else self.encode(item, depth) for item in rest]
        return result if len(items) <= room else [*result, self.marker("cut", _TOO_MANY)]

    def plain(self, items: list[Any], depth: int) -> list[Any]:
        """A copy of the first items, as many as are plain JSON."""
        copied: list[Any] = []
        for start in range(0, len(items), PIECE_VALUES):
            look = PlainLook(NODES_MAX - self.nodes)
            try:
                copied += look.copy(items[start : start + PIECE_VALUES], self.depth_max - depth)
            except NotPlainError:
                self.is_plain = False  # The rest is likely to be alike, and would be looked at twice.
                break
            self.nodes += look.nodes
        return copied

    def mapping(self, value: dict[Any, Any], depth: int) -> JsonObject:
        room = max(NODES_MAX - self.nodes, 0)
        self.nodes += len(value)
        result: JsonObject = {}
        if _MANY <= len(value) <= room and self.is_plain:
            value = value.copy()  # Its tool may go on to change it.
            result = self.plain_members(value, depth)
        has_other_names = False
        # Most keys are names, and most values text or numbers: those take no step of their own.
        left = value.items() if not result and len(value) <= room else itertools.islice(value.items(), len(result), room)
        for key, item in left:
            name = key
            if _type(key) is not str or not key.isascii():
                has_other_names = True
                name = self.key(key)
            if has_other_names and name in result:
                self.note(f"Two keys are both written as {name[:100]!r}; the later one is shown.")
            kind = _type(item)
            if (kind is str and item.isascii()) or (kind is int and -EXACT_INT_MAX <= item <= EXACT_INT_MAX):
                result[name] = item
            else:
                result[name] = self.encode(item, depth)
        return result if len(value) <= room else result | self.marker("cut", _TOO_MANY)

    def plain_members(self, value: dict[Any, Any], depth: int) -> JsonObject:
        """The first members of a copied object, as many as are plain JSON, copied too."""
        names = [*value]
        if not {*map(_type, names)} <= {str} or not "".join(names).isascii():
            return {}
        values = [*value.values()]
        copied = self.plain(values, depth)
        if len(copied) == len(values) and all(map(is_, copied, values)):
            return value
        return dict(zip(names, copied, strict=False))

    def key(self, key: Any) -> str:
        if isinstance(key, enum.Enum):
            key = key.value
        if isinstance(key, str):
            return strict_json.without_surrogates(str.__str__(key))
        plain = self.encode(key, self.depth_max - 2)
        return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)

    def readable(self, media: Media) -> Media:
        """The media with its bytes or its address."""
        try:
            if self.read_media is not None:
                return self.read_media(media)
            if media.path is not None:
                raise UsageError("media of a path must be read first")
        except UsageError as error:
            raise UnsendableMediaError(f"The tool returned media that cannot be sent: {error}.") from error
        return media

    def reference(self, media: Media) -> JsonObject:
        media = self.readable(media)
        if media.uri is not None:
            self.media.append(media_part(media))
            return {"uri": strict_json.without_surrogates(media.uri)}
        suffix = media.mime_type.rpartition("/")[2].partition(";")[0].partition("+")[0] or "bin"
        wanted = strict_json.without_surrogates(media.name or f"media_{len(self.media) + 1}.{suffix}")
        prefixed = (f"{number}_{wanted}" for number in itertools.count(len(self.media) + 1))
        name = next(name for name in itertools.chain([wanted], prefixed) if name not in self.media_names)
        self.media.append(inline_part(dataclasses.replace(media, name=name)))
        self.media_names.add(name)
        return {"$ref": name}

    def big_int(self, value: int) -> str:
        self.note(BIG_INT_NOTE)
        # CPython refuses to print integers of more than 4,300 digits at once, and can be configured to stop at 640.
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


_MANY = 20
"""Number of items from which copying them together is quicker than one by one."""


def _is_long(value: Any) -> bool:
    if _type(value) is list:
        return len(value) >= _MANY
    return _type(value) is dict and (
        len(value) >= _MANY or any(_type(item) in (list, dict) and len(item) >= _MANY for item in value.copy().values())
    )


_type: Callable[[Any], Any] = type
"""`type`, without narrowing by the type checker."""
_TOO_MANY = f"more than {NODES_MAX} values"


def _name_of(kind: type[Any]) -> str:
    """Return the full name of a class, using `type` itself: a metaclass may return anything."""
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


def _sdk_value(value: Any) -> Any:
    """A part of google-genai as what it holds: media or text; any other object of the SDK by the fields that are set."""
    blob = getattr(value, "inline_data", value)
    data, kind = getattr(blob, "data", None), getattr(blob, "mime_type", None)
    if isinstance(data, bytes) and isinstance(kind, str):
        return Media(data=data, mime_type=kind, name=getattr(blob, "display_name", None))
    fields: JsonObject = value.model_dump(exclude_none=True)
    return fields["text"] if fields.keys() == {"text"} else fields


def _bytes(value: Any) -> JsonObject:
    return {"base64": base64.b64encode(bytes(value)).decode("ascii")}


def _exact(value: Any) -> Any:
    """A subclass of a JSON type (numpy's float64, IntEnum members, str subclasses) as the JSON type itself."""
    return next(plain(value) for base, plain in _EXACT.items() if isinstance(value, base))


_EXACT: dict[type, Callable[[Any], Any]] = {str: str.__str__, int: int.__int__, float: float.__float__}


_SCALARS = (
    type(None), bool, int, float, enum.Enum, decimal.Decimal, uuid.UUID, pathlib.PurePath, datetime.date, datetime.time,
    datetime.timedelta,
)  # fmt: skip

# Walked item by item, within the budget: an iterator may have no end.
_LISTED = (set, frozenset, collections.deque, range, Iterator, MappingView, list)

# Order matters: the first matching row counts. Enum is first because members may also be str or int.
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

# Duck typing for the rest: pydantic, pandas, numpy, and anything else that serializes itself.
_SDK_TYPES = "google.genai.types"
_METHODS: tuple[str, ...] = ("model_dump", "to_dict", "tolist", "item", "isoformat")
