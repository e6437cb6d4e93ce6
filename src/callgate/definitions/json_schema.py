"""A JSON Schema with a name: its title, or a `name` next to it.

Such a schema describes the arguments of a tool and nothing else. Knows nothing of other formats.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from callgate.definitions import transfer
from callgate.definitions.format import Kind, WriteContext
from callgate.definitions.items import Tool
from callgate.definitions.json_node import Node, ShapeError
from callgate.types import JsonObject, ToolDefinition

TITLE = "JSON Schema"
_OTHERS = frozenset({
    "input_schema", "inputSchema", "parameters", "function", "content", "role", "parts", "args", "arguments",
})  # fmt: skip


def detect(obj: JsonObject) -> frozenset[Kind]:
    """Return the kinds that an object may be."""
    if not _OTHERS.isdisjoint(obj) or not any(isinstance(obj.get(key), str) for key in ("name", "title")):
        return frozenset()
    wrapped = isinstance(obj.get("name"), str) and isinstance(obj.get("schema"), dict)
    return frozenset({"tool"} if wrapped or "$schema" in obj or isinstance(obj.get("properties"), dict) else ())


def tools_from(node: Node) -> list[Tool]:
    """A schema with its name, or an object of both."""
    name = node.find_text("name")
    title = node.find_text("title")
    description = node.find_text("description") or ""
    schema = node.find("schema") if name is not None else None
    extra: JsonObject = {}
    if schema is None:
        schema = Node({key: child.value for key, child in node.unread.items()}, node.at, node.losses)
        if name is None:
            name, title = title, None
    else:
        extra = transfer.extra_of(node, {"strict": False})
    if name is None:
        raise ShapeError(node.at, "the schema has no name: give it a 'title', or a 'name' beside it")
    definition = ToolDefinition(name=name, title=title, description=description, input_schema=transfer.schema_from(schema))
    place = schema.at.removeprefix(node.at)
    return [Tool(definition=definition, at=node.at, extra=extra, places={"input_schema": place})]


def tools_to(tools: Sequence[Tool], out: WriteContext) -> list[Any]:
    """Schemas with the names of their tools."""
    return [_schema(tool, out) for tool in tools]


def _schema(tool: Tool, out: WriteContext) -> JsonObject:
    definition = tool.definition
    transfer.report_tool(tool, out, TITLE, says=("title",))
    schema = transfer.tool_schema(tool, out, TITLE)
    for key in ("title", "description", "name"):
        if key in schema:
            place = tool.places.get("input_schema", "/input_schema")
            out.lose(f"{tool.at}{place}/{key}", key, f"{TITLE}: the tool's own {key} stands there")
            del schema[key]
    named: JsonObject = {"title": definition.name}
    if definition.title:
        named = {"name": definition.name, "title": definition.title}
    return named | ({"description": definition.description} if definition.description else {}) | schema
