"""What comes out of a model's text: the words of this package.

Nothing comes in and nothing goes out; this file knows no grammar.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["CallError", "ErrorCode", "Outcome", "Parsed", "ParsedCall", "Text"]

ErrorCode: TypeAlias = Literal["bad_arguments", "incomplete", "bad_syntax", "unknown_tool", "midline_call"]
"""Why a call did not come about; the table is in `docs/prompted.md`."""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of what the model said beside its calls."""

    text: str


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call of a known tool with complete arguments."""

    name: str
    args: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    """What was repaired while reading it, each a sentence."""
    raw: str = ""
    """What the model wrote, from the marker to the closing bracket."""


@dataclass(frozen=True, slots=True)
class CallError:
    """Something that was meant as a call and cannot run."""

    code: ErrorCode
    name: str
    """The tool as the model wrote it; empty where it named none."""
    message: str
    """A sentence by which a model can correct itself."""
    raw: str = ""
    args: Mapping[str, Any] | None = None
    """The arguments, where they could be read: a call of an unknown tool, or in the middle of a line."""


Outcome: TypeAlias = Text | ParsedCall | CallError
"""What a parser gives out, in the order in which it was raw_call."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A whole answer, taken apart."""

    calls: list[ParsedCall] = field(default_factory=list[ParsedCall])
    text: str = ""
    """What is left when the calls are taken out, white space stripped at both ends."""
    errors: list[CallError] = field(default_factory=list[CallError])
