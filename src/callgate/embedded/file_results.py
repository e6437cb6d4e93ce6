"""The results of file tools as answers: the text of a file word for word, and what was written in the tool's own sentence.

The contents and the tools come in, an answer goes out, or None where the model has to put the result into words. A small
model loses lines of a file that it repeats, and calls what was written what was read. Pure text work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, cast

from callgate.content.read import call_parts, is_response, parts_of, response_of
from callgate.types import Content, FunctionCall, ToolDefinition

__all__ = ["next_try", "told_result"]

TEXT_CHARS_MAX = 4_000
"""Characters of a file that are shown; the result has all of them."""

NO_FILE = "There is no file"
"""The beginning of the error of a file tool that was asked for one that does not exist."""
LISTS = "list_files"
_PLAIN = re.compile(r"[\w/-]+")
"""A name without an ending, and without a sign of patterns."""
_FENCE = re.compile(r"^ {0,3}(`{3,})", re.MULTILINE)


def told_result(contents: Sequence[Content], tools: Sequence[ToolDefinition]) -> str | None:
    """The answer to the one call at the end of the conversation, if it was one of a file tool that gave a text."""
    tool, args, response = _last_call(contents, tools)
    result = response.get("result")
    if tool is None or not isinstance(result, str):
        return None
    if not tool.read_only:
        return result
    path = args.get("path")
    return _file(path, result) if isinstance(path, str) else None


def next_try(contents: Sequence[Content], tools: Sequence[ToolDefinition]) -> FunctionCall | None:
    """The call that goes on after one for a file that there is not: the names with an ending, then one of them.

    People say `the README` and mean README.md. The names come from a call of their own, so that rules hold for it.
    """
    tool, args, response = _last_call(contents, tools)
    if tool is None or not tool.read_only:
        return None
    path = args.get("path")
    if str(response.get("error", "")).startswith(NO_FILE) and isinstance(path, str) and _PLAIN.fullmatch(path):
        return FunctionCall(name=LISTS, args={"pattern": f"{path}.*"}) if any(each.name == LISTS for each in tools) else None
    before, wanted, _ = _last_call(contents[:-2], tools)
    found = response.get("result")
    if (
        before is None
        or tool.name != LISTS
        or args.get("pattern") != f"{wanted.get('path')}.*"
        or not isinstance(found, list)
    ):
        return None
    near = min((each for each in cast("list[object]", found) if isinstance(each, str)), key=len, default=None)
    return None if near is None else FunctionCall(name=before.name, args={**wanted, "path": near})


def _last_call(
    contents: Sequence[Content], tools: Sequence[ToolDefinition]
) -> tuple[ToolDefinition | None, Mapping[str, Any], Mapping[str, Any]]:
    """The file tool of the one call at the end of the conversation, its arguments and its response."""
    results = [response_of(part) for part in parts_of(contents[-1]) if is_response(part)] if contents else []
    calls = call_parts(contents[-2]) if len(contents) > 1 else []
    if len(results) != 1 or len(calls) != 1:
        return None, {}, {}
    tool = next((tool for tool in tools if tool.name == calls[0].get("name") and tool.kind == "file"), None)
    return tool, _mapping(calls[0].get("args")), _mapping(results[0].get("response"))


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _file(path: str, text: str) -> str:
    """The text of a file, fenced, so that it stays as it is."""
    if not text.strip():
        return f"{path} is empty."
    shown = text if len(text) <= TEXT_CHARS_MAX else text[: text.rfind("\n", 0, TEXT_CHARS_MAX) + 1 or TEXT_CHARS_MAX]
    more = "" if shown == text else f"\n{len(text) - len(shown):,} more characters are in the result of the call."
    fence = "`" * (max((len(found) for found in _FENCE.findall(shown)), default=2) + 1)
    return f"{path} contains:\n\n{fence}{PurePosixPath(path).suffix[1:]}\n{shown.rstrip()}\n{fence}{more}"
