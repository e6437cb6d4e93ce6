"""`/mcp`: the service's tools, resources and prompts for MCP clients, with the same permission, limits and audit log."""

from __future__ import annotations

import asyncio
import importlib.util
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from callgate.errors import JsonError
from callgate.mcp.http_body import replayed, whole_body
from callgate.server.errors import HttpError
from callgate.server.identity import CURRENT_PRINCIPAL, check_right
from callgate.server.mcp_discovery import discovery_routes
from callgate.server.peers import FORWARDED, PeerGoneError, Peers, number_in
from callgate.strict_json import parse

if TYPE_CHECKING:
    from callgate.server.service import Service

__all__ = ["routes"]

Header = tuple[bytes, bytes]

PATH = "/mcp"
SESSION_HEADER = b"mcp-session-id"
OFF_LOOP_BYTES = 50_000
"""Longer messages are parsed in a thread."""
SESSIONS_MAX = 10_000
"""MCP sessions whose principals are remembered; there are fewer at a time."""
NOBODY = (
    "This client has no way to ask the user (elicitation), so the call is refused: use one that has, or let the service's "
    "policy allow it."
)

CLIENT_NAME = "callgate.client_name"
"""In a scope: the name of the principal."""


def routes(service: Service) -> list[Route]:
    """The route for MCP clients; none where the MCP package is not installed."""
    if importlib.util.find_spec("mcp") is None:
        return []
    from callgate.mcp.serve import ToolServer
    from callgate.mcp.web import Endpoint
    from callgate.run.gate import guard_of

    peers = service.options.peers
    server = ToolServer(service.gate.tools, guard_of(service.gate), nobody=NOBODY, offers=service.offers)
    server.elicit = service.gate.elicit
    server.questions.client_name = _client_name
    endpoint = Endpoint(server)
    service.beside.append(endpoint.running)
    documents = discovery_routes(service.options)
    if peers is None:
        return [Route(PATH, UntilStop(OwnSessions(endpoint), service.leaving)), *documents]
    server.questions.mark_prefix = f"{peers.number}-"
    app = UntilStop(SharedSessions(OwnSessions(endpoint), peers), service.leaving)
    service.peer_apps[PATH] = app
    return [Route(PATH, app), *documents]


class OwnSessions:
    """An endpoint whose sessions are for the principals that opened them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._owners: OrderedDict[bytes, str | None] = OrderedDict()
        """MCP session -> whose it is."""

    def _remember(self, headers: Iterable[Header], whose: str | None) -> None:
        for name, value in headers:
            if name.lower() == SESSION_HEADER:
                self._owners.setdefault(value, whose)
                while len(self._owners) > SESSIONS_MAX:
                    self._owners.popitem(last=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request.

        Raises:
            HttpError: its principal may not send it, or there is no such session of its own.
        """
        principal = CURRENT_PRINCIPAL.get()
        check_right(principal, "chat")
        # Its clients are asked about their own calls, so that who may not approve any could approve these.
        check_right(principal, "approve")
        session = _session(scope)
        whose = None if principal is None else principal.name
        if session is not None and self._owners.get(session, whose) != whose:
            raise _no_session()

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._remember(message["headers"], whose)
            await send(message)

        await self._app({**scope, CLIENT_NAME: whose or ""}, receive, sending)


def _client_name(ctx: Any) -> str:
    """The name of the principal that made a call, which is the one that is asked about it: sessions are not shared."""
    return "" if ctx.request is None else str(ctx.request.scope.get(CLIENT_NAME, ""))


class SharedSessions:
    """An endpoint of one of several processes: whichever of them a request meets, the one that has the session answers it.

    Ids of sessions, and the marks of questions that newer clients send back, begin with the number of their process.
    """

    def __init__(self, app: ASGIApp, peers: Peers) -> None:
        self._app = app
        self._peers = peers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request.

        Raises:
            HttpError: there is no such session, or its process is gone.
        """
        session = _session(scope)
        body = None
        holder = None if session is None else number_in(session.decode("latin-1"))
        if holder != self._peers.number:  # Otherwise nothing has to be known of it here.
            if (body := await whole_body(receive)) is None:
                return
            number = await _marked_number(body) if session is None else holder
            if await self._forwarded(scope, body, receive, send, number):
                return
            if session is not None:
                raise _no_session()  # The client begins a new one, as the protocol says.
        own = b"%d-" % self._peers.number

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(k, own + v if k.lower() == SESSION_HEADER else v) for k, v in message["headers"]]
                message = {**message, "headers": headers}
            await send(message)

        headers = [(k, v.removeprefix(own) if k == SESSION_HEADER else v) for k, v in scope["headers"]]
        incoming = receive if body is None else replayed(body, receive)
        await self._app({**scope, "headers": headers}, incoming, sending)

    async def _forwarded(self, scope: Scope, body: bytes, receive: Receive, send: Send, number: int | None) -> bool:
        """Let the process with that number answer, if it is another one and there is such a process."""
        if number is None or number == self._peers.number or FORWARDED in scope:
            return False
        try:
            await self._peers.forward(number, scope, body, receive, send)
        except PeerGoneError:
            return False  # A mark that nobody knows is no answer, so that the question is put again.
        return True


class UntilStop:
    """An endpoint whose open streams end when the service begins to stop, so that they do not hold it up."""

    def __init__(self, app: ASGIApp, leaving: asyncio.Event) -> None:
        self._app = app
        self._leaving = leaving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        is_read = False

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
            await send(message)

        await self._app(scope, receiving, sending)
        if is_open and self._leaving.is_set():
            # To the transport its client has left, so that it says no more; but the client is there.
            await send({"type": "http.response.body", "body": b"", "more_body": False})


def _no_session() -> HttpError:
    return HttpError(404, "no_such_session", "there is no such MCP session")


def _session(scope: Scope) -> bytes | None:
    return next((value for name, value in scope["headers"] if name == SESSION_HEADER), None)


async def _marked_number(body: bytes) -> int | None:
    """The number of the process that has put the question which a message answers; None if it answers none."""
    if b'"requestState"' not in body:
        return None
    try:
        message: Any = await asyncio.to_thread(parse, body) if len(body) > OFF_LOOP_BYTES else parse(body)
    except JsonError:
        return None
    params = cast("dict[str, Any]", message).get("params") if isinstance(message, dict) else None
    mark = cast("dict[str, Any]", params).get("requestState") if isinstance(params, dict) else None
    return number_in(mark) if isinstance(mark, str) else None
