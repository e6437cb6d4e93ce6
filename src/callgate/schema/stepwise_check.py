"""Check arguments step by step where listing all errors would take too long.

Listing every error of every branch takes exponential time for nested unions; whether a value is valid is decided fast. So
the path to the error is searched level by level, through the one intended branch. Same output as `coerced` and
`sentences`, if perhaps less of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from callgate.schema.problems import has_other_tag, readable_path, sentences
from callgate.schema.refs import Place
from callgate.schema.validator import SchemaValidator
from callgate.strict_json import DEPTH_MAX, depth_exceeds

__all__ = ["COST_LISTED_MAX", "judged", "needs_narrowing"]

Path: TypeAlias = tuple[str | int, ...]
Repair: TypeAlias = Callable[[Any, Place, Path], tuple[Any, list[str]]]

COST_LISTED_MAX = 10_000
"""Below so many steps all errors are listed; about a tenth of a second."""

_FLAT_LEVELS = 3
_REPAIRS_MAX = 200
_STEPS_MAX = 10 * DEPTH_MAX  # a few schemas for each level
_NOT_SAID = "the arguments do not fit the schema, and are nested too deeply in its choices to say where; simplify them"


class _Culprit(NamedTuple):
    place: Place
    path: Path
    value: Any


def needs_narrowing(args: dict[str, Any], validator: SchemaValidator) -> bool:
    """True if listing all errors could take too long."""
    if not validator.cost.may_multiply or not depth_exceeds(args, _FLAT_LEVELS):
        return False
    return validator.cost.of(args) > COST_LISTED_MAX


def judged(args: dict[str, Any], validator: SchemaValidator, repaired: Repair) -> tuple[list[str], list[str]]:
    """Return the coercions (made in place), and the remaining problems."""
    notes: list[str] = []
    for _ in range(_REPAIRS_MAX):
        if validator.root.is_valid(args):
            return notes, []
        try:
            culprit = _culprit(args, validator)
            new, more = repaired(culprit.value, culprit.place, culprit.path) if culprit.path else (None, [])
        except ValueError:  # A part with its own `$id` cannot be addressed.
            return notes, [_NOT_SAID]
        if not more:
            return notes, _messages_for(culprit, validator)
        _put(args, culprit.path, new)
        notes += more
    return notes, [_NOT_SAID]


def _culprit(args: dict[str, Any], validator: SchemaValidator) -> _Culprit:
    """The innermost value known to be invalid, and the intended schema."""
    found = _Culprit(validator.cost.root, (), args)
    for _ in range(_STEPS_MAX):
        inner = _further(found, validator)
        if inner is None:
            break
        found = inner
    return found


def _further(found: _Culprit, validator: SchemaValidator) -> _Culprit | None:
    """Go one level deeper, or return None if the value itself is wrong."""
    place, path, value = found
    cost = validator.cost
    if "contains" not in cast("dict[str, Any]", place.schema):
        for inner, key, item in cost.below(place, value):
            if not validator.at(inner).is_valid(item):
                return _Culprit(inner, (*path, key), item)
    for inner in cost.musts(place):
        if not validator.at(inner).is_valid(value):
            return _Culprit(inner, path, value)
    for word in ("anyOf", "oneOf"):
        branches = cost.branches(place, word)
        if branches and not any(validator.at(inner).is_valid(value) for inner in branches):
            meant = _intended_branch(branches, _hollow(value), validator)
            return _Culprit(meant, path, value) if meant is not None else None
    return None


def _intended_branch(branches: Sequence[Place], hollow: Any, validator: SchemaValidator) -> Place | None:
    """Return the intended branch of a value, if it is recognizable."""
    errors = [list(validator.at(inner).iter_errors(hollow)) for inner in branches]
    fitting = [inner for inner, found in zip(branches, errors, strict=True) if not found]
    tagged = [inner for inner, found in zip(branches, errors, strict=True) if not has_other_tag(found, ())]
    return fitting[0] if fitting else tagged[0] if len(tagged) == 1 else None


def _messages_for(culprit: _Culprit, validator: SchemaValidator) -> list[str]:
    hollow = _hollow(culprit.value)
    found = sentences(validator.at(culprit.place).iter_errors(hollow), validator.schema, hollow, culprit.path)
    where = readable_path(culprit.path)
    return list(found) or [f"{where}: {_NOT_SAID}" if where else _NOT_SAID]


def _hollow(value: Any) -> Any:
    """Return the value with emptied members, which identifies the intended branch."""
    if isinstance(value, dict):
        return {key: _emptied(item) for key, item in cast("dict[str, Any]", value).items()}
    return [_emptied(item) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _emptied(value: Any) -> Any:
    return {} if isinstance(value, dict) else [] if isinstance(value, list) else value


def _put(args: Any, path: Path, new: Any) -> None:
    for step in path[:-1]:
        args = args[step]
    args[path[-1]] = new
