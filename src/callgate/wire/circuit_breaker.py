"""The arithmetic of a circuit breaker: when an endpoint counts as down, and who may probe it then.

Votes and times come in, decisions go out. Nothing here waits, locks or knows a clock; `endpoint_health.py` does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable

__all__ = ["FailureRate", "Outage"]

REQUESTS_TO_OPEN = 10
"""The number of different requests that must have failed for the endpoint to count as down."""
RATE_TO_OPEN = 0.8
"""The share of requests that must have failed: a server that answers some of them is served better by retries."""
WINDOW_S = 10.0
"""The time for which a failed request counts."""
PROBE_S = 0.5
"""The first interval between probes of an endpoint that is down; doubled after each failed probe."""
PROBE_MAX_S = 1.5
"""The longest time between two probes, so that its recovery is noticed soon."""


class Outage:
    """The state of an endpoint that is down: since when, and the probes in flight."""

    def __init__(self, now: float) -> None:
        self.since = now
        self.rounds = 0
        """The number of failed probes."""
        self.next_at = now + PROBE_S
        self._interval_s = PROBE_S
        self._at_once = 0
        """The number of probes sent in this interval, if none of them has failed."""
        self._left = 0

    def let_probe(self, now: float) -> bool:
        """True if a caller may probe now.

        One does in each interval. As long as none fails, each interval lets go twice as many as the one before: an answer
        that is wanted whole begins when it is finished, and nobody shall wait for so long.
        """
        if now >= self.next_at:
            self._at_once = self._left = max(1, 2 * self._at_once)
            self.next_at = now + self._interval_s
        if not self._left:
            return False
        self._left -= 1
        return True

    def probe_failed(self, now: float) -> None:
        """Record a failed probe: the endpoint is still down."""
        if self._at_once:
            self.rounds += 1
            self._interval_s = min(PROBE_MAX_S, 2 * self._interval_s)
            self.next_at = now + self._interval_s
        self._at_once = self._left = 0

    def probe_vanished(self) -> None:
        """Record a probe without an outcome: another one may go."""
        if self._at_once:
            self._left += 1


class FailureRate:
    """The requests that failed within the last seconds, each counted once, and those that succeeded meanwhile."""

    def __init__(self) -> None:
        self._failing: dict[Hashable, float] = {}
        """Failed requests without a success since, the latest last, with the time of each failure."""
        self._successes: deque[float] = deque()
        """The times of successful requests, recorded while others fail."""

    def __bool__(self) -> bool:
        return bool(self._failing)

    def is_recent(self, now: float) -> bool:
        """True if a failure still counts."""
        return any(now - at <= WINDOW_S for at in self._failing.values())

    def failed(self, vote: Hashable, now: float) -> bool:
        """Record a failed request; return True if nearly all of many failed."""
        self._failing.pop(vote, None)
        self._failing[vote] = now
        self._forget_old(now)
        failing = len(self._failing)
        return failing >= REQUESTS_TO_OPEN and failing >= RATE_TO_OPEN * (failing + len(self._successes))

    def succeeded(self, votes: Iterable[Hashable], now: float) -> None:
        """Record a successful request; its failed attempts count no more."""
        for vote in votes:
            self._failing.pop(vote, None)
        if self._failing:
            self._successes.append(now)
            self._forget_old(now)
        else:
            self._successes.clear()

    def clear(self) -> None:
        """Forget all requests."""
        self._failing.clear()
        self._successes.clear()

    def _forget_old(self, now: float) -> None:
        while self._failing and now - self._failing[first := next(iter(self._failing))] > WINDOW_S:
            del self._failing[first]
        while self._successes and now - self._successes[0] > WINDOW_S:
            self._successes.popleft()
