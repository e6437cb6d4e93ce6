"""Calls that would change something, checked against the user's own words.

Decoded calls and the newest words of the user come in; the same calls go out, made harmless where the words say so, or a
sentence that declines them. A small model takes the nearest tool that writes for whatever it is asked, and a file of ten
messages ago. Pure text work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from callgate.embedded.decoder import Decoded
from callgate.embedded.shapes import as_object, properties_of
from callgate.types import ToolDefinition

__all__ = ["checked_effects", "with_effects_checked"]

NOT_NAMED = "I won't change {name}: you did not name it. Say which file you mean, and what to do with it."
NOT_A_TEXT = (
    "I can't tell which text of {path} to replace. Say the whole of it, as in: replace '{old} = 1' with '{old} = {new}' in "
    "{path}."
)

NOT_SAID = "I can't tell what to look for. Say the words that I should search the files for."

Call = tuple[str, dict[str, Any]]

_ADDS = re.compile(
    r"\s*(?:please\s+|(?:can|could|would) you\s+(?:please\s+)?)?(?:add|append|insert|put|note|füge|ergänze)\b", re.IGNORECASE
)
_BACK = re.compile(r"\b(?:it|that|this|there|them|same|the file|again|dort|darin|hinein|es|datei)\b", re.IGNORECASE)
_SETS = re.compile(r"\b(?:change|set|update|make|turn|ändere|setze)\b[^.!?]{0,200}\b(?:to|into|auf|zu)\b", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_PLACES = ("path", "file", "filename", "file_name", "target", "destination")


def checked_effects(calls: Sequence[Call], tools: Sequence[ToolDefinition], spoken: str) -> tuple[list[Call], str | None]:
    """The calls to make; or none, and the sentence that says why."""
    known = {tool.name: tool for tool in tools}
    made: list[Call] = []
    for name, args in calls:
        tool = known.get(name)
        if tool is None or tool.kind != "file":
            made.append((name, args))
            continue
        problem = _unsaid_pattern(args, spoken) if tool.read_only else _problem(args, spoken)
        if problem is not None:
            return [], problem
        made.append((name, _without_plural(args) if tool.read_only else _appending(tool, args, spoken)))
    return made, None


def with_effects_checked(decoded: Decoded, tools: Sequence[ToolDefinition], spoken: str) -> Decoded:
    """The outcome with its calls checked."""
    calls, why = checked_effects(decoded.calls, tools, spoken)
    return replace(decoded, calls=calls, is_declined=decoded.is_declined or why is not None, why=why or decoded.why)


def _problem(args: Mapping[str, Any], spoken: str) -> str | None:
    place = next((args[key] for key in _PLACES if isinstance(args.get(key), str)), None)
    if place is not None and not _is_named(place, spoken) and not _BACK.search(spoken):
        return NOT_NAMED.format(name=place)
    old, new = args.get("old_string"), args.get("new_string")
    if (
        isinstance(old, str)
        and isinstance(new, str)
        and _NAME.fullmatch(old)
        and _SETS.search(spoken)
        and _is_value(old, new, spoken)
    ):
        return NOT_A_TEXT.format(path=place or "the file", old=old, new=new)
    return None


def _unsaid_pattern(args: Mapping[str, Any], spoken: str) -> str | None:
    """Words to search for come from the question itself, not from an earlier one."""
    pattern = args.get("pattern")
    is_said = not isinstance(pattern, str) or pattern.casefold() in spoken.casefold() or bool(_BACK.search(spoken))
    return None if is_said else NOT_SAID


def _without_plural(args: dict[str, Any]) -> dict[str, Any]:
    """`TODOs` are many `TODO`."""
    pattern = args.get("pattern")
    is_plural = isinstance(pattern, str) and re.fullmatch(r"[A-Z]{2,}s", pattern)
    return {**args, "pattern": pattern[:-1]} if is_plural and isinstance(pattern, str) else args


def _is_named(place: str, spoken: str) -> bool:
    said, name = spoken.casefold(), place.casefold()
    stem = name.rpartition("/")[2].partition(".")[0]
    return name in said or name.rpartition("/")[2] in said or (len(stem) > 2 and stem in said)


def _is_value(old: str, new: str, spoken: str) -> bool:
    """True if the words set a name to a value, and the call would put the value in place of the name."""
    return new.replace(".", "", 1).isdigit() or bool(
        re.search(rf"\b(?:set|turn|update)\s+(?:the\s+)?{re.escape(old)}\b", spoken, re.IGNORECASE)
    )


def _appending(tool: ToolDefinition, args: dict[str, Any], spoken: str) -> dict[str, Any]:
    """The arguments with the mode that adds, where the user adds something: what is there stays there."""
    shape = as_object(properties_of(as_object(tool.input_schema)).get("mode"))
    choices = cast("list[Any]", shape.get("enum") or [])
    if "append" in choices and args.get("mode", shape.get("default")) != "append" and _ADDS.match(spoken):
        content = args.get("content")
        text = f"{content}\n" if isinstance(content, str) and content and not content.endswith("\n") else content
        return {**args, "mode": "append", **({"content": text} if content is not None else {})}
    return args
