"""JSON decoding of values that pydantic accepts as Python objects only.

Takes a pydantic adapter, returns a decoder that accepts what the adapter's JSON Schema promises: the value of an enum
member in a `Literal`, an enum whose values are dates, bytes or tuples, and keys of an object, which are always text. What
the schema does not promise is refused: a date written as a number, and 1 for true.
Knows nothing of functions and tools.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["has_decimals", "key_text", "reader_of", "string_keys"]

# Types that pydantic decodes from JSON without help. An enum member in a literal is not one, whatever its value is.
_PLAIN = (str, int, float, bool, type(None))
_DATA = frozenset({"type", "ref", "metadata", "serialization", "config", "default", "expected", "members"})
"""Keys of a core schema that hold no further schema."""
_OF_DICT = ("keys_schema", "values_schema")
_NAMED = frozenset({"fields", "choices"})
"""Keys that may hold a map from names to schemas, where a name may look like one of the `_DATA`."""


_MISSING = object()
_TEMPORAL = frozenset({"date", "datetime", "time"})
_NUMBER = re.compile(r"\s*[+-]?[0-9]+(?:\.[0-9]*)?\s*")
"""A text that pydantic takes for seconds since 1970, and no JSON Schema for a date."""


def reader_of(adapter: TypeAdapter[Any]) -> Callable[[bytes], Any]:
    """Return the adapter's `validate_json`, extended to the JSON forms of values that it accepts only as Python objects."""
    from pydantic_core import SchemaValidator

    core: Any = adapter.core_schema
    changed = _Rewriting(core).of(core)
    if changed is core:
        return adapter.validate_json
    try:
        # A model's cached validator, used if present, does not include the change.
        return SchemaValidator(changed, _use_prebuilt=False).validate_json
    except TypeError:  # an earlier pydantic-core always builds a new one
        return SchemaValidator(changed).validate_json


def has_decimals(adapter: TypeAdapter[Any]) -> bool:
    """True if a `Decimal` is anywhere in the type, which takes a number from its text to the last digit."""
    return _mentions(adapter.core_schema, type="decimal")


def key_text(value: Any) -> str:
    """A JSON value as the key of an object."""
    return value if isinstance(value, str) else json.dumps(value)


def string_keys(node: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema of keys in terms of text: `{"enum": [1, 2]}` allows no key at all, since keys are strings."""
    if not isinstance(node, dict):
        return node
    said = cast("dict[str, Any]", node)
    if "$ref" in said:
        target = definitions.get(said["$ref"].removeprefix("#/$defs/"))
        changed = string_keys(target, definitions)
        return said if changed == target else changed
    said = {key: value for key, value in said.items() if key != "type" or value == "string"}
    if "enum" in said:
        said["enum"] = [key_text(value) for value in said["enum"]]
    if "const" in said:
        said["const"] = key_text(said["const"])
    for keyword in {"anyOf", "oneOf"} & said.keys():
        said[keyword] = [string_keys(branch, definitions) for branch in said[keyword]]
    return said


class _Rewriting:
    """A core schema with a step before each literal and enum that finds its members by their JSON forms."""

    def __init__(self, core: Any) -> None:
        self._definitions = {item.get("ref"): item for item in core.get("definitions", ())}
        # Values that pass through our function are validated as Python objects, which differs for these.
        self._is_json_special = _mentions(core, strict=True, val_json_bytes="base64")

    def of(self, node: Any, *, is_key: bool = False) -> Any:
        """The same object if there is nothing to change in it."""
        if isinstance(node, (list, tuple)):
            items = cast("list[Any]", node)
            found = [self.of(item, is_key=is_key) for item in items]
            return items if all(map(operator.is_, found, items)) else type(items)(found)
        if not isinstance(node, dict):
            return node
        schema = cast("dict[str, Any]", node)
        kind = schema.get("type")
        if is_key and kind == "definition-ref":
            target = self._definitions.get(schema.get("schema_ref"), schema)
            return self.of(target, is_key=True) if target.get("type") == "enum" else schema
        if (
            kind == "dict"
            and not self._is_json_special
            and cast("dict[str, Any]", schema.get("keys_schema", {})).get("type") not in (None, "any", "str")
        ):
            parts = {key: self.of(schema[key], is_key=key == "keys_schema") for key in _OF_DICT if key in schema}
            return _keys_apart({**schema, **parts})
        if kind in _TEMPORAL and not self._is_json_special and not is_key:
            return _before(schema, _no_number)
        if kind == "literal":
            return _guided(schema, schema["expected"], is_key=is_key)
        if kind == "enum":
            # pydantic finds members of an enum by value, unlike those in a literal.
            return _guided(schema, schema["members"], is_key=is_key, known=lambda member: member.value)
        parts = {
            key: self._named(cast("Any", value))
            if key in _NAMED and isinstance(value, dict)
            else self.of(value, is_key=is_key or key == "keys_schema")
            for key, value in schema.items()
            if key not in _DATA
        }
        return schema if all(parts[key] is schema[key] for key in parts) else {**schema, **parts}

    def _named(self, schemas: Mapping[Any, Any]) -> Any:
        found = {name: self.of(schema) for name, schema in schemas.items()}
        # Tags of a union that are enum members: in JSON they are the members' values.
        members = [tag for tag in found if isinstance(tag, Enum) and isinstance(tag.value, _PLAIN)]
        tags = {tag.value: found[tag] for tag in members if tag.value not in found}
        same = not tags and all(found[name] is schemas[name] for name in found)
        return schemas if same else {**found, **tags}


def _mentions(core: Any, **settings: Any) -> bool:
    """True if one of these settings is set anywhere in a core schema."""
    todo = [core]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            held = cast("dict[Any, Any]", node)
            if any(held.get(name) == value for name, value in settings.items()):
                return True
            todo += held.values()
        elif isinstance(node, (list, tuple)):
            todo += cast("list[Any]", node)
    return False


def _guided(
    schema: dict[str, Any], members: Iterable[Any], *, is_key: bool, known: Callable[[Any], Any] = lambda member: member
) -> dict[str, Any]:
    """The schema, with a step before it if it has members that pydantic does not find in JSON."""
    wanted = str if is_key else _PLAIN
    plain = [member for member in members if isinstance(known(member), wanted) and not isinstance(known(member), Enum)]
    # 1 and true are equal in Python, and 1.0, the same as 1 in JSON, may be taken for either.
    # Of an enum the members themselves decide, since flags have values that none of them has.
    is_confusable = schema["type"] == "literal" and not is_key and any(member in (0, 1) for member in plain)
    if is_confusable or len(set(map(known, plain))) < len(plain):
        plain = []
    rest = [member for member in members if not any(member is other for other in plain)]
    if not rest:
        return schema
    from pydantic_core import PydanticCustomError

    table: dict[str, Any] = {}
    # If two members look the same in JSON, prefer the one that needs no help.
    for member in (*plain, *rest):
        form = _form(member)
        table.setdefault(_spelled(form), member)
        if is_key:
            table.setdefault(_spelled(key_text(form)), member)

    def found(value: Any) -> Any:
        try:
            member = table.get(_spelled(value), _MISSING)
        except (TypeError, ValueError):
            return value
        if member is _MISSING and is_confusable and isinstance(value, (bool, int, float)):
            raise PydanticCustomError("member", "Input should be one of the listed values")
        return value if member is _MISSING else member

    return _before(schema, found)


def _before(schema: dict[str, Any], step: Callable[[Any], Any]) -> dict[str, Any]:
    from pydantic_core.core_schema import no_info_before_validator_function

    inner = {key: value for key, value in schema.items() if key != "ref"}
    return cast("Any", no_info_before_validator_function(step, cast("Any", inner), ref=schema.get("ref")))


def _no_number(value: Any) -> Any:
    from pydantic_core import PydanticCustomError

    if isinstance(value, str) and _NUMBER.fullmatch(value):
        raise PydanticCustomError("number", "Input should be a date or time in ISO 8601, such as 2024-01-31, and no number")
    return value


def _keys_apart(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a dict whose keys are not strings, which rejects two texts for one key: `1` and `01`."""
    from pydantic_core import PydanticCustomError
    from pydantic_core.core_schema import no_info_wrap_validator_function

    def checked(value: Any, read: Callable[[Any], Any]) -> Any:
        found = read(value)
        if isinstance(value, dict) and len(found) < len(cast("dict[str, Any]", value)):
            raise PydanticCustomError("keys", "Two keys should not mean the same")
        return found

    inner = {key: value for key, value in schema.items() if key != "ref"}
    step: Any = no_info_wrap_validator_function(checked, cast("Any", inner), ref=schema.get("ref"))
    return step


def _form(value: Any) -> Any:
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value.value if isinstance(value, Enum) else value)


def _spelled(value: Any) -> str:
    is_whole = isinstance(value, float) and value.is_integer()
    return json.dumps(int(value) if is_whole else value, sort_keys=True)
