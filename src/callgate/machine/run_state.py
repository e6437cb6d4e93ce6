"""The state of the run in progress."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from callgate.content.metadata import made_media, metadata_of, server_steps_of
from callgate.content.read import is_thought, media_of, parts_of, text_of
from callgate.machine import facts
from callgate.machine.calls import TrackedCall
from callgate.metadata import AnswerMetadata, Citation, ServerStep
from callgate.types import Content, JsonObject, Limits, Media, Part, ToolChoice, Usage

__all__ = ["AnswerExtras", "PendingAnswer", "RunState"]


@dataclass(frozen=True, slots=True)
class PendingAnswer:
    """An answer that becomes part of the conversation only if it fits, or if it is the last."""

    content: Content
    origin: str | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class AnswerExtras:
    """An answer with thoughts, media, steps at the provider, or metadata."""

    content: Content
    metadata: tuple[JsonObject, ...]


_NO_LIMITS_GIVEN = Limits()
_BUDGETS = ("cost_limit", "token_limit")


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
    streaks: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    """The calls of the last turn by their content, and in how many turns in a row each was made."""
    turn: int = 0
    retries: int = 0
    feedback: str | None = None
    text: str = ""
    model: str = ""
    answers: list[AnswerExtras] = field(default_factory=list["AnswerExtras"])
    """The answers of the run that have more than text and calls; thoughts count."""
    last_extras: AnswerExtras | None = None
    """The last answer, if it has more than text and calls."""
    usage: Usage = Usage()
    cost: float | None = None
    wrap_up: str | None = None
    """The limit that was reached: the next request is the last one and has its tools disabled."""
    end: str | None = None
    """The run ends with this reason as soon as every call is settled."""
    finish: facts.Finish | None = None
    accepted: facts.ModelAccepted | None = None
    """The server's word that it has taken the request."""
    left: facts.ModelAccepted | None = None
    """The request that a server may still work on, and whose answer nobody waits for any more."""
    held: PendingAnswer | None = None
    """An answer that is not checked yet."""
    repairs: int = 0
    """Times that the model was asked again for an answer that fits."""
    summaries: int = 0
    """Times that the model was asked for a summary."""
    is_shortened: bool = False
    """True if the history was shortened since the model last answered."""
    fits: bool = False
    value: Any = None
    problems: tuple[str, ...] = ()
    """The problems of the last answer, if none fits."""

    def keep_extras(self, fact: facts.ModelAnswered) -> None:
        """Keep an answer that has thoughts, media, steps at the provider, or metadata."""
        metadata, parts = fact.metadata or (), parts_of(fact.content)
        self.last_extras = None
        if metadata or any(is_thought(part) or media_of(part) for part in parts) or server_steps_of(fact.content):
            self.last_extras = AnswerExtras(fact.content, metadata)
            self.answers.append(self.last_extras)

    @property
    def unanswered(self) -> facts.ModelAccepted | None:
        """The request that a server may still work on if the conversation goes on without its answer."""
        return self.accepted or self.left

    @property
    def known_cost(self) -> float | None:
        """The cost of the run. One that a budget of its session ended before its first request cost nothing."""
        is_unasked = (
            self.finish is not None and self.finish.reason in _BUDGETS and not (self.turn or self.usage.total_tokens)
        )
        return 0.0 if self.cost is None and is_unasked else self.cost

    @property
    def metadata(self) -> tuple[AnswerMetadata, ...]:
        """The metadata of the answers that have any."""
        found = (metadata_of(answer.metadata, answer.content) for answer in self.answers)
        return tuple(metadata for metadata in found if metadata is not None)

    @property
    def citations(self) -> list[Citation]:
        """The passages of the last answer that have sources: places in the text of the reply."""
        last = self.last_extras
        found = metadata_of(last.metadata, last.content) if last is not None else None
        return list(found.citations) if found is not None else []

    @property
    def thoughts(self) -> str:
        """The thoughts of the answers that have any, with an empty line between two answers."""
        return "\n\n".join(filter(None, (text_of(answer.content, thoughts=True) for answer in self.answers)))

    @property
    def media(self) -> list[Media]:
        """The media that the model made."""
        return [media for part in self._extra_parts if (media := made_media(part)) is not None]

    @property
    def server_steps(self) -> list[ServerStep]:
        """The steps that ran at the provider."""
        return [step for answer in self.answers for step in server_steps_of(answer.content)]

    @property
    def _extra_parts(self) -> list[Part]:
        return [part for answer in self.answers for part in parts_of(answer.content)]

    @property
    def limited(self) -> bool:
        """True if the current request is the last one within the turn limit, so that its tools are disabled."""
        return 1 < self.limits.turns == self.turn + 1
