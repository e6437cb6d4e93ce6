"""Sockets for the HTTP client: bytes in, bytes out, on asyncio itself and with as few steps as there can be.

What is written leaves when something is read, so that the head and the body of a request leave together, in one packet where
they fit into one. Any event loop with asyncio's interface will do. This file knows nothing of HTTP; its errors are those of
the HTTP client.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import socket
import ssl
import sys
from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, cast

from callgate.wire.failures import ConnectError, ConnectTimeoutError, LocalProtocolError, ReadError

__all__ = ["SendTimeoutError", "Socket", "connect"]

BUFFER_BYTES = 64 * 1024
HELD_BYTES_MAX = 4 * BUFFER_BYTES
"""Unread bytes above which reading pauses."""
TOGETHER_BYTES_MAX = 64 * 1024
"""Pieces up to this size are joined into one write; larger ones are written on their own."""
CLOSE_S = 1.0
_EYEBALLS_S = 0.25
_PROBED = {"TCP_KEEPIDLE": 45, "TCP_KEEPALIVE": 45, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4}
"""TCP keep-alive options: gateways forget silent connections after minutes, and an
answer that is wanted whole may be silent for longer. Names and units differ from system to system."""


class SendTimeoutError(TimeoutError):
    """The other side has taken nothing of what is sent to it for too long."""


class _Inbox(asyncio.BufferedProtocol):
    """The receive buffer of a socket."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._until: float | None = None
        """The deadline of the waiter, by the clock of the event loop."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._held_bytes = 0
        self._sending: tuple[float, float, float] | None = None
        """The limits of a wait that began with sending: seconds after the last byte left, the deadline, and how
        long nothing at all may leave."""
        self._unsent_bytes = 0
        self.is_sending = False
        """True if a part of what was written has not left."""
        self.pieces: deque[bytes] = deque()
        self.has_ended = False
        self.error: Exception | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance: the transports of uvloop are no subclasses of asyncio's.
        self.moved_to(cast("asyncio.Transport", transport))

    def moved_to(self, transport: asyncio.Transport) -> None:
        """The connection has this transport from now on: at first a plain one, then maybe an encrypted one."""
        self._transport = transport
        # So pause_writing is called when something cannot leave at once, and resume_writing when all has left.
        transport.set_write_buffer_limits(high=1, low=0)

    def pause_writing(self) -> None:
        self.is_sending = True
        self._unsent_bytes = self._buffered()
        if self._sending is not None:
            _, until, write_s = self._sending
            self._wait_until(min(self._loop.time() + write_s, until))

    def resume_writing(self) -> None:
        self.is_sending = False
        if self._sending is not None:
            within_s, until, _ = self._sending
            self._wait_until(min(self._loop.time() + within_s, until))

    def _buffered(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self.pieces.append(bytes(self._view[:nbytes]))
        self._held_bytes += nbytes
        if self._held_bytes > HELD_BYTES_MAX and self._transport is not None and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self.has_ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.has_ended:
            self.has_ended, self.error = True, exc
        if not self.closed.done():
            self.closed.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
        self._wake()

    def take(self) -> bytes:
        """The oldest piece."""
        piece = self.pieces.popleft()
        self._held_bytes -= len(piece)
        if self._is_paused and self._held_bytes <= HELD_BYTES_MAX // 2:
            self._is_paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
        return piece

    def arrival(self, until: float | None, sending: tuple[float, float, float] | None = None) -> asyncio.Future[None]:
        """Wait until there is data to take, or the stream has ended; `TimeoutError` if nothing arrived in time."""
        self._waiter = waiter = self._loop.create_future()
        self._sending = sending
        self._until = until
        if until is not None and (self._timer is None or until < self._timer_at):
            self._set_timer(until)
        return waiter

    def _wait_until(self, until: float) -> None:
        self._until = until
        # Nearly all that is waited for comes long before its time is over. So a timer is left as it is when somebody has
        # waited, and looks when it is due who waits then: there is one in a minute, and not one for each wait.
        if self._timer is None or until < self._timer_at:
            self._set_timer(until)

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done() or self._until is None:
            return
        if self._timer_at < self._until:
            self._set_timer(self._until)
        elif not self.is_sending:
            self._waiter.set_exception(TimeoutError())
        else:
            self._on_send_timer()

    def _on_send_timer(self) -> None:
        """Wait on while something leaves."""
        assert self._sending is not None
        assert self._waiter is not None
        _, until, write_s = self._sending
        buffered = self._buffered()
        if self._timer_at >= until:
            self._waiter.set_exception(TimeoutError())
        elif buffered < self._unsent_bytes:
            self._unsent_bytes = buffered
            self._wait_until(min(self._timer_at + write_s, until))
        else:
            self._waiter.set_exception(SendTimeoutError())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Socket:
    """One connection, for one reader and writer at a time."""

    def __init__(self, transport: asyncio.Transport, inbox: _Inbox, sock: socket.socket) -> None:
        self._transport = transport
        self._inbox = inbox
        self._sock = sock
        self._unsent: list[bytes] = []
        self._look: Callable[[], Any] | None = None
        """Ask the system whether there is something to read."""

    @property
    def has_something(self) -> bool:
        """True if the next read gives something without waiting: bytes, or the end."""
        return bool(self._inbox.pieces) or self._inbox.has_ended

    @property
    def has_unsent(self) -> bool:
        """True if something that was written has not left."""
        return bool(self._unsent) or self._inbox.is_sending

    def write(self, *pieces: bytes) -> None:
        """Queue bytes that are sent when the next read waits. Write errors are raised by that read."""
        self._unsent += pieces

    async def read(self, until: float | None = None, *, sending: tuple[float, float, float] | None = None) -> bytes:
        """The next bytes, at most one buffer of them; none at the end. `until` is a time of the event loop.

        Args:
            until: When to stop waiting.
            sending: How long to wait once all that was written has left, when to stop waiting altogether, and how long
                nothing at all may leave. Where it is given, what leaves slowly is waited for longer than `until`.

        Raises:
            SendTimeoutError: the other side takes nothing.
            TimeoutError: nothing came in time.
            ReadError: the connection broke.
        """
        if self._unsent:
            # What is ready in the same round of the loop leaves one right after the other. Otherwise each may wake the other
            # side in the middle of the work for the next one, and that costs more than the writing.
            asyncio.get_running_loop().call_soon(self._flush)
        inbox = self._inbox
        if not inbox.pieces and not inbox.has_ended:
            await inbox.arrival(until, sending)
        if inbox.pieces:
            return inbox.take()
        if inbox.error is not None:
            raise ReadError(str(inbox.error)) from inbox.error
        return b""

    def is_readable(self) -> bool:
        """True if something came, even if the event loop has not looked at it yet: of a kept connection, mostly its end."""
        if self._inbox.pieces or self._inbox.has_ended or self._transport.is_closing():
            return True
        if self._look is None:
            self._look = _looking(self._transport.get_extra_info("socket").fileno())
        return bool(self._look())

    async def aclose(self) -> None:
        """Close the connection at once; whatever was on its way is of no interest any more."""
        self.abort()
        if not self._inbox.closed.done():
            await asyncio.wait({self._inbox.closed}, timeout=CLOSE_S)

    def abort(self) -> None:
        """Close without waiting."""
        self._unsent.clear()
        self._transport.abort()

    def drop(self) -> None:
        """Close the connection of an event loop that was closed, which cannot do it any more."""
        self._sock.close()

    async def start_tls(self, trust: ssl.SSLContext, host: str) -> Socket:
        """The same connection, encrypted from now on."""
        transport = await asyncio.get_running_loop().start_tls(self._transport, self._inbox, trust, server_hostname=host)
        if transport is None:
            raise ConnectionAbortedError("the connection was given up during TLS")
        self._inbox.moved_to(transport)
        return Socket(transport, self._inbox, self._sock)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._transport.is_closing():
            return
        if sum(map(len, unsent)) <= TOGETHER_BYTES_MAX:
            self._transport.write(b"".join(unsent))
            return
        for piece in unsent:
            self._transport.write(piece)


def _looking(number: int) -> Callable[[], Any]:
    """A function that returns True if a descriptor is readable now."""
    if sys.platform == "win32" or not hasattr(select, "poll"):
        return lambda: select.select([number], [], [], 0)[0]
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return partial(poll.poll, 0)


async def connect(host: str, port: int, *, trust: ssl.SSLContext | None, timeout_s: float | None) -> Socket:
    """A connection to whichever address of the host answers first, encrypted if there is a `trust`.

    Raises:
        ConnectTimeoutError: there is none in time.
        ConnectError: there is none, or its certificate is not to be trusted.
    """
    loop = asyncio.get_running_loop()
    with _as_connect_errors():
        async with asyncio.timeout(timeout_s):
            sock = await _connected(loop, await _addresses(loop, host, port))
            try:
                transport, inbox = await loop.create_connection(_Inbox, sock=sock)
            except BaseException:
                sock.close()
                raise
            plain = Socket(transport, inbox, sock)
            if trust is None:
                return plain
            try:
                return await plain.start_tls(trust, host.partition("%")[0])  # No certificate names a zone of IPv6.
            except BaseException:
                transport.abort()
                raise


async def _addresses(loop: asyncio.AbstractEventLoop, host: str, port: int) -> Sequence[Any]:
    """The addresses of a host. One that is written as an address needs no lookup, and so no thread."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)


async def _connected(loop: asyncio.AbstractEventLoop, addresses: Sequence[Any]) -> socket.socket:
    """A socket at the first address that answers; the next one is tried when one is slow to.

    asyncio can do this by itself, but may forget an open socket when it is cancelled on the way.
    """
    tried: set[asyncio.Task[socket.socket]] = set()
    failed: OSError | None = None
    won: socket.socket | None = None
    try:
        left = list(addresses)
        while left or any(not attempt.done() for attempt in tried):
            if left:
                tried.add(asyncio.create_task(_reached(loop, left.pop(0))))
            waiting = {attempt for attempt in tried if not attempt.done()}
            done, _ = await asyncio.wait(waiting, timeout=_EYEBALLS_S if left else None, return_when=asyncio.FIRST_COMPLETED)
            for attempt in done:
                if (error := attempt.exception()) is None:
                    won = attempt.result()
                    return won
                failed = failed or cast("OSError", error)
        raise failed or OSError("the host has no address")
    finally:
        for attempt in tried:
            attempt.cancel()
            attempt.add_done_callback(partial(_close_loser, won))


async def _reached(loop: asyncio.AbstractEventLoop, address: Any) -> socket.socket:
    family, kind, protocol, _, place = address
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        _probe(sock)
        await loop.sock_connect(sock, place)
    except BaseException:
        sock.close()
        raise
    return sock


def _probe(sock: socket.socket) -> None:
    """Let the system look now and then whether the other side is still there."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBED.items():
        if (option := getattr(socket, name, None)) is not None:
            with contextlib.suppress(OSError):  # Known by name, and not to this kind of socket.
                sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _close_loser(won: socket.socket | None, attempt: asyncio.Task[socket.socket]) -> None:
    if not attempt.cancelled() and attempt.exception() is None and attempt.result() is not won:
        attempt.result().close()


@contextlib.contextmanager
def _as_connect_errors() -> Generator[None]:
    try:
        yield
    except TimeoutError as error:
        raise ConnectTimeoutError(str(error)) from error
    except ssl.SSLError as error:
        raise ConnectError(str(error)) from error
    except UnicodeError as error:
        raise LocalProtocolError(f"the name of the host is not valid: {error}") from error
    except OSError as error:
        # What asyncio says of it holds numbers and addresses; the system's own words are enough for a person.
        known = error.errno in errno.errorcode and not isinstance(error, socket.gaierror)
        raise ConnectError(os.strerror(error.errno or 0) if known else str(error)) from error
