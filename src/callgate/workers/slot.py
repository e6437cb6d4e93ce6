"""A place in a pool: one thread that keeps one worker alive, and the calls that are taken through it one after another.

Jobs come in, each gets its one result. Who is next is decided elsewhere; how a call ends, whatever its tool does, is decided
here. An answer is read by the event loop that waits for it, which costs no change of threads; the thread keeps the
deadlines, also while that loop is blocked, and does what takes time: starting, killing, replacing.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from callgate.types import ToolDefinition, ToolResult
from callgate.workers.frames import pack
from callgate.workers.job import Job, Needs, WorkerLimits
from callgate.workers.protocol import Worker, WorkerCall, WorkerDiedError

__all__ = ["Slot", "SlotOwner", "StartFailedError"]

logger = logging.getLogger("callgate.workers")

BACKOFF_S = (0.0, 0.1, 0.5, 2.0, 5.0)
"""Seconds to wait before the next start, by the number of consecutive starts that failed."""
PONG_S = 10.0
STARTS_MAX = 5
"""Maximum number of dead workers that one call is given to."""

WORN = "it was replaced, as it is after some time"
_PING = pack({"op": "ping"})


class StartFailedError(Exception):
    """A worker could not be made ready; the text says why."""


@dataclass(frozen=True, slots=True)
class SlotOwner:
    """The messages and questions of a slot to its pool. Called from the slot's thread, or from that of an event loop."""

    make: Callable[[Slot], Worker]
    ready: Callable[[Slot, list[ToolDefinition]], None]
    failed: Callable[[Slot, str], None]
    gone: Callable[[Slot, str], None]
    """The worker is gone, and with it what sessions kept in it."""
    ended: Callable[[Slot, Job, ToolResult, bool], None]
    """A job is over. The last argument: the slot can take another one."""
    again: Callable[[Slot, Job], bool]
    """Callback for a job that may be run once more."""
    may_recycle: Callable[[Slot], bool]


class Slot:
    """One worker of a pool, and its successors."""

    def __init__(
        self,
        modules: Sequence[tuple[str, str | None]],
        limits: WorkerLimits,
        owner: SlotOwner,
        *,
        needs: Needs = (),
        session_id: str | None = None,
    ) -> None:
        self._modules, self._limits, self._owner = modules, limits, owner
        self.needs = needs
        self.session_id = session_id
        """The session that it belongs to, if each has a worker of its own. Empty: calls without a session."""
        self.is_idle = False
        self.job: Job | None = None
        self.worker: Worker | None = None
        self._call: WorkerCall | None = None
        self._lock = threading.Lock()
        """Around the reading of answers. Never waited for while the lock of the pool is held."""
        self._over: str | None = None
        """Reason why the worker is of no use any more."""
        self._is_invalid = False
        """True if the worker sent an invalid message."""
        self._parked_until = math.inf
        self._failures = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._live, name="callgate-worker", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The process that is there now."""
        worker = self.worker
        return worker.pid if worker else None

    @property
    def is_closing(self) -> bool:
        """Return whether it ends with its job, and starts no other worker."""
        return self._closing.is_set()

    @property
    def is_alive(self) -> bool:
        """Return whether its thread is still at work."""
        return self._thread.is_alive()

    def take(self, job: Job) -> None:
        """Tell the worker of a job. The slot must be free. Does not wait."""
        worker = self.worker
        assert worker is not None, "only a slot that is ready is given jobs"
        worker.calls += 1
        job.attempts += 1
        call = self._call = WorkerCall(job, worker, grace_s=self._limits.stop_grace_s)
        job.has_begun = True
        if worker.reader is not job.loop:
            self._let_read(job, worker)
        worker.send(job.frame)
        if call.until < self._parked_until:
            worker.wake()

    def _let_read(self, job: Job, worker: Worker) -> None:
        if job.thread == threading.get_ident():
            worker.read_by(job.loop, self.look)
            return
        worker.read_by_none()
        # RuntimeError: that loop is closed; the thread will do.
        with contextlib.suppress(RuntimeError):
            job.loop.call_soon_threadsafe(worker.read_by, job.loop, self.look)

    def send_to_call(self, message: dict[str, Any]) -> None:
        """Say something to the call that runs. May wait."""
        if (worker := self.worker) is not None:
            worker.control(message)

    def wake(self) -> None:
        """Let the slot look at its job again: it was cancelled."""
        if (worker := self.worker) is not None:
            worker.wake()

    def close(self) -> None:
        """End the slot when its job is over. Does not wait."""
        self._closing.set()
        self.wake()

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the worker is gone."""
        self._thread.join(timeout_s)

    # The thread ----------------------------------------------------------------------------------------------------------

    def _live(self) -> None:
        while not self._closing.is_set():
            try:
                self.worker = self._owner.make(self)
                tools = self._made_ready(self.worker)
            except Exception as error:  # Modules are strangers' code too, and may make a worker send anything.
                self._failures += 1
                self._let_go()
                self._owner.failed(self, str(error))
                self._closing.wait(BACKOFF_S[min(self._failures, len(BACKOFF_S) - 1)])
                continue
            self._failures, self._over, self._is_invalid = 0, None, False
            self._owner.ready(self, tools)
            why = self._serve(self.worker)
            self._owner.gone(self, why)
            # From here on it is given no job. One that came a moment before was read by nobody.
            if (call := self._call) is not None:
                with self._lock:
                    self._handle_death(call, WorkerDiedError(why, unread=True))
            self._let_go(grace_s=0.5)
        self._let_go()

    def _let_go(self, grace_s: float = 0.0) -> None:
        worker, self.worker = self.worker, None
        if worker is not None:
            worker.close(grace_s=grace_s)

    def _made_ready(self, worker: Worker) -> list[ToolDefinition]:
        worker.begin(self._modules, memory_bytes=self._limits.memory_bytes)
        until = time.monotonic() + self._limits.start_timeout_s
        while not self._closing.is_set():
            worker.wait(until, listen=True)
            for message in worker.messages():
                if message.get("op") == "ready":
                    if message.get("problem"):
                        raise StartFailedError(message["problem"])
                    return [ToolDefinition(**item) for item in message["tools"]]
            if worker.gone:
                raise worker.death()
            if time.monotonic() >= until:
                raise StartFailedError(f"not ready within {self._limits.start_timeout_s:g} s")
        raise StartFailedError("the pool was closed")

    def _serve(self, worker: Worker) -> str:
        """Look after the worker as long as it is of use; gives the reason why it no longer is."""
        pinged: float | None = None
        beat_s = self._limits.heartbeat_s
        while not (self._closing.is_set() and self._call is None):
            # A job that comes from here on finds this, and wakes this thread if its deadline is earlier.
            self._parked_until = math.inf
            now = time.monotonic()
            until = now + beat_s if pinged is None else min(now + beat_s, pinged + PONG_S)
            if (call := self._call) is not None:
                until = min(until, call.until)
            self._parked_until = until
            worker.wait(until, listen=pinged is not None)
            with self._lock:
                ponged = self._receive(worker)
                if self._over is not None and self._call is None:
                    return self._over
                if why := self._ended_by(worker):
                    return why
            if ponged or self._call is not None:
                pinged = None
            elif time.monotonic() >= until:
                if self._is_worn(worker):
                    self._over = WORN
                    self._owner.gone(self, WORN)
                    worker.wake()  # It is over, unless a job has come a moment before, which is then its last.
                elif pinged is None:
                    pinged = time.monotonic()
                    worker.send(_PING)
                elif time.monotonic() >= pinged + PONG_S:
                    worker.kill()
                    return f"it did not answer within {PONG_S:g} s"
        return "the pool was closed"

    def _is_worn(self, worker: Worker) -> bool:
        calls, age = self._limits.recycle_calls, self._limits.recycle_age_s
        worn = (calls is not None and worker.calls >= calls) or (
            age is not None and time.monotonic() - worker.started >= age
        )
        return worn and self._owner.may_recycle(self)

    # What the worker says ------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Read what there is to read. Called by an event loop; whatever takes time is left to the thread."""
        worker = self.worker
        # If the lock is taken, somebody else is reading just now.
        if worker is None or not self._lock.acquire(blocking=False):
            return
        try:
            self._receive(worker)
            needs_thread = self._over is not None or self._is_invalid or worker.gone
        finally:
            self._lock.release()
        if needs_thread:
            worker.read_by_none()  # Which wakes the thread.

    def _receive(self, worker: Worker) -> bool:
        """Take in what the worker has sent; whether there was a sign of life among it that had been asked for."""
        ponged = False
        try:
            for message in worker.messages():
                ponged = ponged or message.get("op") == "pong"
                if (call := self._call) is not None and (result := call.receive(message)) is not None:
                    self._answered(worker, call, result, retire=bool(message.get("retire")))
        except Exception:
            # A worker is full of strangers' code and may send anything that has the form of a message.
            logger.exception("worker %s sent something that makes no sense", worker.pid)
            self._is_invalid = True
        return ponged

    def _answered(self, worker: Worker, call: WorkerCall, result: ToolResult, *, retire: bool) -> None:
        over = self._over
        if call.job.stop is not None:
            # It ended by itself in time, and may stay if it left nothing behind.
            result = call.stopped()
            over = "a call of it was stopped" if retire or worker.has_children else over
        elif retire:
            over = "it had run out of memory or threads"
        worker.log_output()
        if over is not None:
            self._owner.gone(self, over)  # First, so that the result can say what was lost.
        elif self._is_worn(worker):
            over = WORN
        self._over = over
        self._end(call, result, goes_on=over is None)

    def _end(self, call: WorkerCall, result: ToolResult, *, goes_on: bool) -> None:
        self._call = None
        self._owner.ended(self, call.job, result, goes_on)

    def _ended_by(self, worker: Worker) -> str | None:
        """Look whether the worker, or the time of its call, is over. Gives the reason if the worker is of no more use."""
        call = self._call
        if self._is_invalid:
            worker.kill()
            return self._handle_death(call, WorkerDiedError("it sent something that makes no sense."))
        if worker.gone:
            return self._handle_death(call, worker.death())
        if call is None or not call.is_overdue():
            return None
        worker.kill()
        why = "a call of it was stopped"
        self._owner.gone(self, why)
        self._end(call, call.stopped(), goes_on=False)
        return why

    def _handle_death(self, call: WorkerCall | None, died: WorkerDiedError) -> str:
        why = died.how
        if call is None:
            return why
        job = call.job
        if died.unread:
            job.has_begun = call.had_begun
        if job.stop is None and died.unread and job.attempts < STARTS_MAX and self._gave_back(job):
            return why  # The call had not begun, so it can go elsewhere whatever it does.
        if job.stop is None and not job.notes and job.definition is not None and job.definition.repeatable:
            job.notes.append(f"The worker died in the first attempt ({why.rstrip('.')}) and the call was run again.")
            if self._gave_back(job):
                return why
            job.notes.clear()
        self._owner.gone(self, why)
        self._end(call, call.crashed(died), goes_on=False)
        return why

    def _gave_back(self, job: Job) -> bool:
        self._call = None
        return self._owner.again(self, job)
