"""The environment and the owner of calls: the inputs of the pipeline."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from callgate.calls.slots import Slots
from callgate.events import Event
from callgate.host import LendModel, Person
from callgate.machine import facts
from callgate.machine.calls import CallBatch
from callgate.permission.approval import Approval
from callgate.permission.guard import Guard
from callgate.telemetry import NO_SPANS, Spans
from callgate.tools.executor import Executor
from callgate.types import FunctionCall, Limits, SessionRule, ToolDefinition, ToolResult

__all__ = ["Ask", "CallEnvironment", "CallOwner", "CallScope", "ParentCall", "Pause", "Question", "ScopeOf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question about a call."""

    call: FunctionCall
    definition: ToolDefinition
    digest: str
    """Hash of what is declared of the tool now."""
    reason: str
    preview: str | None
    """A preview of the call's effect, if its tool has one."""
    confirm: str = ""
    """The text that a yes must repeat, if a rule wants that."""


Ask: TypeAlias = Callable[[Question], Awaitable[Approval]]
"""Ask for approval. User code: whatever it raises denies the call."""


class CallOwner(Protocol):
    """The owner of the calls of a pipeline."""

    has_plain_args: bool
    """True if the arguments of its calls are known to be plain JSON."""

    @property
    def calls(self) -> CallBatch:
        """The calls, as they are now."""
        ...

    @property
    def always(self) -> Iterable[SessionRule]:
        """The lasting answers of the session."""
        ...

    async def note(self, *new_facts: facts.Fact, durable: bool = False) -> None:
        """Take facts in; with `durable` they survive a loss of power. Calls that they settle go to `pipeline.settle`."""
        ...

    async def emit(self, event: Event) -> None:
        """Report an event."""
        ...


class CallScope(Protocol):
    """The interface for nested calls of a running call; closed as soon as that call is over."""

    async def call(self, name: str, args: Mapping[str, Any]) -> ToolResult:
        """Call a tool. There is always a result."""
        ...

    def close(self) -> None:
        """Close the scope after the call, and end its nested calls."""
        ...

    @property
    def is_idle(self) -> bool:
        """True if nothing is left of what the call has called."""
        ...

    async def wait(self) -> None:
        """Wait until nothing is left of what the call has called."""
        ...


Pause: TypeAlias = Callable[[], AbstractContextManager[None]]
"""Stop the clocks of a call and of the calls around it while a person is asked."""


@dataclass(frozen=True, slots=True)
class ParentCall:
    """A call that starts, for the scope of what it calls."""

    call: FunctionCall
    holds_lane: bool
    held: frozenset[str]
    """Rate limits in which it, or a call around it, has a place."""
    paused: Pause


ScopeOf: TypeAlias = "Callable[[CallEnvironment, ParentCall], CallScope]"
"""Factory for the scope of a call that starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnvironment:
    """The environment of calls: everything a pipeline needs besides their owner."""

    executor: Executor
    guard: Guard
    limits: Limits
    session: str
    ask: Ask | None
    asking: asyncio.Lock
    """Held during a question: one at a time per session, so that a terminal can cope."""
    lane: Slots
    """The lane of ordered calls, which run one after another."""
    places: Slots
    """At most so many calls run at the same time."""
    scope_of: ScopeOf
    """Factory for the scope of a call that starts."""
    paused: Pause = contextlib.nullcontext
    held: frozenset[str] = frozenset()
    """Rate limits in which the calls around this one have a place."""
    person: Person | None = None
    """Callback for questions of tools."""
    lend: LendModel | None = None
    """The model of the run, for servers that may use it."""
    deps: Any = None
    """The object that the program passed to the run, for tools that declare it."""
    spans: Spans = NO_SPANS
