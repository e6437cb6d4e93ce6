"""CloudGenie's catalogue in memory: blueprints, and the resources created from them.

Its eight tools are served to any MCP client by

    callgate mcp serve -T examples/cloudgenie/catalogue.py            # over stdin and stdout
    callgate mcp serve -T examples/cloudgenie/catalogue.py --http     # at http://127.0.0.1:8082/mcp
"""

from __future__ import annotations

import threading
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from callgate import ToolError, tool

Status = Literal["provisioning", "running", "stopped", "failed"]


@dataclass(frozen=True)
class Blueprint:
    """A template for resources."""

    id: str
    name: str
    type: str
    description: str
    properties: tuple[str, ...] = ()


@dataclass
class Resource:
    """A resource created from a blueprint."""

    id: str
    name: str
    type: str
    blueprint_id: str
    status: Status = "provisioning"
    properties: dict[str, Any] = field(default_factory=dict)


BLUEPRINTS = {
    blueprint.id: blueprint
    for blueprint in [
        Blueprint("postgresql-blueprint", "PostgreSQL", "database", "A relational database.", ("version", "storage_gb")),
        Blueprint("redis-blueprint", "Redis", "cache", "A cache in memory.", ("memory_mb",)),
        Blueprint("bucket-blueprint", "Bucket", "storage", "A place for files.", ("region",)),
        Blueprint("cluster-blueprint", "Kubernetes", "cluster", "A cluster that runs containers.", ("nodes",)),
    ]
}
RESOURCES = {"res-1": Resource("res-1", "web-cache", "cache", "redis-blueprint", "running", {"memory_mb": 512})}

lock = threading.Lock()  # Calls of several clients run concurrently.


@tool(read_only=True)
def cloudgenie_health_check() -> dict[str, Any]:
    """Check whether CloudGenie works."""
    with lock:
        return {"status": "healthy", "blueprints": len(BLUEPRINTS), "resources": len(RESOURCES)}


@tool(read_only=True)
def cloudgenie_get_blueprints() -> list[dict[str, Any]]:
    """Retrieve all available blueprints."""
    return [asdict(blueprint) for blueprint in BLUEPRINTS.values()]


@tool(read_only=True)
def cloudgenie_get_blueprint(id: str) -> dict[str, Any]:
    """Retrieve one blueprint.

    Args:
        id: ID of the blueprint.
    """
    return asdict(_blueprint(id))


@tool(read_only=True)
def cloudgenie_get_resources() -> list[dict[str, Any]]:
    """Retrieve all resources with their status."""
    with lock:
        return [asdict(resource) for resource in RESOURCES.values()]


@tool(read_only=True)
def cloudgenie_get_resource(id: str) -> dict[str, Any]:
    """Retrieve one resource with its status.

    Args:
        id: ID of the resource.
    """
    with lock:
        return asdict(_resource(id))


@tool
def cloudgenie_create_resource(
    name: str, type: str, blueprint_id: str, properties: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Create a new resource.

    Args:
        name: Name of the resource.
        type: Type of resource, as its blueprint has it.
        blueprint_id: ID of blueprint to use.
        properties: Settings that the blueprint knows.
    """
    blueprint = _blueprint(blueprint_id)
    if type != blueprint.type:
        raise ToolError(f"The blueprint {blueprint_id!r} makes a {blueprint.type!r}, not a {type!r}.")
    if unknown := sorted(set(properties or {}) - set(blueprint.properties)):
        known = ", ".join(blueprint.properties) or "none"
        raise ToolError(f"The blueprint {blueprint_id!r} has no property {unknown[0]!r}; it has: {known}.")
    with lock:
        if any(resource.name == name for resource in RESOURCES.values()):
            raise ToolError(f"There is a resource named {name!r} already.")
        number = 1 + max((int(key.removeprefix("res-")) for key in RESOURCES), default=0)
        resource = Resource(f"res-{number}", name, type, blueprint_id, properties=dict(properties or {}))
        RESOURCES[resource.id] = resource
        return asdict(resource)


@tool(idempotent=True)
def cloudgenie_update_resource_status(id: str, status: Status) -> dict[str, Any]:
    """Set the status of a resource.

    Args:
        id: ID of the resource.
        status: The new status.
    """
    with lock:
        _resource(id).status = status
        return asdict(_resource(id))


@tool
def cloudgenie_delete_resource(id: str) -> dict[str, Any]:
    """Delete a resource. This cannot be undone.

    Args:
        id: ID of the resource.
    """
    with lock:
        return {"deleted": asdict(RESOURCES.pop(_resource(id).id))}


def _blueprint(key: str) -> Blueprint:
    if key not in BLUEPRINTS:
        raise ToolError(f"There is no blueprint {key!r}; there are {', '.join(BLUEPRINTS)}.")
    return BLUEPRINTS[key]


def _resource(key: str) -> Resource:
    if key not in RESOURCES:
        raise ToolError(f"There is no resource {key!r}; there are {', '.join(RESOURCES) or 'none'}.")
    return RESOURCES[key]
