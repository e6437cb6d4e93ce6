"""Sockets for the HTTP client: bytes in, bytes out, on asyncio itself and with as few steps as there can be.

What is written leaves when something is read, so that the head and the body of a request leave together, in one packet where
they fit into one. This file knows nothing of HTTP; its errors are those of the HTTP client.
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

import httpx2

__all__ = ["Socket", "connect"]

BUFFER_BYTES = 64 * 1024
HELD_BYTES_MAX = 4 * BUFFER_BYTES
"""What may wait to be read before the other side is kept waiting."""
TOGETHER_BYTES_MAX = 64 * 1024
"""Up to this size, pieces are copied together to be sent at once; larger ones are worth a step of their own."""
CLOSE_S = 1.0
_EYEBALLS_S = 0.25


class _Inbox(asyncio.BufferedProtocol):
    """What has arrived on a socket and nobody has read yet."""

    def __init__(self) -> None:
        self._view = memoryview(bytearray(BUFFER_BYTES))
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._until: float | None = None
        """How long whoever waits is willing to, by the clock of the event loop."""
        self._alarm: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._held_bytes = 0
        self.pieces: deque[bytes] = deque()
        self.has_ended = False
        self.error: Exception | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance: the transports of uvloop are no subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)

    def moved_to(self, transport: asyncio.Transport) -> None:
        """What was a plain connection is an encrypted one from now on."""
        self._transport = transport

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
        if self._alarm is not None:
            self._alarm.cancel()
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

    def arrival(self, until: float | None) -> asyncio.Future[None]:
        """To be waited for until there is something to take, or never will be; a `TimeoutError` if nothing came in time."""
        self._waiter = waiter = self._loop.create_future()
        self._until = until
        # Nearly all that is waited for comes long before its time is over. So an alarm is left as it is when somebody has
        # waited, and looks when it rings who waits then: there is one in a minute, and not one for each wait.
        if until is not None and (self._alarm is None or until < self._alarm.when()):
            self._set_alarm(until)
        return waiter

    def _set_alarm(self, at: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(at, self._ring, at)

    def _ring(self, at: float) -> None:
        self._alarm = None
        if self._waiter is None or self._waiter.done() or self._until is None:
            return
        if at < self._until:
            self._set_alarm(self._until)
        else:
            self._waiter.set_exception(TimeoutError())

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Socket:
    """One connection, for one reader and writer at a time."""

    def __init__(self, transport: asyncio.Transport, inbox: _Inbox) -> None:
        self._transport = transport
        self._inbox = inbox
        self._unsent: list[bytes] = []
        self._look: Callable[[], Any] | None = None
        """Asks the system whether there is something to read."""

    @property
    def has_something(self) -> bool:
        """Whether the next read gives something without waiting: bytes, or the end."""
        return bool(self._inbox.pieces) or self._inbox.has_ended

    def write(self, *pieces: bytes) -> None:
        """Takes bytes that leave when the next read waits. What becomes of them is told to whoever reads."""
        self._unsent += pieces

    async def read(self, until: float | None = None) -> bytes:
        """The next bytes, at most one buffer of them; none at the end. `until` is a time of the event loop.

        Raises:
            TimeoutError: nothing came in time.
            httpx2.ReadError: the connection broke.
        """
        if self._unsent:
            # What is ready in the same round of the loop leaves one right after the other. Otherwise each may wake the other
            # side in the middle of the work for the next one, and that costs more than the writing.
            asyncio.get_running_loop().call_soon(self._flush)
        inbox = self._inbox
        if not inbox.pieces and not inbox.has_ended:
            await inbox.arrival(until)
        if inbox.pieces:
            return inbox.take()
        if inbox.error is not None:
            raise httpx2.ReadError(str(inbox.error)) from inbox.error
        return b""

    def is_readable(self) -> bool:
        """Whether something came, even if the event loop has not looked at it yet: of a kept connection, mostly its end."""
        if self._inbox.pieces or self._inbox.has_ended or self._transport.is_closing():
            return True
        if self._look is None:
            self._look = _looking(self._transport.get_extra_info("socket").fileno())
        return bool(self._look())

    async def aclose(self) -> None:
        """Closes the connection at once; whatever was on its way is of no interest any more."""
        self.abort()
        if not self._inbox.closed.done():
            await asyncio.wait({self._inbox.closed}, timeout=CLOSE_S)

    def abort(self) -> None:
        """As `aclose`, for those who need not know when it is closed."""
        self._unsent.clear()
        self._transport.abort()

    async def start_tls(self, trust: ssl.SSLContext, host: str) -> Socket:
        """The same connection, encrypted from now on."""
        transport = await asyncio.get_running_loop().start_tls(self._transport, self._inbox, trust, server_hostname=host)
        assert transport is not None, "asyncio gives none only if the connection was given up"
        self._inbox.moved_to(transport)
        return Socket(transport, self._inbox)

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
    """What tells whether a descriptor can be read at this moment."""
    if sys.platform == "win32" or not hasattr(select, "poll"):
        return lambda: select.select([number], [], [], 0)[0]
    poll = select.poll()
    poll.register(number, select.POLLIN)
    return partial(poll.poll, 0)


async def connect(host: str, port: int, *, trust: ssl.SSLContext | None, timeout_s: float | None) -> Socket:
    """A connection to whichever address of the host answers first, encrypted if there is a `trust`.

    Raises:
        httpx2.ConnectTimeout: there is none in time.
        httpx2.ConnectError: there is none, or its certificate is not to be trusted.
    """
    loop = asyncio.get_running_loop()
    with _as_connect_errors():
        async with asyncio.timeout(timeout_s):
            sock = await _connected(loop, await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))
            try:
                transport, inbox = await loop.create_connection(_Inbox, sock=sock)
            except BaseException:
                sock.close()
                raise
            if trust is None:
                return Socket(transport, inbox)
            try:
                return await Socket(transport, inbox).start_tls(trust, host)
            except BaseException:
                transport.abort()
                raise


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
        await loop.sock_connect(sock, place)
    except BaseException:
        sock.close()
        raise
    return sock


def _close_loser(won: socket.socket | None, attempt: asyncio.Task[socket.socket]) -> None:
    if not attempt.cancelled() and attempt.exception() is None and attempt.result() is not won:
        attempt.result().close()


@contextlib.contextmanager
def _as_connect_errors() -> Generator[None]:
    try:
        yield
    except TimeoutError as error:
        raise httpx2.ConnectTimeout(str(error)) from error
    except ssl.SSLError as error:
        raise httpx2.ConnectError(str(error)) from error
    except OSError as error:
        # What asyncio says of it holds numbers and addresses; the system's own words are enough for a person.
        known = error.errno in errno.errorcode and not isinstance(error, socket.gaierror)
        raise httpx2.ConnectError(os.strerror(error.errno or 0) if known else str(error)) from error
