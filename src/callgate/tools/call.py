"""One running call: from its start to its one result, by itself, at its deadline, or when it is told to stop.

A tool and checked arguments come in, a `ToolResult` goes out, whatever the tool does; nothing is raised. What runs, and how
many at a time, is for `execute.py` and the driver to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

from callgate.content.json_safe import json_safe
from callgate.errors import ToolError
from callgate.host import enter
from callgate.strict_json import without_surrogates
from callgate.threads import NOT_BEGUN, NotBegun, StillRunning, error_sentence
from callgate.tools.toolsets import Runnable
from callgate.types import CallTool, FunctionCall, Limits, Progress, ResultStatus, ToolContext, ToolResult

__all__ = ["CachedCall", "CallObserver", "RunningCall"]

logger = logging.getLogger("callgate.tools.executor")

STOP_GRACE_S = 2.0
"""How long an async tool may take to clean up after it was told to stop."""


def _no_progress(message: str, fraction: float | None = None) -> None:
    """Nobody watches."""


def _no_end(result: ToolResult) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallObserver:
    """Who wants to know of a running call: where its progress goes, its result, and its calls of other tools."""

    session: str | None = None
    progress: Progress = _no_progress
    call_tool: CallTool | None = None
    on_end: Callable[[ToolResult], None] = _no_end


class RunningCall:
    """A call that is running. It ends by itself, at its deadline, or when it is told to stop.

    Driven by callbacks rather than by a task of its own: a call costs one task, the tool's.
    """

    def __init__(self, tool: Runnable, call: FunctionCall, limits: Limits, watch: CallObserver) -> None:
        loop = asyncio.get_running_loop()
        self.call = call
        self._definition = tool.definition
        self._depth_max = limits.json_depth
        timeout_s = limits.call_timeout_s if tool.definition.timeout_s is None else tool.definition.timeout_s
        self._on_end = watch.on_end
        self._ended: asyncio.Future[ToolResult] = loop.create_future()
        self._given_up: tuple[ResultStatus, str] | None = None
        self._has_begun = True
        context = ToolContext(
            call_id=call.id,
            name=call.name,
            session=watch.session,
            timeout_s=timeout_s,
            progress=watch.progress,
            is_cancelled=self._is_given_up,
            paused=self._paused,
        )
        if watch.call_tool is not None:
            context = replace(context, call_tool=watch.call_tool)
        self._started = time.monotonic()
        self._task = loop.create_task(self._work(tool, dict(call.args), context))
        self._task.add_done_callback(self._task_done)
        self._late = f"The call did not finish within {timeout_s:g} s."
        self._pauses, self._left_s = 0, timeout_s
        self._timer = loop.call_later(timeout_s, self._give_up, "timed_out", self._late)

    def stop(self, reason: str) -> None:
        """Tells the call to stop; it then ends soon, with the status `cancelled`."""
        self._give_up("cancelled", f"The call was cancelled while it was running. {reason}".rstrip())

    async def wait(self) -> ToolResult:
        """The one result of the call. Cancelling the wait stops the call."""
        try:
            return await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            self.stop("")
            await asyncio.wait({self._ended})
            raise

    def _is_given_up(self) -> bool:
        return self._given_up is not None

    @contextlib.contextmanager
    def _paused(self) -> Generator[None]:
        """The deadline stands still meanwhile."""
        loop = self._task.get_loop()
        loop.call_soon_threadsafe(self._pause)
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError):  # The loop is closed, and the call with it.
                loop.call_soon_threadsafe(self._go_on)

    def _pause(self) -> None:
        self._pauses += 1
        if self._pauses == 1 and self._given_up is None:
            self._left_s = self._timer.when() - self._task.get_loop().time()
            self._timer.cancel()

    def _go_on(self) -> None:
        self._pauses -= 1
        if self._pauses == 0 and self._given_up is None and not self._ended.done():
            self._timer = self._task.get_loop().call_later(self._left_s, self._give_up, "timed_out", self._late)

    def _give_up(self, status: ResultStatus, sentence: str) -> None:
        """Stops the work as far as it can be stopped."""
        if self._given_up is not None or self._ended.done():
            return
        self._given_up = (status, sentence)
        self._task.cancel()
        self._timer.cancel()
        self._timer = self._task.get_loop().call_later(STOP_GRACE_S, self._leave_behind)

    def _leave_behind(self) -> None:
        """The tool swallows its cancellation. The loop must keep hold of it, or it would be collected in mid-flight."""
        _STUBBORN.add(self._task)
        self._end(self._unfinished(goes_on=True))

    async def _work(self, tool: Runnable, args: dict[str, Any], context: ToolContext) -> None:
        enter(context)
        try:
            value = await _contained(tool, args, context)
        except NotBegun:
            self._has_begun = False
            raise asyncio.CancelledError from None  # Which it was, and is to look like at the end of the program.
        # The usual end is told here: by the task's callback it would take the event loop another round.
        if self._given_up is None and not self._ended.done():
            self._timer.cancel()
            self._end(self._finished(value))

    def _task_done(self, task: asyncio.Task[None]) -> None:
        _STUBBORN.discard(task)
        error = None if task.cancelled() else task.exception()  # Looked at, or asyncio complains that nobody did.
        if self._ended.done():
            return
        self._timer.cancel()
        if self._given_up is not None:
            self._end(self._unfinished(goes_on=isinstance(error, StillRunning)))
        else:
            self._end(self._outcome())

    def _end(self, result: ToolResult) -> None:
        self._ended.set_result(result)
        self._on_end(result)

    def _outcome(self) -> ToolResult:
        if self._task.cancelled():
            if self._task.cancelling():  # Not by us: everything is being cancelled, as at the end of the program.
                return self._result("cancelled", error="The call was cancelled while it was running.")
            return self._result("failed", error="The tool cancelled itself and gave no result.")
        error = self._task.exception()
        assert error is not None, "a tool that came to its end was told of before"
        return self._failure(error)

    def _finished(self, value: object) -> ToolResult:
        if isinstance(value, ToolResult):
            # A tool that knows more than a value: its status and notes are kept.
            return replace(value, call_id=self.call.id, name=self.call.name, duration_s=self._duration())
        encoded = json_safe(value, depth_max=self._depth_max)
        return self._result("finished", value=encoded.value, notes=encoded.notes, media=encoded.media)

    def _failure(self, error: BaseException) -> ToolResult:
        if isinstance(error, ToolError):
            return self._result("failed", error=without_surrogates(str(error)) or "The tool failed without saying why.")
        logger.error("tool %r failed", self.call.name, exc_info=error)
        return self._result("failed", error=without_surrogates(error_sentence(error)))

    def _unfinished(self, *, goes_on: bool) -> ToolResult:
        """What is honestly known of a call that was given up."""
        assert self._given_up is not None
        status, sentence = self._given_up
        if goes_on:
            sentence += " Its code may still be running."
        if not self._has_begun:
            sentence = f"{sentence.replace('while it was running', 'while it waited')} {NOT_BEGUN}"
        elif not self._definition.read_only:
            sentence += " Whether it had its effect is not known."
        return self._result(status, error=sentence)

    def _duration(self) -> float:
        return time.monotonic() - self._started

    def _result(self, status: ResultStatus, **fields: Any) -> ToolResult:
        return ToolResult(call_id=self.call.id, name=self.call.name, status=status, duration_s=self._duration(), **fields)


class CachedCall:
    """A call that need not run, because its result is known already."""

    def __init__(self, result: ToolResult, watch: CallObserver) -> None:
        self._result = result
        watch.on_end(result)

    def stop(self, reason: str) -> None:
        """There is nothing to stop."""

    async def wait(self) -> ToolResult:
        """The result."""
        return self._result


_STUBBORN: set[asyncio.Task[None]] = set()


async def _contained(tool: Runnable, args: dict[str, Any], context: ToolContext) -> object:
    """Runs the tool so that not even `sys.exit()` in it reaches the event loop."""
    try:
        return await tool.run(args, context)
    except SystemExit as error:
        raise ToolError(f"The tool tried to end the program (exit code {error.code}).") from error
