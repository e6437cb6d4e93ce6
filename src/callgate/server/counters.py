"""Counters of the service: finished runs and sent responses in, sums by names that no client can invent out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from callgate.server.errors import word_of
from callgate.store.statistics import BOUNDS_S, Histogram
from callgate.types import Usage

if TYPE_CHECKING:
    from callgate.server.runs import Run

__all__ = ["BOUNDS_S", "Histogram", "Metrics", "opening"]

LABELS_MAX = 500
"""Different values of one label before further ones are counted as `other`."""
MEANINGS = {
    "callgate_abandoned_threads": "Threads of tools that were left at their deadline and still run.",
    "callgate_access_file_invalid": "Is 1 while something is wrong with the access file.",
    "callgate_access_log_failures_total": "Lines of the access log that could not be written.",
    "callgate_approvals_waiting": "Calls that wait for a person in all sessions of the store; use max over processes.",
    "callgate_audit_failing": "Is 1 while the audit log cannot be written, and every call is refused.",
    "callgate_audit_failures_total": "Failed writes of the audit log.",
    "callgate_call_seconds": "Duration of calls.",
    "callgate_calls_total": "Calls by tool and final state.",
    "callgate_endpoint_down": "Is 1 while the circuit breaker of a model's endpoint is open.",
    "callgate_endpoint_pause_seconds": "Seconds left of the pause that the rate limit of a model's endpoint asked for.",
    "callgate_followers": "Clients that follow the events of a run.",
    "callgate_http_requests_total": "Answers by method, route and status.",
    "callgate_kept_bytes": "Bytes of events kept for clients.",
    "callgate_leases_busy_total": "Sessions that another process held when they were asked for.",
    "callgate_leases_lost_total": "Sessions that another process took over.",
    "callgate_processes_silent": "Processes of the service that did not answer when the metrics were read.",
    "callgate_run_seconds": "Duration of runs.",
    "callgate_runs_live": "Runs in progress.",
    "callgate_runs_total": "Runs by finish reason, or by error code.",
    "callgate_sessions_swept_total": "Sessions deleted by their age.",
    "callgate_store_connections": "Connections to the database.",
    "callgate_store_connections_cut_total": "Connections closed because the database did not answer.",
    "callgate_store_connections_opened_total": "Connections opened.",
    "callgate_store_failures_total": "Operations on the store that failed with an error of the database.",
    "callgate_store_retries_total": "Retries because of locks of other transactions, or of a database that is away.",
    "callgate_store_seconds": "Duration of operations on the store, with the wait for a connection.",
    "callgate_store_waiting": "Operations on the store that no connection has begun.",
    "callgate_store_writes_failing": "Is 1 after a failed write, until facts are written again.",
    "callgate_tls_certificate_expires_seconds": "Expiry of the certificate, in seconds since 1970.",
    "callgate_tokens_total": "Tokens of models by kind.",
    "callgate_worker_deaths_total": "Workers that died or were killed.",
    "callgate_workers": "Workers by pool and state.",
    "process_open_fds": "Open file descriptors.",
    "process_resident_memory_bytes": "Resident memory.",
    "process_start_time_seconds": "Start of the service, in seconds since 1970.",
}  # fmt: skip
"""Each metric, and its meaning for those who see its name in a dashboard's list."""


def opening(name: str, kind: str) -> list[str]:
    """Return the lines that stand before the samples of a metric: its meaning and its type."""
    known = [f"# HELP {name} {MEANINGS[name]}"] if name in MEANINGS else []
    return [*known, f"# TYPE {name} {kind}"]


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
