"""Memory that the service has freed goes back to the system; the C library keeps it otherwise, where it is scattered."""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable

__all__ = ["MemoryTrim"]

TRIM_BYTES = 32 * 1024 * 1024
"""The bytes that must have been freed before it is worth the walk through all memory."""
TRIM_S = 2.0
"""Seconds to wait for more to be freed."""


class MemoryTrim:
    """Timer that returns memory to the system, some time after enough of it was freed."""

    def __init__(self) -> None:
        self._freed = 0
        self._timer: asyncio.TimerHandle | None = None
        self._trim = _malloc_trim()

    def freed(self, size: int) -> None:
        """Note that about so many bytes were freed, or are about to be."""
        self._freed += size
        if self._freed >= TRIM_BYTES and self._timer is None and self._trim is not None:
            self._timer = asyncio.get_running_loop().call_later(TRIM_S, self._begin, self._trim)

    def close(self) -> None:
        """Give nothing back any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self, trim: Callable[[int], int]) -> None:
        self._freed, self._timer = 0, None
        asyncio.get_running_loop().run_in_executor(None, trim, 0)  # Some milliseconds, without the interpreter's lock.


def _malloc_trim() -> Callable[[int], int] | None:
    """Return the function of the GNU C library; None with another one."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
