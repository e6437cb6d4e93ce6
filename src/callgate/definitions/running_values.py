"""The values that a function gets, as plain data that can be compared: one form for every spelling of a value.

Python values come in that were read from JSON arguments; nested dicts, lists and scalars go out. Numbers stay numbers
(`Decimal` too), every other scalar is the text that JSON has for it. No serializer of a model runs: the value counts.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
from collections import deque
from collections.abc import Callable, Mapping, Set
from typing import Any, cast

__all__ = ["plain_value"]

_DEPTH_MAX = 100


def plain_value(value: Any, *, utc: bool = False, depth: int = 0) -> Any:
    """The value as plain data; with `utc`, moments are given in UTC, so that two spellings of one are equal."""
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or type(value) in (bool, int, float, str, decimal.Decimal):
        return value
    if depth > _DEPTH_MAX:
        return f"<{type(value).__name__}>"
    if isinstance(value, (datetime.datetime, datetime.time)):
        return _moment(value, utc=utc)
    if hasattr(value, "get_secret_value"):
        value = value.get_secret_value()
    for kinds, plain in _SCALARS:
        if isinstance(value, kinds):
            return plain(value)
    return _plain_container(value, utc=utc, depth=depth + 1)


def _plain_container(value: Any, *, utc: bool, depth: int) -> Any:
    def plain(item: Any) -> Any:
        return plain_value(item, utc=utc, depth=depth)

    if (members := _members(value)) is not None:
        return {str(plain(key)): plain(item) for key, item in members.items()}
    if isinstance(value, (list, tuple, deque)):
        return [plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, Set):
        return sorted((plain(item) for item in cast("Set[Any]", value)), key=repr)
    return _as_json(value)


def _members(value: Any) -> Mapping[Any, Any] | None:
    """The fields of an object; None of what has none."""
    if isinstance(value, Mapping):
        return cast("Mapping[Any, Any]", value)
    if hasattr(cast("type[object]", type(value)), "model_fields"):
        return {**value.__dict__, **(getattr(value, "__pydantic_extra__", None) or {})}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name, None) for field in dataclasses.fields(value)}
    return None


def _moment(value: datetime.datetime | datetime.time, *, utc: bool) -> Any:
    if utc and isinstance(value, datetime.datetime) and value.utcoffset() is not None:
        try:
            value = value.astimezone(datetime.UTC)
        except OverflowError:  # The first and the last moments have no form in UTC.
            return value.isoformat()
    return _as_json(value)


def _decoded(value: bytes | bytearray) -> str:
    return bytes(value).decode("utf-8", "replace")


def _as_json(value: Any) -> Any:
    """The text that JSON has for a scalar: of identifiers, dates, durations, addresses, paths and types of others."""
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        found = to_jsonable_python(value)
    except (PydanticSerializationError, ValueError):
        return str(value)
    return found if isinstance(found, (str, int, float, bool)) else str(value)


_SCALARS: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (bool, bool),
    (int, int),
    (float, float),
    (decimal.Decimal, decimal.Decimal),
    ((bytes, bytearray), _decoded),
)
