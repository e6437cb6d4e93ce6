"""The health of an endpoint: one rate limiter and one circuit breaker, shared by all callers of the process.

A caller asks before each attempt, gets a `Permit`, and tells it what came of the attempt. Callers may be on several event
loops in several threads: what they know together is guarded by a lock that is held for a few steps and never while somebody
waits, and everybody is woken on the loop that they wait on. This file knows nothing of HTTP; time is given to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import time
import weakref
from collections.abc import Hashable, Iterable
from typing import Any, Protocol, cast
from urllib.parse import urlsplit

from callgate.errors import RateLimitedError, ServerUnavailableError
from callgate.wire.circuit_breaker import WINDOW_S, FailureRate, Outage

__all__ = ["Clock", "EndpointHealth", "Permit", "SystemClock", "endpoint_states", "forget_all", "health_for"]

PROBE_JITTER_S = 0.25
FAIL_FAST_S = 10.0
"""The down time after which new requests fail at once. Before, they wait for the next probe."""
PAUSE_MAX_S = 60.0
SPREAD_S = 1.5
"""The time over which callers that waited together are spread."""
LOOK_AGAIN_S = 1.0
"""The interval at which waiters check that the event loop of the probing caller is alive."""
STANDSTILL_S = 60.0
"""The longest time for which an event loop that does not run may keep others waiting."""
ENDPOINTS_MAX = 1_000


class Clock(Protocol):
    """A monotonic clock with a sleep."""

    def now(self) -> float:
        """Seconds since an arbitrary moment."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep for that many seconds."""
        ...


class SystemClock:
    """The monotonic clock of the system."""

    def now(self) -> float:
        """Seconds of the monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for that many seconds."""
        await asyncio.sleep(seconds)


class Permit:
    """Permission for one attempt. `over` ends it in any case; an outcome that is reported twice counts once."""

    def __init__(self, health: EndpointHealth, pauses_seen: int, votes: set[Hashable]) -> None:
        self._health = health
        self._loop = asyncio.get_running_loop()
        self.votes = votes
        """The keys under which this request counts as failed."""
        self.pauses_seen = pauses_seen

    # Defaults of the class, because hardly any permit has others and each request makes one.
    is_late = False
    """True if it had to wait, and so is released together with others."""
    outage: Outage | None = None
    """The outage that it waits out or probes."""
    rounds_seen = 0
    is_probe = False
    """True if it probes an endpoint that is down."""

    def is_lost(self, out_s: float) -> bool:
        """True if a caller that has been out so long will report no outcome any more."""
        return self._loop.is_closed() or (out_s > STANDSTILL_S and not self._loop.is_running())

    def succeeded(self) -> None:
        """Record a 2xx status."""
        self._health.note_answer(self, let_in=True)

    def refused(self) -> None:
        """Record a refusal of this request by a healthy server."""
        self._health.note_answer(self, let_in=False)

    def pushed_back(self, asked_s: float | None, backoff_s: float) -> float:
        """Record a request of the server to slow down; return how long all callers wait now."""
        return self._health.note_push(self, asked_s, backoff_s)

    def failed(self, vote: Hashable) -> None:
        """Record a server failure. `vote` is equal for failures that count once, such as those of one request."""
        self._health.note_failure(self, vote)

    def over(self) -> None:
        """End the attempt; without an earlier report its outcome is unknown."""
        self._health.note_end(self)


class EndpointHealth:
    """The state that all callers of one endpoint share.

    After a 429 everybody waits. When the pause is over one caller probes; if it is let in, the others follow, spread out; if
    not, there is another pause, twice as long unless the server says how long.

    When nearly all of at least ten different requests failed within ten seconds the endpoint is down: everybody waits, and
    about once a second one of them probes. The head of an answer ends the outage. Who has seen as many probes fail as it
    would have made attempts gives up; when the outage lasts, requests that begin fail at once.
    """

    def __init__(self, clock: Clock | None = None, *, dice: random.Random | None = None) -> None:
        self._clock = clock or _SYSTEM
        self._dice = dice or random.Random()
        # Re-entrant, because a garbage collection at any step may end the permit of a caller that was given up.
        self._lock = threading.RLock()
        self._pause_s = 0.0
        self._paused_until = 0.0
        self._pauses = 0
        """The number of pauses that the server has asked for."""
        self._probe = _Role()
        """The caller that probes after a pause, for all that wait."""
        self._waiting: dict[asyncio.Future[None], None] = {}
        """Callers that wait for the probe after a pause, in order of arrival."""
        self._rate = FailureRate()
        self._outage: Outage | None = None

    @property
    def pause_left_s(self) -> float:
        """The minimum wait for a new request."""
        return max(0.0, self._paused_until - self._clock.now()) if self._pause_s else 0.0

    @property
    def is_down(self) -> bool:
        """True if the endpoint counts as down."""
        return self._outage is not None

    @property
    def is_at_rest(self) -> bool:
        """True if its state equals that of a new instance."""
        with self._lock:
            now = self._clock.now()
            is_waited_for = bool(self._waiting) or self._probe.is_taken(now)
            is_down = self._outage is not None and now - self._outage.next_at <= WINDOW_S
            return not (is_waited_for or is_down or self._rate.is_recent(now) or self.pause_left_s)

    async def enter(
        self, *, patience: int, votes: set[Hashable] | None = None, is_new: bool = True, until: float | None = None
    ) -> Permit:
        """Wait until an attempt may be made.

        Args:
            patience: How many further pauses or failed probes, seen while this caller waits, it is willing to see.
            votes: Under which names the request counts as failed; kept from attempt to attempt.
            is_new: Whether this is the request's first attempt, which may be refused at once.
            until: When the request must be over, by the clock.

        Raises:
            ServerUnavailableError: the endpoint is down.
            RateLimitedError: the server asks everybody to wait for too long.
        """
        permit = Permit(self, self._pauses, set() if votes is None else votes)
        if not self._pause_s and self._outage is None:
            return permit  # All is well, as nearly always.
        try:
            while (wait := self._next_wait(permit, patience, is_new=is_new, until=until)) is not None:
                if isinstance(wait, asyncio.Future):
                    await self._word_of_probe(wait)
                else:
                    await self._clock.sleep(wait)
        except BaseException:
            permit.over()
            raise
        return permit

    def _next_wait(
        self, permit: Permit, patience: int, *, is_new: bool, until: float | None
    ) -> float | asyncio.Future[None] | None:
        """The next wait of the caller: a number of seconds, another caller's outcome, or none."""
        with self._lock:
            now = self._clock.now()
            if self._outage is not None and not permit.is_probe:
                wait_s = self._wait_for_probe(self._outage, permit, patience, is_new=is_new, now=now)
                if wait_s and until is not None and now + wait_s > until:
                    raise ServerUnavailableError(
                        "the server keeps failing, and there is no time left to try it", retryable=True
                    )
                if wait_s:
                    permit.is_late = True
                    return wait_s
            if not self._pause_s:
                was_late, permit.is_late = permit.is_late, False
                return self._dice.uniform(0, SPREAD_S) if was_late and not permit.is_probe else None
            if self._pauses - permit.pauses_seen > patience:
                raise RateLimitedError("too many requests: the server kept asking everybody to wait")
            permit.is_late = True
            if self._paused_until > now:
                if until is not None and self._paused_until > until:
                    raise RateLimitedError(
                        "too many requests: the server asks everybody to wait for longer than there is time"
                    )
                return self._paused_until - now
            if not self._probe.is_taken(now):
                self._probe.take(permit, now)
                return None
            word = asyncio.get_running_loop().create_future()
            self._waiting[word] = None
            return word

    def _wait_for_probe(self, outage: Outage, permit: Permit, patience: int, *, is_new: bool, now: float) -> float:
        """The wait before the next check; 0 if the caller may probe now."""
        if permit.outage is not outage:
            permit.outage, permit.rounds_seen = outage, outage.rounds
        if outage.let_probe(now):
            permit.is_probe = True
            return 0.0
        wait_s = max(0.0, outage.next_at - now)
        if is_new and now - outage.since > FAIL_FAST_S:
            down_s = now - outage.since
            raise ServerUnavailableError(
                f"the server has been failing for {down_s:.0f} s; it is tried again in {wait_s:.1f} s", retryable=True
            )
        if outage.rounds - permit.rounds_seen > patience:
            raise ServerUnavailableError("the server kept failing for all callers", retryable=True)
        return wait_s + self._dice.uniform(0.001, PROBE_JITTER_S)

    async def _word_of_probe(self, word: asyncio.Future[None]) -> None:
        # A probe that dies with its event loop tells nobody, so now and then everybody looks for it. Being told of its death
        # by a finalizer would be no better: that runs in any thread at any step, whatever locks are held there.
        timer = word.get_loop().call_later(LOOK_AGAIN_S, _release, [word])
        try:
            await word
        finally:
            timer.cancel()
            with self._lock:
                self._waiting.pop(word, None)

    # Outcomes of permits --------------------------------------------------------------------------------------------------

    def note_answer(self, permit: Permit, *, let_in: bool) -> None:
        """Record an answer: the server is up, and a probe that was accepted ends the pause."""
        if self._outage is None and not self._rate and self._probe.holder is None:
            return  # All is well, as nearly always, and there is nothing to end.
        with self._lock:
            if permit.is_probe and permit.outage is self._outage:
                self._outage = None
                self._rate.clear()
            self._rate.succeeded(permit.votes, self._clock.now())
            permit.votes.clear()
            if let_in and self._probe.is_held_by(permit):
                # Only the probe's word counts: others may have been let in before the pause began.
                self._pause_s = 0.0
            permit.is_probe = False
        self.note_end(permit)

    def note_push(self, permit: Permit, asked_s: float | None, backoff_s: float) -> float:
        """The server asked to slow down."""
        with self._lock:
            is_probe = self._probe.is_held_by(permit)
            # Pushed back after the pause, the probe begins another one; anybody else may have been sent before it.
            before_s, doubled_s = (0.0, 2 * self._pause_s) if is_probe else (self._pause_s, 0.0)
            pause_s = min(PAUSE_MAX_S, max(backoff_s, doubled_s)) if asked_s is None else asked_s
            if not before_s:
                self._pauses += 1
            self._pause_s = max(pause_s, before_s, 0.001)
            self._paused_until = max(self._paused_until, self._clock.now() + pause_s)
            left_s = self.pause_left_s
        self.note_answer(permit, let_in=False)
        return left_s

    def note_failure(self, permit: Permit, vote: Hashable) -> None:
        """The server is in trouble."""
        with self._lock:
            now = self._clock.now()
            if self._outage is None:
                permit.votes.add(vote)
                if self._rate.failed(vote, now):
                    self._outage = Outage(now)
                    self._rate.clear()
            elif permit.is_probe and permit.outage is self._outage:
                self._outage.probe_failed(now)
            permit.is_probe = False
        self.note_end(permit)

    def note_end(self, permit: Permit) -> None:
        """End a permit and wake those that waited for it."""
        if self._probe.holder is None and not permit.is_probe:
            return
        with self._lock:
            if permit.is_probe and permit.outage is not None:
                permit.is_probe = False
                permit.outage.probe_vanished()
            if not self._probe.leave(permit):
                return
            woken, self._waiting = self._waiting, {}
        _wake(woken)


class _Role:
    """The role of the probing caller, held by one caller of the process at a time.

    The permit is held weakly, and its event loop is asked: who died without a word has left.
    """

    def __init__(self) -> None:
        self.holder: weakref.ref[Permit] | None = None
        """The permit that holds the role; a weak reference."""
        self._since = 0.0

    def is_held_by(self, permit: Permit) -> bool:
        return self.holder is not None and self.holder() is permit

    def is_taken(self, now: float) -> bool:
        permit = self.holder() if self.holder is not None else None
        return permit is not None and not permit.is_lost(now - self._since)

    def take(self, permit: Permit, now: float) -> None:
        self.holder, self._since = weakref.ref(permit), now

    def leave(self, permit: Permit) -> bool:
        """Release the role if the permit holds it; return True if it did."""
        was_held = self.is_held_by(permit)
        if was_held:
            self.holder = None
        return was_held


def _wake(words: Iterable[asyncio.Future[None]]) -> None:
    """Wake all waiters, each on its own event loop, in order of arrival."""
    by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for word in words:
        by_loop.setdefault(word.get_loop(), []).append(word)
    for loop, own in by_loop.items():
        with contextlib.suppress(RuntimeError):  # The loop was closed, which ended its waiters.
            loop.call_soon_threadsafe(_release, own)


def _release(words: list[asyncio.Future[None]]) -> None:
    for word in words:
        if not word.done():
            word.set_result(None)


# The endpoints of the process --------------------------------------------------------------------------------------------


class _Endpoints:
    """The endpoints of the process. Those that callers hold at the moment stay the same for everybody; of the others those
    are kept that still know something, and as many more as there is room for."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._in_use: weakref.WeakValueDictionary[tuple[Hashable, int], EndpointHealth] = weakref.WeakValueDictionary()
        self._kept: dict[tuple[Hashable, int], EndpointHealth] = {}

    def get(self, endpoint: Hashable, clock: Clock) -> EndpointHealth:
        # A health holds its clock, so the id stays the clock's.
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

    def states(self) -> dict[str, EndpointHealth]:
        """The endpoints by a number that says nothing of their keys and addresses but in which order they were used."""
        with self._lock:
            found = list(self._kept.items())
        return {f"{number} {_host_of(endpoint)}": health for number, ((endpoint, _), health) in enumerate(found, 1)}

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


def _host_of(endpoint: Hashable) -> str:
    """Return the host in the key of an endpoint; nothing else of it may be shown, since it can contain secrets."""
    words = cast("tuple[Any, ...]", endpoint) if isinstance(endpoint, tuple) else (endpoint,)
    urls = (word for word in words if isinstance(word, str) and "://" in word)
    return next((urlsplit(url).hostname or "" for url in urls), "")


def endpoint_states() -> dict[str, EndpointHealth]:
    """The endpoints that this process knows, by a name for metrics."""
    return _endpoints.states()


def forget_all() -> None:
    """Forget the state of all endpoints."""
    global _endpoints
    _endpoints = _Endpoints()


if hasattr(os, "register_at_fork"):
    # A lock that another thread held at that moment would stay locked in the child for ever.
    os.register_at_fork(after_in_child=forget_all)
