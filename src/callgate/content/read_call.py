"""Sanitize the parts of a model's answer for the history, and read the calls among them as `FunctionCall`s.

The collector and the conversation share the functions of this file, so the one never passes what the other refuses. Takes
parts of a wire or a custom model; only function responses, which a model may not write, are left for the caller to
refuse.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from callgate import strict_json
from callgate.content.build import with_args
from callgate.content.normalize import UNREADABLE, sendable_part, spelled_part, with_sound_fields
from callgate.content.plain_look import ExactLook
from callgate.content.read import call_of, is_call, is_sound_text, parts_of
from callgate.errors import JsonError
from callgate.types import FunctionCall, JsonObject, Part

__all__ = [
    "ARGS_CHARS_MAX",
    "ARGS_VALUES_MAX",
    "CleanPart",
    "clean_part",
    "excess_of",
    "model_fields",
    "new_call_id",
    "read_call",
    "sound_fields",
    "too_deep",
]

ARGS_VALUES_MAX = 100_000
"""A call with more values in its arguments is refused: checking them all would block everything else."""

ARGS_CHARS_MAX = 16 * 1024 * 1024
"""A call with more characters is refused too: every pass over them takes time, and file tools write fewer anyway."""

# Invalid arguments deeper than this are not kept: the server might refuse such a deep request.
_BAD_DEPTH_MAX = 32

# A part contains a call, which contains the arguments.
_PART_DEPTH_MAX = strict_json.DEPTH_MAX + 3


def new_call_id() -> str:
    """Generate an id for a call. Pass another source for reproducible ids."""
    return f"call_{uuid.uuid4().hex[:16]}"


def model_fields(content: Mapping[str, Any], *, is_plain: bool = False) -> JsonObject:
    """Return the fields of a model content as a history may hold them; a valid part stays the same object.

    Function responses and empty parts stay: the caller refuses or drops them. `is_plain` says that the content is known to
    be plain JSON within the limits, as that of a collector is.
    """
    parts = [_model_part(part, is_plain) for part in parts_of(content)]
    return {**sound_fields(content), "role": "model", "parts": [part for part in parts if part]}


def sound_fields(content: Mapping[str, Any]) -> JsonObject:
    """Return the fields of a content besides its role and its parts, as plain JSON."""
    if len(content) == ("role" in content) + ("parts" in content):
        return {}
    fields = {key: value for key, value in content.items() if key not in ("role", "parts")}
    return fields if strict_json.is_sound(fields) else strict_json.without_bad(strict_json.isolate(fields))


def _model_part(part: Part, is_plain: bool) -> Part:
    if is_sound_text(part):
        return part
    clean = clean_part(part, is_plain=is_plain)
    return sendable_part(clean.part, is_shallow=clean.is_shallow) if is_call(clean.part) else clean.part


@dataclass(frozen=True, slots=True)
class CleanPart:
    """A part of plain JSON in Google's spelling, and findings about its call."""

    part: Part
    problem: str | None = None
    """The reason why the call cannot run."""
    notes: tuple[str, ...] = ()
    is_shallow: bool = False
    """True if it is known not to be nested too deeply."""


_FEW = 100
"""Number of values up to which a look at each is quicker than one at all together."""


def _is_sound(part: Part) -> bool:
    """True for plain JSON within the limits."""
    return (
        strict_json.is_sound(part, values_max=_FEW, chars_max=ARGS_CHARS_MAX)
        or ExactLook(ARGS_VALUES_MAX, ARGS_CHARS_MAX).is_fine(part)
        or strict_json.is_sound(part, values_max=ARGS_VALUES_MAX, chars_max=ARGS_CHARS_MAX)
    )


def clean_part(part: Part, *, is_plain: bool = False) -> CleanPart:
    """Return the part as plain JSON in camelCase, with a value of the right type in every field that has one.

    `is_plain` says that it is known to be plain JSON within the limits, and need not be walked through.
    """
    if not is_plain and is_call(part) and isinstance(args := call_of(part).get("args"), strict_json.EncodedObject):
        part = with_args(part, dict(args))  # Somebody may have changed it since.
    if is_plain or _is_sound(part):
        return CleanPart(with_sound_fields(spelled_part(part)), is_shallow=True)
    part, problem = _without_excess(part)
    marked: Part = spelled_part(strict_json.isolate(part, depth_max=_PART_DEPTH_MAX))
    clean = with_sound_fields(spelled_part(strict_json.without_bad(marked)))
    if problem or not is_call(marked):
        return CleanPart(clean, problem)
    args: Any = call_of(marked).get("args")
    notes = args.notes if isinstance(args, strict_json.AnnotatedObject) else ()
    problem = strict_json.first_bad(call_of(marked))
    if problem and strict_json.depth_exceeds(call_of(clean).get("args"), _BAD_DEPTH_MAX):
        clean = with_args(clean, {UNREADABLE: problem})
    elif not problem and strict_json.was_replaced(args):
        notes = (*notes, "Characters that are not valid Unicode were replaced by U+FFFD.")
    return CleanPart(clean, problem, notes)


def _without_excess(part: Part) -> tuple[Part, str | None]:
    """The part without arguments that are too many to be looked at, and why they are."""
    for key in ("functionCall", "function_call"):
        inner: Any = part.get(key)
        if isinstance(inner, dict) and (bad := excess_of(cast("JsonObject", inner).get("args"))):
            return {**part, key: {**cast("JsonObject", inner), "args": {UNREADABLE: bad}}}, bad
    return part, None


def read_call(clean: CleanPart, new_id: Callable[[], str]) -> tuple[FunctionCall, Part]:
    """The call of a part, and the part as it may go back: with a name, and without an id that cannot be echoed."""
    args, problem, notes = _read_args(call_of(clean.part).get("args"), is_shallow=clean.is_shallow)
    if clean.problem:
        problem = clean.problem if clean.problem.endswith(".") else f"The arguments cannot be used: {clean.problem}."
    named = call_of(clean.part).get("name")
    part = sendable_part(clean.part, is_shallow=clean.is_shallow)
    inner = call_of(part)
    if inner["name"] != named:
        problem = "The call does not name a tool."
    call = FunctionCall(
        name=inner["name"],
        args=args,
        id=new_id(),
        wire_id=inner.get("id"),
        problem=problem,
        notes=(*clean.notes, *notes),
    )
    return call, part


def _read_args(raw: Any, *, is_shallow: bool) -> tuple[JsonObject, str | None, tuple[str, ...]]:
    """Arguments, or why there are none. Missing means empty; a JSON text is parsed; nothing else is guessed."""
    notes: tuple[str, ...] = ()
    if isinstance(raw, str):
        if len(raw) > ARGS_CHARS_MAX:
            return {}, f"The arguments cannot be used: {_TOO_LONG}.", ()
        if raw.count('":') > ARGS_VALUES_MAX:
            return {}, f"The arguments cannot be used: they hold more than {ARGS_VALUES_MAX:,} values.", ()
        try:
            raw = strict_json.parse_isolating(raw)
        except JsonError as error:
            return {}, f"The arguments are not valid JSON: {error}. Send them as an object.", ()
        if bad := strict_json.first_bad(raw):
            return {}, f"The arguments cannot be used: {bad}.", ()
        raw = strict_json.without_bad(raw) if strict_json.was_replaced(raw) else raw
        notes, is_shallow = ("The arguments came as JSON text.",), False
    if raw is None:
        return {}, None, notes
    if not isinstance(raw, dict):
        return {}, f"The arguments must be an object, not {type(raw).__name__}.", notes
    if not is_shallow and (bad := too_deep(cast("JsonObject", raw))):
        return {}, f"The arguments are {bad}.", notes
    # A validator takes no objects but Python's own.
    return dict(raw) if isinstance(raw, strict_json.EncodedObject) else cast("JsonObject", raw), None, notes


def too_deep(args: JsonObject) -> str | None:
    """Return why the arguments are nested too deeply, or None."""
    deep = strict_json.depth_exceeds(args, strict_json.DEPTH_MAX)
    return f"nested deeper than {strict_json.DEPTH_MAX} levels" if deep else None


_TOO_LONG = f"they hold more than {ARGS_CHARS_MAX:,} characters"


def excess_of(args: Any) -> str | None:
    """Return why the arguments are too many, or None."""
    left, chars_left = ARGS_VALUES_MAX, ARGS_CHARS_MAX
    stack: list[Any] = [args]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            chars_left -= len(item)
            if chars_left < 0:
                return _TOO_LONG
        elif isinstance(item, (dict, list)):
            children = cast("dict[str, Any] | list[Any]", item)
            left -= len(children)
            if left < 0:
                return f"they hold more than {ARGS_VALUES_MAX:,} values"
            stack.extend(children.values() if isinstance(children, dict) else children)
    return None
