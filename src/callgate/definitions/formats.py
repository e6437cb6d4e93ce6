"""The table of formats: one module each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callgate.definitions import (
    amazon_q,
    anthropic,
    bedrock,
    gemini,
    interactions,
    json_schema,
    mcp,
    openai,
    snakepit,
)
from callgate.definitions.format import Format, Kind
from callgate.definitions.function import FunctionTool, function_tool
from callgate.definitions.items import Tool
from callgate.definitions.json_node import Node, ShapeError
from callgate.errors import UsageError
from callgate.types import ToolDefinition

__all__ = ["FORMATS", "format_named"]


def _detect_function(obj: Any) -> frozenset[Kind]:
    return frozenset({"tool"} if callable(obj) or isinstance(obj, (ToolDefinition, FunctionTool)) else ())


def _tools_from_function(node: Node) -> list[Tool]:
    given: Any = node.value
    if isinstance(given, FunctionTool):
        given = given.definition
    elif not isinstance(given, ToolDefinition):
        if not callable(given):
            raise ShapeError(node.at, f"expected something that can be called, found {type(given).__name__!r}")
        given = function_tool(given).definition
    return [Tool(definition=given, at=node.at)]


FUNCTION = Format(name="function", title="Python", detect=_detect_function, tools_from=_tools_from_function)

_MODULES = (mcp, openai, anthropic, amazon_q, bedrock, gemini, interactions, snakepit, json_schema)
FORMATS: Mapping[str, Format] = {row.name: row for row in (FUNCTION, *map(Format.of_module, _MODULES))}
"""Every format by its name."""


def format_named(name: str) -> Format:
    """Return the format of this name.

    Raises:
        UsageError: there is none.
    """
    if name not in FORMATS:
        raise UsageError(f"there is no tool format {name!r}; the formats are {', '.join(map(repr, sorted(FORMATS)))}")
    return FORMATS[name]
