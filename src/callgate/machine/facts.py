"""The inputs of the machine (facts) and its outputs (commands).

Facts are the journal: plain data with a schema version, appended in the order in which they became true and replayed,
never recomputed. Commands are what to do next; they are derived from the facts and never stored. The only logic here is
how a journal is read on past a damaged fact.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
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
    "ExchangeForgotten",
    "Fact",
    "Finish",
    "HistoryGiven",
    "HistoryShortened",
    "JournalledFact",
    "KnownTool",
    "ModelAccepted",
    "ModelAnswered",
    "ModelFailed",
    "ModelLent",
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
    "UploadedFile",
    "dated",
    "replay",
]


# Facts -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Timestamped:
    """Base of all facts: when they became true. No state depends on it, so facts that differ only in it are equal."""

    at_s: float | None = field(default=None, compare=False, repr=False)
    """Seconds since 1970; None in an old journal without times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTool:
    """The properties of a tool that the machine needs to order and recover its calls."""

    digest: str
    """Hash of the declaration; a call checked against another one is checked again."""
    ordered: bool = False
    read_only: bool = False
    repeatable: bool = False
    reader: bool = False
    """True for callgate's own tool that reads the omitted part of long results."""

    @classmethod
    def of(cls, definition: ToolDefinition, digest: str) -> KnownTool:
        """Return the known facts of a definition."""
        return cls(
            digest=digest, ordered=definition.ordered, read_only=definition.read_only, repeatable=definition.repeatable
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedFile:
    """A file at the provider that a session refers to; it is deleted with the session."""

    name: str
    uri: str
    mime_type: str = ""
    size: int = 0
    sha256: str = ""
    expires_s: float | None = None
    """Time of its deletion by the provider, in seconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolsKnown(Timestamped):
    """These tools are declared from now on. `names` maps declared names to tools' own names."""

    tools: Mapping[str, KnownTool]
    names: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryGiven(Timestamped):
    """The conversation continues from these contents instead of its own."""

    contents: list[Content]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(Timestamped):
    """The user's input; without `content` the conversation continues where it stopped."""

    content: Content | None
    tool_choice: ToolChoice = "auto"
    limits: Limits = field(default_factory=Limits)
    output: JsonObject | None = None
    """The JSON Schema of the answer, if it must fit one."""
    uploads: tuple[UploadedFile, ...] | None = None
    """The files that the content refers to, if some were uploaded."""
    request: str | None = None
    """The idempotency key of the request, if it has one: a retry starts no second run."""


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
    """The name of the model that answered."""
    origin: str | None = None
    """The origin of the signatures in the content (see `Conversation.encoded_for`)."""
    cost: float | None = None
    """The cost of the answer, if known."""
    metadata: tuple[JsonObject, ...] | None = None
    """The metadata that the provider sent beside the content, as received; None without any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccepted(Timestamped):
    """The server keeps the answer under this id, or will: any process can ask for it, and it goes with the session."""

    id: str
    origin: str
    """The API and the model that accepted the request."""
    background: bool | None = None
    """True if the server works on it by itself, also when nobody is connected; None in old journals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryShortened(Timestamped):
    """The oldest contents were left out, or replaced by a summary of them."""

    dropped: int
    """The number of contents."""
    plan: Shortening | None = None
    """The whole plan, if more was done than to drop the oldest contents."""
    summary: str | None = None
    usage: Usage = Usage()
    cost: float | None = None

    @property
    def steps(self) -> Shortening:
        """The plan; a summary that was journalled without one has unlimited room."""
        return self.plan or Shortening(dropped=self.dropped, summary_bytes=sys.maxsize)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailed(Timestamped):
    """There is no answer, and the run cannot continue."""

    message: str
    error: str = ""
    """The class of the error, as in `AuthError`; empty in old journals."""
    partial: str = ""
    """Text of the answer that was already shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLent(Timestamped):
    """A server of a running call was lent the model for one request; nothing of it is part of the conversation."""

    server: str
    model: str
    usage: Usage = Usage()
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputChecked(Timestamped):
    """The answer of a run with `output` was checked. Without problems `value` is its JSON value."""

    value: Any = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallChecked(Timestamped):
    """Name and arguments of a call were checked. `tool` is the tool's own name, None if there is no such tool."""

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
    confirm: str | None = None
    """The text that an approver repeats to confirm the call, if the policy wants that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalAnswered(Timestamped):
    """An approval was answered. With `args` the arguments were edited, and are checked again."""

    id: str
    answer: Literal["yes", "no", "always"]
    args: Mapping[str, Any] | None = None
    reason: str = ""
    rule: SessionRule | None = None
    """The session rule of an `always` answer."""
    by: str = ""
    """Principal that answered, if there are several."""
    message: str = ""
    """The note that a yes came with, for the model. That of a `no` is its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlwaysRevoked(Timestamped):
    """A session rule is revoked; without `rule` all of them."""

    rule: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted(Timestamped):
    """The call is about to run: from here on it may have had its effect."""

    id: str
    preview: str | None = None
    """The change it is about to make, such as a diff, if a person approved the call and its tool has a preview."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded(Timestamped):
    """A started call ended: a value, an error, a time-out, a cancellation."""

    id: str
    result: ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class NestedCall(Timestamped):
    """A running tool has called another one. Journalled before that one starts, and again with its result.

    The model does not see it; it sees the result of the tool that it called itself.
    """

    parent: str
    """The call that made this one."""
    id: str
    name: str
    args: Mapping[str, Any]
    result: ToolResult | None = None
    rule: SessionRule | None = None
    """The session rule of an "always" answer, if there was one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled(Timestamped):
    """The user stopped the run. `partial` is text of the answer that was already shown."""

    reason: str = "The user cancelled the run."
    partial: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered(Timestamped):
    """Another run has taken over; the one before has no end: its process stopped, or nothing could be written."""

    unknown: str | None = None
    """The error of each call whose end was not written; None in old journals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewound(Timestamped):
    """The conversation was rewound to its first contents; later ones were taken back."""

    contents_kept: int
    contents: list[Content] | None = None
    """The contents after the rewind, if they had been shortened since."""
    position: int | None = None
    """The fact, counted from 0, by which these contents were complete."""
    exchange: str | None = None
    """The id of the first exchange that was taken back; None in old journals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted(Timestamped):
    """The facts before this one belong to another session: nothing allowed or started there is valid here."""

    fork_of: str = ""
    """The session of the same store that they were copied from; empty for facts of external origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed(Timestamped):
    """The session has this title, instead of the first user input."""

    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeForgotten(Timestamped):
    """No client can name this exchange any more; the conversation that goes on after it stays as it is."""

    exchange: str
    """The id of the exchange."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable(Timestamped):
    """A line of the journal that cannot be decoded. It keeps its place, and is written back unchanged."""

    problem: str
    """The reason why the line is invalid."""
    body: bytes
    """The line itself."""


JournalledFact: TypeAlias = (
    ToolsKnown | HistoryGiven | HistoryShortened | RunStarted | ModelAnswered | ModelFailed | CallChecked | CallDecided
    | ApprovalAnswered | AlwaysRevoked | CallStarted | CallEnded | NestedCall | Cancelled | Recovered | Rewound | Adopted
    | OutputChecked | Renamed | ModelAccepted | ModelLent | ExchangeForgotten
)  # fmt: skip
"""The kinds of fact that have a form in the journal."""

Fact: TypeAlias = JournalledFact | Unreadable
"""A fact as read from a journal."""


def replay(journal: Iterable[Fact], begin: Callable[[], Callable[[Fact], object]]) -> bool:
    """Hand the facts of a journal on in order, to the function that `begin` returns; return whether all were taken.

    A fact that cannot be taken (an old or damaged journal) is left out, as `Unreadable`, and everything begins anew.
    """
    left = list(journal)
    is_sound = True
    while True:
        place, take = 0, begin()
        try:
            for fact in left:
                take(fact)
                place += 1
        except Exception as error:
            _quarantine(left, place, error)
            is_sound = False
        else:
            return is_sound


def _quarantine(journal: list[Fact], index: int, error: Exception) -> None:
    """Leave out the fact at an index; or, where nothing can be taken after those before it, the newest answer among them.

    Each time there is one fact less, so that a journal can always be read in the end.
    """
    if isinstance(journal[index], Unreadable):
        sound = [place for place in range(index) if not isinstance(journal[place], Unreadable)]
        answers = [place for place in sound if isinstance(journal[place], ModelAnswered)]
        index = (answers or sound)[-1]
    problem = f"fact {index} ({type(journal[index]).__name__}) cannot be applied: {error}"
    journal[index] = Unreadable(problem=problem, body=b"")


# Commands ----------------------------------------------------------------------------------------------------------------


HOW_TO_CALL = (
    "Call tools only through the function-calling interface, never as code or text, with arguments that fit their "
    "declarations."
)
"""The feedback after an invalid call. Models with another calling convention need another text."""


@dataclass(slots=True)
class AskModel:
    """Send the conversation to the model."""

    tool_choice: ToolChoice
    feedback: str | None = None
    """A sentence appended to the conversation for this request only, after an unusable answer."""
    output: JsonObject | None = None
    """The JSON Schema of the answer. With the tool choice `none` only such an answer is wanted."""
    accepted: ModelAccepted | None = None
    """The request that the server works on already, to be asked for instead of made again."""
    left: ModelAccepted | None = None
    """An earlier one whose answer nobody waits for any more, to be stopped at the server."""


@dataclass(slots=True)
class CheckOutput:
    """Check whether the model's answer fits the required output."""

    text: str
    schema: JsonObject


@dataclass(slots=True)
class Shorten:
    """The history is too long for the next request."""

    plan: Shortening
    summarize: bool = True
    """True if the model may be asked for a summary of them; False after too many attempts."""


@dataclass(slots=True)
class AskApproval:
    """An approval is needed for this call."""

    call: FunctionCall
    reason: str
    confirm: str = ""
    """The text that confirms it, by every policy that asked about it."""


@dataclass(slots=True)
class Finish:
    """The run is over. With `error` it failed: `malformed`, `empty`, `failed` when the model could not be reached, or
    `output` when no answer fits.
    """

    reason: str
    error: Literal["malformed", "empty", "failed", "output"] | None = None
    message: str = ""


@dataclass(slots=True)
class Todo:
    """All commands due now, in any order. Work in progress is included again."""

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
    """Return the fact with the time at which it became true, unless it has one."""
    return fact if fact.at_s is not None else replace(fact, at_s=at_s)
