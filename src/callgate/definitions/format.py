"""The words of a conversion: what every format is read into and written from, and what a format is.

Frozen data without behaviour, but for `WriteContext`, which gathers losses. This file knows no format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from callgate.types import JsonObject, Loss, ToolDefinition

if TYPE_CHECKING:
    from callgate.definitions.json_node import Node

__all__ = [
    "KINDS",
    "Blob",
    "Call",
    "Format",
    "Item",
    "Kind",
    "Message",
    "Other",
    "Result",
    "ResultPart",
    "Text",
    "Thought",
    "Tool",
    "Value",
    "WriteContext",
]  # fmt: skip

Kind: TypeAlias = Literal["tool", "call", "result", "history"]
"""What is converted."""

KINDS: tuple[Kind, ...] = ("tool", "call", "result", "history")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A definition, and what its source said beside it. `at` is everywhere a JSON pointer to the place in the source."""

    definition: ToolDefinition
    at: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What a definition has no word for, under the pointer to it from the tool (`strict`, `annotations/openWorldHint`)."""
    places: Mapping[str, str] = field(default_factory=dict[str, str])
    """Field of the definition -> where the tool says it, if not under the field's own name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Something that was said."""

    text: str
    at: str = ""
    signature: str | None = None
    is_refusal: bool = False
    """Whether the model says by it that it will not answer, where the format tells that from an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """Reasoning of a model, and the mark by which its maker knows it again."""

    text: str
    at: str = ""
    signature: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """An image, a document or a sound: bytes in base64, or an address."""

    mime_type: str
    data: str | None = None
    uri: str | None = None
    name: str | None = None
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A JSON value inside a result, where the format tells values from text."""

    value: Any
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """Something that only its own format has a word for, as it came."""

    raw: JsonObject
    keyword: str
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a function."""

    name: str
    args: JsonObject | None = field(default_factory=dict[str, Any])
    """None where the arguments could not be read."""
    raw: Any = None
    """Arguments that were text or could not be read, as they came."""
    problem: str = ""
    """Why they could not be read."""
    is_custom: bool = False
    """Whether the tool takes plain text instead of arguments; it stands in `raw`, and in `args` under `input`."""
    id: str | None = None
    at: str = ""
    signature: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What became of a call."""

    id: str | None = None
    """The id of the call."""
    name: str | None = None
    is_error: bool = False
    parts: tuple[ResultPart, ...] = ()
    notes: tuple[str, ...] = ()
    """What should be known besides the value."""
    raw: JsonObject | None = None
    """The object that it came as, for its own format."""
    at: str = ""


ResultPart: TypeAlias = "Text | Value | Blob | Other"
Item: TypeAlias = "Text | Thought | Blob | Call | Result | Other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What one side said at once."""

    role: Literal["system", "user", "model"]
    items: tuple[Item, ...]
    at: str = ""


class WriteContext:
    """Where a writer reports what its format cannot say."""

    def __init__(self, source: str, target: str, losses: list[Loss], *, in_history: bool = False) -> None:
        self.is_same = source == target
        """Whether the source is of the same format, so that its own marks stay good."""
        self.in_history = in_history
        """Whether calls and results stand together, so that each says what the other leaves out."""
        self.losses = losses

    def lose(self, at: str, keyword: str, reason: str, instead: str = "") -> None:
        """Reports something that cannot be carried over, and what is done in its place."""
        self.losses.append(Loss(pointer=at, keyword=keyword, reason=reason, instead=instead))


Names: TypeAlias = Callable[[Sequence[str]], dict[str, str]]
"""Names -> the names that the format allows, each with the name it stands for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One foreign shape: how it is told from others, read and written. What a format does not have is None."""

    name: str
    title: str
    """The name in sentences."""
    detect: Callable[[Any], frozenset[Kind]]
    """What an object (not a list) may be in this format; empty if it is none of it."""
    tools_from: Callable[[Node], list[Tool]] | None = None
    tools_to: Callable[[Sequence[Tool], WriteContext], list[Any]] | None = None
    tools_wrap: Callable[[list[Any]], Any] = list[Any]
    """Several tools as the format lists them."""
    calls_from: Callable[[Node], list[Call]] | None = None
    calls_to: Callable[[Sequence[Call], WriteContext], list[Any]] | None = None
    results_from: Callable[[Node], list[Result]] | None = None
    results_to: Callable[[Sequence[Result], WriteContext], list[Any]] | None = None
    history_from: Callable[[Node], list[Message]] | None = None
    history_to: Callable[[Sequence[Message], WriteContext], Any] | None = None
    names: Names | None = None
    """None where any name will do."""
    ids: re.Pattern[str] | None = None
    """What an id must look like where every call needs one; None where an id is optional."""

    def reader(self, kind: Kind) -> Callable[[Node], list[Any]] | None:
        """What reads this kind, if the format has it."""
        return {
            "tool": self.tools_from, "call": self.calls_from, "result": self.results_from, "history": self.history_from,
        }[kind]  # fmt: skip

    def writer(self, kind: Kind) -> Callable[[Sequence[Any], WriteContext], Any] | None:
        """What writes this kind, if the format has it."""
        return {"tool": self.tools_to, "call": self.calls_to, "result": self.results_to, "history": self.history_to}[kind]
