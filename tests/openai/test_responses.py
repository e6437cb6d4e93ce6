"""OpenAIResponsesModel and a strict fake server on real sockets: conversations, reasoning, settings and faults.

Every request body is judged by the types of the official SDK too (`conftest.py`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.models.scenes import QUICK, Clock, Scene, add

from callgate import AnthropicModel, Gate, Media, OpenAIResponsesModel, tool
from callgate.errors import AuthError, InvalidRequestError, LimitExceededError, ModelError, RateLimitedError, UsageError
from callgate.events import TextDelta, ThoughtDelta
from callgate.history.conversation import Conversation
from callgate.openai.client import OpenAIEndpoint, ResponsesClient
from callgate.openai.responses_answer import ResponseEventReader, response_ended, response_error_in
from callgate.request import ModelRequest
from callgate.testing.answers import answer, call, calls, thought
from callgate.testing.chat_faults import fault
from callgate.testing.fake_anthropic import FakeAnthropic
from callgate.testing.fake_openai import FakeOpenAI
from callgate.wire.endpoint_health import EndpointHealth

KEY = "sk-proj-a-key-that-nobody-may-ever-see-42"
MODEL = "gpt-5.2"
both = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@asynccontextmanager
async def scene(script: Any, *, name: str = MODEL, tools: Any = (add,), **options: Any) -> AsyncIterator[Scene]:
    clock = Clock()
    gate_options = {key: options.pop(key) for key in ("settings", "system") if key in options}
    async with asyncio.timeout(30), FakeOpenAI(script, **options) as fake:
        client = ResponsesClient(
            OpenAIEndpoint(base_url=fake.base_url, api_key=KEY), limits=QUICK, clock=clock, health=EndpointHealth(clock),
            dice=random.Random(1),
        )  # fmt: skip
        model = OpenAIResponsesModel(name, client=client)
        async with Gate(model, tools=list(tools), mode="native", limits=QUICK, **gate_options) as gate:
            yield Scene(fake, model, gate, clock)
        await model.aclose()
        await fake.until_idle()
        assert fake.refusals == []


# Conversations -----------------------------------------------------------------------------------------------------------


@both
def test_parallel_calls_are_run_and_answered_with_the_reasoning_that_led_to_them(stream: bool) -> None:
    async def story() -> None:
        first = answer(thought("Two sums."), "I add.", calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})))
        async with scene([first, "3 and 7."], system="Be exact.") as it:
            reply = await it.ask(stream=stream)
            assert reply.text == "3 and 7."
            assert [record.result.value for record in reply.calls] == [3, 7]
            assert (it.body()["instructions"], it.body()["store"]) == ("Be exact.", False)
            asked, reasoning, said, *rest = it.body()["input"]
            assert asked == {"role": "user", "content": [{"type": "input_text", "text": "Go."}]}
            assert reasoning["summary"] == [{"type": "summary_text", "text": "Two sums."}]
            assert said == {"role": "assistant", "content": "I add."}
            assert [item["type"] for item in rest] == ["function_call"] * 2 + ["function_call_output"] * 2
            assert [item["call_id"] for item in rest[:2]] == [item["call_id"] for item in rest[2:]]
            assert [json.loads(item["output"]) for item in rest[2:]] == [{"result": 3}, {"result": 7}]

    asyncio.run(story())


@both
def test_reasoning_between_calls_goes_back_in_its_place_and_that_of_a_finished_answer_does_not(stream: bool) -> None:
    async def story() -> None:
        first = answer(thought("One."), call("add", a=1, b=1), thought("Two."), call("add", a=2, b=2))
        async with scene([first, answer(thought("Three."), "Done."), "Yes."]) as it:
            await it.ask(stream=stream)
            await it.ask(stream=stream)
            kinds = [item.get("type", item.get("role")) for item in it.body()["input"]]
            assert kinds == [
                "user", "reasoning", "function_call", "reasoning", "function_call", "function_call_output",
                "function_call_output", "assistant", "user",
            ]  # fmt: skip

    asyncio.run(story())


def test_text_and_reasoning_arrive_as_they_are_said() -> None:
    async def story() -> None:
        async with scene([answer(thought("Well, let me think about it."), "The answer is forty-two.")]) as it:
            await it.ask()
            texts = [event.text for event in it.events if isinstance(event, TextDelta)]
            assert len(texts) > 1
            assert "".join(texts) == "The answer is forty-two."
            thoughts = [event.text for event in it.events if isinstance(event, ThoughtDelta)]
            assert "".join(thoughts) == "Well, let me think about it."

    asyncio.run(story())


def test_a_conversation_goes_on_with_anthropic_and_back_and_neither_sees_the_signatures_of_the_other() -> None:
    async def story() -> None:
        sums = [answer(thought("Hm."), call("add", a=1, b=2)), "3."]
        async with FakeAnthropic(sums) as other, scene([*sums, "Still 3."]) as it:
            claude = AnthropicModel("claude-opus-4-6", base_url=other.base_url)
            first = await it.gate.run("One?")
            second = await Gate(claude, tools=[add]).run("Two?", history=first.contents)
            third = await it.gate.run("Three?", history=second.contents)
            assert third.text == "Still 3."
            assert other.refusals == []
            kinds = [item.get("type", item.get("role")) for item in it.body()["input"]]
            assert kinds.count("reasoning") == 1
            await claude.aclose()

    asyncio.run(story())


def test_media_of_the_user_and_of_a_result_become_blocks() -> None:
    @tool
    def picture() -> Media:
        """Draws."""
        return Media(data=b"\x89PNG", mime_type="image/png")

    async def story() -> None:
        async with scene([call("picture"), "Seen."], tools=[picture]) as it:
            pdf = {"inlineData": {"mimeType": "application/pdf", "data": base64.b64encode(b"%PDF").decode()}}
            link = {"fileData": {"mimeType": "application/pdf", "fileUri": "https://example.com/a.pdf"}}
            await it.ask(["Look:", pdf, link])
            asked, _, result = it.body()["input"]
            assert [block["type"] for block in asked["content"]] == ["input_text", "input_file", "input_file"]
            assert asked["content"][2] == {"type": "input_file", "file_url": "https://example.com/a.pdf"}
            assert [block["type"] for block in result["output"]] == ["input_text", "input_image"]
            with pytest.raises(UsageError, match="'audio/mpeg' cannot be sent to the Responses API"):
                await it.ask([{"inlineData": {"mimeType": "audio/mpeg", "data": "AAAA"}}])

    asyncio.run(story())


# Settings and tools ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        (MODEL, {}, {"include": ["reasoning.encrypted_content"]}),
        (MODEL, {"max_output_tokens": 50, "top_p": 0.5, "user": "u"}, {"max_output_tokens": 50, "top_p": 0.5, "user": "u"}),
        (MODEL, {"thinking": "high"}, {"reasoning": {"effort": "high"}}),
        (
            MODEL, {"thinking": "low", "extra_body": {"reasoning": {"summary": "auto"}}},
            {"reasoning": {"effort": "low", "summary": "auto"}},
        ),
        (MODEL, {"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
        (MODEL, {"labels": {"a": "b"}}, {"metadata": {"a": "b"}}),
        (MODEL, {"response_mime_type": "application/json"}, {"text": {"format": {"type": "json_object"}}}),
    ],
)  # fmt: skip
def test_settings_reach_the_server_in_its_words(name: str, settings: dict[str, Any], expected: dict[str, Any]) -> None:
    async def story() -> None:
        async with scene(["Hi."], name=name, settings=settings) as it:
            await it.ask()
            assert {key: it.body()[key] for key in expected} == expected

    asyncio.run(story())


def test_a_model_that_does_not_reason_is_not_asked_for_reasoning() -> None:
    async def story() -> None:
        async with scene([call("add", a=1, b=1), "2."], name="gpt-4.1") as it:
            assert (await it.ask()).text == "2."
            assert "include" not in it.body()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"thinking": 2_000}, "has levels only"),
        ({"seed": 4}, "unknown setting 'seed'"),
        ({"extra_body": {"previous_response_id": "r"}}, "cannot hold 'previous_response_id'"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], said: str) -> None:
    async def story() -> None:
        async with scene(["Hi."]) as it:
            said_now = Conversation([{"role": "user", "parts": [{"text": "?"}]}])
            with pytest.raises(UsageError, match=said):
                [chunk async for chunk in it.model.generate(ModelRequest(conversation=said_now, settings=settings))]

    asyncio.run(story())


@both
def test_a_required_call_is_asked_for_once_and_an_answer_fits_its_schema(stream: bool) -> None:
    async def story() -> None:
        async with scene([call("add", a=1, b=1), '{"sum": 2}']) as it:
            schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
            reply = await it.ask(tool_choice="add", output=schema, stream=stream)
            assert reply.output == {"sum": 2}
            assert it.body(0)["tool_choice"] == {"type": "function", "name": "add"}
            assert "tool_choice" not in it.body(1)
            assert it.body(1)["text"]["format"]["schema"] == schema

    asyncio.run(story())


# Faults ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("insufficient_quota", RateLimitedError, "credit is used up"), ("wrong_key", AuthError, "OPENAI_API_KEY"),
        ("no_model", InvalidRequestError, "there is no model"), ("too_long", LimitExceededError, "too large"),
        ("bad_schema", InvalidRequestError, "this is the tool 'add'"),
    ],
)  # fmt: skip
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


@both
def test_trouble_is_waited_out(stream: bool) -> None:
    async def story() -> None:
        async with scene([fault("server_error"), fault("rate_limited"), "At last."]) as it:
            assert (await it.ask(stream=stream)).text == "At last."
            assert it.clock.sleeps

    asyncio.run(story())


@pytest.mark.parametrize("reason", ["MAX_TOKENS", "SAFETY"])
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

        async with scene([answer(call("note"), finish_reason=None)] * 5, tools=[note]) as it:
            with pytest.raises(ModelError):
                await it.ask()
            assert ran == []

    asyncio.run(story())


def test_a_server_without_the_api_is_said_to_have_chat_completions(unjudged: None) -> None:
    async def story() -> None:
        async with scene(["Never."]) as it:
            endpoint = OpenAIEndpoint(base_url=f"{it.fake.base_url}/elsewhere", api_key=KEY)
            client = ResponsesClient(endpoint, limits=QUICK)
            model = OpenAIResponsesModel(MODEL, client=client)
            said_now = Conversation([{"role": "user", "parts": [{"text": "?"}]}])
            with pytest.raises(InvalidRequestError, match=r"'openai:gpt-5\.2' asks for chat completions"):
                [chunk async for chunk in model.generate(ModelRequest(conversation=said_now))]
            await model.aclose()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ({"type": "error", "code": "server_error", "message": "Sorry."}, "Sorry."),
        ({"type": "response.failed", "response": {"status": "failed", "error": {"message": "No."}}}, "No."),
        ({"object": "response", "status": "failed", "error": {"message": "No."}}, "No."),
        ({"object": "response", "status": "cancelled", "error": None}, "the response is cancelled"),
        ({"object": "response", "status": "completed", "error": None}, None),
    ],
)
def test_an_error_is_found_in_every_form(event: dict[str, Any], message: str | None) -> None:
    found = response_error_in(event)
    assert (found or {}).get("message") == message


def test_text_that_came_in_no_pieces_is_read_from_its_item_and_a_refusal_is_no_success() -> None:
    reader = ResponseEventReader()
    item = {"type": "message", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    events = [
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"status": "completed", "output": [item]}},
    ]
    chunks = [chunk for event in events for chunk in reader.feed(event)] + [*reader.close()]
    assert response_ended(events[-1])
    assert chunks[0]["candidates"][0]["content"]["parts"] == [{"text": "I cannot."}]
    assert chunks[-1]["candidates"][0]["finishReason"] == "SAFETY"


def test_the_official_client_understands_the_fake_server(unjudged: None) -> None:
    openai = pytest.importorskip("openai")

    async def story() -> None:
        async with FakeOpenAI([answer(thought("Hm."), "Hello."), call("add", a=1, b=2)], api_key=KEY) as fake:
            client = openai.AsyncOpenAI(api_key=KEY, base_url=fake.base_url, max_retries=0)
            whole = await client.responses.create(model=MODEL, input="Hi")
            assert whole.output_text == "Hello."
            async with client.responses.stream(model=MODEL, input="Hi") as stream:
                final = await stream.get_final_response()
            assert json.loads(final.output[0].arguments) == {"a": 1, "b": 2}
            broken = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
            with pytest.raises(openai.BadRequestError, match="No tool output found"):
                await client.responses.create(model=MODEL, input=[broken])
            await client.close()

    asyncio.run(story())
