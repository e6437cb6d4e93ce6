"""The application: the tables of routes joined, the guard around them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Match, Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from callgate.server import approvals, chat, files, health, metrics, openapi, page, questions, sessions, tools
from callgate.server.compat import gemini as gemini_clients
from callgate.server.compat import interactions as interactions_clients
from callgate.server.compat import mcp as mcp_clients
from callgate.server.compat import messages as anthropic_clients
from callgate.server.compat import openai as openai_clients
from callgate.server.compat import responses as responses_clients
from callgate.server.compat import ui_stream
from callgate.server.options import ENDPOINTS
from callgate.server.quotas import RequestRates
from callgate.server.security import METHODS, PUBLIC, SecurityMiddleware
from callgate.server.service import Service
from callgate.store.reservations import keeps_requests

__all__ = ["create_app"]

MODULES: tuple[ModuleType, ...] = (
    chat, files, sessions, approvals, questions, tools, health, metrics, openapi,
    gemini_clients, interactions_clients, openai_clients, responses_clients, anthropic_clients, ui_stream, mcp_clients, page,
)  # fmt: skip
"""Each has `routes(service)`."""
NAMED: dict[str, ModuleType] = {
    "gemini": gemini_clients, "openai": openai_clients, "anthropic": anthropic_clients, "ui": ui_stream, "mcp": mcp_clients,
    "page": page,
}  # fmt: skip
"""Groups of endpoints that can be left out, by the names of `ENDPOINTS`."""


class RouteTable:
    """The router, and in front of it one table of all paths that need no reading: which route they lead to is known."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._known: dict[tuple[str, str], Route] = {}
        for path in (route.path for route in router.routes if isinstance(route, Route) and not route.param_convertors):
            for method in METHODS:
                route = _first(router.routes, method, path)
                if isinstance(route, Route) and not route.param_convertors:  # Such a route reads the path.
                    self._known[method, path] = route

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        is_request = scope["type"] == "http" and not scope.get("root_path")
        route = self._known.get((scope["method"], scope["path"])) if is_request else None
        if route is None:
            return self._router(scope, receive, send)
        scope["router"], scope["route"], scope["endpoint"] = self._router, route, route.endpoint
        scope["path_params"] = {}
        return route.app(scope, receive, send)


def _first(routes: Sequence[BaseRoute], method: str, path: str) -> BaseRoute | None:
    """The route that the router would choose."""
    scope = {"type": "http", "method": method, "path": path}
    return next((route for route in routes if route.matches(scope)[0] is Match.FULL), None)


class Application(Starlette):
    """The routes behind the guard, and nothing in between: what goes wrong in them is answered by the guard too."""

    def __init__(self, service: Service, **given: Any) -> None:
        super().__init__(**given)
        self._service = service

    def build_middleware_stack(self) -> ASGIApp:
        """The whole application, outermost first."""
        service = self._service
        rates = RequestRates(service.store if keeps_requests(service.store) else None)
        return SecurityMiddleware(
            RouteTable(self.router),
            service.options,
            service.metrics,
            public=PUBLIC,
            rates=rates,
            is_leaving=lambda: service.draining,
        )


def create_app(service: Service) -> Starlette:
    """The service as an ASGI application, for uvicorn or any other server."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with service:
            yield

    left_out = {NAMED[name] for name in set(ENDPOINTS) - set(service.options.endpoints)}
    if "gemini" not in service.options.endpoints:
        left_out.add(interactions_clients)  # Both are APIs of Gemini.
    if "openai" not in service.options.endpoints:
        left_out.add(responses_clients)
    routes = [route for module in MODULES if module not in left_out for route in module.routes(service)]
    if service.options.peers is not None:
        service.beside.append(
            partial(service.options.peers.serving, partial(_answer_peer, service.peer_apps, Router(routes)))
        )
    return Application(service, routes=routes, lifespan=lifespan)


async def _answer_peer(apps: Mapping[str, ASGIApp], router: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request that another process has passed on, after its checks."""
    await apps.get(scope["path"], router)(scope, receive, send)
