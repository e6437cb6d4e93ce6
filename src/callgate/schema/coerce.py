"""Lossless coercion of arguments to their schema, with a sentence per change.

Driven by the validator: only rejected values are changed, and only if the new value is exactly equivalent, so a string
stays a string where strings are allowed, whatever it looks like. The one change to a valid value is `5.0` for an integer,
which JSON Schema accepts and many tools do not. Knows nothing of tools and judges nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import unquote

from callgate.errors import JsonError
from callgate.schema.problems import readable_path, shown
from callgate.schema.refs import Place
from callgate.schema.validator import SchemaValidator, has_ambiguous_keys, plain, real_path
from callgate.strict_json import is_exact, lost_by_reading, parse

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = ["coerced", "coerced_at", "with_whole_numbers"]

Path: TypeAlias = tuple[str | int, ...]

_UNCHANGED: Any = object()
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,4000}")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,400})(?:\.[0-9]{1,400})?(?:[eE][+-]?[0-9]{1,4})?")
_EXACT_MAX = 2**53
# JSON text may contain JSON text; each round opens one level of it.
_ROUNDS_MAX = 8
# Unions inside unions multiply the branches to try; past this the value is left to be refused.
_TRIALS_MAX = 1_000
_CHAIN_MAX = 32
_QUOTE = '"'
_CHANGING = (float, dict, list)
"""Kinds of values that are whole numbers, or may hold some."""
_TYPE_NAMES = {float: frozenset({"number", "integer"}), dict: frozenset({"object"}), list: frozenset({"array"})}


def coerced(args: dict[str, Any], validator: SchemaValidator) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arguments after every coercion, and what was changed. `args` itself is consumed: pass a copy."""
    if validator.has_ambiguous_keys or has_ambiguous_keys(args):
        return args, ()  # the validator's path would be ambiguous
    value, notes = _Coercion(validator).settled(args, validator.root, ())
    return cast("dict[str, Any]", with_whole_numbers(value, validator, notes)), tuple(notes)


def with_whole_numbers(value: Any, validator: SchemaValidator, notes: list[str]) -> Any:
    """The value with `5` for `5.0` wherever an integer is meant; what was changed is added to the notes."""
    if not validator.has_integers or not _has_whole_float(value):
        return value
    return _WholeNumbers(validator.schema, notes).read(value, [validator.schema], ())


def coerced_at(value: Any, place: Place, where: Path, validator: SchemaValidator) -> tuple[Any, list[str]]:
    """Coerce one value that is not an object or array to the schema at a place."""
    is_one_value = value is None or isinstance(value, (bool, int, float, str))
    return _Coercion(validator).settled(value, validator.at(place), where) if is_one_value else (value, [])


class _Coercion:
    def __init__(self, validator: SchemaValidator) -> None:
        self.validator = validator
        self.trials_left = _TRIALS_MAX
        self.unions = 0

    def settled(self, value: Any, against: jsonschema_rs.Validator, base: Path) -> tuple[Any, list[str]]:
        """The value after repairing, round by round, what `against` refuses."""
        notes: list[str] = []
        for _ in range(_ROUNDS_MAX):
            changed: set[Path] = set()
            for error in list(against.iter_errors(value)):
                steps, old = real_path(error.instance_path, value)
                path = tuple(steps)
                # Errors below a place that has just changed refer to the old value.
                if any(path[:length] in changed for length in range(len(path) + 1)):
                    continue
                new, more = self._repaired(old, error, base + path)
                if new is not _UNCHANGED:
                    value = _replaced(value, path, new)
                    changed.add(path)
                    notes += more
            if not changed:
                break
        return value, notes

    def _repaired(self, old: Any, error: jsonschema_rs.ValidationError, where: Path) -> tuple[Any, list[str]]:
        kind, details = error.kind.name, error.kind.as_dict()
        if kind in ("anyOf", "oneOf"):
            return self._branch(old, error.schema_path, len(details["context"]), where)
        new = _REPAIRS[kind](old, details) if kind in _REPAIRS else _UNCHANGED
        return new, [] if new is _UNCHANGED else [_note(where, old, new)]

    def _branch(self, old: Any, schema_path: Sequence[str | int], branches: int, where: Path) -> tuple[Any, list[str]]:
        """The value as the first branch of a union that it can be made to fit."""
        if self.unions >= _CHAIN_MAX:
            return _UNCHANGED, []  # a union may contain itself
        self.unions += 1
        try:
            union = self.validator.union(schema_path, branches)
            for index in range(branches):
                self.trials_left -= 1
                if self.trials_left < 0:
                    break
                new, notes = self.settled(plain(old), self.validator.part([*schema_path, index]), where)
                if notes and union.is_valid(new):
                    return new, notes
        except ValueError:
            pass  # a part with its own `$id` cannot be addressed; the value is then judged as it is
        finally:
            self.unions -= 1
        return _UNCHANGED, []


def _retyped(old: Any, details: Mapping[str, Any]) -> Any:
    types = cast("list[str]", details["types"])
    if isinstance(old, float):
        return _integer_from_float(old) if "integer" in types else _UNCHANGED
    if not isinstance(old, str):
        return _UNCHANGED
    readings = (reader(old) for name, reader in _READERS.items() if name in types)
    return next((new for new in readings if new is not _UNCHANGED), _UNCHANGED)


def _as_option(old: Any, details: Mapping[str, Any]) -> Any:
    options: list[Any] = details["options"] if "options" in details else [details["expected_value"]]
    if not isinstance(old, str) or any(isinstance(option, str) for option in options):
        return _UNCHANGED
    for reader in _READERS.values():
        new = reader(old)
        if any(type(new) is type(option) and new == option for option in options):
            return new
    return _UNCHANGED


def _integer(text: str) -> Any:
    return int(text) if _INTEGER.fullmatch(text) else _UNCHANGED


def _number(text: str) -> Any:
    if _INTEGER.fullmatch(text):
        return int(text)
    if not _NUMBER.fullmatch(text):
        return _UNCHANGED
    # More digits than a double holds, or an exponent beyond its range, would be lost.
    return float(text) if is_exact(text) else _UNCHANGED


def _boolean(text: str) -> Any:
    return {"true": True, "false": False}.get(text, _UNCHANGED)


def _json_of(kind: type, opening: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if not text.lstrip().startswith(opening):
            return _UNCHANGED
        try:
            value = parse(text)
        except JsonError:
            return _UNCHANGED
        # A duplicate key, or more digits than a double holds, would be lost.
        if not isinstance(value, kind) or has_ambiguous_keys(value) or lost_by_reading(text):
            return _UNCHANGED
        return value

    return read


_READERS: dict[str, Callable[[str], Any]] = {
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "array": _json_of(list, "["),
    "object": _json_of(dict, "{"),
}

_REPAIRS: dict[str, Callable[[Any, Mapping[str, Any]], Any]] = {"type": _retyped, "enum": _as_option, "const": _as_option}


def _integer_from_float(value: float) -> Any:
    # Beyond 2**53 neighbouring integers share one double, so the intended digits are unknown.
    return int(value) if value.is_integer() and abs(value) <= _EXACT_MAX else _UNCHANGED


def _note(where: Path, old: Any, new: Any) -> str:
    words = {bool: "the boolean ", int: "the integer ", float: "the number ", list: "an array", dict: "an object"}
    what = words[type(new)] + ("" if isinstance(new, (list, dict)) else shown(new))
    return f"{readable_path(where)}: {shown(old, quote=_QUOTE)} read as {what}"


def _replaced(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    real_path(path[:-1], value)[1][path[-1]] = new
    return value


def _has_whole_float(value: Any) -> bool:
    """True if there is a number such as `5.0` in the value."""
    level: list[Any] = [[value]]
    while level:
        deeper: list[Any] = []
        for item in level:
            for child in cast("dict[str, Any]", item).values() if isinstance(item, dict) else cast("list[Any]", item):
                if isinstance(child, float):
                    if child.is_integer():
                        return True
                elif isinstance(child, (dict, list)):
                    deeper.append(child)
        level = deeper
    return False


class _WholeNumbers:
    """One walk that reads `5.0` as `5` wherever the schemas that surely apply ask for an integer. Changes the value."""

    def __init__(self, root: dict[str, Any], notes: list[str]) -> None:
        self._root = root
        self._notes = notes
        self._known: dict[tuple[int, type], list[dict[str, Any]]] = {}
        """The schemas that apply, by a schema and the kind of a value. The root keeps schemas alive, and so their ids."""

    def read(self, value: Any, schemas: Sequence[Any], path: Path) -> Any:
        applying = [found for schema in schemas for found in self._applying(schema, value)]
        if isinstance(value, float):
            return self._number(value, applying, path)
        if isinstance(value, dict):
            held = cast("dict[str, Any]", value)
            for key, item in held.items():
                if isinstance(item, _CHANGING):
                    held[key] = self.read(item, [_property(schema, key) for schema in applying], (*path, key))
        elif isinstance(value, list):
            items = cast("list[Any]", value)
            for index, item in enumerate(items):
                if isinstance(item, _CHANGING):
                    items[index] = self.read(item, [_item(schema, index) for schema in applying], (*path, index))
        return cast("Any", value)

    def _number(self, value: float, applying: Sequence[dict[str, Any]], path: Path) -> float:
        wanted = any("integer" in types and "number" not in types for types in map(_types, applying))
        new = _integer_from_float(value) if wanted else _UNCHANGED
        if new is _UNCHANGED:
            return value
        self._notes.append(_note(path, value, new))
        return new

    def _applying(self, schema: Any, value: Any) -> list[dict[str, Any]]:
        """Like the function, which looks at nothing of a value but its kind."""
        key = (id(schema), cast("type[object]", type(value)))
        if key not in self._known:
            self._known[key] = _applying(schema, value, self._root, _CHAIN_MAX)
        return self._known[key]


def _applying(schema: Any, value: Any, root: dict[str, Any], chain_left: int) -> list[dict[str, Any]]:
    """Return the schema with everything that certainly applies: references, `allOf`, and the only possible branch of a
    union.
    """
    if not isinstance(schema, dict) or not chain_left:
        return []
    node = cast("dict[str, Any]", schema)
    found = [node]
    members: list[Any] = list(node.get("allOf") or ())
    if "$ref" in node:
        members.append(_target(node["$ref"], root))
    for keyword in ("anyOf", "oneOf"):
        branches = [found for branch in node.get(keyword) or () if (found := _applying(branch, value, root, chain_left - 1))]
        fitting = [branch for branch in branches if all(_may_be(value, part) for part in branch)]
        if len(fitting) == 1:
            found += fitting[0]
    for member in members:
        found += _applying(member, value, root, chain_left - 1)
    return found


def _may_be(value: Any, schema: dict[str, Any]) -> bool:
    types = _types(schema)
    names = next((names for kind, names in _TYPE_NAMES.items() if isinstance(value, kind)), frozenset[str]())
    return not types or bool(types & names)


def _types(schema: Mapping[str, Any]) -> set[str]:
    types: Any = schema.get("type", ())
    return {types} if isinstance(types, str) else set(cast("Iterable[str]", types))


def _property(schema: dict[str, Any], key: str) -> Any:
    properties: Any = schema.get("properties")
    if isinstance(properties, dict) and key in properties:
        return cast("dict[str, Any]", properties)[key]
    return None if "patternProperties" in schema else schema.get("additionalProperties")


def _item(schema: dict[str, Any], index: int) -> Any:
    heads: Any = schema.get("prefixItems")
    rest: Any = schema.get("items")
    if isinstance(rest, list):  # drafts before 2020-12
        heads, rest = cast("Any", rest), schema.get("additionalItems")
    listed = cast("list[Any]", heads) if isinstance(heads, list) else []
    return listed[index] if index < len(listed) else rest


def _target(reference: Any, root: dict[str, Any]) -> Any:
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    node: Any = root
    for step in reference[1:].split("/")[1:]:
        key = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(node, dict):
            node = cast("dict[str, Any]", node).get(key)
        elif isinstance(node, list) and key.isdecimal() and int(key) < len(cast("list[Any]", node)):
            node = cast("list[Any]", node)[int(key)]
        else:
            return None
    return node
