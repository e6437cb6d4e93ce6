"""Test doubles as product code: a scripted model, and a fake Gemini server on loopback (`callgate.testing.fake_gemini`).

Everything here is public and documented, so that programs built on callgate can be tested the way callgate is.
"""

from __future__ import annotations

from callgate.testing.scripted import (
    RecordedRequest,
    ScriptedModel,
    ScriptItem,
    answer,
    call,
    call_with,
    empty,
    malformed,
    text,
    thought,
)

__all__ = [
    "RecordedRequest", "ScriptItem", "ScriptedModel", "answer", "call", "call_with", "empty", "malformed", "text", "thought",
]  # fmt: skip
