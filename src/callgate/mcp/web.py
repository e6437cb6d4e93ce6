"""The endpoint of a server by streamable HTTP: an ASGI app for one path of an app that checks requests itself.

Requests come in and go on to the SDK's transport, which keeps sessions. `callgate.server.mcp_http` has the whole
application, with security checks, and the listening service.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from callgate.errors import JsonError
from callgate.mcp.http_body import replayed, whole_body
from callgate.mcp.serve import ToolServer
from callgate.strict_json import has_duplicate_keys, has_more_separators, parse

__all__ = ["Endpoint"]

SESSION_HEADER = b"mcp-session-id"
EVENT_HEADER = b"last-event-id"
BODY_BYTES_MAX = 16 * 1024 * 1024
SEPARATORS_MAX = 50_000
"""Commas and colons between the values of one message."""
TOO_MANY = f"The message has too many values: at most {SEPARATORS_MAX} commas and colons are read."
TWICE = "A key stands twice in one object: send each once."
SESSIONS_MAX = 100
"""Sessions at the same time; a further one takes the place of the one that was idle for longest."""
SESSIONS_BUSY_MAX = 400
"""Sessions at the same time if none of them is idle."""
SESSION_IDLE_S = 1800.0


class Endpoint:
    """The endpoint by itself.

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
        """Keep sessions, and what the tools need, for as long as the context lasts."""
        manager = StreamableHTTPSessionManager(
            self._server.sdk,
            session_idle_timeout=SESSION_IDLE_S,
            max_request_body_size=BODY_BYTES_MAX,
            max_sessions=SESSIONS_BUSY_MAX,
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._manager is None:
            body = {"error": "not_running", "message": "The MCP endpoint is not running.", "code": 503}
            await JSONResponse(body, 503)(scope, receive, send)
            return
        data = await whole_body(receive)
        if data is None:
            return
        # The SDK parses on the loop, so that nobody else is served meanwhile.
        refused = await asyncio.to_thread(_refusal, data) if len(data) > SEPARATORS_MAX else _refusal(data)
        if refused is not None:
            await JSONResponse(refused, refused["code"])(scope, receive, send)
            return
        if all(name != SESSION_HEADER for name, _ in scope["headers"]):
            _make_room(self._manager)
        # No event has an id here, and the SDK gives no response to a request that names one.
        headers = [(name, value) for name, value in scope["headers"] if name != EVENT_HEADER]
        await self._manager.asgi_app({**scope, "headers": headers}, replayed(data, receive), send)


def _refusal(data: bytes) -> dict[str, Any] | None:
    """Return why a message is not read, as the body of the response; None if it is."""
    if len(data) > SEPARATORS_MAX and has_more_separators(data, SEPARATORS_MAX):
        return {"error": "too_large", "message": TOO_MANY, "code": 413}
    try:
        is_twice = has_duplicate_keys(data, parse(data))
    except JsonError:  # The SDK says so in the words of the protocol.
        return None
    return {"error": "invalid_json", "message": TWICE, "code": 400} if is_twice else None


def _make_room(manager: StreamableHTTPSessionManager) -> None:
    """End the session that was idle for longest, if there are too many: a client that opens many locks nobody out."""
    sessions = dict[str, Any](getattr(manager, "_server_instances", {}))
    if len(sessions) < SESSIONS_MAX:
        return
    # The deadline of an idle session is finite; one that has just been told to end counts no more.
    scopes = [session.idle_scope for session in sessions.values() if session.idle_scope is not None]
    idle = [scope for scope in scopes if math.isfinite(scope.deadline) and not scope.cancel_called]
    ending = sum(scope.cancel_called for scope in scopes)
    if idle and len(sessions) - ending >= SESSIONS_MAX:
        min(idle, key=lambda scope: scope.deadline).cancel()
