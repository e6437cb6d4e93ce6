"""Every client's SDK at the service, with each provider's model behind it: our tools, the client's tools, and a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from callgate import AnthropicModel, Gate, GeminiModel, OpenAIModel, OpenAIResponsesModel
from callgate.gemini.surface import Surface
from callgate.server import Service, ServiceOptions
from callgate.testing.answers import answer, call, calls, thought
from callgate.testing.fake_anthropic import FakeAnthropic
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_openai import FakeOpenAI

from .conftest import Site, add, serving

anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed")
openai = pytest.importorskip("openai", reason="openai is not installed")
genai = pytest.importorskip("google.genai", reason="google-genai is not installed")

MODELS = ("anthropic", "openai-responses", "openai", "gemini")
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
THINKS = answer(thought("Two cities."), calls(("weather", {"city": "Oslo"}), ("weather", {"city": "Rome"})))
OURS = [answer(thought("A sum."), calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))), "3 and 7."]
RESULTS = ["cold", "warm"]


@contextmanager
def site_of(model: str, script: list[Any]) -> Iterator[tuple[Site, Any]]:
    """A service whose model is asked at a strict fake of its provider, and that fake."""
    kind: Any = {"anthropic": FakeAnthropic, "gemini": FakeGemini}.get(model, FakeOpenAI)
    with kind.in_thread(script, models=["claude-opus-4-6", "gpt-5.2", "gpt-4.1", "gemini-3.8-flash"]) as fake:
        surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="k")
        made: dict[str, Any] = {
            "anthropic": lambda: AnthropicModel("claude-opus-4-6", base_url=fake.base_url, env={}),
            "openai-responses": lambda: OpenAIResponsesModel("gpt-5.2", base_url=fake.base_url, env={}),
            "openai": lambda: OpenAIModel("gpt-4.1", base_url=fake.base_url, env={}),
            "gemini": lambda: GeminiModel("gemini-3.8-flash", surface=surface),
        }
        with serving(Service(Gate(made[model](), [add]), options=ServiceOptions(token=None))) as site:
            yield site, fake
        assert fake.refusals == []


class Messages:
    """The anthropic SDK."""

    def __init__(self, port: int) -> None:
        self._client = anthropic.Anthropic(api_key="k", base_url=f"http://127.0.0.1:{port}", max_retries=0)

    def _ask(self, **given: Any) -> Any:
        return self._client.messages.create(model="callgate", max_tokens=2_000, **given)

    def text(self) -> str:
        said = self._ask(messages=[{"role": "user", "content": "?"}])
        return "".join(block.text for block in said.content if block.type == "text")

    def stream(self) -> str:
        with self._client.messages.stream(
            model="callgate", max_tokens=100, messages=[{"role": "user", "content": "?"}]
        ) as events:
            return "".join(events.text_stream)

    def own_tools(self) -> tuple[list[Any], str]:
        tools = [{"name": "weather", "description": "Tells it.", "input_schema": SCHEMA}]
        messages: list[Any] = [{"role": "user", "content": "?"}]
        said = self._ask(messages=messages, tools=tools)
        asked = [block for block in said.content if block.type == "tool_use"]
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": result}
            for block, result in zip(asked, RESULTS, strict=True)
        ]
        messages += [{"role": "assistant", "content": said.content}, {"role": "user", "content": results}]
        return [block.input for block in asked], self._ask(messages=messages, tools=tools).content[-1].text

    def fails(self) -> int:
        with pytest.raises(anthropic.APIStatusError) as raised:
            self._client.messages.create(
                model="nope-1", max_tokens=10, messages=[{"role": "user", "content": "?"}]
            )  # fmt: skip
        return raised.value.status_code


class Chat:
    """The openai SDK, by chat completions."""

    def __init__(self, port: int) -> None:
        self._client = openai.OpenAI(api_key="k", base_url=f"http://127.0.0.1:{port}/v1", max_retries=0)

    def _ask(self, **given: Any) -> Any:
        return self._client.chat.completions.create(model="callgate", **given)

    def text(self) -> str:
        return self._ask(messages=[{"role": "user", "content": "?"}]).choices[0].message.content

    def stream(self) -> str:
        chunks = self._ask(messages=[{"role": "user", "content": "?"}], stream=True)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)

    def own_tools(self) -> tuple[list[Any], str]:
        tools = [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}]
        messages: list[Any] = [{"role": "user", "content": "?"}]
        said = self._ask(messages=messages, tools=tools).choices[0].message
        messages.append(said)
        messages += [
            {"role": "tool", "tool_call_id": asked.id, "content": result}
            for asked, result in zip(said.tool_calls, RESULTS, strict=True)
        ]
        last = self._ask(messages=messages, tools=tools).choices[0].message.content
        return [json.loads(asked.function.arguments) for asked in said.tool_calls], last

    def fails(self) -> int:
        with pytest.raises(openai.APIStatusError) as raised:
            self._client.chat.completions.create(model="nope-1", messages=[{"role": "user", "content": "?"}])
        return raised.value.status_code


class Responses(Chat):
    """The openai SDK, by the Responses API."""

    def _ask(self, **given: Any) -> Any:
        return self._client.responses.create(model="callgate", **given)

    def text(self) -> str:
        return self._ask(input="?").output_text

    def stream(self) -> str:
        events = self._ask(input="?", stream=True)
        return "".join(event.delta for event in events if event.type == "response.output_text.delta")

    def own_tools(self) -> tuple[list[Any], str]:
        tools = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}]
        said = self._ask(input="?", tools=tools)
        asked = [item for item in said.output if item.type == "function_call"]
        results = [
            {"type": "function_call_output", "call_id": item.call_id, "output": result}
            for item, result in zip(asked, RESULTS, strict=True)
        ]
        last = self._ask(input=results, tools=tools, previous_response_id=said.id).output_text
        return [json.loads(item.arguments) for item in asked], last

    def fails(self) -> int:
        with pytest.raises(openai.APIStatusError) as raised:
            self._client.responses.create(model="nope-1", input="?")
        return raised.value.status_code


class Google:
    """The google-genai SDK."""

    def __init__(self, port: int) -> None:
        self._client = genai.Client(api_key="k", http_options={"base_url": f"http://127.0.0.1:{port}"})

    def text(self) -> str:
        return self._client.models.generate_content(model="callgate", contents="?").text

    def stream(self) -> str:
        chunks = self._client.models.generate_content_stream(model="callgate", contents="?")
        return "".join(chunk.text or "" for chunk in chunks)

    def own_tools(self) -> tuple[list[Any], str]:
        asked: list[Any] = []
        results = iter(RESULTS)

        def weather(city: str) -> str:
            """Tells it."""
            asked.append({"city": city})
            return next(results)

        said = self._client.models.generate_content(model="callgate", contents="?", config={"tools": [weather]})
        return asked, said.text

    def fails(self) -> int:
        with pytest.raises(genai.errors.APIError) as raised:
            self._client.models.generate_content(model="nope-1", contents="?")
        return raised.value.code


CLIENTS = {"anthropic": Messages, "openai chat": Chat, "openai responses": Responses, "google-genai": Google}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_gets_text_with_our_tools_whole_and_streamed_its_own_calls_and_an_error(client: str, model: str) -> None:
    script = [*OURS, *OURS, THINKS, "Cold and warm."]
    with site_of(model, script) as (site, fake):
        asks = CLIENTS[client](site.port)
        assert asks.text() == "3 and 7."
        assert asks.stream() == "3 and 7."
        assert asks.own_tools() == ([{"city": "Oslo"}, {"city": "Rome"}], "Cold and warm.")
        assert asks.fails() == 404
        assert fake.steps_left == 0


def test_thoughts_that_a_client_sends_back_reach_the_provider_that_signed_them() -> None:
    with site_of("anthropic", [THINKS, "Cold and warm."]) as (site, fake):
        Messages(site.port).own_tools()
        blocks = [block["type"] for block in fake.requests[-1].json["messages"][1]["content"]]
        assert blocks == ["thinking", "tool_use", "tool_use"]


def test_tokens_are_counted_by_the_model_behind_the_service() -> None:
    with site_of("anthropic", [call("add", a=1, b=2)]) as (site, fake):
        client = anthropic.Anthropic(api_key="k", base_url=f"http://127.0.0.1:{site.port}", max_retries=0)
        counted = client.messages.count_tokens(model="callgate", messages=[{"role": "user", "content": "?"}])
        assert counted.input_tokens > 0
        assert fake.looks[-1].path == "/v1/messages/count_tokens"
