"""`/mcp`: the service's tools, resources and prompts for MCP clients, with the same permission, limits and audit log."""

from __future__ import annotations

import asyncio
import importlib.util
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callgate.server.errors import HttpError
from callgate.server.identity import CURRENT_PRINCIPAL, check_right

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["routes"]

PATH = "/mcp"
SESSIONS_MAX = 10_000
"""MCP sessions whose principals are remembered; there are fewer at a time."""
NOBODY = (
    "This client has no way to ask the user (elicitation), so the call is refused: use one that has, or let the service's "
    "policy allow it."
)


def routes(service: Service) -> list[Route]:
    """The route for MCP clients; none where the MCP package is not installed."""
    if importlib.util.find_spec("mcp") is None:
        return []
    from callgate.mcp.serve import ToolServer
    from callgate.mcp.web import Endpoint
    from callgate.run.gate import guard_of

    server = ToolServer(service.gate.tools, guard_of(service.gate), nobody=NOBODY, offers=service.offers)
    endpoint = Endpoint(server)
    service.beside.append(endpoint.running)
    return [Route(PATH, UntilStop(endpoint, service.leaving))]


class UntilStop:
    """An endpoint whose open streams end when the service begins to stop, so that they do not hold it up."""

    def __init__(self, app: ASGIApp, leaving: asyncio.Event) -> None:
        self._app = app
        self._leaving = leaving
        self._owners: OrderedDict[bytes, str | None] = OrderedDict()
        """MCP session -> whose it is."""

    def _remember(self, headers: Iterable[tuple[bytes, bytes]], whose: str | None) -> None:
        for name, value in headers:
            if name.lower() == b"mcp-session-id":
                self._owners.setdefault(value, whose)
                while len(self._owners) > SESSIONS_MAX:
                    self._owners.popitem(last=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        is_read = False
        principal = CURRENT_PRINCIPAL.get()
        check_right(principal, "chat")
        # Its clients are asked about their own calls, so that who may not approve any could approve these.
        check_right(principal, "approve")
        session = next((value for name, value in scope["headers"] if name == b"mcp-session-id"), None)
        whose = None if principal is None else principal.owner
        if session is not None and self._owners.get(session, whose) != whose:
            raise HttpError(404, "no_such_session", "there is no such MCP session")

        async def receiving() -> Message:
            nonlocal is_read
            if not is_read:
                message = await receive()
                is_read = message["type"] != "http.request" or not message.get("more_body", False)
                return message
            # The request is whole: all that can come is that somebody leaves, the client or we.
            coming = asyncio.ensure_future(receive())
            leaving = asyncio.create_task(self._leaving.wait())
            try:
                await asyncio.wait({coming, leaving}, return_when=asyncio.FIRST_COMPLETED)
                return coming.result() if coming.done() else {"type": "http.disconnect"}
            finally:
                coming.cancel()
                leaving.cancel()

        is_open = False

        async def sending(message: Message) -> None:
            nonlocal is_open
            is_open = message["type"] == "http.response.start" or bool(message.get("more_body", False))
            if message["type"] == "http.response.start":
                self._remember(message["headers"], whose)
            await send(message)

        await self._app(scope, receiving, sending)
        if is_open and self._leaving.is_set():
            # To the transport its client has left, so that it says no more; but the client is there.
            await send({"type": "http.response.body", "body": b"", "more_body": False})
