"""The shared resources of a gate and the gates derived from it: sessions, the thread of `run_sync`, and connections.

Reference-counted: each run is a user, and the last one closes what was opened. `run.py` is one run.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from callgate.calls.observer import Emit, observer_of
from callgate.errors import UsageError
from callgate.run.config import GateConfig
from callgate.run.context import RunContext
from callgate.run.media import inline_bytes, sendable_prompt, use_files
from callgate.run.run import Run
from callgate.run.run_options import RunToolsOwner
from callgate.run.run_request import RunRequest, new_request
from callgate.run.sessions import Session, Sessions, running
from callgate.run.task import RunTask
from callgate.sync import PROCESS_LOCK, BlockingPortal
from callgate.types import Reply

if TYPE_CHECKING:
    from callgate.mcp.host import Elicit
    from callgate.store import Lease, Store

__all__ = ["Resources", "check_event_loop"]


class Resources:
    """The connections of one model, of the tools and of the store, with a count of their users.

    Gates derived with another model have their own `Resources`; its users count as users of the first one too, so that
    the store is closed, and the thread ended, only after the last use of all gates.
    """

    def __init__(self, config: GateConfig, elicit: Elicit | None, first: Resources | None = None) -> None:
        self.elicit = elicit
        """Callback for questions of MCP servers: they look it up in the owners of their connection, of which this is one."""
        self.portal: BlockingPortal = BlockingPortal() if first is None else first.portal
        self.sessions: Sessions = Sessions() if first is None else first.sessions
        self.users = 0
        self._first = first
        self._config = config

    def derive(self, config: GateConfig) -> Resources:
        """Return the resources of a gate that differs by this configuration."""
        if config.model is self._config.model:
            return self
        return Resources(replace(config, owns_store=False), self.elicit, self._first or self)

    @property
    def store(self) -> Store:
        """The store of the sessions."""
        return self._config.store

    # Runs -----------------------------------------------------------------------------------------------------------------

    request = staticmethod(new_request)

    def start(self, config: GateConfig, request: RunRequest, emit: Emit | None) -> RunTask[Reply]:
        """Start a run in its own task, with the configuration of one of the gates that share this.

        Raises:
            UsageError: there is no event loop.
        """
        check_event_loop()
        return RunTask(partial(self._carry_out, config, request, observer_of(emit)))

    async def _carry_out(self, config: GateConfig, request: RunRequest, emit: Emit | None, task: RunTask[Reply]) -> Reply:
        is_live = config.executor.is_live
        if not is_live:
            config.check_choice(request.tool_choice)
        _check_prices(config)
        config.executor.check_deps(request.deps)
        # Before the session is acquired: an upload may take long.
        sent_before = partial(self._inline_bytes, request)
        prompt, uploads = await sendable_prompt(request.prompt, config.model, emit, sent_before, self.store)
        if prompt is not request.prompt:
            request = replace(request, prompt=prompt, uploads=uploads)
        async with self._own_tools(config):
            return await self._carry_out_with_tools(config, request, emit, task)

    async def _inline_bytes(self, request: RunRequest) -> int:
        """Return the bytes of media in the contents that a run starts from."""
        if isinstance(request.history, Sequence):
            return inline_bytes(request.history)
        if request.session is None:
            return 0
        return inline_bytes(await self.sessions.contents(request.session, self.store))

    @contextlib.asynccontextmanager
    async def _own_tools(self, config: GateConfig) -> AsyncGenerator[None]:
        """Start the servers that only one run has, and stop them after it."""
        if config.executor is self._config.executor or not config.executor.is_live:
            yield
            return
        owner = RunToolsOwner(self.elicit)
        try:
            await config.executor.start_tools(owner)
            yield
        finally:
            await config.executor.stop_tools(owner)

    async def _carry_out_with_tools(
        self, config: GateConfig, request: RunRequest, emit: Emit | None, task: RunTask[Reply]
    ) -> Reply:
        session, lease = await self.acquire(request.session)
        try:
            if config.executor.is_live:  # The tools are known only now.
                config.check_choice(request.tool_choice)
            use_files(config.model, request.uploads, session.id)
            run = RunContext(
                config, session, lease, emit,
                person=request.person or self.elicit, before_model=request.before_model, deps=request.deps,
            )  # fmt: skip
            task.stop = lambda: run.request_cancel("The user cancelled the run.")
            with running(session, run):
                self.sessions.keep_leases(run.event_loop)
                return await Run(run).drive(request)
        finally:
            await self.release(session, lease)

    # Use ------------------------------------------------------------------------------------------------------------------

    async def acquire(self, session_id: str | None) -> tuple[Session, Lease]:
        """Acquire a session, with the tools started: they live as long as a run, or as long as the gate is entered.

        Raises:
            SessionBusyError: another process holds the session.
            UsageError: there is no event loop, or the caller is part of a run of the session.
        """
        check_event_loop()
        self.enter()
        try:
            if self._config.executor.is_live:
                await self.start_tools()
            wait_s = self._config.limits.session_wait_s
            return await self.sessions.acquire(session_id, self._config.store, wait_s=wait_s)
        except BaseException:
            await self.leave(keep_model=True)
            raise

    async def release(self, session: Session, lease: Lease) -> None:
        """Release a session."""
        try:
            await self.sessions.release(session, lease, self._config.store)
        finally:
            await self.leave(keep_model=True)  # The next run needs the same connections; idle ones are closed in time.

    @contextlib.asynccontextmanager
    async def session(self, session_id: str) -> AsyncGenerator[tuple[Session, Lease]]:
        """Return a session to read or to write to, during a run of it or without one."""
        session = self.sessions.get(session_id)
        run = None if session is None else session.run
        if session is not None and run is not None:
            yield session, run.lease
            return
        session, lease = await self.acquire(session_id)
        try:
            yield session, lease
        finally:
            await self.release(session, lease)

    @contextlib.asynccontextmanager
    async def in_use(self) -> AsyncGenerator[None]:
        """Count one more user, with the tools started."""
        check_event_loop()
        self.enter()
        try:
            await self.start_tools()
            yield
        finally:
            await self.leave()

    async def start_tools(self) -> None:
        """Start the live tools; they are stopped after the last use of these resources."""
        await self._config.executor.start_tools(self)

    # Users ----------------------------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Count one more user."""
        with PROCESS_LOCK:
            self.users += 1
            if self._first is not None:
                self._first.users += 1

    async def leave(self, *, keep_model: bool = False) -> None:
        """Count one user less; the last one closes what was opened, except for kept connections of the model."""
        for resources in self.count_down():
            await resources.close_connections(keep_model=keep_model)

    def count_down(self) -> list[Resources]:
        """Count one user less, and return the resources without users."""
        with PROCESS_LOCK:
            self.users -= 1
            unused: list[Resources] = [self] if self.users == 0 else []
            if self._first is not None:
                self._first.users -= 1
                if self._first.users == 0:
                    unused.append(self._first)
        return unused

    async def close_connections(self, *, keep_model: bool = False) -> None:
        """Close the connections of the model and of the tools, and the store if the gate has opened it."""
        await self._config.executor.stop_tools(self)
        await self._config.aclose(keep_model=keep_model)

    def close(self, unused: Iterable[Resources]) -> None:
        """Close connections from sync code, and the thread unless a parent gate is in use."""
        if self.portal.is_open:
            for resources in unused:
                self.portal.run(resources.close_connections())
            if self._first is None or not self._first.users:
                self.portal.close()


def check_event_loop() -> None:
    """Raise an error with a remedy where asyncio does not run, as under trio.

    Raises:
        UsageError: there is no event loop of asyncio.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError(
            "callgate runs on asyncio, and no event loop of it runs here: use asyncio, or anyio with "
            "backend='asyncio'; sync code, and trio in a worker thread, use gate.run_sync(...)"
        ) from None


def _check_prices(config: GateConfig) -> None:
    """Refuse limits of cost that could never be reached.

    Raises:
        UsageError: there is one, and a model that may answer has no price.
    """
    named = [name for name in ("run_cost", "session_cost") if getattr(config.limits, name) is not None]
    if named and (unpriced := config.unpriced()):
        models = " and ".join(map(repr, unpriced))
        raise UsageError(
            f"Limits({named[0]}=...) cannot be enforced: no price of {models} is known; pass prices={{{unpriced[0]!r}: "
            "Price(input=..., output=...)}, or leave the limit out"
        )
