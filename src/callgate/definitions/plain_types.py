"""Plain Python types to JSON Schema, without pydantic: text, numbers, truth values, objects, lists, and None beside one.

Most functions have no other parameters. Loading pydantic for these takes a quarter of the time from the start of a program
to its first answer, and reading a value of one takes nothing but a look at its type. Whatever is not as plain is left
to `python_types`, which gives the same schemas and values.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Mapping
from typing import Any, Union, cast, get_args, get_origin

from callgate.types import copied_json

__all__ = ["PlainFields", "plain_output_schema"]

_SCALARS: dict[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean"}
_NULL = {"type": "null"}
_UNIONS = (Union, types.UnionType)

Reader = Callable[[Any], Any]
"""Function from a JSON value to the Python value; raises `_NotPlainError` if it is not one."""


_OBJECTS: list[Any] = [dict, dict[str, Any]]
_LISTS_OF_OBJECTS: list[Any] = [list[kind] for kind in _OBJECTS]
_NODES_MAX = 1_000_000


class _NotPlainError(Exception):
    """The value is not one that can be read here."""


class PlainFields:
    """The fields of an object, all of plain types."""

    def __init__(self, annotations: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self._readers = {name: _reader(annotation) for name, annotation in annotations.items()}
        self._required = [name for name in annotations if name not in defaults]
        self._open = [name for name, kind in annotations.items() if kind in _OBJECTS or kind in _LISTS_OF_OBJECTS]
        self._schemas = {name: _schema(annotation) for name, annotation in annotations.items()}

    @classmethod
    def of(cls, annotations: Mapping[str, Any], defaults: Mapping[str, Any]) -> PlainFields | None:
        """The fields of these types, if they and their defaults are plain."""
        if not all(_is_plain(annotation) for annotation in annotations.values()):
            return None
        found = cls(annotations, defaults)
        read = found.values(defaults, partly=True)
        # A default that is read as another value is written differently, too; a list or object may be changed by the
        # function.
        is_same = read is not None and all(read[name] is value for name, value in defaults.items())
        return found if is_same and not any(isinstance(value, dict | list) for value in defaults.values()) else None

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the object, as pydantic would write it."""
        found: dict[str, Any] = {"properties": self._schemas}
        return found | {"required": self._required} if self._required else found

    def values(
        self, args: Mapping[str, Any], *, partly: bool = False, are_own: bool = False, is_json: bool = False
    ) -> dict[str, Any] | None:
        """The Python values of an object; None if one is missing, unknown or anything but plain.

        With `are_own`, they share nothing with the arguments that could be changed. `is_json` says that the arguments are
        known to be plain JSON, so that objects, which may hold anything, need not be looked through.
        """
        if not partly and not all(name in args for name in self._required):
            return None
        try:
            values = {name: self._readers[name](value) for name, value in args.items()}
            if not is_json and not all(_is_json(values[name]) for name in self._open if name in values):
                return None
            return {name: copied_json(value, is_plain=True) for name, value in values.items()} if are_own else values
        except (KeyError, ValueError, _NotPlainError):  # A value error: something cannot be copied.
            return None


def plain_output_schema(annotation: Any) -> dict[str, Any] | None:
    """The JSON Schema of a returned value of a plain type, or of a plain dict or list; None if it is neither."""
    return _schema(annotation) if _is_plain(annotation) else None


def _is_plain(annotation: Any) -> bool:
    if _is_scalar(annotation) or annotation in _OBJECTS or annotation in _LISTS_OF_OBJECTS:
        return True
    inner = get_args(annotation)
    if get_origin(annotation) is list:
        return len(inner) == 1 and _is_scalar(inner[0])
    return get_origin(annotation) in _UNIONS and len(inner) == 2 and inner[1] is type(None) and _is_scalar(inner[0])


def _is_scalar(annotation: Any) -> bool:
    return isinstance(annotation, type) and annotation in _SCALARS


def _schema(annotation: Any) -> dict[str, Any]:
    if _is_scalar(annotation):
        return {"type": _SCALARS[annotation]}
    if annotation in _OBJECTS:
        return {"additionalProperties": True, "type": "object"}
    if annotation in _LISTS_OF_OBJECTS:
        return {"items": {"additionalProperties": True, "type": "object"}, "type": "array"}
    inner = {"type": _SCALARS[get_args(annotation)[0]]}
    return {"items": inner, "type": "array"} if get_origin(annotation) is list else {"anyOf": [inner, dict(_NULL)]}


def _reader(annotation: Any) -> Reader:
    if _is_scalar(annotation):
        return _READERS[annotation]
    if annotation in _OBJECTS:
        return _object
    if annotation in _LISTS_OF_OBJECTS:
        return _objects
    read = _READERS[get_args(annotation)[0]]
    if get_origin(annotation) is list:
        return lambda value: [read(item) for item in _listed(value)]
    return lambda value: None if value is None else read(value)


def _object(value: Any) -> Any:
    return _objects([value])[0]


def _objects(value: Any) -> Any:
    kinds: set[type] = {*map(type, _listed(value))}
    if not kinds <= {dict}:
        raise _NotPlainError
    return value


def _is_json(value: Any) -> bool:
    from callgate.content.plain_look import ExactLook

    return ExactLook(_NODES_MAX).is_fine(value)


def _listed(value: Any) -> list[Any]:
    if type(value) is not list:
        raise _NotPlainError
    return cast("list[Any]", value)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise _NotPlainError
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise _NotPlainError from None
    return value


def _integer(value: Any) -> int:
    if type(value) is not int:
        raise _NotPlainError
    return value


def _number(value: Any) -> float:
    if type(value) is int and abs(value) < 2**53:
        return float(value)
    if type(value) is not float or not math.isfinite(value):
        raise _NotPlainError
    return value


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise _NotPlainError
    return value


_READERS: dict[Any, Reader] = {str: _text, int: _integer, float: _number, bool: _truth}
