"""`@tool(isolation="process")`: a function as a runnable that runs in a worker, without any set-up.

All such functions of a program share one pool, which is made when the first of them is called and grows as it is needed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from callgate.definitions.function import ArgumentsInvalidError, FunctionTool
from callgate.errors import UsageError
from callgate.types import ToolContext, ToolResult
from callgate.workers.address import address_of
from callgate.workers.pool import WorkerPool, in_pool

__all__ = ["IsolatedFunction", "shared_pool"]

_SHARED: dict[int, WorkerPool] = {}
_LOCK = threading.Lock()


def shared_pool() -> WorkerPool:
    """The pool of this process for functions that ask for a process."""
    with _LOCK:
        # By process id: a fork has the objects of its parent, but not its workers.
        pool = _SHARED.get(os.getpid())
        if pool is None or pool.is_closed:
            # It closes itself when its first worker cannot be started; the next call tries again.
            size = max(4, os.cpu_count() or 1)
            _SHARED.clear()
            # On this machine, wherever other pools run: the functions are those of this very program.
            pool = _SHARED[os.getpid()] = WorkerPool(size=size, name="process", eager=False, cluster="none")
        return pool


class IsolatedFunction:
    """Executor of a Python function in a worker process.

    Raises:
        UsageError: another process cannot import the function, or it needs `deps`, which stay in this one.
    """

    def __init__(self, tool: FunctionTool) -> None:
        if tool.deps_types and not isinstance(None, tool.deps_types):
            raise UsageError(
                f"the tool {tool.definition.name!r} takes a ToolContext[{tool.deps_types[0].__name__}] and runs in a worker "
                "process, which deps= does not reach: leave isolation='process' out, or the type of the context"
            )
        self.definition = tool.definition
        self.running_values = tool.running_values
        self._tool = tool
        self._address = address_of(tool.fn, tool_name=tool.definition.name)

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """Problems that the function's own types find, beyond its schema."""
        try:
            self._tool.check(args)
        except ArgumentsInvalidError as error:
            return error.problems
        return ()

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Run the function in a worker."""
        return await in_pool(shared_pool(), self.definition, args, context, address=self._address)
