"""The state of the audit log at this moment, for health and metrics: tried, and not remembered from the last call."""

from __future__ import annotations

import asyncio

from callgate.errors import ToolError
from callgate.permission import AuditLog
from callgate.threads import THREADS

__all__ = ["AuditProbe"]

PROBE_S = 1.5
"""Seconds that the log's disk may take to answer before the log counts as failing."""


class AuditProbe:
    """Check that the log can be written, in one thread at a time: a disk that hangs costs one, not one per request."""

    def __init__(self, audit: AuditLog | None) -> None:
        self._audit = audit
        self._probe: asyncio.Task[str | None] | None = None

    async def trouble(self) -> str | None:
        """Return why a record cannot be written now; None if it can, or if there is no log."""
        audit = self._audit
        if audit is None:
            return None
        if self._probe is None or self._probe.done():
            self._probe = asyncio.create_task(_probed(audit))
        await asyncio.wait({self._probe}, timeout=PROBE_S)
        if not self._probe.done():
            return f"the audit log {str(audit.path)!r} cannot be written: no answer within {PROBE_S:g} s"
        return self._probe.result()

    async def aclose(self) -> None:
        """End the wait for a probe; a thread that hangs is left behind."""
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.wait({self._probe})


async def _probed(audit: AuditLog) -> str | None:
    try:
        return str(said) if (said := await THREADS.run(audit.probe, abandoned_max=None)) is not None else None
    except ToolError as error:  # There is no thread for it.
        return str(error)
