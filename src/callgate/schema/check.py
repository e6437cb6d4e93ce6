"""Check arguments: coerce where that is lossless, and describe every problem in a sentence.

Takes a definition and an object of arguments, returns a `Checked`. Knows nothing of models and runs nothing; arguments
are checked against the tool's original schema, whatever form of it was declared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from callgate.errors import UsageError
from callgate.schema.coerce import coerced, coerced_at, with_whole_numbers
from callgate.schema.names import renamed
from callgate.schema.problems import sentences
from callgate.schema.stepwise_check import judged, needs_narrowing
from callgate.schema.validator import SchemaValidator, plain, validator_of
from callgate.strict_json import DEPTH_MAX, depth_exceeds, first_bad, is_sound, without_surrogates
from callgate.types import Checked, ToolDefinition, copied_args

__all__ = ["check_arguments"]

# About 4,200 digits; Python itself refuses to write out more than 4,300.
_INTEGER_BITS_MAX = 14_000
_FLAT_INTEGER = 2**53


def check_arguments(definition: ToolDefinition, args: Mapping[str, Any] | None, *, is_plain: bool = False) -> Checked:
    """Return the arguments as the tool would get them, and their problems. None means no arguments.

    The input is never changed. Values are converted only where the schema asks for it and nothing is lost (`"5"` for an
    integer); each conversion is recorded in `coercions`. `is_plain` says that the arguments are known to be plain JSON, as
    those of a collector are, and need not be walked through.

    Raises:
        ToolNotDeclarableError: the definition's own schema cannot be used.
        UsageError: `definition` is not a definition.
    """
    if not isinstance(cast("Any", definition), ToolDefinition):
        raise UsageError(f"check_arguments takes a ToolDefinition, not {definition!r:.200}: make one with definition_from()")
    args = {} if args is None else args
    if not isinstance(cast("Any", args), Mapping):
        return Checked(args={}, problems=[f"the arguments must be an object, not {type(args).__name__}"])
    validator = validator_of(definition)
    # The common case: no error, so nothing to coerce and nothing to report.
    if _is_flat(args) and not validator.aliases and validator.root.is_valid(args):
        return Checked(args=dict(args))
    if (
        not validator.aliases
        and not validator.cost.is_unbounded
        and _is_plain(args, is_plain)
        and validator.root.is_valid(args)
    ):
        notes: list[str] = []
        return Checked(args=with_whole_numbers(copied_args(args, is_plain=True), validator, notes), coercions=notes)
    if depth_exceeds(dict(args), DEPTH_MAX):
        return Checked(args=dict(args), problems=[f"the arguments are nested deeper than {DEPTH_MAX} levels"])
    if reason := first_bad(args):
        return Checked(args=dict(args), problems=[reason])
    if strange := _first_not_json(args):
        return Checked(args=dict(args), problems=[f"the arguments hold {strange}, which cannot be passed on"])
    copy = {name: plain(value) for name, value in args.items()}
    if validator.aliases:
        copy = renamed(copy, validator.aliases)
    if needs_narrowing(copy, validator):
        return _judged_step_by_step(copy, validator)
    copy, coercions = coerced(copy, validator)
    problems = sentences(validator.root.iter_errors(copy), validator.schema, copy)
    return Checked(args=copy, problems=list(problems), coercions=list(coercions))


def _judged_step_by_step(copy: dict[str, Any], validator: SchemaValidator) -> Checked:
    """Check arguments with too many errors to list."""
    notes, problems = judged(copy, validator, lambda value, place, where: coerced_at(value, place, where, validator))
    if not problems:
        copy = with_whole_numbers(copy, validator, notes)
    return Checked(args=copy, problems=problems, coercions=notes)


def _is_flat(args: Mapping[str, Any]) -> bool:
    """True if this is an object of short plain values, none of which could be misread or need coercion."""
    if type(args) is not dict:
        return False
    for key, value in cast("dict[Any, Any]", args).items():
        kind = cast("type[object]", type(value))
        if type(key) is not str or not key.isascii():
            return False
        if kind is str:
            if not value.isascii():
                return False
        elif kind is int:
            if not -_FLAT_INTEGER < value < _FLAT_INTEGER:
                return False
        elif value is not None and kind is not bool:
            return False
    return True


def _is_plain(args: Mapping[str, Any], is_known: bool) -> bool:
    return type(args) is dict and (is_known or is_sound(args))


def _first_not_json(args: Mapping[str, Any]) -> str | None:
    """Find what the validator would misread: it takes JSON only, and reads a huge integer as null."""
    stack: list[Any] = [args]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            members = cast("Mapping[Any, Any]", item)
            if any(not isinstance(key, str) for key in members):
                return "a key that is not a string"
            stack.extend(members)
            stack.extend(members.values())
        elif isinstance(item, (list, tuple)):
            stack.extend(cast("Sequence[Any]", item))
        elif isinstance(item, str):
            if without_surrogates(item) != item:
                return "text with half a surrogate pair"
        elif isinstance(item, int):
            if item.bit_length() > _INTEGER_BITS_MAX:
                return f"an integer of {item.bit_length()} bits"
        elif item is not None and not isinstance(item, float):
            return f"a value of type {type(item).__name__!r}"
    return None
