"""The openai SDK, and plain requests in OpenAI's form, as clients of the service."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from callgate import Gate, Policy
from callgate.errors import BlockedError, RateLimitedError
from callgate.models.openai import OpenAIModel
from callgate.server import Service, ServiceOptions
from callgate.server.providers import Provider, Providers
from callgate.testing import answer, call, text, thought
from callgate.testing.fake_openai import FakeOpenAI

from .conftest import Site, Stage, add, poke, serving

openai = pytest.importorskip("openai", reason="openai is not installed")

TOKEN = "a-token-of-some-length"
USAGE = {"promptTokenCount": 7, "candidatesTokenCount": 3, "thoughtsTokenCount": 2, "totalTokenCount": 12}
WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get-weather",
        "description": "Tells the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
STAGE = Stage()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    gate = Gate(STAGE, [add, poke], policy=Policy(rules=["ask poke"]))
    other = Provider(name="other", open=lambda name: STAGE, default="one", models=("one",))
    with serving(Service(gate, options=ServiceOptions(token=TOKEN), providers=Providers({"other": other}))) as running:
        yield running


@pytest.fixture
def client(site: Site) -> Iterator[Any]:
    with openai.OpenAI(api_key=TOKEN, base_url=f"http://127.0.0.1:{site.port}/v1", max_retries=0) as made:
        yield made


@pytest.fixture
def post(site: Site) -> Callable[..., Any]:
    def send(**body: Any) -> Any:
        return site.post("/v1/chat/completions", {"model": "callgate"} | body, authorization=f"Bearer {TOKEN}")

    return send


def said(words: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": words}]


# With the server's tools -------------------------------------------------------------------------------------------------


@pytest.mark.judge("openai")
def test_a_request_without_tools_gets_the_servers_and_sees_no_call(client: Any) -> None:
    model = STAGE.plays([thought("Hm."), call("add", a=1, b=2)], answer("It is 3.", usage=USAGE))
    got = client.chat.completions.create(model="callgate", messages=said("1 + 2?"))
    [choice] = got.choices
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == ("It is 3.", None, "stop")
    assert choice.message.reasoning_content == "Hm."
    assert (got.model, got.object) == ("callgate", "chat.completion")
    assert (got.usage.prompt_tokens, got.usage.completion_tokens, got.usage.total_tokens) == (7, 5, 12)
    assert got.usage.completion_tokens_details.reasoning_tokens == 2
    assert set(model.requests[0].tool_names) == {"add", "poke"}


@pytest.mark.judge("openai")
def test_a_stream_tells_text_as_it_comes_and_usage_when_asked(client: Any) -> None:
    STAGE.plays([thought("Hm."), call("add", a=1, b=2)], answer("The sum of them is 3.", usage=USAGE))
    chunks = list(
        client.chat.completions.create(
            model="stage", messages=said("1 + 2?"), stream=True, stream_options={"include_usage": True}
        )
    )
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == "The sum of them is 3."
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "Hm."
    assert not any(delta.tool_calls for delta in deltas)
    assert len(deltas) > 4
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert chunks[-1].usage.total_tokens == 12


def test_a_stream_ends_with_its_last_line_and_counts_nothing_unasked(post: Any) -> None:
    STAGE.plays("Yes.")
    got = post(messages=said("?"), stream=True)
    events = got.body.decode().strip().split("\n\n")
    assert got.headers["content-type"].startswith("text/event-stream")
    assert events[-1] == "data: [DONE]"
    assert all("usage" not in json.loads(event.removeprefix("data: ")) for event in events[:-1])


@pytest.mark.judge("openai")
def test_messages_and_settings_reach_the_model(client: Any) -> None:
    model = STAGE.plays("{}")
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    client.chat.completions.create(
        model="callgate",
        messages=[
            {"role": "system", "content": "Be kind."},
            {"role": "developer", "content": "Be short."},
            {"role": "user", "content": "I am Ada."},
            {"role": "assistant", "content": "Hello."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "And this?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
                ],
            },
        ],
        temperature=0.2,
        max_completion_tokens=9,
        stop="!",
        reasoning_effort="low",
        response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        user="u1",
        metadata={"a": "b"},
    )
    asked = model.requests[0]
    assert asked.system == "Be kind.\n\nBe short."
    assert asked.contents == [
        {"role": "user", "parts": [{"text": "I am Ada."}]},
        {"role": "model", "parts": [{"text": "Hello."}]},
        {"role": "user", "parts": [{"text": "And this?"}, {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}]},
    ]
    assert asked.settings == {
        "temperature": 0.2, "max_output_tokens": 9, "stop_sequences": ["!"], "thinking": "low", "user": "u1",
        "response_mime_type": "application/json", "response_json_schema": schema, "extra_body": {"metadata": {"a": "b"}},
    }  # fmt: skip


@pytest.mark.judge("openai")
def test_a_call_that_needs_approval_is_told_in_a_sentence(client: Any) -> None:
    STAGE.plays(call("poke", where="here"))
    raw = client.chat.completions.with_raw_response.create(model="callgate", messages=said("Poke."))
    session, got = raw.headers["callgate-session"], raw.parse()
    assert got.choices[0].finish_reason == "stop"
    assert session in got.choices[0].message.content
    assert "/api/v1/approvals" not in got.choices[0].message.content
    assert got.choices[0].message.tool_calls is None


@pytest.mark.judge("openai")
def test_the_session_of_a_pause_is_gone_on_with_by_its_header(client: Any) -> None:
    model = STAGE.plays("Yes.", "And yes.")
    client.chat.completions.create(model="callgate", messages=said("One."), extra_headers={"Callgate-Session": "mine"})
    client.chat.completions.create(model="callgate", messages=said("Two."), extra_headers={"Callgate-Session": "mine"})
    assert [part["text"] for content in model.requests[1].contents for part in content["parts"]] == ["One.", "Yes.", "Two."]


# With tools of the client's own ------------------------------------------------------------------------------------------


@pytest.mark.judge("openai")
def test_own_tools_come_back_and_their_results_are_taken_with_signatures(client: Any) -> None:
    model = STAGE.plays(
        [call("get_weather", id="c1", signature="sig", city="Oslo"), call("get_weather", city="Rome")], "Both are cold."
    )
    first = client.chat.completions.create(model="callgate", messages=said("Weather?"), tools=[WEATHER])
    message = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    assert message.content is None
    assert [(c.type, c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls] == [
        ("function", "get-weather", {"city": "Oslo"}),
        ("function", "get-weather", {"city": "Rome"}),
    ]
    assert message.tool_calls[0].id == "c1"
    assert len({c.id for c in message.tool_calls}) == 2
    results = [{"role": "tool", "tool_call_id": c.id, "content": '{"degrees": -3}'} for c in reversed(message.tool_calls)]
    messages = [*said("Weather?"), message.model_dump(exclude_none=True), *results]
    second = client.chat.completions.create(model="callgate", messages=messages, tools=[WEATHER])
    assert second.choices[0].message.content == "Both are cold."
    assert [request.tool_names for request in model.requests] == [["get_weather"]] * 2
    assert model.requests[1].contents[1:] == [
        {
            "role": "model",
            "parts": [
                {"functionCall": {"id": "c1", "name": "get_weather", "args": {"city": "Oslo"}}, "thoughtSignature": "sig"},
                {"functionCall": {"name": "get_weather", "args": {"city": "Rome"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "c1", "name": "get_weather", "response": {"result": {"degrees": -3}}}},
                {"functionResponse": {"name": "get_weather", "response": {"result": {"degrees": -3}}}},
            ],
        },
    ]


@pytest.mark.judge("openai")
def test_own_calls_stream_as_deltas(client: Any) -> None:
    STAGE.plays([text("Let me see."), call("get_weather", city="Oslo"), call("get_weather", city="Rome")])
    with client.chat.completions.stream(model="callgate", messages=said("Weather?"), tools=[WEATHER]) as stream:
        for _ in stream:
            pass
        got = stream.get_final_completion()
    assert got.choices[0].message.content == "Let me see."
    assert [json.loads(c.function.arguments)["city"] for c in got.choices[0].message.tool_calls] == ["Oslo", "Rome"]
    assert got.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("choice", "asked", "declared"),
    [
        ("required", "required", ["a", "b", "c"]),
        ("none", "none", ["a", "b", "c"]),
        ({"type": "function", "function": {"name": "b"}}, "b", ["a", "b", "c"]),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "c"}}]},
            },
            "required",
            ["c"],
        ),
    ],
)  # fmt: skip
def test_the_tool_choice_is_honoured(post: Any, choice: Any, asked: str, declared: list[str]) -> None:
    model = STAGE.plays("Yes.")
    tools = [{"type": "function", "function": {"name": name, "description": "One."}} for name in "abc"]
    assert post(messages=said("?"), tools=tools, tool_choice=choice).status == 200
    assert (model.requests[0].tool_choice, model.requests[0].tool_names) == (asked, declared)


# Errors and models -------------------------------------------------------------------------------------------------------


@pytest.mark.judge("openai")
def test_models_are_listed_and_looked_up(client: Any) -> None:
    assert [model.id for model in client.models.list()] == ["stage", "callgate", "other:one"]
    assert client.models.retrieve("callgate").id == "callgate"
    STAGE.plays("Yes.")
    assert client.chat.completions.create(model="other:one", messages=said("?")).choices[0].message.content == "Yes."
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="other:nobody", messages=said("?"))
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize(("native", "word"), [("MAX_TOKENS", "length"), ("SAFETY", "content_filter"), ("OTHER", "length")])
@pytest.mark.judge("openai")
def test_other_ends_are_told_and_kept_raw(client: Any, native: str, word: str) -> None:
    STAGE.plays(answer("Well", finish_reason=native))
    [choice] = client.chat.completions.create(model="callgate", messages=said("?"), tools=[WEATHER]).choices
    assert (choice.finish_reason, choice.native_finish_reason) == (word, native)


@pytest.mark.judge("openai")
def test_what_fails_has_openais_shape(client: Any, post: Any) -> None:
    STAGE.plays(RateLimitedError("too much", retry_after=7))
    with pytest.raises(openai.RateLimitError) as limited:
        client.chat.completions.create(model="callgate", messages=said("?"))
    assert limited.value.response.headers["retry-after"] == "7"
    assert limited.value.body == {
        "message": "too much",
        "type": "rate_limit_error",
        "param": None,
        "code": "model_rate_limited",
    }
    STAGE.plays(BlockedError("blocked", reason="SAFETY"))
    assert post(messages=said("?")).json["error"]["code"] == "prompt_blocked"
    STAGE.plays(answer("Once upon", finish_reason=None))
    with pytest.raises(openai.APIError, match="ended early"):
        list(client.chat.completions.create(model="callgate", messages=said("?"), stream=True))


CALLED = {
    "role": "assistant",
    "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c", "content": "cold"}


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "?"}]}, "wizard"),
        ({"messages": [{"role": "assistant", "content": "?"}]}, "newest message"),
        ({"messages": [*said("?"), CALLED, RESULT, RESULT]}, "messages[3].tool_call_id"),
        ({"messages": said("?"), "n": 2}, "n:"),
        ({"messages": said("?"), "tool_choice": "maybe"}, "maybe"),
        ({"messages": said("?"), "tool_choice": {"type": "function"}}, "names no function"),
        ({"messages": said("?"), "tool_choice": {"type": "function", "function": {"name": "gone"}}}, "gone"),
        ({"messages": said("?"), "response_format": {"type": "poem"}}, "response_format"),
        ({"messages": said("?"), "tools": [{"type": "web_search"}]}, "web_search"),
    ],
)
def test_what_cannot_be_used_is_a_bad_request(post: Any, body: Any, told: str) -> None:
    got = post(**body)
    assert (got.status, got.json["error"]["type"]) == (400, "invalid_request_error")
    assert told in got.json["error"]["message"]


@pytest.mark.judge("openai")
def test_the_door_holds_and_speaks_openais_language(site: Site, client: Any) -> None:
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").models.list()
    assert site.get("/v1/models").json["error"]["type"] == "authentication_error"
    assert site.get(f"/v1/models?api_key={TOKEN}").status == 401
    assert site.get("/v1/models", authorization=f"Bearer {TOKEN}", Origin="https://evil.example").status == 403
    sent = site.request("POST", "/v1/chat/completions", b"{}", authorization=f"Bearer {TOKEN}", Content_Type="text/plain")
    assert (sent.status, sent.json["error"]["code"]) == (415, "unsupported_media_type")


# Another server of chat completions behind it ----------------------------------------------------------------------------


def test_a_server_of_chat_completions_behind_it_gets_the_request_as_it_was_meant(serve: Callable[..., Site]) -> None:
    from callgate.testing.fake_openai import call as fake_call

    with FakeOpenAI.in_thread([fake_call("get-weather", city="Oslo"), "Cold."]) as fake:
        site = serve(Gate(OpenAIModel("gpt-5.2", base_url=fake.base_url, api_key="k"), []))
        with openai.OpenAI(api_key="k", base_url=f"http://127.0.0.1:{site.port}/v1", max_retries=0) as client:
            first = client.chat.completions.create(
                model="gpt-5.2", messages=said("Oslo?"), tools=[WEATHER], temperature=0.1, metadata={"a": "b"}
            )
            [made] = first.choices[0].message.tool_calls
            result = {"role": "tool", "tool_call_id": made.id, "content": "cold"}
            second = client.chat.completions.create(
                model="gpt-5.2",
                messages=[*said("Oslo?"), first.choices[0].message.model_dump(exclude_none=True), result],
                tools=[WEATHER],
            )
        sent = [request.json for request in fake.requests]
    assert made.function.name == "get-weather"
    assert second.choices[0].message.content == "Cold."
    assert (sent[0]["temperature"], sent[0]["metadata"]) == (0.1, {"a": "b"})
    assert sent[1]["messages"][1]["tool_calls"][0]["id"] == made.id == sent[1]["messages"][2]["tool_call_id"]
