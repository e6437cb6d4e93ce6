"""What the loop is told (facts) and what it asks for (commands).

Facts are the journal: plain data with a schema version, appended in the order in which they became true and replayed, never
recomputed. Commands are what should be done next; they follow from the facts and are never stored. This file holds no logic
but the way of facts to JSON and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias, cast

from callgate import strict_json
from callgate.errors import JsonError
from callgate.types import (
    NO_USAGE,
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
    frozen_for_checkers,
)

__all__ = [
    "HOW_TO_CALL", "SCHEMA_VERSION", "Adopted", "AlwaysRevoked", "ApprovalAnswered", "AskApproval", "AskModel",
    "CallChecked", "CallDecided", "CallEnded", "CallStarted", "Cancelled", "CheckOutput", "Dated", "Fact", "Finish",
    "HistoryGiven", "HistoryShortened", "InnerCall", "KnownTool", "ModelAnswered", "ModelFailed", "OutputChecked",
    "Recovered", "Renamed", "Rewound", "RunStarted", "Shorten", "Todo", "ToolsKnown", "dated", "decode", "encode",
]  # fmt: skip

SCHEMA_VERSION = 1


# Facts -------------------------------------------------------------------------------------------------------------------


@frozen_for_checkers
class Dated:
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

    @classmethod
    def of(cls, definition: ToolDefinition, digest: str) -> KnownTool:
        """The known facts of a definition."""
        return cls(
            digest=digest, ordered=definition.ordered, read_only=definition.read_only, repeatable=definition.repeatable
        )


@frozen_for_checkers
class ToolsKnown(Dated):
    """These tools are declared from now on. `names` maps declared names to tools' own names."""

    tools: Mapping[str, KnownTool]
    names: Mapping[str, str]


@frozen_for_checkers
class HistoryGiven(Dated):
    """The conversation goes on from these contents instead of what it had."""

    contents: list[Content]


@frozen_for_checkers
class RunStarted(Dated):
    """The user said something; without `content` the conversation simply goes on where it stopped."""

    content: Content | None
    tool_choice: ToolChoice = "auto"
    limits: Limits = field(default_factory=Limits)
    output: JsonObject | None = None
    """The JSON Schema that the answer must fit, if it must fit one."""
    request: str | None = None
    """What the request is called that asked for the run, if it may be sent again: it begins one run, not two."""


@frozen_for_checkers
class ModelAnswered(Dated):
    """A complete answer of the model."""

    content: Content
    calls: tuple[FunctionCall, ...] = ()
    finish_reason: str
    finish_message: str = ""
    usage: Usage = NO_USAGE
    salvaged: tuple[FunctionCall, ...] = ()
    """Calls read from Python text of a malformed answer."""
    model: str = ""
    """What the model that answered is called."""
    origin: str | None = None
    """Whose signatures the content carries (see `Conversation.encoded_for`)."""
    cost: float | None = None
    """What the answer cost, if that is known."""


@frozen_for_checkers
class HistoryShortened(Dated):
    """The oldest contents were left out, or replaced by a summary of them."""

    dropped: int
    """How many contents."""
    summary: str | None = None
    usage: Usage = NO_USAGE
    cost: float | None = None


@frozen_for_checkers
class ModelFailed(Dated):
    """There is no answer, and the run cannot go on."""

    message: str


@frozen_for_checkers
class OutputChecked(Dated):
    """The answer of a run with `output` was checked. Without problems `value` is what it says, as JSON."""

    value: Any = None
    problems: tuple[str, ...] = ()


@frozen_for_checkers
class CallChecked(Dated):
    """Name and arguments of a call were checked. `tool` is the tool's own name, None when there is no such tool."""

    id: str
    tool: str | None
    args: Mapping[str, Any]
    problems: tuple[str, ...] = ()
    coercions: tuple[str, ...] = ()
    digest: str = ""


@frozen_for_checkers
class CallDecided(Dated):
    """The policy has spoken. With `args` a hook changed the arguments, and the call is checked and decided about again."""

    id: str
    decision: Decision
    args: Mapping[str, Any] | None = None


@frozen_for_checkers
class ApprovalAnswered(Dated):
    """Somebody answered. With `args` the arguments were changed, and are checked again."""

    id: str
    answer: Literal["yes", "no", "always"]
    args: Mapping[str, Any] | None = None
    reason: str = ""
    rule: SessionRule | None = None
    """What `always` covers from now on."""


@frozen_for_checkers
class AlwaysRevoked(Dated):
    """A lasting answer holds no longer; without `rule` none of them does."""

    rule: str | None = None


@frozen_for_checkers
class CallStarted(Dated):
    """The call is about to run: from here on its effect may have happened."""

    id: str


@frozen_for_checkers
class CallEnded(Dated):
    """A started call came to an end: a value, an error, a time-out, a cancellation."""

    id: str
    result: ToolResult


@frozen_for_checkers
class InnerCall(Dated):
    """A tool that runs has called another one. Told before that one starts, and again with its result.

    The model knows nothing of it; what it sees is the result of the tool that it called itself.
    """

    parent: str
    """The call that made this one."""
    id: str
    name: str
    args: Mapping[str, Any]
    result: ToolResult | None = None


@frozen_for_checkers
class Cancelled(Dated):
    """The user stopped the run. `partial` is text of the answer that was already shown."""

    reason: str = "The user cancelled the run."
    partial: str = ""


@frozen_for_checkers
class Recovered(Dated):
    """A new process has taken over; whatever the old one was doing has stopped."""


@frozen_for_checkers
class Rewound(Dated):
    """The conversation was put back to its first contents; what came after them was taken back."""

    contents_kept: int
    contents: list[Content] | None = None
    """The contents that it was put back to, where they had been shortened since."""
    position: int | None = None
    """The fact, counted from 0, by which these contents were complete."""


@frozen_for_checkers
class Adopted(Dated):
    """The facts before this one were another session's: what was allowed or begun there is not so here."""


@frozen_for_checkers
class Renamed(Dated):
    """The session has this title from now on, whatever was said first in it."""

    title: str


Fact: TypeAlias = (
    ToolsKnown | HistoryGiven | HistoryShortened | RunStarted | ModelAnswered | ModelFailed | CallChecked | CallDecided
    | ApprovalAnswered | AlwaysRevoked | CallStarted | CallEnded | InnerCall | Cancelled | Recovered | Rewound | Adopted
    | OutputChecked | Renamed
)  # fmt: skip


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
    """The history is too long for the next request: its first `contents` are to go."""

    contents: int


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


# To JSON and back --------------------------------------------------------------------------------------------------------

_KINDS: dict[str, type[Any]] = {
    "tools_known": ToolsKnown, "history_given": HistoryGiven, "run_started": RunStarted, "model_answered": ModelAnswered,
    "model_failed": ModelFailed, "call_checked": CallChecked, "call_decided": CallDecided,
    "approval_answered": ApprovalAnswered, "always_revoked": AlwaysRevoked, "call_started": CallStarted,
    "call_ended": CallEnded, "cancelled": Cancelled, "recovered": Recovered, "history_shortened": HistoryShortened,
    "rewound": Rewound, "adopted": Adopted, "output_checked": OutputChecked, "inner_call": InnerCall,
    "renamed": Renamed,
}  # fmt: skip
_NAMES = {kind: name for name, kind in _KINDS.items()}

# Fields of facts that hold words rather than plain JSON. Words hold no further words, so their own fields are plain.
_WORDS: dict[str, type[Any]] = {
    "calls": FunctionCall, "salvaged": FunctionCall, "result": ToolResult, "decision": Decision, "usage": Usage,
    "limits": Limits, "tools": KnownTool, "rule": SessionRule,
}  # fmt: skip
_SELDOM = frozenset({"at_s", "request"})
"""Fields that are not written where they are empty."""
_TUPLES = frozenset({"calls", "salvaged", "problems", "coercions", "notes", "media"})


def encode(fact: Fact) -> bytes:
    """The fact as one line of JSON, with its kind and the version of the schema."""
    return strict_json.dump({"v": SCHEMA_VERSION, "kind": _NAMES[type(fact)], **_plain_fields(fact)})


def decode(line: bytes | str) -> Fact:
    """The fact that `encode` wrote. Fields of later versions of the same schema are ignored.

    Raises:
        JsonError: not a fact, or one of a schema that this version does not know.
    """
    # Contents nest as deep as a tool's result may, so the journal allows somewhat more than the wire.
    raw = strict_json.parse(line, depth_max=2 * strict_json.DEPTH_MAX)
    record = cast("JsonObject", raw) if isinstance(raw, dict) else {}
    kind, version = record.get("kind"), record.get("v")
    if not isinstance(kind, str) or version is None:
        raise JsonError("the journal holds a line that is not a fact")
    if version != SCHEMA_VERSION:
        raise JsonError(f"the journal has schema version {version!r}; this callgate reads version {SCHEMA_VERSION}")
    if kind not in _KINDS:
        raise JsonError(f"the journal holds a fact of the unknown kind {kind!r}")
    try:
        return _built(_KINDS[kind], record)
    except (TypeError, ValueError, AttributeError) as error:
        raise JsonError(f"the journal holds a {kind!r} that cannot be read: {error}") from None


def dated(fact: Fact, at_s: float) -> Fact:
    """The fact with the time at which it became true, unless it has one."""
    return fact if fact.at_s is not None else replace(fact, at_s=at_s)


def _plain_fields(fact: Fact) -> JsonObject:
    return {
        f.name: _plain(f.name, getattr(fact, f.name))
        for f in fields(fact)
        if f.name not in _SELDOM or getattr(fact, f.name) is not None
    }


def _plain(name: str, value: Any) -> Any:
    if name not in _WORDS or not _is_word(value):
        return value
    if name == "tools":
        return {key: _plain_word(item) for key, item in value.items()}
    return [_plain_word(item) for item in value] if name in _TUPLES else _plain_word(value)


def _is_word(value: Any) -> bool:
    # A rule is a word where an answer makes one, and the name of one where it is revoked.
    return value is not None and not isinstance(value, str)


def _plain_word(word: Any) -> JsonObject:
    return {f.name: getattr(word, f.name) for f in fields(word)}


def _built(kind: type[Any], record: JsonObject) -> Any:
    return kind(**{f.name: _read(f.name, record[f.name]) for f in fields(kind) if f.name in record})


def _read(name: str, value: Any) -> Any:
    word = _WORDS.get(name)
    if word is None or not _is_word(value):
        return tuple(value) if name in _TUPLES else value
    if name == "tools":
        return {key: _built_word(word, item) for key, item in value.items()}
    return tuple(_built_word(word, item) for item in value) if name in _TUPLES else _built_word(word, value)


def _built_word(word: type[Any], record: JsonObject) -> Any:
    known = {f.name: record[f.name] for f in fields(word) if f.name in record}
    built = word(**{name: tuple(value) if name in ("notes", "media", "paths") else value for name, value in known.items()})
    # The first usage of a run is taken as it is, and only added to later: what cannot be added must not come in.
    if isinstance(built, Usage) and not all(isinstance(count, int) for count in known.values()):
        raise ValueError("what was used is not counted in whole numbers")
    return built
