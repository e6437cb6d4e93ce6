"""A place in a pool: one thread that keeps one worker process alive and takes it through one job after another.

Jobs come in through an inbox, each gets its one result. Who is next is the pool's matter; how a call ends, whatever its tool
does, is decided here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any

from callgate.errors import JsonError
from callgate.types import ResultStatus, ToolDefinition, ToolResult
from callgate.workers.job import Job, WorkerLimits
from callgate.workers.process import WorkerDied, WorkerProcess

__all__ = ["Slot", "SlotOwner", "StartFailed"]

logger = logging.getLogger("callgate.workers")

BACKOFF_S = (0.0, 0.1, 0.5, 2.0, 5.0)
"""How long to wait before the next start, by the number of starts that failed in a row."""
PONG_S = 10.0
STARTS_MAX = 5
"""How often a call is given to a worker that turns out to be dead."""


class StartFailed(Exception):
    """A worker could not be made ready; the text says why."""


@dataclass(frozen=True, slots=True)
class SlotOwner:
    """What a slot tells its pool, and asks of it. Called from the slot's thread."""

    ready: Callable[[Slot, list[ToolDefinition]], None]
    failed: Callable[[Slot, str], None]
    gone: Callable[[Slot, str], None]
    """The worker is gone, and with it what sessions kept in it."""
    next_job: Callable[[Slot], Job | None]
    ended: Callable[[Slot, Job, ToolResult], None]
    again: Callable[[Slot, Job], bool]
    """Takes a job back that may be run once more."""
    may_recycle: Callable[[Slot], bool]


class Slot:
    """One worker of a pool, and its successors."""

    def __init__(self, modules: Sequence[tuple[str, str | None]], limits: WorkerLimits, owner: SlotOwner) -> None:
        self._modules, self._limits, self._owner = modules, limits, owner
        self.inbox: SimpleQueue[Job | None] = SimpleQueue()
        self.is_idle = False
        self.job: Job | None = None
        self.process: WorkerProcess | None = None
        self._closing = threading.Event()
        self._failures = 0
        self._thread = threading.Thread(target=self._live, name="callgate-worker", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The process that is there now."""
        process = self.process
        return process.pid if process else None

    def wake(self) -> None:
        """Lets the slot look at its job again: it was cancelled."""
        if (process := self.process) is not None:
            process.wake()

    def close(self) -> None:
        """Ends the slot when its job is over. Does not wait."""
        self._closing.set()
        self.inbox.put(None)
        self.wake()

    def join(self, timeout_s: float | None = None) -> None:
        """Waits until the worker is gone."""
        self._thread.join(timeout_s)

    # The thread ----------------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        while not self._closing.is_set():
            try:
                self.process = WorkerProcess()
                tools = self._made_ready(self.process)
            except Exception as error:  # Modules are strangers' code too, and may make a worker send anything.
                self._failures += 1
                self._let_go()
                self._owner.failed(self, str(error))
                self._closing.wait(BACKOFF_S[min(self._failures, len(BACKOFF_S) - 1)])
                continue
            self._failures = 0
            self._owner.ready(self, tools)
            why = self._serve(self.process)
            self._let_go(grace_s=0.5)
            self._owner.gone(self, why)
        self._let_go()

    def _let_go(self, grace_s: float = 0.0) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.close(grace_s=grace_s)

    def _made_ready(self, process: WorkerProcess) -> list[ToolDefinition]:
        process.begin(self._modules, memory_bytes=self._limits.memory_bytes)
        until = time.monotonic() + self._limits.start_timeout_s
        while not self._closing.is_set():
            message = process.receive(until)
            if message is not None and message.get("op") == "ready":
                if message.get("problem"):
                    raise StartFailed(message["problem"])
                return [ToolDefinition(**item) for item in message["tools"]]
            if time.monotonic() >= until:
                raise StartFailed(f"not ready within {self._limits.start_timeout_s:g} s")
        raise StartFailed("the pool was closed")

    def _serve(self, process: WorkerProcess) -> str:
        """Does jobs as long as the process is of use; gives the reason why it no longer is."""
        while not self._closing.is_set():
            try:
                job = self.inbox.get(timeout=self._limits.heartbeat_s)
            except Empty:
                if why := self._unhealthy(process):
                    return why
                continue
            while job is not None:
                if why := self._do(process, job):
                    return why
                if self._is_worn(process):
                    return "it was replaced, as it is after some time"
                job = None if self._closing.is_set() else self._owner.next_job(self)
        return "the pool was closed"

    def _unhealthy(self, process: WorkerProcess) -> str | None:
        try:
            process.send({"op": "ping"})
            until = time.monotonic() + PONG_S
            while (message := process.receive(until)) is None or message.get("op") != "pong":
                if time.monotonic() >= until:
                    return f"it did not answer within {PONG_S:g} s"
        except WorkerDied as died:
            return died.how
        return "it was replaced, as it is after some time" if self._is_worn(process) else None

    def _is_worn(self, process: WorkerProcess) -> bool:
        calls, age = self._limits.recycle_calls, self._limits.recycle_age_s
        worn = (calls is not None and process.calls >= calls) or (
            age is not None and time.monotonic() - process.started >= age
        )
        return worn and self._owner.may_recycle(self)

    # One job -------------------------------------------------------------------------------------------------------------

    def _do(self, process: WorkerProcess, job: Job) -> str | None:
        """Takes the worker through a job. Gives the reason if the worker is of no use afterwards."""
        if job.stop is not None:
            self._owner.ended(self, job, job.result(job.stop[0], error="Not run: the call was cancelled before it started."))
            return None
        started = time.monotonic()
        why: str | None = None
        process.calls += 1
        job.attempts += 1
        try:
            result, why = _Conversation(process, job, self._limits.stop_grace_s).hold()
        except JsonError as error:
            result = job.result("failed", error=f"The arguments of {job.name!r} are {error}.")
        except WorkerDied as died:
            why = died.how
            if died.unread and job.stop is None and job.attempts < STARTS_MAX and self._owner.again(self, job):
                return why  # The call had not begun, so it can go elsewhere whatever it does.
            if job.stop is None and not job.notes and job.definition is not None and job.definition.repeatable:
                job.notes.append(f"The worker died in the first attempt ({why.rstrip('.')}) and the call was run again.")
                if self._owner.again(self, job):
                    return why
                job.notes.clear()
            result = _crash(job, died)
        except Exception:
            # A worker is full of strangers' code and may send anything that has the form of a message.
            logger.exception("worker %d sent something that makes no sense", process.pid)
            process.kill()
            why = "it sent something that makes no sense."
            result = _crash(job, WorkerDied(why))
        if why is None:
            process.log_output()
        else:
            self._owner.gone(self, why)  # First, so that the result can say what was lost.
        self._owner.ended(self, job, replace(result, duration_s=time.monotonic() - started))
        return why


def _crash(job: Job, died: WorkerDied) -> ToolResult:
    if job.stop is not None:
        status, sentence = job.stop
        return job.result(status, error=sentence + _effect(job))
    return job.result("failed", error=f"The worker process died during the call: {died.how}{_effect(job)}{died.output}")


def _effect(job: Job) -> str:
    unknown = job.definition is not None and not job.definition.read_only
    return " Whether it had its effect is not known." if unknown else ""


class _Conversation:
    """What is said between the program and a worker about one call."""

    def __init__(self, process: WorkerProcess, job: Job, grace_s: float) -> None:
        self._process, self._job, self._grace_s = process, job, grace_s
        ends = time.monotonic() + job.timeout_s
        self._deadline = ends if job.until is None else min(ends, job.until)
        self._kill_at: float | None = None

    def hold(self) -> tuple[ToolResult, str | None]:
        """The result, and why the worker is of no use any more if it is not."""
        job = self._job
        self._process.send(job.message)
        while True:
            message = self._process.receive(self._deadline if self._kill_at is None else self._kill_at)
            if message is not None:
                if (result := self._heard(message)) is not None:
                    return self._ended(result, bool(message.get("retire")))
            elif self._kill_at is None:
                if job.stop is None and time.monotonic() >= self._deadline:
                    job.stop = ("timed_out", f"The call did not finish within {job.timeout_s:g} s.")
                if job.stop is not None:
                    self._ask_to_stop()
            elif time.monotonic() >= self._kill_at:
                self._process.kill()
                return self._stopped(), "a call of it was stopped"

    def _ask_to_stop(self) -> None:
        self._kill_at = time.monotonic() + self._grace_s
        self._process.cancel(self._job.number)

    def _heard(self, message: dict[str, Any]) -> ToolResult | None:
        job = self._job
        if message.get("id") != job.number:
            return None
        if message["op"] == "progress":
            job.last = message["message"]
            _told(job.progress, message["message"], message["fraction"])
        elif message["op"] == "item":
            job.seen += 1
            _told(job.on_item, message["value"])
        elif message["op"] == "result":
            return job.result(
                message["status"],
                value=message.get("value"),
                error=message.get("error"),
                notes=tuple(message.get("notes") or ()),
                media=tuple(message.get("media") or ()),
            )
        return None

    def _ended(self, result: ToolResult, retire: bool) -> tuple[ToolResult, str | None]:
        if self._job.stop is None:
            return result, "it had run out of memory" if retire else None
        # It ended by itself in time, and may stay if it left nothing behind.
        return self._stopped(), "a call of it was stopped" if retire or self._process.has_children else None

    def _stopped(self) -> ToolResult:
        assert self._job.stop is not None
        status, sentence = self._job.stop
        return self._job.result(status, error=sentence + _effect(self._job), notes=tuple(_so_far(self._job)))


def _told(listener: Callable[..., object], *words: Any) -> None:
    try:
        listener(*words)
    except Exception:
        logger.exception("whoever listens to a call failed")


_STATUS_WORDS: dict[ResultStatus, str] = {"timed_out": "time was up", "cancelled": "it was cancelled"}


def _so_far(job: Job) -> list[str]:
    """What is known of a call that was stopped."""
    assert job.stop is not None
    found = [f"When {_STATUS_WORDS[job.stop[0]]}, {job.seen} item(s) had come."] if job.seen else []
    return found + ([f"Its last report was: {job.last}"] if job.last else [])
