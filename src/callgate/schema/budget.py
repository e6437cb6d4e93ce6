"""Size budgets of declarations: schemas as they are sent in, warnings about those that a model may refuse out.

Google publishes no limits. One of the figures here was observed, the others are guesses, as noted at each; so exceeding a
budget is reported and the declaration is still sent. Nothing is changed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from callgate.strict_json import dump
from callgate.types import JsonObject

__all__ = ["SchemaSize", "budget_warnings", "size_of"]

BYTES_MAX = 45_000
"""All schemas of a request: 49 kB in 31 tools have been refused, and 15 kB in 15 tools taken. This is just below."""
TOOL_BYTES_MAX = 15_000
"""Bytes of one schema. A guess: a third of a whole request."""
DEPTH_MAX = 12
"""Nesting depth. A guess: "exceeds the maximum allowed nesting depth" has been seen, without a number."""
STATES_MAX = 500
"""Listed values and alternatives of one schema. A guess: "too many states" has been seen for 239 tools, without a number."""

_NAMED_MAX = 5
_MAPS = frozenset({"properties", "$defs"})
_LISTS = frozenset({"enum", "anyOf", "prefixItems"})
_BELOW = frozenset({"items", "additionalProperties"})
_DEEPER = tuple(f'"{keyword}"'.encode() for keyword in sorted(_MAPS | _BELOW | {"anyOf", "prefixItems"}))

_sizes: dict[int, tuple[JsonObject, SchemaSize]] = {}
_SIZES_MAX = 4_096


@dataclass(frozen=True, slots=True)
class SchemaSize:
    """The measures of one schema."""

    bytes: int
    depth: int = 0
    """Nesting depth; 0 if the text is too short of brackets to be nested deeply."""
    states: int = 0
    """Listed values, and branches of unions; 0 if it is too short of commas to list many."""


def budget_warnings(schemas: Mapping[str, JsonObject | None]) -> list[str]:
    """Return warnings about exceeded budgets, naming the largest tools."""
    weights = {name: size_of(schema) for name, schema in schemas.items() if schema is not None}
    found: list[str] = []
    total = sum(weight.bytes for weight in weights.values())
    if total > BYTES_MAX:
        heavy = _heaviest({name: weight.bytes for name, weight in weights.items()})
        found.append(
            f"the schemas of {len(weights)} tools take {total} bytes, and about {BYTES_MAX} have been refused: {heavy}"
        )
    for what, limit, measured in (
        ("take more bytes than", TOOL_BYTES_MAX, {name: weight.bytes for name, weight in weights.items()}),
        ("are nested deeper than", DEPTH_MAX, {name: weight.depth for name, weight in weights.items()}),
        ("list more values and alternatives than", STATES_MAX, {name: weight.states for name, weight in weights.items()}),
    ):
        over = {name: figure for name, figure in measured.items() if figure > limit}
        if over:
            found.append(f"schemas that {what} {limit} may be refused: {_heaviest(over)}")
    return found


def size_of(schema: JsonObject) -> SchemaSize:
    """Measure a schema as it is sent. Cached, because the same schemas are declared repeatedly."""
    entry = _sizes.get(id(schema))
    if entry is not None and entry[0] is schema:
        return entry[1]
    data = dump(schema)
    # A level is below one of these keywords, and a comma is between two values: most schemas need no walk.
    is_small = sum(map(data.count, _DEEPER)) < DEPTH_MAX and data.count(b",") < STATES_MAX
    weight = SchemaSize(len(data)) if is_small else SchemaSize(len(data), *_depth_and_states(schema))
    if len(_sizes) >= _SIZES_MAX:
        _sizes.clear()
    _sizes[id(schema)] = (schema, weight)
    return weight


def _depth_and_states(schema: JsonObject) -> tuple[int, int]:
    depth, states, level = 0, 0, [schema]
    while level:
        depth += 1
        deeper: list[Any] = []
        for node in level:
            for key, value in node.items():
                if key in _MAPS:
                    deeper += value.values()
                elif key in _BELOW:
                    deeper.append(value)
                elif key in _LISTS:
                    deeper += value if key != "enum" else ()
                    states += len(value) if key != "prefixItems" else 0
        level = [cast("JsonObject", node) for node in deeper if type(node) is dict]
    return depth, states


def _heaviest(figures: Mapping[str, int]) -> str:
    first = sorted(figures.items(), key=lambda item: (-item[1], item[0]))[:_NAMED_MAX]
    more = f" and {len(figures) - len(first)} more" if len(figures) > len(first) else ""
    return ", ".join(f"{name!r} ({figure})" for name, figure in first) + more
