"""Bridges between threads and event loops: a portal for sync callers, a lock for tasks of several loops, and a channel.

Knows nothing of conversations.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import contextvars
import logging
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Generic, TypeVar

from callgate.errors import UsageError

__all__ = ["PROCESS_LOCK", "BlockingPortal", "Channel", "CrossLoopLock", "call_in_loop"]

T = TypeVar("T")

logger = logging.getLogger("callgate.sync")

WIND_DOWN_S = 5.0
"""Seconds that an interrupted or closed portal waits for its tasks to clean up."""
OWN_LOOP = (
    "run_sync() was called on its own event loop and would wait for itself: in async code use `await gate.run(...)`, "
    "and let a sync tool that calls it run in a thread"
)

PROCESS_LOCK = threading.RLock()
"""Held briefly while threads change shared state; it is free in a forked child.

One lock for all, so that there is no lock order; reentrant, because the garbage collector may run code that takes it
at any point.
"""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=PROCESS_LOCK.acquire, after_in_parent=PROCESS_LOCK.release, after_in_child=PROCESS_LOCK.release
    )


def call_in_loop(loop: asyncio.AbstractEventLoop, function: Callable[[], T], default: T, *, wait_s: float) -> T:
    """Call a function on an event loop from any thread, and return its value.

    Returns `default`, without calling the function, if the loop is closed or too busy for `wait_s`.
    """
    if asyncio._get_running_loop() is loop:
        return function()
    outcome: concurrent.futures.Future[T] = concurrent.futures.Future()

    def call() -> None:
        if outcome.set_running_or_notify_cancel():
            try:
                outcome.set_result(function())
            except BaseException as error:
                outcome.set_exception(error)

    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        return default
    concurrent.futures.wait([outcome], timeout=wait_s)
    return default if outcome.cancel() else outcome.result()


# The portal ---------------------------------------------------------------------------------------------------------------


class BlockingPortal:
    """An event loop in its own thread, for sync callers; it works inside another running event loop too.

    The thread is started by the first `run`, and again by the next one after `close`, after a fork, and if its loop has
    failed. A portal that is garbage collected stops its thread.
    """

    def __init__(self) -> None:
        self._thread: _LoopThread | None = None
        self._finalizer: weakref.finalize[..., BlockingPortal] | None = None

    @property
    def is_open(self) -> bool:
        """True if the portal has a thread in this process."""
        return self._thread is not None and self._thread.is_usable

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine on the portal's loop, in the caller's context, and wait for it.

        An interruption of the wait, such as Ctrl-C, cancels the coroutine and is raised after its clean-up, or after
        `WIND_DOWN_S`; a second one is raised immediately. A KeyboardInterrupt or SystemExit of the coroutine is raised
        here.

        Raises:
            UsageError: the caller is on the portal's own loop, or blocks it.
            RuntimeError: the thread cannot be started, or its loop ended before the coroutine did.
        """
        job, current = _Job(coroutine), threading.current_thread()
        try:
            if isinstance(current, _LoopThread):
                current.is_blocked = True
            self._submit(job)
            return job.outcome.result()
        except BaseException:
            if not job.outcome.done():
                job.cancel()
                concurrent.futures.wait([job.outcome], timeout=WIND_DOWN_S)
            raise
        finally:
            if isinstance(current, _LoopThread):
                current.is_blocked = False

    def close(self) -> None:
        """Cancel the tasks that are left, and end the loop and its thread."""
        with PROCESS_LOCK:
            thread = self._take_thread()
        if thread is not None and thread.is_running:
            thread.stop()
            if thread is not threading.current_thread():
                thread.join(2 * WIND_DOWN_S)

    def _submit(self, job: _Job[Any]) -> None:
        with PROCESS_LOCK:
            thread = self._thread
            if thread is None or not thread.is_usable:
                if sys.is_finalizing():
                    job.drop(RuntimeError(_FINALIZING))  # A thread that is started now never runs.
                    return
                thread = self._start_thread()
        current, callers = threading.current_thread(), _CALLERS.get()
        if isinstance(current, _LoopThread):
            callers = (*callers, current)
        if any(caller is thread and caller.is_blocked for caller in callers):
            raise UsageError(OWN_LOOP)
        context = contextvars.copy_context()
        context.run(_CALLERS.set, callers)
        thread.submit(job, context)

    def _start_thread(self) -> _LoopThread:
        self._take_thread()
        try:
            # Registered before it is started, so that an interruption leaves nothing behind.
            thread = self._thread = _LoopThread()
            self._finalizer = weakref.finalize(self, thread.stop)
            self._finalizer.atexit = False  # Those are stopped together.
            thread.start()
        except (OSError, RuntimeError) as error:
            if (failed := self._take_thread()) is not None:
                failed.discard()
            raise RuntimeError(f"run_sync() cannot start the thread of its event loop: {error}") from error
        return thread

    def _take_thread(self) -> _LoopThread | None:
        if self._finalizer is not None:
            self._finalizer.detach()
        thread, self._thread, self._finalizer = self._thread, None, None
        return thread


class _LoopThread(threading.Thread):
    """A thread with an event loop that runs until `stop`. It has no reference to its portal, so as not to keep it alive."""

    def __init__(self) -> None:
        super().__init__(name="callgate-loop", daemon=True)
        self.is_blocked = False
        """True if this thread itself waits in a portal, so that its loop is blocked."""
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._jobs: set[_Job[Any]] = set()
        self._ending: asyncio.Task[None] | None = None
        self._is_over = False

    @property
    def is_running(self) -> bool:
        """True if the thread runs, and is of this process: the loop of a parent is never touched."""
        return self._process == os.getpid() and self.is_alive()

    @property
    def is_usable(self) -> bool:
        """True if it runs and has a loop; one that has failed is closed before its callers hear of it."""
        return self.is_running and not self._loop.is_closed()

    def submit(self, job: _Job[Any], context: contextvars.Context) -> None:
        """Submit a job, which gets an outcome whatever happens to the loop."""
        job.loop = self._loop
        self._jobs.add(job)
        try:
            self._loop.call_soon_threadsafe(self._begin, job, context)
        except RuntimeError:
            job.drop(RuntimeError(_ENDED))

    def stop(self) -> None:
        """Cancel all tasks, then end the loop and the thread; from any thread, and without a wait."""
        if self._process == os.getpid():
            with contextlib.suppress(RuntimeError):  # The thread has ended.
                self._loop.call_soon_threadsafe(self._begin_end)

    def discard(self) -> None:
        """Close the loop of a thread that was not started."""
        self._loop.close()

    def run(self) -> None:
        """Run the loop until `stop`."""
        failure: BaseException | None = None
        try:
            while not self._is_over:
                # A task that raised one of these has it as its outcome, so that the waiter gets it; asyncio
                # raises it here too, and it is not to end the loop for everybody else.
                with contextlib.suppress(KeyboardInterrupt, SystemExit):
                    self._loop.run_forever()
        except BaseException as error:
            logger.exception("the event loop of run_sync() failed")
            failure = error
        finally:
            self._loop.close()
            for job in list(self._jobs):
                error = RuntimeError(_ENDED)
                error.__cause__ = failure
                job.drop(error)

    def _begin(self, job: _Job[Any], context: contextvars.Context) -> None:
        job.outcome.add_done_callback(lambda _: self._jobs.discard(job))
        if self._ending is not None:
            job.drop(RuntimeError(_ENDED))
        else:
            job.start(context)

    def _begin_end(self) -> None:
        if self._ending is None:
            self._ending = self._loop.create_task(_end_tasks(), context=contextvars.Context())
            self._ending.add_done_callback(self._end)

    def _end(self, _: asyncio.Task[None]) -> None:
        self._is_over = True
        self._loop.stop()


_ENDED = "the event loop of run_sync() has ended: it was closed, or has failed"
_FINALIZING = "run_sync() was called while the interpreter shuts down"
_CALLERS: contextvars.ContextVar[tuple[_LoopThread, ...]] = contextvars.ContextVar("callgate_portals", default=())
"""The threads of portals on whose loops the sync calls were made that led here."""


class _Job(Generic[T]):
    """A coroutine submitted to a loop."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self.outcome: concurrent.futures.Future[T] = concurrent.futures.Future()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None

    def start(self, context: contextvars.Context) -> None:
        """Make it a task; on the loop."""
        assert self.loop is not None, "a job is submitted before it is started"
        if not self.outcome.done():
            self._task = self.loop.create_task(self._coroutine, context=context)
            self._task.add_done_callback(self._finish)

    def cancel(self) -> None:
        """Cancel it; from any thread, even if it has not reached the loop yet."""
        try:
            if self.loop is not None:
                self.loop.call_soon_threadsafe(self._cancel)
                return
        except RuntimeError:  # The loop has ended.
            pass
        self._cancel()

    def drop(self, error: BaseException) -> None:
        """Set this outcome, unless it has one, because there is no loop for it."""
        if self._task is None:
            self._coroutine.close()
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            self.outcome.set_exception(error)

    def _cancel(self) -> None:
        if self._task is None:
            self.drop(concurrent.futures.CancelledError())
        else:
            self._task.cancel()

    def _finish(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            # Not `outcome.cancel()`: the waiter would not be notified.
            self.outcome.set_exception(concurrent.futures.CancelledError())
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())


async def _end_tasks() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=WIND_DOWN_S)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WIND_DOWN_S):
            await asyncio.get_running_loop().shutdown_asyncgens()


@atexit.register
def _stop_all() -> None:
    """Close all open loops, while their threads can still do it themselves."""
    threads = [thread for thread in threading.enumerate() if isinstance(thread, _LoopThread) and thread.is_usable]
    until_s = time.monotonic() + WIND_DOWN_S
    for thread in threads:
        thread.stop()
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0.0, until_s - time.monotonic()))


# The lock -----------------------------------------------------------------------------------------------------------------


class CrossLoopLock:
    """A lock for tasks of any event loop in any thread, first come, first served.

    A waiter that is cancelled, or whose loop was closed, is skipped.
    """

    __slots__ = ("_guard", "_holder", "_waiters")

    def __init__(self) -> None:
        # Reentrant: the garbage collector may close a waiting coroutine, and so call this, between any two steps.
        self._guard = threading.RLock()
        self._holder: _Ticket | None = None
        """The holder. A waiter gets the lock before it runs, so that none overtakes it."""
        self._waiters: deque[tuple[_Ticket, asyncio.Future[None]]] = deque()

    @property
    def is_held(self) -> bool:
        """True if the lock is held."""
        return self._holder is not None

    async def acquire(self) -> None:
        """Wait until the lock is free, and take it."""
        loop = asyncio.get_running_loop()
        with self._guard:
            if self._holder is None and not self._waiters:
                self._holder = _Ticket(loop, has_run=True)
                return
        ticket = _Ticket(loop)
        future: asyncio.Future[None] = loop.create_future()
        with self._guard:
            self._waiters.append((ticket, future))
            holder = self._holder
        if holder is None or (holder.loop.is_closed() and not holder.has_run):
            self._pass_on(holder)  # It must be passed on: it was released just now, or given to a task that never runs.
        try:
            await future
        except BaseException:
            ticket.is_gone = True
            with self._guard, contextlib.suppress(ValueError):
                self._waiters.remove((ticket, future))
            self._pass_on(ticket)
            raise
        ticket.has_run = True

    def release(self) -> None:
        """Pass the lock on to the first waiter; from any thread."""
        self._pass_on(self._holder)

    def _pass_on(self, holder: _Ticket | None) -> None:
        """Take the lock from this holder, if it has it, and give it to the next waiter that can still run."""
        while True:
            with self._guard:
                if self._holder is not holder:
                    return
                if not self._waiters:
                    self._holder = None
                    return
                holder, future = self._waiters.popleft()
                self._holder = holder
            if not holder.is_gone:
                with contextlib.suppress(RuntimeError):  # Its loop is closed.
                    holder.loop.call_soon_threadsafe(_wake, future)
                    return

    __aenter__ = acquire

    async def __aexit__(self, *exc: object) -> None:
        self.release()


class _Ticket:
    """A task that waits for a lock, or has it. Does not reference the task: one that is never resumed can be collected."""

    __slots__ = ("has_run", "is_gone", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, *, has_run: bool = False) -> None:
        self.loop = loop
        self.has_run = has_run
        """True if the task knows that it has the lock."""
        self.is_gone = False
        """True if the task stopped waiting before it got the lock."""


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


# The channel --------------------------------------------------------------------------------------------------------------


class Channel(Generic[T]):
    """A bounded queue between one sender and one receiver on one event loop; either side can close it."""

    def __init__(self, size_max: int) -> None:
        self._items: deque[T] = deque()
        self._size_max = size_max
        self._closed = False
        self._changed = asyncio.Event()
        self._room = asyncio.Event()

    async def send(self, item: T) -> None:
        """Add an item; wait while the queue is full. Items sent to a closed channel are dropped."""
        while len(self._items) >= self._size_max and not self._closed:
            self._room.clear()
            await self._room.wait()
        if not self._closed:
            self._items.append(item)
            self._changed.set()

    def close(self) -> None:
        """Take no more items; what was sent can still be received."""
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
