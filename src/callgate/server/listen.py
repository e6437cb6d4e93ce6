"""The service on a port: uvicorn with a stricter door and an end in good order.

A socket and a service come in; nothing goes out until a signal ends it. Heads of requests are bounded in size and time here,
because an application sees a request only when its head is whole.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
from types import FrameType
from typing import Any, cast

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from callgate import strict_json
from callgate.server import plain
from callgate.server.app import create_app
from callgate.server.guard import WHOLE
from callgate.server.options import ServiceOptions
from callgate.server.service import Service

__all__ = ["Server", "serve", "server_for"]

KEEP_ALIVE_S = 15
UNCOLLECTED_MAX = 20_000
"""Objects that may be made, and not gone by themselves, before the collector looks at them."""
LAST_S = 10.0
"""How much longer than its runs the service may take to end."""
PHRASES = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Service Unavailable"}
WORDS = {
    400: ("bad_request", "This is not a valid HTTP request."),
    408: ("request_timeout", "The head of the request took too long."),
    431: ("headers_too_large", "The head of the request is too large."),
    503: ("too_many_connections", "There are too many connections: try again soon."),
}


class Connection(H11Protocol):
    """One connection: its heads come whole, in time, and not too large."""

    options = ServiceOptions()
    _head_timer: asyncio.TimerHandle | None = None
    _is_answering = False
    """Whether the answer to a plain request has not left yet."""
    _early: bytes = b""
    """What came before it has."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Turns away one connection too many, and gives the others a while to say what they want."""
        super().connection_made(transport)
        _send_at_once(transport)
        if len(self.connections) > self.options.connections:
            self._refuse(503)
            return
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        """Takes in bytes."""
        if self._is_answering:
            # What comes before the answer has left waits until then.
            self._early += data
            self.flow.pause_reading()
            return
        conn = self.conn
        is_at_rest = conn.our_state is conn.their_state is h11.IDLE and not conn.trailing_data[0]
        request = plain.read(data) if is_at_rest else None
        if request is None:
            super().data_received(data)
            self._watch_head()
            return
        self._unwatch()
        self._unset_keepalive_if_required()
        self._answer(request)

    def _answer(self, request: plain.Request) -> None:
        """Has a request answered that came whole."""
        self._is_answering = True
        around = {
            "asgi": {"version": self.config.asgi_version, "spec_version": "2.3"},
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": self.root_path,
            "state": self.app_state.copy(),
            WHOLE: True,
        }
        cycle = self.cycle = plain.Cycle(
            scope=cast("Any", request.scope(around)),
            conn=self.conn,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            on_response=self.on_response_complete,
        )
        cycle.take(request)
        task = self.loop.create_task(cycle.run_asgi(cast("Any", self.config).loaded_app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def on_response_complete(self) -> None:
        """Goes on with what came meanwhile."""
        self._is_answering = False
        super().on_response_complete()
        if self._early and not self.transport.is_closing():
            early, self._early = self._early, b""
            self.data_received(early)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        self._unwatch()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answers what is no request, in the shape of every other error."""
        error = sys.exc_info()[1]
        hint = getattr(error, "error_status_hint", 400)
        self._refuse(hint if hint in WORDS else 400)

    def _watch_head(self) -> None:
        # A keep-alive connection that rests has a timer of its own; this one is for heads that do not come to an end.
        if self.conn.their_state is not h11.IDLE or self.timeout_keep_alive_task is not None or self.transport.is_closing():
            self._unwatch()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.options.header_s, self._refuse, 408)

    def _unwatch(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: int) -> None:
        self._unwatch()
        if self.transport.is_closing():
            return
        cycle: Any = self.cycle  # None before the first request.
        if cycle is None or cycle.response_complete or not cycle.response_started:
            word, message = WORDS[status]
            body = strict_json.dump({"error": word, "message": message, "code": status})
            more = "Retry-After: 1\r\n" if status == 503 else ""
            head = (
                f"HTTP/1.1 {status} {PHRASES[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
                f"{more}Connection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
            if cycle is not None:  # The application may still wait for the rest of a body that will not come.
                cycle.disconnected = True
                cycle.message_event.set()
        self.transport.close()


def _send_at_once(transport: asyncio.Transport) -> None:
    """Heads and bodies leave in pieces: without this, each answer would wait 40 ms for its second one to leave."""
    connection = transport.get_extra_info("socket")
    # asyncio does it by itself only for sockets that were opened with their protocol named.
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


class Server(uvicorn.Server):
    """A server that ends in good order: no new runs, and those that go on are brought to an end before it leaves.

    One that `is_alone` in its process also says how the memory of that is looked after.
    """

    def __init__(self, config: uvicorn.Config, service: Service, *, is_alone: bool = False) -> None:
        super().__init__(config)
        self._service = service
        self._is_alone = is_alone

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begins."""
        await super().startup(sockets)
        if self._is_alone:
            _settle_memory()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal ends it in good order, a second Ctrl-C at once."""
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends."""
        stopping = asyncio.create_task(self._service.stop())
        await super().shutdown(sockets)
        await stopping


def serve(service: Service, sockets: list[socket.socket]) -> None:
    """Serves until a signal comes."""
    server_for(service, is_alone=True).run(sockets)


def _settle_memory() -> None:
    """What is there when the service begins stays, so the collector need not look through it again and again.

    It need not look often either: conversations leave next to nothing behind that goes only by being collected.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(UNCOLLECTED_MAX, *gc.get_threshold()[1:])


def server_for(service: Service, *, is_alone: bool = False) -> Server:
    """A server that is ready to run; setting its `should_exit` ends it as a signal would."""
    options = service.options
    protocol = type("Connection", (Connection,), {"options": options})
    config = uvicorn.Config(
        create_app(service),
        http=cast("Any", protocol),
        ws="none",
        lifespan="on",
        h11_max_incomplete_event_size=options.header_bytes,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=round(options.stop_s + LAST_S),
        server_header=False,
        proxy_headers=False,
        access_log=False,
        log_config=None,
        log_level="warning",
    )
    return Server(config, service, is_alone=is_alone)
