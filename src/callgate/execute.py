"""An allowed call -> one `ToolResult`: run with a deadline that is kept, whatever the tool does.

Checked calls come in, results go out; every call gets exactly one, and none raises. This file decides nothing: what may run
was decided before. Sync functions run in threads of their own, so that one that never returns holds up neither the loop nor
the end of the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from callgate import facts
from callgate.calls import resolve_name, unknown_name_sentence
from callgate.declaration import declared_names, digest
from callgate.definitions.function import ArgumentsInvalid, FunctionTool, function_tool
from callgate.errors import ToolError, ToolNotDeclarable
from callgate.foreign import adopted
from callgate.host import enter
from callgate.respond import json_safe
from callgate.schema import check_arguments
from callgate.strict_json import without_surrogates
from callgate.threads import THREADS, StillRunning, error_sentence
from callgate.toolsets import LiveTools, LiveToolset, Runnable, Toolset
from callgate.turn import startable
from callgate.types import (
    CallState,
    CallTool,
    FunctionCall,
    Limits,
    Progress,
    ResultStatus,
    ToolContext,
    ToolDefinition,
    ToolResult,
)

__all__ = ["Executor", "Kept", "Runnable", "Running", "Toolset", "Watch"]

logger = logging.getLogger("callgate.execute")

PREVIEW_S = 5.0
PREVIEW_CHARS_MAX = 100_000

STOP_GRACE_S = 2.0
"""How long an async tool may take to clean up after it was told to stop."""


class Executor:
    """A set of tools that can be called by name.

    ```python
    executor = Executor([get_weather])
    results = await executor.execute_all(function_calls(response))
    ```
    """

    def __init__(self, tools: Iterable[object] = (), *, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._own: dict[str, Runnable] = {}
        self._live = LiveTools()
        self._tools: dict[str, Runnable] = {}
        self._ever: dict[str, Runnable] = {}
        """Tools that are there or were: a call that was checked may outlive the place of its tool in the list."""
        self._digests: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self.toolsets: list[Toolset] = []
        """The places that tools come from, functions of the program left out."""
        self.register(*tools)

    def register(self, *tools: object) -> None:
        """Adds functions, runnables, toolsets and tools of other frameworks: all of them, or none if one cannot be added.

        Raises:
            ToolNotDeclarable: a tool cannot be declared, or its name is taken.
        """
        added: dict[str, Runnable] = {}
        tools = tuple(item if (ours := adopted(item, self.limits)) is None else ours for item in tools)
        live = [item for item in tools if isinstance(item, LiveToolset)]
        for runnable in _runnables([item for item in tools if not isinstance(item, LiveToolset)], self.limits):
            name = runnable.definition.name
            if name in added or name in self._own:
                raise ToolNotDeclarable(f"a tool named {name!r} is registered already: give one of them another name=")
            added[name] = runnable
        declared_names([tool.definition for tool in (*self._own.values(), *added.values())])
        self._own |= added
        self.toolsets += [item for item in tools if isinstance(item, Toolset) and not isinstance(item, Runnable)]
        for toolset in live:
            self._live.add(toolset)
        self._take_in(self._own if not self._live else self._own | self._live.runnables(self._own))

    def _take_in(self, tools: dict[str, Runnable]) -> None:
        known = self._tools
        self._names = declared_names([tool.definition for tool in tools.values()])
        kept = {name: self._digests[name] for name, tool in tools.items() if known.get(name) is tool}
        self._digests = {name: kept.get(name) or digest(tool.definition) for name, tool in tools.items()}
        self._tools = dict(tools)
        self._ever |= tools

    # Tools that come and go -----------------------------------------------------------------------------------------------

    @property
    def is_live(self) -> bool:
        """Whether some of the tools come from places that must be started, and may change."""
        return bool(self._live)

    async def start_tools(self, owner: object) -> None:
        """Starts what must be started before its tools are known. What does not start is told by `complaints`."""
        if self._live:
            await self._live.start(owner)
            self.refresh()

    async def stop_tools(self, owner: object) -> None:
        """Stops what was started, unless somebody else still uses it."""
        if self._live:
            await self._live.aclose(owner)

    def refresh(self) -> None:
        """Takes in what has changed since the last time."""
        if self._live.have_changed():
            self._take_in(self._own | self._live.runnables(self._own))

    def complaints(self) -> list[str]:
        """What a person should know of the places that tools come from."""
        return self._live.complaints()

    @property
    def definitions(self) -> list[ToolDefinition]:
        """The definitions of all tools in the order in which they were registered."""
        return [tool.definition for tool in self._tools.values()]

    @property
    def digests(self) -> Mapping[str, str]:
        """Tool name -> a hash of what was declared of it."""
        return self._digests

    def definition(self, name: str) -> ToolDefinition:
        """The definition of one tool, by its own name."""
        return self._ever[name].definition

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"Executor({', '.join(self._tools)})"

    def check(self, call: FunctionCall) -> facts.CallChecked:
        """Finds the tool and checks the arguments. Nothing runs, and nothing is raised for what a model did wrong."""
        if call.problem is not None:
            return facts.CallChecked(id=call.id, tool=None, args=call.args, problems=(call.problem,))
        name = call.name if call.name in self._tools else resolve_name(call.wire_name or call.name, self._names)
        if name is None:
            problem = unknown_name_sentence(call.wire_name or call.name, self._tools)
            return facts.CallChecked(id=call.id, tool=None, args=call.args, problems=(problem,))
        try:
            checked = check_arguments(self.definition(name), call.args)
        except ToolNotDeclarable as error:
            # The tool was left out of the declaration for this; a model that calls it all the same is told why.
            return facts.CallChecked(id=call.id, tool=None, args=call.args, problems=(f"Not run: {error}.",))
        problems = tuple(checked.problems or self._tools[name].problems(checked.args))
        if problems:
            listed = "; ".join(problem.rstrip(".") for problem in problems)
            problems = (f"The arguments of {name!r} are not valid: {listed}. Correct them and call again.",)
        return facts.CallChecked(
            id=call.id,
            tool=name,
            args=checked.args,
            problems=problems,
            coercions=tuple(checked.coercions),
            digest=self._digests[name],
        )

    async def preview(self, call: FunctionCall) -> str | None:
        """What a checked call would change, if its tool can say: a `preview(args)` of a runnable. Never raises."""
        offer = getattr(self._tools[call.name], "preview", None)
        if offer is None:
            return None
        try:
            async with asyncio.timeout(PREVIEW_S):
                text = await offer(dict(call.args))
        except Exception:
            # The user's code, and only a help for whoever is asked: the question stands without it.
            logger.exception("the preview of %r failed", call.name)
            return None
        text = None if text is None else without_surrogates(str(text))
        if text is None or len(text) <= PREVIEW_CHARS_MAX:
            return text
        return f"{text[:PREVIEW_CHARS_MAX]}\n... {len(text) - PREVIEW_CHARS_MAX} more characters are not shown"

    def start(self, call: FunctionCall, watch: Watch | None = None) -> Running:
        """Starts a checked call on the running event loop. Whatever happens to it, there will be one result."""
        return Running(self._ever[call.name], call, self.limits, watch or Watch())

    async def execute(self, call: FunctionCall) -> ToolResult:
        """Checks a call and runs it. A call that cannot run gives an error result, never an exception."""
        checked = self.check(call)
        if checked.tool is None or checked.problems:
            error = " ".join(checked.problems)
            return ToolResult(call_id=call.id, name=checked.tool or call.name, status="failed", error=error)
        return await self.start(replace(call, name=checked.tool, args=checked.args)).wait()

    async def execute_all(self, calls: Sequence[FunctionCall]) -> list[ToolResult]:
        """Runs the calls of one turn: in parallel up to the limit, ordered ones one after another. Results in call order."""
        slots = [_Slot(call, ordered=self._is_ordered(call)) for call in calls]
        running: dict[asyncio.Task[ToolResult], _Slot] = {}
        try:
            while not all(slot.result for slot in slots):
                for index in startable(slots, self.limits.parallel):
                    slots[index].state = "started"
                    running[asyncio.create_task(self.execute(slots[index].call))] = slots[index]
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    slot = running.pop(task)
                    slot.result = task.result()
                    slot.state = slot.result.status
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return [slot.result for slot in slots if slot.result]

    def _is_ordered(self, call: FunctionCall) -> bool:
        name = resolve_name(call.name, self._names) or call.name
        return name in self._tools and self.definition(name).ordered

    @staticmethod
    def abandoned() -> int:
        """Threads of this process whose tool went on after its deadline and has not returned yet."""
        return THREADS.abandoned


@dataclass(slots=True)
class _Slot:
    call: FunctionCall
    ordered: bool
    state: CallState = "allowed"
    result: ToolResult | None = None


def _runnables(tools: Iterable[object], limits: Limits) -> Iterator[Runnable]:
    for item in tools:
        if isinstance(item, Runnable):
            yield item
        elif isinstance(item, Toolset):
            yield from item.runnables()
        elif isinstance(item, FunctionTool) or callable(item):
            yield _function_runner(item if isinstance(item, FunctionTool) else function_tool(item), limits)
        else:
            raise ToolNotDeclarable(f"{item!r} is not a tool: pass a function, or an object that offers tools")


def _function_runner(tool: FunctionTool, limits: Limits) -> Runnable:
    if tool.isolation != "process":
        return FunctionRunner(tool, limits)
    from callgate.workers.isolated import IsolatedFunction  # Few programs have one, and all would pay for the import.

    return IsolatedFunction(tool)


def _no_progress(message: str, fraction: float | None = None) -> None:
    """Nobody watches."""


def _no_end(result: ToolResult) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Who wants to know of a running call: where its progress goes, its result, and its calls of other tools."""

    session: str | None = None
    progress: Progress = _no_progress
    call_tool: CallTool | None = None
    on_end: Callable[[ToolResult], None] = _no_end


# One running call --------------------------------------------------------------------------------------------------------


class Running:
    """A call that is running. It ends by itself, at its deadline, or when it is told to stop.

    Driven by callbacks rather than by a task of its own: a call costs one task, the tool's.
    """

    def __init__(self, tool: Runnable, call: FunctionCall, limits: Limits, watch: Watch) -> None:
        loop = asyncio.get_running_loop()
        self.call = call
        self._definition = tool.definition
        self._depth_max = limits.json_depth
        timeout_s = limits.call_timeout_s if tool.definition.timeout_s is None else tool.definition.timeout_s
        self._on_end = watch.on_end
        self._ended: asyncio.Future[ToolResult] = loop.create_future()
        self._given_up: tuple[ResultStatus, str] | None = None
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
        value = await _contained(tool, args, context)
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
        if not self._definition.read_only:
            sentence += " Whether it had its effect is not known."
        return self._result(status, error=sentence)

    def _duration(self) -> float:
        return time.monotonic() - self._started

    def _result(self, status: ResultStatus, **fields: Any) -> ToolResult:
        return ToolResult(call_id=self.call.id, name=self.call.name, status=status, duration_s=self._duration(), **fields)


class Kept:
    """A call that need not run, because its result is known already."""

    def __init__(self, result: ToolResult, watch: Watch) -> None:
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


# Functions ---------------------------------------------------------------------------------------------------------------


class FunctionRunner:
    """Runs a Python function: on the loop if it is async or asks for it, in a thread otherwise."""

    def __init__(self, tool: FunctionTool, limits: Limits) -> None:
        self.definition = tool.definition
        self._tool = tool
        self._abandoned_max = limits.abandoned_threads

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """What the function's own types refuse, beyond its schema."""
        try:
            self._tool.bind(args, None)
        except ArgumentsInvalid as error:
            return error.problems
        return ()

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """Calls the function with its declared types. The items of a generator become a list."""
        positional, named = self._tool.bind(args, context)
        call = functools.partial(self._tool.fn, *positional, **named)
        if self._tool.is_async:
            value = call()
        elif self._tool.run_in == "loop":
            await asyncio.sleep(0)  # It holds the loop from here on; whoever shows that it has started comes first.
            value = call()
        else:
            value = await THREADS.run(call, abandoned_max=self._abandoned_max)
        if inspect.isawaitable(value):
            value = await value
        if inspect.isasyncgen(value):
            return [item async for item in cast("AsyncIterator[Any]", value)]
        return value
