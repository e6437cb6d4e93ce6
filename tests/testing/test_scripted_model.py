"""What a script may hold: whichever way an answer is written, it is the same answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callgate import AnthropicModel, FunctionCall, Gate, InteractionsModel, OpenAIModel, OpenAIResponsesModel, ScriptedModel
from callgate.errors import BlockedError
from callgate.models.gemini import GeminiModel
from callgate.testing import FakeAnthropic, FakeGemini, FakeInteractions, FakeOpenAI, answer, call

PART = {"functionCall": {"name": "add", "args": {"a": 1}}}
FORMS = {
    "part": PART,
    "helper": call("add", a=1),
    "list": [PART],
    "call": FunctionCall(name="add", args={"a": 1}),
    "calls": [FunctionCall(name="add", args={"a": 1})],
    "content": {"role": "model", "parts": [PART]},
    "response": {"candidates": [{"content": {"role": "model", "parts": [PART]}, "finishReason": "STOP"}]},
}


def add(a: int) -> int:
    """Adds one."""
    return a + 1


@pytest.mark.parametrize("item", FORMS.values(), ids=FORMS)
def test_every_form_of_an_answer_is_understood_by_the_model_and_by_the_server(item: Any) -> None:
    async def both() -> list[list[Any]]:
        said = await Gate(ScriptedModel([item, {"parts": [{"text": "done"}]}]), [add]).run("x")
        async with FakeGemini([item, {"parts": [{"text": "done"}]}]) as fake:
            env = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url}
            heard = await Gate(GeminiModel("gemini-2.5-flash", env=env), [add]).run("x")
        return [[reply.text, *(record.result and record.result.value for record in reply.calls)] for reply in (said, heard)]

    assert asyncio.run(both()) == [["done", 2], ["done", 2]]


def test_a_step_may_be_an_async_function() -> None:
    async def step(request: Any) -> str:
        return f"{len(request.contents)} content"

    assert asyncio.run(Gate(ScriptedModel([step])).run("Go")).text == "1 content"


def test_fields_of_a_part_may_be_spelled_in_snake_case() -> None:
    model = ScriptedModel([{"function_call": {"name": "add", "args": {"a": 1}}}, "done"])
    assert asyncio.run(Gate(model, [add]).run("x")).calls[0].state == "finished"


def test_a_response_without_candidates_is_one_too() -> None:
    with pytest.raises(BlockedError):
        asyncio.run(Gate(ScriptedModel([{"promptFeedback": {"blockReason": "SAFETY"}}])).run("x"))


@pytest.mark.parametrize(
    ("server", "model"),
    [
        (FakeOpenAI, OpenAIModel),
        (FakeOpenAI, OpenAIResponsesModel),
        (FakeAnthropic, AnthropicModel),
        (FakeInteractions, InteractionsModel),
    ],
)
def test_the_usage_of_an_answer_is_told_by_every_server_in_its_own_format(server: Any, model: Any) -> None:
    usage = {"promptTokenCount": 10, "cachedContentTokenCount": 4, "candidatesTokenCount": 7, "totalTokenCount": 17}

    async def told() -> list[Any]:
        async with server([answer("ok", usage=usage)]) as fake:
            env = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url}
            where = {"env": env} if model is InteractionsModel else {"base_url": fake.base_url, "api_key": "k"}
            reply = await Gate(model("gemini-2.5-flash", **where)).run("x")
        return [reply.text, reply.usage.input_tokens, reply.usage.cached_tokens, reply.usage.output_tokens]

    assert asyncio.run(told()) == ["ok", 10, 4, 7]
