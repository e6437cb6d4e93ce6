"""The outcomes of parsing a model's text.

Pure data; this file knows no grammar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["CallError", "ErrorCode", "Outcome", "Parsed", "ParsedCall", "Text"]

ErrorCode: TypeAlias = Literal["bad_arguments", "incomplete", "bad_syntax", "unknown_tool", "midline_call"]
"""The reason why a call is invalid; the table is in `docs/prompted.md`."""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the model's text outside its calls."""

    text: str
    """The piece."""


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call of a known tool with complete arguments."""

    name: str
    """The tool's own name."""
    args: Mapping[str, Any]
    """The arguments."""
    notes: tuple[str, ...] = ()
    """The repairs, each a sentence."""
    raw: str = ""
    """The text of the call, from the marker to the closing bracket."""


@dataclass(frozen=True, slots=True)
class CallError:
    """Something that was meant as a call and cannot run."""

    code: ErrorCode
    """The kind of error."""
    name: str
    """The tool as the model wrote it; empty if it named none."""
    message: str
    """A sentence by which a model can correct itself."""
    raw: str = ""
    """The text as the model wrote it."""
    args: Mapping[str, Any] | None = None
    """The arguments, if they are readable: a call of an unknown tool, or in the middle of a line."""


Outcome: TypeAlias = Text | ParsedCall | CallError
"""The outcomes, in the order of the text."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A whole answer, taken apart."""

    calls: list[ParsedCall] = field(default_factory=list[ParsedCall])
    """The calls that can run, in their order."""
    text: str = ""
    """The text without the calls, stripped at both ends."""
    errors: list[CallError] = field(default_factory=list[CallError])
    """Texts that were meant as calls and cannot run."""
