"""Compiled schemas: a tool's schema in, a validator with its parts out. Fetches nothing, whatever a `$ref` points to.

Knows nothing of coercion or of sentences; it only compiles, and keeps what it compiled.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn, cast
from urllib.parse import quote

from callgate.errors import ToolNotDeclarable
from callgate.strict_json import DEPTH_MAX, depth_exceeds
from callgate.types import ToolDefinition

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["MASK", "SchemaValidator", "has_ambiguous_keys", "plain", "real_path", "validator_of"]

MASK = "\x00"
"""Stands for the checked value in the validator's messages, so that a huge value is never written out."""

_ROOT = "urn:callgate:arguments"
_CACHE_MAX = 256
_AMBIGUOUS = re.compile(r"|\+[0-9]+|0[0-9]+")
_DRAFTS = ("draft-04/", "draft-06/", "draft-07/", "draft/2019-09/", "draft/2020-12/")

_cache: OrderedDict[int, tuple[Mapping[str, Any], SchemaValidator]] = OrderedDict()
_cache_lock = Lock()


class SchemaValidator:
    """One schema, compiled whole at once and in parts when a union must be tried branch by branch."""

    def __init__(self, schema: dict[str, Any]) -> None:
        import jsonschema_rs

        self.schema = schema
        self.has_ambiguous_keys = has_ambiguous_keys(schema)
        self.root = jsonschema_rs.validator_for(schema, validate_formats=False, retriever=_refuse, mask=MASK)
        self._registry: jsonschema_rs.Registry | None = None
        self._parts: dict[str, jsonschema_rs.Validator] = {}

    def part(self, path: Sequence[str | int]) -> jsonschema_rs.Validator:
        """A validator for the subschema at `path`, whose references still see the whole schema."""
        pointer = _pointer(path)
        return self._compiled(pointer, {"$ref": pointer})

    def union(self, path: Sequence[str | int], branches: int) -> jsonschema_rs.Validator:
        """A validator for nothing but the `anyOf` or `oneOf` at `path`."""
        members = [{"$ref": _pointer([*path, index])} for index in range(branches)]
        return self._compiled(f"union {_pointer(path)}", {str(path[-1]): members})

    def _compiled(self, key: str, schema: dict[str, Any]) -> jsonschema_rs.Validator:
        import jsonschema_rs

        if key not in self._parts:
            if self._registry is None:
                self._registry = jsonschema_rs.Registry([(_ROOT, self.schema)], retriever=_refuse)
            self._parts[key] = jsonschema_rs.validator_for(
                schema, validate_formats=False, retriever=_refuse, mask=MASK, registry=self._registry
            )
        return self._parts[key]


def validator_of(definition: ToolDefinition) -> SchemaValidator:
    """The compiled form of the definition's input schema, kept for the next call.

    Raises:
        ToolNotDeclarable: the schema is not a usable JSON Schema, or refers to something outside itself.
    """
    schema = definition.input_schema
    # A schema cannot be hashed and would be slow to encode for every call; as long as the entry keeps the schema alive,
    # its id belongs to no other object.
    with _cache_lock:
        entry = _cache.get(id(schema))
        if entry is not None and entry[0] is schema:
            _cache.move_to_end(id(schema))
            return entry[1]
    validator = _compile(definition)
    with _cache_lock:
        _cache[id(schema)] = (schema, validator)
        while len(_cache) > _CACHE_MAX:
            _cache.popitem(last=False)
    return validator


def plain(value: Any) -> Any:
    """A copy made of dicts and lists only; the caller has bounded the depth."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast("Sequence[Any]", value)]
    return value


def has_ambiguous_keys(value: Any) -> bool:
    """Whether some key reads like another one in the validator's paths: it makes 0 of `0` and `00`, and leaves out ``."""
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            members = cast("dict[str, Any]", item)
            if any(_AMBIGUOUS.fullmatch(key) for key in members):
                return True
            stack.extend(members.values())
        elif isinstance(item, list):
            stack.extend(cast("list[Any]", item))
    return False


def real_path(path: Sequence[str | int], value: Any) -> tuple[list[str | int], Any]:
    """A path of the validator with its steps as they are in `value`, and what lies there (None if it leads nowhere)."""
    steps: list[str | int] = []
    for step in path:
        if isinstance(value, Mapping):
            step = str(step)  # the validator writes the key "0" as the index 0
            value = cast("Mapping[str, Any]", value).get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(cast("list[Any]", value)):
            value = cast("list[Any]", value)[step]
        else:
            value = None
        steps.append(step)
    return steps, value


def _compile(definition: ToolDefinition) -> SchemaValidator:
    tool = f"tool {definition.name!r}"
    if depth_exceeds(dict(definition.input_schema), 2 * DEPTH_MAX):
        raise ToolNotDeclarable(
            f"{tool}: its input schema is nested deeper than {2 * DEPTH_MAX} levels; flatten it with $defs"
        )
    schema = plain(definition.input_schema)
    # A dialect that nobody knows would fail the whole tool; read as the current one it still checks nearly everything.
    if not any(draft in str(schema.get("$schema", _DRAFTS[-1])) for draft in _DRAFTS):
        del schema["$schema"]
    try:
        return SchemaValidator(schema)
    except ValueError as error:
        where = "".join(f"/{step}" for step in getattr(error, "instance_path", ()))
        reason = str(getattr(error, "message", error)).splitlines()[0][:300]
        raise ToolNotDeclarable(
            f"{tool}: its input schema is not usable{f' at {where}' if where else ''}: {reason}; "
            "correct the schema, and move what it refers to into its own $defs"
        ) from None


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri!r} lies outside the schema and is not fetched")


def _pointer(path: Sequence[str | int]) -> str:
    steps = (quote(str(step).replace("~", "~0").replace("/", "~1"), safe="~") for step in path)
    return f"{_ROOT}#{''.join(f'/{step}' for step in steps)}"
