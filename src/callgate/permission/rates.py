"""Limits in time for calls of tools and requests to the model: settings in, places out, what is left for all to see.

The counting is done in `buckets.py`; this file knows the clock and the event loops of those who wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from callgate.base_errors import expect
from callgate.errors import RateLimitedError, UsageError
from callgate.permission.buckets import Bucket, Line, QueueFullError, Rate, Ticket, Window
from callgate.permission.subject import Subject
from callgate.types import ToolDefinition

__all__ = ["Limiter", "ModelLimiter", "Place", "Rate", "RateLimits", "Remaining"]

WAIT_LEAST_S = 0.001
FILE_RATE = Rate(per_s=50, burst=100)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimits:
    """Rate limits of tool calls and model requests, over all runs of a gate.

    ```python
    RateLimits(tools={"search_*": Rate(per_s=1, burst=5)}, total=Rate(concurrent=4), requests_per_minute=60)
    ```
    """

    tools: Mapping[str, Rate] = field(default_factory=dict[str, Rate])
    """A glob for tools' names as in rules (`search_*`, `@github/*`) -> the rate of each such tool; the first that fits
    counts."""
    kinds: Mapping[str, Rate] = field(default_factory=lambda: {"file": FILE_RATE})
    """A kind of tools -> the rate of all of them together."""
    total: Rate | None = None
    """The rate of all calls together."""
    when_used_up: Literal["wait", "refuse"] = "wait"
    """True if a call waits for its turn, or is answered with an error at once."""
    waiting: int = 1_000
    """Maximum number of waiting calls; further ones are refused."""
    patience_s: float = 60.0
    """Seconds that a call waits for its turn before it is refused."""
    requests_per_minute: float | None = None
    """Requests to the model; slowed down further, for a while, when the server says that there were too many."""
    tokens_per_minute: float | None = None
    """Tokens of requests and answers together, as the model counts them."""

    def __post_init__(self) -> None:
        for what, rates in (("tools", self.tools), ("kinds", self.kinds)):
            expect(rates, Mapping, f"RateLimits({what}={{}})", "names and rates, as in {'search_*': Rate(per_s=1)}")
            for name, rate in rates.items():
                expect(rate, Rate, f"RateLimits({what}): {name!r} has the rate {{}}", "a Rate")
        expect(self.total, (Rate, type(None)), "RateLimits(total={})", "a Rate")
        for name in self.tools:
            Subject.read(name, what="RateLimits(tools=...)")
        if self.when_used_up not in ("wait", "refuse"):
            raise UsageError(f"RateLimits(when_used_up={self.when_used_up!r}): use 'wait' or 'refuse'")
        for name in ("waiting", "patience_s", "requests_per_minute", "tokens_per_minute"):
            value: Any = getattr(self, name)
            optional = value is None and name.endswith("minute")
            if not optional and (isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf):
                raise UsageError(f"RateLimits({name}={value!r}): expected a number above 0")

    def rates_for(self, definition: ToolDefinition) -> dict[str, Rate]:
        """The rates that a call of the tool is subject to, each under the name that it is counted under."""
        fitting = (rate for glob, rate in self.tools.items() if Subject.read(glob).fits(definition, wide=True))
        at = f"@{definition.server}/" if definition.server else ""
        found = {
            f"tool {at}{definition.own_name}": next(fitting, None),
            f"kind {definition.kind}": self.kinds.get(definition.kind),
            "total": self.total,
        }
        return {name: rate for name, rate in found.items() if rate is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """The remainder of one limit."""

    left: float
    """Calls, requests or tokens that may be made at once; below 0 is a debt."""
    burst: float
    """The size of the bucket."""
    per_s: float | None
    """Refill rate of the bucket; None if it does not refill."""
    inside: int = 0
    """At work now."""


class Place:
    """A call's place in the line: it is in, it waits, or it was refused with a sentence."""

    def __init__(self, limiter: Limiter, ticket: Ticket | None, refused: str | None = None) -> None:
        self._limiter = limiter
        self.ticket = ticket
        self._refused = refused

    @property
    def granted(self) -> bool:
        """True if the call may run now."""
        return self._refused is None and (self.ticket is None or self.ticket.state == "inside")

    @property
    def refused(self) -> str | None:
        """Reason why it may not run at all."""
        if self.ticket is not None and self.ticket.state == "expired":
            return f"Not run: its turn did not come within {self._limiter.rates.patience_s:g} s. Make fewer calls."
        return self._refused

    @property
    def occupied(self) -> frozenset[str]:
        """The limits that the call is counted under now, itself or by the calls around it."""
        return frozenset(self.ticket.needs) | self.ticket.borrows if self.ticket is not None else frozenset()

    def leave(self) -> None:
        """Give the place up, whether the call ran or not."""
        if self.ticket is not None:
            self._limiter.leave(self.ticket)


class Limiter:
    """Let calls in as the rates allow. Shared by all runs of a gate, on whatever event loops they are."""

    def __init__(self, rates: RateLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self.rates = rates
        self._clock = clock
        self._line = Line(waiting_max=int(rates.waiting), patience_s=rates.patience_s)
        self._lock = threading.Lock()
        self._wakers: dict[Ticket, tuple[asyncio.AbstractEventLoop, Callable[[], None]]] = {}

    def admit(self, definition: ToolDefinition, wake: Callable[[], None], borrows: frozenset[str] = frozenset()) -> Place:
        """A place for a call. If it must wait, `wake` is called on this event loop as soon as something came of it.

        A nested call borrows the places that the calls around it hold.
        """
        needed = self.rates.rates_for(definition)
        if not needed:
            return Place(self, None)
        with self._lock:
            now = self._clock()
            self._line.add(needed, now)
            try:
                ticket = self._line.join(needed, now, borrows)
            except QueueFullError:
                return Place(self, None, f"Not run: {self._line.waiting_max} calls wait for their turn already.")
            self._wakers[ticket] = (asyncio.get_running_loop(), wake)
            self._settle(now, quiet=ticket)
            if ticket.state == "waiting" and self.rates.when_used_up == "refuse":
                self._line.leave(ticket)
                del self._wakers[ticket]
                waits = {name: self._line.buckets[name].wait_s(now, is_inside=name in borrows) for name in needed}
                used_up = " and ".join(name for name, wait_s in waits.items() if wait_s > 0)
                return Place(self, None, f"Not run: too many calls in a short time ({used_up}). Call again later.")
        self._arm()
        return Place(self, ticket)

    def leave(self, ticket: Ticket) -> None:
        """Free a place, and admit the next in the queue."""
        with self._lock:
            self._line.leave(ticket)
            self._wakers.pop(ticket, None)
            self._settle(self._clock())
        self._arm()

    def budget(self) -> dict[str, Remaining]:
        """The remainder of each limit that was used so far."""
        with self._lock:
            now = self._clock()
            return {name: _remaining(bucket, now) for name, bucket in self._line.buckets.items()}

    @property
    def waiting(self) -> int:
        """Number of calls that wait for their turn."""
        return len(self._line.waiting)

    def _settle(self, now: float, quiet: Ticket | None = None) -> None:
        for ticket in self._line.settle(now):
            loop, wake = self._wakers.pop(ticket)
            if ticket is not quiet:
                with contextlib.suppress(RuntimeError):  # That loop is closed: nobody waits there any more.
                    loop.call_soon_threadsafe(wake)

    def _arm(self) -> None:
        """Each loop that has somebody waiting looks again when something may have changed."""
        if not self._line.waiting:
            return
        with self._lock:
            wait_s = self._line.wait_s(self._clock())
            mine = asyncio.get_running_loop()
            if wait_s is not None and wait_s < math.inf and any(loop is mine for loop, _ in self._wakers.values()):
                mine.call_later(max(wait_s, WAIT_LEAST_S), self._look_again)

    def _look_again(self) -> None:
        with self._lock:
            self._settle(self._clock())
        self._arm()


class ModelLimiter:
    """Requests and tokens per minute, first come, first served."""

    def __init__(self, rates: RateLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._requests = _window(rates.requests_per_minute)
        self._tokens = _window(rates.tokens_per_minute)
        self._windows = [window for window in (self._requests, self._tokens) if window is not None]
        self._lock = threading.Lock()
        self._booked = 0.0

    def book(self) -> float:
        """Book the next request and says in how many seconds it may be sent. Those booked later are sent later."""
        if not self._windows:
            return 0.0
        with self._lock:
            now = self._clock()
            at = max(now, self._booked)
            for window in self._windows:
                at += window.wait_s(at)
            if self._requests is not None:
                self._requests.add(1, at)
            self._booked = at
            return at - now

    def used(self, tokens: int) -> None:
        """An answer came, and took so many tokens."""
        if not self._windows:
            return
        with self._lock:
            if self._tokens is not None:
                self._tokens.add(tokens, self._clock())
            for window in self._windows:
                window.recover()

    def failed(self, error: BaseException) -> None:
        """No answer came; if the server said that there were too many requests, fewer are made for a while."""
        if not isinstance(error, RateLimitedError):
            return
        with self._lock:
            for window in self._windows:
                window.slow_down()

    def budget(self) -> dict[str, Remaining]:
        """The remainder."""
        with self._lock:
            now = self._clock()
            windows = {"model requests": self._requests, "model tokens": self._tokens}
            return {
                name: Remaining(
                    left=window.left(now), burst=window.limit * window.share, per_s=window.limit * window.share / 60
                )
                for name, window in windows.items()
                if window is not None
            }


def _window(limit: float | None) -> Window | None:
    return None if limit is None else Window(limit)


def _remaining(bucket: Bucket, now: float) -> Remaining:
    return Remaining(left=bucket.left(now), burst=bucket.rate.burst, per_s=bucket.rate.per_s, inside=bucket.inside)
