"""The state of the run in progress."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from callgate.machine import facts
from callgate.machine.calls import TrackedCall
from callgate.types import Content, JsonObject, Limits, ToolChoice, Usage

__all__ = ["PendingAnswer", "RunState"]


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """An answer that becomes part of the conversation only if it fits, or if it is the last."""

    content: Content
    origin: str | None
    reason: str
    message: str


_NO_LIMITS_GIVEN = Limits()


@dataclass(slots=True)
class RunState:
    """The run in progress, or the last one."""

    limits: Limits = _NO_LIMITS_GIVEN
    tool_choice: ToolChoice = "auto"
    start: int = 0
    """Length of the conversation when the run began; a failed run is rolled back to it."""
    output: JsonObject | None = None
    """The JSON Schema that the answer must fit."""
    request: str | None = None
    """The idempotency key of the request that started it, if it has one."""
    records: list[TrackedCall] = field(default_factory=list[TrackedCall])
    streaks: dict[str, int] = field(default_factory=dict[str, int])
    turn: int = 0
    retries: int = 0
    feedback: str | None = None
    text: str = ""
    model: str = ""
    usage: Usage = Usage()
    cost: float | None = None
    wrap_up: str | None = None
    """The limit that was reached: the next request is the last one and has its tools disabled."""
    end: str | None = None
    """The run ends with this reason as soon as every call is settled."""
    finish: facts.Finish | None = None
    held: PendingAnswer | None = None
    """An answer that is not checked yet."""
    repairs: int = 0
    """How often the model was asked again for an answer that fits."""
    summaries: int = 0
    """How often the model was asked for a summary."""
    is_shortened: bool = False
    """True if the history was shortened since the model last answered."""
    fits: bool = False
    value: Any = None
    problems: tuple[str, ...] = ()
    """The problems of the last answer, if none fits."""

    @property
    def limited(self) -> bool:
        """True if the current request is the last one within the turn limit, so that its tools are disabled."""
        return 1 < self.limits.turns == self.turn + 1
