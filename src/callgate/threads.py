"""Daemon threads for sync tools: a function goes in, its value comes back to the event loop, a deadline abandons it.

The standard pool is of no use here: the interpreter waits for its threads at exit, and a tool that hangs would keep the
program from ending. This file knows nothing of calls and results.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, cast

from callgate import user_code
from callgate.errors import ToolError

__all__ = ["NOT_BEGUN", "THREADS", "NotBegun", "StillRunning", "Threads", "error_sentence", "error_text", "without_paths"]

IDLE_THREADS_MAX = 64


class StillRunning(Exception):
    """The thread of a call that was given up has not returned."""


class NotBegun(Exception):
    """A call that was given up had not begun anywhere."""


NOT_BEGUN = "It had not begun, so it had no effect."
"""What is said of such a call."""

_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[/\\][\w.@+~ -]+)+[/\\]([\w.@+~-]+)")


def without_paths(text: str) -> str:
    """The text with only the last name of each path: where a program lies on the disk is nothing for a model."""
    return _PATH.sub(r"\1", text)


def error_text(error: BaseException) -> str:
    """The message of an exception; empty where its own code fails to tell."""
    return user_code.call(lambda: str(error)).value or ""


def error_sentence(error: BaseException) -> str:
    """What a model is told of an exception: its type and first line; no traceback, and of a path only the last name."""
    first_line = (error_text(error).strip().splitlines() or [""])[0]
    text = without_paths(first_line)[:500]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class Threads:
    """Threads that are reused when their function has returned, and left behind when it does not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: deque[SimpleQueue[_Job]] = deque()
        self.abandoned = 0
        """Threads whose call was given up and has not returned yet."""

    async def run(self, function: Callable[[], object], *, abandoned_max: int) -> object:
        """Runs the function in a thread, in a copy of the current context.

        Raises:
            ToolError: too many threads have been left behind already.
            StillRunning: the caller was cancelled, and the thread goes on.
        """
        if self.abandoned >= abandoned_max:
            raise ToolError(
                f"Not run: {self.abandoned} earlier calls went on after their deadline and still hold a thread each."
            )
        job = _Job(contextvars.copy_context(), function, asyncio.get_running_loop())
        self._hand_over(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            with self._lock:
                if job.over:
                    raise
                job.abandoned = True
                self.abandoned += 1
            raise StillRunning from None

    def _hand_over(self, job: _Job) -> None:
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue[_Job]()
            threading.Thread(target=self._work, args=(inbox,), name="callgate-tool", daemon=True).start()
        inbox.put(job)

    def _work(self, inbox: SimpleQueue[_Job]) -> None:
        while True:
            job = inbox.get()
            value, error = job.run()
            with self._lock:
                job.over = True
                if job.abandoned:
                    self.abandoned -= 1
                # A thread that is free before its result is delivered can take the next call at once.
                keep = len(self._idle) < IDLE_THREADS_MAX
                if keep:
                    self._idle.append(inbox)
            job.deliver(value, error)
            # Held on to by this frame, the last call's arguments and result would live until the next call.
            del job, value, error
            if not keep:
                return

    def reset_after_fork(self) -> None:
        """In a forked child none of the threads exist."""
        self.__init__()


class _Job:
    """One call of a sync function on its way through a thread."""

    __slots__ = ("abandoned", "context", "function", "future", "loop", "over")

    def __init__(
        self, context: contextvars.Context, function: Callable[[], object], loop: asyncio.AbstractEventLoop
    ) -> None:
        self.context = context
        self.function = function
        self.loop = loop
        self.future: asyncio.Future[object] = loop.create_future()
        self.abandoned = False
        self.over = False

    def run(self) -> tuple[object, BaseException | None]:
        """The value or the exception, whatever it is: nothing may end the thread but its owner."""
        try:
            return self.context.run(self._finish), None
        except BaseException as error:
            return None, error

    def _finish(self) -> object:
        value = self.function()
        # A generator does its work while it is read, so it is read here and not on the event loop.
        return list(cast("Iterator[Any]", value)) if inspect.isgenerator(value) else value

    def deliver(self, value: object, error: BaseException | None) -> None:
        """Hands the outcome to the event loop, if that still exists and still waits."""
        # RuntimeError: the loop was closed while the tool was running; nobody waits any more.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._set, value, error)

    def _set(self, value: object, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(value)
        elif isinstance(error, (StopIteration, SystemExit, KeyboardInterrupt, asyncio.CancelledError)):
            # These mean something else to an event loop than a failed tool.
            self.future.set_exception(ToolError(f"The tool failed with {error_sentence(error)}."))
        else:
            self.future.set_exception(error)


THREADS = Threads()
"""The threads of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=THREADS.reset_after_fork)
