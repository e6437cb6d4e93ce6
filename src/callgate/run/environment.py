"""The environment of a run's calls."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING
from weakref import ref

from callgate.calls.environment import CallEnvironment
from callgate.calls.nested import NestedCalls
from callgate.calls.slots import Slots
from callgate.errors import ModelError
from callgate.run.context import RunContext

if TYPE_CHECKING:
    from callgate.content.collect import ModelResponse
    from callgate.request import ModelRequest

__all__ = ["call_environment"]


def call_environment(run: RunContext) -> CallEnvironment:
    """Build the environment of a run's calls: its tools and guard, one question and one ordered call at a time."""
    config = run.config
    nested = NestedCalls(
        always=lambda: run.always,
        journal=partial(run.journal, durable=True),
        emit=run.emit,
        fail=run.cancellation.fail,
    )
    return CallEnvironment(
        executor=config.executor,
        guard=config.guard,
        limits=config.limits,
        session=run.session.id,
        ask=config.ask,
        asking=asyncio.Lock(),
        lane=Slots(1),
        places=Slots(config.limits.parallel),
        scope_of=nested.scope_of,
        person=run.person,
        lend=partial(_lend, ref(run)),
        deps=run.deps,
        spans=run.spans,
    )


async def _lend(running: ref[RunContext], server: str, request: ModelRequest) -> ModelResponse:
    """Lend the model of a run. The contexts of tools outlive it, and would keep all that it holds."""
    from callgate.run.lent_model import OVER, LentModel

    if (run := running()) is None:
        raise ModelError(OVER)
    return await LentModel(run)(server, request)
