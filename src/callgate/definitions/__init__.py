"""Tools of any make in, `ToolDefinition`s out, and everything of one make in that of another one.

A definition says what a tool is called, does and takes; how it runs is no business of this folder. A format is one file, and
one row of `FORMATS`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from callgate.errors import UsageError
from callgate.types import ToolDefinition

if TYPE_CHECKING:
    from callgate.definitions.conversion import Converted, convert
    from callgate.definitions.format import Format, Kind
    from callgate.definitions.formats import FORMATS, format_named
    from callgate.definitions.function import ArgumentsInvalid, FunctionTool, ToolOptions, function_tool, tool
    from callgate.definitions.reading import ShapeError

__all__ = [
    "FORMATS", "ArgumentsInvalid", "Converted", "Format", "FunctionTool", "Kind", "ShapeError", "ToolOptions", "convert",
    "definition_from", "definitions_from", "format_named", "function_tool", "tool",
]  # fmt: skip

# Loaded when first used: whoever brings Python functions alone does not wait for eight formats to be imported.
_PLACES = {
    "ArgumentsInvalid": "function", "FunctionTool": "function", "ToolOptions": "function", "function_tool": "function",
    "tool": "function", "Converted": "conversion", "convert": "conversion", "FORMATS": "formats", "format_named": "formats",
    "Format": "format", "Kind": "format", "ShapeError": "reading",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def definition_from(obj: Any, format: str | None = None) -> ToolDefinition:
    """The definition of one tool: a dict, an object of an SDK or a callable. Without `format`, its make is detected.

    Raises:
        UsageError: the format is not known, no format fits, several do and read it differently, or it holds several tools.
        ShapeError: the object is not what its format has.
        ToolNotDeclarable: the object is of the format, but cannot be declared.
    """
    if isinstance(obj, ToolDefinition):
        return obj
    from callgate.definitions.function import FunctionTool

    if isinstance(obj, FunctionTool):
        return obj.definition
    found = definitions_from(obj, format)
    if len(found) != 1:
        raise UsageError(f"the object holds {len(found)} tools, not one: use definitions_from")
    return found[0]


def definitions_from(obj: Any, format: str | None = None) -> list[ToolDefinition]:
    """The definitions of all tools in a list, a file or an object that holds several. A list may mix formats.

    Raises:
        UsageError: as `definition_from`.
    """
    from callgate.definitions.detection import read
    from callgate.definitions.formats import format_named
    from callgate.definitions.reading import plain

    if format is not None:
        format_named(format)
    return [item.definition for item in read(plain(obj), source=format, kind="tool", say="format").items]
