"""Calls of the program's tools that come out of a worker: each is made where the worker's own call came from, and answered.

Messages of a worker come in, calls of the gate and messages for the worker go out. What may be called is decided by
the gate.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Any

from callgate.content.json_safe import json_safe
from callgate.errors import JsonError
from callgate.types import CallTool, ToolContext, ToolResult
from callgate.workers.job import Job

__all__ = ["HostCalls"]

logger = logging.getLogger("callgate.workers")


class HostCalls:
    """The nested calls of one call in a worker."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._call_tool: CallTool = job.call_tool or ToolContext(call_id=job.call_id, name=job.name).call_tool
        self._tasks: set[asyncio.Task[None]] = set()

    def receive(self, message: dict[str, Any]) -> None:
        """Take in a request of the worker, in any thread."""
        number, name, args = int(message["number"]), str(message["name"]), dict(message["args"])
        with contextlib.suppress(RuntimeError):  # The loop is gone, and with it the gate that could answer.
            self._job.loop.call_soon_threadsafe(self._begin, number, name, args)

    def _begin(self, number: int, name: str, args: dict[str, Any]) -> None:
        if self._job.state == "running":
            task = self._job.loop.create_task(self._answer(number, name, args))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, number: int, name: str, args: dict[str, Any]) -> None:
        try:
            result = await self._call_tool(name, args)
        except Exception as error:
            logger.exception("a call of %r from a worker failed", name)
            result = ToolResult(call_id="", name=name, status="failed", error=f"{name!r} failed: {type(error).__name__}.")
        answer = {"op": "answer", "number": number, "name": name, "status": result.status, "error": result.error}
        slot = self._job.slot
        if slot is None:
            return
        try:
            # In a thread: a worker that does not read would hold up the event loop.
            await asyncio.to_thread(slot.send_to_call, answer | {"value": json_safe(result.value).value})
        except JsonError as error:
            sentence = f"The value of {name!r} cannot be passed on: {error}."
            await asyncio.to_thread(slot.send_to_call, answer | {"status": "failed", "error": sentence})

    async def aclose(self) -> None:
        """The call is over: what it asked for is not wanted any more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
