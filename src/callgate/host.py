"""Calls from inside a tool to other tools of the same gate, with the same permissions, wherever the tool runs.

Takes a name and arguments, returns the value; any other outcome is raised as a `ToolError`. Decides nothing: it only
finds the host of the tool, in this process or in the parent of a worker, the user's elicitation callback, and the model.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, TypeAlias

from callgate.errors import ToolError, UsageError
from callgate.types import ToolContext, ToolResult

__all__ = ["call", "call_sync"]

Ask: TypeAlias = Callable[[str, Mapping[str, Any]], "concurrent.futures.Future[ToolResult]"]
Person: TypeAlias = Callable[[Any], Awaitable[Any]]
"""Callback that answers a question."""
LendModel: TypeAlias = Callable[[str, Any], Awaitable[Any]]
"""Callback that sends a request to the model of the run, with the name of the server that it is for."""

_DOOR: ContextVar[tuple[Ask, asyncio.AbstractEventLoop | None, int] | None] = ContextVar("callgate_host", default=None)
_RUN: ContextVar[tuple[Person | None, LendModel | None]] = ContextVar("callgate_run", default=(None, None))


async def call(name: str, args: Mapping[str, Any] | None = None) -> Any:
    """Call a tool of the gate that runs this tool, and return its value.

    ```python
    @tool
    async def report(city: str) -> str:
        weather = await host.call("get_weather", {"city": city})
    ```

    Raises:
        ToolError: it failed, was denied, or took too long. If not caught, it becomes the error of this tool.
        UsageError: called outside a tool.
    """
    ask, _ = _door()
    return _value(await asyncio.wrap_future(ask(name, args or {})))


def call_sync(name: str, args: Mapping[str, Any] | None = None) -> Any:
    """Like `call`, for sync tools."""
    ask, loop = _door()
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if loop is not None and running is loop:
        raise UsageError("host.call_sync() would wait for its own event loop; in async code use `await host.call()`")
    return _value(ask(name, args or {}).result())


def ask_host(name: str, args: Mapping[str, Any]) -> concurrent.futures.Future[ToolResult]:
    """Call a tool; return a future of its whole result, which is never an exception."""
    return _door()[0](name, args)


def enter(context: ToolContext | Ask) -> None:
    """Make the current context the inside of a tool; in a worker, a function passes its calls on to another process."""
    if not isinstance(context, ToolContext):
        _DOOR.set((context, None, os.getpid()))
        return
    loop = asyncio.get_running_loop()

    def ask(name: str, args: Mapping[str, Any]) -> concurrent.futures.Future[ToolResult]:
        async def call() -> ToolResult:
            return await context.call_tool(name, args)

        work = call()
        try:
            return asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:  # The event loop is closed.
            work.close()
            refused: concurrent.futures.Future[ToolResult] = concurrent.futures.Future()
            error = f"Not run: the run that {context.name!r} was called in is over."
            refused.set_result(ToolResult(call_id="", name=name, status="cancelled", error=error))
            return refused

    _DOOR.set((ask, loop, os.getpid()))


class run_for:
    """Set who answers questions for the code inside, and which model can be lent; None where there is nobody or none."""

    __slots__ = ("_run", "_token")

    def __init__(self, person: Person | None, lend: LendModel | None = None) -> None:
        self._run = (person, lend)

    def __enter__(self) -> None:
        self._token = _RUN.set(self._run)

    def __exit__(self, *exc: object) -> None:
        _RUN.reset(self._token)


def person_of_this_run() -> Person | None:
    """Return who answers questions for the gate that runs this tool, if there is one."""
    return _RUN.get()[0]


def model_of_this_run() -> LendModel | None:
    """Return the model of the run that runs this tool, if there is one."""
    return _RUN.get()[1]


def _door() -> tuple[Ask, asyncio.AbstractEventLoop | None]:
    door = _DOOR.get()
    if door is None:
        raise UsageError("callgate.host is for the inside of a tool: there is no tool running here")
    if door[2] != os.getpid():
        raise UsageError("callgate.host does not work in a child of the tool's process: call tools before the fork")
    return door[0], door[1]


def _value(result: ToolResult) -> Any:
    if result.is_error:
        raise ToolError(result.error or f"{result.name!r} failed without saying why.")
    return result.value
