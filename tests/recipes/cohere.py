"""Cohere's older shape of tools: parameters with Python's type names, one by one.

What a parameter's schema says beyond its type and description has no place there. Knows no calls and no histories.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from callgate.definitions import transfer
from callgate.definitions.format import Kind, WriteContext
from callgate.definitions.items import Tool
from callgate.definitions.json_node import Node, ShapeError, pointer
from callgate.types import JsonObject, ToolDefinition

TITLE = "Cohere"
_FIELD = "parameter_definitions"
_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "dict": "object", "list": "array"}
_NAMES = {json: python for python, json in _TYPES.items()}


def detect(obj: JsonObject) -> frozenset[Kind]:
    """Return the kinds that an object may be."""
    return frozenset({"tool"} if isinstance(obj.get("name"), str) and isinstance(obj.get(_FIELD), dict) else ())


def tools_from(node: Node) -> list[Tool]:
    """A tool with its parameters."""
    properties: JsonObject = {}
    required: list[str] = []
    parameters = node.need(_FIELD)
    for name in parameters.object:
        parameter = parameters.child(name)
        kind = parameter.need("type").text
        if kind not in _TYPES:
            raise ShapeError(parameter.at, f"the type {kind!r} is not known")
        words = parameter.find_text("description")
        properties[name] = {"type": _TYPES[kind]} | ({"description": words} if words else {})
        if (flag := parameter.find("required")) is not None and flag.flag:
            required.append(name)
        parameter.lose_unread(f"{TITLE}: a parameter has no such field")
    schema: JsonObject = {"type": "object", "properties": properties} | ({"required": required} if required else {})
    description = node.find_text("description") or ""
    definition = ToolDefinition(name=node.need("name").text, description=description, input_schema=schema)
    places = {f"/properties/{name}": pointer(f"/{_FIELD}", name) for name in properties}
    return [Tool(definition=definition, at=node.at, places={"input_schema": f"/{_FIELD}", **places})]


def tools_to(tools: Sequence[Tool], out: WriteContext) -> list[Any]:
    """Tools with their parameters; every other word of a schema is a loss."""
    return [_written(tool, out) for tool in tools]


def _written(tool: Tool, out: WriteContext) -> JsonObject:
    definition = tool.definition
    transfer.report_tool(tool, out, TITLE)
    schema = transfer.schema_to(definition)
    place = f"{tool.at}{tool.places.get('input_schema', '/input_schema')}"
    for key in schema:
        if key not in ("type", "properties", "required"):
            out.lose(f"{place}/{key}", key, f"{TITLE}: a tool has parameters and nothing around them")
    parameters: JsonObject = {}
    for name, inner in schema.get("properties", {}).items():
        said: Any = inner if isinstance(inner, dict) else {}
        kind = said.get("type")
        for key in said:
            if key not in ("type", "description") or (key == "type" and kind not in _NAMES):
                out.lose(f"{pointer(f'{place}/properties', name)}/{key}", key, f"{TITLE}: a parameter has a type only")
        words = said.get("description")
        parameters[name] = {
            "type": _NAMES.get(kind, "dict") if isinstance(kind, str) else "dict",
            **({"description": words} if isinstance(words, str) else {}),
            "required": name in schema.get("required", ()),
        }
    described = {"description": definition.description} if definition.description else {}
    return {"name": definition.name, **described, _FIELD: parameters}
