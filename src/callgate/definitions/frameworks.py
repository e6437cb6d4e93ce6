"""Recognize tool objects of other frameworks, and read their definitions.

Objects of LangChain, pydantic-ai and the OpenAI Agents SDK are recognized by the names of their classes, so that none of
these packages is imported. Running them happens elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Literal, TypeAlias, cast

from callgate.types import JsonObject, ToolDefinition

__all__ = ["Framework", "definition_of", "framework_of", "may_be_foreign"]

Framework: TypeAlias = Literal["langchain", "openai_agents", "pydantic_ai", "pydantic_ai_toolset", "google_genai"]
"""The framework of a tool."""

_CLASSES: Mapping[tuple[str, str], Framework] = {
    ("langchain_core", "BaseTool"): "langchain",
    ("agents", "FunctionTool"): "openai_agents",
    ("pydantic_ai", "Tool"): "pydantic_ai",
    ("pydantic_ai", "AbstractToolset"): "pydantic_ai_toolset",
    ("google", "Tool"): "google_genai",
}
"""Top package and name of a class -> whose it is."""

# Attributes that an object must have in addition to its class name, which is not unique.
_MARKS: Mapping[Framework, str] = {
    "langchain": "tool_call_schema",
    "openai_agents": "params_json_schema",
    "pydantic_ai": "tool_def",
    "pydantic_ai_toolset": "get_tools",
    "google_genai": "function_declarations",
}


def framework_of(value: object) -> Framework | None:
    """Return the framework of a tool object, if callgate supports it."""
    names = _named_like(type(value))
    return next((name for name in names if hasattr(value, _MARKS[name])), None) if names else None


@lru_cache(maxsize=256)
def _named_like(kind: type) -> tuple[Framework, ...]:
    """The frameworks that have a class of this name, or of that of a base; nearly always none."""
    named = [(base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__]
    return tuple(_CLASSES[name] for name in named if name in _CLASSES)


def may_be_foreign(kind: type) -> bool:
    """True if objects of a class may be tools of a framework."""
    return bool(_named_like(kind))


def definition_of(value: object) -> ToolDefinition | None:
    """Return the definition of one framework tool; None if it is not a tool, or not a single one."""
    reader = _READERS.get(framework_of(value))
    return None if reader is None else reader(value)


def _of_langchain(tool: Any) -> ToolDefinition:
    schema: Any = tool.tool_call_schema
    if not isinstance(schema, dict):
        ask = getattr(schema, "model_json_schema", None) or schema.schema  # the second: models of pydantic version 1
        schema = ask()
    # `Tool(func=...)` has no schema but that of its own method, which takes anything: its arguments are what it says.
    own: JsonObject = {} if tool.args_schema is not None else tool.args
    if not own.keys() <= cast("JsonObject", schema).get("properties", {}).keys():
        schema = {"properties": own, "required": list(own)}
    return ToolDefinition(name=tool.name, description=tool.description or "", input_schema=_object(schema))


def _of_openai_agents(tool: Any) -> ToolDefinition:
    return ToolDefinition(
        name=tool.name,
        description=tool.description or "",
        input_schema=_object(tool.params_json_schema),
        timeout_s=getattr(tool, "timeout_seconds", None),
    )


def _of_pydantic_ai(tool: Any) -> ToolDefinition:
    return of_pydantic_ai_definition(tool.tool_def)


def of_pydantic_ai_definition(tool: Any) -> ToolDefinition:
    """Convert a definition of pydantic-ai."""
    return ToolDefinition(
        name=tool.name,
        description=tool.description or "",
        input_schema=_object(tool.parameters_json_schema),
        output_schema=getattr(tool, "return_schema", None) or None,
        sequential=bool(tool.sequential),
        timeout_s=getattr(tool, "timeout", None),
    )


def _object(schema: Any) -> JsonObject:
    """The schema of arguments, without the title and description that frameworks repeat from the tool."""
    fields = {key: value for key, value in cast("JsonObject", schema).items() if key not in ("title", "description")}
    empty: JsonObject = {"type": "object", "properties": {}}
    return empty | fields


_READERS: Mapping[Framework | None, Callable[[Any], ToolDefinition]] = {
    "langchain": _of_langchain,
    "openai_agents": _of_openai_agents,
    "pydantic_ai": _of_pydantic_ai,
}
