"""The worker's own side, without a process around it."""

from __future__ import annotations

import asyncio
import contextvars
import socket

from callgate.definitions.function import function_tool
from callgate.workers.frames import Frames
from callgate.workers.worker import _CONTROLS, _Worker


def test_a_cancellation_that_comes_too_late_does_not_hit_the_next_call():
    ours, theirs = socket.socketpair()
    control, their_control = socket.socketpair()
    with ours, theirs, control, their_control:
        worker = _Worker(theirs, their_control)

        async def interrupted() -> str:
            # What the second thread does when the word that call 1 is not wanted comes while call 2 runs.
            _CONTROLS["cancel"](worker, {"op": "cancel", "id": 1})
            await asyncio.sleep(0)
            return "went on"

        worker._tools["interrupted"] = function_tool(interrupted)
        message = {"op": "call", "id": 2, "name": "interrupted", "args": {}, "timeout_s": 5.0}
        # In a context of its own: what is the inside of a tool for good in a worker must not be so in this process.
        contextvars.copy_context().run(worker.call, message)
        assert Frames().feed(ours.recv(1 << 16)) == [{"op": "result", "id": 2, "status": "finished", "value": "went on"}]
        worker._runner.close()
