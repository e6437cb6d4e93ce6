"""Assemble arguments that arrive leaf by leaf into one object.

Takes entries of `functionCall.partialArgs`, each a JSON path and a value or a piece of a string; returns the whole
arguments, and a text delta per entry for observers. Does not know which call the entries belong to and when it is
complete.
"""

# ruff: noqa: TRY004  (what came over the wire is wrong as a value, whatever its Python type; callers catch one exception)

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, TypeAlias, cast

from callgate.strict_json import DEPTH_MAX, Bad, without_surrogates

__all__ = ["PartialArguments", "parse_path", "will_continue"]

INDEX_MAX = 10_000
"""The highest array index, and the most elements of all arrays of a call that may be left out in between."""

Segment: TypeAlias = str | int

# RFC 9535 without wildcards, slices, filters and descendants. A name after a dot may hold more than the RFC allows, because
# servers write keys such as `content-type` there.
_SEGMENT = re.compile(
    r"""\.(?P<name>[^.\[\]'"*\s][^.\[\]]*)
      | \[\s*(?:(?P<index>0|[1-9][0-9]*)
              | '(?P<single>(?:[^'\\]++|\\.)*+)'
              | "(?P<double>(?:[^"\\]++|\\.)*+)")\s*\]""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "/": "/", "\\": "\\", "'": "'", '"': '"'}
_VALUES = ("stringValue", "numberValue", "boolValue", "nullValue")
_MISSING: Any = object()


class _Text:
    """A string that is still growing; joined once, so that many small pieces cost no more than few large ones."""

    __slots__ = ("pieces",)

    def __init__(self, piece: str) -> None:
        self.pieces = [piece]


class PartialArguments:
    """The arguments of one call received so far."""

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        self._root: dict[str, Any] = dict(given or {})
        self._holes = 0

    @property
    def args(self) -> dict[str, Any]:
        """The arguments so far, as a copy. Array elements that were left out are null."""
        return _plain(self._root)

    def add(self, entry: Any) -> str:
        """Add one entry of `partialArgs`; return the text by which the arguments grew, empty when they did not.

        Raises:
            ValueError: the entry has no usable path, no usable value, or contradicts earlier ones. The message is for the
            model; the arguments must not be used any more.
        """
        if not isinstance(entry, Mapping):
            raise ValueError(f"a partial argument is not an object but {type(entry).__name__}")
        fields = cast("Mapping[str, Any]", entry)
        path = fields.get("jsonPath")
        if not isinstance(path, str):
            raise ValueError("a partial argument has no jsonPath")
        segments, is_empty_array = parse_path(path)
        value = _value_of(fields, path)
        if value is not _MISSING:
            if is_empty_array:
                raise ValueError(f"the path {path!r} stands for an empty array and cannot hold a value")
            return self._set(segments, value, path)
        if fields.get("willContinue") is True:
            return ""
        return self._end(segments, path, [] if is_empty_array else {})

    def _set(self, segments: list[Segment], value: Any, path: str) -> str:
        if not segments:
            raise ValueError("the path '$' stands for all arguments, which are an object and not a single value")
        holder = self._holder(segments, path)
        old = _get(holder, segments[-1])
        if isinstance(old, _Text) and isinstance(value, str):
            old.pieces.append(value)
        elif old is _MISSING:
            self._put(holder, segments[-1], _Text(value) if isinstance(value, str) else value)
        elif type(old) is not type(value) or old != value:
            raise ValueError(f"the path {path!r} holds {_kind(old)} already and cannot become {_kind(value)}")
        else:
            return ""
        return value if isinstance(value, str) else json.dumps(value)

    def _end(self, segments: list[Segment], path: str, empty: list[Any] | dict[str, Any]) -> str:
        """Handle an entry without a value, which ends the current value, or is an empty container if there is none."""
        holder = self._holder(segments, path) if segments else self._root
        old = _get(holder, segments[-1]) if segments else self._root
        if old is _MISSING:
            self._put(holder, segments[-1], empty)
            return "[]" if isinstance(empty, list) else "{}"
        if isinstance(empty, list) and not isinstance(old, list):
            raise ValueError(f"the path {path!r} holds {_kind(old)} already and cannot become an array")
        return ""

    def _holder(self, segments: list[Segment], path: str) -> Any:
        """Return the container of the last segment, creating missing containers."""
        holder: Any = self._root
        for segment, following in pairwise(segments):
            _check_kind(holder, segment, path)
            inner = _get(holder, segment)
            if inner is _MISSING:
                inner = cast("Any", [] if isinstance(following, int) else {})
                self._put(holder, segment, inner)
            holder = inner
        _check_kind(holder, segments[-1], path)
        return holder

    def _put(self, holder: Any, segment: Segment, value: Any) -> None:
        if isinstance(segment, int):
            missing = segment + 1 - len(holder)
            if missing > 0:
                self._holes += missing - 1
                if self._holes > INDEX_MAX:
                    raise ValueError(f"more than {INDEX_MAX} array elements were left out")
                holder.extend([_MISSING] * missing)
        holder[segment] = value


def parse_path(path: str) -> tuple[list[Segment], bool]:
    """The segments of a path such as `$.a['b c'][0]`, and whether it ends with `[]`, which means an empty array.

    Raises:
        ValueError: the path is not of that kind, too deep, or has an index that is too high.
    """
    body = path.removesuffix("[]")
    segments: list[Segment] = []
    pos = 1
    while path.startswith("$") and pos < len(body) and len(segments) <= DEPTH_MAX:
        found = _SEGMENT.match(body, pos)
        if found is None:
            break
        segments.append(_segment(found, path))
        pos = found.end()
    if len(segments) > DEPTH_MAX:
        raise ValueError(f"a path of partial arguments is deeper than {DEPTH_MAX} levels")
    if pos != len(body) or not path.startswith("$") or (body != path and not segments):
        raise ValueError(f"{_shown(path)} is not a path to one argument")
    return segments, body != path


def will_continue(function_call: Mapping[str, Any]) -> bool:
    """True if more pieces of this call are announced, by the call itself or by one of its partial arguments."""
    if function_call.get("willContinue") is True:
        return True
    entries: Any = function_call.get("partialArgs")
    if not isinstance(entries, list):
        return False
    items = cast("list[Any]", entries)
    return any(isinstance(item, dict) and cast("dict[str, Any]", item).get("willContinue") is True for item in items)


def _segment(found: re.Match[str], path: str) -> Segment:
    if (index := found["index"]) is not None:
        if len(index) > 5 or int(index) > INDEX_MAX:
            raise ValueError(f"an array index in {_shown(path)} is larger than {INDEX_MAX}")
        return int(index)
    if (name := found["name"]) is not None:
        return name
    return _unescaped(found["single"] if found["single"] is not None else found["double"], path)


def _unescaped(quoted: str, path: str) -> str:
    def character(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        if found[2] not in _ESCAPED:
            raise ValueError(f"{_shown(path)} holds an unknown escape, {found[0]!r}")
        return _ESCAPED[found[2]]

    if "\\" not in quoted:
        return quoted
    text = _ESCAPE.sub(character, quoted)
    # Two escapes may be the halves of one character; a half alone becomes U+FFFD, as everywhere.
    return without_surrogates(text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"))


def _value_of(entry: Mapping[str, Any], path: str) -> Any:
    """The value of an entry by the presence of its key: false, 0, "" and null are values."""
    keys = [key for key in entry if key.endswith("Value")]
    if not keys:
        return _MISSING
    if len(keys) > 1 or keys[0] not in _VALUES:
        raise ValueError(
            f"the partial argument {_shown(path)} has {' and '.join(keys)}; one of {', '.join(_VALUES)} is expected"
        )
    value = entry[keys[0]]
    if isinstance(value, Bad):
        raise ValueError(f"the argument {_shown(path)} cannot be read: {value.reason}")
    if not _fits(keys[0], value):
        raise ValueError(f"the {keys[0]} of {_shown(path)} is {_kind(value)}")
    return None if keys[0] == "nullValue" else value


def _fits(key: str, value: Any) -> bool:
    if key == "nullValue":  # null in protobuf and "NULL_VALUE" elsewhere; the key alone is enough
        return True
    if key == "numberValue":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, bool if key == "boolValue" else str)


def _check_kind(holder: Any, segment: Segment, path: str) -> None:
    wanted = list if isinstance(segment, int) else dict
    if not isinstance(holder, wanted):
        raise ValueError(
            f"the path {_shown(path)} needs {'an array' if wanted is list else 'an object'} where {_kind(holder)} is"
        )


def _get(holder: Any, segment: Segment) -> Any:
    if isinstance(segment, int):
        return holder[segment] if segment < len(holder) else _MISSING
    return holder.get(segment, _MISSING)


def _plain(value: Any) -> Any:
    if isinstance(value, _Text):
        return "".join(value.pieces)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list):
        return [_plain(item) for item in cast("list[Any]", value)]
    return None if value is _MISSING else value


def _kind(value: Any) -> str:
    kinds: tuple[tuple[Any, str], ...] = (
        (type(None), "null"), (bool, "a boolean"), ((int, float), "a number"), ((str, _Text), "a string"),
        (list, "an array"), (dict, "an object"),
    )  # fmt: skip
    return next((name for types, name in kinds if isinstance(value, types)), "something that is not JSON")


def _shown(path: str) -> str:
    return repr(path if len(path) <= 80 else path[:80] + "...")
