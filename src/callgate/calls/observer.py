"""Events on their way to the program that observes a run: each of them leaves here, whatever reports it.

Calls are copied, so that an observer cannot change what will run. Sentences about a run (notices, progress) may quote a
server's answer, an exception or a command: known secrets are redacted in them. What the model says, and arguments and
results of calls, are the content of the conversation and stay as they are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeAlias, TypeVar

from callgate import user_code
from callgate.config.known_secrets import redact_known
from callgate.events import CallProgress, Event, Notice
from callgate.types import FunctionCall

__all__ = ["Emit", "observer_of", "redacted"]

EventT = TypeVar("EventT", bound=Event)
Emit: TypeAlias = Callable[[Event], Awaitable[None]]
"""An async function that is given each event of a run."""


def observer_of(watch: Emit | None) -> Emit | None:
    """The observer as a run calls it; what it raises ends the run with that error."""
    if watch is None:
        return None

    async def observe(event: Event) -> None:
        call = getattr(event, "call", None)
        event = replace(event, call=call.detached()) if isinstance(call, FunctionCall) else redacted(event)
        outcome = await user_code.call_async(lambda: watch(event))
        if outcome.exception is not None:
            raise outcome.exception

    return observe


def redacted(event: EventT) -> EventT:
    """The event without known secrets, if it is a sentence about the run."""
    return replace(event, message=redact_known(event.message)) if isinstance(event, (Notice, CallProgress)) else event
