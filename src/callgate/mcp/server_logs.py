"""Log messages of servers -> records of Python's `logging`.

Notifications of the SDK come in. What a server writes is foreign text: it is quoted, cut, cleared of known secrets, and
limited in number, so that no server can forge a line or fill a disk.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

from callgate.config.known_secrets import redact_known

__all__ = ["ServerLog"]

logger = logging.getLogger("callgate.mcp.servers")

TEXT_CHARS_MAX = 2_000
RECORDS_MAX = 100
"""Records of one server within `PERIOD_S`; the others are counted."""
PERIOD_S = 10.0
_LEVELS = {
    "debug": logging.DEBUG, "info": logging.INFO, "notice": logging.INFO, "warning": logging.WARNING,
    "error": logging.ERROR, "critical": logging.CRITICAL, "alert": logging.CRITICAL, "emergency": logging.CRITICAL,
}  # fmt: skip


class ServerLog:
    """The log of one server."""

    def __init__(self, server: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._clock = clock
        self._began = clock()
        self._count = 0

    @staticmethod
    def level() -> Any:
        """The least level that anybody here listens to, in MCP's words; None if there is none."""
        return next((word for word, number in _LEVELS.items() if logger.isEnabledFor(number)), None)

    async def take(self, params: Any) -> None:
        """Write one message of the server."""
        number = _LEVELS.get(params.level, logging.INFO)
        if not logger.isEnabledFor(number) or not self._has_room():
            return
        text = params.data if isinstance(params.data, str) else json.dumps(params.data)
        source = f" ({params.logger[:100]!r})" if params.logger else ""
        logger.log(number, "mcp server %r%s says: %r", self._server, source, redact_known(text)[:TEXT_CHARS_MAX])

    def _has_room(self) -> bool:
        now = self._clock()
        if now - self._began >= PERIOD_S:
            if (more := self._count - RECORDS_MAX) > 0:
                logger.warning("mcp server %r: %d further log messages were dropped", self._server, more)
            self._began, self._count = now, 0
        self._count += 1
        return self._count <= RECORDS_MAX
