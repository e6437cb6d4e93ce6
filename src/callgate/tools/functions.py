"""Convert the tools of a program to runnables: functions, toolsets, tools of other frameworks.

Sync functions run in their own threads, so that one that never returns blocks neither the loop nor the exit of the program.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from callgate.definitions.frameworks import may_be_foreign
from callgate.definitions.function import ArgumentsInvalidError, FunctionTool, function_tool
from callgate.errors import ToolNotDeclarableError
from callgate.foreign import adapt_tool
from callgate.threads import ITEMS_MAX, THREADS
from callgate.tools.toolsets import Runnable, is_runnable, is_toolset
from callgate.types import Limits, ToolContext

__all__ = ["FunctionRunner", "adapt_tools", "runnables_of"]


def adapt_tools(tools: Iterable[object], limits: Limits) -> tuple[object, ...]:
    """The tools, those of other frameworks as ours."""
    tools = tuple(tools)
    if not any(map(may_be_foreign, {*map(type, tools)})):  # Asked of classes, because there are few of those.
        return tools
    return tuple(item if (ours := adapt_tool(item, limits)) is None else ours for item in tools)


def runnables_of(tools: Iterable[object], limits: Limits) -> Iterator[Runnable]:
    """Return the tools as runnables.

    Raises:
        ToolNotDeclarableError: an item is not a tool.
    """
    for item in tools:
        if is_runnable(item):
            yield item
        elif is_toolset(item):
            yield from item.runnables()
        elif isinstance(item, FunctionTool) or callable(item):
            yield _function_runner(item if isinstance(item, FunctionTool) else function_tool(item), limits)
        else:
            meant = "pass a function, or an object that offers tools"
            kind = type(item)
            if issubclass(kind, (list, tuple)):
                meant = f"this is a {kind.__name__}: pass it itself, or unpack it with *"
            raise ToolNotDeclarableError(f"{item!r} is not a tool: {meant}")


def _function_runner(tool: FunctionTool, limits: Limits) -> Runnable:
    if tool.isolation != "process":
        return FunctionRunner(tool, limits)
    from callgate.workers.isolated import IsolatedFunction  # Few programs have one, and all would pay for the import.

    return IsolatedFunction(tool)


class FunctionRunner:
    """Executor of a Python function: on the loop if it is async or asks for it, in a thread otherwise."""

    copies_args = True
    """See `RunningCall`."""

    def __init__(self, tool: FunctionTool, limits: Limits) -> None:
        self.definition = tool.definition
        self.deps_types = tool.deps_types
        self.running_values = tool.running_values
        self._tool = tool
        self._abandoned_max = limits.abandoned_threads

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """Return the errors of the function's own types, beyond its schema."""
        try:
            self._tool.check(args, is_json=True)
        except ArgumentsInvalidError as error:
            return error.problems
        return ()

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """Call the function with its declared types. The items of a generator become a list."""
        positional, named = self._tool.bind(args, context, is_json=True)
        call = functools.partial(self._tool.fn, *positional, **named)
        if self._tool.is_async:
            value = call()
        elif self._tool.run_in == "loop":
            await asyncio.sleep(0)  # It blocks the loop from here on; let observers of its start run first.
            value = call()
        else:
            value = await THREADS.run(call, abandoned_max=self._abandoned_max)
        if inspect.isawaitable(value):
            value = await value
        if inspect.isasyncgen(value):
            return await _items_of(cast("AsyncIterator[Any]", value))
        return value


async def _items_of(items: AsyncIterator[Any]) -> list[Any]:
    """Collect the items of an async generator; of an endless one as many as a result may hold, and one more."""
    found: list[Any] = []
    async for item in items:
        found.append(item)
        if len(found) >= ITEMS_MAX:
            break
        if len(found) % 1_000 == 0:
            await asyncio.sleep(0)  # A generator that never waits would keep its own deadline from passing.
    return found
