"""What the loop is told (facts) and what it asks for (commands).

Facts are the journal: plain data with a schema version, appended in the order in which they became true and replayed, never
recomputed. Commands are what should be done next; they follow from the facts and are never stored. This file holds no logic
but the way of facts to JSON and back.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from callgate.history.shorten import Shortening
from callgate.types import (
    Content,
    Decision,
    FunctionCall,
    JsonObject,
    Limits,
    SessionRule,
    ToolChoice,
    ToolDefinition,
    ToolResult,
    Usage,
)

__all__ = [
    "HOW_TO_CALL",
    "Adopted",
    "AlwaysRevoked",
    "ApprovalAnswered",
    "AskApproval",
    "AskModel",
    "CallChecked",
    "CallDecided",
    "CallEnded",
    "CallStarted",
    "Cancelled",
    "CheckOutput",
    "Fact",
    "Finish",
    "HistoryGiven",
    "HistoryShortened",
    "JournalledFact",
    "KnownTool",
    "ModelAnswered",
    "ModelFailed",
    "NestedCall",
    "OutputChecked",
    "Recovered",
    "Renamed",
    "Rewound",
    "RunStarted",
    "Shorten",
    "Timestamped",
    "Todo",
    "ToolsKnown",
    "Unreadable",
    "dated",
]


# Facts -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Timestamped:
    """What all facts have: when they became true. No state depends on it, so facts that differ in it alone are equal."""

    at_s: float | None = field(default=None, compare=False, repr=False)
    """Seconds since 1970; None in a journal that was written before times were kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTool:
    """What the loop must know of a tool to order its calls and to recover them."""

    digest: str
    """Hash of what was declared; a call that was checked against another one is checked again."""
    ordered: bool = False
    read_only: bool = False
    repeatable: bool = False
    reader: bool = False
    """Whether it is callgate's own tool that reads what was left out of long results."""

    @classmethod
    def of(cls, definition: ToolDefinition, digest: str) -> KnownTool:
        """The known facts of a definition."""
        return cls(
            digest=digest, ordered=definition.ordered, read_only=definition.read_only, repeatable=definition.repeatable
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsKnown(Timestamped):
    """These tools are declared from now on. `names` maps declared names to tools' own names."""

    tools: Mapping[str, KnownTool]
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryGiven(Timestamped):
    """The conversation goes on from these contents instead of what it had."""

    contents: list[Content]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Timestamped):
    """The user said something; without `content` the conversation simply goes on where it stopped."""

    content: Content | None
    tool_choice: ToolChoice = "auto"
    limits: Limits = field(default_factory=Limits)
    output: JsonObject | None = None
    """The JSON Schema that the answer must fit, if it must fit one."""
    request: str | None = None
    """What the request is called that asked for the run, if it may be sent again: it begins one run, not two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAnswered(Timestamped):
    """A complete answer of the model."""

    content: Content
    calls: tuple[FunctionCall, ...] = ()
    finish_reason: str
    finish_message: str = ""
    usage: Usage = Usage()
    salvaged: tuple[FunctionCall, ...] = ()
    """Calls read from Python text of a malformed answer."""
    model: str = ""
    """What the model that answered is called."""
    origin: str | None = None
    """Whose signatures the content carries (see `Conversation.encoded_for`)."""
    cost: float | None = None
    """What the answer cost, if that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryShortened(Timestamped):
    """The oldest contents were left out, or replaced by a summary of them."""

    dropped: int
    """How many contents."""
    plan: Shortening | None = None
    """All that was done, where more was done than to leave out the oldest contents."""
    summary: str | None = None
    usage: Usage = Usage()
    cost: float | None = None

    @property
    def steps(self) -> Shortening:
        """What was done; a summary that was journalled without a plan has all the room it needs."""
        return self.plan or Shortening(dropped=self.dropped, summary_bytes=sys.maxsize)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailed(Timestamped):
    """There is no answer, and the run cannot go on."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputChecked(Timestamped):
    """The answer of a run with `output` was checked. Without problems `value` is what it says, as JSON."""

    value: Any = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallChecked(Timestamped):
    """Name and arguments of a call were checked. `tool` is the tool's own name, None when there is no such tool."""

    id: str
    tool: str | None
    args: Mapping[str, Any]
    problems: tuple[str, ...] = ()
    coercions: tuple[str, ...] = ()
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDecided(Timestamped):
    """The policy has spoken. With `args` a hook changed the arguments, and the call is checked and decided about again."""

    id: str
    decision: Decision
    args: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswered(Timestamped):
    """Somebody answered. With `args` the arguments were changed, and are checked again."""

    id: str
    answer: Literal["yes", "no", "always"]
    args: Mapping[str, Any] | None = None
    reason: str = ""
    rule: SessionRule | None = None
    """What `always` covers from now on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlwaysRevoked(Timestamped):
    """A lasting answer holds no longer; without `rule` none of them does."""

    rule: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted(Timestamped):
    """The call is about to run: from here on its effect may have happened."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded(Timestamped):
    """A started call came to an end: a value, an error, a time-out, a cancellation."""

    id: str
    result: ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedCall(Timestamped):
    """A running tool has called another one. Journalled before that one starts, and again with its result.

    The model knows nothing of it; what it sees is the result of the tool that it called itself.
    """

    parent: str
    """The call that made this one."""
    id: str
    name: str
    args: Mapping[str, Any]
    result: ToolResult | None = None
    rule: SessionRule | None = None
    """What "always" covers from now on, if the user answered so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(Timestamped):
    """The user stopped the run. `partial` is text of the answer that was already shown."""

    reason: str = "The user cancelled the run."
    partial: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered(Timestamped):
    """A new process has taken over; whatever the old one was doing has stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewound(Timestamped):
    """The conversation was put back to its first contents; what came after them was taken back."""

    contents_kept: int
    contents: list[Content] | None = None
    """The contents that it was put back to, where they had been shortened since."""
    position: int | None = None
    """The fact, counted from 0, by which these contents were complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted(Timestamped):
    """The facts before this one were another session's: what was allowed or begun there is not so here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed(Timestamped):
    """The session has this title from now on, whatever was said first in it."""

    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable(Timestamped):
    """A line of the journal that cannot be decoded. It stands where the line stands, and is written back unchanged."""

    problem: str
    """What is wrong with the line."""
    body: bytes
    """The line itself."""


JournalledFact: TypeAlias = (
    ToolsKnown | HistoryGiven | HistoryShortened | RunStarted | ModelAnswered | ModelFailed | CallChecked | CallDecided
    | ApprovalAnswered | AlwaysRevoked | CallStarted | CallEnded | NestedCall | Cancelled | Recovered | Rewound | Adopted
    | OutputChecked | Renamed
)  # fmt: skip
"""The kinds of fact that have a form in the journal."""

Fact: TypeAlias = JournalledFact | Unreadable
"""What a journal gives back."""


# Commands ----------------------------------------------------------------------------------------------------------------


HOW_TO_CALL = (
    "Call tools only through the function-calling interface, never as code or text, with arguments that fit their "
    "declarations."
)
"""What a model is told that made a call wrongly. One that makes calls in another way must be told of that way instead."""


@dataclass(slots=True)
class AskModel:
    """Send the conversation to the model."""

    tool_choice: ToolChoice
    feedback: str | None = None
    """A sentence to put behind the conversation for this request only, after an answer that could not be used."""
    output: JsonObject | None = None
    """The JSON Schema that the answer must fit. With the tool choice `none` nothing but such an answer is wanted."""


@dataclass(slots=True)
class CheckOutput:
    """See whether the model's answer fits what the run must come to."""

    text: str
    schema: JsonObject


@dataclass(slots=True)
class Shorten:
    """The history is too long for the next request."""

    plan: Shortening
    summarize: bool = True
    """Whether the model may be asked for a summary of them; False once that was done often enough."""


@dataclass(slots=True)
class AskApproval:
    """Somebody must say whether this call may run."""

    call: FunctionCall
    reason: str


@dataclass(slots=True)
class Finish:
    """The run is over. With `error` it failed: `malformed`, `empty`, `failed` when the model could not be reached, or
    `output` when there is no answer that fits.
    """

    reason: str
    error: Literal["malformed", "empty", "failed", "output"] | None = None
    message: str = ""


@dataclass(slots=True)
class Todo:
    """Everything that should be done now. Each kind may be carried out in any order; what is being done is asked again."""

    shorten: Shorten | None = None
    ask_model: AskModel | None = None
    check_output: CheckOutput | None = None
    check: tuple[FunctionCall, ...] = ()
    decide: tuple[FunctionCall, ...] = ()
    approve: tuple[AskApproval, ...] = ()
    run: tuple[FunctionCall, ...] = ()
    stop: tuple[FunctionCall, ...] = ()
    finish: Finish | None = None


def dated(fact: Fact, at_s: float) -> Fact:
    """The fact with the time at which it became true, unless it has one."""
    return fact if fact.at_s is not None else replace(fact, at_s=at_s)
