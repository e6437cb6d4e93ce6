"""Test doubles as product code: a scripted model, and a fake Gemini server on loopback (`callgate.testing.fake_gemini`).

Everything here is public and documented, so that programs built on callgate can be tested the way callgate is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callgate.testing.scripted_model import (
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

if TYPE_CHECKING:
    from callgate.testing.fake_anthropic import FakeAnthropic
    from callgate.testing.fake_gemini import FakeGemini
    from callgate.testing.fake_interactions import FakeInteractions
    from callgate.testing.fake_openai import FakeOpenAI

__all__ = [
    "FakeAnthropic", "FakeGemini", "FakeInteractions", "FakeOpenAI", "RecordedRequest", "ScriptItem", "ScriptedModel",
    "answer", "call", "call_with", "empty", "malformed", "text", "thought",
]  # fmt: skip

_SERVERS = {
    "FakeAnthropic": "callgate.testing.fake_anthropic",
    "FakeGemini": "callgate.testing.fake_gemini",
    "FakeInteractions": "callgate.testing.fake_interactions",
    "FakeOpenAI": "callgate.testing.fake_openai",
}


def __getattr__(name: str) -> Any:
    # The servers load the whole wire, which a test with a scripted model does not need.
    if name not in _SERVERS:
        raise AttributeError(f"module 'callgate.testing' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_SERVERS[name]), name)
