"""The words of a pool: its limits, its sessions, and one call on its way through it.

Nothing here waits or starts anything. A job is answered exactly once, by the first to come.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from callgate.errors import UsageError
from callgate.types import CallTool, Progress, ResultStatus, ToolDefinition, ToolResult
from callgate.workers.address import Address
from callgate.workers.frames import pack

__all__ = ["Affinity", "Job", "Needs", "Session", "WorkerLimits", "unheard", "unheard_item"]

Affinity: TypeAlias = Literal["hint", "strict", "strict_fail_fast", "own"]
"""The effect of a busy worker of the session: `hint`: another one takes the call; `strict`: the call waits for it;
`strict_fail_fast`: the call fails at once. `own`: as `strict`, in a worker that no other session uses and that ends
with it."""

Needs: TypeAlias = tuple[tuple[str, float], ...]
"""Resources that a tool needs of the machine that it runs on: amounts by name, in order. Empty on this machine."""

_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """The bounds of a pool. Times are in seconds; None means no bound."""

    call_timeout_s: float = 30.0
    """The deadline of one call, unless its tool sets another."""
    stop_grace_s: float = 0.05
    """Seconds that a call past its deadline, or a cancelled one, may take to end by itself before it is killed."""
    queue: int = 1000
    """Calls that may wait; one more is refused at once."""
    queue_wait_s: float = 30.0
    """Seconds that a call may wait for a worker."""
    sessions: int = 10_000
    """Sessions at the same time; one more is refused."""
    session_ttl_s: float = 3600.0
    """A session that was not used for this long is over."""
    recycle_calls: int | None = None
    """A worker is replaced after this many calls."""
    recycle_age_s: float | None = None
    """A worker is replaced when it is this old."""
    memory_bytes: int | None = None
    """The address space of each worker; a tool that wants more gets a MemoryError."""
    heartbeat_s: float = 2.0
    """Seconds between two signs of life of an idle worker."""
    start_timeout_s: float = 60.0
    """Seconds that a worker may take to import the tool modules."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is None and name in ("recycle_calls", "recycle_age_s", "memory_bytes"):
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
                raise UsageError(f"WorkerLimits({name}={value!r}): expected a number above 0")


@dataclass(slots=True)
class Session:
    """The state of a session in a pool."""

    id: str
    used: float
    needs: Needs = ()
    slot: object | None = None
    """Slot that has its state."""
    calls: int = 0
    """Calls that ended in that worker."""
    open: int = 0
    """Calls that wait or run."""
    lost: str | None = None
    """A note that its next result has to carry."""


def unheard(message: str, fraction: float | None = None) -> None:
    """Ignore progress: there is no observer."""


def unheard_item(item: Any) -> None:
    """Ignore output: there is no reader."""


@dataclass(slots=True, eq=False)
class Job:
    """One call. `definition` is the tool, or None for the end of a session.

    Raises:
        JsonError: the arguments are not JSON.
    """

    definition: ToolDefinition | None
    args: Mapping[str, Any]
    session: Session | None
    timeout_s: float
    loop: asyncio.AbstractEventLoop
    call_id: str = ""
    address: Address | None = None
    until: float | None = None
    """Time on the monotonic clock from which it is of no use any more, wherever it is by then."""
    paused_s: Callable[[], float] = lambda: 0.0
    """For how many seconds its clock has stood still so far, while a person was asked."""
    progress: Progress = unheard
    on_item: Callable[[Any], None] = unheard_item
    call_tool: CallTool | None = None
    """Call a tool of the program that the worker asks for."""
    host_calls: Any = None
    """Its calls of the program's tools (`callgate.workers.host_calls`), if there are any."""
    number: int = field(default_factory=_NUMBERS.__next__)
    state: Literal["new", "waiting", "running", "over"] = "new"
    attempts: int = 0
    has_begun: bool = False
    """True if a worker may have begun with it. One that died before it read of the call has not."""
    stop: tuple[ResultStatus, str] | None = None
    """Status and message of its cancellation, if it was cancelled."""
    notes: list[str] = field(default_factory=list[str])
    seen: int = 0
    """Items that came."""
    last: str | None = None
    """The last progress report."""
    future: asyncio.Future[ToolResult] = field(init=False)
    is_told: bool = False
    """True once its result was delivered to the waiter, if there still is one."""
    timer: asyncio.TimerHandle | None = None
    slot: Any = None
    """The slot that runs it."""
    needs: Needs = ()
    thread: int = field(default_factory=threading.get_ident)
    """The thread of its event loop, in which it was made."""
    frame: bytes = field(init=False)
    """The call as a worker is told of it."""

    def __post_init__(self) -> None:
        self.frame = pack(self._message)
        self.future = self.loop.create_future()

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.definition.name if self.definition else ""

    @property
    def _message(self) -> dict[str, Any]:
        """The message to a worker. Empty fields are left out."""
        told: dict[str, Any] = {"op": "end", "id": self.number}
        if self.session is not None:
            told["session"] = self.session.id
        if self.definition is None:
            return told
        told |= {"op": "call", "name": self.definition.name, "args": dict(self.args), "timeout_s": self.timeout_s}
        if self.call_id:
            told["call_id"] = self.call_id
        if self.address is not None:
            told["address"] = [self.address.module, self.address.qualname, self.address.file]
        if self.on_item is not unheard_item:
            told["stream"] = True
        return told

    def result(self, status: ResultStatus, **fields: Any) -> ToolResult:
        """A result of this job."""
        return ToolResult(call_id=self.call_id, name=self.name, status=status, **fields)

    def deliver(self, result: ToolResult) -> None:
        """Deliver the result to the waiter. May be called from any thread; only the first answer counts."""
        if self.state == "over":
            return
        self.state = "over"
        if self.notes:
            result = replace(result, notes=(*result.notes, *self.notes))
        if threading.get_ident() == self.thread:
            self._set(result)
            return
        # RuntimeError: the loop was closed in the meantime; nobody waits any more.
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._set, result)

    def _set(self, result: ToolResult) -> None:
        self.is_told = True
        if self.timer is not None:
            self.timer.cancel()
        if not self.future.done():
            self.future.set_result(result)
