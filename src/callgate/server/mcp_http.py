"""A tool server by streamable HTTP: a whole application for any ASGI server, and a listening service.

Tools come in as a `ToolServer`; requests pass the same security checks, limits and deadlines as those of the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterable
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from callgate.errors import UsageError
from callgate.mcp.serve import ToolServer
from callgate.mcp.web import BODY_BYTES_MAX, Endpoint
from callgate.server.counters import Metrics
from callgate.server.listen import config_of, listening_socket
from callgate.server.mcp_discovery import ENDPOINT, PUBLIC_DOCUMENTS, discovery_routes
from callgate.server.options import TOKEN_CHARS_MIN, ServiceOptions
from callgate.server.security import SecurityMiddleware, is_loopback

__all__ = ["http_app", "listen", "serve_http"]

STOP_S = 3.0
"""Seconds that open streams may take to end when the service does."""


def http_app(
    server: ToolServer,
    *,
    path: str = "/mcp",
    token: str | None = None,
    hosts: Iterable[str] | None = (),
    origins: Iterable[str] = (),
) -> Starlette:
    """A whole application with the endpoint, for any ASGI server.

    Args:
        server: The tools.
        path: Where the endpoint is.
        token: Token that must come as `Authorization: Bearer ...`; None: none is needed.
        hosts: Names besides this machine's own that the server may be called by; None: any name, which needs a token.
        origins: Web pages of other origins that may call it.
    """
    return _app(server, path, _options(token, hosts, origins))


def _options(token: str | None, hosts: Iterable[str] | None, origins: Iterable[str]) -> ServiceOptions:
    names = ("*",) if hosts is None else tuple(f"[{host}]" if ":" in host.strip("[]") else host for host in hosts)
    return ServiceOptions(token=token, hosts=names, origins=tuple(origins), body_bytes=BODY_BYTES_MAX, stop_s=STOP_S)


def _app(server: ToolServer, path: str, options: ServiceOptions) -> Starlette:
    endpoint = Endpoint(server)
    documents = discovery_routes(options) if path == ENDPOINT else []
    checks = Middleware(SecurityMiddleware, options, Metrics(), public=(PUBLIC_DOCUMENTS, ()))
    return Starlette(
        routes=[Route(path, endpoint), *documents], middleware=[checks], lifespan=lambda app: endpoint.running()
    )


def listen(host: str, port: int, token: str | None) -> socket.socket:
    """A socket that listens at the address; port 0 takes any free one.

    Raises:
        UsageError: the address cannot be used, or others can reach it and there is no good token.
    """
    if not is_loopback(host) and token is None:
        raise UsageError(
            f"{host!r} can be reached from other machines, so a token is needed: name the variable that holds one with "
            "--token-env, or stay with 127.0.0.1"
        )
    if token is not None and len(token) < TOKEN_CHARS_MIN:
        raise UsageError(f"the token is shorter than {TOKEN_CHARS_MIN} characters, so it could be guessed; use a longer one")
    try:
        return listening_socket(host, port)
    except OSError as error:
        raise UsageError(f"cannot listen at {host!r}, port {port}: {error.strerror or error}") from error


class _Uvicorn(uvicorn.Server):
    """Server that leaves signals to the program, and calls back when it can be reached."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


async def serve_http(
    server: ToolServer,
    listening: socket.socket,
    *,
    token: str | None = None,
    origins: Iterable[str] = (),
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve clients at a listening socket until it is cancelled. `ready` gets the address when it can be used."""
    host, port = listening.getsockname()[:2]
    options = _options(token, (host,) if is_loopback(host) else None, origins)
    config = config_of(_app(server, "/mcp", options), options)
    config.timeout_graceful_shutdown = round(STOP_S)
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"
    service = _Uvicorn(config, lambda: None if ready is None else ready(url))
    work = asyncio.create_task(service.serve(sockets=[listening]))
    try:
        await asyncio.shield(work)
    finally:
        service.should_exit = True
        await asyncio.wait({work})
        listening.close()
