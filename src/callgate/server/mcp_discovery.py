"""Documents by which MCP clients find the endpoint and its login: the server card, a catalog, and OAuth resource metadata.

A base address and the settings of an identity provider come in, public JSON goes out. It names the service and where to log
in, and nothing of its tools, its principals or its conversations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate import __version__
from callgate.server.errors import HttpError
from callgate.server.identity import RIGHTS
from callgate.strict_json import dump
from callgate.types import JsonObject

if TYPE_CHECKING:
    from callgate.server.options import ServiceOptions

__all__ = ["CARD_TYPE", "ENDPOINT", "METADATA", "PUBLIC_DOCUMENTS", "challenge", "discovery_routes"]

CARD_TYPE = "application/mcp-server-card+json"
SCHEMA = "https://static.modelcontextprotocol.io/schemas/v2/server-card.schema.json"
METADATA = "/.well-known/oauth-protected-resource"
CATALOGS = {
    "/.well-known/ai-catalog.json": "application/ai-catalog+json",
    "/.well-known/mcp/catalog.json": "application/json",
}
"""The paths of the catalog, and its media type there."""
ENDPOINT = "/mcp"
CARD = f"{ENDPOINT}/server-card"
PUBLIC_DOCUMENTS = frozenset({CARD, METADATA, METADATA + ENDPOINT, *CATALOGS})
"""Paths that need no token."""
CACHED = {"Cache-Control": "public, max-age=3600"}
NAME = "callgate"
DESCRIPTION = "Tools behind a gate that checks, asks about and logs every call."


def discovery_routes(options: ServiceOptions) -> list[Route]:
    """The routes of all documents."""

    def route(path: str, media_type: str, document: Callable[[str, ServiceOptions], JsonObject]) -> Route:
        async def answer(request: Request) -> Response:
            body = dump(document(f"{request.url.scheme}://{request.headers['host']}", options))
            return Response(body, headers=CACHED, media_type=media_type)

        return Route(path, answer, methods=["GET"])

    metadata = [route(path, "application/json", _resource_metadata) for path in (METADATA, METADATA + ENDPOINT)]
    catalogs = [route(path, media_type, _catalog) for path, media_type in CATALOGS.items()]
    return [route(CARD, CARD_TYPE, _card), *catalogs, *metadata]


def challenge(path: str, base: str, options: ServiceOptions) -> str:
    """The `WWW-Authenticate` header of a request without a token: for MCP clients, with where they learn to log in."""
    if path != ENDPOINT or _provider(options) is None:
        return "Bearer"
    return f'Bearer resource_metadata="{base}{METADATA}{ENDPOINT}"'


def _card(base: str, options: ServiceOptions) -> JsonObject:
    from mcp_types.version import SUPPORTED_PROTOCOL_VERSIONS

    remote: JsonObject = {
        "type": "streamable-http", "url": base + ENDPOINT, "supportedProtocolVersions": list(SUPPORTED_PROTOCOL_VERSIONS),
    }  # fmt: skip
    if options.token is not None or options.identities is not None:
        is_required = _provider(options) is None  # Otherwise a client may log in.
        told = "Bearer and a token of this service"
        remote["headers"] = [{"name": "Authorization", "description": told, "isRequired": is_required, "isSecret": True}]
    return {
        "$schema": SCHEMA, "name": f"{_namespace(base)}/{NAME}", "version": __version__, "title": NAME,
        "description": DESCRIPTION, "remotes": [remote],
    }  # fmt: skip


def _catalog(base: str, options: ServiceOptions) -> JsonObject:
    host = urlsplit(base).hostname or "localhost"
    entry = {"identifier": f"urn:air:{host}:{NAME}", "displayName": NAME, "type": CARD_TYPE, "url": base + CARD}
    return {"specVersion": "draft", "entries": [entry]}


def _resource_metadata(base: str, options: ServiceOptions) -> JsonObject:
    provider = _provider(options)
    if provider is None:
        raise HttpError(404, "not_found", "No identity provider is set up here, so there is nothing to log in at.")
    return {
        "resource": base + ENDPOINT, "resource_name": NAME, "authorization_servers": [provider.issuer],
        "scopes_supported": sorted(provider.scope_of(right) for right in RIGHTS), "bearer_methods_supported": ["header"],
    }  # fmt: skip


def _provider(options: ServiceOptions) -> Any:
    """The identity provider; None if principals come from elsewhere."""
    return getattr(options.identities, "oidc", None)


def _namespace(base: str) -> str:
    """The host in reverse, as names of servers begin."""
    host = (urlsplit(base).hostname or "localhost").replace(":", "-")
    return host if host.replace(".", "").isdigit() else ".".join(reversed(host.split(".")))
