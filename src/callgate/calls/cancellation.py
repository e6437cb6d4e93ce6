"""Cancel a run from outside: at any instant, with one outcome, and without cancelling the caller's task.

A request to cancel becomes `RunCancelled` where the run checks for it. Only waits for others (a model, a tool, a user)
are interrupted; everything else, such as writing the journal, is completed first. Knows nothing of conversations.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any, TypeVar

__all__ = ["Cancellation", "RunCancelled"]

T = TypeVar("T")


class RunCancelled(asyncio.CancelledError):
    """The run was asked to stop; never seen outside of it."""


class Cancellation:
    """Cancellation state of a run. Used on the event loop of the run."""

    def __init__(self) -> None:
        self.is_effective = False
        """True if the run has begun to stop: it checks nothing more then."""
        self._reason: str | None = None
        self._failure: Exception | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_waiting = False
        self._is_interrupted = False
        """True if a wait was interrupted, and has not seen it yet."""

    # The run --------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Allow cancellation of the run of the current task."""
        self._task = asyncio.current_task()

    def close(self) -> None:
        """End the run, for now or for good: it cannot be cancelled any more, unless that was requested before.

        Raises:
            RunCancelled: it was requested.
        """
        self.raise_if_requested()
        self.end()

    def end(self) -> None:
        """Disallow cancellation."""
        self._task = None

    @property
    def is_possible(self) -> bool:
        """True if the run can still be stopped."""
        return self._task is not None

    @property
    def pending(self) -> str | None:
        """The reason for a pending cancellation, if there is one."""
        return None if self.is_effective or self._failure is not None else self._reason

    def raise_if_requested(self) -> None:
        """Go no further if the run is to stop.

        Raises:
            RunCancelled: it is.
        """
        if self._failure is not None:
            raise self._failure from None
        if self._reason is not None and not self.is_effective:
            raise RunCancelled

    async def during(self, work: Awaitable[T]) -> T:
        """Await something external, until the run is cancelled.

        Raises:
            RunCancelled: the run is cancelled.
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

    async def complete(self, work: Awaitable[T]) -> T:
        """Within `during`, await something that must not be interrupted, such as writing the journal.

        Raises:
            RunCancelled: the run was cancelled meanwhile.
        """
        was_waiting, self._is_waiting = self._is_waiting, False
        try:
            result = await work
        finally:
            self._is_waiting = was_waiting
        self.raise_if_requested()
        return result

    # Requests -------------------------------------------------------------------------------------------------------------

    def request(self, reason: str) -> bool:
        """Ask the run to stop. Returns whether it will because of this."""
        if self._task is None or self._reason is not None or self.is_effective:
            return False
        self._reason = reason
        self._interrupt()
        return True

    def fail(self, error: Exception) -> None:
        """Make the run end with this error."""
        self._failure = error
        self._interrupt()

    # Internals ------------------------------------------------------------------------------------------------------------

    def _interrupt(self) -> None:
        if self._task is not None and self._is_waiting and not self._is_interrupted:
            self._is_interrupted = self._task.cancel()

    async def _take_back(self) -> None:
        """Remove all traces of an interruption: the caller is not cancelled."""
        assert self._task is not None, "only a run that can be stopped is interrupted"
        self._is_interrupted = False
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)  # A cancellation that arrived after the last wait is delivered here.
        if self._task.uncancel() > 0:
            raise asyncio.CancelledError  # The caller is cancelled as well.
