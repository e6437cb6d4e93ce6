"""`WorkerPool`: tool modules in, calls of their tools in other processes out, with sessions and deadlines that stop.

The pool decides who is next and where a session lives; its slots do the work, each in a thread of its own, so a pool serves
any number of event loops and keeps its deadlines while one of them is blocked.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import logging
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from callgate.calls import unknown_name_sentence
from callgate.errors import UsageError
from callgate.schema import check_arguments
from callgate.types import Progress, ResultStatus, ToolContext, ToolDefinition, ToolResult
from callgate.workers.address import Address, is_worker
from callgate.workers.job import Affinity, Job, Session, WorkerLimits, unheard, unheard_item
from callgate.workers.line import Line
from callgate.workers.slot import Slot, SlotOwner

__all__ = ["WorkerPool"]

logger = logging.getLogger("callgate.workers")

AFFINITIES: tuple[Affinity, ...] = ("hint", "strict", "strict_fail_fast")
SWEEP_S = 60.0
CLOSE_S = 5.0
_POOLS: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


class WorkerPool:
    """Python processes that import tool modules and run their tools.

    ```python
    async with WorkerPool(modules=["my_tools"], size=4) as pool:
        result = await pool.execute("session-1", "add", {"a": 1, "b": 2})
    ```

    It is a tool too: `Gate(model, tools=[pool])`. At its deadline a call is stopped, with everything that it started; the
    worker is replaced. `modules` are names, or paths that end in `.py`.
    """

    def __init__(
        self,
        modules: Iterable[str | os.PathLike[str]] = (),
        *,
        size: int = 4,
        name: str = "workers",
        affinity: Affinity = "hint",
        limits: WorkerLimits | None = None,
        eager: bool = True,
    ) -> None:
        if isinstance(modules, str):
            raise UsageError(f"WorkerPool(modules={modules!r}): give a list of names, as in modules=[{modules!r}]")
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"WorkerPool(size={size!r}): give a whole number of workers of at least 1")
        if affinity not in AFFINITIES:
            raise UsageError(f"WorkerPool(affinity={affinity!r}): use one of {', '.join(map(repr, AFFINITIES))}")
        self.name = name
        self._modules = [_module(item) for item in modules]
        self._size, self._eager, self._affinity = size, eager, affinity
        self._limits = limits or WorkerLimits()
        self._lock = threading.Lock()
        self._line = Line()
        self._slots: list[Slot] = []
        self._ready: set[Slot] = set()
        self._sessions: dict[str, Session] = {}
        self._tools: dict[str, ToolDefinition] = {}
        self._opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._all_ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._closed = False
        self._swept = time.monotonic()
        self._last_failure = ""
        self._counts = {"calls": 0, "replaced": 0}
        _POOLS.add(self)

    # Opening and closing -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts the workers and waits until one of them is ready.

        Raises:
            UsageError: a module cannot be imported, or the pool was closed.
        """
        if not self._opened.done():
            self._begin()
        await asyncio.shield(asyncio.wrap_future(self._opened))

    async def ready(self) -> None:
        """Starts the workers and waits until all of them are ready."""
        await self.start()
        await asyncio.shield(asyncio.wrap_future(self._all_ready))

    def _begin(self) -> None:
        if is_worker():
            raise UsageError(
                "a worker process does not start workers of its own; in a script, put what starts the program under "
                "`if __name__ == '__main__':`"
            )
        with self._lock:
            self._require_open()
            while len(self._slots) < (self._size if self._eager else 1):
                self._add_slot()

    def _add_slot(self) -> None:
        owner = SlotOwner(
            ready=self._slot_ready,
            failed=self._slot_failed,
            gone=self._slot_gone,
            next_job=self._next_job,
            ended=self._job_ended,
            again=self._job_again,
            may_recycle=self._may_recycle,
        )
        self._slots.append(Slot(self._modules, self._limits, owner))

    def _require_open(self) -> None:
        if self._closed:
            raise UsageError(f"the worker pool {self.name!r} is closed; make a new one")

    async def aclose(self, grace_s: float = 2.0) -> None:
        """As `close`, without holding up the event loop."""
        await asyncio.to_thread(self.close, grace_s)

    def close(self, grace_s: float = 2.0) -> None:
        """Ends the pool: calls that wait are answered as cancelled, calls that run get `grace_s` seconds, then all ends."""
        with self._lock:
            self._closed = True
            waiting, slots = list(self._line), list(self._slots)
            for job in waiting:
                self._line.remove(job)
                job.deliver(job.result("cancelled", error="Not run: the worker pool was closed."))
        for slot in slots:
            slot.close()
        until = time.monotonic() + grace_s
        for slot in slots:
            slot.join(max(0.0, until - time.monotonic()))
        for slot in slots:
            if (job := slot.job) is not None:
                self._stop(job, "cancelled", "The call was cancelled while it was running. The worker pool was closed.")
        for slot in slots:
            slot.join(CLOSE_S)
        for future in (self._opened, self._all_ready):
            if not future.done():
                future.set_exception(UsageError(f"the worker pool {self.name!r} was closed before it was ready"))

    async def __aenter__(self) -> WorkerPool:
        try:
            await self.start()
        except BaseException:
            await self.aclose(0.0)
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"WorkerPool({self.name!r}, size={self._size})"

    @property
    def health(self) -> dict[str, int]:
        """How it is: workers that are ready, idle or starting, calls that wait, sessions, calls so far, workers replaced."""
        with self._lock:
            ready = len(self._ready)
            return {
                "ready": ready,
                "idle": sum(slot.is_idle for slot in self._slots),
                "starting": len(self._slots) - ready,
                "waiting": len(self._line),
                "sessions": len(self._sessions),
                **self._counts,
            }

    @property
    def pids(self) -> list[int]:
        """The worker processes that are ready now."""
        with self._lock:
            return [pid for slot in self._slots if slot in self._ready and (pid := slot.pid) is not None]

    # Using it ------------------------------------------------------------------------------------------------------------

    def runnables(self) -> list[_PoolTool]:
        """The tools for a `Gate` or an `Executor`. Starts the workers if nobody has, and then waits for the first."""
        if not self._opened.done():
            self._begin()
        self._opened.result(self._limits.start_timeout_s + CLOSE_S)
        return [_PoolTool(self, definition) for definition in self._tools.values()]

    async def list_tools(self, session: str | None = None) -> list[ToolDefinition]:
        """What the tools are. A session that is named is kept alive by it."""
        await self.start()
        with self._lock:
            if session in self._sessions:
                self._sessions[session].used = time.monotonic()
        return list(self._tools.values())

    async def execute(
        self,
        session: str | None,
        name: str,
        args: Mapping[str, Any] | None = None,
        *,
        timeout_s: float | None = None,
        progress: Progress = unheard,
    ) -> ToolResult:
        """Checks a call and runs it in a worker. Whatever becomes of it is in the one result.

        Calls with the same session find what earlier ones kept in their worker, as far as the pool's affinity promises it.
        """
        return await self._execute(session, name, args or {}, timeout_s=timeout_s, progress=progress)

    async def stream(
        self, session: str | None, name: str, args: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> AsyncIterator[Any]:
        """As `execute`, but gives the items of a generator as they come. The last thing given is the `ToolResult`."""
        loop = asyncio.get_running_loop()
        items: asyncio.Queue[Any] = asyncio.Queue()

        def on_item(item: Any) -> None:
            loop.call_soon_threadsafe(items.put_nowait, item)

        task = asyncio.create_task(self._execute(session, name, args or {}, timeout_s=timeout_s, on_item=on_item))
        task.add_done_callback(lambda _: items.put_nowait(_END))
        try:
            while (item := await items.get()) is not _END:
                yield item
            yield await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _execute(self, session: str | None, name: str, args: Mapping[str, Any], **options: Any) -> ToolResult:
        await self.start()
        definition = self._tools.get(name)
        if definition is None:
            return ToolResult(call_id="", name=name, status="failed", error=unknown_name_sentence(name, self._tools))
        checked = check_arguments(definition, args)
        if checked.problems:
            listed = "; ".join(problem.rstrip(".") for problem in checked.problems)
            sentence = f"The arguments of {name!r} are not valid: {listed}. Correct them and call again."
            return ToolResult(call_id="", name=name, status="failed", error=sentence)
        if options.get("timeout_s") is None:
            options["timeout_s"] = definition.timeout_s or self._limits.call_timeout_s
        return await self.run(definition, checked.args, session=session, **options)

    async def run(  # noqa: PLR0913 - the inner door; all but two are keyword-only
        self,
        definition: ToolDefinition,
        args: Mapping[str, Any],
        *,
        timeout_s: float,
        session: str | None = None,
        call_id: str = "",
        address: Address | None = None,
        until: float | None = None,
        progress: Progress = unheard,
        on_item: Any = unheard_item,
    ) -> ToolResult:
        """Runs a checked call. Cancelling the wait stops it."""
        with self._lock:
            known = self._session(session) if session is not None else None
        job = Job(
            definition, args, known, timeout_s, asyncio.get_running_loop(),
            call_id=call_id, address=address, until=until, progress=progress, on_item=on_item,
        )  # fmt: skip
        if session is not None and known is None:
            return job.result("failed", error=f"Not run: the pool has {self._limits.sessions} sessions and takes no more.")
        self._submit(job)
        return await self._outcome(job)

    async def _outcome(self, job: Job) -> ToolResult:
        try:
            return await asyncio.shield(job.future)
        except asyncio.CancelledError:
            self._stop(job, "cancelled", "The call was cancelled while it was running.")
            await asyncio.wait({job.future})
            raise

    async def end_session(self, session: str) -> None:
        """Forgets a session. A function `session_ended` of the tool modules is called with its id where its state is."""
        with self._lock:
            known = self._sessions.pop(session, None)
        if known is not None and known.slot is not None:
            job = self._farewell(known, asyncio.get_running_loop())
            await self._outcome(job)

    def _farewell(self, session: Session, loop: asyncio.AbstractEventLoop) -> Job:
        job = Job(None, {}, session, self._limits.call_timeout_s, loop)
        self._submit(job)
        return job

    # Sessions ------------------------------------------------------------------------------------------------------------

    def _session(self, name: str) -> Session | None:
        now = time.monotonic()
        known = self._sessions.get(name)
        if known is None:
            if len(self._sessions) >= self._limits.sessions:
                self._swept = 0.0  # Room must be made by the next sweep at the latest.
                if not self._forget_expired(now):
                    return None
            known = self._sessions[name] = Session(name, now)
        known.used = now
        return known

    def _forget_expired(self, now: float) -> list[Session]:
        if now - self._swept < min(SWEEP_S, self._limits.session_ttl_s):
            return []
        self._swept = now
        over = [s for s in self._sessions.values() if not s.open and now - s.used > self._limits.session_ttl_s]
        for session in over:
            del self._sessions[session.id]
        return over

    def _may_recycle(self, slot: Slot) -> bool:
        """Under a strict affinity a worker stays as long as a session lives in it."""
        if self._affinity == "hint":
            return True
        oldest = time.monotonic() - self._limits.session_ttl_s
        with self._lock:
            return not any(s.slot is slot and (s.open or s.used > oldest) for s in self._sessions.values())

    # Who is next ---------------------------------------------------------------------------------------------------------

    def _submit(self, job: Job) -> None:
        if not self._slots:
            self._begin()
        with self._lock:
            self._require_open()
            over = self._forget_expired(time.monotonic())
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
                self._farewell(session, job.loop)

    def _placed(self, job: Job) -> str | None:
        """Gives the job to a worker or puts it in line; gives a sentence if neither can be done."""
        home = job.session.slot if job.session else None
        is_bound = isinstance(home, Slot) and (self._affinity != "hint" or job.definition is None)
        if isinstance(home, Slot) and home.is_idle:
            self._hand_over(job, home)
        elif not is_bound and (idle := next((slot for slot in self._slots if slot.is_idle), None)):
            self._hand_over(job, idle)
        elif is_bound and self._affinity == "strict_fail_fast" and job.definition is not None:
            return f"Not run: the worker of the session {job.session and job.session.id!r} is busy. Try again later."
        elif len(self._line) >= self._limits.queue:
            return f"Not run: all {self._size} workers are busy and {len(self._line)} calls wait already. Try again later."
        else:
            job.state = "waiting"
            self._line.add(job)
            starting = len(self._slots) - len(self._ready)
            if len(self._slots) < self._size and starting < len(self._line):
                self._add_slot()
        return None

    def _hand_over(self, job: Job, slot: Slot) -> None:
        self._assign(job, slot)
        slot.inbox.put(job)

    def _assign(self, job: Job, slot: Slot) -> None:
        slot.is_idle = False
        slot.job, job.slot, job.state = job, slot, "running"
        session = job.session
        if session is not None and session.slot is not slot:
            session.slot, session.calls = slot, 0

    def _fits(self, job: Job, slot: Slot) -> bool:
        home = job.session.slot if job.session else None
        if job.definition is None:
            return home is slot
        return home is None or home is slot or self._affinity == "hint"

    def _next_job(self, slot: Slot) -> Job | None:
        with self._lock:
            job = None if self._closed else self._line.take(lambda job: self._fits(job, slot))
            if job is None:
                slot.job, slot.is_idle = None, not self._closed
            else:
                self._assign(job, slot)
            return job

    def _arm(self, job: Job) -> None:
        """Bounds the wait of a job in line. Called on its event loop."""
        wait_s = self._limits.queue_wait_s
        if job.until is not None:
            wait_s = min(wait_s, max(0.0, job.until - time.monotonic()))
        job.timer = job.loop.call_later(wait_s, self._waited_enough, job, wait_s)

    def _waited_enough(self, job: Job, wait_s: float) -> None:
        why = f" The last worker that was started failed: {self._last_failure}." if self._last_failure else ""
        self._stop(job, "timed_out", f"No worker was free within {wait_s:g} s.{why}", only_waiting=True)

    def _stop(self, job: Job, status: ResultStatus, sentence: str, *, only_waiting: bool = False) -> None:
        with self._lock:
            if job.state == "waiting":
                self._line.remove(job)
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
            self._ready.add(slot)
            if not self._opened.done():
                self._tools = {d.name: replace(d, kind="worker", server=self.name) for d in tools}
                self._opened.set_result(None)
            if not self._all_ready.done() and len(self._ready) >= (self._size if self._eager else 1):
                self._all_ready.set_result(None)
        if (job := self._next_job(slot)) is not None:
            slot.inbox.put(job)

    def _slot_failed(self, slot: Slot, why: str) -> None:
        with self._lock:
            if self._closed:
                return
            self._last_failure = why
            first = not self._opened.done()
            if first:
                self._opened.set_exception(UsageError(f"the worker pool {self.name!r} cannot start: {why}"))
        logger.warning("a worker of %r could not be started: %s", self.name, why)
        if first:
            threading.Thread(target=self.close, args=(0.0,), name="callgate-close", daemon=True).start()

    def _slot_gone(self, slot: Slot, why: str) -> None:
        with self._lock:
            if slot in self._ready and not self._closed:
                self._counts["replaced"] += 1
                logger.info("worker %s of %r is gone: %s", slot.pid, self.name, why)
            self._ready.discard(slot)
            slot.is_idle = False
            for session in self._sessions.values():
                if session.slot is slot:
                    if session.calls:
                        session.lost = (
                            "The worker of this session is gone: what earlier calls had kept in its memory is lost."
                        )
                    session.slot, session.calls = None, 0
            for job in [job for job in self._line if job.definition is None and job.session and job.session.slot is slot]:
                self._line.remove(job)
                job.deliver(job.result("finished"))
            while not slot.inbox.empty():  # Handed over in the moment in which the worker went.
                if (job := slot.inbox.get()) is not None:
                    self._back_in_line(job)

    def _job_ended(self, slot: Slot, job: Job, result: ToolResult) -> None:
        with self._lock:
            slot.job = None
            self._counts["calls"] += 1
            session = job.session
            if session is not None:
                session.open -= 1
                session.used = time.monotonic()
                session.calls += session.slot is slot
                if session.lost is not None:
                    result = replace(result, notes=(*result.notes, session.lost))
                    session.lost = None
            job.deliver(result)

    def _job_again(self, slot: Slot, job: Job) -> bool:
        self._slot_gone(slot, "a call ended it")
        with self._lock:
            if self._closed:
                return False
            slot.job = None
            self._back_in_line(job)
            return True

    def _back_in_line(self, job: Job) -> None:
        if self._closed:
            job.deliver(job.result("cancelled", error="Not run: the worker pool was closed."))
            return
        if job.definition is None:
            job.deliver(job.result("finished"))
            return
        job.state, job.slot = "waiting", None
        self._line.add(job, first=True)
        idle = next((slot for slot in self._slots if slot.is_idle and self._fits(job, slot)), None)
        if idle is not None:
            self._line.remove(job)
            self._hand_over(job, idle)
        else:
            job.loop.call_soon_threadsafe(self._arm, job)


_END = object()


def _module(item: str | os.PathLike[str]) -> tuple[str, str | None]:
    text = os.fspath(item)
    if text.endswith(".py"):
        return os.path.basename(text).removesuffix(".py"), os.path.abspath(text)
    return text, None


@dataclass(frozen=True, slots=True)
class _PoolTool:
    """A tool of a pool, for an executor."""

    pool: WorkerPool
    definition: ToolDefinition

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """What the tool's own types refuse is known in the worker only."""
        return ()

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Runs the tool in a worker."""
        return await in_pool(self.pool, self.definition, args, context)


async def in_pool(
    pool: WorkerPool,
    definition: ToolDefinition,
    args: Mapping[str, Any],
    context: ToolContext,
    *,
    address: Address | None = None,
) -> ToolResult:
    """Runs a call of an executor in a pool, to the executor's deadline."""
    timeout_s = context.timeout_s or WorkerLimits().call_timeout_s
    return await pool.run(
        definition,
        args,
        timeout_s=timeout_s,
        session=context.session,
        call_id=context.call_id,
        address=address,
        until=time.monotonic() + timeout_s,
        progress=context.progress,
    )


def _close_all() -> None:
    for pool in list(_POOLS):
        pool.close(grace_s=0.0)


atexit.register(_close_all)
