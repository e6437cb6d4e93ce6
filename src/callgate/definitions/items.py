"""The common model of a conversion: every format is read into these types and written from them.

Frozen data without behaviour. `at` is everywhere a JSON pointer to the place in the source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from callgate.content.media_view import MediaView
from callgate.types import JsonObject, ToolDefinition

__all__ = [
    "Blob", "Call", "HostedTool", "Item", "Message", "Other", "Result", "ResultPart", "Text", "Thought", "Tool", "Value",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A definition, and the other fields of its source."""

    definition: ToolDefinition
    at: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Fields that a definition lacks, by their pointer from the tool (`strict`, `annotations/openWorldHint`)."""
    places: Mapping[str, str] = field(default_factory=dict[str, str])
    """Field of the definition -> its place in the tool, if not under the field's own name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedTool:
    """An entry of a list of tools that only its own provider can use, verbatim."""

    raw: JsonObject
    keyword: str
    reason: str
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A text of either side."""

    text: str
    at: str = ""
    signature: str | None = None
    is_refusal: bool = False
    """True if the model refuses to answer, in formats that distinguish that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """Reasoning of a model, and the signature by which its provider verifies it."""

    text: str
    at: str = ""
    signature: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """An image, a document or audio: bytes in base64, or a URL."""

    mime_type: str
    data: str | None = None
    uri: str | None = None
    name: str | None = None
    view: MediaView = field(default_factory=MediaView)
    """The part of it that is looked at, and how closely, in formats that say so."""
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A JSON value inside a result, in formats that distinguish values from text."""

    value: Any
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    """An item that only its own format supports, verbatim."""

    raw: JsonObject
    keyword: str
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of a function."""

    name: str
    args: JsonObject | None = field(default_factory=dict[str, Any])
    """None if the arguments are unreadable."""
    raw: Any = None
    """Arguments that are text or unreadable, verbatim."""
    problem: str = ""
    """The reason why they are unreadable."""
    is_custom: bool = False
    """True if the tool takes plain text instead of arguments; it is in `raw`, and in `args` under `input`."""
    id: str | None = None
    at: str = ""
    signature: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a call."""

    id: str | None = None
    """The id of the call."""
    name: str | None = None
    is_error: bool = False
    parts: tuple[ResultPart, ...] = ()
    notes: tuple[str, ...] = ()
    """Notes besides the value."""
    raw: JsonObject | None = None
    """The original object, for its own format."""
    at: str = ""


ResultPart: TypeAlias = "Text | Value | Blob | Other"
Item: TypeAlias = "Text | Thought | Blob | Call | Result | Other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a history."""

    role: Literal["system", "user", "model"]
    items: tuple[Item, ...]
    at: str = ""
