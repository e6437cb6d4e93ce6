"""Scheduling of calls: the slots of a pool, the sessions assigned to them and the queue of calls.

Jobs come in and go to slots, or are refused with a sentence; slots tell what became of them. Everything here is short and
under one lock; nothing waits for a worker.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from callgate.errors import UsageError
from callgate.types import ResultStatus, ToolDefinition, ToolResult
from callgate.workers.fair_queue import FairQueue
from callgate.workers.job import Affinity, Job, Needs, Session, WorkerLimits
from callgate.workers.protocol import Worker
from callgate.workers.slot import WORN, Slot, SlotOwner

__all__ = ["PoolConfig", "Scheduler"]

logger = logging.getLogger("callgate.workers")

SWEEP_S = 60.0
LOST = "The worker of this session ended: what earlier calls had kept in its memory is lost."


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """Factory and number of workers."""

    name: str
    size: int
    eager: bool
    affinity: Affinity
    limits: WorkerLimits
    modules: Sequence[tuple[str, str | None]]
    make: Callable[[Slot], Worker]
    on_ready: Callable[[Sequence[ToolDefinition], int], None]
    """Called when one more worker is ready, with its tools and how many are ready now."""
    on_failed: Callable[[str], None]
    """Called when a worker could not be started, with the reason."""

    @property
    def at_start(self) -> int:
        """Number of workers from the start."""
        return self.size if self.eager and self.affinity != "own" else 1


class Scheduler:
    """The slots of a pool and who gets them."""

    def __init__(self, config: PoolConfig) -> None:
        self._config, self._limits, self._affinity = config, config.limits, config.affinity
        self._lock = threading.Lock()
        self._queue = FairQueue()
        self._slots: list[Slot] = []
        self._leaving: list[Slot] = []
        """Slots that are ending; only the closing of the pool still waits for them."""
        self._ready: set[Slot] = set()
        self._sessions: dict[tuple[str, Needs], Session] = {}
        self._swept = time.monotonic()
        self._last_failure = ""
        self._never_started = ""
        """The answer to every call, if the pool was closed because none of its workers could be started."""
        self._calls = self._replaced = self._died = 0
        self.is_closed = False
        self._owner = SlotOwner(
            make=config.make,
            ready=self._slot_ready,
            failed=self._slot_failed,
            gone=self._remove_slot,
            ended=self._job_ended,
            again=self._job_again,
            may_recycle=self._may_recycle,
        )

    def begin(self) -> None:
        """Start the first workers.

        Raises:
            UsageError: the pool was closed.
        """
        with self._lock:
            self._require_open()
            self._fill()

    def _fill(self) -> None:
        while len(self._slots) < self._config.at_start:
            self._add_slot()

    def _add_slot(self, needs: Needs = (), session_id: str | None = None) -> None:
        self._slots.append(Slot(self._config.modules, self._limits, self._owner, needs=needs, session_id=session_id))

    def _require_open(self) -> None:
        if self.is_closed:
            raise UsageError(f"the worker pool {self._config.name!r} is closed; make a new one")

    def close(self, grace_s: float, kill_s: float) -> None:
        """Answer what waits, lets what runs go on for `grace_s`, then ends everything, which may take `kill_s`."""
        with self._lock:
            self.is_closed = True
            slots = [*self._slots, *self._leaving]
            if self._last_failure and not self._ready:
                self._never_started = f"Not run: no worker could be started: {self._last_failure}".rstrip(".") + "."
            for job in list(self._queue):
                self._queue.remove(job)
                if self._never_started:
                    job.deliver(job.result("failed", error=self._never_started))
                else:
                    job.deliver(job.result("cancelled", error="Not run: the worker pool was closed."))
        for slot in slots:
            slot.close()
        until = time.monotonic() + grace_s
        for slot in slots:
            slot.join(max(0.0, until - time.monotonic()))
        for slot in slots:
            if (job := slot.job) is not None:
                self.stop(job, "cancelled", "The call was cancelled while it was running. The worker pool was closed.")
        for slot in slots:
            slot.join(kill_s)

    @property
    def health(self) -> dict[str, int]:
        """Return its statistics."""
        with self._lock:
            ready = len(self._ready)
            return {
                "ready": ready,
                "idle": sum(slot.is_idle for slot in self._slots),
                "starting": len(self._slots) - ready,
                "waiting": len(self._queue),
                "sessions": len({name for name, _ in self._sessions}),
                "calls": self._calls,
                "replaced": self._replaced,
                "died": self._died,
            }

    @property
    def pids(self) -> list[int]:
        """The worker processes that are ready now."""
        with self._lock:
            return [pid for slot in self._slots if slot in self._ready and (pid := slot.pid) is not None]

    # Sessions ------------------------------------------------------------------------------------------------------------

    def session(self, name: str, needs: Needs = ()) -> Session | None:
        """A session of this name, new or known; None if there are too many."""
        with self._lock:
            now = time.monotonic()
            known = self._sessions.get((name, needs))
            if known is None:
                if len(self._sessions) >= self._limits.sessions:
                    self._swept = 0.0  # Room must be made by the next sweep at the latest.
                    if not self._forget_expired(now):
                        return None
                known = self._sessions[name, needs] = Session(name, now, needs)
            known.used = now
            return known

    def touch(self, name: str) -> None:
        """A session is in use."""
        with self._lock:
            for session in self._of(name):
                session.used = time.monotonic()

    def forget(self, name: str) -> list[Session]:
        """End a session here. Given out is what of it lives in a worker and has to be ended there."""
        with self._lock:
            over = list(self._of(name))
            for session in over:
                del self._sessions[session.id, session.needs]
            return [session for session in over if session.slot is not None]

    def _of(self, name: str) -> Iterator[Session]:
        return (session for (id_, _), session in list(self._sessions.items()) if id_ == name)

    def _forget_expired(self, now: float) -> list[Session]:
        if now - self._swept < min(SWEEP_S, self._limits.session_ttl_s):
            return []
        self._swept = now
        over = [s for s in self._sessions.values() if not s.open and now - s.used > self._limits.session_ttl_s]
        for session in over:
            del self._sessions[session.id, session.needs]
        return over

    def _may_recycle(self, slot: Slot) -> bool:
        """Unless the affinity is a hint, a worker stays as long as a session lives in it."""
        if self._affinity == "hint":
            return True
        oldest = time.monotonic() - self._limits.session_ttl_s
        with self._lock:
            return not any(s.slot is slot and (s.open or s.used > oldest) for s in self._sessions.values())

    # Who is next ---------------------------------------------------------------------------------------------------------

    def submit(self, job: Job) -> None:
        """Give the job to a worker, puts it in line, or refuses it.

        Raises:
            UsageError: the pool was closed.
        """
        with self._lock:
            if self._never_started:
                # A pool closes when its first worker cannot be started, which may be before its first call is in line.
                job.deliver(job.result("failed", error=self._never_started))
                return
            self._require_open()
            if not self._slots:
                self._fill()
            over = self._forget_expired(time.monotonic()) if self._sessions else ()
            if job.session is not None:
                job.session.open += 1
            refusal = self._placed(job)
            if refusal is not None:
                if job.session is not None:
                    job.session.open -= 1
                job.deliver(job.result("failed", error=refusal))
            elif job.state == "waiting":
                self._arm(job)
        for session in over:
            if session.slot is not None:
                self.submit(Job(None, {}, session, self._limits.call_timeout_s, job.loop, needs=session.needs))

    def _placed(self, job: Job) -> str | None:
        """Give the job to a worker or puts it in line; gives a sentence if neither can be done."""
        home = job.session.slot if job.session else None
        if isinstance(home, Slot) and home.is_idle:
            self._hand_over(job, home)
            return None
        is_bound = isinstance(home, Slot) and (self._affinity != "hint" or job.definition is None)
        idle = None if is_bound else next((slot for slot in self._slots if slot.is_idle and self._fits(job, slot)), None)
        if idle is not None:
            self._hand_over(job, idle)
        elif is_bound and self._affinity == "strict_fail_fast" and job.definition is not None:
            return f"Not run: the worker of the session {job.session and job.session.id!r} is busy. Try again later."
        elif len(self._queue) >= self._limits.queue:
            size, waiting = self._config.size, len(self._queue)
            return f"Not run: all {size} workers are busy and {waiting} calls wait already. Try again later."
        else:
            job.state = "waiting"
            self._queue.add(job)
            self._grow()
        return None

    def _grow(self) -> None:
        """Start a worker if there is room for one, and something that it could do."""
        if self._affinity != "own":
            starting = len(self._slots) - len(self._ready)
            if len(self._slots) < self._config.size and starting < len(self._queue):
                self._add_slot()
            return
        homeless = Counter((_session_id(job), job.needs) for job in self._queue if not (job.session and job.session.slot))
        spare = Counter(slot.needs for slot in self._slots if slot.session_id is None)
        for (session_id, needs), jobs in homeless.items():
            starting = (slot for slot in self._slots if slot not in self._ready)
            coming = sum((slot.session_id, slot.needs) == (session_id, needs) for slot in starting)
            # A session has one worker; calls without a session have as many as they can use.
            wanted = (1 if session_id else jobs) - coming
            used = min(spare[needs], wanted)
            spare[needs] -= used
            for _ in range(wanted - used):
                if len(self._slots) >= self._config.size and not self._made_room():
                    return
                self._add_slot(needs, session_id)

    def _made_room(self) -> bool:
        """End a worker that no session has anything in; whether there was one."""
        spare = next((slot for slot in self._slots if slot.is_idle and not slot.session_id), None)
        if spare is not None:
            self._retire(spare)
        return spare is not None

    def _retire(self, slot: Slot) -> None:
        slot.is_idle = False
        self._slots.remove(slot)
        self._ready.discard(slot)
        self._leaving = [other for other in self._leaving if other.is_alive] + [slot]
        slot.close()

    def _hand_over(self, job: Job, slot: Slot) -> None:
        slot.is_idle = False
        slot.job, job.slot, job.state = job, slot, "running"
        session = job.session
        if session is not None and session.slot is not slot:
            session.slot, session.calls = slot, 0
        if self._affinity == "own":
            slot.session_id = _session_id(job)
        slot.take(job)

    def _fits(self, job: Job, slot: Slot) -> bool:
        home = job.session.slot if job.session else None
        if job.definition is None:
            return home is slot
        if self._affinity == "own":
            return home is slot or (home is None and slot.needs == job.needs and slot.session_id in (None, _session_id(job)))
        return home is None or home is slot or self._affinity == "hint"

    def _go_on(self, slot: Slot) -> None:
        """Give a slot that is free its next job, if there is one."""
        slot.job = None
        job = None if self.is_closed else self._queue.take(lambda job: self._fits(job, slot))
        if job is None:
            slot.is_idle = not self.is_closed
        else:
            self._hand_over(job, slot)

    def _arm(self, job: Job) -> None:
        """Bound the wait of a job in line. Called on its event loop."""
        wait_s = self._limits.queue_wait_s
        if job.until is not None:
            wait_s = min(wait_s, max(0.0, job.until - time.monotonic()))
        job.timer = job.loop.call_later(wait_s, self._waited_enough, job, wait_s)

    def _waited_enough(self, job: Job, wait_s: float) -> None:
        why = f" The last worker that was started failed: {self._last_failure}." if self._last_failure else ""
        self.stop(job, "timed_out", f"No worker was free within {wait_s:g} s.{why}", only_waiting=True)

    def stop(self, job: Job, status: ResultStatus, sentence: str, *, only_waiting: bool = False) -> None:
        """End a job that waits, or makes its worker end it."""
        with self._lock:
            if job.state == "waiting":
                self._queue.remove(job)
                if job.session is not None:
                    job.session.open -= 1
                job.deliver(job.result(status, error=f"Not run: the call was still waiting. {sentence}"))
            elif job.state == "running" and not only_waiting and job.stop is None:
                job.stop = (status, sentence)
                job.slot.wake()

    # What slots tell -----------------------------------------------------------------------------------------------------

    def _slot_ready(self, slot: Slot, tools: Sequence[ToolDefinition]) -> None:
        with self._lock:
            self._last_failure = ""
            if slot in self._slots:
                self._ready.add(slot)
                self._config.on_ready(tools, len(self._ready))
                self._go_on(slot)

    def _slot_failed(self, slot: Slot, why: str) -> None:
        with self._lock:
            if self.is_closed or slot not in self._slots:
                return
            self._last_failure = why
        logger.warning("a worker of %r could not be started: %s", self._config.name, why)
        self._config.on_failed(why)

    def _remove_slot(self, slot: Slot, why: str) -> None:
        with self._lock:
            if slot in self._ready and not self.is_closed:
                self._replaced += 1
                self._died += why != WORN
                logger.info("worker %s of %r is gone: %s", slot.pid, self._config.name, why)
            self._ready.discard(slot)
            slot.is_idle = False
            if (slot.session_id, slot.needs) not in self._sessions:
                slot.session_id = None
            farewells = [j for j in self._queue if j.definition is None and j.session and j.session.slot is slot]
            for session in self._sessions.values():
                if session.slot is slot:
                    if session.calls:
                        session.lost = LOST
                    session.slot, session.calls = None, 0
            for job in farewells:
                self._queue.remove(job)
                job.deliver(job.result("finished"))

    def _job_ended(self, slot: Slot, job: Job, result: ToolResult, goes_on: bool) -> None:
        with self._lock:
            self._calls += 1
            session = job.session
            if session is not None:
                session.open -= 1
                session.used = time.monotonic()
                session.calls += session.slot is slot
                if session.lost is not None:
                    result = replace(result, notes=(*result.notes, session.lost))
                    session.lost = None
            if self._affinity == "own" and job.definition is None and slot in self._slots:
                slot.job = None
                self._retire(slot)
                self._grow()
            elif goes_on:
                self._go_on(slot)  # Before the answer, after which the next call may come at once.
            else:
                slot.job = None
            job.deliver(result)

    def _job_again(self, slot: Slot, job: Job) -> bool:
        self._remove_slot(slot, "a call ended it")
        with self._lock:
            if self.is_closed:
                return False
            slot.job = None
            self._back_in_line(job)
            return True

    def _back_in_line(self, job: Job) -> None:
        if job.definition is None:
            job.deliver(job.result("finished"))
            return
        if job.stop is not None:
            status, sentence = job.stop
            job.deliver(job.result(status, error=f"Not run: the call was still waiting. {sentence}"))
            return
        job.state, job.slot = "waiting", None
        idle = next((slot for slot in self._slots if slot.is_idle and self._fits(job, slot)), None)
        if idle is not None:
            self._hand_over(job, idle)
        else:
            self._queue.add(job, first=True)
            job.loop.call_soon_threadsafe(self._arm, job)


def _session_id(job: Job) -> str:
    return job.session.id if job.session else ""
