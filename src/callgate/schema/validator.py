"""Compile schemas to validators. Fetches nothing, whatever a `$ref` points to.

Knows nothing of coercion or of sentences; it only compiles and caches.
"""

from __future__ import annotations

import math
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn, cast
from urllib.parse import quote

from callgate.errors import ToolNotDeclarableError
from callgate.schema.names import aliases_of
from callgate.schema.normalize import normalize_schema
from callgate.schema.patterns import Settled, respell_misread, respell_patterns
from callgate.schema.refs import DRAFTS, Place, Source, as_mapping
from callgate.schema.shape import ALL_TYPES
from callgate.schema.validation_cost import ValidationCost
from callgate.strict_json import DEPTH_MAX, dump
from callgate.types import ToolDefinition

if TYPE_CHECKING:
    import jsonschema_rs

__all__ = [
    "MASK",
    "SchemaValidator",
    "has_ambiguous_keys",
    "plain",
    "real_path",
    "require_bounded",
    "usable_validator",
    "validator_of",
]

COST_OF_ONE_VALUE_MAX = 10_000
"""At most so many schemas are applied to one value."""

MASK = "\x00"
"""Placeholder for the checked value in the validator's messages, so that a huge value is never formatted."""

_ROOT = "urn:callgate:arguments"
_CACHE_MAX = 1_024
_AMBIGUOUS = re.compile(r"|\+[0-9]+|0[0-9]+")
_VALUES_MAX = 200_000
# The validator has the metaschema of each draft built in.
_METASCHEMA = re.compile(r"https?://json-schema\.org/(draft[-/][0-9-]+/)schema")

_PATTERNS = frozenset({"pattern", "patternProperties"})
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_FIXABLE = frozenset({"$ref", "$dynamicRef", "exclusiveMinimum", "exclusiveMaximum"})

_cache: OrderedDict[int, tuple[Mapping[str, Any], SchemaValidator]] = OrderedDict()
_cache_lock = Lock()


class SchemaValidator:
    """One schema, compiled as a whole, and in parts when a union must be tried branch by branch."""

    def __init__(
        self, schema: dict[str, Any], objects: int, source: Mapping[str, Any], slips: Sequence[str],
        settled: Sequence[Settled] = (),
    ) -> None:  # fmt: skip
        import jsonschema_rs

        self.schema = schema
        self.objects = objects
        """The number of JSON objects in the schema; an upper bound of its subschemas."""
        self.source = source
        """The schema as given, except for fixed errors."""
        self.slips = [*slips, *map(str, settled)]
        """The fixed errors, and how they were read."""
        self.unchecked = [one for one in settled if not one.is_checked]
        """Patterns of the schema that are not checked."""
        self.root = jsonschema_rs.validator_for(schema, validate_formats=False, retriever=_refuse, mask=MASK)
        self._registry: jsonschema_rs.Registry | None = None
        self._parts: dict[str, jsonschema_rs.Validator] = {}

    @cached_property
    def has_ambiguous_keys(self) -> bool:
        """True if the validator's paths cannot be trusted."""
        return has_ambiguous_keys(self.schema)

    @cached_property
    def has_integers(self) -> bool:
        """True if a value may have to be an integer somewhere."""
        return b'"integer"' in dump(self.schema)

    @cached_property
    def aliases(self) -> Mapping[str, str]:
        """Names that may have been sent in place of properties' own -> those."""
        return aliases_of(as_mapping(place.schema) for place in Source(self.schema).places())

    @cached_property
    def cost(self) -> ValidationCost:
        """The cost of a check."""
        return ValidationCost(self.schema)

    def at(self, place: Place) -> jsonschema_rs.Validator:
        """A validator for the subschema at a place."""
        pointer = f"{_ROOT}#{quote(place.pointer, safe='/~')}"
        return self._compiled(pointer, {"$ref": pointer})

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
    """Return the compiled form of the definition's input schema, cached.

    Raises:
        ToolNotDeclarableError: the schema is not a usable JSON Schema.
    """
    return usable_validator(definition.input_schema, definition.name)


def usable_validator(schema: Mapping[str, Any], tool: str | None) -> SchemaValidator:
    """Like `validator_of`, for a schema by itself; `tool` is named in errors."""
    # A schema cannot be hashed and would be slow to encode for every call; as long as the entry keeps the schema alive,
    # its id belongs to no other object.
    with _cache_lock:
        entry = _cache.get(id(schema))
        if entry is not None and entry[0] is schema:
            _cache.move_to_end(id(schema))
            return entry[1]
    validator = _compile(schema, tool)
    with _cache_lock:
        _cache[id(schema)] = (schema, validator)
        while len(_cache) > _CACHE_MAX:
            _cache.popitem(last=False)
    return validator


def plain(value: Any) -> Any:
    """A copy made of dicts and lists only; the caller has bounded the depth."""
    kind = cast("type[object]", type(value))
    if kind is str or kind is bool or kind is int or value is None:
        return value
    if kind is dict or isinstance(value, Mapping):
        return {key: plain(item) for key, item in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in cast("Sequence[Any]", value)]
    return value


def has_ambiguous_keys(value: Any) -> bool:
    """True if two keys are ambiguous in the validator's paths: it reads `0` and `00` as 0, and drops ``."""
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
    """Translate a path of the validator to the keys of `value`; return it with its value (None if it leads nowhere)."""
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


def _compile(original: Mapping[str, Any], name: str | None) -> SchemaValidator:
    tool = f"tool {name!r}: " if name is not None else ""
    if not isinstance(cast("Any", original), Mapping):
        raise ToolNotDeclarableError(f"{tool}its input schema is {original!r:.100}; a schema of arguments is an object")
    survey = _survey(original)
    if survey.problem is not None:
        raise ToolNotDeclarableError(f"{tool}its input schema {survey.problem}")
    schema = plain(original)
    slips = normalize_schema(schema)
    if not _REFERENCES.isdisjoint(survey.keys):
        require_bounded(schema, name)
    source = plain(schema) if slips else original
    _fix_all(schema, survey)
    respelled = [] if _PATTERNS.isdisjoint(survey.keys) else respell_misread(schema, _is_readable)
    try:
        return SchemaValidator(schema, survey.objects, source, slips, respelled)
    except ValueError as error:
        unreadable = respell_patterns(schema, _is_readable)
        respelled += unreadable
        if not unreadable:
            raise ToolNotDeclarableError(f"{tool}its input schema is not usable{_complaint(schema, error)}") from None
    try:
        return SchemaValidator(schema, survey.objects, source, slips, respelled)
    except ValueError as error:
        raise ToolNotDeclarableError(f"{tool}its input schema is not usable{_complaint(schema, error)}") from None


def require_bounded(schema: Mapping[str, Any], tool: str | None) -> None:
    """Refuse a schema whose unions of references multiply until no value could be checked.

    Raises:
        ToolNotDeclarableError: they do.
    """
    if ValidationCost(schema).of_one_value() > COST_OF_ONE_VALUE_MAX:
        named = f"tool {tool!r}: " if tool is not None else ""
        raise ToolNotDeclarableError(
            f"{named}its input schema holds one value against more than {COST_OF_ONE_VALUE_MAX:,} schemas, because unions"
            " refer to unions; list each choice once"
        )


def _is_readable(pattern: str) -> bool:
    import jsonschema_rs

    try:
        jsonschema_rs.validator_for({"pattern": pattern})
    except ValueError:
        return False
    return True


def _complaint(schema: dict[str, Any], error: ValueError) -> str:
    """Describe where the schema is wrong, why, and how to fix it."""
    path: list[str | int] = list(getattr(error, "instance_path", ()))
    where = f" at {''.join(f'/{step}' for step in path)}" if path else ""
    reason = str(getattr(error, "message", error)).splitlines()[0].replace(MASK, "what stands there")[:300]
    if path and path[-1] == "type":
        _, named = real_path(path, schema)
        return f"{where}: {str(named)[:60]!r} is not a type; the types are {', '.join(ALL_TYPES)}"
    # Only what refers to something has no place to name.
    return f"{where}: {reason}; correct the schema" + ("" if path else ", and move what it refers to into its own $defs")


@dataclass(slots=True)
class _Survey:
    """The findings of one walk over a schema."""

    problem: str | None = None
    objects: int = 0
    keys: set[str] = field(default_factory=set[str])
    has_lists_of_items: bool = False


def _survey(value: Any) -> _Survey:
    """True if a schema can be examined level by level. A shared value counts as often as it occurs."""
    found, count, level = _Survey(), 0, [value]
    for _ in range(2 * DEPTH_MAX + 1):
        deeper: list[Any] = []
        for item in level:
            kind = cast("type[object]", type(item))
            if kind is str or kind is bool or kind is int or item is None:
                continue
            if kind is dict or isinstance(item, Mapping):
                members = cast("Mapping[str, Any]", item)
                found.objects += 1
                found.keys.update(members)
                found.has_lists_of_items |= type(members.get("items")) is list
                deeper.extend(members.values())
            elif isinstance(item, (list, tuple)):
                deeper.extend(cast("Sequence[Any]", item))
            elif kind is float and not math.isfinite(item):
                found.problem = f"is not JSON: the number {item} is not finite"
        count += len(deeper)
        if count > _VALUES_MAX:
            found.problem = f"holds more than {_VALUES_MAX} values; make it smaller"
            return found
        if not deeper:
            break
        level = deeper
    else:
        found.problem = f"is nested deeper than {2 * DEPTH_MAX} levels; flatten it with $defs"
    if not all(type(key) is str for key in found.keys):
        found.problem = "is not JSON: a key is not a string"
    return found


def _fix_all(schema: dict[str, Any], survey: _Survey) -> None:
    """Remove what would reject the whole tool although its meaning is clear or cannot be known."""
    # An unknown dialect; read as the current one it still checks nearly everything.
    if not any(draft in str(schema.get("$schema", "draft/2020-12/")) for draft in DRAFTS):
        del schema["$schema"]
    if not survey.has_lists_of_items and _FIXABLE.isdisjoint(survey.keys):
        return
    source = Source(schema)
    places = [place for place in source.places() if isinstance(place.schema, dict)]
    outside = [(place, word) for place in places for word in ("$ref", "$dynamicRef") if _is_outside(source, place, word)]
    misplaced = [
        (place, word, ref)
        for place in places
        for word in ("$ref", "$dynamicRef")
        if word in place.schema and (ref := source.misplaced(place, word)) is not None
    ]
    for place, keyword, reference in misplaced:
        place.schema[keyword] = reference
    _follow_lists(source, places)
    for place in places if outside else ():
        _make_monotone(place.schema)
    for place, keyword in outside:
        # Never fetched. Its meaning is unknown, so it restricts nothing; the compiler reports it.
        del place.schema[keyword]
    for place in places:
        _fix(place.schema, source)


def _follow_lists(source: Source, places: Sequence[Place]) -> None:
    """Redirect references into lists of items to where `_fix` puts those."""
    lists = [f"{place.pointer}/items/" for place in places if _has_old_list(place.schema, source)]
    for place in places if lists else ():
        target = source.target(place, "$ref") if "$ref" in place.schema else None
        if target is None or target.base != place.base:
            continue
        pointer = target.pointer
        for start in lists:
            if pointer.startswith(start):
                pointer = f"{start.removesuffix('items/')}prefixItems/{pointer.removeprefix(start)}"
        if pointer != target.pointer and place.base == source.root.base:
            place.schema["$ref"] = f"#{quote(pointer, safe='/~$')}"


def _has_old_list(node: dict[str, Any], source: Source) -> bool:
    return source.draft >= 2020 and isinstance(node.get("items"), list) and "prefixItems" not in node


def _is_outside(source: Source, place: Place, keyword: str) -> bool:
    node = cast("dict[str, Any]", place.schema)
    if keyword not in node or not source.is_outside(place, keyword):
        return False
    known = _METASCHEMA.match(str(node[keyword]))
    return known is None or DRAFTS.get(known[1]) != source.draft


def _make_monotone(node: dict[str, Any]) -> None:
    """Take out what refuses more when a part of the schema asks for less, as a part of it now does."""
    for keyword in ("if", "unevaluatedProperties", "unevaluatedItems", "maxContains"):
        node.pop(keyword, None)
    if "not" in node and node["not"] not in ({}, True):
        del node["not"]
    if isinstance(node.get("oneOf"), list):
        node["allOf"] = [*node.get("allOf", ()), {"anyOf": node.pop("oneOf")}]


def _fix(node: dict[str, Any], source: Source) -> None:
    if source.draft > 4:
        for flag, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            if isinstance(node.get(flag), bool):
                is_strict = node.pop(flag)
                if is_strict and bound in node:
                    node[flag] = node.pop(bound)
    if _has_old_list(node, source):
        node["prefixItems"] = node.pop("items")
        if "additionalItems" in node:
            node["items"] = node.pop("additionalItems")


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri!r} is outside the schema and is not fetched")


def _pointer(path: Sequence[str | int]) -> str:
    steps = (quote(str(step).replace("~", "~0").replace("/", "~1"), safe="~") for step in path)
    return f"{_ROOT}#{''.join(f'/{step}' for step in steps)}"
