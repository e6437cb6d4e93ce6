"""Daemon threads for sync tools: run a function, return its value to the event loop, abandon it at a deadline.

The standard pool cannot be used: the interpreter waits for its threads at exit, and a tool that hangs would keep the
program from ending. Knows nothing of calls and results.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import os
import re
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from queue import SimpleQueue
from typing import Any, Literal, cast

from callgate import user_code
from callgate.config.known_secrets import redact_known
from callgate.errors import ToolError

__all__ = [
    "ITEMS_MAX",
    "NOT_STARTED",
    "THREADS",
    "NotStartedError",
    "StillRunningError",
    "Threads",
    "error_sentence",
    "error_text",
    "without_paths",
]

IDLE_THREADS_MAX = 64
ITEMS_MAX = 1_000_001
"""Maximum number of items of a generator: one more than a result may hold, so that an endless one is cut and says so."""
"""Threads that wait for the next call."""
BUSY_MAX = 256
"""Maximum number of threads of this process that run tools. Further calls wait for one."""


class StillRunningError(Exception):
    """The thread of a call that was given up has not returned."""


class NotStartedError(Exception):
    """A call that was given up had not begun anywhere."""


NOT_STARTED = "It had not begun, so it had no effect."
"""The error of such a call."""

# An absolute path at the beginning of a word. A URL is matched first, so that nothing in it is taken for a path.
_PATH = re.compile(
    r"(?P<url>(?<![\w+.-])(?!file:)[A-Za-z][\w+.-]*://\S+)"
    r"|(?:(?<=file://)|(?<![\w./\\~%-]))"
    r"(?P<path>(?:[A-Za-z]:[/\\](?![/\\])|\\\\(?=\w)|/(?=[\w.@+~-]))[\w.@+~-]+(?:[/\\][\w.@+~-]+)*[/\\]?)"
)
_QUOTED = re.compile(r"([\"'`])((?:[A-Za-z]:[/\\]|/|\\\\)(?!/)[^\"'`\n]*[/\\][^\"'`\n]*?)[/\\]?\1")
_FILE = re.compile(r"/[^/]+/[^/]+/[^/]*\.\w{1,8}$|/[^/]+/[^/]*\.(?:pem|key|env|py|txt|log|db|sqlite)$")
_FURTHER = re.compile(r"(?: [\w.@+~-]+)+(?:[/\\][\w.@+~-]+)+")
_ROOTS = frozenset({"Library", "System", "Users", "Volumes", "bin", "dev", "etc", "home", "lib", "mnt", "opt", "private",
                    "proc", "root", "run", "srv", "sys", "tmp", "usr", "var"})  # fmt: skip
"""Folders below the root of the file system, on this machine or on another."""


def without_paths(text: str) -> str:
    """Reduce each absolute path in a text to its last name: the layout of the disk is not for a model.

    A path begins a word, and its first folder is one of a file system. URLs, routes (`/v1/items`), dates and units
    (`km/h`) stay as they are.
    """
    text = _QUOTED.sub(
        lambda found: found[0] if not _is_path(found[2]) else found[1] + _last_name(found[2]) + found[1], text
    )
    pieces: list[str] = []
    end = 0
    for found in _PATH.finditer(text):
        if found.start() < end:
            continue  # Inside a path with blanks.
        pieces.append(text[end : found.start()])
        end = found.end()
        path = found["path"]
        if path is not None and _is_path(path):
            # A folder with a blank in its name goes on, if there is one.
            further = _FURTHER.match(text, end)
            if further is not None and os.path.isdir(os.path.dirname(path + further[0])):
                path, end = path + further[0], further.end()
            pieces.append(_last_name(path))
        else:
            pieces.append(found[0])
    return "".join((*pieces, text[end:]))


def _is_path(path: str) -> bool:
    """True for a path of a file system: of Windows, below a folder that systems have, or deep and with a file's ending."""
    if not path.startswith("/"):
        return True
    first, slash, _ = path[1:].partition("/")
    return bool(slash) and (first in _ROOTS or os.path.isdir(f"/{first}") or _FILE.search(path) is not None)


def _last_name(path: str) -> str:
    return re.split(r"[/\\]", path.rstrip("/\\"))[-1]


def error_text(error: BaseException) -> str:
    """Return the message of an exception; empty if its own code fails."""
    return user_code.call(lambda: str(error)).value or ""


def error_sentence(error: BaseException) -> str:
    """Describe an exception to a model: its type and first line; no traceback, and of a path only the last name."""
    first_line = (error_text(error).strip().splitlines() or [""])[0]
    for path in (getattr(error, "filename", None), getattr(error, "filename2", None)):
        # Its repr is in the text: a path, whatever it looks like.
        if isinstance(path, str) and os.path.isabs(path):
            first_line = first_line.replace(repr(path), repr(_last_name(path)))
    text = redact_known(without_paths(first_line))[:500]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


class _Slot:
    """The slot of one function among the busy threads, which it may lend to a nested call."""

    __slots__ = ("is_lent", "is_over")

    def __init__(self) -> None:
        self.is_lent = False
        self.is_over = False


_SLOT: contextvars.ContextVar[_Slot | None] = contextvars.ContextVar("callgate_thread_slot", default=None)
"""The place of the function that the current code runs in, or was called by."""


class Threads:
    """Threads that are reused when their function has returned, and abandoned when it does not.

    At most `BUSY_MAX` threads run tools, abandoned ones included; further calls wait in order. A function that calls
    another tool lends that call its slot if there is no other, one call at a time: otherwise many functions, each waiting
    for a nested call, could deadlock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: deque[SimpleQueue[_Job]] = deque()
        self._waiting: dict[_Job, None] = {}
        self._busy = 0
        self.abandoned = 0
        """Threads whose call was given up and has not returned yet."""

    async def run(self, function: Callable[[], object], *, abandoned_max: int | None) -> object:
        """Run the function in a thread, in a copy of the current context.

        With `abandoned_max=None` it counts neither as busy nor as abandoned: for waits for a user.

        Raises:
            ToolError: too many threads are abandoned already, or none can be started.
            NotStartedError: the caller was cancelled before there was a thread for the function.
            StillRunningError: the caller was cancelled, and the thread continues. A function that is not counted is
            abandoned.
        """
        if abandoned_max is not None and self.abandoned >= abandoned_max:
            raise ToolError(
                f"Not run: {self.abandoned} earlier calls went on after their deadline and still hold a thread each."
            )
        job = _Job(function, asyncio.get_running_loop(), is_counted=abandoned_max is not None)
        self._submit(job)
        try:
            return await job.future
        except asyncio.CancelledError:
            with self._lock:
                if job.state == "over":
                    raise
                if job.state == "waiting":
                    self._waiting.pop(job, None)
                    job.state = "over"
                    raise (NotStartedError if job.is_counted else asyncio.CancelledError) from None
                if not job.is_counted:
                    raise
                job.is_abandoned = True
                self.abandoned += 1
            raise StillRunningError from None

    def _submit(self, job: _Job) -> None:
        """Give the job to a thread, or let it wait for one."""
        with self._lock:
            if job.is_counted and not self._take_place(job):
                self._waiting[job] = None
                return
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue[_Job]()
            thread = threading.Thread(target=self._work, args=(inbox,), name="callgate-tool", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # The system has no more, or the interpreter is shutting down.
                with self._lock:
                    self._leave_place(job)
                raise ToolError(f"Not run: there is no thread for it ({error}).") from error
        inbox.put(job)

    # Under the lock -------------------------------------------------------------------------------------------------------

    def _take_place(self, job: _Job) -> bool:
        """Find a slot for a job; return whether there was one."""
        lender = job.parent
        if self._busy < BUSY_MAX:
            self._busy += 1
        elif lender is not None and not lender.is_lent and not lender.is_over:
            lender.is_lent, job.lender = True, lender
        else:
            return False
        return True

    def _leave_place(self, job: _Job) -> None:
        job.slot.is_over = True
        if job.lender is not None:
            job.lender.is_lent = False
        elif job.is_counted:
            self._busy -= 1

    def _next_after(self, job: _Job) -> _Job | None:
        """Return the job that gets the slot of this one."""
        if not job.is_counted:
            return None
        while (other := next((one for one in self._waiting if job.lender in (None, one.parent)), None)) is not None:
            is_dead = other.loop.is_closed()  # Then its caller does not wait any more.
            if not is_dead and not self._take_place(other):
                return None
            del self._waiting[other]
            if not is_dead:
                return other
        return None

    # In a thread ----------------------------------------------------------------------------------------------------------

    def _work(self, inbox: SimpleQueue[_Job]) -> None:
        job = inbox.get()
        while True:
            value, error = self._run(job)
            with self._lock:
                job.state = "over"
                if job.is_abandoned:
                    self.abandoned -= 1
                self._leave_place(job)
                following = self._next_after(job)
                # A thread that is free before its result is delivered can take the next call immediately.
                keep = following is not None or len(self._idle) < IDLE_THREADS_MAX
                if keep and following is None:
                    self._idle.append(inbox)
            job.deliver(value, error)
            # Otherwise this frame would keep the last call's arguments and result alive until the next call.
            del job, value, error
            if not keep:
                return
            job = following or inbox.get()
            del following

    def _run(self, job: _Job) -> tuple[object, BaseException | None]:
        with self._lock:
            if job.state == "over":  # Its caller was cancelled a moment ago.
                return None, None
            job.state = "running"
        return job.run()

    def reset_after_fork(self) -> None:
        """In a forked child none of the threads exist."""
        self.__init__()


class _Job:
    """One call of a sync function in a thread."""

    def __init__(self, function: Callable[[], object], loop: asyncio.AbstractEventLoop, *, is_counted: bool) -> None:
        self.context = contextvars.copy_context()
        self.function = function
        self.loop = loop
        self.future: asyncio.Future[object] = loop.create_future()
        self.is_counted = is_counted
        self.parent = _SLOT.get()
        """The slot of the function that waits for this one, if it has one."""
        self.state: Literal["waiting", "running", "over"] = "waiting"
        self.slot = _Slot()
        self.lender: _Slot | None = None
        """The borrowed slot, if it has none of its own."""
        self.is_abandoned = False

    def run(self) -> tuple[object, BaseException | None]:
        """The value or the exception, whatever it is: nothing may end the thread but its owner."""
        # An `input()` may still wait when the program ends: if its file were freed then, the interpreter would abort.
        stdin = getattr(sys, "stdin", None)
        try:
            return self.context.run(self._finish), None
        except BaseException as error:
            return None, error
        finally:
            del stdin

    def _finish(self) -> object:
        if self.is_counted:
            _SLOT.set(self.slot)
        value = self.function()
        # A generator does its work while it is read, so it is read here and not on the event loop.
        return list(islice(cast("Iterator[Any]", value), ITEMS_MAX)) if inspect.isgenerator(value) else value

    def deliver(self, value: object, error: BaseException | None) -> None:
        """Hand the outcome to the event loop, if that still exists and still waits."""
        # RuntimeError: the loop was closed while the tool was running; the caller is gone.
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
