"""The methods of a gate that start runs: whole or streamed, async or sync, one or many.

Typed by `output=`: the reply of a run with `output=Weather` is a `Reply[Weather]`.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

from callgate.base_errors import expect

if TYPE_CHECKING:
    from typing_extensions import TypeForm

    from callgate.calls.observer import Emit
    from callgate.content.prompt import Prompt
    from callgate.events import Event, EventOf
    from callgate.permission import Approval
    from callgate.run.config import GateConfig
    from callgate.run.many import ReportProgress
    from callgate.run.resources import Resources
    from callgate.run.run_options import ManyOptions, RunOptions
    from callgate.run.task import RunTask
    from callgate.types import Reply, ToolChoice

__all__ = ["RunMethods"]

T = TypeVar("T")

EVENTS_MAX = 256
"""Events that may wait for a slow reader of a stream before the run itself waits."""


class RunMethods:
    """The part of `Gate` that starts runs."""

    _config: GateConfig
    _resources: Resources

    @overload
    async def run(
        self,
        prompt: Prompt | None = None,
        *,
        output: TypeForm[T],
        watch: Callable[[Event], Awaitable[None]] | None = None,
        **options: Unpack[RunOptions],
    ) -> Reply[T]: ...
    @overload
    async def run(
        self,
        prompt: Prompt | None = None,
        *,
        output: None = None,
        watch: Callable[[Event], Awaitable[None]] | None = None,
        **options: Unpack[RunOptions],
    ) -> Reply[None]: ...
    @overload
    async def run(
        self,
        prompt: Prompt | None = None,
        *,
        output: Any,
        watch: Callable[[Event], Awaitable[None]] | None = None,
        **options: Unpack[RunOptions],
    ) -> Reply[Any]: ...
    async def run(  # noqa: PLR0913 - all but the prompt are keyword-only
        self,
        prompt: Prompt | None = None,
        *,
        session: str | None = None,
        history: Iterable[Mapping[str, Any]] | None = None,
        tool_choice: ToolChoice = "auto",
        output: Any = None,
        answers: Mapping[str, Approval] | None = None,
        watch: Callable[[Event], Awaitable[None]] | None = None,
        deps: Any = None,
        tools: Iterable[object] | None = None,
        instructions: str | None = None,
        headers: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Reply[Any]:
        """Run until the model has answered, a limit is reached, or an approval is needed.

        Args:
            prompt: The user's input: text, media, parts, or a list of these. None continues where the session stopped.
            session: The id of a conversation to continue; a new id starts one; None starts one with a generated id.
            history: Contents to start from instead, repaired where they break a rule.
            tool_choice: `auto`, `required`, `none`, `validated` or a tool's name; applies to the first request.
            output: The type of the answer: a pydantic model, a dataclass, a TypedDict, a Literal, lists and dicts of
            these, or a JSON Schema. `reply.output` is then a value of that type; tools can be called before.
            answers: Answers to the pending approvals of a paused session, by call id.
            watch: Called and awaited with every event; the model's answer is then streamed.
            deps: An object for tools that declare a `ToolContext[Type]` parameter: `context.deps`. It is not stored.
            tools: Further tools for this run.
            instructions: Further system text for this run, after the gate's own.
            headers: Name of an MCP server -> headers for this run, such as the user's own token. The run then has a
            connection of its own to that server.

        Raises:
            OutputError: no answer fits `output`, although the model was asked again; it carries the reply.
            ModelError: the model could not be reached, or gave no usable answer.
            UsageError: the arguments cannot be used.
        """
        return await self._start(
            prompt, output, watch, session=session, history=history, tool_choice=tool_choice, answers=answers, deps=deps,
            tools=tools, instructions=instructions, headers=headers,
        ).wait()  # fmt: skip

    @overload
    def stream(
        self, prompt: Prompt | None = None, *, output: TypeForm[T], **options: Unpack[RunOptions]
    ) -> AsyncGenerator[EventOf[T], None]: ...
    @overload
    def stream(
        self, prompt: Prompt | None = None, *, output: None = None, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[EventOf[None], None]: ...
    @overload
    def stream(
        self, prompt: Prompt | None = None, *, output: Any, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Event, None]: ...
    async def stream(
        self, prompt: Prompt | None = None, *, output: Any = None, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Event, None]:
        """Like `run`, but yields events as they occur. Leaving the loop early, or `aclose()`, cancels the run."""
        from callgate.sync import Channel

        channel: Channel[Event] = Channel(EVENTS_MAX)
        run = self._start(prompt, output, channel.send, **options)
        run.add_done_callback(lambda _: channel.close())
        try:
            async for event in channel:
                yield event
            await run.wait()
        finally:
            channel.close()
            await run.cancel()

    @overload
    def run_sync(self, prompt: Prompt | None = None, *, output: TypeForm[T], **options: Unpack[RunOptions]) -> Reply[T]: ...
    @overload
    def run_sync(
        self, prompt: Prompt | None = None, *, output: None = None, **options: Unpack[RunOptions]
    ) -> Reply[None]: ...
    @overload
    def run_sync(self, prompt: Prompt | None = None, *, output: Any, **options: Unpack[RunOptions]) -> Reply[Any]: ...
    def run_sync(self, prompt: Prompt | None = None, *, output: Any = None, **options: Unpack[RunOptions]) -> Reply[Any]:
        """Like `run`, for sync code; works inside a running event loop (a notebook) too.

        It runs in a thread that this gate and those derived from it share. Ctrl-C cancels the run, and is raised when
        that has ended, or after five seconds; a second one is raised immediately.

        Raises:
            UsageError: called on the event loop of that thread, as by an async tool of a gate that runs there.
        """
        return self._resources.portal.run(self.run(prompt, output=output, **options))

    @overload
    def stream_sync(
        self, prompt: Prompt | None = None, *, output: TypeForm[T], **options: Unpack[RunOptions]
    ) -> Generator[EventOf[T], None, None]: ...
    @overload
    def stream_sync(
        self, prompt: Prompt | None = None, *, output: None = None, **options: Unpack[RunOptions]
    ) -> Generator[EventOf[None], None, None]: ...
    @overload
    def stream_sync(
        self, prompt: Prompt | None = None, *, output: Any, **options: Unpack[RunOptions]
    ) -> Generator[Event, None, None]: ...
    def stream_sync(
        self, prompt: Prompt | None = None, *, output: Any = None, **options: Unpack[RunOptions]
    ) -> Generator[Event, None, None]:
        """Like `stream`, for sync code: `for event in gate.stream_sync(...)`. Leaving the loop early cancels the run."""
        from callgate.run.many import events_in_sync

        return events_in_sync(self._resources.portal, self.stream(prompt, output=output, **options))

    @overload
    async def run_many(
        self,
        prompts: Iterable[Prompt],
        *,
        output: TypeForm[T],
        parallel: int = 8,
        progress: bool | ReportProgress = False,
        batch: bool = False,
        return_errors: Literal[False] = False,
        **options: Unpack[ManyOptions],
    ) -> list[Reply[T]]: ...
    @overload
    async def run_many(
        self,
        prompts: Iterable[Prompt],
        *,
        output: None = None,
        parallel: int = 8,
        progress: bool | ReportProgress = False,
        batch: bool = False,
        return_errors: Literal[False] = False,
        **options: Unpack[ManyOptions],
    ) -> list[Reply[None]]: ...
    @overload
    async def run_many(
        self,
        prompts: Iterable[Prompt],
        *,
        output: Any,
        parallel: int = 8,
        progress: bool | ReportProgress = False,
        batch: bool = False,
        return_errors: Literal[False] = False,
        **options: Unpack[ManyOptions],
    ) -> list[Reply[Any]]: ...
    @overload
    async def run_many(
        self,
        prompts: Iterable[Prompt],
        *,
        output: TypeForm[T],
        parallel: int = 8,
        progress: bool | ReportProgress = False,
        batch: bool = False,
        return_errors: bool,
        **options: Unpack[ManyOptions],
    ) -> list[Reply[T] | Exception]: ...
    @overload
    async def run_many(
        self,
        prompts: Iterable[Prompt],
        *,
        output: None = None,
        parallel: int = 8,
        progress: bool | ReportProgress = False,
        batch: bool = False,
        return_errors: bool,
        **options: Unpack[ManyOptions],
    ) -> list[Reply[None] | Exception]: ...
    @overload
    async def run_many(
        self,
        prompts: Iterable[Prompt],
        *,
        output: Any,
        parallel: int = 8,
        progress: bool | ReportProgress = False,
        batch: bool = False,
        return_errors: bool,
        **options: Unpack[ManyOptions],
    ) -> list[Reply[Any] | Exception]: ...
    async def run_many(
        self,
        prompts: Iterable[Prompt],
        *,
        output: Any = None,
        parallel: int = 8,
        progress: bool | ReportProgress = False,
        batch: bool = False,
        return_errors: bool = False,
        **options: Unpack[ManyOptions],
    ) -> list[Any]:
        """Run every prompt in a conversation of its own; return the replies in the order of the prompts.

        Args:
            prompts: The prompts.
            output: As for `run`.
            parallel: How many runs there are at the same time.
            progress: True draws a bar on stderr; a function is called with the runs that are over, and with all.
            batch: True asks Gemini in batches: half the price, and answers within a day. All runs are at the same time then.
            return_errors: An error takes the place of its reply, instead of cancelling the others and being raised.
            options: As for `run`, but for `session` and `answers`.

        Raises:
            UsageError: an option cannot be used for several runs, or the model takes no batches.
        """
        from callgate.errors import UsageError
        from callgate.run.many import in_batches, listed, run_each, shared_options

        refused: Any = options
        if refused.get("session") is not None or refused.get("answers"):
            raise UsageError("session= and answers= are about one conversation, and run_many starts one for each prompt")

        gate, shared = self, shared_options(options)

        async def run(prompt: Prompt) -> Reply[Any]:
            return await gate.run(prompt, output=output, **shared)

        if not batch:
            return await run_each(run, prompts, parallel=parallel, progress=progress, return_errors=return_errors)
        asked = listed(prompts)
        async with in_batches(self._config, len(asked)) as batched:
            gate = copy.copy(self)
            gate._config = batched.config
            return await run_each(
                batched.counting(run), asked, parallel=max(len(asked), 1), progress=progress, return_errors=return_errors
            )

    def _start(  # noqa: PLR0913 - the options of a run
        self,
        prompt: Prompt | None,
        output: Any,
        emit: Emit | None,
        *,
        session: str | None = None,
        history: Iterable[Mapping[str, Any]] | None = None,
        tool_choice: ToolChoice = "auto",
        answers: Mapping[str, Approval] | None = None,
        deps: Any = None,
        tools: Iterable[object] | None = None,
        instructions: str | None = None,
        headers: Mapping[str, Mapping[str, str]] | None = None,
        **unknown: Any,
    ) -> RunTask[Reply[Any]]:
        """Start a run in its own task."""
        if unknown:
            raise TypeError(f"a run got an unexpected keyword argument {next(iter(unknown))!r}")
        if emit is not None:
            expect(emit, Callable, "watch={}", "an async function that is called with every event")
        request = self._resources.request(prompt, session, history, tool_choice, answers, output)
        config = self._config
        if deps is not None:
            request = replace(request, deps=deps)
        if tools is not None or instructions is not None or headers:
            from callgate.run.run_options import config_for_run

            config = config_for_run(config, tools, instructions, headers)
        return self._resources.start(config, request, emit)
