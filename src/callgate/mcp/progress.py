"""Progress of a tool -> notifications, in order and never fewer steps than before.

Reports come in from any thread, at any speed; numbers that only grow go out, as the protocol wants them. A client that reads
slowly loses reports, not time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Awaitable, Callable

from callgate.types import Progress

__all__ = ["ProgressPump"]

logger = logging.getLogger("callgate.mcp")

REPORTS_MAX = 64
"""Reports that may wait; further ones are dropped."""
FLUSH_S = 1.0
MESSAGE_CHARS_MAX = 1_000

Report = Callable[[float, float | None, str | None], Awaitable[None]]


class ProgressPump:
    """A forwarder of progress reports for as long as the context lasts; its end flushes the rest."""

    def __init__(self, send: Report) -> None:
        self._send = send
        self._waiting: asyncio.Queue[tuple[str, float | None] | None] = asyncio.Queue(REPORTS_MAX + 1)
        self._steps = 0
        """Reports that did not say how much of the work is done."""
        self._part = -1.0
        """The fraction of the work that is done, once it was reported."""

    async def __aenter__(self) -> Progress:
        loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._pump())

        def report(message: str, fraction: float | None = None) -> None:
            with contextlib.suppress(RuntimeError):  # The loop is gone: nobody watches any more.
                loop.call_soon_threadsafe(self._take, message, fraction)

        return report

    async def __aexit__(self, *exc: object) -> None:
        self._waiting.put_nowait(None)  # There is room for it: reports leave one place free.
        await asyncio.wait({self._task}, timeout=FLUSH_S)
        self._task.cancel()

    def _take(self, message: str, fraction: float | None) -> None:
        if self._waiting.qsize() < REPORTS_MAX:
            self._waiting.put_nowait((str(message)[:MESSAGE_CHARS_MAX], fraction))

    async def _pump(self) -> None:
        try:
            while (item := await self._waiting.get()) is not None:
                await self._send(*self._grown(*item))
        except Exception:
            # The client is gone, or what carries messages to it. The call's own end will show.
            logger.debug("progress could not be reported", exc_info=True)

    def _grown(self, message: str, fraction: float | None) -> tuple[float, float | None, str]:
        """Progress must grow with every notification, so what did not grow does so by the least that there is."""
        if fraction is not None and 0 <= fraction <= 1:
            self._part = fraction if fraction > self._part else math.nextafter(self._part, math.inf)
            return self._part, 1.0, message
        if self._part >= 0:
            self._part = math.nextafter(self._part, math.inf)
            return self._part, 1.0, message
        self._steps += 1
        return float(self._steps), None, message
