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
from callgate.server import fast_path
from callgate.server.app import create_app
from callgate.server.options import ServiceOptions
from callgate.server.security import WAKE, WHOLE
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
    _timer: asyncio.TimerHandle | None = None
    """Rings when the first of the things that were waited for may be late; it is not set anew for each of them."""
    _until_s: float | None = None
    """When what is waited for now is late: the next request of a connection that rests, or else the end of a head."""
    _is_resting = False
    _is_in_h11 = False
    """True if there was anything yet that was not plain."""
    _is_answering = False
    """True if the answer to a plain request has not left yet."""
    _early: bytes = b""
    """Bytes that arrived before the response was sent."""
    _around: dict[str, Any]
    """Entries of the scope that all requests of the connection share."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Turns away one connection too many, and gives the others a while to say what they want."""
        super().connection_made(transport)
        _send_at_once(transport)
        self._around = {
            "asgi": {"version": self.config.asgi_version, "spec_version": "2.3"},
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": self.root_path,
            WHOLE: True,
        }
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
        request = fast_path.read(data) if self._is_at_rest() else None
        if request is None:
            self._is_in_h11 = True
            super().data_received(data)
            self._watch_head()
            return
        self._until_s, self._is_resting = None, False
        self._answer(request)

    def _is_at_rest(self) -> bool:
        """True if a request may begin here."""
        if not self._is_in_h11:
            return True
        conn = self.conn
        return conn.our_state is conn.their_state is h11.IDLE and not conn.trailing_data[0]

    def _answer(self, request: fast_path.Request) -> None:
        """Has a request answered that came whole."""
        self._is_answering = True
        scope = request.scope(self._around)
        scope["state"] = self.app_state.copy()
        cycle = self.cycle = fast_path.Cycle(request, scope, self)
        scope[WAKE] = cycle.message_event.set
        cycle.task = self.loop.create_task(self._run(cycle))
        self.tasks.add(cycle.task)

    async def _run(self, cycle: fast_path.Cycle) -> None:
        try:
            await cycle.run_asgi(cast("Any", self).app)
        finally:  # Nobody waits for this task any more when the service ends.
            self.tasks.discard(cycle.task)

    def on_response_complete(self) -> None:
        """Goes on with what came meanwhile, or rests."""
        self._is_answering = False
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self._is_resting = True
        self._wait(self.timeout_keep_alive)
        self.flow.resume_reading()
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)
        elif self._is_in_h11 and self.conn.our_state is self.conn.their_state is h11.DONE:
            self.conn.start_next_cycle()
            self.handle_events()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection."""
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Answers what is no request, in the shape of every other error."""
        error = sys.exc_info()[1]
        hint = getattr(error, "error_status_hint", 400)
        self._refuse(hint if hint in WORDS else 400)

    def _watch_head(self) -> None:
        # A connection that rests has longer; this is for heads that do not come to an end.
        if self._is_resting:
            return
        if self.conn.their_state is not h11.IDLE or self.transport.is_closing():
            self._until_s = None
        elif self._until_s is None:
            self._wait(self.options.header_s)

    def _unset_keepalive_if_required(self) -> None:
        """Something came: the rest is over."""
        if self._is_resting:
            self._until_s, self._is_resting = None, False

    def _wait(self, wait_s: float) -> None:
        """Waits so long for what is to come next."""
        self._until_s = until_s = self.loop.time() + wait_s
        if self._timer is not None and self._timer.when() > until_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self.loop.call_at(until_s, self._look_at_clock)

    def _look_at_clock(self) -> None:
        self._timer = None
        if self._until_s is None:
            return
        if self._until_s > self.loop.time():
            self._timer = self.loop.call_at(self._until_s, self._look_at_clock)
        elif self._is_resting:
            self.timeout_keep_alive_handler()
        else:
            self._refuse(408)

    def _refuse(self, status: int) -> None:
        self._until_s = None
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
    """Freeze the objects that exist at start-up, so that the collector does not scan them again and again.

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
