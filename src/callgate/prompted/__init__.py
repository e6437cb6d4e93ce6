"""The twin of native calling: tools told in words, calls found in text.

Definitions and contents come in and prompts go out; a model's text comes in and calls go out. Pure: the model itself is
`callgate.models.prompted`.
"""

from __future__ import annotations

from callgate.prompted.outcomes import CallError, Outcome, Parsed, ParsedCall, Text
from callgate.prompted.parser import CallParser, parse_text
from callgate.prompted.render import HOW_TO_WRITE, STOP_SEQUENCE, render_call, render_content, render_response, render_tools

__all__ = [
    "HOW_TO_WRITE", "STOP_SEQUENCE", "CallError", "CallParser", "Outcome", "Parsed", "ParsedCall", "Text", "parse_text", "render_call", "render_content",
    "render_response", "render_tools",
]  # fmt: skip
