"""One function call part -> one `FunctionCall`, and the part as it can be sent back. Bounded whatever the arguments are."""

from __future__ import annotations

import json
import uuid
from typing import Any, cast

from callgate import strict_json
from callgate.content.build import with_args
from callgate.content.normalize import UNREADABLE, sendable_part
from callgate.content.read import call_of
from callgate.errors import JsonError
from callgate.types import FunctionCall, JsonObject, Part

__all__ = ["ARGS_CHARS_MAX", "ARGS_VALUES_MAX"]

ARGS_VALUES_MAX = 100_000
"""A call with more values in its arguments than this is refused: checking them all would hold up everything else."""

ARGS_CHARS_MAX = 16 * 1024 * 1024
"""So is one with more characters; every look at them takes its time, and a file tool writes fewer anyway."""

# Arguments that are bad and deeper than this are not kept: the server might not take so deep a request.
_BAD_DEPTH_MAX = 32


def with_whole_characters(part: Part) -> Part:
    """The part as our own reader would have read it: `json.loads` leaves halves of characters as they are."""
    args: Any = call_of(part).get("args")
    stack: list[Any] = [args]
    left = ARGS_VALUES_MAX
    while stack and left >= 0:
        item = stack.pop()
        if isinstance(item, str):
            if not item.isascii() and strict_json.without_surrogates(item) != item:
                return with_args(part, strict_json.parse_isolating(json.dumps(args, default=str)))
        elif isinstance(item, (dict, list)):
            members = cast("dict[Any, Any] | list[Any]", item)
            left -= len(members)
            stack.extend((*members, *members.values()) if isinstance(members, dict) else members)
    return part


def read_call(part: Part) -> tuple[FunctionCall, Part]:
    """The call of a part, and the part as it may go back: with a name, and without an id that cannot be echoed."""
    bad = excess_of(call_of(part).get("args"))
    if bad:
        part = with_args(part, {UNREADABLE: bad})
    elif bad := strict_json.first_bad(part):
        part = strict_json.mended(part)
        if strict_json.depth_exceeds(call_of(part).get("args"), _BAD_DEPTH_MAX):
            part = with_args(part, {UNREADABLE: bad})
    replaced = not bad and strict_json.was_replaced(call_of(part).get("args"))
    if replaced:
        part = strict_json.mended(part)
    args, problem, notes = _read_args(call_of(part).get("args"))
    if isinstance(args, strict_json.Noted):
        notes, args = (*args.notes, *notes), dict(args)
        part = with_args(part, args)
    if replaced:
        notes = (*notes, "Characters that are not valid Unicode were replaced by U+FFFD.")
    if bad:
        problem = bad if bad.endswith(".") else f"The arguments cannot be used: {bad}."
    named = call_of(part).get("name")
    part = sendable_part(part)
    inner = call_of(part)
    if inner["name"] != named:
        problem = "The call does not name a tool."
    call = FunctionCall(
        name=inner["name"], args=args, id=new_call_id(), wire_id=inner.get("id"), problem=problem, notes=notes
    )  # fmt: skip
    return call, part


def _read_args(raw: Any) -> tuple[JsonObject, str | None, tuple[str, ...]]:
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
        notes = ("The arguments came as JSON text.",)
    if raw is None:
        return {}, None, notes
    if not isinstance(raw, dict):
        return {}, f"The arguments must be an object, not {type(raw).__name__}.", notes
    if strict_json.depth_exceeds(raw, strict_json.DEPTH_MAX):
        return {}, f"The arguments are nested deeper than {strict_json.DEPTH_MAX} levels.", notes
    return cast("JsonObject", raw), None, notes


_TOO_LONG = f"they hold more than {ARGS_CHARS_MAX:,} characters"


def excess_of(args: Any) -> str | None:
    """Why the arguments are too many to be looked at, or None."""
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


def new_call_id() -> str:
    return f"call_{uuid.uuid4().hex[:16]}"
