"""The table of settings' values: each is refused with a sentence before anything is sent, and what Google takes is not."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from callgate import Gate, GeminiModel, UsageError
from callgate.setting_values import check_values
from callgate.testing import FakeGemini

REFUSED: list[tuple[str, Any, str]] = [
    ("temperature", "hot", "expected a number from 0 to 2"),
    ("temperature", True, "expected a number from 0 to 2"),
    ("temperature", math.nan, "expected a number from 0 to 2"),
    ("temperature", -0.1, "expected a number from 0 to 2"),
    ("temperature", 2.1, "expected a number from 0 to 2"),
    ("top_p", 3, "expected a number from 0 to 1"),
    ("top_k", -1, "expected a whole number from 0 to 2147483647"),
    ("top_k", 2.5, "expected a whole number from 0 to 2147483647"),
    ("environment", 5, "expected a text or a mapping"),
    ("webhook_config", "x", "expected a mapping"),
    ("response_json_schema", "x", "expected a JSON Schema"),
    ("schema_field", "x", "expected 'parametersJsonSchema' or 'parameters'"),
    ("stream_arguments", "x", "expected true or false"),
    ("max_output_tokens", -1, "expected a whole number from 1 to 2147483647"),
    ("max_output_tokens", 0, "expected a whole number from 1 to 2147483647"),
    ("max_output_tokens", 1.5, "expected a whole number from 1 to 2147483647"),
    ("max_output_tokens", "9", "expected a whole number from 1 to 2147483647"),
    ("stop_sequences", "x", "expected a list of at most 5 texts"),
    ("stop_sequences", [5], "expected a list of at most 5 texts"),
    ("stop_sequences", list("abcdef"), "expected a list of at most 5 texts"),
    ("seed", "7", "expected a whole number from -2147483648 to 2147483647"),
    ("seed", 2**31, "expected a whole number from -2147483648 to 2147483647"),
    ("presence_penalty", -3, "expected a number from -2 to 2"),
    ("frequency_penalty", "much", "expected a number from -2 to 2"),
    ("candidate_count", 0, "expected a whole number from 1 to 8"),
    ("logprobs", 21, "expected a whole number from 0 to 20"),
    ("response_logprobs", "yes", "expected true or false"),
    ("include_thoughts", "yes", "expected true or false"),
    ("response_modalities", "TEXT", "expected a list of texts"),
    ("response_mime_type", 5, "expected a text"),
    ("media_resolution", 5, "expected a text"),
    ("cached_content", True, "expected a text"),
    ("service_tier", 1, "expected a text"),
    ("labels", "team", "expected a mapping of names to texts"),
    ("speech_config", "Kore", "expected an object as in the API"),
]

TAKEN: dict[str, list[Any]] = {
    "temperature": [0, 0.5, 2],
    "top_p": [0, 0.95, 1],
    "top_k": [1, 40, 40.0],
    "max_output_tokens": [1, 65_536],
    "stop_sequences": [[], ["END"], ("a", "b", "c", "d", "e")],
    "seed": [-1, 0, 2**31 - 1],
    "presence_penalty": [-2, 1.5],
    "candidate_count": [1, 8],
    "response_logprobs": [False],
    "speech_config": [{"voiceConfig": {}}],
    "unheard_of": ["anything", 5],
}


@pytest.mark.rows(("name", "value", "told"), REFUSED, ids=lambda item: str(item)[:20])
def test_a_value_that_google_refuses_is_refused_with_a_sentence(name: str, value: Any, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_values({name: value})
    assert str(caught.value) == f"{name}={value!r}: {told}"


def test_values_that_google_takes_and_unknown_settings_are_left_alone() -> None:
    for name, values in TAKEN.items():
        for value in (*values, None):
            check_values({name: value})


@pytest.mark.parametrize(("name", "value"), [("temperature", "hot"), ("top_p", 3), ("max_output_tokens", -1)])
def test_a_run_with_such_a_value_ends_before_anything_is_sent(name: str, value: Any) -> None:
    async def story() -> None:
        async with FakeGemini(["ok"]) as fake:
            model = GeminiModel("gemini-3.8-flash", api_key="k", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
            settings: Any = {name: value}
            with pytest.raises(UsageError, match=f"{name}="):
                await Gate(model, settings=settings).run("x")
            assert fake.requests == []

    asyncio.run(story())
