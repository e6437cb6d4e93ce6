"""Adapt google-genai's tools to tools of a gate.

Takes a `types.Tool` and the functions for its declarations; returns functions with the declared schemas, and the names of
tools that run at Google. Arguments are checked against the declared schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from callgate.definitions import definitions_from, function_tool
from callgate.definitions.function import FunctionTool
from callgate.errors import ToolNotDeclarableError
from callgate.types import JsonObject, ToolDefinition

__all__ = ["tools_of"]


def tools_of(tools: Iterable[Any], functions: Mapping[str, Callable[..., Any]]) -> list[object]:
    """Return the tools for a gate.

    Raises:
        ToolNotDeclarableError: a declaration has no function, a function no declaration, or their arguments do not fit.
    """
    found: list[object] = []
    unused = set(functions)
    for item in tools:
        if callable(item):
            found.append(item)
            continue
        fields: JsonObject = (
            dict(cast("JsonObject", item))
            if isinstance(item, Mapping)
            else item.model_dump(mode="json", by_alias=True, exclude_none=True)
        )
        spelled = [name for name in fields if name.replace("_", "").lower() == "functiondeclarations"]
        declarations = [fields.pop(name) for name in spelled]
        if any(declarations):
            declared = definitions_from(item, "gemini")
            found += [_bound(definition, functions) for definition in declared]
            unused -= {definition.name for definition in declared}
        found += [{name: configuration} for name, configuration in fields.items()]
    if unused:
        raise ToolNotDeclarableError(
            f"no declaration is there for the function {min(unused)!r}: declare it, or leave it out"
        )
    return found


def _bound(definition: ToolDefinition, functions: Mapping[str, Callable[..., Any]]) -> FunctionTool:
    if definition.name not in functions:
        raise ToolNotDeclarableError(f"nothing runs the declared function {definition.name!r}: pass it in functions=[...]")
    tool = function_tool(functions[definition.name], name=definition.name)
    own = tool.definition
    schema: JsonObject = {"type": "object", "properties": {}, **definition.input_schema}
    if unknown := sorted({*schema["properties"]} - {*own.input_schema["properties"]}):
        raise ToolNotDeclarableError(
            f"the declaration of {definition.name!r} has the argument {unknown[0]!r}, which its function does not have by "
            "that name: add it there, or leave it out of the declaration"
        )
    if missing := sorted({*own.input_schema.get("required", ())} - {*schema["properties"]}):
        raise ToolNotDeclarableError(
            f"the function of {definition.name!r} needs {missing[0]!r}, which is not declared: declare it, or give it a "
            "default"
        )
    tool.definition = replace(own, description=definition.description or own.description, input_schema=schema)
    return tool
