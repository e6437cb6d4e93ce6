"""How a run is stopped from outside: at any instant, with one outcome, and without a trace in the task of its caller.

A request to stop comes in; `RunCancelled` comes out where the run looks for it. Only waits for somebody else are interrupted
(for a model, a tool, a person); everything else, such as writing the journal, is carried through first.
This file knows nothing of conversations.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any, TypeVar

__all__ = ["Cancellation", "RunCancelled"]

T = TypeVar("T")


class RunCancelled(asyncio.CancelledError):
    """Somebody asked for the end of the run; never seen outside of it."""


class Cancellation:
    """Whether, why and when a run is to stop. It is used on the event loop of the run."""

    def __init__(self) -> None:
        self.is_heeded = False
        """Whether the run has begun to stop: it looks for nothing more then."""
        self._reason: str | None = None
        self._failure: Exception | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_waiting = False
        self._is_interrupted = False
        """Whether a wait was interrupted, and does not know it yet."""

    # The run --------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """From here on the run of the current task can be stopped."""
        self._task = asyncio.current_task()

    def close(self) -> None:
        """The run is over, for now or for good: from here on it cannot be stopped, unless that was asked for before.

        Raises:
            RunCancelled: it was.
        """
        self.raise_if_requested()
        self.end()

    def end(self) -> None:
        """From here on the run cannot be stopped."""
        self._task = None

    @property
    def is_possible(self) -> bool:
        """Whether the run can still be stopped."""
        return self._task is not None

    @property
    def pending(self) -> str | None:
        """Why the run is to stop, if it is and has not begun to."""
        return None if self.is_heeded or self._failure is not None else self._reason

    def raise_if_requested(self) -> None:
        """Goes no further if the run is to stop.

        Raises:
            RunCancelled: it is.
        """
        if self._failure is not None:
            raise self._failure from None
        if self._reason is not None and not self.is_heeded:
            raise RunCancelled

    async def during(self, work: Awaitable[T]) -> T:
        """Waits for somebody else, until the run is to stop.

        Raises:
            RunCancelled: it is.
        """
        self._is_waiting = True
        try:
            return await work
        except asyncio.CancelledError:
            if self._is_interrupted:
                self.raise_if_requested()
            raise
        finally:
            self._is_waiting = False
            if self._is_interrupted:
                await self._take_back()

    # Others ---------------------------------------------------------------------------------------------------------------

    def request(self, reason: str) -> bool:
        """Asks the run to stop. Returns whether it will because of this."""
        if self._task is None or self._reason is not None or self.is_heeded:
            return False
        self._reason = reason
        self._interrupt()
        return True

    def fail(self, error: Exception) -> None:
        """Makes the run end with this error."""
        self._failure = error
        self._interrupt()

    # Behind it ------------------------------------------------------------------------------------------------------------

    def _interrupt(self) -> None:
        if self._task is not None and self._is_waiting and not self._is_interrupted:
            self._is_interrupted = self._task.cancel()

    async def _take_back(self) -> None:
        """Sees to it that nothing of an interruption is left, whatever became of it: the caller is not cancelled."""
        assert self._task is not None, "only a run that can be stopped is interrupted"
        self._is_interrupted = False
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)  # One that came when there was nothing to wait for any more comes here.
        if self._task.uncancel() > 0:
            raise asyncio.CancelledError  # The caller is cancelled as well.
