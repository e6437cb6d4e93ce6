"""Metrics of all processes of one service: each is asked, and what they counted is added up.

Texts in Prometheus' format come in from the processes, one such text goes out. What a process has counted is written to a
file in the private folder whenever it is asked for; the process that takes its place goes on from there, and one that does
not answer counts with it, so that no counter goes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeAlias

from starlette.types import Message, Receive, Scope, Send

from callgate.server.counters import opening
from callgate.server.errors import HttpError
from callgate.server.peers import PeerGoneError, Peers

__all__ = ["PATH", "SharedMetrics", "added"]

Samples: TypeAlias = "dict[tuple[str, str], dict[str, float]]"
"""Values by series, by the name and the type of their metric."""

PATH = "/metrics"
PEER_S = 2.0
"""Seconds that another process may take before its saved metrics are used."""
_FILE = re.compile(r"(\d+)\.(?:sock|metrics)")
_GAUGES: dict[str, Callable[[Iterable[float]], float]] = {
    "callgate_approvals_waiting": max,  # Of the store that they share.
    "callgate_access_file_invalid": max,
    "callgate_store_writes_failing": max,
    "callgate_audit_failing": max,
    "callgate_tls_certificate_expires_seconds": min,
    "callgate_endpoint_down": max,
    "callgate_endpoint_pause_seconds": max,
    "process_start_time_seconds": min,
}
"""Gauges that are not added up."""


class SharedMetrics:
    """The metrics of one of several processes, and of all of them."""

    def __init__(self, peers: Peers, own: Callable[[], Awaitable[str]]) -> None:
        self._peers, self._own = peers, own
        self._before = _counters(_parsed(self._noted(peers.number)))
        """The counters of the processes that had its number before."""
        self.silent = 0
        """Processes that did not answer when all were asked last."""

    async def own(self) -> str:
        """Return the metrics of this process, with the counters of those that had its number before."""
        text = added([_parsed(await self._own()), self._before])
        with contextlib.suppress(OSError):
            self._note(text)  # Nothing is waited for meanwhile, so that an older text never replaces a newer one.
        return text

    async def all(self) -> str:
        """Return the metrics of all processes."""
        found = {int(match[1]) for name in os.listdir(self._peers.folder) if (match := _FILE.fullmatch(name))}
        others, self.silent = sorted(found - {self._peers.number}), 0
        texts = await asyncio.gather(self.own(), *map(self._other, others))
        silent = {("callgate_processes_silent", "gauge"): {"callgate_processes_silent": float(self.silent)}}
        return added([*map(_parsed, texts), silent])

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer another process, as an ASGI application."""
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": (await self.own()).encode()})

    async def _other(self, number: int) -> str:
        body = bytearray()

        async def receive() -> Message:
            await asyncio.Event().wait()  # Nobody leaves.
            raise AssertionError

        async def send(message: Message) -> None:
            body.extend(message.get("body", b""))

        scope: Scope = {"method": "GET", "path": PATH, "query_string": b"", "headers": []}
        try:
            async with asyncio.timeout(PEER_S):
                await self._peers.forward(number, scope, b"", receive, send)
        except (PeerGoneError, HttpError, TimeoutError):
            self.silent += 1
            return added([_counters(_parsed(self._noted(number)))])
        return body.decode()

    def _place(self, number: int) -> str:
        return os.path.join(self._peers.folder, f"{number}.metrics")

    def _note(self, text: str) -> None:
        place = self._place(self._peers.number)
        with open(f"{place}.new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(f"{place}.new", place)

    def _noted(self, number: int) -> str:
        try:
            with open(self._place(number), encoding="utf-8") as file:
                return file.read()
        except OSError:
            return ""


def added(parts: Iterable[Samples]) -> str:
    """Add up what several processes have counted; the text of it."""
    metrics: dict[tuple[str, str], dict[str, list[float]]] = {}
    for samples in parts:
        for metric, values in samples.items():
            known = metrics.setdefault(metric, {})
            for series, value in values.items():
                known.setdefault(series, []).append(value)
    return "".join(f"{line}\n" for line in _lines(metrics))


def _lines(metrics: dict[tuple[str, str], dict[str, list[float]]]) -> Iterator[str]:
    for (name, kind), series in metrics.items():
        yield from opening(name, kind)
        for key, values in series.items():
            value = _GAUGES.get(name, sum)(values)
            yield f"{key} {int(value) if value.is_integer() else value}"


def _parsed(text: str) -> Samples:
    found: Samples = {}
    values: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.removeprefix("# TYPE ").split(" ")
            values = found.setdefault((name, kind), {})
        elif not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            values[series] = float(value)
    return found


def _counters(samples: Samples) -> Samples:
    """Return the samples without those that tell how something is now."""
    return {(name, kind): values for (name, kind), values in samples.items() if kind != "gauge"}
