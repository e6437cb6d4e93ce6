"""One run: execute the machine's commands until the run is over.

Takes a request, reports events, returns a reply. The machine (`machine/`) makes all decisions; `model_turn.py` asks the
model, `calls/pipeline.py` runs calls, and every fact is journalled before it takes effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from callgate.calls.cancellation import RunCancelled
from callgate.calls.pipeline import CallPipeline
from callgate.errors import EmptyAnswerError, MalformedAnswerError, ModelError, OutputError, StoreError, UsageError
from callgate.events import RunEnded
from callgate.machine import facts
from callgate.run.context import RunContext
from callgate.run.environment import call_environment
from callgate.run.model_turn import ModelTurn
from callgate.run.output import Output
from callgate.run.run_request import NOTHING_TO_DO, RunRequest, open_run
from callgate.types import CallRecord, Reply

__all__ = ["Run"]


class Run:
    """One run of a session."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._cancellation = context.cancellation
        self._machine = context.machine
        self._spans = context.spans
        self._output: Output | None = None
        self._turn = ModelTurn(context)
        self._calls: CallPipeline | None = None
        context.settle = lambda records: self._pipeline.settle(records)

    @property
    def _pipeline(self) -> CallPipeline:
        """The pipeline of the run's calls; many runs make none."""
        if self._calls is None:
            context = self._context
            self._calls = CallPipeline(context, call_environment(context), context.cancellation, context.tasks)
        return self._calls

    async def drive(self, request: RunRequest) -> Reply:
        """Carry the run through to its reply; a cancellation leaves a valid history."""
        with self._spans.run():
            self._cancellation.begin()
            try:
                return await self._drive(request)
            finally:
                self._cancellation.end()
                self._spans.close()
                if self._calls is not None:
                    await self._calls.aclose()
                await self._context.tasks.aclose()
                self._context.settle = (
                    _ignore  # It refers to this object: a cycle that only the garbage collector would end.
                )

    async def _drive(self, request: RunRequest) -> Reply:
        self._output = request.output
        if request.output is not None and self._context.stream:
            self._context.partial = request.output.partial()
        try:
            await open_run(self._context, request)
            if self._context.deferred:
                self._pipeline.defer(self._context.deferred)
            return await self._loop()
        except (RunCancelled, ModelError):
            reason = self._cancellation.pending
            if reason is None:
                raise
            await self._pipeline.wind_down(reason, partial_text=self._turn.partial_text)
            return await self._loop()
        except asyncio.CancelledError:
            # All tasks are being cancelled, as at the end of the program.
            if self._context.has_begun and self._cancellation.is_possible and not self._context.session.broken:
                with suppress(StoreError):  # The journal says how far the run came, and nobody waits for the rest.
                    await self._pipeline.wind_down("The user cancelled the run.", partial_text=self._turn.partial_text)
            raise

    async def _loop(self) -> Reply:
        """THE LOOP: execute the machine's commands until the run is over, or waits for an approval."""
        while True:
            await self._context.refresh_tools()
            self._cancellation.raise_if_requested()
            todo = self._machine.todo()
            if todo.finish is not None:
                return await self._finish(todo.finish)
            if todo.shorten is not None:
                await self._turn.shorten(todo.shorten)
            elif todo.ask_model is not None:
                await self._turn.ask(todo.ask_model)
            elif todo.check_output is not None:
                output = self._output or Output.from_schema(todo.check_output.schema)
                await self._context.note(output.read(todo.check_output.text))
            elif not await self._pipeline.advance(todo):
                self._cancellation.close()
                return await self._reply()

    # The end --------------------------------------------------------------------------------------------------------------

    async def _finish(self, finish: facts.Finish) -> Reply:
        self._cancellation.close()
        if finish.error == "malformed":
            told = f"the model kept answering with {finish.reason}" + (f": {finish.message}" if finish.message else "")
            raise MalformedAnswerError(told, finish_reason=finish.reason)
        if finish.error == "empty":
            raise EmptyAnswerError("the model repeatedly gave an empty answer", retryable=True)
        if finish.error == "output":
            raise self._misfit(finish)
        if finish.reason == "nothing_to_do":
            raise UsageError(NOTHING_TO_DO)
        return await self._reply()

    async def _reply(self) -> Reply:
        """Report that the run is over, for now or for good."""
        reply = self._machine.reply(self._context.session.id)
        if self._output is not None and self._machine.run.fits:
            reply = replace(reply, output=self._output.value(reply.output))
        self._spans.ended(reply)
        await self._context.emit(RunEnded(reply))
        return reply

    def _misfit(self, finish: facts.Finish) -> OutputError:
        """Return the error of a run without an answer that fits."""
        run = self._machine.run
        is_checked = finish.reason in ("output_error", "MAX_TOKENS")
        if not is_checked:
            told = f"the run ended with {finish.reason} before there was an answer that fits output="
        else:
            asked = 1 + run.repairs
            told = f"the model's answer does not fit output= (asked {asked} time{'s' if asked > 1 else ''})"
        reply = self._machine.reply(self._context.session.id)
        message = f"{told}: {finish.message}" if finish.message else f"{told}."
        return OutputError(message, reply=reply, problems=run.problems if is_checked else ())


def _ignore(records: Sequence[CallRecord]) -> None:
    """Settle nothing after the end."""
