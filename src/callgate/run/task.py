"""A run in its own task: its caller may be cancelled in any way, and the run still ends cleanly.

Cancel scopes cancel repeatedly whatever waits inside of them (anyio, Starlette, MCP servers); a run that was interrupted
like that would leave calls without results. So the run is outside: it is asked to stop, and awaited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from callgate.calls.tasks import outlast
from callgate.errors import CallgateError

__all__ = ["RunTask"]

T = TypeVar("T")


class RunTask(Generic[T]):
    """The task of one run.

    Args:
        work: The run. It gets this object, and sets `stop` once it can be stopped cleanly.
    """

    def __init__(self, work: Callable[[RunTask[T]], Coroutine[Any, Any, T]]) -> None:
        self.stop: Callable[[], object] | None = None
        """Stop the run cleanly; until it is set, the task is cancelled."""
        self._task = asyncio.get_running_loop().create_task(work(self))

    def add_done_callback(self, callback: Callable[[object], object]) -> None:
        """Call this when the run is over."""
        self._task.add_done_callback(callback)

    async def wait(self) -> T:
        """Wait for the result of the run. Cancelling the wait stops the run; it is over when this raises."""
        interruption = await outlast(self._task, self._cancel)
        try:
            if interruption is None:
                if self._task.cancelled() and not self._task.cancelling():
                    # It would pass for a cancellation of the caller, and end tasks without a word.
                    raise CallgateError("the run ended because something that it waited for was cancelled")
                if isinstance(error := self._task.exception(), GeneratorExit):
                    # It would pass for the end of the caller's own coroutine.
                    raise CallgateError("the run ended because something that it waited for raised GeneratorExit") from error
                return self._task.result()
            self._look()
            raise interruption
        finally:
            del interruption  # The error references this frame.

    async def cancel(self) -> None:
        """Stop the run, and wait until it is over."""
        if not self._task.done():
            self._cancel()
        interruption = await outlast(self._task, lambda: None)
        try:
            self._look()
            if interruption is not None:
                raise interruption
        finally:
            del interruption

    def _look(self) -> None:
        """Retrieve the exception of the run, or asyncio complains."""
        if not self._task.cancelled():
            self._task.exception()

    def _cancel(self) -> None:
        if self.stop is None:
            self._task.cancel()
        else:
            self.stop()
