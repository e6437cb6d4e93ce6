"""Slowing down together: one limiter and one circuit breaker per endpoint, shared by all callers of an event loop.

A caller asks before each attempt, gets a `Turn`, and tells it what came of the attempt. This file knows nothing of requests;
time is given to it.
"""

from __future__ import annotations

import asyncio
import random
import time
import weakref
from collections import deque
from collections.abc import Hashable
from typing import Protocol

from callgate.errors import RateLimited, ServerUnavailable

__all__ = ["Clock", "Pressure", "SystemClock", "Turn", "pressure_for"]

FAILURES_TO_OPEN = 5
FAILURE_WINDOW_S = 30.0
OPEN_S = 30.0
PAUSE_MAX_S = 60.0
SPREAD_S = 1.5
"""Over how long the callers that waited for a pause to end are let go."""


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


class Turn:
    """One attempt of one caller. Whatever becomes of it, `over` ends it; nothing that is told twice counts twice."""

    def __init__(self, pressure: Pressure) -> None:
        self._pressure = pressure

    def succeeded(self) -> None:
        """The server has begun to answer."""
        self._pressure.note_answer(self, let_in=True)

    def refused(self) -> None:
        """The server is well, but does not want this request."""
        self._pressure.note_answer(self, let_in=False)

    def pushed_back(self, asked_s: float | None, backoff_s: float) -> float:
        """The server asked to slow down, for so long or without saying. Returns how long everybody waits now."""
        return self._pressure.note_push(self, asked_s, backoff_s)

    def failed(self) -> None:
        """The server is in trouble, or cannot be reached."""
        self._pressure.note_failure(self)

    def over(self) -> None:
        """The attempt has ended; if nothing was told before, nothing is known of the server."""
        self._pressure.note_end(self)


class Pressure:
    """What all callers of one endpoint know together.

    After a 429 everybody waits. When the pause is over one caller tries; if it is let in, the others follow, spread out; if
    not, there is another pause, twice as long unless the server says how long. After five outages in a row within half a
    minute calls fail at once for half a minute, then one may try.
    """

    def __init__(self, clock: Clock | None = None, *, dice: random.Random | None = None) -> None:
        self._clock = clock or _SYSTEM
        self._dice = dice or random.Random()
        self._pause_s = 0.0
        self._paused_until = 0.0
        self._pauses = 0
        """How often the server has asked everybody to wait."""
        self._scout: Turn | None = None
        """Who tries after a pause, for all that wait."""
        self._scout_back = asyncio.Event()
        self._failures: deque[float] = deque(maxlen=FAILURES_TO_OPEN)
        self._open_until: float | None = None
        self._trial: Turn | None = None
        """Who tries after an outage."""

    @property
    def pause_left_s(self) -> float:
        """How long whoever comes now has to wait at least."""
        return max(0.0, self._paused_until - self._clock.now()) if self._pause_s else 0.0

    @property
    def is_open(self) -> bool:
        """Whether the server is left alone at the moment."""
        return self._open_until is not None and self._open_until > self._clock.now()

    async def enter(self, *, patience: int) -> Turn:
        """Waits until an attempt may be made.

        Args:
            patience: How many further pauses, begun while this caller waits, it is willing to see.

        Raises:
            ServerUnavailable: the circuit is open.
            RateLimited: patience is at its end.
        """
        turn = Turn(self)
        pauses_seen = self._pauses
        is_late = False
        try:
            while True:
                self._pass_circuit(turn)
                if not self._pause_s:
                    if not is_late:
                        return turn
                    is_late = False
                    await self._clock.sleep(self._dice.uniform(0, SPREAD_S))
                    continue
                if self._pauses - pauses_seen > patience:
                    raise RateLimited("too many requests: the server kept asking everybody to wait")
                is_late = True
                if (left_s := self.pause_left_s) > 0:
                    await self._clock.sleep(left_s)
                elif self._scout is None:
                    self._scout = turn
                    self._scout_back.clear()
                    return turn
                else:
                    await self._scout_back.wait()
        except BaseException:
            turn.over()
            raise

    def _pass_circuit(self, turn: Turn) -> None:
        if self._open_until is None or self._trial is turn:
            return
        left_s = self._open_until - self._clock.now()
        if left_s > 0 or self._trial is not None:
            wait = f"it is left alone for another {left_s:.0f} s" if left_s > 0 else "another request is trying it out"
            raise ServerUnavailable(f"the server kept failing; {wait}", retryable=True)
        self._trial = turn

    # What turns tell ------------------------------------------------------------------------------------------------------

    def note_answer(self, turn: Turn, *, let_in: bool) -> None:
        """The server spoke: it is not out of order, and a scout that was let in ends the pause."""
        self._open_until = None
        self._failures.clear()
        if let_in and turn is self._scout:
            # Only the scout's word counts: others may have been let in before the pause began.
            self._pause_s = 0.0
        self.note_end(turn)

    def note_push(self, turn: Turn, asked_s: float | None, backoff_s: float) -> float:
        """The server asked to slow down."""
        is_scout = turn is self._scout
        if asked_s is not None:
            pause_s = asked_s
        else:
            pause_s = min(PAUSE_MAX_S, max(backoff_s, 2 * self._pause_s if is_scout else 0.0))
        if is_scout or not self._pause_s:
            self._pauses += 1
        self._pause_s = max(pause_s, 0.001 if is_scout else self._pause_s, 0.001)
        self._paused_until = max(self._paused_until, self._clock.now() + pause_s)
        self.note_answer(turn, let_in=False)
        return self.pause_left_s

    def note_failure(self, turn: Turn) -> None:
        """The server is in trouble."""
        now = self._clock.now()
        self._failures.append(now)
        in_a_row = len(self._failures) == FAILURES_TO_OPEN and now - self._failures[0] <= FAILURE_WINDOW_S
        if turn is self._trial or (in_a_row and self._open_until is None):
            self._open_until = now + OPEN_S
        self.note_end(turn)

    def note_end(self, turn: Turn) -> None:
        """The turn is over; if others waited for it, they go on."""
        if turn is self._trial:
            self._trial = None
        if turn is self._scout:
            self._scout = None
            self._scout_back.set()


_SYSTEM = SystemClock()
_SHARED: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[Hashable, int], Pressure]] = (
    weakref.WeakKeyDictionary()
)


def pressure_for(endpoint: Hashable, clock: Clock | None = None) -> Pressure:
    """The pressure that all callers of the endpoint on this event loop share, if they share a clock."""
    clock = clock or _SYSTEM
    shared = _SHARED.setdefault(asyncio.get_running_loop(), {})
    # The pressure holds its clock, so the id stays the clock's.
    key = (endpoint, id(clock))
    if key not in shared:
        if len(shared) >= 1_000:
            shared.clear()
        shared[key] = Pressure(clock)
    return shared[key]
