"""Levels of thinking by the generation of a model; what a model refuses is refused before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest

from callgate.errors import UsageError
from callgate.gemini.thinking_config import thinking_fields
from callgate.testing.google_rules import judge

TAKEN: list[tuple[str, Any, dict[str, Any]]] = [
    ("gemini-2.5-flash", "high", {"thinkingBudget": 24_576}),
    ("gemini-2.5-flash", "minimal", {"thinkingBudget": 1_024}),
    ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
    ("gemini-2.5-flash-lite", "low", {"thinkingBudget": 1_024}),
    ("gemini-2.5-flash-lite", 0, {"thinkingBudget": 0}),
    ("gemini-2.5-pro", "high", {"thinkingBudget": 24_576}),
    ("gemini-2.5-pro", 128, {"thinkingBudget": 128}),
    ("models/gemini-2.5-pro", -1, {"thinkingBudget": -1}),
    ("google/gemini-2.5-pro", "high", {"thinkingBudget": 24_576}),
    ("publishers/google/models/gemini-2.5-flash", "none", {"thinkingBudget": 0}),
    ("projects/p/locations/l/publishers/google/models/gemini-2.5-flash", "low", {"thinkingBudget": 1_024}),
    ("projects/p/locations/l/endpoints/123", "low", {"thinkingLevel": "LOW"}),
    ("gemini-3.8-flash", "minimal", {"thinkingLevel": "MINIMAL"}),
    ("gemini-3.8-flash", "none", {"thinkingLevel": "MINIMAL"}),
    ("gemini-3.8-flash", 0, {"thinkingLevel": "MINIMAL"}),
    ("gemini-3.8-flash", 5_000, {"thinkingLevel": "MEDIUM"}),
    ("gemini-3.8-flash", 500_000, {"thinkingLevel": "HIGH"}),
    ("gemini-3.8-flash", -1, {}),
    ("gemini-3-pro-preview", 5_000, {"thinkingLevel": "HIGH"}),
    ("gemini-3.1-pro-preview", "Medium", {"thinkingLevel": "MEDIUM"}),
    ("gemini-4-argon", "low", {"thinkingLevel": "LOW"}),
    ("gemini-flash-latest", "minimal", {"thinkingLevel": "LOW"}),
    ("gemini-flash-latest", "none", {"thinkingLevel": "LOW"}),
    ("gemini-pro-latest", "high", {"thinkingLevel": "HIGH"}),
    ("some-model", 9, {"thinkingLevel": "LOW"}),
    ("gemini-3.8-flash", True, {"includeThoughts": True}),
]
REFUSED: list[tuple[str, Any, str]] = [
    ("gemini-2.5-pro", 0, "cannot be turned off"),
    ("gemini-2.5-pro", "none", "cannot be turned off"),
    ("gemini-2.5-pro", 100_000, "128 to 32768 tokens"),
    ("gemini-2.5-flash-lite", 100, "512 to 24576 tokens"),
    ("gemini-2.5-flash", -2, "1 to 24576 tokens"),
    ("gemini-3.8-flash", -2, "0 or more"),
    ("gemini-3.1-pro-preview", "minimal", "use 'low' or 'medium' or 'high'"),
    ("gemini-3-pro-preview", "medium", "use 'low' or 'high'"),
    ("gemini-4-argon", 0, "use 'low' or 'medium' or 'high'"),
    ("gemini-4-argon", "none", "use 'low'"),
    ("gemini-2.0-flash", "low", "does not think"),
    ("gemini-2.5-flash-image", 0, "does not think"),
    ("gemini-3.8-flash", "much", "use one of 'minimal'"),
    ("gemini-3.8-flash", 1.5, "use one of 'minimal'"),
]


@pytest.mark.parametrize(("model", "value", "fields"), TAKEN)
def test_a_level_or_a_number_is_what_the_generation_takes(model: str, value: Any, fields: dict[str, Any]) -> None:
    assert thinking_fields(value, model) == fields
    body = {"contents": [{"role": "user", "parts": [{"text": "a"}]}], "generationConfig": {"thinkingConfig": fields}}
    assert judge(body, model=model.rpartition("/")[2]) is None


@pytest.mark.parametrize(("model", "value", "said"), REFUSED)
def test_a_value_that_the_model_refuses_is_refused_before_sending(model: str, value: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        thinking_fields(value, model)


@pytest.mark.parametrize(
    ("model", "config"),
    [
        ("gemini-2.5-pro", {"thinkingBudget": 0}),
        ("gemini-2.5-flash-lite", {"thinkingBudget": 100}),
        ("gemini-3.8-flash", {"thinkingBudget": 100, "thinkingLevel": "LOW"}),
        ("gemini-4-argon", {"thinkingBudget": 100}),
        ("gemini-4-argon", {"thinkingLevel": "MINIMAL"}),
    ],
)
def test_the_fake_refuses_what_google_refuses(model: str, config: dict[str, Any]) -> None:
    body = {"contents": [{"role": "user", "parts": [{"text": "a"}]}], "generationConfig": {"thinkingConfig": config}}
    refusal = judge(body, model=model)
    assert refusal is not None
    assert refusal.rule == "thinking_level"
