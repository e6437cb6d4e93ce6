"""Dispatch calls outside the runs of a gate: calls of MCP clients and other frameworks.

Takes a call and its client, returns a `ToolResult`. The pipeline, the guard, the limits and the audit log are those of a
run; questions go to the client. Knows no protocol.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from callgate.calls.environment import Ask, CallEnvironment, Question
from callgate.calls.nested import NestedCalls
from callgate.calls.single import SingleCall
from callgate.calls.slots import Slots
from callgate.calls.tasks import outlast
from callgate.events import CallProgress, Event, Notice
from callgate.machine import facts
from callgate.machine.calls import CallFact
from callgate.permission.approval import Answered, Approval
from callgate.permission.guard import Guard
from callgate.tools.executor import Executor
from callgate.types import CallRecord, FunctionCall, Progress, SessionRule, ToolDefinition, ToolResult

__all__ = ["CallDispatcher", "DeferredCall", "InFlightCall"]

logger = logging.getLogger("callgate.calls")

CALLS_MAX = 256
"""Maximum number of calls in flight, most of them waiting; a further one is refused."""
SESSIONS_MAX = 10_000
"""Maximum number of sessions whose rules are remembered; the least recently used is forgotten first."""
ASK_S = 600.0
"""Time-out of a question."""
CLOSE_S = 5.0
"""Seconds that calls may take to end on close."""


class DeferredCall(Exception):  # noqa: N818 - control flow, not an error
    """Raised by `Ask`: the answer will come with a repeated call. Its arguments are for the client."""


@dataclass(slots=True)
class _Session:
    """The state of one client."""

    always: dict[str, SessionRule] = field(default_factory=dict[str, SessionRule])
    lane: Slots = field(default_factory=lambda: Slots(1))
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class InFlightCall:
    """One call in flight. `stop` ends it soon, whatever it is doing."""

    def __init__(self, single: SingleCall, work: asyncio.Task[ToolResult]) -> None:
        self._single = single
        self.work = work
        """Task of the call. Its result is the tool's; it raises only the `DeferredCall` by which an answer was put off."""

    async def wait(self) -> ToolResult:
        """Wait for the result. Cancelling the wait stops the call; it is over when this raises."""
        interruption = await outlast(self.work, lambda: self.stop("Its caller was cancelled."))
        try:
            if interruption is not None:
                raise interruption
            return self.work.result()
        finally:
            del interruption

    def stop(self, reason: str) -> None:
        """Stop the tool, or the call before its start."""
        self._single.stop(reason)


class CallDispatcher:
    """Dispatcher of the calls of any number of clients.

    Args:
        executor: The tools.
        guard: Decides about calls; its rate limits are shared with a gate that has the same one.
        nobody: The refusal of a call that needs approval, if its client cannot be asked.
    """

    def __init__(self, executor: Executor, guard: Guard, *, nobody: str) -> None:
        self._executor = executor
        # Limits, log and rules stay shared; only questions go to another place: to each client.
        self._guard = copy.copy(guard)
        self._guard.policy = replace(guard.policy, nobody=nobody)
        self._places = Slots(executor.limits.parallel)
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._calls: set[InFlightCall] = set()

    def take(self, call: FunctionCall, *, session: str, ask: Ask | None, progress: Progress) -> InFlightCall:
        """Begin a call."""
        client = self._session(session)
        asker = None if ask is None else _Asker(ask)
        around = self._environment(session, client, asker)

        async def keep(rule: SessionRule) -> None:
            client.always[rule.id] = rule

        async def emit(event: Event) -> None:
            if isinstance(event, Notice):
                logger.warning("%s", event.message)
            elif isinstance(event, CallProgress):
                progress(event.message, event.fraction)

        single = SingleCall(call, around, always=client.always.values, keep=keep, note=_not_journalled, emit=emit)
        if len(self._calls) >= CALLS_MAX:
            problem = f"Not run: {CALLS_MAX} calls are under way already; call again later."
            single.calls.calls[0].call = replace(call, problem=problem)
        in_flight = InFlightCall(single, asyncio.get_running_loop().create_task(_carried_out(single, asker)))
        self._calls.add(in_flight)
        in_flight.work.add_done_callback(lambda work: self._ended(in_flight, work))
        return in_flight

    def _environment(self, session: str, client: _Session, asker: _Asker | None) -> CallEnvironment:
        guard = copy.copy(self._guard)
        guard.approve = None if asker is None else asker.approve

        async def journal(fact: facts.NestedCall) -> None:
            if fact.rule is not None:
                client.always[fact.rule.id] = fact.rule

        async def emit(event: Event) -> None:
            if isinstance(event, Notice):
                logger.warning("%s", event.message)

        nested = NestedCalls(always=client.always.values, journal=journal, emit=emit, fail=_report)
        return CallEnvironment(
            executor=self._executor,
            guard=guard,
            limits=self._executor.limits,
            session=session,
            ask=None if asker is None else asker.ask,
            asking=client.asking,
            lane=client.lane,
            places=self._places,
            scope_of=nested.scope_of,
        )

    def _ended(self, in_flight: InFlightCall, work: asyncio.Task[ToolResult]) -> None:
        self._calls.discard(in_flight)
        if not work.cancelled():
            work.exception()  # Retrieved here, because the client may be gone.

    async def aclose(self) -> None:
        """Stop all calls, and wait until they have ended."""
        work = [call.work for call in self._calls]
        for call in list(self._calls):
            call.stop("The server is closing.")
        if work:
            await asyncio.wait(work, timeout=CLOSE_S)

    def _session(self, name: str) -> _Session:
        session = self._sessions.setdefault(name, _Session())
        self._sessions.move_to_end(name)
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return session


class _Asker:
    """Questions to one client, each with a time limit; keeps the error that deferred an answer."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.deferred: DeferredCall | None = None

    async def ask(self, question: Question) -> Approval:
        """The answer of the client."""
        try:
            async with asyncio.timeout(ASK_S):
                return await self._ask(question)
        except TimeoutError:
            return Answered(answer="no", message=f"Nobody answered within {ASK_S:g} s.")
        except DeferredCall as deferred:
            self.deferred = deferred
            return "later"

    def approve(self, call: FunctionCall, definition: ToolDefinition, reason: str) -> Approval:
        """Stand in for the client where the guard checks whether there is anyone to ask."""
        raise AssertionError("clients are asked by the pipeline")


async def _carried_out(single: SingleCall, asker: _Asker | None) -> ToolResult:
    record = await single.carry_out()
    if record.result is not None:
        return record.result
    assert asker is not None, "only somebody who was asked can put an answer off"
    if asker.deferred is not None:
        raise asker.deferred
    error = "This call was not allowed. The answer was put off, and there is nobody to wait for it."
    return ToolResult(call_id=record.call.id, name=record.call.name, status="denied", error=error)


async def _not_journalled(fact: CallFact, record: CallRecord) -> None:
    """Do nothing: calls of clients are in the audit log alone."""


def _report(error: Exception) -> None:
    logger.error("a call of a tool by another one failed", exc_info=error)
