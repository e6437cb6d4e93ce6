"""The events of a run: one closed list, in the order in which they occur.

Every output format (terminal, JSON lines, server-sent events) is an encoder over this list. Every `CallProposed` is
followed by exactly one `CallFinished` with the same call id, even if a stream is cut off or a run is cancelled.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from callgate.metadata import AnswerMetadata, ServerStep
from callgate.types import FinishReason, FunctionCall, JsonObject, Media, OutputT, Reply, ToolResult, Usage

T = TypeVar("T")

__all__ = [
    "EVENTS", "ApprovalNeeded", "CallArgsDelta", "CallFinished", "CallProgress", "CallProposed", "CallStarted", "Event",
    "EventOf", "MediaReceived", "MetadataReported", "Notice", "OutputDelta", "RunEnded", "ServerStepReported", "TextDelta",
    "ThoughtDelta", "TurnEnded", "UsageReported", "plain", "to_json",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer."""

    text: str
    """The piece."""


@dataclass(frozen=True, slots=True)
class OutputDelta(Generic[OutputT]):
    """The typed output so far, while the answer of a run with `output=` still arrives.

    Every value that is there has been validated; the last text and the last item of a list may still grow. A number is
    there when it is complete, and so is a string that stands for something else, such as a date.
    The final, complete value is `reply.output`.
    """

    partial: OutputT | Any
    """An instance of the type, in which required fields that have not arrived are None (in a TypedDict they are missing). A
    type checker knows its fields by the type; `Any` is there because each of them may be None."""


@dataclass(frozen=True, slots=True)
class ThoughtDelta:
    """A piece of the model's reasoning; not part of the answer."""

    text: str
    """The piece."""


@dataclass(frozen=True, slots=True)
class MediaReceived:
    """The model made an image, a sound or a file, as a part of its answer."""

    media: Media
    """The image, sound or file."""


@dataclass(frozen=True, slots=True)
class ServerStepReported:
    """The provider ran a step by itself: it executed code, searched, or read pages; or this is the result of that."""

    step: ServerStep
    """The step."""


@dataclass(frozen=True, slots=True)
class CallProposed:
    """The model requested a call. Nothing has been checked or run.

    With streamed arguments this comes with their first piece, and `CallArgsDelta` events follow; the final arguments are
    in `CallStarted`.
    """

    call: FunctionCall
    """The call, before it was checked."""


@dataclass(frozen=True, slots=True)
class CallArgsDelta:
    """A piece of a call's arguments, as text, while they are still arriving."""

    call_id: str
    """The id of the call."""
    text: str
    """The next piece of the JSON text of its arguments."""


@dataclass(frozen=True, slots=True)
class ApprovalNeeded:
    """The call waits for approval; `reason` says why it is needed."""

    call: FunctionCall
    """The call that waits."""
    reason: str
    """A sentence on why it needs approval."""
    preview: str | None = None
    """A preview of the call's effect, such as a diff, if its tool has one."""
    always: str = ""
    """The scope of an `always` answer in words, such as `for /src/**`."""
    confirm: str = ""
    """The text that the approver must type to confirm the call, if a rule wants that."""


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The call is running, with the arguments shown here."""

    call: FunctionCall
    """The call, with the arguments that it runs with."""
    preview: str | None = None
    """The change it is about to make, such as a diff, if a person approved the call and its tool has a preview."""


@dataclass(frozen=True, slots=True)
class CallProgress:
    """A running tool reported its progress."""

    call_id: str
    """The id of the call."""
    message: str
    """The report of the tool."""
    fraction: float | None = None
    """The share that is done, from 0 to 1, if the tool says so."""


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The call is over; `result` is what the model gets."""

    call: FunctionCall
    """The call."""
    result: ToolResult
    """Its outcome, errors and refusals included."""


@dataclass(frozen=True, slots=True)
class UsageReported:
    """Tokens of one answer of the model."""

    usage: Usage
    """Tokens of one request and its answer."""


@dataclass(frozen=True, slots=True)
class MetadataReported:
    """Sources, citations, search suggestions, ratings and probabilities of one answer of the model, when it is complete."""

    metadata: AnswerMetadata
    """The metadata of one answer."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Information for the user: a retry, a repair, a limit. `code` is stable, `message` is a sentence."""

    code: str
    """A stable code: see the list of notices."""
    message: str
    """A sentence for people."""
    level: Literal["info", "warning"] = "info"
    """`warning` if something should be done about it."""


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """One answer of the model is complete, and so are its calls."""

    turn: int
    """Number of the turn in its run, from 1 on."""
    finish_reason: FinishReason
    """The provider's reason, such as `STOP`."""


@dataclass(frozen=True, slots=True)
class RunEnded(Generic[OutputT]):
    """The run is over. Always the last event of a run that did not raise."""

    reply: Reply[OutputT]
    """The result of the run, the same that `Gate.run` returns."""


EventOf: TypeAlias = (
    TextDelta | OutputDelta[T] | ThoughtDelta | MediaReceived | ServerStepReported | CallProposed | CallArgsDelta
    | ApprovalNeeded | CallStarted | CallProgress | CallFinished | UsageReported | MetadataReported | Notice | TurnEnded
    | RunEnded[T]
)  # fmt: skip
"""The events of a run with `output=T`."""

Event: TypeAlias = (
    TextDelta | OutputDelta | ThoughtDelta | MediaReceived | ServerStepReported | CallProposed | CallArgsDelta
    | ApprovalNeeded | CallStarted | CallProgress | CallFinished | UsageReported | MetadataReported | Notice | TurnEnded
    | RunEnded
)  # fmt: skip
"""Any event."""

EVENTS: tuple[type[Event], ...] = (
    TextDelta, OutputDelta, ThoughtDelta, MediaReceived, ServerStepReported, CallProposed, CallArgsDelta, ApprovalNeeded,
    CallStarted, CallProgress, CallFinished, UsageReported, MetadataReported, Notice, TurnEnded, RunEnded,
)  # fmt: skip
"""The classes of all events."""


def to_json(event: Event) -> JsonObject:
    """The event as a JSON object: its fields, and `type` with the name of its class in snake_case."""
    return {"type": _NAMES[type(event)], **plain(event)}


def plain(value: Any) -> Any:
    """Convert callgate's types to the JSON of events: an object for each, with the names of its fields."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {
            name: item if type(item := getattr(value, name)) in _SIMPLE else _PLAIN.get(name, plain)(item)
            for name in _names_of(type(value))
        }
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return dict(value) if isinstance(value, Mapping) else value  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


_SIMPLE = frozenset({str, int, float, bool, type(None)})


@functools.cache
def _names_of(kind: type) -> tuple[str, ...]:
    # Encoded parts of a reply are decoded, and internal fields are omitted.
    names = [field.name for field in fields(kind) if field.name != "plain_json"]
    return tuple("contents" if name == "history" else name for name in names)


def _typed(value: Any) -> Any:
    """A value of any type, which only pydantic can write."""
    if value is None or isinstance(value, (str, int, float)):
        return value
    from pydantic_core import to_jsonable_python

    return to_jsonable_python(value, inf_nan_mode="null", fallback=repr)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


# Fields that may hold more than our types and JSON.
_PLAIN: dict[str, Callable[[Any], Any]] = {"output": _typed, "partial": _typed, "data": _base64}


def _snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() and i else c.lower() for i, c in enumerate(name))


_NAMES = {kind: _snake(kind.__name__) for kind in EVENTS}
