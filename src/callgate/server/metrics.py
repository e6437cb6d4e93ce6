"""What the service counts, as text that Prometheus reads.

Runs that end come in, lines go out. Nothing here is a name that a client can make up without bound.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from callgate.server.openapi import Operation, table

if TYPE_CHECKING:
    from starlette.routing import Route

    from callgate.server.runs import Run
    from callgate.server.service import Service

__all__ = ["Metrics", "routes"]

T = TypeVar("T", bound="tuple[object, ...]")

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
LABELS_MAX = 500
"""Different values of one label before further ones are counted as `other`."""
TOKENS = ("prompt", "cached", "output", "thought", "tool")


@dataclass(slots=True)
class Histogram:
    """How long things took."""

    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    sum_s: float = 0.0

    def add(self, duration_s: float) -> None:
        """One more."""
        self.buckets[bisect_left(BOUNDS_S, duration_s)] += 1
        self.sum_s += duration_s

    def lines(self, name: str) -> Iterator[str]:
        """The histogram in Prometheus' words."""
        yield f"# TYPE {name} histogram"
        count = 0
        for bound, number in zip((*map(str, BOUNDS_S), "+Inf"), self.buckets, strict=True):
            count += number
            yield f'{name}_bucket{{le="{bound}"}} {count}'
        yield f"{name}_sum {self.sum_s:.6f}"
        yield f"{name}_count {count}"


class Metrics:
    """The counters of one process."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.runs: Counter[tuple[str]] = Counter()
        self.calls: Counter[tuple[str, str]] = Counter()
        self.tokens: Counter[tuple[str]] = Counter()
        self.began = 0
        self.run_s = Histogram()
        self.call_s = Histogram()

    def run_began(self) -> None:
        """One more run."""
        self.began += 1

    def run_ended(self, run: Run) -> None:
        """Counts what a run came to."""
        self.run_s.add((run.ended_s or run.began_s) - run.began_s)
        if run.reply is None:
            self.runs[str(run.problem["error"]) if run.problem else "cancelled",] += 1
            return
        self.runs[run.reply.finish_reason,] += 1
        for name in TOKENS:
            self.tokens[name,] += getattr(run.reply.usage, f"{name}_tokens")
        for record in run.reply.calls:
            key = (record.call.name, record.state)
            self.calls[key if key in self.calls or len(self.calls) < LABELS_MAX else ("other", record.state)] += 1
            self.call_s.add(record.duration_s)

    def answered(self, method: str, route: str, status: int) -> None:
        """Counts one answer."""
        self.requests[method, route, status] += 1

    def text(self, service: Service) -> str:
        """Everything, as lines."""
        followers = sum(run.followers for run in service.live)
        waiting = sum(len(run.waiting) for run in service.live)
        lines = [
            *_counter("callgate_http_requests_total", self.requests, ("method", "route", "status")),
            *_counter("callgate_runs_total", self.runs, ("outcome",)),
            *_counter("callgate_calls_total", self.calls, ("tool", "state")),
            *_counter("callgate_tokens_total", self.tokens, ("kind",)),
            *_gauge("callgate_runs_live", len(service.live)),
            *_gauge("callgate_followers", followers),
            *_gauge("callgate_approvals_waiting", waiting),
            *_gauge("callgate_abandoned_threads", service.gate.tools.abandoned()),
            *self.run_s.lines("callgate_run_seconds"),
            *self.call_s.lines("callgate_call_seconds"),
            *_gauge("process_start_time_seconds", service.began_s),
            *_process_lines(),
        ]
        return "\n".join(lines) + "\n"


def _counter(name: str, counts: Mapping[T, int], labels: tuple[str, ...]) -> Iterator[str]:
    yield f"# TYPE {name} counter"
    for key, count in sorted(counts.items(), key=repr):
        pairs = ",".join(f'{label}="{_escaped(str(value))}"' for label, value in zip(labels, key, strict=True))
        yield f"{name}{{{pairs}}} {count}"


def _gauge(name: str, value: float) -> Iterator[str]:
    yield f"# TYPE {name} gauge"
    yield f"{name} {value}"


def _process_lines() -> Iterator[str]:
    with contextlib.suppress(OSError, ValueError, IndexError):  # Other systems do not tell.
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
        yield from _gauge("process_resident_memory_bytes", pages * os.sysconf("SC_PAGE_SIZE"))
        yield from _gauge("process_open_fds", len(os.listdir("/proc/self/fd")))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


async def _metrics(service: Service, request: Request) -> Response:
    """Counters, gauges and durations for Prometheus."""
    return Response(service.metrics.text(service), media_type="text/plain; version=0.0.4")


OPERATIONS = (Operation("GET", "/metrics", _metrics, gives={200: {"type": "string"}}, media_type="text/plain"),)


def routes(service: Service) -> list[Route]:
    """The route of the counters."""
    return table(service, OPERATIONS)
