"""Slowing down together: one limiter and one circuit breaker per endpoint, shared by all callers of the process.

A caller asks before each attempt, gets a `Permit`, and tells it what came of the attempt. Callers may be on several event
loops in several threads: what they know together is guarded by a lock that is held for a few steps and never while somebody
waits, and everybody is woken on the loop that they wait on. This file knows nothing of requests; time is given to it.
"""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
import weakref
from collections import deque
from collections.abc import Hashable, Iterable
from typing import Protocol

from callgate.errors import RateLimited, ServerUnavailable

__all__ = ["Clock", "EndpointHealth", "Permit", "SystemClock", "forget_all", "health_for"]

FAILURES_TO_OPEN = 5
FAILURE_WINDOW_S = 30.0
OPEN_S = 30.0
PAUSE_MAX_S = 60.0
SPREAD_S = 1.5
"""Over how long the callers that waited for a pause to end are let go."""
LOOK_AGAIN_S = 1.0
"""How soon those who wait for another caller notice that its event loop died with it."""
STANDSTILL_S = 60.0
"""How long an event loop that does not run may keep others waiting: it may run again, or never."""
ENDPOINTS_MAX = 1_000


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


class Permit:
    """One attempt of one caller. Whatever becomes of it, `over` ends it; nothing that is told twice counts twice."""

    def __init__(self, health: EndpointHealth, pauses_seen: int) -> None:
        self._health = health
        self._loop = asyncio.get_running_loop()
        self.pauses_seen = pauses_seen
        self.is_late = False
        """Whether it had to wait for the end of a pause, and so leaves it together with others."""

    def is_lost(self, out_s: float) -> bool:
        """Whether nothing will be told any more by a caller that has been out so long."""
        return self._loop.is_closed() or (out_s > STANDSTILL_S and not self._loop.is_running())

    def succeeded(self) -> None:
        """The server has begun to answer."""
        self._health.note_answer(self, let_in=True)

    def refused(self) -> None:
        """The server is well, but does not want this request."""
        self._health.note_answer(self, let_in=False)

    def pushed_back(self, asked_s: float | None, backoff_s: float) -> float:
        """The server asked to slow down, for so long or without saying. Returns how long everybody waits now."""
        return self._health.note_push(self, asked_s, backoff_s)

    def failed(self) -> None:
        """The server is in trouble, or cannot be reached."""
        self._health.note_failure(self)

    def over(self) -> None:
        """The attempt has ended; if nothing was told before, nothing is known of the server."""
        self._health.note_end(self)


class EndpointHealth:
    """What all callers of one endpoint know together.

    After a 429 everybody waits. When the pause is over one caller tries; if it is let in, the others follow, spread out; if
    not, there is another pause, twice as long unless the server says how long. After five outages in a row within half a
    minute calls fail at once for half a minute, then one may try.
    """

    def __init__(self, clock: Clock | None = None, *, dice: random.Random | None = None) -> None:
        self._clock = clock or _SYSTEM
        self._dice = dice or random.Random()
        # Re-entrant, because a garbage collection at any step may end the permit of a caller that was given up.
        self._lock = threading.RLock()
        self._pause_s = 0.0
        self._paused_until = 0.0
        self._pauses = 0
        """How often the server has asked everybody to wait."""
        self._scout = _Post()
        """Who tries after a pause, for all that wait."""
        self._waiting: dict[asyncio.Future[None], None] = {}
        """Those who wait for the scout, first come first."""
        self._failures: deque[float] = deque(maxlen=FAILURES_TO_OPEN)
        self._open_until: float | None = None
        self._trial = _Post()
        """Who tries after an outage."""

    @property
    def pause_left_s(self) -> float:
        """How long whoever comes now has to wait at least."""
        return max(0.0, self._paused_until - self._clock.now()) if self._pause_s else 0.0

    @property
    def is_open(self) -> bool:
        """Whether the server is left alone at the moment."""
        open_until = self._open_until
        return open_until is not None and open_until > self._clock.now()

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing is known any more that a new health would not know."""
        with self._lock:
            now = self._clock.now()
            is_waited_for = bool(self._waiting) or self._scout.is_taken(now) or self._trial.is_taken(now)
            has_failed = bool(self._failures) and now - self._failures[-1] <= FAILURE_WINDOW_S
            return not (is_waited_for or has_failed or self.pause_left_s or self.is_open)

    async def enter(self, *, patience: int) -> Permit:
        """Waits until an attempt may be made.

        Args:
            patience: How many further pauses, begun while this caller waits, it is willing to see.

        Raises:
            ServerUnavailable: the circuit is open.
            RateLimited: patience is at its end.
        """
        permit = Permit(self, self._pauses)
        try:
            while (wait := self._next_wait(permit, patience)) is not None:
                if isinstance(wait, asyncio.Future):
                    await self._word_of_scout(wait)
                else:
                    await self._clock.sleep(wait)
        except BaseException:
            permit.over()
            raise
        return permit

    def _next_wait(self, permit: Permit, patience: int) -> float | asyncio.Future[None] | None:
        """What the caller has to wait for next: so many seconds, the scout, or nothing."""
        if not self._pause_s and not permit.is_late and self._open_until is None:
            return None  # All is well, as nearly always.
        with self._lock:
            now = self._clock.now()
            self._pass_circuit(permit, now)
            if not self._pause_s:
                was_late, permit.is_late = permit.is_late, False
                return self._dice.uniform(0, SPREAD_S) if was_late else None
            if self._pauses - permit.pauses_seen > patience:
                raise RateLimited("too many requests: the server kept asking everybody to wait")
            permit.is_late = True
            if self._paused_until > now:
                return self._paused_until - now
            if not self._scout.is_taken(now):
                self._scout.take(permit, now)
                return None
            word = asyncio.get_running_loop().create_future()
            self._waiting[word] = None
            return word

    async def _word_of_scout(self, word: asyncio.Future[None]) -> None:
        # A scout that dies with its event loop tells nobody, so now and then everybody looks for it. Being told of its death
        # by a finalizer would be no better: that runs in any thread at any step, whatever locks are held there.
        alarm = word.get_loop().call_later(LOOK_AGAIN_S, _release, [word])
        try:
            await word
        finally:
            alarm.cancel()
            with self._lock:
                self._waiting.pop(word, None)

    def _pass_circuit(self, permit: Permit, now: float) -> None:
        if self._open_until is None or self._trial.is_held_by(permit):
            return
        left_s = self._open_until - now
        if left_s > 0 or self._trial.is_taken(now):
            wait = f"it is left alone for another {left_s:.0f} s" if left_s > 0 else "another request is trying it out"
            raise ServerUnavailable(f"the server kept failing; {wait}", retryable=True)
        self._trial.take(permit, now)

    # What permits tell ----------------------------------------------------------------------------------------------------

    def note_answer(self, permit: Permit, *, let_in: bool) -> None:
        """The server spoke: it is not out of order, and a scout that was let in ends the pause."""
        if self._open_until is None and not self._failures and self._scout.holder is None and self._trial.holder is None:
            return  # All is well, as nearly always, and there is nothing to end.
        with self._lock:
            self._open_until = None
            self._failures.clear()
            if let_in and self._scout.is_held_by(permit):
                # Only the scout's word counts: others may have been let in before the pause began.
                self._pause_s = 0.0
        self.note_end(permit)

    def note_push(self, permit: Permit, asked_s: float | None, backoff_s: float) -> float:
        """The server asked to slow down."""
        with self._lock:
            is_scout = self._scout.is_held_by(permit)
            if asked_s is not None:
                pause_s = asked_s
            else:
                pause_s = min(PAUSE_MAX_S, max(backoff_s, 2 * self._pause_s if is_scout else 0.0))
            if is_scout or not self._pause_s:
                self._pauses += 1
            self._pause_s = max(pause_s, 0.001 if is_scout else self._pause_s, 0.001)
            self._paused_until = max(self._paused_until, self._clock.now() + pause_s)
            left_s = self.pause_left_s
        self.note_answer(permit, let_in=False)
        return left_s

    def note_failure(self, permit: Permit) -> None:
        """The server is in trouble."""
        with self._lock:
            now = self._clock.now()
            self._failures.append(now)
            in_a_row = len(self._failures) == FAILURES_TO_OPEN and now - self._failures[0] <= FAILURE_WINDOW_S
            if self._trial.is_held_by(permit) or (in_a_row and self._open_until is None):
                self._open_until = now + OPEN_S
        self.note_end(permit)

    def note_end(self, permit: Permit) -> None:
        """The permit is over; if others waited for it, they go on."""
        if self._scout.holder is None and self._trial.holder is None:
            return
        woken: dict[asyncio.Future[None], None] = {}
        with self._lock:
            self._trial.leave(permit)
            if self._scout.leave(permit):
                woken, self._waiting = self._waiting, woken
        if woken:
            _wake(woken)


class _Post:
    """A place that one caller of the process holds at a time: whoever tries for all others.

    The permit is held weakly, and its event loop is asked: who died without a word has left.
    """

    def __init__(self) -> None:
        self.holder: weakref.ref[Permit] | None = None
        """Who holds it, dead or alive."""
        self._since = 0.0

    def is_held_by(self, permit: Permit) -> bool:
        return self.holder is not None and self.holder() is permit

    def is_taken(self, now: float) -> bool:
        permit = self.holder() if self.holder is not None else None
        return permit is not None and not permit.is_lost(now - self._since)

    def take(self, permit: Permit, now: float) -> None:
        self.holder, self._since = weakref.ref(permit), now

    def leave(self, permit: Permit) -> bool:
        """Frees the place if the permit holds it; whether it did."""
        was_held = self.is_held_by(permit)
        if was_held:
            self.holder = None
        return was_held


def _wake(words: Iterable[asyncio.Future[None]]) -> None:
    """Lets everybody go on who waits for this word, on the event loop of each, first come first."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for word in words:
        by_loop.setdefault(word.get_loop(), []).append(word)
    for loop, own in by_loop.items():
        try:
            loop.call_soon_threadsafe(_release, own)
        except RuntimeError:
            # The loop was closed, and with it ended whoever waited there.
            continue


def _release(words: list[asyncio.Future[None]]) -> None:
    for word in words:
        if not word.done():
            word.set_result(None)


# One for all -------------------------------------------------------------------------------------------------------------


class _Endpoints:
    """The pressures of the process. Those that callers hold at the moment stay the same for everybody; of the others those
    are kept that still know something, and as many more as there is room for."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._in_use: weakref.WeakValueDictionary[tuple[Hashable, int], EndpointHealth] = weakref.WeakValueDictionary()
        self._kept: dict[tuple[Hashable, int], EndpointHealth] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, endpoint: Hashable, clock: Clock) -> EndpointHealth:
        # The health holds its clock, so the id stays the clock's.
        key = (endpoint, id(clock))
        if (health := self._kept.get(key)) is not None:
            return health
        with self._lock:
            health = self._kept.get(key)
            if health is None:
                health = self._in_use.get(key) or EndpointHealth(clock)
                self._make_room()
                self._in_use[key] = self._kept[key] = health
            return health

    def _make_room(self) -> None:
        if len(self._kept) < ENDPOINTS_MAX:
            return
        self._kept = {key: health for key, health in self._kept.items() if not health.is_at_rest}
        # Where nearly all are in trouble, the oldest trouble is forgotten, a good part at once so that this stays rare.
        if len(self._kept) > ENDPOINTS_MAX // 2:
            self._kept = dict(list(self._kept.items())[-ENDPOINTS_MAX // 2 :])


_SYSTEM = SystemClock()
_endpoints = _Endpoints()


def health_for(endpoint: Hashable, clock: Clock | None = None) -> EndpointHealth:
    """The health that all callers of the endpoint in this process share, if they share a clock."""
    return _endpoints.get(endpoint, clock or _SYSTEM)


def forget_all() -> None:
    """Starts anew, as a new process does: nothing is known of any endpoint."""
    global _endpoints
    _endpoints = _Endpoints()


if hasattr(os, "register_at_fork"):
    # A lock that another thread held at that moment would stay locked in the child for ever.
    os.register_at_fork(after_in_child=forget_all)
