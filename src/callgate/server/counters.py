"""Counters of the service: finished runs and sent responses in, sums by names that no client can invent out."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from callgate.types import Usage

if TYPE_CHECKING:
    from callgate.server.runs import Run

__all__ = ["BOUNDS_S", "Histogram", "Metrics"]

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LABELS_MAX = 500
"""Different values of one label before further ones are counted as `other`."""


@dataclass(slots=True)
class Histogram:
    """How long things took."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, duration_s: float) -> None:
        """One more."""
        self.buckets[bisect_left(BOUNDS_S, duration_s)] += 1
        self.sum_s += duration_s


class Metrics:
    """The counters of one process."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        """Answers by method, route and status."""
        self.runs: Counter[tuple[str]] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.tokens: Counter[tuple[str]] = Counter()
        self.began = 0
        """Runs."""
        self.run_s = Histogram()
        self.call_s = Histogram()

    def run_ended(self, run: Run) -> None:
        """Counts what a run came to."""
        self.run_s.add((run.ended_s or run.began_s) - run.began_s)
        if run.reply is None:
            self.runs[str(run.problem["error"]) if run.problem else "cancelled",] += 1
            return
        self.runs[run.reply.finish_reason,] += 1
        self._count(run.reply.usage)
        for record in run.reply.calls:
            key = (record.call.name, record.state)
            self.calls[key if key in self.calls or len(self.calls) < LABELS_MAX else ("other", record.state)] += 1
            self.call_s.add(record.duration_s)

    def passed_on(self, usage: Usage) -> None:
        """Counts a request that was answered by a model without a run."""
        self.runs["passed_on",] += 1
        self._count(usage)

    def _count(self, usage: Usage) -> None:
        tokens = self.tokens
        tokens["input",] += usage.input_tokens
        tokens["cached",] += usage.cached_tokens
        tokens["output",] += usage.output_tokens
        tokens["thought",] += usage.thought_tokens
        tokens["tool",] += usage.tool_tokens
