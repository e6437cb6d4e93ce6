"""Prompted calling, the twin of native calling: tools described in text, calls parsed from text.

Definitions and contents become prompts; a model's text becomes calls. Pure: the model itself is `callgate.models.prompted`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.lazy_names import lazy_names

if TYPE_CHECKING:
    from callgate.prompted.outcomes import CallError, Outcome, Parsed, ParsedCall, Text
    from callgate.prompted.parser import CallParser, parse_text
    from callgate.prompted.render import (
        HOW_TO_WRITE,
        STOP_SEQUENCE,
        render_call,
        render_content,
        render_response,
        render_tools,
    )

__all__ = [
    "HOW_TO_WRITE", "STOP_SEQUENCE", "CallError", "CallParser", "Outcome", "Parsed", "ParsedCall", "Text", "parse_text",
    "render_call", "render_content", "render_response", "render_tools",
]  # fmt: skip

__getattr__ = lazy_names(__name__, {
    "outcomes": ("CallError", "Outcome", "Parsed", "ParsedCall", "Text"),
    "parser": ("CallParser", "parse_text"),
    "render": ("HOW_TO_WRITE", "STOP_SEQUENCE", "render_call", "render_content", "render_response", "render_tools"),
})  # fmt: skip
