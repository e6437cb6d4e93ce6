"""Task ownership: no task without an owner, no silent failure, no task that outlives its owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from callgate.errors import CallgateError

__all__ = ["TaskOwner", "outlast"]


class TaskOwner:
    """The tasks of one run, or of one call outside a run.

    Args:
        fail: Called with the first error; everything that waits for the others must end with it.
    """

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self._fail = fail
        self._tasks: set[asyncio.Task[None]] = set()
        self._cancelled: set[asyncio.Task[None]] = set()
        self._is_closing = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Start a task that ends with its owner at the latest; None if the owner is about to end."""
        if self._is_closing:
            work.close()
            return None
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def cancel(self, task: asyncio.Task[None]) -> None:
        """Cancel a task, and wait until it has ended."""
        self._cancelled.add(task)
        task.cancel()
        await asyncio.wait({task})
        self._cancelled.discard(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            if not self._is_closing and task not in self._cancelled:
                self._fail(CallgateError("a task of the run was cancelled from outside"))
        elif (error := task.exception()) is not None:
            self._fail(error if isinstance(error, Exception) else CallgateError(f"{type(error).__name__}: {error}"))

    async def aclose(self) -> None:
        """Cancel what is left, and wait until it has ended."""
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        while self._tasks:
            await asyncio.wait(list(self._tasks))


async def outlast(task: asyncio.Task[Any], stop: Callable[[], object]) -> asyncio.CancelledError | None:
    """Wait until a task is over, however often the wait is cancelled; call `stop` the first time, and return that error.

    Cancel scopes (anyio, Starlette, MCP servers) cancel repeatedly whatever waits inside of them. The error must be
    raised unchanged: a scope recognizes its own by their message.
    """
    interruption: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            if interruption is None:
                interruption = error
                stop()
    try:
        return interruption
    finally:
        del interruption  # The error references this frame.
