"""The messages between a program and a worker about one call, from its start to its one result.

Messages and the clock come in, a result or a reason to kill goes out. Nothing here waits, and nothing is sent but the word
that a call is not wanted any more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from callgate.errors import CallgateError
from callgate.threads import NOT_STARTED
from callgate.types import ResultStatus, ToolResult
from callgate.workers.host_calls import HostCalls
from callgate.workers.job import Job

__all__ = ["Worker", "WorkerCall", "WorkerDiedError"]

logger = logging.getLogger("callgate.workers")


class WorkerDiedError(CallgateError):
    """The worker is gone. `how` is its exit status or signal, `output` a sentence with what it printed last, or empty.

    `unread`: it did not take in the last message that it was sent.
    """

    def __init__(self, how: str, output: str = "", *, unread: bool = False) -> None:
        super().__init__(how + output)
        self.how, self.output, self.unread = how, output, unread


class Worker(Protocol):
    """One worker, wherever it runs. Its frames are read by one at a time."""

    started: float
    calls: int
    gone: bool
    """True if it is over: everything that it sent was received, and no more will come."""

    @property
    def reader(self) -> asyncio.AbstractEventLoop | None:
        """The event loop that looks for its messages, if one does."""
        ...

    @property
    def pid(self) -> int | None:
        """Return its process, if it is on this machine."""
        ...

    def begin(self, modules: Sequence[tuple[str, str | None]], *, memory_bytes: int | None) -> None:
        """Tell it what to import."""
        ...

    def send(self, frame: bytes) -> None:
        """Send a frame. Never waits."""
        ...

    def control(self, message: Mapping[str, Any]) -> None:
        """Send a message past the call that runs. May wait."""
        ...

    def cancel(self, number: int) -> None:
        """Tell it that a call is not wanted any more. Never waits."""
        ...

    def wake(self) -> None:
        """End a wait."""
        ...

    def wait(self, until: float, *, listen: bool) -> None:
        """Wait until something may have happened, or the time is reached."""
        ...

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages since the last call. Never waits."""
        ...

    def read_by(self, loop: asyncio.AbstractEventLoop, look: Callable[[], None]) -> None:
        """Let an event loop, in its thread, look for messages, if the worker is one that can be looked at like that."""
        ...

    def read_by_none(self) -> None:
        """End what `read_by` began."""
        ...

    @property
    def has_children(self) -> bool:
        """Return whether something that a tool started is still running."""
        ...

    def log_output(self) -> str:
        """Pass on what it printed."""
        ...

    def death(self) -> WorkerDiedError:
        """Return how it ended, after ending it if necessary."""
        ...

    def kill(self) -> None:
        """End it and everything that it started, now."""
        ...

    def close(self, *, grace_s: float = 0.0) -> None:
        """End it, cleanly if it is quick enough, and lets go of everything."""
        ...


class WorkerCall:
    """One call that a worker was told of."""

    def __init__(self, job: Job, worker: Worker, *, grace_s: float) -> None:
        self.job, self._worker, self._grace_s = job, worker, grace_s
        self.had_begun = job.has_begun
        """True if another worker may have begun with the call before."""
        self.started = time.monotonic()
        ends = self.started + job.timeout_s
        self._deadline = ends if job.until is None else min(ends, job.until)
        self._kill_at: float | None = None

    @property
    def until(self) -> float:
        """Time of the next check on it."""
        return self._deadline + self.job.paused_s() if self._kill_at is None else self._kill_at

    def is_overdue(self) -> bool:
        """Look at the clock. Asks the call to stop when that is due, and says whether it has to be killed."""
        job, now = self.job, time.monotonic()
        if self._kill_at is not None:
            return now >= self._kill_at
        if job.stop is None and now >= self._deadline + job.paused_s():
            job.stop = ("timed_out", f"The call did not finish within {job.timeout_s:g} s.")
        if job.stop is not None:
            self._kill_at = now + self._grace_s
            self._worker.cancel(job.number)
        return False

    def receive(self, message: Mapping[str, Any]) -> ToolResult | None:
        """Take in what the worker says; the result, once it is there."""
        job = self.job
        if message.get("id") != job.number:
            return None
        if message["op"] == "result":
            return ToolResult(
                call_id=job.call_id,
                name=job.name,
                status=message["status"],
                value=message.get("value"),
                error=message.get("error"),
                notes=tuple(message.get("notes", ())),
                media=tuple(message.get("media", ())),
                duration_s=time.monotonic() - self.started,
            )
        if message["op"] == "progress":
            job.last = message["message"]
            _notify(job.progress, message["message"], message["fraction"])
        elif message["op"] == "item":
            job.seen += 1
            _notify(job.on_item, message["value"])
        elif message["op"] == "ask":
            job.host_calls = job.host_calls or HostCalls(job)
            _notify(job.host_calls.receive, message)
        return None

    def stopped(self) -> ToolResult:
        """The result of a call that was stopped."""
        assert self.job.stop is not None
        status, sentence = self.job.stop
        took_s = time.monotonic() - self.started
        notes = tuple(_so_far(self.job))
        return self.job.result(status, error=sentence + _effect(self.job), notes=notes, duration_s=took_s)

    def crashed(self, died: WorkerDiedError) -> ToolResult:
        """The result of a call whose worker died."""
        if self.job.stop is not None:
            return self.stopped()
        when = "during" if self.job.has_begun else "before it read of"
        error = f"The worker process died {when} the call: {died.how}{_effect(self.job)}{died.output}"
        return self.job.result("failed", error=error, duration_s=time.monotonic() - self.started)


def _effect(job: Job) -> str:
    if not job.has_begun:
        return f" {NOT_STARTED}"
    unknown = job.definition is not None and not job.definition.read_only
    return " Whether it had its effect is not known." if unknown else ""


def _notify(listener: Callable[..., object], *words: Any) -> None:
    try:
        listener(*words)
    except Exception:
        logger.exception("an observer of a call failed")


_STATUS_WORDS: dict[ResultStatus, str] = {"timed_out": "time was up", "cancelled": "it was cancelled"}


def _so_far(job: Job) -> list[str]:
    """The result of a call that was stopped, as far as it is known."""
    assert job.stop is not None
    found = [f"When {_STATUS_WORDS[job.stop[0]]}, {job.seen} item(s) had come."] if job.seen else []
    return found + ([f"Its last report was: {job.last}"] if job.last else [])
