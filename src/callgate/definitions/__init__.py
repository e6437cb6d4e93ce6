"""Convert foreign tool formats to `ToolDefinition`s, and tools, calls, results and histories between formats.

A definition is a tool's name, description and schema; running tools happens elsewhere. A format is one file and one row
of `FORMATS`. The names below are loaded on first use: programs that only pass functions need no formats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.lazy_names import lazy_names

if TYPE_CHECKING:
    from callgate.definitions.conversion import Converted, convert
    from callgate.definitions.detection import definition_from, definitions_from
    from callgate.definitions.format import Format, Kind
    from callgate.definitions.formats import FORMATS, format_named
    from callgate.definitions.function import ArgumentsInvalidError, FunctionTool, ToolOptions, function_tool, tool
    from callgate.definitions.json_node import ShapeError

__all__ = [
    "FORMATS", "ArgumentsInvalidError", "Converted", "Format", "FunctionTool", "Kind", "ShapeError", "ToolOptions",
    "convert",
    "definition_from", "definitions_from", "format_named", "function_tool", "tool",
]  # fmt: skip

__getattr__ = lazy_names(
    __name__,
    {
        "conversion": ("Converted", "convert"),
        "detection": ("definition_from", "definitions_from"),
        "format": ("Format", "Kind"),
        "formats": ("FORMATS", "format_named"),
        "function": ("ArgumentsInvalidError", "FunctionTool", "ToolOptions", "function_tool", "tool"),
        "json_node": ("ShapeError",),
    },
)
