"""Tools of any make in, `ToolDefinition`s out: one row of `FORMATS` per make.

A definition says what a tool is called, does and takes; how it runs is no business of this folder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from callgate.definitions.function import ArgumentsInvalid, FunctionTool, ToolOptions, function_tool, tool
from callgate.errors import UsageError
from callgate.types import ToolDefinition

__all__ = ["FORMATS", "ArgumentsInvalid", "FunctionTool", "ToolOptions", "definition_from", "function_tool", "tool"]


def _from_function(obj: Any) -> ToolDefinition:
    return function_tool(obj).definition


FORMATS: dict[str, Callable[[Any], ToolDefinition]] = {"function": _from_function}
"""What reads a tool of each make."""


def definition_from(obj: Any, format: str | None = None) -> ToolDefinition:
    """The definition of a tool. Without `format`, its make is detected.

    Raises:
        UsageError: the format is not known, or no format fits the object.
        ToolNotDeclarable: the object is of the format, but cannot be declared.
    """
    if isinstance(obj, ToolDefinition):
        return obj
    if isinstance(obj, FunctionTool):
        return obj.definition
    if format is None:
        format = _detected(obj)
    if format not in FORMATS:
        raise UsageError(f"there is no tool format {format!r}; the formats are {', '.join(map(repr, sorted(FORMATS)))}")
    return FORMATS[format](obj)


def _detected(obj: Any) -> str:
    if callable(obj):
        return "function"
    raise UsageError(
        f"no tool format fits {type(obj).__name__!r} object {repr(obj)[:80]}; Python callables are understood so far: "
        "pass a function, a bound method or a callable object, or build a ToolDefinition"
    )
