"""The one door from sync code into the async runtime, and the channel that events leave by.

Coroutines go in, their values come out; this file knows nothing of conversations.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import threading
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Generic, TypeVar

__all__ = ["BlockingPortal", "Channel"]

T = TypeVar("T")

INTERRUPT_WAIT_S = 5.0
"""How long Ctrl-C waits for a run to leave its conversation in order."""


class BlockingPortal:
    """A thread with an event loop that lives as long as its owner wants, and works inside another running loop too."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="callgate-loop", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs the coroutine on the portal's loop, in the caller's context, and waits for it.

        Ctrl-C cancels it, waits until it has cleaned up, and is then raised.
        """
        outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        started: list[asyncio.Task[T]] = []
        context = contextvars.copy_context()

        def start() -> None:
            task = self._loop.create_task(coroutine, context=context)
            started.append(task)
            task.add_done_callback(lambda task: _transfer(task, outcome))

        self._loop.call_soon_threadsafe(start)
        try:
            return outcome.result()
        except KeyboardInterrupt:
            self._loop.call_soon_threadsafe(lambda: started[0].cancel())
            concurrent.futures.wait([outcome], timeout=INTERRUPT_WAIT_S)
            raise

    def close(self) -> None:
        """Stops the loop and its thread; tasks that are left are cancelled first."""
        if self._loop.is_closed():
            return
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=INTERRUPT_WAIT_S)
        if not self._thread.is_alive():
            self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=INTERRUPT_WAIT_S)


def _transfer(task: asyncio.Task[T], outcome: concurrent.futures.Future[T]) -> None:
    if task.cancelled():
        outcome.cancel()
    elif (error := task.exception()) is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(task.result())


class Channel(Generic[T]):
    """A bounded queue between one sender and one receiver that either side can close."""

    def __init__(self, size_max: int) -> None:
        self._items: deque[T] = deque()
        self._size_max = size_max
        self._closed = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    async def send(self, item: T) -> None:
        """Adds an item; waits while the receiver is far behind. Once closed, items go nowhere."""
        while len(self._items) >= self._size_max and not self._closed:
            self._room.clear()
            await self._room.wait()
        if not self._closed:
            self._items.append(item)
            self._changed.set()

    def close(self) -> None:
        """No more items; what was sent can still be received."""
        self._closed = True
        self._changed.set()
        self._room.set()

    async def __aiter__(self) -> AsyncIterator[T]:
        while True:
            while self._items:
                item = self._items.popleft()
                self._room.set()
                yield item
            if self._closed:
                return
            self._changed.clear()
            await self._changed.wait()
