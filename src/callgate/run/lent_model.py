"""The model of a run, lent to the MCP servers whose tools it calls (MCP: sampling).

Takes a request of a server, returns the answer. The quotas and budgets of the run hold for it, and its usage is journalled
as part of the run; it knows nothing of MCP.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from callgate.errors import CallgateError, ModelError
from callgate.events import Notice
from callgate.machine import facts
from callgate.machine.limits import spent_budget
from callgate.run.model_turn import ask_beside

if TYPE_CHECKING:
    from callgate.content.collect import ModelResponse
    from callgate.request import ModelRequest
    from callgate.run.context import RunContext

__all__ = ["OVER", "LentModel"]

logger = logging.getLogger("callgate.run")

OVER = "the run that the model belongs to is over"
_OF_THE_CONVERSATION = ("store", "background")
"""Settings of the gate that are about its own conversation."""


class LentModel:
    """The model of one run. Each request is a task of that run, and so ends with it at the latest."""

    def __init__(self, run: RunContext) -> None:
        self._run = run

    async def __call__(self, server: str, request: ModelRequest) -> ModelResponse:
        """Send a request of a server; from any event loop.

        Raises:
            CallgateError: there is no answer: a budget is used up, the model failed, or the run is over.
        """
        event_loop = self._run.event_loop
        if asyncio.get_running_loop() is event_loop:
            return await self._answered(server, request)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._answered(server, request), event_loop))

    async def _answered(self, server: str, request: ModelRequest) -> ModelResponse:
        tasks = self._run.tasks
        answer: asyncio.Future[ModelResponse] = self._run.event_loop.create_future()
        task = tasks.spawn(self._ask(server, request, answer))
        if task is None:
            raise ModelError(OVER)
        try:
            return await answer
        finally:
            if not task.done():
                await tasks.cancel(task)

    async def _ask(self, server: str, request: ModelRequest, answer: asyncio.Future[ModelResponse]) -> None:
        """Set the answer, or why there is none. Errors of the journal and of an observer are those of the run."""
        try:
            found = await self._lend(server, request)
            if not answer.done():
                answer.set_result(found)
        except _NoAnswerError as none:
            if not answer.done():
                answer.set_exception(none.why)
        finally:
            if not answer.done():
                answer.set_exception(ModelError(OVER))

    async def _lend(self, server: str, request: ModelRequest) -> ModelResponse:
        run, config = self._run, self._run.config
        spent = run.machine
        if (used_up := spent_budget(spent.run, spent.usage, spent.cost)) is not None:
            raise _NoAnswerError(ModelError(f"a budget of the run is used up ({used_up})"))
        kept = {name: value for name, value in config.settings.items() if name not in _OF_THE_CONVERSATION}
        request = replace(request, settings={**kept, **request.settings})
        logger.debug("lending %s to the server %r: contents %d", config.model.name, server, len(request.conversation))
        try:
            answer, who, cost = await ask_beside(run, request)
        except CallgateError as error:
            config.guard.model.failed(error)
            raise _NoAnswerError(error) from error
        await run.note(facts.ModelLent(server=server, model=who.model, usage=answer.usage, cost=cost))
        told = f"The MCP server {server!r} was lent the model: {answer.usage.total_tokens} tokens."
        await run.emit(Notice("model_lent", told))
        return replace(answer, model=answer.model or config.model.name)


class _NoAnswerError(Exception):
    """There is no answer for the server; the run goes on."""

    def __init__(self, why: CallgateError) -> None:
        super().__init__(str(why))
        self.why = why
