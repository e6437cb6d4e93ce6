"""AnthropicModel and a strict fake server on real sockets: conversations, thoughts, faults and counted tokens.

Every request body that a test sends is judged by the types of the official SDK too.
"""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import json
import random
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.models.scenes import QUICK, Clock, Scene, add

from callgate import AnthropicModel, Gate, GeminiModel, Media, tool
from callgate.anthropic.client import AnthropicClient, AnthropicEndpoint, endpoint_from_environment
from callgate.errors import (
    AuthError,
    InvalidRequestError,
    LimitExceededError,
    ModelError,
    RateLimitedError,
    ServerUnavailableError,
    UsageError,
)
from callgate.events import Notice, TextDelta, ThoughtDelta
from callgate.gemini.surface import Surface
from callgate.history.conversation import Conversation
from callgate.request import ModelRequest
from callgate.testing.answers import answer, call, calls, thought
from callgate.testing.fake_anthropic import FakeAnthropic
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.message_faults import fault
from callgate.wire.endpoint_health import EndpointHealth

pytestmark = pytest.mark.judge("anthropic")

KEY = "sk-ant-a-key-that-nobody-may-ever-see-42"
MODEL = "claude-opus-4-6"
both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def _judge() -> ModuleType:
    name = "callgate_anthropic_judge"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name("judge.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@asynccontextmanager
async def scene(script: Any, *, name: str = MODEL, tools: Any = (add,), **options: Any) -> AsyncIterator[Scene]:
    pytest.importorskip("anthropic", reason="the anthropic SDK is not installed; nothing judged these requests")
    clock = Clock()
    gate_options = {key: options.pop(key) for key in ("settings", "system") if key in options}
    async with asyncio.timeout(30), FakeAnthropic(script, **options) as fake:
        endpoint = AnthropicEndpoint(base_url=fake.base_url, api_key=KEY)
        client = AnthropicClient(
            endpoint, limits=QUICK, clock=clock, health=EndpointHealth(clock), dice=random.Random(1)
        )  # fmt: skip
        model = AnthropicModel(name, client=client)
        async with Gate(model, tools=list(tools), mode="native", limits=QUICK, **gate_options) as gate:
            yield Scene(fake, model, gate, clock)
        await model.aclose()
        await fake.until_idle()
        problems = [problem for sent in fake.requests for problem in _judge().sdk_problems(sent.json)]
        assert problems == []
        assert fake.refusals == []


# Conversations -----------------------------------------------------------------------------------------------------------


@both
def test_parallel_calls_are_run_and_answered_in_one_message_with_the_thoughts_that_led_to_them(stream: bool) -> None:
    async def story() -> None:
        first = answer(thought("Two sums."), "I add.", calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})))
        async with scene([first, "3 and 7."], system="Be exact.") as it:
            reply = await it.ask(stream=stream)
            assert reply.text == "3 and 7."
            assert [record.result.value for record in reply.calls] == [3, 7]
            assert it.body()["system"] == "Be exact."
            asked, said, results = it.body()["messages"]
            assert asked == {"role": "user", "content": [{"type": "text", "text": "Go."}]}
            assert [block["type"] for block in said["content"]] == ["thinking", "text", "tool_use", "tool_use"]
            assert said["content"][0]["thinking"] == "Two sums."
            ids = [block["id"] for block in said["content"][2:]]
            assert [block["tool_use_id"] for block in results["content"]] == ids
            assert [json.loads(block["content"]) for block in results["content"]] == [{"result": 3}, {"result": 7}]

    asyncio.run(story())


@both
def test_thoughts_that_only_anthropic_can_read_go_back_in_their_place(stream: bool) -> None:
    async def story() -> None:
        hidden = {"text": "", "thought": True}
        first = answer(thought("One."), hidden, call("add", a=1, b=1), thought("Two."), call("add", a=2, b=2))
        async with scene([first, "Done."]) as it:
            await it.ask(stream=stream)
            kinds = [block["type"] for block in it.body()["messages"][1]["content"]]
            assert kinds == ["thinking", "redacted_thinking", "tool_use", "thinking", "tool_use"]

    asyncio.run(story())


def test_text_and_thoughts_arrive_as_they_are_said() -> None:
    async def story() -> None:
        async with scene([answer(thought("Well, let me think about it."), "The answer is forty-two.")]) as it:
            await it.ask()
            texts = [event.text for event in it.events if isinstance(event, TextDelta)]
            assert len(texts) > 1
            assert "".join(texts) == "The answer is forty-two."
            thoughts = [event.text for event in it.events if isinstance(event, ThoughtDelta)]
            assert "".join(thoughts) == "Well, let me think about it."

    asyncio.run(story())


def test_thoughts_of_another_model_are_not_sent_to_anthropic_and_its_own_are_not_sent_to_gemini() -> None:
    async def story() -> None:
        async with FakeGemini([call("add", a=1, b=2), "3.", "Again 3."]) as google:
            surface = Surface(kind="developer", base_url=google.base_url, version="v1beta", api_key="k")
            gemini = GeminiModel("gemini-3.8-flash", surface=surface)
            async with scene([answer(thought("Hm."), call("add", a=2, b=2)), "4."]) as it:
                first = await Gate(gemini, tools=[add]).run("One?")
                second = await it.gate.run("Two?", history=first.contents)
                third = await Gate(gemini, tools=[add]).run("Three?", history=second.contents)
                assert third.text == "Again 3."
                assert google.refusals == []
                blocks = [block["type"] for message in it.body(0)["messages"] for block in message["content"]]
                assert blocks == ["text", "tool_use", "tool_result", "text", "text"]

    asyncio.run(story())


def test_an_error_of_a_tool_and_an_unknown_tool_are_marked_as_errors() -> None:
    @tool
    def fail() -> str:
        """Fails."""
        raise ValueError("no luck")

    async def story() -> None:
        async with scene([calls(("fail", {}), ("nothing", {})), "Sorry."], tools=[fail]) as it:
            await it.ask()
            assert [block["is_error"] for block in it.body()["messages"][2]["content"]] == [True, True]

    asyncio.run(story())


def test_media_of_the_user_and_of_a_result_become_blocks() -> None:
    @tool
    def picture() -> Media:
        """Draws."""
        return Media(data=b"\x89PNG", mime_type="image/png")

    async def story() -> None:
        async with scene([call("picture"), "Seen."], tools=[picture]) as it:
            pdf = {"inlineData": {"mimeType": "application/pdf", "data": base64.b64encode(b"%PDF").decode()}}
            link = {"fileData": {"mimeType": "image/webp", "fileUri": "https://example.com/a.webp"}}
            await it.ask(["Look:", pdf, link])
            asked, _, results = it.body()["messages"]
            assert [block["type"] for block in asked["content"]] == ["text", "document", "image"]
            assert asked["content"][2]["source"] == {"type": "url", "url": "https://example.com/a.webp"}
            assert [block["type"] for block in results["content"][0]["content"]] == ["text", "image"]
            with pytest.raises(UsageError, match="'audio/mpeg' cannot be sent to Anthropic"):
                await it.ask([{"inlineData": {"mimeType": "audio/mpeg", "data": "AAAA"}}])

    asyncio.run(story())


def test_an_instruction_alone_is_a_request_that_the_server_takes() -> None:
    async def story() -> None:
        async with scene(["Hello."], system="Say hello.") as it:
            request = ModelRequest(conversation=Conversation(), system="Say hello.")
            chunks = [chunk async for chunk in it.model.generate(request)]
            assert chunks
            assert len(it.body()["messages"]) == 1

    asyncio.run(story())


# Settings and tools ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        (MODEL, {}, {"max_tokens": 32_000}),
        ("claude-3-5-haiku-20241022", {}, {"max_tokens": 8_192}),
        (MODEL, {"max_output_tokens": 50, "top_k": 3, "stop_sequences": ["x"]}, {"max_tokens": 50, "top_k": 3}),
        (MODEL, {"thinking": "high"}, {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        (MODEL, {"thinking": "none"}, {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-4-5", {"thinking": "medium"}, {"thinking": {"type": "enabled", "budget_tokens": 8_192}}),
        (MODEL, {"thinking": 2_000}, {"thinking": {"type": "enabled", "budget_tokens": 2_000}}),
        (
            "claude-sonnet-4-5", {"thinking": "high", "max_output_tokens": 4_000},
            {"thinking": {"type": "enabled", "budget_tokens": 3_999}},
        ),
        (MODEL, {"user": "u1", "service_tier": "auto"}, {"metadata": {"user_id": "u1"}, "service_tier": "auto"}),
        (MODEL, {"parallel_tool_calls": False}, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
        (
            MODEL, {"response_json_schema": {"type": "object"}, "thinking": "low"},
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}, "effort": "low"}},
        ),
        (MODEL, {"extra_body": {"cache_control": {"type": "ephemeral"}}}, {"cache_control": {"type": "ephemeral"}}),
    ],
)  # fmt: skip
def test_settings_reach_the_server_in_its_words(name: str, settings: dict[str, Any], expected: dict[str, Any]) -> None:
    async def story() -> None:
        async with scene(["Hi."], name=name, settings=settings) as it:
            await it.ask()
            assert {key: it.body()[key] for key in expected} == expected

    asyncio.run(story())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"thinking": "much"}, "use one of 'none', 'low'"),
        ({"thinking": 100}, "at least 1,024"),
        ({"thinking": -1}, "at least 1,024"),
        ({"seed": 4}, "unknown setting 'seed'"),
        ({"response_mime_type": "application/json"}, "add response_json_schema"),
        ({"extra_body": {"messages": []}}, "cannot hold 'messages'"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], said: str) -> None:
    async def story() -> None:
        async with scene(["Hi."]) as it:
            request = ModelRequest(
                conversation=Conversation([{"role": "user", "parts": [{"text": "?"}]}]), settings=settings
            )
            with pytest.raises(UsageError, match=said):
                [chunk async for chunk in it.model.generate(request)]

    asyncio.run(story())


def test_a_required_call_is_asked_for_once_and_without_thinking_that_the_server_would_refuse() -> None:
    async def story() -> None:
        async with scene([call("add", a=1, b=1), "2."], settings={"thinking": "high"}) as it:
            await it.ask(tool_choice="add")
            assert it.body(0)["tool_choice"] == {"type": "tool", "name": "add"}
            assert "thinking" not in it.body(0)
            assert "tool_choice" not in it.body(1)
            assert it.body(1)["thinking"] == {"type": "adaptive"}

    asyncio.run(story())


@pytest.mark.parametrize(
    ("name", "settings", "choice", "said"),
    [
        ("claude-3-5-haiku-latest", {"thinking": "high"}, "auto", ["means 16,384 tokens: 8,191 are sent"]),
        (
            "claude-sonnet-4-5",
            {"thinking": 6_000, "max_output_tokens": 4_000},
            "auto",
            ["means 6,000 tokens: 3,999 are sent"],
        ),
        (MODEL, {"thinking": "low"}, "add", ["not sent with a request that requires a call"]),
        (MODEL, {"thinking": 2_000}, "auto", []),
        (MODEL, {"thinking": "none"}, "add", []),
        (MODEL, {}, "add", []),
    ],
)
def test_thinking_that_is_not_sent_as_it_was_asked_for_is_said_once_in_a_run(
    name: str, settings: dict[str, Any], choice: str, said: list[str]
) -> None:
    async def story() -> None:
        async with scene([call("add", a=1, b=1), "2."], name=name, settings=settings) as it:
            await it.ask(tool_choice=choice)
            notices = [event for event in it.events if isinstance(event, Notice)]
        assert [notice.code for notice in notices] == ["setting_changed"] * len(said)
        assert all(words in notice.message for words, notice in zip(said, notices, strict=True))

    asyncio.run(story())


def test_the_server_counts_the_tokens_of_a_request_and_describes_its_models() -> None:
    async def story() -> None:
        async with scene(["Hi."], models=[MODEL]) as it:
            request = ModelRequest(conversation=Conversation([{"role": "user", "parts": [{"text": "?"}]}]))
            assert await it.model.count_tokens(request) > 0
            assert it.fake.looks[-1].path == "/v1/messages/count_tokens"
            assert (await it.model.describe() or {})["id"] == MODEL
            with pytest.raises(InvalidRequestError) as raised:
                await it.model.with_name("claude-nope").describe()
            assert raised.value.is_model_unknown

    asyncio.run(story())


# Faults ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("bad_key", AuthError, "ANTHROPIC_API_KEY"),
        ("no_permission", AuthError, "403 permission_error"),
        ("no_model", InvalidRequestError, f"there is no model '{MODEL}'"),
        ("too_long", LimitExceededError, "too large"),
        ("too_large", LimitExceededError, "too large"),
        ("no_credit", RateLimitedError, "credit is used up"),
        ("bad_tool", InvalidRequestError, "this is the tool 'add'"),
    ],
)
@both
def test_a_refusal_is_raised_at_once_and_holds_no_key(name: str, kind: type[ModelError], said: str, stream: bool) -> None:
    async def story() -> None:
        async with scene([fault(name), "Never."]) as it:
            with pytest.raises(kind) as raised:
                await it.ask(stream=stream)
            assert said in str(raised.value)
            assert KEY not in str(raised.value)
            assert len(it.fake.requests) == 1

    asyncio.run(story())


@pytest.mark.parametrize("name", ["rate_limited", "overloaded", "server_error"])
@both
def test_trouble_is_waited_out(name: str, stream: bool) -> None:
    async def story() -> None:
        async with scene([fault(name), "At last."]) as it:
            assert (await it.ask(stream=stream)).text == "At last."
            assert it.clock.sleeps
            if stream:
                assert any(isinstance(event, Notice) for event in it.events)

    asyncio.run(story())


def test_an_error_in_the_middle_of_a_stream_is_raised_with_its_own_words() -> None:
    async def story() -> None:
        async with scene([fault("error_in_stream")]) as it:
            with pytest.raises(ServerUnavailableError, match="529 overloaded_error"):
                await it.ask()

    asyncio.run(story())


@pytest.mark.parametrize("variant", ["cut", "list", "prose"])
def test_arguments_that_are_no_object_never_run(variant: str) -> None:
    async def story() -> None:
        async with scene([fault("bad_arguments", variant), "Sorry."]) as it:
            reply = await it.ask()
            assert [record.state for record in reply.calls] == ["failed"]

    asyncio.run(story())


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "SAFETY", "PAUSE_TURN"])
@both
def test_the_end_of_a_run_says_how_the_answer_ended(reason: str, stream: bool) -> None:
    async def story() -> None:
        async with scene([answer("So far.", finish_reason=reason)]) as it:
            assert (await it.ask(stream=stream)).finish_reason == reason

    asyncio.run(story())


def test_a_stream_without_an_end_runs_no_call() -> None:
    async def story() -> None:
        ran: list[int] = []

        @tool
        def note() -> None:
            """Notes."""
            ran.append(1)

        broken = answer(call("note"), finish_reason=None)
        async with scene([broken] * 5, tools=[note]) as it:
            with pytest.raises(ModelError):
                await it.ask()
            assert ran == []

    asyncio.run(story())


# Where -------------------------------------------------------------------------------------------------------------------


def test_the_environment_says_where_and_with_which_key() -> None:
    endpoint = endpoint_from_environment({"ANTHROPIC_API_KEY": f" {KEY}\n"})
    assert endpoint.url == "https://api.anthropic.com/v1/messages"
    assert endpoint.credentials() == {"x-api-key": KEY, "anthropic-version": "2023-06-01"}
    gateway = {"ANTHROPIC_BASE_URL": "https://gate.example/anthropic/v1/", "ANTHROPIC_AUTH_TOKEN": "token-of-mine"}
    endpoint = endpoint_from_environment(gateway)
    assert endpoint.url == "https://gate.example/anthropic/v1/messages"
    assert endpoint.credentials()["authorization"] == "Bearer token-of-mine"
    assert endpoint_from_environment({}, base_url="http://127.0.0.1:9").credentials() == {"anthropic-version": "2023-06-01"}
    with pytest.raises(UsageError, match="ANTHROPIC_API_KEY"):
        endpoint_from_environment({})
    assert KEY not in repr(endpoint_from_environment({"ANTHROPIC_API_KEY": KEY}))


def test_the_official_client_understands_the_fake_server() -> None:
    anthropic = pytest.importorskip("anthropic")

    async def story() -> None:
        script = [answer(thought("Hm."), "Hello."), call("add", a=1, b=2)]
        async with FakeAnthropic(script, api_key=KEY) as fake:
            client = anthropic.AsyncAnthropic(api_key=KEY, base_url=fake.base_url, max_retries=0)
            asked: Any = {"model": MODEL, "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}
            whole = await client.messages.create(**asked)
            assert [block.type for block in whole.content] == ["thinking", "text"]
            async with client.messages.stream(**asked) as stream:
                final = await stream.get_final_message()
            assert (final.stop_reason, final.content[0].input) == ("tool_use", {"a": 1, "b": 2})
            assert (await client.messages.count_tokens(model=MODEL, messages=asked["messages"])).input_tokens > 0
            assert [model.id async for model in client.models.list()]
            with pytest.raises(anthropic.BadRequestError, match="non-whitespace"):
                await client.messages.create(**asked | {"messages": [{"role": "user", "content": " "}]})
            await client.close()

    asyncio.run(story())
