"""`/metrics`: what was counted, as text that Prometheus reads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeVar, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from callgate.errors import StoreError
from callgate.server import access_log
from callgate.server.approvals import count_waiting
from callgate.server.counters import BOUNDS_S, Histogram, opening
from callgate.server.identity import trouble_of
from callgate.server.openapi import Operation, table
from callgate.server.shared_metrics import PATH, SharedMetrics
from callgate.store.statistics import StoreStatistics
from callgate.wire.endpoint_health import endpoint_states

if TYPE_CHECKING:
    from callgate.server.certificate import Certificate
    from callgate.server.service import Service

__all__ = ["routes", "text_of"]

WAITING_S, STORE_S = 1.0, 1.5
"""Seconds that the number of waiting calls is cached, and seconds that the lookup may take."""
T = TypeVar("T", bound="tuple[object, ...]")


async def text_of(service: Service) -> str:
    """Return all metrics of this process, as lines."""
    counted = service.metrics
    waiting, audit_trouble = await asyncio.gather(_waiting(service), service.audit_probe.trouble())
    followers = sum(run.followers for run in service.live)
    lines = [
        *_counter("callgate_http_requests_total", counted.requests, ("method", "route", "status")),
        *_counter("callgate_runs_total", counted.runs, ("outcome",)),
        *_counter("callgate_calls_total", counted.calls, ("tool", "state")),
        *_counter("callgate_tokens_total", counted.tokens, ("kind",)),
        *_gauge("callgate_runs_live", len(service.live)),
        *_gauge("callgate_followers", followers),
        *_gauge("callgate_approvals_waiting", waiting),
        *_gauge("callgate_abandoned_threads", service.gate.tools.abandoned()),
        *_gauge("callgate_kept_bytes", service.kept_bytes),
        *_gauge("callgate_access_file_invalid", int(trouble_of(service.options.identities) is not None)),
        *_gauge("callgate_audit_failing", int(audit_trouble is not None)),
        *_counter(
            "callgate_audit_failures_total", {(): 0 if service.gate.audit is None else service.gate.audit.failures}, ()
        ),
        *_counter("callgate_access_log_failures_total", {(): access_log.failures()}, ()),
        *_certificate_lines(service.certificate),
        *_counter("callgate_sessions_swept_total", {(): service.sweeper.swept}, ()),
        *_store_lines(service.store),
        *_endpoint_lines(),
        *_worker_lines(service.gate.tools.toolsets),
        *_histogram("callgate_run_seconds", counted.run_s),
        *_histogram("callgate_call_seconds", counted.call_s),
        *_gauge("process_start_time_seconds", service.began_s),
        *_process_lines(),
    ]
    return "\n".join(lines) + "\n"


async def _waiting(service: Service) -> int:
    """The calls that wait for a person, in all sessions of the store; as they were last, where it does not answer."""
    now_s, (looked_s, count) = time.monotonic(), service.waiting_calls
    if now_s >= looked_s + WAITING_S:
        with contextlib.suppress(StoreError, TimeoutError):
            async with asyncio.timeout(STORE_S):
                count = await count_waiting(service)
        service.waiting_calls = (now_s, count)
    return count


def _counter(name: str, counts: Mapping[T, int], labels: tuple[str, ...]) -> Iterator[str]:
    yield from opening(name, "counter")
    for key, count in sorted(counts.items(), key=repr):
        pairs = ",".join(f'{label}="{_escaped(str(value))}"' for label, value in zip(labels, key, strict=True))
        yield f"{name}{{{pairs}}} {count}" if pairs else f"{name} {count}"


def _histogram(name: str, histogram: Histogram) -> Iterator[str]:
    yield from opening(name, "histogram")
    count = 0
    for bound, number in zip((*map(str, BOUNDS_S), "+Inf"), histogram.buckets, strict=True):
        count += number
        yield f'{name}_bucket{{le="{bound}"}} {count}'
    yield f"{name}_sum {histogram.sum_s:.6f}"
    yield f"{name}_count {count}"


def _store_lines(store: object) -> Iterator[str]:
    """Durations, failures and connections of a store in a database, and the leases that were lost or in use."""
    found = getattr(store, "statistics", None)
    if not isinstance(found, StoreStatistics):
        return
    yield from _histogram("callgate_store_seconds", found.seconds)
    for name in ("failures", "retries"):
        yield from _counter(f"callgate_store_{name}_total", {(): getattr(found, name)}, ())
    for name in ("opened", "cut"):
        yield from _counter(f"callgate_store_connections_{name}_total", {(): getattr(found, name)}, ())
    yield from _gauge("callgate_store_connections", found.connections)
    yield from _gauge("callgate_store_writes_failing", int(found.write_error is not None))
    yield from _gauge("callgate_store_waiting", found.waiting)
    for name in ("lost", "busy"):
        yield from _counter(f"callgate_leases_{name}_total", {(): getattr(found, name)}, ())


def _certificate_lines(certificate: Certificate | None) -> Iterator[str]:
    """Yield the time of the certificate's expiry, in seconds since 1970, if it is known."""
    yield from opening("callgate_tls_certificate_expires_seconds", "gauge")
    if certificate is not None and certificate.expires_s is not None:
        yield f"callgate_tls_certificate_expires_seconds {certificate.expires_s:.0f}"


def _endpoint_lines() -> Iterator[str]:
    """The circuit breakers of the endpoints of models."""
    found = endpoint_states()
    yield from _labelled("callgate_endpoint_down", {(name,): int(state.is_down) for name, state in found.items()})
    yield from _labelled("callgate_endpoint_pause_seconds", {(name,): state.pause_left_s for name, state in found.items()})


def _labelled(name: str, values: Mapping[tuple[str], float]) -> Iterator[str]:
    yield from opening(name, "gauge")
    for (endpoint,), value in sorted(values.items()):
        yield f'{name}{{endpoint="{_escaped(endpoint)}"}} {value:g}'


def _worker_lines(toolsets: Iterable[object]) -> Iterator[str]:
    """Workers by state, and those that died or were killed."""
    pools: list[tuple[str, Mapping[str, int]]] = [
        (str(getattr(toolset, "name", "workers")), cast("Mapping[str, int]", health))
        for toolset in toolsets
        if isinstance(health := getattr(toolset, "health", None), dict)
    ]
    yield from opening("callgate_workers", "gauge")
    for name, health in pools:
        for state in ("ready", "idle", "starting", "waiting"):
            yield f'callgate_workers{{pool="{_escaped(name)}",state="{state}"}} {health.get(state, 0)}'
    deaths = {(name,): health.get("died", 0) for name, health in pools}
    yield from _counter("callgate_worker_deaths_total", deaths, ("pool",))


def _gauge(name: str, value: float) -> Iterator[str]:
    yield from opening(name, "gauge")
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
    text = await (text_of(service) if service.shared_metrics is None else service.shared_metrics.all())
    return Response(text, media_type="text/plain; version=0.0.4")


OPERATIONS = (Operation("GET", PATH, _metrics, gives={200: {"type": "string"}}, media_type="text/plain", right="admin"),)


def routes(service: Service) -> list[Route]:
    """The route of the counters."""
    if service.options.peers is not None:
        service.shared_metrics = SharedMetrics(service.options.peers, partial(text_of, service))
        service.peer_apps[PATH] = service.shared_metrics.answer
    return table(service, OPERATIONS)
