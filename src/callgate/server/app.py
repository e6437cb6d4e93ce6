"""The application: the tables of routes joined, the guard around them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from types import ModuleType
from typing import Any

from starlette.applications import Starlette
from starlette.types import ASGIApp

from callgate.server import approvals, chat, health, metrics, openapi, page, sessions, tools
from callgate.server.compat import gemini as gemini_clients
from callgate.server.compat import mcp as mcp_clients
from callgate.server.compat import openai as openai_clients
from callgate.server.compat import ui_stream
from callgate.server.guard import Guard
from callgate.server.service import Service

__all__ = ["create_app"]

MODULES: tuple[ModuleType, ...] = (
    chat, sessions, approvals, tools, health, metrics, openapi,
    gemini_clients, openai_clients, ui_stream, mcp_clients, page,
)  # fmt: skip
"""Each has `routes(service)`."""


class Application(Starlette):
    """The routes behind the guard, and nothing in between: what goes wrong in them is answered by the guard too."""

    def __init__(self, service: Service, **given: Any) -> None:
        super().__init__(**given)
        self._service = service

    def build_middleware_stack(self) -> ASGIApp:
        """The whole application, outermost first."""
        return Guard(self.router, service=self._service)


def create_app(service: Service) -> Starlette:
    """The service as an ASGI application, for uvicorn or any other server."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with service:
            yield

    routes = [route for module in MODULES for route in module.routes(service)]
    return Application(service, routes=routes, lifespan=lifespan)
