"""Slowing down together: one limiter and one circuit breaker per endpoint, shared by all callers of a process.

Callers ask before each attempt and report what came of it. This file knows nothing of requests; time is given to it.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from typing import Protocol

from callgate.errors import ServerUnavailable

__all__ = ["Clock", "Pressure", "SystemClock", "pressure_for"]


class Clock(Protocol):
    """Time that does not jump, and a way to let it pass."""

    def now(self) -> float:
        """Seconds since some moment."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Lets that much time pass."""
        ...


class SystemClock:
    """Real time, unmoved by changes of the wall clock."""

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleeps."""
        await asyncio.sleep(seconds)


FAILURES_TO_OPEN = 5
FAILURE_WINDOW_S = 30.0
OPEN_S = 30.0
SPREAD_S = 1.5
"""Over how long the callers that waited for a pause to end are let go."""


class Pressure:
    """What all callers of one endpoint know together.

    After a 429 everybody waits. When the pause is over one caller tries; if it is let in, the others follow, spread out; if
    not, the pause doubles. After five outages in half a minute calls fail at once for half a minute, then one may try.
    """

    def __init__(self, clock: Clock | None = None, *, dice: random.Random | None = None) -> None:
        self._clock = clock or SystemClock()
        self._dice = dice or random.Random()
        self._paused_until = 0.0
        self._pause_s = 0.0
        self._is_probing = False
        self._probe_over = asyncio.Event()
        self._failures: deque[float] = deque(maxlen=FAILURES_TO_OPEN)
        self._open_until: float | None = None

    async def enter(self) -> float:
        """Waits until an attempt may be made; returns how long that took.

        Raises:
            ServerUnavailable: the circuit is open.
        """
        began = self._clock.now()
        if self._open_until is not None:
            if began < self._open_until:
                wait_s = self._open_until - began
                raise ServerUnavailable(
                    f"the server kept failing; it is left alone for another {wait_s:.0f} s", retryable=True
                )
            self._open_until = began + OPEN_S  # This caller is the one that tries.
        waited = False
        while self._pause_s:
            left_s = self._paused_until - self._clock.now()
            if left_s > 0:
                waited = True
                await self._clock.sleep(left_s)
            elif self._is_probing:
                waited = True
                self._probe_over.clear()
                await self._probe_over.wait()
            else:
                self._is_probing = True
                return self._clock.now() - began
        if waited:
            await self._clock.sleep(self._dice.uniform(0, SPREAD_S))
        return self._clock.now() - began

    def pushed_back(self, wait_s: float) -> None:
        """The server asked to slow down: everybody waits at least this long."""
        until = self._clock.now() + wait_s
        if self._is_probing or not self._pause_s:
            self._pause_s = max(wait_s, 2 * self._pause_s) if self._is_probing else max(wait_s, 0.001)
            until = self._clock.now() + self._pause_s
        self._paused_until = max(self._paused_until, until)
        self._end_probe()

    def failed(self) -> None:
        """The server is in trouble."""
        now = self._clock.now()
        self._failures.append(now)
        full = len(self._failures) == FAILURES_TO_OPEN
        if self._open_until is not None or (full and now - self._failures[0] <= FAILURE_WINDOW_S):
            self._open_until = now + OPEN_S
        self._end_probe()

    def succeeded(self) -> None:
        """An attempt was let in: whatever was wrong is over."""
        self._pause_s = 0.0
        self._open_until = None
        self._failures.clear()
        self._end_probe()

    def left(self) -> None:
        """An attempt ended without telling anything of the server (it was cancelled, or refused for its own sake)."""
        self._end_probe()

    def _end_probe(self) -> None:
        self._is_probing = False
        self._probe_over.set()


_SHARED: dict[tuple[int, str], Pressure] = {}


def pressure_for(endpoint: str) -> Pressure:
    """The pressure that all callers of the endpoint on this event loop share."""
    loop = asyncio.get_running_loop()
    key = (id(loop), endpoint)
    if key not in _SHARED:
        if len(_SHARED) > 1_000:
            _SHARED.clear()
        _SHARED[key] = Pressure()
    return _SHARED[key]
