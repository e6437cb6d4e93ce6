"""Approval of calls: the callback that is asked, and the answers it may give."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, cast

from callgate import user_code
from callgate.threads import THREADS
from callgate.types import FunctionCall, ToolDefinition

__all__ = ["Answered", "Approval", "Approve", "request_approval"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer with words to it, or with other arguments."""

    answer: Literal["yes", "no", "always"]
    """Run it, refuse it, or run it and do not ask again for calls like it."""
    args: Mapping[str, Any] | None = None
    """Arguments to run the call with instead; only with a yes."""
    message: str = ""
    """Reason for the answer. The model sees the reason of a no."""
    by: str = ""
    """Person who answered, for the audit log; empty: the user of the program."""
    confirm: str = ""
    """The text that was typed to confirm the call, where a rule has `confirm`."""


Approval: TypeAlias = "Literal['yes', 'no', 'always', 'later'] | FunctionCall | Answered"
"""An answer: `always` also allows later calls like it in this session, `later` pauses the run until somebody answers, and a
call with other arguments means "yes, but like this"."""


class Approve(Protocol):
    """A callback that approves calls: a terminal, a web page, a program. A sync function runs in a thread."""

    def __call__(self, call: FunctionCall, definition: ToolDefinition, reason: str, /) -> Approval | Awaitable[Approval]:
        """Say whether the call may run. Raising, or any other answer, denies it with a `Notice` of the level `warning`."""
        ...


async def request_approval(approve: Approve, call: FunctionCall, definition: ToolDefinition, reason: str) -> Approval:
    """Ask, and return the answer. Nothing else stands still meanwhile, even where somebody is asked by `input()`.

    A sync function waits in a thread of our own: a person who takes long holds up neither asyncio's own threads, nor tools,
    nor the end of the program.
    """
    if inspect.iscoroutinefunction(approve) or inspect.iscoroutinefunction(getattr(approve, "__call__", None)):  # noqa: B004
        answer = approve(call, definition, reason)
    else:
        # As an outcome: there are errors that mean something else to an event loop.
        asking = functools.partial(user_code.call, lambda: approve(call, definition, reason))
        answered = cast("user_code.Outcome[Any]", await THREADS.run(asking, abandoned_max=None))
        if answered.error is not None:
            raise answered.error
        answer = cast("Approval | Awaitable[Approval]", answered.value)
    return await answer if isinstance(answer, Awaitable) else answer
