"""Definitions that were read before, by the content of what they were read from.

Programs make many gates of the same tools, and reading five hundred definitions anew takes as long as everything else about
such a gate. Only values of Python's own plain types are known here; a schema that was changed in place is read anew.
"""

from __future__ import annotations

import hashlib
import marshal
from collections.abc import Callable, Sequence
from typing import Any, cast

from callgate.types import ToolDefinition

__all__ = ["KnownTools"]

DEFINITIONS_MAX = 20_000
_NO_REFERENCES = 2
"""The version of marshal's format in which equal values have equal bytes, shared or not."""


class KnownTools:
    """A bounded number of definitions; the oldest are forgotten first."""

    def __init__(self, definitions_max: int = DEFINITIONS_MAX) -> None:
        self._max = definitions_max
        self._known: dict[tuple[str | None, bytes], tuple[Sequence[ToolDefinition], Sequence[str] | list[Any]]] = {}
        """Each with the place of its schema, or a copy of all its schemas: so it is seen if somebody has changed them."""
        self._count = 0

    def read(self, obj: Any, format: str | None, read: Callable[[], Sequence[ToolDefinition]]) -> Sequence[ToolDefinition]:
        """The definitions in an object: as they were read before, or as `read` reads them now."""
        try:
            content = marshal.dumps(obj, _NO_REFERENCES)
        except ValueError:  # Something in it is not plain.
            return read()
        key = (format, hashlib.blake2b(content, digest_size=32).digest())
        known = self._known.get(key)
        if known is not None and _is_unchanged(*known, obj):
            return known[0]
        found = read()
        self._forget(key)
        self._known[key] = (found, _place_of(found, obj) or marshal.loads(marshal.dumps(_schemas(found))))
        self._count += len(found)
        while self._count > self._max and len(self._known) > 1:
            self._forget(next(iter(self._known)))
        return found

    def _forget(self, key: tuple[str | None, bytes]) -> None:
        known = self._known.pop(key, None)
        self._count -= 0 if known is None else len(known[0])


def _place_of(found: Sequence[ToolDefinition], obj: Any) -> tuple[str, ...]:
    """The keys that lead to the schema of the only definition, if it stands in the object as it is; else none.

    No copy is needed then: an object of the same content has the same schema there.
    """
    if len(found) != 1 or found[0].output_schema is not None or type(obj) is not dict:
        return ()
    fields, schema = cast("dict[str, Any]", obj), found[0].input_schema
    for key, value in fields.items():
        if value == schema:
            return (key,)
    for key, value in fields.items():
        for name in cast("dict[str, Any]", value) if type(value) is dict else ():
            if value[name] == schema:
                return (key, name)
    return ()


def _value_at(fields: dict[str, Any], place: Sequence[str]) -> Any:
    value: Any = fields
    for key in place:
        value = value[key]
    return value


def _is_unchanged(found: Sequence[ToolDefinition], kept: Sequence[str] | list[Any], obj: Any) -> bool:
    if type(kept) is tuple:
        return found[0].input_schema == _value_at(obj, cast("tuple[str, ...]", kept))
    return kept == _schemas(found)


def _schemas(definitions: Sequence[ToolDefinition]) -> list[Any]:
    return [(definition.input_schema, definition.output_schema) for definition in definitions]
