"""One HTTP connection: uvicorn's protocol with a deadline for everything that a client can keep it waiting for.

Bytes come in, requests go on to the application. At any time a connection is in one `Phase`: it waits for its client (for a
head, a body, the rest of a body that nobody reads, the next request, or until the client reads), or it does not. Every wait
has a deadline that further bytes do not renew. When there are too many connections, the one that has waited for its client
for longest is closed in favour of the new one, so nobody is locked out by clients that say nothing.
"""

from __future__ import annotations

import asyncio
import re
import socket
import sys
from typing import Any, Literal, TypeAlias, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from callgate import strict_json
from callgate.server import access_log, fast_path
from callgate.server.options import ServiceOptions
from callgate.server.security import AUTHORIZED, WAKE, WHOLE

__all__ = ["Connection"]

DRAIN_S = 2.0
"""Seconds that the rest of a body may take that came after its response was sent."""
CLOSE_S = 5.0
"""Seconds that the last bytes of a closed connection may take to leave."""
PHRASES = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large", 503: "Service Unavailable"}
MESSAGES = {
    400: ("bad_request", "This is not a valid HTTP request."),
    408: ("request_timeout", "The request took too long to arrive."),
    431: ("headers_too_large", "The head of the request is too large."),
    503: ("too_many_connections", "There are too many connections: try again soon."),
}

Phase: TypeAlias = "Literal['head', 'body', 'drain', 'rest', 'read', 'closing'] | None"
"""The awaited input: a head, a body, the unread rest of one, the next request, a client that reads, the end; or nothing."""


class Connection(H11Protocol):
    """One connection. `options` and `waiting` belong to a subclass for each server."""

    options = ServiceOptions()
    waiting: dict[Connection, None]
    """Connections that wait for their client, the one first that has waited for longest."""
    _phase: Phase = None
    _until_s = 0.0
    """The deadline of the phase."""
    _timer: asyncio.TimerHandle | None = None
    """Timer that fires at the earliest deadline that was set, or later; it is not set anew for each of them."""
    _is_in_h11 = False
    """True if any bytes went to h11 so far."""
    _is_fast = False
    """True while a request of the fast path is being answered."""
    _early: bytes = b""
    """Bytes that arrived before the response was sent."""
    _is_flooded = False
    """True if there were too many of them: they are dropped, and the connection is closed after the response."""
    _shared_scope: dict[str, Any]
    """Entries of the scope that all requests of the connection share."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room for the connection, and give it a while to send a request."""
        super().connection_made(transport)
        _send_at_once(transport)
        self._shared_scope = {
            "asgi": {"version": self.config.asgi_version, "spec_version": "2.3"},
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": self.root_path,
            WHOLE: True,
        }
        if len(self.connections) > self.options.connections and not self._evict():
            self._refuse(503)
            return
        self._update()

    def data_received(self, data: bytes) -> None:
        """Take in bytes."""
        if self._is_answering():
            self._keep(data)
            return
        request = fast_path.read(data) if self._is_at_rest() else None
        if request is not None:
            self._answer(request)
        elif self._is_strict(data):
            self._is_in_h11 = True
            super().data_received(data)
            if self._is_answering():
                # uvicorn stops reading when another request follows, and then a client that disconnects is not noticed.
                self.flow.resume_reading()
        self._update()

    def _is_strict(self, data: bytes = b"") -> bool:
        """Refuse a head that others may read differently; whether it was none."""
        if self.conn.their_state is h11.IDLE and is_refused(self.conn.trailing_data[0] + data):
            self._refuse(400)
            return False
        return True

    def _keep(self, data: bytes) -> None:
        """Keep what follows a request until its response is sent. Reading goes on, so that a disconnect is noticed."""
        self._is_flooded |= len(self._early) + len(data) > self.options.header_bytes
        if self._is_flooded:
            self.cycle.keep_alive, self._early = False, b""
        else:
            self._early += data

    def _is_answering(self) -> bool:
        """True if a request is complete and its response is not."""
        cycle: Any = self.cycle  # None before the first request.
        if cycle is None or cycle.response_complete:
            return False
        return self._is_fast or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY)

    def _is_at_rest(self) -> bool:
        """True if a request may begin here."""
        if not self._is_in_h11:
            return True
        conn = self.conn
        return conn.our_state is conn.their_state is h11.IDLE and not conn.trailing_data[0]

    def _answer(self, request: fast_path.Request) -> None:
        """Have a request answered that came whole."""
        self._is_fast = True
        scope = request.scope(self._shared_scope)
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
        """Go on with the bytes that came meanwhile, or wait for the next request."""
        self._is_fast = False
        self.server_state.total_requests += 1
        self._phase = None  # A new wait, with a deadline of its own.
        self._update()
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self._is_in_h11 and self.conn.our_state is self.conn.their_state is h11.DONE:
            self.conn.start_next_cycle()
            if self._is_strict():
                self.handle_events()
                self._update()
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._update()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._update()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        if self._timer is not None:
            self._timer.cancel()
        self._phase = None
        self.waiting.pop(self, None)
        super().connection_lost(exc)
        self.waiting.pop(self, None)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no request, in the shape of every other error."""
        hint = getattr(sys.exc_info()[1], "error_status_hint", 400)
        self._refuse(hint if hint in MESSAGES else 400)

    def _unset_keepalive_if_required(self) -> None:
        """uvicorn's own keep-alive timer is never set."""

    # Deadlines ------------------------------------------------------------------------------------------------------------

    def _update(self) -> None:
        """Note what is waited for now. A phase that goes on keeps its deadline."""
        phase = self._current_phase()
        if phase == self._phase:
            return
        self._phase = phase
        self.waiting.pop(self, None)
        if phase is None:
            return
        if phase != "closing":
            self.waiting[self] = None
        self._wait(self._limit_s(phase))

    def _current_phase(self) -> Phase:
        if self.transport.is_closing():
            return "closing"
        if self.flow.write_paused:
            return "read"
        if self._is_answering():
            return None
        if self.conn.their_state is h11.SEND_BODY:
            cycle: Any = self.cycle
            return "drain" if cycle is not None and cycle.response_complete else "body"
        has_served = cast("Any", self.cycle) is not None
        return "rest" if has_served and not (self._is_in_h11 and self.conn.trailing_data[0]) else "head"

    def _limit_s(self, phase: Phase) -> float:
        options = self.options
        limits = {
            "head": options.header_s, "body": options.body_s, "drain": DRAIN_S, "rest": self.timeout_keep_alive,
            "read": options.stalled_s, "closing": CLOSE_S,
        }  # fmt: skip
        return limits[phase or "closing"]

    def _wait(self, wait_s: float) -> None:
        self._until_s = until_s = self.loop.time() + wait_s
        if self._timer is not None and self._timer.when() > until_s:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self.loop.call_at(until_s, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._phase is None:
            return
        if self._until_s > self.loop.time():
            self._timer = self.loop.call_at(self._until_s, self._check_deadline)
        else:
            self._give_up(408)

    def _give_up(self, status: int) -> None:
        """End a connection that waits for its client."""
        if self._phase in ("head", "body"):
            self._refuse(status)
        elif self._phase in ("read", "closing"):
            self.transport.abort()  # Closing it would wait for the client, too.
        else:
            self.timeout_keep_alive_handler()
            self._update()

    def _evict(self) -> bool:
        """Close the connection that has waited for its client for longest, preferably one without a token."""
        chosen = next((other for other in self.waiting if not other.is_authorized), None)
        chosen = chosen or next(iter(self.waiting), None)
        if chosen is None:
            return False
        chosen._give_up(503)
        return True

    @property
    def is_authorized(self) -> bool:
        """True if the last request had the token."""
        cycle: Any = self.cycle
        return cycle is not None and bool(cycle.scope.get(AUTHORIZED))

    def _refuse(self, status: int) -> None:
        if self.transport.is_closing():
            return
        access_log.write(client=self.client[0] if self.client else None, status=status, error=MESSAGES[status][0])
        cycle: Any = self.cycle  # None before the first request.
        if cycle is None or cycle.response_complete or not cycle.response_started:
            word, message = MESSAGES[status]
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
        self._update()


def _send_at_once(transport: asyncio.Transport) -> None:
    """Disable Nagle: heads and bodies leave in pieces, and each response would wait 40 ms for its second one to leave."""
    connection = transport.get_extra_info("socket")
    # asyncio does it by itself only for sockets that were opened with their protocol named.
    if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


# Heads that are refused ---------------------------------------------------------------------------------------------------

# `h11` accepts some old forms: lines that end with a bare line feed, folded lines, control characters, targets of any form,
# repeated lengths, chunks in HTTP/1.0. None of them is harmful here, but a proxy in front may read them differently. So
# heads are checked against the grammar of HTTP/1.1 before `h11` reads them.


_END = re.compile(rb"\n\r?\n")
_TOKEN = rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+"
_TARGET = rb"(?:/|https?://)[!-~]*"
_HEAD = re.compile(
    rb"(?:OPTIONS \*|CONNECT [!-~]+|" + _TOKEN + rb" " + _TARGET + rb") HTTP/1\.[01]\r\n"
    rb"(?:" + _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*\r\n)*\r\n"
)
_LENGTHS = re.compile(rb"\r\ncontent-length:[\t ]*([^\r]*)", re.IGNORECASE)
_OLD_AND_CHUNKED = re.compile(rb"[^\r]* HTTP/1\.0\r\n(?:.*\r\n)?transfer-encoding:", re.IGNORECASE | re.DOTALL)


def is_refused(data: bytes) -> bool:
    """True if the bytes begin with a whole head that is not in the form that every reader understands in the same way."""
    end = _END.search(data)
    if end is None:
        return False
    head = data[: end.end()]
    if _HEAD.fullmatch(head) is None or _OLD_AND_CHUNKED.match(head) is not None:
        return True
    lengths = _LENGTHS.findall(head)
    return len(lengths) > 1 or not all(length.strip().isdigit() for length in lengths)
