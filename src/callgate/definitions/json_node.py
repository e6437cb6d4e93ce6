"""Plain JSON of foreign objects, and a cursor over it that tracks its place and the fields not read.

Takes dicts and objects of any SDK; returns plain values, or raises `ShapeError` with a JSON pointer. Knows no format.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from callgate import strict_json
from callgate.definitions.frameworks import definition_of
from callgate.definitions.function import FunctionTool
from callgate.errors import UsageError
from callgate.types import JsonObject, Loss, ToolDefinition

__all__ = ["Node", "ShapeError", "plain", "pointer", "value_at"]


class ShapeError(UsageError):
    """An object is not of the shape that its format has. `pointer` is the JSON pointer to the place, `problem` the rest."""

    def __init__(self, at: str, problem: str) -> None:
        super().__init__(f"at {at or 'the top'}: {problem}")
        self.pointer = at
        self.problem = problem


def pointer(at: str, *keys: str | int) -> str:
    """The JSON pointer to something below `at`."""
    for key in keys:
        text = str(key)
        at = f"{at}/{text}" if "~" not in text and "/" not in text else f"{at}/{text.replace('~', '~0').replace('/', '~1')}"
    return at


def value_at(value: Any, at: str) -> Any:
    """Return the part of a value that a pointer leads to, which must exist."""
    for key in at.split("/")[1:]:
        value = value[int(key) if isinstance(value, list) else key.replace("~1", "/").replace("~0", "~")]
    return value


def plain(value: Any, at: str = "") -> Any:
    """Convert a value to plain JSON. SDK objects serialize themselves; callables and definitions stay.

    Raises:
        ShapeError: something in it has no JSON form.
    """
    try:
        return _copied(value, strict_json.DEPTH_MAX + 1)
    except _NotPlainError:
        return _plain(value, at, strict_json.DEPTH_MAX + 1)


class _NotPlainError(Exception):
    """The value holds something that has to be converted, or refused with its place."""


def _copied(value: Any, depth_left: int) -> Any:
    """A copy of a value that is plain JSON already, as nearly all are; their places need not be known."""
    kind = _type(value)
    if kind is dict and depth_left > 0:
        copied: JsonObject = {}
        for key, item in value.items():
            if type(key) is not str or not key.isascii():
                raise _NotPlainError
            inner = _type(item)
            # Most are texts and numbers, which need no step of their own.
            if inner is not str or not item.isascii():
                copied[key] = item if inner in _ATOMS else _copied(item, depth_left - 1)
            else:
                copied[key] = item
        return copied
    if kind is list and depth_left > 0:
        return [item if type(item) is str and item.isascii() else _copied(item, depth_left - 1) for item in value]
    if kind in _ATOMS or (kind is float and math.isfinite(value)) or (kind is str and strict_json.is_whole_text(value)):
        return value
    raise _NotPlainError


_type: Callable[[Any], type[Any]] = type
_ATOMS = frozenset({bool, int, type(None)})


def _plain(value: Any, at: str, depth_left: int) -> Any:
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, (bool, int, ToolDefinition, FunctionTool)) or callable(value):
        return value
    if isinstance(value, (str, float, bytes, bytearray)):
        return _scalar(value, at)
    if depth_left <= 0:
        raise ShapeError(at, f"nested deeper than {strict_json.DEPTH_MAX} levels")
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        if strange := [key for key, _ in items if not isinstance(key, str)]:
            raise ShapeError(at, f"the key {strange[0]!r} is not text")
        return {_scalar(key, at): _plain(item, pointer(at, key), depth_left - 1) for key, item in items}
    if isinstance(value, (list, tuple)):
        listed = enumerate(cast("list[Any]", value))
        return [_plain(item, pointer(at, place), depth_left - 1) for place, item in listed]
    return _plain(_opened(value, at), at, depth_left - 1)


def _scalar(value: str | float | bytes | bytearray, at: str) -> str | float:
    if isinstance(value, str):
        return value if value.isascii() else strict_json.without_surrogates(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if not math.isfinite(value):
        raise ShapeError(at, f"the number {value} is not finite, so JSON cannot say it")
    return value


def _opened(value: Any, at: str) -> Any:
    """Serialize a foreign object by one of the usual methods."""
    if (definition := definition_of(value)) is not None:
        return definition
    if callable(getattr(value, "model_dump", None)):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    if callable(getattr(value, "to_dict", None)):
        return value.to_dict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if hasattr(value, "__dict__"):
        return {key: item for key, item in vars(value).items() if not key.startswith("_")}
    raise ShapeError(at, f"a value of type {type(value).__name__!r} cannot be read")


class Node:
    """A value with its place, and a record of which of its fields were read."""

    __slots__ = ("at", "losses", "used", "value")

    def __init__(self, value: Any, at: str = "", losses: list[Loss] | None = None) -> None:
        self.value: Any = value
        self.at = at
        self.losses: list[Loss] = [] if losses is None else losses
        self.used: set[str] = set()

    def child(self, key: str | int) -> Node:
        """Return the value of a key or index, which must exist."""
        return Node(self.value[key], pointer(self.at, key), self.losses)

    def find(self, *keys: str) -> Node | None:
        """The first of these fields that is there and not null. All of them count as read."""
        key = self._found(keys)
        return None if key is None else self.child(key)

    def need(self, *keys: str) -> Node:
        """Like `find`, for a field that must be there."""
        found = self.find(*keys)
        if found is None:
            raise self._missing(keys)
        return found

    def find_text(self, *keys: str) -> str | None:
        """The text of a field, if it is there."""
        key = self._found(keys)
        if key is None:
            return None
        value = self.value[key]
        return value if type(value) is str else self.child(key).text

    def need_text(self, *keys: str) -> str:
        """Like `find_text`, for a field that must be there."""
        found = self.find_text(*keys)
        if found is None:
            raise self._missing(keys)
        return found

    def find_items(self, *keys: str) -> list[Node]:
        """The items of a list, if it is there."""
        found = self.find(*keys)
        return [] if found is None else found.items

    @property
    def text(self) -> str:
        """The value, which must be text."""
        return cast("str", self._of(str, "text"))

    @property
    def flag(self) -> bool:
        """The value, which must be true or false."""
        return cast("bool", self._of(bool, "true or false"))

    @property
    def object(self) -> JsonObject:
        """The value, which must be an object."""
        return self.value if _type(self.value) is dict else self._of(dict, "an object")

    @property
    def items(self) -> list[Node]:
        """The items of the value, which must be a list."""
        return [self.child(place) for place in range(len(cast("list[Any]", self._of(list, "a list"))))]

    @property
    def unread(self) -> dict[str, Node]:
        """The fields that were not read and are not empty."""
        fields = self.object
        if self.used.issuperset(fields):
            return {}
        return {
            key: self.child(key) for key, item in fields.items() if key not in self.used and item not in (None, "", [], {})
        }

    def lose(self, keyword: str, reason: str, instead: str = "") -> None:
        """Report that this value is not converted."""
        self.losses.append(Loss(pointer=self.at, keyword=keyword, reason=reason, instead=instead))

    def lose_unread(self, reason: str, *, but: Iterable[str] = ()) -> None:
        """Report every field that was not read."""
        for key, child in self.unread.items():
            if key not in but:
                child.lose(key, reason)

    def _found(self, keys: tuple[str, ...]) -> str | None:
        self.used.update(keys)
        fields = self.object
        for key in keys:
            if fields.get(key) is not None:
                return key
        return None

    def _missing(self, keys: tuple[str, ...]) -> ShapeError:
        return ShapeError(self.at, f"{' or '.join(map(repr, keys))} is missing")

    def _of(self, kind: type, expected: str) -> Any:
        if not isinstance(self.value, kind):
            raise ShapeError(self.at, f"expected {expected}, found {_kind(self.value)}")
        return self.value


def _kind(value: Any) -> str:
    name = cast("type[Any]", type(value)).__name__
    return "null" if value is None else _KINDS.get(name, f"a {name}")


_KINDS = {
    "bool": "true or false", "int": "a number", "float": "a number", "str": "text", "list": "a list", "dict": "an object",
}  # fmt: skip
