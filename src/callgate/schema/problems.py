"""Describe the validator's errors to a model: what is wrong, where, and what is expected.

Knows nothing of tools and decides nothing. Values are truncated and only scalars are shown, so that no large argument is
echoed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from callgate.schema.validator import MASK, real_path

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError

__all__ = ["has_other_tag", "readable_path", "sentences", "shown"]

_SENTENCES_MAX = 10
_ERRORS_MAX = 1_000
_CHARS_MAX = 300
_PATH_CHARS_MAX = 160
_VALUE_CHARS_MAX = 60
_OPTIONS_MAX = 20
_UNION_DEPTH_MAX = 5

_NEEDED = {
    "integer": "an integer", "number": "a number", "string": "a string", "boolean": "a boolean", "array": "an array",
    "object": "an object", "null": "null",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _About:
    """The subject of the errors."""

    schema: dict[str, Any]
    args: Any
    base: Sequence[str | int] = ()

    def path(self, error: ValidationError) -> str:
        path = readable_path([*self.base, *real_path(error.instance_path, self.args)[0]])
        # Shorten a long path in the middle: the error at its end must still fit.
        return path if len(path) <= _PATH_CHARS_MAX else f"{path[: _PATH_CHARS_MAX // 2]}…{path[-_PATH_CHARS_MAX // 2 :]}"


def sentences(
    errors: Iterable[ValidationError], schema: dict[str, Any], args: Any, base: Sequence[str | int] = ()
) -> tuple[str, ...]:
    """Return at most ten sentences; if there are more problems, the last one says how many.

    `base` is the path of `args` within the arguments, if they are not all of them.
    """
    about = _About(schema, args, base)
    found: dict[str, None] = {}
    for error in islice(errors, _ERRORS_MAX):
        for sentence in _of_error(error, about, _UNION_DEPTH_MAX):
            found[_cut(sentence, _CHARS_MAX)] = None
    if len(found) <= _SENTENCES_MAX:
        return tuple(found)
    return (*islice(found, _SENTENCES_MAX - 1), f"and {len(found) - _SENTENCES_MAX + 1} more problems")


def readable_path(path: Iterable[str | int]) -> str:
    """`operations[0].path` for `["operations", 0, "path"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + _cut(step, _VALUE_CHARS_MAX)
    return text


def shown(value: Any, *, quote: str = "'") -> str:
    """Format a scalar, truncated; of anything larger only its type."""
    if isinstance(value, str):
        # The quotes only delimit the text; its content is left as it is.
        return f"{quote}{_cut(value, _VALUE_CHARS_MAX)}{quote}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and value.bit_length() > 1_000:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, (int, float)):
        return repr(value)
    return "an array" if isinstance(value, (list, tuple)) else "an object"


def _of_error(error: ValidationError, about: _About, depth_left: int) -> list[str]:
    kind = error.kind.name
    if kind in ("anyOf", "oneOf"):
        return _of_union(error, about, depth_left)
    path = about.path(error)
    prefix = f"{path}: " if path else ""
    return [prefix + sentence for sentence in _SENTENCES.get(kind, _other)(error, about)]


def _of_union(error: ValidationError, about: _About, depth_left: int) -> list[str]:
    """Explain why the value does not fit the intended branch, or list the accepted types."""
    path = about.path(error)
    prefix = f"{path}: " if path else ""
    branches = cast("list[list[ValidationError]]", error.kind.as_dict()["context"])
    if not all(branches):
        return [f"{prefix}{shown(error.instance)} fits more than one of the allowed forms, where exactly one must fit"]
    options = [option for branch in branches for item in branch for option in _options(item, error.instance_path)]
    if len(options) >= len(branches) and all(_options(item, error.instance_path) for branch in branches for item in branch):
        return [prefix + _not_among(error.instance, options)]
    meant = [branch for branch in branches if not any(_is_type_error_at(item, error.instance_path) for item in branch)]
    # Alternatives that differ in a constant, such as `kind`, are distinguished by it.
    meant = [branch for branch in meant if not has_other_tag(branch, error.instance_path)] or meant
    if not meant:
        types = [name for branch in branches for item in branch for name in item.kind.as_dict().get("types", ())]
        return [prefix + _mismatch(error.instance, types)]
    closest = min(meant, key=len)
    if depth_left and (len(meant) == 1 or len(closest) == 1):
        return [sentence for item in closest for sentence in _of_error(item, about, depth_left - 1)]
    return [f"{prefix}{shown(error.instance)} fits none of the {len(branches)} allowed forms"]


def has_other_tag(errors: Iterable[ValidationError], path: Sequence[str | int]) -> bool:
    """True if a member of the object at `path` has one of a few fixed values, but not the required one."""
    around = list(path)
    return any(
        error.kind.name in ("const", "enum") and len(error.instance_path) > 0 and error.instance_path[:-1] == around
        for error in errors
    )


def _is_type_error_at(error: ValidationError, path: Sequence[str | int]) -> bool:
    return error.kind.name == "type" and error.instance_path == path


def _mismatch(value: Any, types: Iterable[str]) -> str:
    needed = list(dict.fromkeys(_NEEDED.get(name, name) for name in types))
    choice = f"{', '.join(needed[:-1])} or {needed[-1]}" if len(needed) > 1 else needed[0]
    if isinstance(value, (str, int, float)) and not isinstance(value, bool):
        kind = "string" if isinstance(value, str) else "integer" if isinstance(value, int) else "number"
        return f"{shown(value)} is {_NEEDED[kind]}, but {choice} is needed"
    return f"{shown(value)} was given, but {choice} is needed"


def _type(error: ValidationError, about: _About) -> list[str]:
    return [_mismatch(error.instance, error.kind.as_dict()["types"])]


def _required(error: ValidationError, about: _About) -> list[str]:
    return [f"{shown(error.kind.as_dict()['property'])} is required but missing"]


def _options(error: ValidationError, path: Sequence[str | int]) -> list[Any]:
    """Return the accepted values at `path`, if the error is about those."""
    details = error.kind.as_dict() if error.instance_path == path else {}
    return cast("list[Any]", details.get("options") or [details[key] for key in ("expected_value",) if key in details])


def _enum(error: ValidationError, about: _About) -> list[str]:
    return [_not_among(error.instance, _options(error, error.instance_path))]


def _not_among(value: Any, options: list[Any]) -> str:
    listed = ", ".join(shown(option) for option in options[:_OPTIONS_MAX])
    more = f" and {len(options) - _OPTIONS_MAX} more" if len(options) > _OPTIONS_MAX else ""
    return f"{shown(value)} is not one of {listed}{more}"


def _const(error: ValidationError, about: _About) -> list[str]:
    return [f"{shown(error.instance)} is not {shown(error.kind.as_dict()['expected_value'])}, the only value allowed"]


def _unknown(error: ValidationError, about: _About) -> list[str]:
    holder = real_path(error.schema_path[:-1], about.schema)[1]
    known = [*cast("dict[str, Any]", holder).get("properties", ())] if isinstance(holder, dict) else []
    word = "key" if error.instance_path else "argument"
    found: list[str] = []
    for name in cast("list[str]", error.kind.as_dict()["unexpected"]):
        close = get_close_matches(name[:_VALUE_CHARS_MAX], known, n=1)
        found.append(f"unknown {word} {shown(name)}" + (f"; did you mean {shown(close[0])}?" if close else ""))
    return found


def _closed(error: ValidationError, about: _About) -> list[str]:
    if error.schema_path and error.schema_path[-1] == "additionalProperties":
        return ["no keys are allowed here" if error.instance_path else "this tool takes no arguments"]
    return ["no value is allowed here"]


def _other(error: ValidationError, about: _About) -> list[str]:
    return [error.message.replace(MASK, shown(error.instance))]


_SENTENCES: dict[str, Callable[[ValidationError, _About], list[str]]] = {
    "type": _type, "required": _required, "enum": _enum, "const": _const, "additionalProperties": _unknown,
    "unevaluatedProperties": _unknown, "falseSchema": _closed,
}  # fmt: skip


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"
