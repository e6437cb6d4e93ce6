"""Rate limiting: token buckets, and a queue of waiters. Pure: the time is a parameter.

A caller joins the line with the names of the buckets that it needs, and is let in when each of them has something
left, in the order of coming. Nobody waits for a bucket that it does not need: a tool that is used up holds up no other one.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from callgate.errors import UsageError

__all__ = ["Bucket", "Line", "QueueFullError", "Rate", "Ticket", "Window"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A rate limit."""

    per_s: float | None = None
    """Times per second on average; None is no bound."""
    burst: int = 1
    """Times at once, after a pause."""
    concurrent: int | None = None
    """At the same time; None is no bound."""

    def __post_init__(self) -> None:
        fits = self.per_s is None or (_is_number(self.per_s) and 0 < self.per_s < math.inf)
        fits = fits and _is_number(self.burst) and 1 <= self.burst < math.inf
        fits = fits and (self.concurrent is None or (_is_number(self.concurrent) and 1 <= self.concurrent < math.inf))
        if not fits:
            raise UsageError(
                f"Rate(per_s={self.per_s!r}, burst={self.burst!r}, concurrent={self.concurrent!r}): expected numbers above 0"
            )


class Bucket:
    """One limit: holds up to `burst` tokens, gets `per_s` new ones a second, and lets `concurrent` in at a time."""

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self.inside = 0
        self._tokens = float(rate.burst)
        self._at = now

    def left(self, now: float) -> float:
        """The tokens that it holds."""
        if self.rate.per_s is None:
            return float(self.rate.burst)
        if now > self._at:  # A clock that is set back gives nothing, and takes nothing.
            self._tokens = min(float(self.rate.burst), self._tokens + (now - self._at) * self.rate.per_s)
            self._at = now
        return self._tokens

    def wait_s(self, now: float, *, is_inside: bool = False) -> float:
        """Seconds until one more is admitted: 0 for now, infinity if another one must leave first."""
        if not is_inside and self.rate.concurrent is not None and self.inside >= self.rate.concurrent:
            return math.inf
        left = self.left(now)
        return 0.0 if self.rate.per_s is None or left >= 1 else (1 - left) / self.rate.per_s

    def enter(self, now: float, *, is_inside: bool = False) -> None:
        """Let one in. Ask `wait_s` before."""
        self.left(now)
        self.inside += not is_inside
        if self.rate.per_s is not None:
            self._tokens -= 1

    def leave(self) -> None:
        """One has left."""
        self.inside -= 1


class Window:
    """At most `limit` in any span of time, as servers count requests and tokens a minute.

    What something really took may be known only afterwards, so there may be more in it than fits; then nobody comes in until
    enough of it is in the past.
    """

    def __init__(self, limit: float, *, span_s: float = 60.0) -> None:
        self.limit = limit
        self.share = 1.0
        """Fraction of the limit in use; a server that pushes back lowers it."""
        self._span_s = span_s
        self._entries: deque[tuple[float, float]] = deque()
        self._sum = 0.0

    def left(self, now: float) -> float:
        """The amount that fits in now; below 0 is a debt."""
        while self._entries and self._entries[0][0] <= now - self._span_s:
            self._sum -= self._entries.popleft()[1]
        return max(1.0, self.limit * self.share) - (self._sum if self._entries else 0.0)

    def wait_s(self, now: float) -> float:
        """Seconds until one more fits in."""
        left = self.left(now)
        if left >= 1:
            return 0.0
        freed = itertools.accumulate(amount for _, amount in self._entries)
        last = self._entries[-1][0]
        at = next((at for (at, _), past in zip(self._entries, freed, strict=True) if left + past >= 1), last)
        return at + self._span_s - now

    def add(self, amount: float, now: float) -> None:
        """Record use at this time."""
        self._entries.append((max(now, self._entries[-1][0]) if self._entries else now, amount))
        self._sum += amount

    def slow_down(self) -> None:
        """Halve the share, to a sixteenth at the least."""
        self.share = max(self.share / 2, 1 / 16)

    def recover(self) -> None:
        """Give back a sixteenth."""
        self.share = min(1.0, self.share + 1 / 16)


class QueueFullError(Exception):
    """The queue is full."""


@dataclass(eq=False, slots=True)
class Ticket:
    """A place in the line, and then inside."""

    needs: tuple[str, ...]
    since: float
    borrows: frozenset[str] = frozenset()
    """Buckets in which the caller of this one is inside: its place serves both, or they would wait for each other."""
    state: Literal["waiting", "inside", "expired", "left"] = "waiting"


@dataclass(slots=True)
class Line:
    """Waiters in order of arrival, and their buckets."""

    waiting_max: int = 1_000
    patience_s: float = math.inf
    """Maximum seconds of a wait."""
    buckets: dict[str, Bucket] = field(default_factory=dict[str, Bucket])
    waiting: dict[Ticket, None] = field(default_factory=dict["Ticket", None])

    def add(self, rates: Mapping[str, Rate], now: float) -> None:
        """Make the buckets that are not there yet."""
        for name, rate in rates.items():
            if name not in self.buckets:
                self.buckets[name] = Bucket(rate, now)

    def join(self, needs: Iterable[str], now: float, borrows: frozenset[str] = frozenset()) -> Ticket:
        """Join to the end of the line; `settle` lets in who may.

        Raises:
            QueueFullError: too many wait already.
        """
        if len(self.waiting) >= self.waiting_max:
            raise QueueFullError
        ticket = Ticket(tuple(needs), now, borrows)
        self.waiting[ticket] = None
        return ticket

    def settle(self, now: float) -> list[Ticket]:
        """Let in who may come in now, sends away who has waited too long, and gives out both."""
        settled: list[Ticket] = []
        taken: set[str] = set()
        anybody_borrows = any(ticket.borrows for ticket in self.waiting)
        for ticket in self.waiting:
            if now - ticket.since >= self.patience_s:
                ticket.state = "expired"
                settled.append(ticket)
                continue
            empty = {name for name in ticket.needs if self._is_empty(name, ticket, taken, now)}
            if empty:
                # Nobody behind may have what this one waits for; what it need not wait for stays free.
                taken |= empty
                if len(taken) == len(self.buckets) and not anybody_borrows:
                    break
                continue
            for name in ticket.needs:
                self.buckets[name].enter(now, is_inside=name in ticket.borrows)
            ticket.state = "inside"
            settled.append(ticket)
        for ticket in settled:
            del self.waiting[ticket]
        return settled

    def _is_empty(self, name: str, ticket: Ticket, taken: set[str], now: float) -> bool:
        is_inside = name in ticket.borrows
        return (name in taken and not is_inside) or self.buckets[name].wait_s(now, is_inside=is_inside) > 0

    def wait_s(self, now: float) -> float | None:
        """Seconds until the next call of `settle`; None without waiters, infinity if another one must leave first."""
        if not self.waiting:
            return None
        kinds = {(ticket.needs, ticket.borrows) for ticket in self.waiting}
        times = [
            max(self.buckets[name].wait_s(now, is_inside=name in borrows) for name in needs) for needs, borrows in kinds
        ]
        first = next(iter(self.waiting))
        return min(*times, max(0.0, first.since + self.patience_s - now))

    def leave(self, ticket: Ticket) -> None:
        """Give up the place, in the line or inside. Again is nothing."""
        if ticket.state == "waiting":
            del self.waiting[ticket]
        elif ticket.state == "inside":
            for name in set(ticket.needs) - ticket.borrows:
                self.buckets[name].leave()
        ticket.state = "left"


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
