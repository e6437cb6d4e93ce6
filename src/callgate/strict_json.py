"""Strict JSON parsing and encoding: finite numbers, bounded depth, no lone surrogates.

Takes bytes or text, returns plain values, and vice versa; knows nothing of what the JSON means.

`pydantic_core` is the fast path. It reads `1e999` as infinity, refuses a whole document for one bad number or surrogate,
and writes `NaN`; so it is guarded here, and `parse_isolating` parses again what it refused, slowly, and marks only the
bad places.
"""

from __future__ import annotations

import base64
import functools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, islice
from typing import Any, Literal, cast

from callgate.errors import JsonError

__all__ = [
    "DEPTH_MAX",
    "INT_BITS_MAX",
    "WRITTEN_DEPTH_MAX",
    "AnnotatedObject",
    "Bad",
    "EncodedObject",
    "Replaced",
    "SoundObject",
    "depth_exceeds",
    "dump",
    "dump_pieces",
    "first_bad",
    "has_duplicate_keys",
    "has_more_of",
    "has_more_separators",
    "is_exact",
    "is_sound",
    "is_whole_text",
    "isolate",
    "lost_by_reading",
    "objects_in",
    "parse",
    "parse_inexact_as_text",
    "parse_isolating",
    "parse_own",
    "parse_shallow",
    "was_replaced",
    "why_unsound",
    "without_bad",
    "without_surrogates",
]  # fmt: skip

DEPTH_MAX = 100
WRITTEN_DEPTH_MAX = 254
"""The deepest nesting that `dump` writes."""
_PARSER_DEPTH_MAX = 200
"""The deepest nesting that the fast parser reads."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_RAW_BYTE = re.compile("[\udc80-\udcff]")
_DIGITS_MAX = 4_300
INT_BITS_MAX = 14_000
"""Integers of more bits may have more digits than Python converts at once."""
_EXACT_CHARS_MAX = 15
_SHARED_FROM = 1_000
_PIECE_BYTES = 256 * 1024
_LONG_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Bad:
    """Marker of an invalid value; `reason` is a sentence for the model."""

    reason: str
    value: Any = None
    """The nearest JSON value."""


@functools.cache
def _core() -> Any:
    """`pydantic_core`, imported when it is first needed; asking here is quicker than importing it again."""
    import pydantic_core

    return pydantic_core


def parse(text: bytes | str, *, depth_max: int = DEPTH_MAX) -> Any:
    """Parse a JSON text.

    Raises:
        JsonError: the text is not JSON, or contains NaN, Infinity, a number beyond range, a lone surrogate, bytes that
        are not UTF-8, or more than `depth_max` levels.
    """
    try:
        text = text if isinstance(text, bytes) else text.encode("utf-8")
        value = _core().from_json(text, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        if depth_max > _PARSER_DEPTH_MAX and (found := _parse_deep(text, depth_max)) is not None:
            return found
        raise JsonError(f"not valid JSON: {error}") from None
    # So few brackets cannot be nested too deeply, and most texts have few.
    is_flat = not has_more_of(text, (b"{", b"["), depth_max)
    if (problem := _beyond_range(value) if is_flat else why_unsound(value, depth_max)) is not None:
        raise JsonError(problem)
    return value


def parse_shallow(text: bytes, depth_max: int = DEPTH_MAX) -> Any:
    """Parse a long JSON text without a look at the value: numbers beyond range are infinite.

    Brackets around the text make the parser itself refuse what is nested too deeply.

    Raises:
        JsonError: the text is not JSON, or perhaps nested too deeply: `parse` has to find out.
    """
    if not _has_known_bound():
        raise JsonError("the parser's own limit of depth is not known")
    around = _PARSER_DEPTH_MAX + 1 - depth_max  # One more, because a list without items takes it no level.
    try:
        value = _core().from_json(b"".join((b"[" * around, text, b"]" * around)), allow_inf_nan=False, cache_strings="keys")
        for _ in range(around):
            (value,) = value
    except ValueError as error:
        raise JsonError(f"not valid JSON: {error}") from None
    return value


@functools.cache
def _has_known_bound() -> bool:
    """True if the fast parser reads nothing that is deeper than we think."""
    try:
        _core().from_json(b"[" * (_PARSER_DEPTH_MAX + 1) + b"1" + b"]" * (_PARSER_DEPTH_MAX + 1))
    except ValueError:
        return True
    return False


def _parse_deep(text: bytes | str, depth_max: int) -> Any:
    """The value of a text that is nested deeper than the fast parser reads; None if it is not JSON as `parse` takes it."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if is_sound(value, depth_max=depth_max) else None


def has_more_of(text: bytes, wanted: Iterable[bytes], count_max: int) -> bool:
    """True if bytes occur more often than so many times in a text.

    Where they are few in a long text, this takes a thirtieth of the time of `count`, which compares byte by byte.
    """
    if len(text) < _LONG_BYTES:
        return sum(map(text.count, wanted)) > count_max
    for one in wanted:
        found = text.find(one)
        while found >= 0:
            count_max -= 1
            if count_max < 0:
                return True
            found = text.find(one, found + 1)
    return False


def has_more_separators(text: bytes, count_max: int) -> bool:
    """True if a JSON text has more commas and colons between its values: a parser could not be interrupted.

    No step takes long, so that other threads can go on.
    """
    if text.count(b",") + text.count(b":") <= count_max:
        return False
    count = 0
    for parts in _outside_strings(text):
        count += sum(part.count(b",") + part.count(b":") for part in parts)
        if count > count_max:
            return True
    return False


def _outside_strings(text: bytes) -> Iterator[list[bytes]]:
    """The pieces of a JSON text that are in no string; no step takes long."""
    start, is_in_string = 0, False
    while start < len(text):
        end = min(start + _PIECE_BYTES, len(text))
        while end < len(text) and text[end - 1] == 0x5C:  # What a backslash escapes belongs to the same piece.
            end += 1
        parts = text[start:end].replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield parts[is_in_string::2]
        is_in_string ^= len(parts) % 2 == 0
        start = end


def has_duplicate_keys(text: bytes, value: Any) -> bool:
    """True if an object in a JSON text has a key twice; `value` is what was parsed from it, where the last one counts.

    There are as many colons between keys and values as keys, unless some of these were lost.
    """
    keys, left = 0, [value]
    while left:
        item: Any = left.pop()
        if isinstance(item, dict):
            keys += len(cast("dict[str, Any]", item))
            left += cast("dict[str, Any]", item).values()
        elif isinstance(item, list):
            left += cast("list[Any]", item)
    return text.count(b":") != keys and sum(part.count(b":") for parts in _outside_strings(text) for part in parts) != keys


def parse_own(text: bytes) -> Any:
    """The value of a JSON text that `dump` wrote, which is not looked at again.

    Raises:
        JsonError: it is nested so deeply that it cannot be read.
    """
    try:
        return _core().from_json(text)
    except ValueError as error:
        raise JsonError(f"not valid JSON: {error}") from None


class AnnotatedObject(dict[str, Any]):
    """An object that was repaired while parsing; `notes` are sentences about it."""

    __slots__ = ("notes",)

    def __init__(self, value: Mapping[str, Any], notes: Iterable[str]) -> None:
        super().__init__(value)
        self.notes = tuple(notes)


class SoundObject(dict[str, Any]):
    """A parsed object that is known to be plain JSON within the limits of a call's arguments, unless it is changed."""

    __slots__ = ()


class EncodedObject(dict[str, Any]):
    """A parsed object with its JSON text, which does not change with it. Copies are plain objects."""

    __slots__ = ("_encoded",)

    def __init__(self, value: Mapping[str, Any]) -> None:
        super().__init__(value)
        self._encoded: bytes | None = dump(value)

    def take_encoded(self) -> bytes | None:
        """Return the text to the first who asks, so that it is not held twice; None to others."""
        encoded, self._encoded = self._encoded, None
        return encoded

    def __reduce_ex__(self, protocol: object) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)


class Replaced(str):
    """A text in which invalid Unicode was replaced, so that the replacement can be reported."""

    __slots__ = ()


def was_replaced(value: Any) -> bool:
    """True if a text in this value was changed while it was read."""
    if isinstance(value, (dict, list)):
        return any(map(was_replaced, _children(value)))
    return type(value) is Replaced


def parse_isolating(text: bytes | str, *, depth_max: int = DEPTH_MAX, is_refused: bool = False) -> Any:
    """Like `parse`, but one bad place does not affect the rest: it becomes a `Bad`. Lone surrogates become U+FFFD.

    `is_refused` says that `parse` has refused the text.

    Raises:
        JsonError: the text is not JSON at all.
    """
    if not is_refused:
        try:
            return parse(text, depth_max=depth_max)
        except JsonError:
            pass
    # Raw bytes that are not UTF-8 invalidate a string, lone surrogates are only replaced. In a text with both, an escaped
    # surrogate may be taken for a raw byte.
    decoded = text if isinstance(text, str) else text.decode("utf-8", "surrogateescape")
    has_raw_bytes = isinstance(text, bytes) and _RAW_BYTE.search(decoded) is not None
    if decoded.startswith("\ufeff"):
        decoded = decoded[1:]
    try:
        value = json.loads(decoded, parse_constant=_bad_constant, parse_float=_float, parse_int=_int)
    except RecursionError:
        raise JsonError(f"JSON nested deeper than {depth_max} levels") from None
    except ValueError as error:
        raise JsonError(f"not valid JSON: {error}") from None
    return _Isolation(has_raw_bytes=has_raw_bytes).clean(value, depth_max)


def is_sound(value: Any, *, depth_max: int = DEPTH_MAX, values_max: float = math.inf, chars_max: float = math.inf) -> bool:
    """True if a value is valid JSON within the bounds: plain types, whole characters, finite numbers.

    One walk, level by level, so neither depth nor a cycle costs any stack.
    """
    level: list[Any] = [[value]]
    values_max += 1  # For the outermost list, which is ours.
    for _ in range(depth_max + 1):
        deeper: list[Any] = []
        for item in level:
            values_max -= len(item)
            if values_max < 0 or (_kind(item) is dict and not all(map(_is_sound_key, item))):
                return False
            children: Iterable[Any] = item.values() if _kind(item) is dict else item
            for child in children:
                kind = _kind(child)
                if kind is dict or kind is list:
                    deeper.append(child)
                elif kind is str:
                    chars_max -= len(child)
                    if not (child.isascii() or is_whole_text(child)):
                        return False
                elif not (child is None or kind is bool or _is_number(child)):
                    return False
        if not deeper or chars_max < 0:
            return chars_max >= 0
        level = deeper
    return False


def _is_sound_key(key: Any) -> bool:
    return _kind(key) is str and (key.isascii() or is_whole_text(key))


def _is_number(value: Any) -> bool:
    """True if an int or float can be written and read again."""
    return value - value == 0 if _kind(value) is float else _kind(value) is int and value.bit_length() <= INT_BITS_MAX


def is_whole_text(text: str) -> bool:
    """True if the text holds no lone surrogates, and so can be encoded."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def isolate(value: Any, *, depth_max: int = DEPTH_MAX, values_max: int = 1_000_000) -> Any:
    """Return a Python value as `parse_isolating` would: what is not JSON becomes a `Bad`, lone surrogates
    become U+FFFD. Never raises and always terminates.
    """
    return _Isolation(values_max).clean(value, depth_max)


def lost_by_reading(text: str) -> frozenset[Literal["keys", "digits"]]:
    """Return what parsing a valid JSON text loses: duplicate keys, digits beyond a double."""
    lost: set[Literal["keys", "digits"]] = set()

    def number(written: str) -> None:
        if not is_exact(written):
            lost.add("digits")

    def members(pairs: list[tuple[str, Any]]) -> None:
        if len(pairs) != len({key for key, _ in pairs}):
            lost.add("keys")

    json.loads(text, object_pairs_hook=members, parse_float=number, parse_int=len, parse_constant=len)
    return frozenset(lost)


def parse_inexact_as_text(text: str) -> Any:
    """Parse a valid JSON text with each number that `is_exact` says a double cannot hold as the text it is written in."""
    return json.loads(text, parse_float=lambda written: float(written) if is_exact(written) else written)


def is_exact(written: str) -> bool:
    """True if a number with a fraction or exponent is the double that it is read as, by the shortest digits of that."""
    if len(written) <= _EXACT_CHARS_MAX and "e" not in written and "E" not in written:
        return True
    value = float(written)
    # Before the digits are compared: an exponent may be of any length.
    if not math.isfinite(value) or (value == 0 and written.lower().partition("e")[0].strip("-0.")):
        return False
    return value == 0 or Decimal(repr(value)) == Decimal(written)


def dump(value: Any, *, is_finite: bool = False) -> bytes:
    """Encode the value as compact UTF-8 JSON. `is_finite` says that all of its numbers are known to be.

    Raises:
        JsonError: the value contains something that is not JSON.
    """
    core = _core()
    try:
        # What is known to be finite may still be changed by another thread until it is written.
        data: bytes = core.to_json(value, inf_nan_mode="strings") if is_finite else core.to_json(value)
    except (core.PydanticSerializationError, ValueError) as error:
        raise JsonError(f"cannot be written as JSON: {error}") from None
    # pydantic_core writes NaN and Infinity bare; the words may also be in a string, so a hit only triggers a check. One
    # letter is found in a fifth of the time of a word, and most texts have neither.
    if not is_finite and ((b"N" in data and b"NaN" in data) or (b"I" in data and b"Infinity" in data)):
        try:
            core.from_json(data, allow_inf_nan=False)
        except ValueError:
            raise JsonError(first_bad(value) or "cannot be written as JSON: a number is not finite") from None
    return data


PIECE_ITEMS = 2_000
"""Items that `dump_pieces` encodes in one go, during which no other thread runs."""
_PIECE_LEVELS = 5
"""Depth to which it looks for long lists and objects."""


def dump_pieces(value: Any, levels: int = _PIECE_LEVELS, *, is_finite: bool = False) -> bytes:
    """Encode a value as `dump` does, but a long one in pieces, so that other threads may run in between.

    Raises:
        JsonError: the value contains something that is not JSON.
    """
    if not _is_long(value, levels):
        return dump(value, is_finite=is_finite)
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).copy().items()
        if len(pairs) <= PIECE_ITEMS:
            named = (dump({key: None})[1:-5] + dump_pieces(item, levels - 1, is_finite=is_finite) for key, item in pairs)
            return _joined(b"{", named, b"}")
        return _joined(b"{", (memoryview(dump(dict(piece), is_finite=is_finite))[1:-1] for piece in _pieces(pairs)), b"}")
    items = cast("list[Any]", value).copy()
    if len(items) <= PIECE_ITEMS:
        return _joined(b"[", (dump_pieces(item, levels - 1, is_finite=is_finite) for item in items), b"]")
    return _joined(b"[", (memoryview(dump(piece, is_finite=is_finite))[1:-1] for piece in _pieces(items)), b"]")


def _joined(start: bytes, pieces: Iterable[bytes | memoryview], end: bytes) -> bytes:
    """Join pieces with commas. Each is copied once; `start + b",".join(pieces) + end` would copy megabytes three times."""
    separated = chain.from_iterable((b",", piece) for piece in pieces)
    return b"".join((start, *islice(separated, 1, None), end))


def _is_long(value: Any, levels: int) -> bool:
    if not isinstance(value, (dict, list)) or not levels:
        return False
    items = cast("dict[str, Any] | list[Any]", value)
    if len(items) > PIECE_ITEMS:
        return True
    return any(_is_long(item, levels - 1) for item in (items.values() if isinstance(items, dict) else items))


def _pieces(items: Iterable[Any]) -> Iterator[list[Any]]:
    rest = iter(items)
    while piece := list(islice(rest, PIECE_ITEMS)):
        yield piece


_kind: Callable[[Any], Any] = type
"""`type`, without narrowing by the type checker."""


def _beyond_range(value: Any) -> str | None:
    """Return why a freshly parsed flat value is invalid: a number became infinity."""
    containers: list[Any] = [[value]]
    for item in containers:
        children: Iterable[Any] = item.values() if _kind(item) is dict else item
        for child in children:
            kind = _kind(child)
            if kind is str:  # Most are.
                continue
            if kind is dict or kind is list:
                containers.append(child)
            elif kind is float and child - child != 0:
                return f"the number {child} is beyond the range of a double"
    return None


def why_unsound(value: Any, depth_max: int) -> str | None:
    """Return why a freshly parsed value is invalid. One walk for both reasons, level by level: this is a hot path."""
    level: list[Any] = [[value]]
    for _ in range(depth_max + 1):
        try:
            # A set takes no lists and objects, so this is the last level if it has an answer.
            if _INFINITE.isdisjoint(_items_of(level)):
                return None
        except TypeError:
            pass
        items = [*_items_of(level)]
        if {*map(_kind, items)} <= _NESTED:
            level = items
            continue
        level = []
        for item in items:
            kind = _kind(item)
            if kind is dict or kind is list:
                level.append(item)
            elif kind is float and item - item != 0:  # The fastest test for infinity.
                return f"the number {item} is beyond the range of a double"
    return f"JSON nested deeper than {depth_max} levels"


_NESTED = frozenset({dict, list})
_INFINITE = frozenset({math.inf, -math.inf})
_VALUES = dict[Any, Any].values


def _items_of(holders: list[Any]) -> Iterable[Any]:
    """The values in lists and objects, by no loop of ours if these are all of a kind."""
    kinds: set[Any] = {*map(_kind, holders)}
    if len(kinds) > 1:
        return chain.from_iterable(holder.values() if _kind(holder) is dict else holder for holder in holders)
    return chain.from_iterable(map(_VALUES, holders) if dict in kinds else holders)


_HARMLESS = frozenset({str, int, bool, type(None)})


def first_bad(value: Any) -> str | None:
    """Return why this value is invalid (a number that is not finite, a `Bad`), or None."""
    stack: list[Any] = [value]
    seen: set[int] = set()
    while stack:
        item = stack.pop()
        if type(item) in _HARMLESS:  # Nearly everything is; the questions below take longer.
            continue
        if isinstance(item, Bad):
            return item.reason
        if isinstance(item, float) and not math.isfinite(item):
            return f"the number {item} is not finite"
        if isinstance(item, (Mapping, list, tuple)) and id(cast("object", item)) not in seen:
            seen.add(id(cast("object", item)))
            stack.extend(_children(item))
    return None


_CONTAINERS = (dict, list, tuple)


def depth_exceeds(value: Any, depth_max: int) -> bool:
    """True if lists and objects are nested more than `depth_max` deep. Walks level by level, so depth costs no stack."""
    level: list[Any] = [value] if isinstance(value, _CONTAINERS) else []
    for _ in range(depth_max):
        level = [child for item in level for child in _children(item) if isinstance(child, _CONTAINERS)]
        if not level:
            return False
        if len(level) > _SHARED_FROM:
            # A shared value is visited once per level, or a small one could take exponential time.
            level = list({id(item): item for item in level}.values())
    return bool(level)


def without_bad(value: Any) -> Any:
    """Replace every `Bad`, and every number that is not finite, by the nearest JSON value."""
    if isinstance(value, Bad):
        return value.value
    if isinstance(value, Replaced):
        return str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: without_bad(item) for key, item in cast("dict[str, Any]", value).items()}
    return [without_bad(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def objects_in(value: Any) -> list[dict[str, Any]]:
    """Return the objects among the items of a list; empty without a list."""
    return [item for item in cast("list[Any]", value) if isinstance(item, dict)] if isinstance(value, list) else []


def without_surrogates(text: str) -> str:
    """The text with every lone surrogate replaced by U+FFFD, so that it can be encoded."""
    return text if is_whole_text(text) else _SURROGATE.sub("\ufffd", text)


def _children(item: Any) -> Iterable[Any]:
    if isinstance(item, (list, tuple)):
        return cast("list[Any]", item)
    return cast("Mapping[str, Any]", item).values()


def _bad_constant(name: str) -> Bad:
    return Bad(f"the number {name} is not finite")


def _float(text: str) -> float | Bad:
    value = float(text)
    return value if math.isfinite(value) else Bad(f"the number {text[:40]} is beyond the range of a double")


def _int(text: str) -> int | Bad:
    digits = len(text.removeprefix("-"))
    return int(text) if digits <= _DIGITS_MAX else Bad(f"an integer of {digits} digits is too long")


class _Isolation:
    """One walk that marks invalid values."""

    def __init__(self, values_max: float = math.inf, *, has_raw_bytes: bool = False) -> None:
        self.values_left = values_max
        self.has_raw_bytes = has_raw_bytes

    def clean(self, value: Any, depth_left: int) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (int, float)):
            return self.number(value)
        if isinstance(value, Bad):
            return Bad(without_surrogates(value.reason), without_bad(self.clean(value.value, depth_left)))
        if isinstance(value, (bytes, bytearray)):
            return Bad("bytes are not JSON", base64.b64encode(value).decode("ascii"))
        if not isinstance(value, (Mapping, list, tuple)):
            return Bad(f"a value of the type {type(value).__name__!r} is not JSON")
        items = cast("Mapping[Any, Any] | list[Any] | tuple[Any, ...]", value)
        self.values_left -= len(items)
        if depth_left <= 0 or self.values_left < 0:
            return Bad("nested too deeply" if depth_left <= 0 else "it holds too many values")
        if isinstance(items, Mapping):
            cleaned = dict(self.member(key, item, depth_left - 1) for key, item in items.items())
            return (
                AnnotatedObject(cleaned, map(without_surrogates, items.notes))
                if isinstance(items, AnnotatedObject)
                else cleaned
            )
        return [self.clean(item, depth_left - 1) for item in items]

    def text(self, value: str) -> Any:
        if is_whole_text(value):
            return value if type(value) in (str, Replaced) else str.__str__(value)
        if self.has_raw_bytes and _RAW_BYTE.search(value):
            return Bad("a string holds bytes that are not UTF-8", without_surrogates(value))
        return Replaced(without_surrogates(value))

    def number(self, value: float) -> Any:
        plain = int.__int__(value) if isinstance(value, int) else float.__float__(value)
        if _is_number(plain):
            return plain
        return Bad(f"the number {value} is not finite" if isinstance(plain, float) else "an integer is too long")

    def member(self, key: Any, value: Any, depth_left: int) -> tuple[str, Any]:
        cleaned = self.clean(value, depth_left)
        if not isinstance(key, str):
            return f"{type(key).__name__} key", Bad("a key is not text", without_bad(cleaned))
        if self.has_raw_bytes and _RAW_BYTE.search(key):
            cleaned = Bad("a key holds bytes that are not UTF-8", without_bad(cleaned))
        return without_surrogates(str.__str__(key)), cleaned
