"""Declared tools and the tool choice, in the form of an interaction."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from callgate.declaration import AT_CLIENT, Declaration, declared_functions, without_functions
from callgate.errors import UsageError
from callgate.request import ModelRequest
from callgate.strict_json import objects_in
from callgate.types import JsonObject

__all__ = ["tool_choice_of", "tools_of"]

# Built-in tool of a declaration -> its type here.
_TYPES = {
    "googleSearch": "google_search", "codeExecution": "code_execution", "urlContext": "url_context",
    "googleMaps": "google_maps", "fileSearch": "file_search", "computerUse": "computer_use", "retrieval": "retrieval",
}  # fmt: skip
_FIELDS = {
    "googleSearch": ("search_types",), "codeExecution": (), "urlContext": (),
    "googleMaps": ("latitude", "longitude", "enable_widget"),
    "fileSearch": ("file_search_store_names", "top_k", "metadata_filter"),
    "computerUse": (
        "environment", "excluded_predefined_functions", "enable_prompt_injection_detection", "disabled_safety_policies",
    ),
    "retrieval": (
        "retrieval_types", "exa_ai_search_config", "parallel_ai_search_config", "rag_store_config",
        "vertex_ai_search_config",
    ),
}  # fmt: skip
"""The fields of each built-in tool here."""
_CHOICES = {"required": "any", "none": "none", "validated": "validated"}


def tools_of(declaration: Declaration) -> list[JsonObject]:
    """The declared tools: functions first, each with its JSON Schema, then the tools that run at Google.

    Raises:
        UsageError: a built-in tool that this API does not have.
    """
    tools: list[JsonObject] = [
        {"type": "function", **function, "parameters": _schema(function["parameters"])}
        for function in declared_functions(declaration)
    ]
    for built_in in without_functions(declaration).tools:
        for name, config in built_in.items():
            if name == "mcpServers":
                tools += [_mcp_server(server) for server in _servers(config)]
            elif name in _TYPES:
                tools.append({"type": _TYPES[name], **_fields(name, _snake(cast("Mapping[str, Any]", config or {})))})
            else:
                raise UsageError(f"the built-in tool {name!r} does not exist in the Interactions API; leave it out")
    return tools


def _fields(name: str, fields: JsonObject) -> JsonObject:
    """The fields of a built-in tool, in the words of this API.

    Raises:
        UsageError: a field that it does not have here.
    """
    known = _FIELDS.get(name)
    if known is not None and (unknown := [field for field in fields if field not in known]):
        raise UsageError(f"the built-in tool {name!r} has no {unknown[0]!r} in the Interactions API; leave it out")
    environment, kinds = fields.get("environment"), fields.get("search_types")
    if isinstance(environment, str):
        fields = fields | {"environment": environment.removeprefix("ENVIRONMENT_").lower()}
    if isinstance(kinds, Mapping):
        fields = fields | {"search_types": [*_snake(cast("Mapping[str, Any]", kinds))]}
    return fields


def tool_choice_of(request: ModelRequest) -> Any:
    """The tool choice; None where the server's default is meant, or there is nothing to choose.

    Raises:
        UsageError: the choice is none of the tools.
    """
    names = request.declaration.names
    if request.tool_config is None or not names:  # which raises for a choice that cannot be made
        return None
    choice = request.tool_choice
    if choice == "auto":
        at_google = [name for tool in without_functions(request.declaration).tools for name in tool if name not in AT_CLIENT]
        return "validated" if at_google or request.output is not None else None
    if choice in _CHOICES:
        return _CHOICES[choice]
    declared = next(declared for declared, own in names.items() if choice in (own, declared))
    return {"allowed_tools": {"mode": "any", "tools": [declared]}}


def _schema(schema: JsonObject) -> JsonObject:
    # An empty list is refused by some versions of the service.
    return {key: value for key, value in schema.items() if key != "required" or value}


def _servers(config: Any) -> list[JsonObject]:
    return objects_in([config] if isinstance(config, Mapping) else config)


def _mcp_server(server: JsonObject) -> JsonObject:
    """An MCP server that Google calls, from either spelling."""
    fields = _snake(server)
    transport: Any = fields.pop("streamable_http_transport", None)
    if isinstance(transport, Mapping):
        fields |= {
            key: value for key, value in _snake(cast("Mapping[str, Any]", transport)).items() if key in ("url", "headers")
        }
    if not isinstance(fields.get("name"), str) or not isinstance(fields.get("url"), str):
        raise UsageError("an MCP server that Google calls needs a name and a url")
    if "-" in fields["name"]:
        raise UsageError(f"the MCP server {fields['name']!r}: the Interactions API takes no '-' in its name")
    return {"type": "mcp_server", **{key: value for key, value in fields.items() if key != "type"}}


def _snake(fields: Mapping[str, Any]) -> JsonObject:
    return {re.sub("([A-Z])", r"_\1", key).lower(): value for key, value in fields.items()}
