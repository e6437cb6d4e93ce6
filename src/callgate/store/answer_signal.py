"""Signals of new and taken answers: PostgreSQL sends them (LISTEN/NOTIFY), other stores are looked at now and then.

A connection of its own listens. Signals only end a wait early: who waits looks into the store anyhow, often until the first
signal has arrived, because a pooler may swallow them, and less often from then on: one that is lost costs half a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

__all__ = ["AnswerSignal"]

logger = logging.getLogger("callgate.store")

POLL_S = 0.2
"""Maximum seconds of a wait as long as no signal was received."""
POLL_HEARD_S = 0.5
"""The same once signals arrive."""
RETRY_S = 5.0
"""Seconds after a failure until the connection is opened again."""


class AnswerSignal:
    """Signal for those who wait for a change among the answers of a store.

    Args:
        connect: Opens a connection that listens, off the event loop; None if the store cannot send signals.
        errors: What the connection may raise.
    """

    def __init__(self, connect: Callable[[], Any] | None, errors: type[Exception] = OSError) -> None:
        self._connect = connect
        self._errors = errors
        self._connection: Any = None
        self._descriptor = -1
        """Descriptor of the connection: libpq closes it as soon as the server is gone, and does not know its number then."""
        self._opening: asyncio.Task[None] | None = None
        self._retry_s = 0.0
        self._has_heard = False
        self.mark = 0
        """Number of signals so far; read before a look into the store, it makes a wait see signals since then."""
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def is_heard(self) -> bool:
        """True if signals arrive."""
        return self._connection is not None and self._has_heard

    async def wait(self, mark: int, wait_s: float = POLL_HEARD_S) -> None:
        """Wait for a signal since `mark`, or for a while; the caller looks into the store afterwards."""
        self._open()
        if self.mark != mark:
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait({waiter}, timeout=min(wait_s, POLL_HEARD_S if self.is_heard else POLL_S))
        finally:
            self._waiters.discard(waiter)

    def wake(self) -> None:
        """End all waits, as a signal does."""
        self.mark += 1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def aclose(self) -> None:
        """Stop listening."""
        self._connect = None
        if self._opening is not None:
            await asyncio.wait({self._opening})
        self._drop()

    def _open(self) -> None:
        is_due = self._connection is None and time.monotonic() >= self._retry_s
        if self._connect is not None and is_due and (self._opening is None or self._opening.done()):
            self._opening = asyncio.create_task(self._listen(self._connect))

    async def _listen(self, connect: Callable[[], Any]) -> None:
        loop = asyncio.get_running_loop()
        try:
            connection = await asyncio.to_thread(connect)
        except (self._errors, OSError) as error:
            logger.warning("signals of answers cannot be received, so the store is asked instead: %s", error)
            self._retry_s = time.monotonic() + RETRY_S
            return
        self._connection, self._descriptor = connection, connection.fileno()
        try:
            loop.add_reader(self._descriptor, self._read)
        except NotImplementedError:  # An event loop that cannot watch sockets.
            self._connect = None
            self._drop()

    def _read(self) -> None:
        try:
            self._connection.pgconn.consume_input()
            while self._connection.pgconn.notifies() is not None:
                self._has_heard = True
                self.wake()
        except self._errors as error:
            logger.warning("signals of answers are not received any more: %s", error)
            self._retry_s = time.monotonic() + RETRY_S
            self._drop()

    def _drop(self) -> None:
        connection, self._connection, self._has_heard = self._connection, None, False
        if connection is not None:
            # Or the next connection with this number, of anybody in the process, would never be read.
            with contextlib.suppress(OSError, ValueError, NotImplementedError):
                asyncio.get_running_loop().remove_reader(self._descriptor)
            with contextlib.suppress(self._errors, OSError):
                connection.close()
        self.wake()
