"""Levels of thinking by the generation of a model; what a model refuses is refused before anything is sent."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from callgate import Gate, GeminiModel
from callgate.errors import UsageError
from callgate.events import Notice
from callgate.gemini.thinking_config import thinking_fields, thinking_level, thinking_notices, thinking_words
from callgate.testing import FakeGemini, call
from callgate.testing.google_rules import judge


def env_of(fake: FakeGemini) -> dict[str, str]:
    return {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url}


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
    ("gemini-3.6-flash", "minimal", {"thinkingLevel": "MINIMAL"}),
    ("gemini-3-flash-preview", "minimal", {"thinkingLevel": "MINIMAL"}),
    ("gemini-3.5-flash-lite", "minimal", {"thinkingLevel": "MINIMAL"}),
    ("gemma-4-31b-it", "minimal", {"thinkingLevel": "MINIMAL"}),
    ("gemma-4-31b-it", 500, {"thinkingLevel": "HIGH"}),
    ("gemini-robotics-er-1.5-preview", 0, {"thinkingBudget": 0}),
    ("gemini-3.8-flash", 5_000, {"thinkingLevel": "MEDIUM"}),
    ("gemini-3.8-flash", 500_000, {"thinkingLevel": "HIGH"}),
    ("gemini-3.8-flash", -1, {}),
    ("gemini-3-pro-preview", 5_000, {"thinkingLevel": "HIGH"}),
    ("gemini-3.1-pro-preview", "Medium", {"thinkingLevel": "MEDIUM"}),
    ("gemini-4-argon", "low", {"thinkingLevel": "LOW"}),
    ("gemini-pro-latest", "high", {"thinkingLevel": "HIGH"}),
    ("some-model", 9, {"thinkingLevel": "LOW"}),
    ("gemini-3.8-flash", True, {"includeThoughts": True}),
    ("gemini-2.0-flash", False, {"includeThoughts": False}),
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
    ("gemini-3.8-flash", "minimal", "does not exist for 'gemini-3.8-flash': use 'low' or 'medium' or 'high'"),
    ("gemini-3.7-flash", "minimal", "use 'low'"),
    ("gemini-3.8-flash", "none", "cannot be turned off: use 'low'"),
    ("gemini-3.6-flash", "none", "cannot be turned off: use 'minimal'"),
    ("gemini-3.8-flash", 0, "cannot be turned off"),
    ("gemini-flash-latest", "minimal", "use 'low'"),
    ("gemini-flash-latest", "none", "cannot be turned off"),
    ("gemma-4-31b-it", "low", "use 'minimal' or 'high'"),
    ("gemma-3-27b-it", "low", "does not think"),
    ("gemma-3n-e4b-it", "high", "does not think"),
    ("gemini-2.0-flash", "low", "does not think"),
    ("gemini-2.0-flash", True, "does not think"),
    ("learnlm-2.0-flash-experimental", "low", "does not think"),
    ("gemini-2.5-flash-image", 0, "does not think"),
    ("gemini-3.8-flash", "much", "use one of 'minimal'"),
    ("gemini-3.8-flash", 1.5, "use one of 'minimal'"),
]


@pytest.mark.rows(("model", "value", "fields"), TAKEN)
def test_a_level_or_a_number_is_what_the_generation_takes(model: str, value: Any, fields: dict[str, Any]) -> None:
    assert thinking_fields(value, model) == fields
    body = {"contents": [{"role": "user", "parts": [{"text": "a"}]}], "generationConfig": {"thinkingConfig": fields}}
    assert judge(body, model=model.rpartition("/")[2]) is None


@pytest.mark.rows(("model", "value", "said"), REFUSED)
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
        ("gemini-3.8-flash", {"thinkingLevel": "MINIMAL"}),
    ],
)
def test_the_fake_refuses_what_google_refuses(model: str, config: dict[str, Any]) -> None:
    body = {"contents": [{"role": "user", "parts": [{"text": "a"}]}], "generationConfig": {"thinkingConfig": config}}
    refusal = judge(body, model=model)
    assert refusal is not None
    assert refusal.rule == "thinking_level"


EVERY_MODEL = (
    "gemini-2.5-pro", "gemini-2.5-flash", "gemini-2.5-flash-lite", "gemini-3-pro-preview", "gemini-3.1-pro-preview",
    "gemini-3-flash-preview", "gemini-3.6-flash", "gemini-3.8-flash", "gemini-4-argon", "gemini-flash-latest", "some-model",
    "gemma-3-27b-it", "gemma-4-31b-it", "gemini-2.0-flash",
)  # fmt: skip
EVERY_VALUE = ("none", "minimal", "low", "medium", "high", "xhigh", 0, 1, 600, 5_000, 30_000, 10**6, -1, -2)


@pytest.mark.rows("only_levels", [False, True])
@pytest.mark.rows("model", EVERY_MODEL)
def test_a_value_is_sent_as_asked_or_refused_or_reported(model: str, only_levels: bool) -> None:
    for value in EVERY_VALUE:
        notices = thinking_notices({"thinking": value}, model, only_levels=only_levels)
        try:
            level = thinking_level(value, model) if only_levels else None
            fields = {"thinkingLevel": level} if only_levels else thinking_fields(value, model)
        except UsageError:
            assert notices == []
            assert value not in thinking_words(model, only_levels=only_levels)
            continue
        is_as_asked = value == -1 or "thinkingBudget" in fields or str(fields.get("thinkingLevel")).lower() == value
        assert [notice.code for notice in notices] == ([] if is_as_asked else ["setting_changed"]), (value, fields)
        assert isinstance(value, int) or value in thinking_words(model, only_levels=only_levels)


def test_a_notice_says_once_in_a_run_which_level_is_sent_for_a_number() -> None:
    def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    async def story() -> None:
        async with (
            FakeGemini([call("add", a=1, b=2), "3"]) as fake,
            Gate(GeminiModel("gemini-3.8-flash", env=env_of(fake)), [add], settings={"thinking": 5_000}) as gate,
        ):
            found = [event async for event in gate.stream("1+2?")]
            sent = [json.loads(request.body)["generationConfig"]["thinkingConfig"] for request in fake.requests]
        assert sent == [{"thinkingLevel": "MEDIUM"}] * 2
        assert [event for event in found if isinstance(event, Notice)] == [
            Notice("setting_changed", "thinking=5000: 'gemini-3.8-flash' takes levels of thinking; 'medium' is sent.")
        ]

    asyncio.run(story())


def test_include_thoughts_is_refused_for_a_model_that_does_not_think() -> None:
    async def story() -> None:
        async with (
            FakeGemini(["3"]) as fake,
            Gate(GeminiModel("gemini-2.0-flash", env=env_of(fake)), settings={"include_thoughts": True}) as gate,
        ):
            with pytest.raises(UsageError, match="does not think"):
                await gate.run("1+2?")
            assert fake.requests == []

    asyncio.run(story())
