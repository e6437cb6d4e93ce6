"""Definitions that were read before, by the content of what they were read from.

Programs make many gates of the same tools, and reading five hundred definitions anew takes as long as everything else about
such a gate. Only values of Python's own plain types are known here; a schema that was changed in place is read anew.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from callgate.types import ToolDefinition

__all__ = ["KnownTools"]

DEFINITIONS_MAX = 20_000
Reader: TypeAlias = Callable[[Any, "str | None"], tuple[Sequence[ToolDefinition], Any]]
"""Read the definitions in an object of a format; also returns the plain copy that they were read from."""
_Key: TypeAlias = bytes
"""The content, and the format if it was named."""
_NO_REFERENCES = 2
"""The version of marshal's format in which equal values have equal bytes, shared or not."""


class KnownTools:
    """A bounded number of definitions; the oldest are forgotten first."""

    def __init__(self, definitions_max: int = DEFINITIONS_MAX) -> None:
        self._max = definitions_max
        self._known: dict[_Key, ToolDefinition | tuple[Sequence[ToolDefinition], list[Any]]] = {}
        """One definition, or several with a copy of their schemas: so it is seen if somebody has changed them."""
        self._places: dict[_Key, tuple[str, ...]] = {}
        """The place of the schema of one definition in what it was read from, which is as good as a copy.

        Kept apart, so that a definition is held by nothing that the garbage collector would have to look at too.
        """
        self._count = 0

    def read(self, obj: Any, format: str | None, read: Reader) -> Sequence[ToolDefinition]:
        """The definitions in an object: as they were read before, or as `read` reads them now."""
        try:
            key = marshal.dumps(obj, _NO_REFERENCES)
        except ValueError:  # Something in it is not plain.
            return read(obj, format)[0]
        if format is not None:
            key += format.encode()
        known = self._known.get(key)
        if isinstance(known, ToolDefinition):
            place = self._places.get(key)
            if place is not None and known.input_schema == _value_at(obj, place):
                return [known]
        elif known is not None and known[1] == _schemas(known[0]):
            return known[0]
        found, source = read(obj, format)
        self._forget(key)
        if place := _place_of(found, source):
            self._places[key] = place
            self._known[key] = found[0]
        else:
            self._known[key] = (found, marshal.loads(marshal.dumps(_schemas(found))))
        self._count += len(found)
        while self._count > self._max and len(self._known) > 1:
            self._forget(next(iter(self._known)))
        return found

    def _forget(self, key: _Key) -> None:
        known = self._known.pop(key, None)
        self._places.pop(key, None)
        if known is not None:
            self._count -= 1 if isinstance(known, ToolDefinition) else len(known[0])


def _place_of(found: Sequence[ToolDefinition], source: Any) -> tuple[str, ...]:
    """The keys that lead to the schema of the only definition in what it was read from; none if it does not stand there.

    No copy is needed then: an object of the same content has the same schema there.
    """
    if len(found) != 1 or found[0].output_schema is not None or type(source) is not dict:
        return ()
    fields, schema = cast("dict[str, Any]", source), found[0].input_schema
    for key, value in fields.items():
        if value is schema:
            return (key,)
        for name in cast("dict[str, Any]", value) if type(value) is dict else ():
            if value[name] is schema:
                return (key, name)
    return ()


def _value_at(fields: dict[str, Any], place: Sequence[str]) -> Any:
    value: Any = fields
    for key in place:
        value = value[key]
    return value


def _schemas(definitions: Sequence[ToolDefinition]) -> list[Any]:
    return [(definition.input_schema, definition.output_schema) for definition in definitions]
