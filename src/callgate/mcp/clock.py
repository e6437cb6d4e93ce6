"""Deadlines that stand still while a person is asked.

Seconds come in, `TimeoutError` comes out when they are over; how long somebody thinks about an answer does not count.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Generator

__all__ = ["PersonClock"]


class PersonClock:
    """The deadlines of one connection. Everything here happens on one event loop."""

    def __init__(self) -> None:
        self._left_s: dict[asyncio.Timeout, float] = {}
        self._asked = 0

    @contextlib.asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncGenerator[None]:
        """Raise `TimeoutError` when the block takes longer, not counting the time in which a person is asked."""
        async with asyncio.timeout(None if self._asked else seconds) as limit:
            self._left_s[limit] = seconds
            try:
                yield
            finally:
                del self._left_s[limit]

    @contextlib.contextmanager
    def stopped(self) -> Generator[None]:
        """Stop the clock while a person is asked."""
        now = asyncio.get_running_loop().time
        self._asked += 1
        if self._asked == 1:
            for limit in self._left_s:
                self._left_s[limit] = (limit.when() or now()) - now()
                limit.reschedule(None)
        try:
            yield
        finally:
            self._asked -= 1
            if self._asked == 0:
                for limit, left_s in self._left_s.items():
                    limit.reschedule(now() + left_s)
