"""Sockets for the HTTP client: bytes in, bytes out, on asyncio itself and with as few steps as there can be.

The HTTP client's own sockets go through a portability layer that costs more than everything else about a small request; this
process runs on asyncio in any case. A request's head and body leave together, in one packet where they fit into one. This file
knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import ssl
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import httpcore2

__all__ = ["AsyncioBackend", "Socket"]

BUFFER_BYTES = 64 * 1024
HELD_BYTES_MAX = 4 * BUFFER_BYTES
"""What may wait to be read before the other side is kept waiting."""
TOGETHER_BYTES_MAX = 64 * 1024
"""Up to this size, pieces are copied together to be sent at once; larger ones are worth a step of their own."""
_EYEBALLS_S = 0.25


class _Inbox(asyncio.BufferedProtocol):
    """What has arrived on a socket and nobody has read yet."""

    def __init__(self) -> None:
        self._room = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._room)
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self.pieces: deque[bytes] = deque()
        self.held = 0
        self.has_ended = False
        self.error: Exception | None = None
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def moved_to(self, transport: asyncio.Transport) -> None:
        """What was a plain connection is an encrypted one from now on."""
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, nbytes: int) -> None:
        self.pieces.append(bytes(self._view[:nbytes]))
        self.held += nbytes
        if self.held > HELD_BYTES_MAX and self._transport is not None and not self._is_paused:
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
        self._wake()

    def take(self) -> bytes:
        """The oldest piece; what came in one piece is given out in one piece."""
        piece = self.pieces.popleft()
        self.held -= len(piece)
        if self._is_paused and self.held <= HELD_BYTES_MAX // 2:
            self._is_paused = False
            if self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()
        return piece

    async def arrival(self, timeout_s: float | None) -> None:
        """Waits until there is something to take, or never will be.

        Raises:
            TimeoutError: nothing came in time.
        """
        self._waiter = waiter = self._loop.create_future()
        alarm = None if timeout_s is None else self._loop.call_later(timeout_s, _ring, waiter)
        try:
            await waiter
        finally:
            self._waiter = None
            if alarm is not None:
                alarm.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _ring(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())


class Socket(httpcore2.AsyncNetworkStream):
    """One connection. What is written leaves when something is read, so that a whole request leaves at once."""

    def __init__(self, transport: asyncio.Transport, inbox: _Inbox) -> None:
        self._transport = transport
        self._inbox = inbox
        self._unsent: list[bytes] = []

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """The next bytes, at most one buffer of them; none at the end."""
        self._flush()
        inbox = self._inbox
        if not inbox.pieces and not inbox.has_ended:
            try:
                await inbox.arrival(timeout)
            except TimeoutError as error:
                raise httpcore2.ReadTimeout(str(error)) from error
        if inbox.pieces:
            return inbox.take()
        if inbox.error is not None:
            raise httpcore2.ReadError(str(inbox.error)) from inbox.error
        return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Takes bytes to be sent with the next ones, or before the next read."""
        if self._transport.is_closing():
            raise httpcore2.WriteError("the connection is closed") from self._inbox.error
        if buffer:
            self._unsent.append(buffer)

    async def aclose(self) -> None:
        """Closes the connection at once; whatever was on its way is of no interest any more."""
        self._unsent.clear()
        self._transport.abort()
        if not self._inbox.closed.done():
            await asyncio.wait({self._inbox.closed}, timeout=1)

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> Socket:
        """The same connection, encrypted from now on."""
        self._flush()
        loop = asyncio.get_running_loop()
        try:
            with _as_connect_errors():
                async with asyncio.timeout(timeout):
                    transport = await loop.start_tls(
                        self._transport, self._inbox, ssl_context, server_hostname=server_hostname
                    )
            assert transport is not None
        except BaseException:
            self._transport.abort()
            raise
        self._inbox.moved_to(transport)
        return Socket(transport, self._inbox)

    def get_extra_info(self, info: str) -> Any:
        """What asyncio knows of the connection, in the words of the HTTP client."""
        if info == "is_readable":
            return bool(self._inbox.pieces) or self._inbox.has_ended or self._is_readable()
        return self._transport.get_extra_info(_INFO.get(info, info))

    def _is_readable(self) -> bool:
        """Whether something came that the event loop has not looked at yet: a kept connection that the server closed."""
        sock = self._transport.get_extra_info("socket")
        number = -1 if sock is None else sock.fileno()
        if number < 0:
            return True
        if sys.platform == "win32" or not hasattr(select, "poll"):
            return bool(select.select([number], [], [], 0)[0])
        poll = select.poll()
        poll.register(number, select.POLLIN)
        return bool(poll.poll(0))

    def _flush(self) -> None:
        unsent = self._unsent
        if not unsent:
            return
        self._unsent = []
        if self._transport.is_closing():
            return  # How it ended is told to whoever reads.
        if sum(map(len, unsent)) <= TOGETHER_BYTES_MAX:
            self._transport.write(b"".join(unsent))
            return
        for piece in unsent:
            self._transport.write(piece)


_INFO = {"client_addr": "sockname", "server_addr": "peername"}


class AsyncioBackend(httpcore2.AsyncNetworkBackend):
    """Opens connections on the running event loop."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> Socket:
        """A connection to whichever address of the host answers first."""
        loop = asyncio.get_running_loop()
        local = None if local_address is None else (local_address, 0)
        # Event loops of others have no such option; those of asyncio would otherwise wait long for the first address.
        race: dict[str, Any] = {"happy_eyeballs_delay": _EYEBALLS_S} if isinstance(loop, asyncio.BaseEventLoop) else {}
        with _as_connect_errors():
            async with asyncio.timeout(timeout):
                transport, inbox = await loop.create_connection(_Inbox, host, port, local_addr=local, **race)
        for option in socket_options or ():
            transport.get_extra_info("socket").setsockopt(*option)
        return Socket(transport, inbox)

    async def sleep(self, seconds: float) -> None:
        """Lets time pass."""
        await asyncio.sleep(seconds)


@contextlib.contextmanager
def _as_connect_errors() -> Iterator[None]:
    try:
        yield
    except TimeoutError as error:
        raise httpcore2.ConnectTimeout(str(error)) from error
    except OSError as error:  # Refusals of TLS are errors of this kind too.
        raise httpcore2.ConnectError(str(error)) from error
