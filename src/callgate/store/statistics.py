"""Statistics of a store: how long operations take, what failed, and how many connections there are.

Durations and events come in from any thread; numbers for metrics go out.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from bisect import bisect_left
from dataclasses import dataclass, field

__all__ = ["BOUNDS_S", "Histogram", "StoreStatistics"]

logger = logging.getLogger("callgate.outages")

SAID_S = 60.0
"""Minimum seconds between two reports that a store starts to fail."""
BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


@dataclass(slots=True)
class Histogram:
    """A histogram of durations."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, duration_s: float) -> None:
        """One more."""
        self.buckets[bisect_left(BOUNDS_S, duration_s)] += 1
        self.sum_s += duration_s


class StoreStatistics:
    """Counters of one store in one process. Those that grow only ever grow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds = Histogram()
        """Of operations, from the request to the commit."""
        self.failures = 0
        """Operations that ended with an error of the database."""
        self.retries = 0
        """Operations that were tried again: their row was locked by another transaction, or the database was away."""
        self.opened = 0
        """Connections that were opened."""
        self.cut = 0
        """Connections that were cut because the database did not answer."""
        self.lost = 0
        """Leases that another process had taken over."""
        self.busy = 0
        """Sessions that were asked for while another process held them."""
        self.connections = 0
        """Connections at the moment."""
        self.waiting = 0
        """Operations that no connection has begun at the moment."""
        self.written_s = -math.inf
        """Time of the last write of facts, by the monotonic clock."""
        self.write_error: str | None = None
        """The error of a write, until facts are written again; None if there was none."""

        self._said_s, self._has_said = -math.inf, False

    def took(self, duration_s: float, *, failed: bool) -> None:
        """Count an operation."""
        with self._lock:
            self.seconds.add(duration_s)
            self.failures += failed

    def wrote(self, error: str | None = None) -> None:
        """Note the outcome of a write."""
        now_s = time.monotonic()
        with self._lock:
            begins = error is not None and self.write_error is None and now_s >= self._said_s + SAID_S
            ends = error is None and self._has_said
            if begins:
                self._said_s = now_s
            self._has_said = (self._has_said or begins) and not ends
            self.write_error = error
            if error is None:
                self.written_s = now_s
        if begins:
            logger.warning("the store cannot be written: %s", error)
        elif ends:
            logger.warning("the store is written again")

    def count(self, name: str) -> None:
        """Count an event of this name."""
        with self._lock:
            setattr(self, name, getattr(self, name) + 1)
