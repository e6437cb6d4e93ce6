"""One running call, from its start to its one result: by itself, at its deadline, or when it is stopped.

Takes a tool and checked arguments; there is always a `ToolResult`, and nothing is raised. `calls/pipeline.py` decides
what runs, and how many in parallel.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from callgate import user_code
from callgate.content.json_safe import ReadMedia, is_small
from callgate.content.sanitize import sanitize_result
from callgate.errors import ToolError
from callgate.host import enter
from callgate.strict_json import without_surrogates
from callgate.threads import NOT_STARTED, NotStartedError, StillRunningError, error_sentence, error_text
from callgate.tools.toolsets import Runnable
from callgate.types import (
    CallTool,
    FunctionCall,
    Limits,
    Media,
    Progress,
    ResultStatus,
    ToolContext,
    ToolResult,
    copied_args,
    no_tools,
)

__all__ = ["CachedCall", "CallObserver", "RunningCall"]

logger = logging.getLogger("callgate.tools.executor")

STOP_GRACE_S = 2.0
"""Seconds that an async tool may take to clean up after its cancellation."""


def _media_reader() -> ReadMedia:
    """A reader of the media of one result, which is loaded with the first of them: most results have none."""
    reader: ReadMedia | None = None

    def read(media: Media) -> Media:
        nonlocal reader
        if reader is None:
            from callgate.media_files import MediaReader

            reader = MediaReader()
        return reader(media)

    return read


def _no_progress(message: str, fraction: float | None = None) -> None:
    """Ignore progress."""


def _nothing(*args: object) -> None:
    """Ignore the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallObserver:
    """Observer of a running call: its progress, its result, and its nested calls."""

    session: str | None = None
    deps: Any = None
    """See `ToolContext.deps`."""
    progress: Progress = _no_progress
    call_tool: CallTool = no_tools
    hides: Callable[[str, str], bool] | None = None
    """See `ToolContext.hides`."""
    decided: Mapping[str, Any] | None = None
    """See `ToolContext.decided`."""
    on_give_up: Callable[[], None] = _nothing
    """Called as soon as the call is stopped or reaches its deadline, while its code may still be running."""
    on_end: Callable[[ToolResult], None] = _nothing


class RunningCall:
    """A running call. It ends by itself, at its deadline, or when it is stopped.

    Its tool gets arguments of its own, unless a `copies_args` says that it makes a copy itself.
    """

    def __init__(self, tool: Runnable, call: FunctionCall, limits: Limits, observer: CallObserver) -> None:
        loop = asyncio.get_running_loop()
        self.call = call
        self._definition = tool.definition
        self._depth_max = limits.json_depth
        self._observer = observer
        self._ended: asyncio.Future[ToolResult] = loop.create_future()
        self._given_up: tuple[ResultStatus, str] | None = None
        self._started = time.monotonic()
        timeout_s = limits.call_timeout_s if tool.definition.timeout_s is None else tool.definition.timeout_s
        self._late = f"The call did not finish within {timeout_s:g} s."
        self._pauses, self._left_s = 0, timeout_s
        self._paused_s, self._paused_since = 0.0, 0.0
        self._timer = loop.call_later(timeout_s, self._give_up, "timed_out", self._late)
        context = ToolContext(
            call_id=call.id,
            name=call.name,
            session=observer.session,
            deps=observer.deps,
            timeout_s=timeout_s,
            progress=observer.progress,
            is_cancelled=self._is_given_up,
            paused=self.paused,
            paused_s=self._paused_so_far,
            hides=observer.hides,
            decided=observer.decided,
            call_tool=observer.call_tool,
        )
        self._loop = loop
        # Last, because a loop with eager tasks begins the work here and now.
        args = call.args if getattr(tool, "copies_args", False) is True else copied_args(call.args)
        self._task = loop.create_task(self._work(tool, args, context))
        self._task.add_done_callback(self._task_done)

    def stop(self, reason: str) -> None:
        """Stop the call; it then ends soon, with the status `cancelled`."""
        self._give_up("cancelled", f"The call was cancelled while it was running. {reason}".rstrip())

    async def wait(self) -> ToolResult:
        """Return the one result of the call. Cancelling the wait stops the call."""
        try:
            return await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            self.stop("")
            await asyncio.wait({self._ended})
            raise

    # The deadline ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Pause the deadline of the call meanwhile. May be entered from any thread."""
        self._loop.call_soon_threadsafe(self._pause)
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError):  # The loop is closed, and the call with it.
                self._loop.call_soon_threadsafe(self._go_on)

    def _paused_so_far(self) -> float:
        return self._paused_s + (time.monotonic() - self._paused_since if self._pauses else 0.0)

    def _pause(self) -> None:
        self._pauses += 1
        if self._pauses == 1:
            self._paused_since = time.monotonic()
            if self._given_up is None:
                self._left_s = self._timer.when() - self._loop.time()
                self._timer.cancel()

    def _go_on(self) -> None:
        if self._pauses == 1:
            self._paused_s = self._paused_so_far()
        self._pauses -= 1
        if self._pauses == 0 and self._given_up is None and not self._ended.done():
            self._timer = self._loop.call_later(self._left_s, self._give_up, "timed_out", self._late)

    def _is_given_up(self) -> bool:
        return self._given_up is not None

    def _give_up(self, status: ResultStatus, sentence: str) -> None:
        """Stop the work as far as it can be stopped."""
        if self._given_up is not None or self._ended.done():
            return
        self._given_up = (status, sentence)
        self._timer.cancel()
        self._timer = self._loop.call_later(STOP_GRACE_S, self._leave_behind)
        self._observer.on_give_up()
        self._task.cancel()

    def _leave_behind(self) -> None:
        """Tools that swallow their cancellation. Referenced here, or they would be garbage collected in mid-flight."""
        _STUBBORN.add(self._task)
        self._end(self._unfinished(goes_on=True, has_begun=True))

    # The work -------------------------------------------------------------------------------------------------------------

    async def _work(self, tool: Runnable, args: Mapping[str, Any], context: ToolContext) -> ToolResult:
        enter(context)
        outcome = await user_code.call_async(lambda: tool.run(args, context))
        if isinstance(outcome.error, (StillRunningError, NotStartedError)):
            raise outcome.error  # The call was abandoned; `_task_done` reports what is known of it.
        if outcome.error is not None:
            return self._failure(outcome.error)
        duration_s = self._duration()
        value = outcome.value
        sound = partial(
            sanitize_result,
            value,
            call=self.call,
            depth_max=self._depth_max,
            duration_s=duration_s,
            read_media=_media_reader(),
        )
        # A long value takes time to encode, which must not block others; a custom class may raise anything.
        is_quick = is_small(value.value if isinstance(value, ToolResult) else value)
        read = user_code.call(sound) if is_quick else await asyncio.to_thread(user_code.call, sound)
        return cast("ToolResult", read.value) if read.error is None else self._failure(read.error)

    def _task_done(self, task: asyncio.Task[ToolResult]) -> None:
        _STUBBORN.discard(task)
        # Retrieved in any case, or asyncio complains.
        error = None if task.cancelled() else task.exception()
        if self._ended.done():
            return
        self._timer.cancel()
        if self._given_up is not None:
            self._end(
                self._unfinished(
                    goes_on=isinstance(error, StillRunningError), has_begun=not isinstance(error, NotStartedError)
                )
            )
        elif task.cancelled() or isinstance(error, (StillRunningError, NotStartedError)):
            # Not by us: everything is being cancelled, as at the end of the program.
            self._end(self._result("cancelled", error="The call was cancelled while it was running."))
        else:
            self._end(task.result() if error is None else self._failure(error))

    def _end(self, result: ToolResult) -> None:
        self._ended.set_result(result)
        self._observer.on_end(result)

    def _failure(self, error: BaseException) -> ToolResult:
        if isinstance(error, ToolError):
            return self._result("failed", error=_shown(error_text(error)) or "The tool failed without saying why.")
        if isinstance(error, SystemExit):
            return self._result("failed", error=f"The tool tried to end the program (exit code {error.code}).")
        if isinstance(error, asyncio.CancelledError):
            return self._result("failed", error="The tool cancelled itself and gave no result.")
        logger.error("tool %r failed", self.call.name, exc_info=error)
        return self._result("failed", error=_shown(error_sentence(error)))

    def _unfinished(self, *, goes_on: bool, has_begun: bool) -> ToolResult:
        """Return the result of an abandoned call: only what is known."""
        assert self._given_up is not None
        status, sentence = self._given_up
        if goes_on:
            sentence += " Its code may still be running."
        if not has_begun:
            sentence = f"{sentence.replace('while it was running', 'while it waited')} {NOT_STARTED}"
        elif not self._definition.read_only:
            sentence += " Whether it had its effect is not known."
        return self._result(status, error=sentence)

    def _duration(self) -> float:
        return time.monotonic() - self._started

    def _result(self, status: ResultStatus, **fields: Any) -> ToolResult:
        return ToolResult(call_id=self.call.id, name=self.call.name, status=status, duration_s=self._duration(), **fields)


def _shown(error: str) -> str:
    """The text of an error as a model may read it: code that fails often says what it was given."""
    from callgate.config.known_secrets import redact_known

    return redact_known(without_surrogates(error))


class CachedCall:
    """A call with a cached result, which need not run."""

    def __init__(self, result: ToolResult, observer: CallObserver) -> None:
        self._result = result
        observer.on_end(result)

    def stop(self, reason: str) -> None:
        """Do nothing: it is not running."""

    async def wait(self) -> ToolResult:
        """The result."""
        return self._result

    @contextlib.contextmanager
    def paused(self) -> Generator[None]:
        """Do nothing: there is no deadline."""
        yield


_STUBBORN: set[asyncio.Task[ToolResult]] = set()
