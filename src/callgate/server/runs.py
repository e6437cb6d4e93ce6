"""A live run: its events numbered in a bounded ring, and its followers.

The work of a run comes in; numbered events go out to any number of followers, each at its own pace. A slow follower never
holds up the run: what it has missed for too long is gone for it. When nobody is left, a run that belongs to no session is
cancelled at once, and one that does goes on for a while. This file knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import islice
from typing import Any, Literal, TypeAlias, cast

from callgate.errors import CallgateError
from callgate.events import CallStarted, Event, RunEnded
from callgate.mcp.host import Answer, Question
from callgate.permission import Approval
from callgate.server.errors import HttpError, Problem, problem_of
from callgate.server.identity import Principal
from callgate.server.places import Place
from callgate.server.run_meter import RunMeter
from callgate.store import Lease
from callgate.types import Content, FunctionCall, JsonObject, Reply

__all__ = [
    "CURRENT",
    "EventsGoneError",
    "Follower",
    "Numbered",
    "PendingApproval",
    "Run",
    "RunBegan",
    "RunEvent",
    "RunFailed",
]

EVENTS_MAX = 4096
"""Events of one run that can be read again; a follower that is further behind has lost them."""
EVENTS_BYTES = 8 * 1024 * 1024
"""About how many bytes these may have."""
CANCEL_REASON = "The last client disconnected."


@dataclass(frozen=True, slots=True)
class RunBegan:
    """The first event of a run."""

    run: str
    session: str


@dataclass(frozen=True, slots=True)
class RunFailed:
    """The last event of a run that came to no reply."""

    problem: Problem


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """An MCP server asks the person who follows the run."""

    id: str
    question: JsonObject


@dataclass(frozen=True, slots=True)
class QuestionClosed:
    """A question was answered, or nobody will."""

    id: str
    action: str


RunEvent: TypeAlias = "Event | RunBegan | RunFailed | QuestionAsked | QuestionClosed"


@dataclass(slots=True)
class Numbered:
    """An event and its place in the run."""

    number: int
    event: RunEvent
    size: int = 0
    """About how many bytes it has."""
    wire: bytes | None = None
    """The event as it is sent, once somebody has needed it."""


@dataclass(slots=True)
class PendingApproval:
    """A call that somebody is being asked about right now."""

    call: FunctionCall
    reason: str
    answer: asyncio.Future[Approval]
    lease: Lease | None = None
    """The right to write to the session, which an answer of another process is taken with."""
    claim: asyncio.Task[None] | None = None
    """Task that accepts the answer of another process: until it is done, no other answer is accepted."""

    @property
    def is_open(self) -> bool:
        """True if it can be answered now."""
        return not self.answer.done() and self.claim is None


@dataclass(slots=True)
class PendingQuestion:
    """A question that waits for its answer."""

    id: str
    question: Question
    answer: asyncio.Future[Answer]


@dataclass(slots=True, eq=False)
class Follower:
    """A reader of a run's events."""

    after: int
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    is_quiet: bool = False
    """True if nothing was sent to it for a while."""
    leave: Callable[[], None] | None = None
    """End the stream of a follower that cannot be reached, because its client does not read."""


class EventsGoneError(CallgateError):
    """The events that were asked for are not kept any more."""


CURRENT: ContextVar[Run] = ContextVar("callgate_run")
"""The run that the code at hand belongs to."""

Work: TypeAlias = "Callable[[Callable[[Event], Awaitable[None]]], Awaitable[Reply]]"


async def _over(watch: Callable[[Event], Awaitable[None]]) -> Reply:
    raise AssertionError("the run is over")


class Run:
    """One run of the service.

    `named` says whether the client named the session, `waits` whether a call that needs approval is waited for.
    """

    # How every run begins. It is a run's own where it has changed.
    detached = False
    """True if it goes on without anybody."""
    exchange: int | None = None
    """The number in its session of the exchange that it is at work on; None if nobody has named it."""
    provider = model = ""
    principal: Principal | None = None
    """The client that asked for it."""
    place: Place | None = None
    """Its place among the runs of the service."""
    meter: RunMeter | None = None
    """Meter of what it uses, if its client has a quota of that."""
    ended_s: float | None = None
    reply: Reply | None = None
    error: BaseException | None = None
    problem: Problem | None = None
    """The error as followers see it."""
    is_over = False
    """True if it has come to its end."""
    last = 0
    questions_asked = 0
    """Questions of MCP servers so far."""
    on_end: Callable[[Run], None] | None = None
    on_left: Callable[[Run], None] | None = None
    """Called when the last follower of a run that is over has left."""
    share: Callable[[], int] | None = None
    """Callback for the bytes of events that a run may keep, where they are shared with others."""
    is_repeatable: Callable[[str], bool] | None = None
    """Callback: True if a call of the tool of this name may simply be run again."""
    has_effects = False
    """True if it has started a call that must not simply be run again."""
    stop: Callable[[str], bool] | None = None
    """Stop the work cleanly."""
    halt: Callable[[Exception], bool] | None = None
    """End the work where it stands, so that it can be resumed elsewhere."""
    interruption: Exception | None = None
    """Reason of the interruption, if there was one."""
    is_asked_for: Callable[[], Awaitable[bool]] | None = None
    """Callback: True if a client elsewhere has asked for it lately."""
    _followers = 0
    _present = 0
    _leaving: asyncio.TimerHandle | None = None
    _parting: asyncio.Task[None] | None = None
    _cancel_reason = CANCEL_REASON
    _is_ending = False
    """True if it was stopped, or its end was reported: what is left to do is done cleanly."""
    _task: asyncio.Task[None] | None = None
    _done: asyncio.Event | None = None

    def __init__(self, session: str, work: Work, *, named: bool, waits: bool, linger_s: float = 60.0) -> None:
        self.id = os.urandom(8).hex()
        self.session = session
        self.named = named
        self.waits = waits
        self.began_s = time.time()
        self.waiting: dict[str, PendingApproval] = {}
        self.early: dict[str, Approval] = {}
        """Answers to calls that nobody has been asked about yet."""
        self.outcomes: dict[str, Literal["answered", "deferred"]] = {}
        """Calls that were asked about, and what came of it: an answer, or a pause."""
        self.questions: dict[str, PendingQuestion] = {}
        """Questions of MCP servers that wait for an answer."""
        self.at_end: set[Callable[[], None]] = set()
        """Callbacks for the end of the run; their owners may have stopped waiting by then."""
        self.ring: deque[Numbered] = deque()
        self.size = 0
        """About how many bytes its events have."""
        self._work = work
        self._linger_s = linger_s
        self._listeners: set[Follower] = set()
        """All waiters for events: followers, and `settled`."""

    # The work -------------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the run."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        CURRENT.set(self)
        self.add(RunBegan(self.id, self.session))
        try:
            self.reply = _slim(await self._work(self._on_event))
        except asyncio.CancelledError:
            self.error = self.interruption or HttpError(499, "cancelled", self._cancel_reason)
            self._fail(problem_of(self.error))
        except Exception as error:
            self.error = error
            self._fail(problem_of(error))
        finally:
            self._end()

    async def _on_event(self, event: Event) -> None:
        if isinstance(event, RunEnded):
            self._is_ending = True
            event = RunEnded(_slim(event.reply))
        elif isinstance(event, CallStarted) and self.is_repeatable is not None:
            self.has_effects = self.has_effects or not self.is_repeatable(event.call.name)
        self.add(event)

    def _fail(self, problem: Problem) -> None:
        self.problem = problem
        self.add(RunFailed(problem))

    def _end(self) -> None:
        self.ended_s = time.time()
        # The task holds its context, and that holds this run: without a word they would hold one another for long.
        self._task = None
        self._work = _nothing  # It holds the request.
        if self._leaving is not None:
            self._leaving.cancel()
        for waiting in self.waiting.values():
            waiting.answer.cancel()
        for asked in self.questions.values():
            asked.answer.cancel()
        self.is_over = True
        self._work = _over  # It holds what the run was asked with.
        if self._done is not None:
            self._done.set()
        for call in self.at_end:
            call()
        for follower in self._listeners:
            follower.wake.set()
        if self.on_end is not None:
            self.on_end(self)

    @property
    def done(self) -> asyncio.Event:
        """Event that is set at the end; created on the first wait, since few wait for it."""
        if self._done is None:
            self._done = asyncio.Event()
            if self.is_over:
                self._done.set()
        return self._done

    def cancel(self, reason: str) -> bool:
        """Stop the run: cleanly if it has begun, at once if it still waits for its session."""
        if self.is_over or self._task is None:
            return False
        if not self._is_ending and not (self.stop is not None and self.stop(reason)):
            self._cancel_reason = reason
            self._task.cancel()
        self._is_ending = True
        return True

    def interrupt(self, error: Exception) -> None:
        """End it with this error where it stands; its journal says how far it came."""
        if self.is_over or self._task is None or self._is_ending:
            return
        self.interruption, self._is_ending = error, True
        if self.halt is None or not self.halt(error):
            self._task.cancel()

    # Its events -----------------------------------------------------------------------------------------------------------

    def add(self, event: RunEvent) -> None:
        """Record an event for all followers."""
        self.last += 1
        size = size_of(event)
        if len(self.ring) == EVENTS_MAX:
            self.size -= self.ring.popleft().size
        self.ring.append(Numbered(self.last, event, size))
        self.size += size
        most = EVENTS_BYTES if self.share is None else min(EVENTS_BYTES, self.share())
        while self.size > most and len(self.ring) > 1:
            self.size -= self.ring.popleft().size
        for follower in self._listeners:
            follower.wake.set()

    @property
    def first(self) -> int:
        """The oldest event that is still kept, or the next one."""
        return self.ring[0].number if self.ring else self.last + 1

    def drop(self) -> None:
        """Keep no events any more: a follower that has not read them is too late, and one that does not read is left."""
        self.ring.clear()
        self.size = 0
        for follower in list(self._listeners):
            follower.wake.set()
            if follower.leave is not None:
                follower.leave()

    def after(self, number: int) -> list[Numbered]:
        """The events behind that number.

        Raises:
            EventsGoneError: some of them are not kept any more.
        """
        if number + 1 < self.first:
            raise EventsGoneError(f"events {number + 1} to {self.first - 1} of this run are not kept any more")
        # From the newest backwards: mostly there is one, and the ring is long.
        found = list(islice(reversed(self.ring), max(0, self.last - number)))
        found.reverse()
        return found

    @property
    def is_followed(self) -> bool:
        """True if somebody still reads its events."""
        return bool(self._listeners)

    @property
    def followers(self) -> int:
        """Number of readers of its events."""
        return self._followers

    @contextlib.contextmanager
    def followed(self, after: int = 0, *, answers: bool = True) -> Generator[Follower]:
        """Follow the events; when the last one leaves, the run may end.

        A call that needs approval is waited for only if somebody follows who can answer.
        """
        follower = Follower(after)
        self._listeners.add(follower)
        self._followers += answers
        try:
            with self.attended():
                yield follower
        finally:
            self._followers -= answers
            self._listeners.discard(follower)
            if self.on_left is not None and not self._listeners:
                self.on_left(self)

    async def follow(self, after: int = 0, *, answers: bool = True) -> AsyncGenerator[Numbered]:
        """The events behind that number as they come, to the last one.

        Raises:
            EventsGoneError: the reader was too slow, or too late.
        """
        with self.followed(after, answers=answers) as follower:
            while True:
                follower.wake.clear()
                for item in self.after(follower.after):
                    follower.after = item.number
                    yield item
                if self.is_over and follower.after >= self.last:
                    return
                await follower.wake.wait()

    # Who is there ---------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def attended(self) -> Generator[None]:
        """Count a client that wants the outcome."""
        self.subscribe()
        try:
            yield
        finally:
            self.unsubscribe()

    def subscribe(self) -> None:
        """One more is there."""
        self._present += 1
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None

    def unsubscribe(self) -> None:
        """One less is there; the last one may take the run along."""
        self._present -= 1
        if self._present == 0 and not self.is_over and not self.detached:
            wait_s = self._linger_s if self.named else 0.0
            self._leaving = asyncio.get_running_loop().call_later(wait_s, self.abandon)

    def abandon(self) -> None:
        """Handle the last disconnect: pause what waits for an answer, stop everything else."""
        if self.pause():
            return
        if self.is_asked_for is None:
            self.cancel(CANCEL_REASON)
        else:
            self._parting = asyncio.create_task(self._part(self.is_asked_for))

    async def _part(self, is_asked_for: Callable[[], Awaitable[bool]]) -> None:
        """Continue for another while if a client elsewhere wants the outcome; stop otherwise."""
        stays = await is_asked_for()
        self._parting = None
        if self._present or self.is_over:
            return
        if stays:
            self._leaving = asyncio.get_running_loop().call_later(self._linger_s, self.abandon)
        else:
            self.cancel(CANCEL_REASON)

    def pause(self) -> bool:
        """Defer the approvals that are waited for; True if there were any."""
        self.waits = False
        asked = [waiting for waiting in self.waiting.values() if waiting.is_open]
        for waiting in asked:
            waiting.answer.set_result("later")
        return bool(asked)

    async def settled(self, within_s: float) -> None:
        """Wait, at most this long, until there is an event or the run has failed at the start."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self.until(lambda: self.last >= 2)

    async def until(self, condition: Callable[[], bool], look_s: float | None = None) -> None:
        """Wait for a condition or the end of the run; it is looked at with every event, and every `look_s` seconds."""
        follower = Follower(1)
        self._listeners.add(follower)
        try:
            while not self.is_over and not condition():
                follower.wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(look_s):
                        await follower.wake.wait()
        finally:
            self._listeners.discard(follower)

    @property
    def is_ending(self) -> bool:
        """True if its end was reported: it is over as soon as its session is released."""
        return self._is_ending

    @property
    def never_began(self) -> bool:
        """True if it failed before anything happened."""
        return self.problem is not None and self.last == 2

    async def outcome(self) -> Reply:
        """The reply, when it is there.

        Raises:
            CallgateError: the run failed.
        """
        if not self.is_over:
            with self.attended():
                await self.done.wait()
        return self.result()

    def result(self) -> Reply:
        """The reply of a run that is over.

        Raises:
            CallgateError: the run failed.
        """
        if self.reply is None:
            raise self.error or AssertionError("a run ends with a reply or an error")
        return self.reply


class _NoHistory:
    """Placeholder for the history of a run that is over: its session has it."""

    @property
    def contents(self) -> list[Content]:
        return []


_NO_HISTORY = _NoHistory()


def _slim(reply: Reply) -> Reply:
    """The reply without the whole conversation, which can be large and is in the session."""
    return replace(reply, history=_NO_HISTORY)


async def _nothing(watch: Callable[[Event], Awaitable[None]]) -> Reply:
    raise AssertionError("a run that is over does not begin again")


def size_of(event: object) -> int:
    """About how many bytes an event keeps in memory: its texts, and a little for everything else."""
    size, left = 0, [event]
    while left:
        item: Any = left.pop()
        size += 64
        if isinstance(item, (str, bytes)):
            size += len(item)
        elif isinstance(item, Mapping):
            pairs = cast("Mapping[Any, Any]", item)
            left += [*pairs.keys(), *pairs.values()]
        elif isinstance(item, (list, tuple)):
            left += cast("list[Any]", item)
        elif is_dataclass(item):
            left += [getattr(item, field.name) for field in fields(item)]
    return size
