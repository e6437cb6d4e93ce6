"""A server by streamable HTTP: an ASGI endpoint to be mounted anywhere, a whole app, and a listening service.

Requests come in; those that pass the guard go on to the SDK's transport, which keeps sessions. The guard refuses what a web
page in somebody's browser could send (foreign Host or Origin), and on an address that others can reach everything without
the token.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import ipaddress
import logging
import re
import socket
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from callgate.errors import UsageError
from callgate.mcp.serve import ToolServer

__all__ = ["Endpoint", "Guard", "http_app", "is_loopback", "listen", "serve_http"]

logger = logging.getLogger("callgate.mcp")

BODY_BYTES_MAX = 16 * 1024 * 1024
SESSIONS_MAX = 100
SESSION_IDLE_S = 1800.0
LEAVE_S = 3
"""How long open streams may take to end when the service does."""
TOKEN_CHARS_MIN = 16

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")


def is_loopback(host: str) -> bool:
    """True if a name or address is this machine and no other can reach it."""
    name = host.strip("[]").lower().rstrip(".")
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets through what may reach an app.

    Args:
        app: What is behind it.
        token: What must come as `Authorization: Bearer ...`; None: nothing need come.
        hosts: Names beside this machine's own that the server may be called by; None: any name. Without a token that would
            let any web page in, by a name that its owner points here.
    """

    def __init__(self, app: ASGIApp, *, token: str | None = None, hosts: Iterable[str] | None = ()) -> None:
        if hosts is None and token is None:
            raise UsageError("a server that may be called by any name needs a token")
        self._app = app
        self._token = token
        self._hosts = None if hosts is None else frozenset(host.strip("[]").lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the events of an app's life."""
        if scope["type"] == "http" and (refusal := self._refusal(Headers(scope=scope))) is not None:
            status, error, message = refusal
            logger.warning("refused a request: %s", message)
            headers = {"WWW-Authenticate": "Bearer"} if status == 401 else None
            body = {"error": error, "message": message, "code": status}
            await JSONResponse(body, status, headers)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, headers: Headers) -> tuple[int, str, str] | None:
        host = _name_of(headers.get("host", ""))
        if host is None or not self._is_ours(host):
            return 421, "wrong_host", "This server is not known by the name in the Host header."
        origin = headers.get("origin")
        if origin is not None:
            page = _name_of(urlsplit(origin).netloc) if origin.startswith(("http://", "https://")) else None
            if page is None or not (is_loopback(page) or page == host):
                return 403, "wrong_origin", "Web pages of other places may not call this server."
        if self._token is not None:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
                return 401, "unauthorized", "Send the token of this server as: Authorization: Bearer TOKEN."
        return None

    def _is_ours(self, host: str) -> bool:
        return self._hosts is None or host in self._hosts or is_loopback(host)


def _name_of(netloc: str) -> str | None:
    found = _HOST.fullmatch(netloc)
    return found["name"].strip("[]").lower().rstrip(".") if found else None


class Endpoint:
    """The endpoint by itself, an ASGI app for one path of an app that has a guard of its own.

    ```python
    endpoint = Endpoint(server)
    Starlette(routes=[Route("/mcp", endpoint)], lifespan=lambda app: endpoint.running())
    ```

    An app that is started more than once enters `running` each time.
    """

    def __init__(self, server: ToolServer) -> None:
        self._server = server
        self._manager: StreamableHTTPSessionManager | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keeps sessions, and what the tools need, for as long as the context lasts."""
        manager = StreamableHTTPSessionManager(
            self._server.sdk,
            session_idle_timeout=SESSION_IDLE_S,
            max_request_body_size=BODY_BYTES_MAX,
            max_sessions=SESSIONS_MAX,
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if self._manager is None:
            body = {"error": "not_running", "message": "The MCP endpoint is not running.", "code": 503}
            await JSONResponse(body, 503)(scope, receive, send)
            return
        await self._manager.asgi_app(scope, receive, send)


def http_app(
    server: ToolServer, *, path: str = "/mcp", token: str | None = None, hosts: Iterable[str] | None = ()
) -> Starlette:
    """A whole app with the endpoint behind a guard, for any ASGI server."""
    endpoint = Endpoint(server)
    return Starlette(
        routes=[Route(path, Guard(endpoint, token=token, hosts=hosts))], lifespan=lambda app: endpoint.running()
    )


# A service of its own ----------------------------------------------------------------------------------------------------


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
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(f"cannot listen at {host!r}, port {port}: {error.strerror or error}") from error


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the program, and says when it can be reached."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins to listen."""
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield


async def serve_http(
    server: ToolServer, listening: socket.socket, *, token: str | None = None, ready: Callable[[str], None] | None = None
) -> None:
    """Serves clients at a listening socket until it is cancelled. `ready` hears the address when it can be used."""
    host, port = listening.getsockname()[:2]
    hosts: tuple[str, ...] | None = (host,) if is_loopback(host) else None
    app = http_app(server, token=token, hosts=hosts)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=LEAVE_S, server_header=False
    )
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"
    service = _Uvicorn(config, lambda: None if ready is None else ready(url))
    work = asyncio.create_task(service.serve(sockets=[listening]))
    try:
        await asyncio.shield(work)
    finally:
        service.should_exit = True
        await asyncio.wait({work})
        listening.close()
