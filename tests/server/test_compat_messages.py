"""The anthropic SDK, and plain requests in Anthropic's form, as clients of the service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from callgate import Gate, Policy
from callgate.errors import InvalidRequestError, RateLimitedError, ServerUnavailableError
from callgate.server import Service, ServiceOptions
from callgate.testing import answer, call, thought

from .conftest import Site, Slow, Stage, add, poke, serving

anthropic = pytest.importorskip("anthropic", reason="anthropic is not installed")
pytestmark = pytest.mark.judge("anthropic")

TOKEN = "a-token-of-some-length"
USAGE = {
    "promptTokenCount": 7, "candidatesTokenCount": 3, "thoughtsTokenCount": 2, "cachedContentTokenCount": 4,
    "totalTokenCount": 12,
}  # fmt: skip
WEATHER: dict[str, Any] = {
    "name": "get-weather",
    "description": "Tells the weather.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
STAGE, SLOW = Stage(), Slow()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    gate = Gate(STAGE, [add, poke, SLOW.tool], policy=Policy(rules=["ask poke"]))
    with serving(Service(gate, options=ServiceOptions(token=TOKEN))) as running:
        yield running


@pytest.fixture
def client(site: Site) -> Iterator[Any]:
    with anthropic.Anthropic(api_key=TOKEN, base_url=f"http://127.0.0.1:{site.port}", max_retries=0) as made:
        yield made


def said(words: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": words}]


def ask(client: Any, messages: Any, **given: Any) -> Any:
    return client.messages.create(**{"model": "callgate", "max_tokens": 100, "messages": messages, **given})


# With the server's tools --------------------------------------------------------------------------------------------------


def test_a_request_without_tools_gets_the_servers_and_sees_no_call(client: Any) -> None:
    model = STAGE.plays([thought("Hm."), call("add", a=1, b=2)], answer("It is 3.", usage=USAGE))
    got = ask(client, said("1 + 2?"))
    assert [block.model_dump(exclude_none=True) for block in got.content] == [
        {"type": "thinking", "thinking": "Hm.", "signature": ""},
        {"type": "text", "text": "It is 3."},
    ]
    assert (got.type, got.role, got.model, got.stop_reason) == ("message", "assistant", "callgate", "end_turn")
    assert (got.usage.input_tokens, got.usage.cache_read_input_tokens, got.usage.output_tokens) == (3, 4, 5)
    assert set(model.requests[0].tool_names) == {"add", "poke", "slow"}


def test_a_stream_begins_before_the_model_says_anything(client: Any) -> None:
    SLOW.go.clear()
    STAGE.plays(call("slow"), answer("Done.", usage=USAGE))
    with client.messages.stream(model="callgate", max_tokens=100, messages=said("Go.")) as stream:
        events = iter(stream)
        begun = next(events).type
        SLOW.go.set()
        rest = [event.type for event in events]
        usage = stream.get_final_message().usage
    SLOW.started.clear()
    assert SLOW.states == ["finished"], "the stream began while the call was running, and not after its deadline"
    assert (begun, rest.count("message_start"), rest[-1]) == ("message_start", 0, "message_stop")
    assert (usage.input_tokens, usage.output_tokens) == (3, 5)


def test_a_stream_adds_up_to_the_message_and_has_every_event_in_order(client: Any) -> None:
    STAGE.plays([thought("Hm."), call("add", a=1, b=2)], answer("The sum of them is 3.", usage=USAGE))
    with client.messages.stream(model="callgate", max_tokens=100, messages=said("1 + 2?")) as stream:
        raw = [event.type for event in stream if event.type in EVENTS]
        got = stream.get_final_message()
    assert [block.type for block in got.content] == ["thinking", "text"]
    assert (got.content[0].thinking, got.content[1].text) == ("Hm.", "The sum of them is 3.")
    assert (got.stop_reason, got.usage.output_tokens) == ("end_turn", 5)
    kinds = [kind for index, kind in enumerate(raw) if index == 0 or raw[index - 1] != kind]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert kinds == ["message_start", *block, *block, "message_delta", "message_stop"]


EVENTS = (
    "message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "message_stop",
)  # fmt: skip


def test_messages_and_settings_reach_the_model(client: Any) -> None:
    model = STAGE.plays("{}")
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    ask(
        client,
        [
            {"role": "user", "content": "I am Ada."},
            {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]},
            {"role": "user", "content": [{"type": "text", "text": "And this?"}, image]},
        ],
        system=[{"type": "text", "text": "Be kind."}],
        stop_sequences=["!"],
        metadata={"user_id": "u1"},
        # Not every version of the SDK has these.
        extra_body={
            "temperature": 0.2,
            "top_k": 3,
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "output_config": {"format": {"type": "json_schema", "schema": schema}},
        },
    )
    asked = model.requests[0]
    assert asked.system == "Be kind."
    assert asked.contents == [
        {"role": "user", "parts": [{"text": "I am Ada."}]},
        {"role": "model", "parts": [{"text": "Hello."}]},
        {"role": "user", "parts": [{"text": "And this?"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]},
    ]
    assert asked.settings == {
        "temperature": 0.2, "top_k": 3, "max_output_tokens": 100, "stop_sequences": ["!"], "thinking": "low", "user": "u1",
        "response_mime_type": "application/json", "response_json_schema": schema,
    }  # fmt: skip


def test_an_instruction_in_the_middle_of_a_conversation_is_one_of_the_model(client: Any) -> None:
    model = STAGE.plays("Good.", "Good.")
    instruction = {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
    ask(client, [*said("Hello."), instruction], system="Be kind.")
    ask(
        client, [*said("Hello."), instruction, {"role": "assistant", "content": "Hi."}, *said("And now?")], system="Be kind."
    )
    for request, texts in zip(model.requests, (["Hello."], ["Hello.", "Hi.", "And now?"]), strict=True):
        assert request.system == "Be kind.\n\nBe brief."
        assert [part["text"] for content in request.contents for part in content["parts"]] == texts


def test_a_call_that_needs_approval_is_told_in_a_sentence(client: Any) -> None:
    STAGE.plays(call("poke", where="here"))
    raw = client.messages.with_raw_response.create(model="callgate", max_tokens=100, messages=said("Poke."))
    got = raw.parse()
    assert got.stop_reason == "end_turn"
    assert raw.headers["callgate-session"] in got.content[0].text


# With tools of the client's own -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_own_tools_come_back_and_their_results_are_taken(client: Any, stream: bool) -> None:
    model = STAGE.plays(
        [call("get_weather", id="c1", city="Oslo"), call("get_weather", city="Rome")], "Both are cold."
    )  # fmt: skip
    given: dict[str, Any] = {"model": "callgate", "max_tokens": 100, "messages": said("Weather?"), "tools": [WEATHER]}
    if stream:
        with client.messages.stream(**given) as events:
            first = events.get_final_message()
    else:
        first = client.messages.create(**given)
    assert first.stop_reason == "tool_use"
    assert [(block.type, block.name, block.input) for block in first.content] == [
        ("tool_use", "get-weather", {"city": "Oslo"}),
        ("tool_use", "get-weather", {"city": "Rome"}),
    ]
    assert first.content[0].id == "c1"
    assert len({block.id for block in first.content}) == 2
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": '{"degrees": -3}'} for block in reversed(first.content)
    ]
    history = [*said("Weather?"), {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    second = ask(client, history, tools=[WEATHER])
    assert second.content[0].text == "Both are cold."
    assert [request.tool_names for request in model.requests] == [["get_weather"]] * 2
    calls, responses = (content["parts"] for content in model.requests[1].contents[1:])
    assert [part["functionCall"]["args"] for part in calls] == [{"city": "Oslo"}, {"city": "Rome"}]
    assert [part["functionResponse"]["name"] for part in responses] == ["get_weather"] * 2
    assert responses[0]["functionResponse"]["id"] == "c1"


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"type": "auto"}, "auto"), ({"type": "any"}, "required"), ({"type": "none"}, "none"),
        ({"type": "tool", "name": "get-weather"}, "get-weather"),
    ],
)  # fmt: skip
def test_the_choice_of_tools_reaches_the_model(client: Any, given: Any, wanted: str) -> None:
    model = STAGE.plays("Yes.")
    ask(client, said("?"), tools=[WEATHER], tool_choice=given)
    assert model.requests[0].tool_choice == wanted


def test_a_tool_that_runs_at_the_provider_is_mapped(client: Any) -> None:
    model = STAGE.plays("Yes.")
    ask(client, said("?"), tools=[{"type": "web_search_20250305", "name": "web_search"}])
    assert {"googleSearch": {}} in model.requests[0].tools


# Counting, refusals, failures ---------------------------------------------------------------------------------------------


def test_tokens_are_counted_and_grow_with_the_request(client: Any) -> None:
    short, long = (
        client.messages.count_tokens(model="callgate", messages=said("a" * size), tools=[WEATHER]).input_tokens
        for size in (10, 4000)
    )
    assert 0 < short < long


CALLED = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
RESULT = {"type": "tool_result", "tool_use_id": "c", "content": "cold"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "?"}]}, "wizard"),
        ({"messages": [{"role": "assistant", "content": "?"}]}, "newest message"),
        ({"messages": [{"role": "user", "content": [RESULT]}]}, "messages.0.content.0.tool_use_id"),
        ({"messages": [*said("?"), CALLED, {"role": "user", "content": [RESULT, RESULT]}]}, "messages.2.content.1"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice"),
        ({"tools": [{"type": "memory_20250818", "name": "memory"}]}, "memory_20250818"),
        ({"extra_body": {"mcp_servers": [{"type": "url", "url": "https://x.example", "name": "x"}]}}, "mcp_servers"),
    ],
)
def test_what_cannot_be_used_is_a_bad_request_in_anthropics_shape(client: Any, given: Any, told: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match=told) as caught:
        client.messages.create(**{"model": "callgate", "max_tokens": 9, "messages": said("?"), **given})
    assert (caught.value.body["type"], caught.value.body["error"]["type"]) == ("error", "invalid_request_error")


@pytest.mark.parametrize(
    ("raised", "kind", "word"),
    [
        (InvalidRequestError("no such model", is_model_unknown=True), "NotFoundError", "not_found_error"),
        (InvalidRequestError("no"), "BadRequestError", "invalid_request_error"),
        (RateLimitedError("too much", retry_after=7), "RateLimitedError", "rate_limit_error"),
        (ServerUnavailableError("broken"), "InternalServerError", "api_error"),
    ],
)
@pytest.mark.parametrize("tools", [[], [WEATHER]], ids=["our tools", "its tools"])
def test_what_the_model_fails_with_has_anthropics_shape(
    client: Any, raised: Exception, kind: str, word: str, tools: Any
) -> None:
    STAGE.plays(raised)
    with pytest.raises(getattr(anthropic, kind.replace("RateLimitedError", "RateLimitError"))) as caught:
        ask(client, said("?"), **({"tools": tools} if tools else {}))
    assert caught.value.body["error"]["type"] == word


def test_an_answer_that_breaks_off_is_an_error_in_the_stream(client: Any) -> None:
    STAGE.plays(answer("Once upon", finish_reason=None))
    with pytest.raises(anthropic.APIStatusError, match="ended early"):
        list(client.messages.create(model="callgate", max_tokens=9, messages=said("?"), stream=True, tools=[WEATHER]))


@pytest.mark.parametrize(("native", "reason"), [("MAX_TOKENS", "max_tokens"), ("SAFETY", "refusal")])
def test_the_reason_of_an_end_is_told(client: Any, native: str, reason: str) -> None:
    STAGE.plays(answer("Half", finish_reason=native))
    assert ask(client, said("?"), tools=[WEATHER]).stop_reason == reason


def test_a_wrong_key_is_refused_in_anthropics_shape(site: Site, client: Any) -> None:
    with pytest.raises(anthropic.AuthenticationError):
        ask(client.with_options(api_key="wrong"), said("?"))
    got = site.post("/v1/messages", {})
    assert (got.status, json.loads(got.body)["error"]["type"]) == (401, "authentication_error")


def test_no_tool_of_the_service_runs_where_the_client_wants_no_call(client: Any) -> None:
    model = STAGE.plays(call("add", a=1, b=2), "Then not.")
    got = ask(client, said("1 + 2?"), tool_choice={"type": "none"})
    assert [block.text for block in got.content] == ["Then not."]
    response = model.requests[1].contents[-1]["parts"][0]["functionResponse"]["response"]
    assert response["error"].startswith("Not run: no tool may be called in this run.")
