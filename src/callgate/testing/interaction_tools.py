"""The rules of the Interactions API for tools, their schemas and the choice among them.

Takes the body of a request; yields the breaches in the service's words. Sends nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from callgate.testing.google_fields import as_list, as_object
from callgate.testing.interaction_fields import InteractionRefusal, refuse
from callgate.types import JsonObject

__all__ = ["choice_breaches", "tool_breaches"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}")
_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_CHOICES = ("auto", "any", "none", "validated")
_COMPUTER_USE = (
    "open_web_browser", "wait_5_seconds", "go_back", "go_forward", "search", "navigate", "click_at", "hover_at",
    "type_text_at", "key_combination", "scroll_document", "scroll_at", "drag_and_drop",
)  # fmt: skip
_ENVIRONMENTS = ("browser", "mobile", "desktop")
_DEPTH_MAX = 32
_SCHEMA_MAX = 500_000


def _functions(request: JsonObject) -> list[str]:
    tools = map(as_object, as_list(request.get("tools")))
    return [str(tool.get("name")) for tool in tools if tool.get("type") == "function"]


def _predefined(request: JsonObject) -> list[str]:
    """The names that a tool for the use of computers takes."""
    tools = [as_object(tool) for tool in as_list(request.get("tools"))]
    found = [tool for tool in tools if tool.get("type") == "computer_use"]
    return [
        name for tool in found for name in _COMPUTER_USE if name not in as_list(tool.get("excluded_predefined_functions"))
    ]


def tool_breaches(request: JsonObject) -> Iterator[InteractionRefusal]:
    """Every rule that the tools of a request break."""
    names = [*_functions(request), *_predefined(request)]
    for place, tool in enumerate(map(as_object, as_list(request.get("tools")))):
        at = f"tools[{place}]"
        yield from _built_in(tool, at)
        if tool.get("type") != "function":
            continue
        name = tool.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield refuse("IR48", f"Invalid function name at '{at}'")
        if names.count(str(name)) > 1:
            yield refuse("IR49", f"Duplicate function declaration found: {name}")
        schema = tool.get("parameters", {"type": "object", "properties": {}})
        if len(json.dumps(schema)) > _SCHEMA_MAX:
            yield refuse("IR52", f"The schema at '{at}' is too large.")
        if as_object(schema).get("type") != "object":
            yield refuse("IR50", f"'parameters' must be a schema of an object at '{at}'")
        yield from _schema(schema, as_object(schema), at, 0)


def _built_in(tool: JsonObject, at: str) -> Iterator[InteractionRefusal]:
    if tool.get("type") == "mcp_server":
        url, headers = str(tool.get("url") or ""), as_object(tool.get("headers"))
        if not url.startswith("https://") or "-" in str(tool.get("name") or "-"):
            yield refuse("IR53", f"Invalid MCP server at '{at}'")
        if not all(isinstance(value, str) for value in headers.values()):
            yield refuse("IR53", f"Invalid headers at '{at}'")
    if tool.get("environment", "browser") not in _ENVIRONMENTS:
        yield refuse("IR76", f"Invalid enum value '{tool['environment']}' at '{at}'")
    if not isinstance(tool.get("search_types", []), list):
        yield refuse("IR76", f"Expected array of strings at '{at}.search_types'")


def _schema(schema: Any, root: JsonObject, at: str, depth: int) -> Iterator[InteractionRefusal]:
    node = as_object(schema)
    if depth > _DEPTH_MAX:
        yield refuse("IR52", f"The schema at '{at}' is too deep.")
        return
    kinds = as_list(node.get("type")) or ([node["type"]] if "type" in node else [])
    if any(kind not in _TYPES for kind in kinds):
        yield refuse("IR50", f"Unknown type at '{at}': {node.get('type')!r}")
    if isinstance(target := node.get("$ref"), str) and not _resolves(target, root):
        yield refuse("IR50", f"'{target}' at '{at}' does not resolve")
    properties = as_object(node.get("properties"))
    required = node.get("required")
    if required is not None and (not required or not set(as_list(required)) <= set(properties)):
        yield refuse("IR51", f"'required' at '{at}' must name properties")
    inner = [*properties.values(), *as_list(node.get("anyOf")), *as_list(node.get("prefixItems"))]
    inner += [*as_object(node.get("$defs")).values(), node.get("items")]
    for child in inner:
        if isinstance(child, dict):
            yield from _schema(child, root, at, depth + 1)


def _resolves(target: str, root: JsonObject) -> bool:
    node: Any = root
    for name in target.removeprefix("#").strip("/").split("/"):
        node = as_object(node).get(name) if name else node
    return target.startswith("#") and node is not None


def choice_breaches(request: JsonObject) -> Iterator[InteractionRefusal]:
    """Every rule that the tool choice of a request breaks."""
    choice = as_object(request.get("generation_config")).get("tool_choice")
    if choice is None:
        return
    allowed = as_object(as_object(choice).get("allowed_tools"))
    if choice not in _CHOICES and not (allowed and allowed.get("mode") in _CHOICES):
        yield refuse("IR43", f"Invalid enum value '{choice}'")
    names = _functions(request)
    if choice not in ("auto", "none") and not names:
        yield refuse("IR44", "Function calling config is set without function_declarations.")
    if unknown := [name for name in as_list(allowed.get("tools")) if name not in names]:
        yield refuse("IR45", f"'{unknown[0]}' in 'allowed_tools' is not declared.")
