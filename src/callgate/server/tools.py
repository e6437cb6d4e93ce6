"""`GET /api/v1/tools` and `/api/v1/models`: what can be called, and who can be asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate.server.errors import json_response
from callgate.server.openapi import Operation, table
from callgate.server.views import tool_json
from callgate.types import JsonObject

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["routes", "servers_json"]

TOOLS: JsonObject = {
    "type": "object",
    "required": ["tools", "servers"],
    "properties": {
        "tools": {
            "type": "array",
            "description": "The tools: `name`, `description`, `schema`, `permission`, ...",
        },
        "servers": {"type": "array", "description": "The sources of the tools: `name`, `state`, `tools`, `error`, ..."},
    },
}
MODELS: JsonObject = {
    "type": "object",
    "required": ["providers", "default"],
    "properties": {
        "providers": {"type": "array", "description": "The providers that can be used, with their models."},
        "default": {"type": "object", "description": "The provider and the model of runs that name none."},
    },
}


def servers_json(service: Service) -> list[JsonObject]:
    """The places that tools come from, and how they are."""
    found: list[JsonObject] = []
    for toolset in service.gate.tools.toolsets:
        problem = getattr(toolset, "problem", None)
        found.append({
            "name": str(getattr(toolset, "name", type(toolset).__name__)),
            "kind": type(toolset).__name__,
            "state": "unavailable" if problem else "ready",
            "tools": [runnable.definition.name for runnable in toolset.runnables()],
            "error": problem,
        })  # fmt: skip
    return found


async def tools(service: Service, request: Request) -> Response:
    """The tools that can be called, and the places they come from."""
    service.gate.tools.refresh()
    declaration = service.gate.declaration
    listed = [
        tool_json(service, definition, [loss for loss in declaration.losses if loss.tool == definition.name])
        for definition in service.gate.definitions
    ]
    return json_response({"tools": listed, "servers": servers_json(service)})


async def models(service: Service, request: Request) -> Response:
    """Providers and models that a request may name, and the default."""
    gate = service.gate
    listed: list[JsonObject] = []
    for provider in service.providers.known.values():
        why = provider.why_not()
        names = [name for name in await service.providers.names(provider) if service.allows_model(provider.name, name)]
        listed.append({
            "name": provider.name, "models": names, "default": provider.default, "available": why is None, "why": why,
        })  # fmt: skip
    default = {"provider": service.providers.default_provider(gate), "model": gate.model.name, "mode": gate.mode}
    return json_response({"providers": listed, "default": default})


OPERATIONS = (
    Operation("GET", "/api/v1/tools", tools, gives={200: TOOLS}),
    Operation("GET", "/api/v1/models", models, gives={200: MODELS}),
)


def routes(service: Service) -> list[Route]:
    """The routes of tools and models."""
    return table(service, OPERATIONS)
