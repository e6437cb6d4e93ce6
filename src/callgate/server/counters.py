"""Counters of the service: finished runs and sent responses in, sums by names that no client can invent out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from callgate.server.errors import word_of
from callgate.store.statistics import BOUNDS_S, Histogram
from callgate.types import Usage

if TYPE_CHECKING:
    from callgate.server.runs import Run

__all__ = ["BOUNDS_S", "Histogram", "Metrics"]

LABELS_MAX = 500
"""Different values of one label before further ones are counted as `other`."""


class Metrics:
    """The counters of one process."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        """Answers by method, route and status."""
        self.runs: Counter[tuple[str]] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.tokens: Counter[tuple[str]] = Counter()
        self.began = 0
        """Runs that ended."""
        self.run_s = Histogram()
        self.call_s = Histogram()

    def run_ended(self, run: Run) -> None:
        """Count the outcome of a run."""
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

    def refused(self, error: Exception) -> None:
        """Count a run that could not begin."""
        self.runs[word_of(error),] += 1

    def passed_on(self, usage: Usage) -> None:
        """Count a request that was answered by a model without a run."""
        self.runs["passed_on",] += 1
        self._count(usage)

    def _count(self, usage: Usage) -> None:
        tokens = self.tokens
        tokens["input",] += usage.input_tokens
        tokens["cached",] += usage.cached_tokens
        tokens["output",] += usage.output_tokens
        tokens["thought",] += usage.thought_tokens
        tokens["tool",] += usage.tool_tokens
