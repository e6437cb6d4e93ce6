"""The application: the tables of routes joined, the guard around them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from types import ModuleType

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from callgate.errors import CallgateError
from callgate.server import approvals, chat, health, metrics, openapi, page, sessions, tools
from callgate.server.compat import gemini as gemini_clients
from callgate.server.compat import mcp as mcp_clients
from callgate.server.compat import openai as openai_clients
from callgate.server.compat import ui_stream
from callgate.server.errors import on_callgate_error, on_http_error
from callgate.server.guard import Guard
from callgate.server.service import Service

__all__ = ["create_app"]

MODULES: tuple[ModuleType, ...] = (
    chat, sessions, approvals, tools, health, metrics, openapi,
    gemini_clients, openai_clients, ui_stream, mcp_clients, page,
)  # fmt: skip
"""Each has `routes(service)`."""


def create_app(service: Service) -> Starlette:
    """The service as an ASGI application, for uvicorn or any other server."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        async with service:
            yield

    routes = [route for module in MODULES for route in module.routes(service)]
    return Starlette(
        routes=routes,
        lifespan=lifespan,
        middleware=[Middleware(Guard, service=service)],
        exception_handlers={
            CallgateError: on_callgate_error,
            HTTPException: on_http_error,
        },
    )
