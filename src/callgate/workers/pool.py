"""`WorkerPool`: tool modules in, calls of their tools in other processes out, with sessions and deadlines that stop.

The pool decides who is next and where a session lives; its slots do the work, each in a thread of its own, so a pool serves
any number of event loops and keeps its deadlines while one of them is blocked.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import importlib.util
import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from callgate.base_errors import checked_values, expect, expect_list
from callgate.content.tool_names import is_reserved_server, unknown_name_sentence
from callgate.errors import JsonError, UsageError
from callgate.schema import check_arguments
from callgate.threads import NotStartedError
from callgate.types import CallTool, Progress, ToolContext, ToolDefinition, ToolResult
from callgate.workers.address import Address, is_worker
from callgate.workers.cluster import RayCluster, cluster_from
from callgate.workers.job import Affinity, Job, WorkerLimits, unheard, unheard_item
from callgate.workers.process import WorkerProcess
from callgate.workers.protocol import Worker
from callgate.workers.scheduler import PoolConfig, Scheduler
from callgate.workers.slot import Slot

__all__ = ["WorkerPool"]

AFFINITIES: tuple[Affinity, ...] = ("hint", "strict", "strict_fail_fast", "own")
CLOSE_S = 5.0
_POOLS: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


@checked_values
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
        cluster: str | RayCluster | None = None,
    ) -> None:
        if isinstance(modules, str):
            raise UsageError(f"WorkerPool(modules={modules!r}): give a list of names, as in modules=[{modules!r}]")
        expect_list(modules, "WorkerPool(modules={})", "a list of names")
        expect(limits, (WorkerLimits, type(None)), "WorkerPool(limits={})", "a WorkerLimits object")
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"WorkerPool(size={size!r}): give a whole number of workers of at least 1")
        if affinity not in AFFINITIES:
            raise UsageError(f"WorkerPool(affinity={affinity!r}): use one of {', '.join(map(repr, AFFINITIES))}")
        if is_reserved_server(name):
            raise UsageError(f"WorkerPool(name={name!r}): the name is reserved for the program's own tools in rules")
        self.name = name
        self._cluster = cluster_from(cluster)
        self._limits = limits or WorkerLimits()
        self._config = PoolConfig(
            name=name,
            size=size,
            eager=eager,
            affinity="own" if self._cluster else affinity,
            limits=self._limits,
            modules=[_module(item) for item in modules],
            make=self._make,
            on_ready=self._worker_ready,
            on_failed=self._worker_failed,
        )
        self._scheduler = Scheduler(self._config)
        self._tools: dict[str, ToolDefinition] = {}
        self._is_open = False
        self._opened: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._all_ready: concurrent.futures.Future[None] = concurrent.futures.Future()
        _POOLS.add(self)

    def _make(self, slot: Slot) -> Worker:
        if self._cluster is None:
            return WorkerProcess()
        if importlib.util.find_spec("ray") is None:
            raise UsageError("a cluster needs Ray, which is not installed: pip install 'callgate[ray]'")
        from callgate.workers.ray_worker import RayWorker

        # What was registered last comes first: Ray ends itself at exit, and a worker that is used after that is a crash.
        atexit.unregister(_close_all)
        atexit.register(_close_all)
        return RayWorker(
            self._cluster, self.name, session=slot.session_id, needs=slot.needs, is_wanted=lambda: not slot.is_closing
        )

    # Opening and closing -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the workers and wait until one of them is ready.

        Raises:
            UsageError: a module cannot be imported, the cluster cannot be joined, or the pool was closed.
        """
        if self._opened.done():
            self._opened.result()
            return
        self._begin()
        await asyncio.shield(asyncio.wrap_future(self._opened))

    async def ready(self) -> None:
        """Start the workers and wait until all of them are ready."""
        await self.start()
        await asyncio.shield(asyncio.wrap_future(self._all_ready))

    def _begin(self) -> None:
        _refuse_workers()
        self._scheduler.begin()

    async def aclose(self, grace_s: float = 2.0) -> None:
        """Like `close`, without holding up the event loop."""
        await asyncio.to_thread(self.close, grace_s)

    def close(self, grace_s: float = 2.0) -> None:
        """End the pool: calls that wait are answered as cancelled, calls that run get `grace_s` seconds, then all ends."""
        self._scheduler.close(grace_s, CLOSE_S)
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
        return f"WorkerPool({self.name!r}, size={self._config.size})"

    @property
    def is_closed(self) -> bool:
        """Return whether it takes no more calls."""
        return self._scheduler.is_closed

    @property
    def health(self) -> dict[str, int]:
        """Counts of ready, idle and starting workers, waiting calls, sessions, calls so far and replaced workers."""
        return self._scheduler.health

    @property
    def pids(self) -> list[int]:
        """The worker processes that are ready now."""
        return self._scheduler.pids

    # Using it ------------------------------------------------------------------------------------------------------------

    def runnables(self) -> list[_PoolTool]:
        """The tools for a `Gate` or an `Executor`. Starts the workers if they were not started, and waits for the first.

        Raises:
            UsageError: a module cannot be imported, the pool was closed, or no worker was ready in time.
        """
        if not self._opened.done():
            self._begin()
        wait_s = self._limits.start_timeout_s + CLOSE_S + (self._cluster.join_timeout_s if self._cluster else 0.0)
        try:
            self._opened.result(wait_s)
        except TimeoutError:
            where = "" if self._cluster is None else " on the Ray cluster; is it up and has it room"
            raise UsageError(f"the worker pool {self.name!r} had no worker ready within {wait_s:g} s{where}") from None
        return [_PoolTool(self, definition) for definition in self._tools.values()]

    async def list_tools(self, session: str | None = None) -> list[ToolDefinition]:
        """The definitions of the tools. A session that is named is kept alive by it."""
        await self.start()
        if session is not None:
            self._scheduler.touch(session)
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
        """Check a call and runs it in a worker. Whatever becomes of it is in the one result.

        Calls with the same session find what earlier ones kept in their worker, as far as the pool's affinity promises it.
        """
        if not self._is_open:
            await self.start()
        called = self._checked(name, args or {}, timeout_s)
        if isinstance(called, ToolResult):
            return called
        definition, checked, timeout_s = called
        return await self.run(definition, checked, timeout_s=timeout_s, session=session, progress=progress)

    async def stream(
        self, session: str | None, name: str, args: Mapping[str, Any] | None = None, *, timeout_s: float | None = None
    ) -> AsyncIterator[Any]:
        """Like `execute`, but gives the items of a generator as they come. The last thing given is the `ToolResult`."""
        if not self._is_open:
            await self.start()
        called = self._checked(name, args or {}, timeout_s)
        if isinstance(called, ToolResult):
            yield called
            return
        definition, checked, timeout_s = called
        loop = asyncio.get_running_loop()
        items: asyncio.Queue[Any] = asyncio.Queue()

        def on_item(item: Any) -> None:
            loop.call_soon_threadsafe(items.put_nowait, item)

        task = asyncio.create_task(self.run(definition, checked, timeout_s=timeout_s, session=session, on_item=on_item))
        task.add_done_callback(lambda _: items.put_nowait(_END))
        try:
            while (item := await items.get()) is not _END:
                yield item
            yield await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    def _checked(
        self, name: str, args: Mapping[str, Any], timeout_s: float | None
    ) -> tuple[ToolDefinition, Mapping[str, Any], float] | ToolResult:
        """The job to run, with its arguments and deadline; or the result that says why nothing is."""
        definition = self._tools.get(name)
        if definition is None:
            return ToolResult(call_id="", name=name, status="failed", error=unknown_name_sentence(name, self._tools))
        checked = check_arguments(definition, args)
        if checked.problems:
            listed = "; ".join(problem.rstrip(".") for problem in checked.problems)
            sentence = f"The arguments of {name!r} are not valid: {listed}. Correct them and call again."
            return ToolResult(call_id="", name=name, status="failed", error=sentence)
        if timeout_s is None:
            timeout_s = definition.timeout_s or self._limits.call_timeout_s
        return definition, checked.args, timeout_s

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
        paused_s: Callable[[], float] = lambda: 0.0,
        progress: Progress = unheard,
        on_item: Any = unheard_item,
        call_tool: CallTool | None = None,
    ) -> ToolResult:
        """Run a checked call. Cancelling the wait stops it."""
        needs = () if self._cluster is None else self._cluster.needs_of(definition.name)
        known = self._scheduler.session(session, needs) if session is not None else None
        if session is not None and known is None:
            return _refused(definition, call_id, f"the pool has {self._limits.sessions} sessions and takes no more")
        try:
            job = Job(
                definition, args, known, timeout_s, asyncio.get_running_loop(), call_id=call_id, address=address,
                until=until, paused_s=paused_s, progress=progress, on_item=on_item, call_tool=call_tool, needs=needs,
            )  # fmt: skip
        except JsonError as error:
            return _refused(definition, call_id, f"the arguments of {definition.name!r} are {error}")
        return await self._outcome(job)

    async def _outcome(self, job: Job) -> ToolResult:
        if not self._is_open:
            _refuse_workers()
        self._scheduler.submit(job)
        try:
            # Not shielded, which would take the event loop two more rounds: what is cancelled here is replaced below.
            return await job.future
        except asyncio.CancelledError:
            if job.future.cancelled():
                job.future = job.loop.create_future()
                self._scheduler.stop(job, "cancelled", "The call was cancelled while it was running.")
                # It may have ended in the very moment in which it was cancelled: then nothing will come any more.
                if not job.is_told:
                    await asyncio.wait({job.future})
            if not job.has_begun:
                raise _CancelledInLine from None
            raise
        finally:
            if job.host_calls is not None:
                await job.host_calls.aclose()

    async def end_session(self, session: str) -> None:
        """Forget a session. A function `session_ended` of the tool modules is called with its id where its state is."""
        for known in self._scheduler.forget(session):
            loop = asyncio.get_running_loop()
            await self._outcome(Job(None, {}, known, self._limits.call_timeout_s, loop, needs=known.needs))

    # How the workers start -----------------------------------------------------------------------------------------------

    def _worker_ready(self, tools: Sequence[ToolDefinition], count: int) -> None:
        """Take the tools from the first worker; wake those that wait for one, or for all."""
        if not self._opened.done():
            self._tools = {d.name: replace(d, kind="worker", server=self.name) for d in tools}
            self._is_open = True
            self._opened.set_result(None)
        if not self._all_ready.done() and count >= self._config.at_start:
            self._all_ready.set_result(None)

    def _worker_failed(self, why: str) -> None:
        """Close a pool whose first worker could not be started."""
        if not self._opened.done():
            self._opened.set_exception(UsageError(f"the worker pool {self.name!r} cannot start: {why}"))
            threading.Thread(target=self.close, args=(0.0,), name="callgate-close", daemon=True).start()


def _refuse_workers() -> None:
    if is_worker():
        raise UsageError(
            "a worker process does not start workers of its own; in a script, put what starts the program under "
            "`if __name__ == '__main__':`"
        )


_END = object()


class _CancelledInLine(asyncio.CancelledError):
    """The wait for a call was cancelled before any worker had begun with the call."""


def _refused(definition: ToolDefinition, call_id: str, why: str) -> ToolResult:
    return ToolResult(call_id=call_id, name=definition.name, status="failed", error=f"Not run: {why}.")


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
        """Check nothing: the problems of the tool's own types are known in the worker only."""
        return ()

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Run the tool in a worker."""
        return await in_pool(self.pool, self.definition, args, context)


async def in_pool(
    pool: WorkerPool,
    definition: ToolDefinition,
    args: Mapping[str, Any],
    context: ToolContext,
    *,
    address: Address | None = None,
) -> ToolResult:
    """Run a call of an executor in a pool, to the executor's deadline."""
    timeout_s = context.timeout_s or WorkerLimits().call_timeout_s
    try:
        return await pool.run(
            definition,
            args,
            timeout_s=timeout_s,
            session=context.session,
            call_id=context.call_id,
            address=address,
            until=time.monotonic() + timeout_s,
            paused_s=context.paused_s,
            progress=context.progress,
            call_tool=context.call_tool,
        )
    except _CancelledInLine:
        if context.is_cancelled():
            raise NotStartedError from None
        raise


def _close_all() -> None:
    for pool in list(_POOLS):
        pool.close(grace_s=0.0)


atexit.register(_close_all)
