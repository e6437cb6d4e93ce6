"""Google's own SDK, and plain requests in Google's form, as clients of the service."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from callgate import Gate, Policy, ScriptedModel
from callgate.errors import BlockedError, InvalidRequestError, RateLimitedError
from callgate.gemini.surface import Surface
from callgate.models.gemini import GeminiModel
from callgate.models.prompted import PromptedModel
from callgate.server import Service, ServiceOptions
from callgate.server.providers import Provider, Providers
from callgate.testing import answer, call, text, thought
from callgate.testing.fake_gemini import FakeGemini

from .conftest import Site, Stage, add, poke, serving

genai = pytest.importorskip("google.genai", reason="google-genai is not installed")
from google.genai import errors, types  # noqa: E402 - only where it is installed

TOKEN = "a-token-of-some-length"
USAGE = {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10}
WEATHER = {
    "name": "get-weather",
    "description": "Tells the weather.",
    "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}},
}


STAGE = Stage()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    gate = Gate(STAGE, [add, poke], system="Be brief.", policy=Policy(rules=["ask poke"]))
    other = Provider(name="other", open=lambda name: PromptedModel(STAGE), default="told", models=("told",))
    with serving(Service(gate, options=ServiceOptions(token=TOKEN), providers=Providers({"other": other}))) as running:
        yield running


@pytest.fixture
def client(site: Site) -> Any:
    return genai.Client(api_key=TOKEN, http_options={"base_url": f"http://127.0.0.1:{site.port}"})


@pytest.fixture
def post(site: Site) -> Callable[..., Any]:
    def send(body: Any, action: str = "generateContent", model: str = "callgate", **headers: str) -> Any:
        return site.post(f"/v1beta/models/{model}:{action}", body, x_goog_api_key=TOKEN, **headers)

    return send


def said(words: str) -> list[dict[str, Any]]:
    return [{"role": "user", "parts": [{"text": words}]}]


# With the server's tools -------------------------------------------------------------------------------------------------


@pytest.mark.judge("google-genai")
def test_a_request_without_tools_gets_the_servers_and_sees_no_call(client: Any) -> None:
    model = STAGE.plays([thought("Hm."), call("add", a=1, b=2)], answer("It is 3.", usage=USAGE))
    got = client.models.generate_content(model="callgate", contents="1 + 2?")
    assert got.text == "It is 3."
    assert [part.thought for part in got.candidates[0].content.parts] == [True, None]
    assert got.function_calls is None
    assert got.candidates[0].finish_reason is types.FinishReason.STOP
    assert (got.usage_metadata.prompt_token_count, got.usage_metadata.total_token_count) == (7, 10)
    assert got.model_version == "stage"
    assert set(model.requests[0].tool_names) == {"add", "poke"}


@pytest.mark.judge("google-genai")
def test_a_stream_tells_text_as_it_comes_and_keeps_calls_to_itself(client: Any) -> None:
    STAGE.plays([text("I shall add."), call("add", a=1, b=2)], answer("The sum of them is 3.", usage=USAGE))
    chunks = list(client.models.generate_content_stream(model="models/stage", contents="1 + 2?"))
    assert len(chunks) > 3
    assert "".join(chunk.text or "" for chunk in chunks) == "I shall add.\n\nThe sum of them is 3."
    assert not any(chunk.function_calls for chunk in chunks)
    assert chunks[-1].candidates[0].finish_reason is types.FinishReason.STOP
    assert chunks[-1].usage_metadata.total_token_count == 10
    assert len({chunk.response_id for chunk in chunks}) == 1


@pytest.mark.judge("google-genai")
def test_instruction_settings_and_history_reach_the_model(client: Any) -> None:
    model = STAGE.plays("Blue.")
    config = types.GenerateContentConfig(
        system_instruction="Speak in colours.",
        temperature=0.5,
        max_output_tokens=20,
        stop_sequences=["!"],
        response_mime_type="text/plain",
        thinking_config=types.ThinkingConfig(thinking_budget=64, include_thoughts=True),
        safety_settings=[types.SafetySetting(category="HARM_CATEGORY_HARASSMENT", threshold="BLOCK_NONE")],
    )
    history = [*said("My name is Ada."), {"role": "model", "parts": [{"text": "Hello Ada."}]}, *said("And?")]
    assert client.models.generate_content(model="callgate", contents=history, config=config).text == "Blue."
    asked = model.requests[0]
    assert asked.system == "Be brief.\n\nSpeak in colours."
    assert asked.settings == {
        "temperature": 0.5, "max_output_tokens": 20, "stop_sequences": ["!"], "response_mime_type": "text/plain",
        "thinking": 64, "include_thoughts": True, "safety": {"HARM_CATEGORY_HARASSMENT": "BLOCK_NONE"},
    }  # fmt: skip
    assert asked.contents == history


@pytest.mark.judge("google-genai")
def test_a_chat_of_the_sdk_goes_on(client: Any) -> None:
    STAGE.plays("Hello Ada.", "Ada.")
    chat = client.chats.create(model="callgate")
    chat.send_message("I am Ada.")
    assert chat.send_message("Who am I?").text == "Ada."


def test_a_call_that_needs_approval_is_told_in_a_sentence_and_goes_on_in_its_session(site: Site, post: Any) -> None:
    model = STAGE.plays(call("poke", where="here"), "Poked.", "As I said.")
    paused = post({"contents": said("Poke.")})
    session = paused.headers["callgate-session"]
    candidate = paused.json["candidates"][0]
    [part] = candidate["content"]["parts"]
    assert paused.status == 200
    assert candidate["finishReason"] == "STOP"
    assert session in part["text"]
    assert "/api/v1/approvals" not in part["text"]  # The model reads it, too.
    assert 'poke {"where":"here"}' in part["text"]
    [waiting] = site.get("/api/v1/approvals", authorization=f"Bearer {TOKEN}").json["approvals"]
    url = f"/api/v1/approvals/{session}/{waiting['call_id']}"
    assert site.post(url, {"answer": "yes"}, authorization=f"Bearer {TOKEN}").status == 200
    site.until(lambda: not site.service.live)
    went_on = post({"contents": said("What did you do?")}, Callgate_Session=session)
    assert went_on.json["candidates"][0]["content"]["parts"] == [{"text": "As I said."}]
    assert went_on.headers["callgate-session"] == session
    told = [part for content in model.requests[-1].contents for part in content["parts"]]
    assert {"functionResponse": {"name": "poke", "response": {"result": "poked here"}}} in told


@pytest.mark.judge("google-genai")
def test_prompted_models_answer_the_same_way(client: Any) -> None:
    STAGE.plays('TOOL_CALL: add({"a": 1, "b": 2})', "It is 3.")
    got = client.models.generate_content(model="other:told", contents="1 + 2?")
    assert (got.text, got.function_calls) == ("It is 3.", None)


@pytest.mark.judge("google-genai")
def test_own_tools_work_with_models_that_are_told_of_them_in_words(client: Any) -> None:
    STAGE.plays('TOOL_CALL: get_weather({"city": "Oslo"})')
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[types.FunctionDeclaration(**WEATHER)])])
    got = client.models.generate_content(model="other:told", contents="Weather?", config=config)
    assert [(c.name, c.args) for c in got.function_calls] == [("get-weather", {"city": "Oslo"})]


# With tools of the client's own ------------------------------------------------------------------------------------------


@pytest.mark.judge("google-genai")
def test_own_tools_alone_are_declared_and_their_calls_come_back_signed(client: Any) -> None:
    model = STAGE.plays([call("get_weather", id="c1", signature="c2ln", city="Oslo"), call("get_weather", city="Rome")])
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[types.FunctionDeclaration(**WEATHER)])])
    got = client.models.generate_content(model="callgate", contents="Weather?", config=config)
    assert [(c.id, c.name, c.args) for c in got.function_calls] == [
        ("c1", "get-weather", {"city": "Oslo"}),
        (None, "get-weather", {"city": "Rome"}),
    ]
    assert got.candidates[0].content.parts[0].thought_signature == b"sig"
    assert model.requests[0].tool_names == ["get_weather"]
    assert model.requests[0].system == "Be brief."


@pytest.mark.judge("google-genai")
def test_results_of_own_calls_are_taken_with_their_history(client: Any) -> None:
    model = STAGE.plays("Cold.")
    history = [
        *said("Weather in Oslo?"),
        {
            "role": "model",
            "parts": [{"functionCall": {"name": "get-weather", "args": {"city": "Oslo"}}, "thoughtSignature": "c2ln"}],
        },
        {"role": "user", "parts": [{"functionResponse": {"name": "get-weather", "response": {"result": -3}}}]},
    ]
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[types.FunctionDeclaration(**WEATHER)])])
    assert client.models.generate_content(model="callgate", contents=history, config=config).text == "Cold."
    sent = model.requests[0].contents
    assert sent[1]["parts"] == [
        {"functionCall": {"name": "get_weather", "args": {"city": "Oslo"}}, "thoughtSignature": "c2ln"}
    ]
    assert sent[2]["parts"] == [{"functionResponse": {"name": "get_weather", "response": {"result": -3}}}]


@pytest.mark.judge("google-genai")
def test_automatic_function_calling_of_the_sdk_runs_at_the_client(client: Any) -> None:
    asked: list[str] = []

    def get_mood(person: str) -> str:
        """Tells a mood."""
        asked.append(person)
        return "fine"

    model = STAGE.plays(call("get_mood", person="Ada"), "Ada is fine.")
    got = client.models.generate_content(
        model="callgate", contents="How is Ada?", config=types.GenerateContentConfig(tools=[get_mood])
    )
    assert (got.text, asked) == ("Ada is fine.", ["Ada"])
    assert [request.tool_names for request in model.requests] == [["get_mood"]] * 2


@pytest.mark.judge("google-genai")
def test_own_calls_stream_to_the_client(client: Any) -> None:
    STAGE.plays([text("Let me see."), call("get_weather", city="Oslo")])
    config = types.GenerateContentConfig(tools=[types.Tool(function_declarations=[types.FunctionDeclaration(**WEATHER)])])
    chunks = list(client.models.generate_content_stream(model="callgate", contents="Weather?", config=config))
    assert "".join(part.text or "" for chunk in chunks for part in (chunk.parts or [])) == "Let me see."
    assert [c.name for chunk in chunks for c in chunk.function_calls or []] == ["get-weather"]


@pytest.mark.parametrize(
    ("config", "choice", "declared"),
    [
        ({"mode": "ANY"}, "required", ["a", "b", "c"]),
        ({"mode": "NONE"}, "none", ["a", "b", "c"]),
        ({"mode": "ANY", "allowedFunctionNames": ["b"]}, "b", ["a", "b", "c"]),
        ({"mode": "ANY", "allowedFunctionNames": ["a", "c"]}, "required", ["a", "c"]),
        ({"mode": "VALIDATED"}, "validated", ["a", "b", "c"]),
        ({}, "auto", ["a", "b", "c"]),
    ],
)
def test_the_tool_configuration_is_honoured(post: Any, config: Any, choice: str, declared: list[str]) -> None:
    model = STAGE.plays("Yes.")
    tools = [{"function_declarations": [{"name": name, "description": "One."} for name in "abc"]}]
    sent = {"contents": said("?"), "tools": tools, "tool_config": {"function_calling_config": config}}
    assert post(sent).status == 200
    assert (model.requests[0].tool_choice, model.requests[0].tool_names) == (choice, declared)


def test_tools_that_run_at_google_are_passed_on_without_the_servers(post: Any) -> None:
    model = STAGE.plays("Found.")
    assert post({"contents": said("?"), "tools": [{"googleSearch": {}}]}).status == 200
    assert model.requests[0].tools == [{"googleSearch": {}}]


# Forms and errors --------------------------------------------------------------------------------------------------------


def test_a_stream_without_alt_is_one_json_array(post: Any) -> None:
    STAGE.plays("One two three four.")
    got = post({"contents": said("Count.")}, "streamGenerateContent")
    chunks = got.json
    assert got.headers["content-type"] == "application/json"
    assert "".join(c["candidates"][0].get("content", {"parts": [{"text": ""}]})["parts"][0]["text"] for c in chunks) == (
        "One two three four."
    )
    assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"


@pytest.mark.judge("google-genai")
def test_tokens_are_counted_about(client: Any) -> None:
    few = client.models.count_tokens(model="callgate", contents="Hello").total_tokens
    many = client.models.count_tokens(model="callgate", contents="Hello " * 100).total_tokens
    assert 0 < few < many


@pytest.mark.judge("google-genai")
def test_models_are_listed_and_looked_up(client: Any) -> None:
    assert [model.name for model in client.models.list()] == ["models/stage", "models/callgate", "models/other:told"]
    assert "generateContent" in client.models.get(model="callgate").supported_actions
    with pytest.raises(errors.ClientError) as caught:
        client.models.get(model="other:nobody")
    assert (caught.value.code, caught.value.status) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("raised", "code", "status"),
    [
        (InvalidRequestError("the model says no"), 400, "INVALID_ARGUMENT"),
        (InvalidRequestError("no such model", is_model_unknown=True), 404, "NOT_FOUND"),
        (RateLimitedError("too much", retry_after=7), 429, "RESOURCE_EXHAUSTED"),
    ],
)
@pytest.mark.judge("google-genai")
def test_what_the_model_fails_with_has_googles_shape(client: Any, raised: Exception, code: int, status: str) -> None:
    for ask in (
        lambda: client.models.generate_content(model="callgate", contents="Hm?"),
        lambda: list(client.models.generate_content_stream(model="callgate", contents="Hm?")),
    ):
        STAGE.plays(raised)
        with pytest.raises(errors.APIError) as caught:
            ask()
        assert (caught.value.code, caught.value.status, caught.value.message) == (code, status, str(raised))


def test_a_refusal_of_what_was_passed_on_is_the_clients_own(post: Any) -> None:
    STAGE.plays(InvalidRequestError("no such field"))
    got = post({"contents": said("?"), "tools": [{"functionDeclarations": [WEATHER]}]})
    assert (got.status, got.json["error"]["status"], got.json["error"]["message"]) == (
        400,
        "INVALID_ARGUMENT",
        "no such field",
    )


def test_what_was_passed_on_is_counted_and_limited(serve: Callable[..., Site]) -> None:
    stage = Stage()
    stage.plays(answer("Yes.", usage=USAGE), RateLimitedError("too much"))
    site = serve(Gate(stage, []), runs=1)
    body = {"contents": said("?"), "tools": [{"functionDeclarations": [WEATHER]}]}
    assert site.post("/v1/models/callgate:generateContent", body).status == 200
    counted = site.get("/metrics").body.decode()
    assert 'callgate_runs_total{outcome="passed_on"} 1' in counted
    assert 'callgate_tokens_total{kind="input"} 7' in counted
    assert site.post("/v1/models/callgate:generateContent", body).status == 429
    assert site.get("/health").json["status"] == "degraded"
    site.service.places.taken = 1
    refused = site.post("/v1/models/callgate:generateContent", body)
    assert (refused.status, refused.json["error"]["status"], refused.headers["retry-after"]) == (503, "UNAVAILABLE", "1")


@pytest.mark.parametrize("tools", [[], [{"functionDeclarations": [WEATHER]}]])
@pytest.mark.judge("google-genai")
def test_an_answer_that_breaks_off_is_an_error_in_the_stream(client: Any, tools: list[Any]) -> None:
    STAGE.plays(answer("Once upon", finish_reason=None))
    told: list[str] = []

    def listen() -> None:
        stream = client.models.generate_content_stream(model="callgate", contents="Tell.", config={"tools": tools})
        told.extend(chunk.text or "" for chunk in stream)

    with pytest.raises(errors.APIError, match="ended early"):
        listen()
    assert "".join(told) == "Once upon"


@pytest.mark.parametrize("tools", [[], [{"functionDeclarations": [WEATHER]}]])
@pytest.mark.judge("google-genai")
def test_a_prompt_that_was_refused_is_told_as_google_does(client: Any, tools: list[Any]) -> None:
    STAGE.plays(BlockedError("the prompt was blocked (SAFETY)", reason="SAFETY"))
    got = client.models.generate_content(model="callgate", contents="Bad.", config={"tools": tools})
    assert (got.prompt_feedback.block_reason, got.candidates) == (types.BlockedReason.SAFETY, None)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"contents": []}, "contents"),
        ({"contents": [{"role": "model", "parts": [{"text": "Hi"}]}]}, "newest message"),
        ({"contents": [{"role": "user", "parts": [{"text": 5}]}]}, "contents[0].parts[0].text"),
        ({"contents": [{"role": "wizard", "parts": [{"text": "Hi"}]}]}, "role"),
        ({"contents": said("?"), "toolConfig": {"functionCallingConfig": {"mode": "MAYBE"}}}, "MAYBE"),
        ({"contents": said("?"), "tools": [{"functionDeclarations": [{"name": "a"}, {"name": "a"}]}]}, "'a'"),
        ({"contents": said("?"), "systemInstruction": {"parts": [{"inlineData": {}}]}}, "systemInstruction"),
        ({"contents": said("?"), "generationConfig": []}, "generationConfig"),
        ({}, "contents"),
    ],
)
def test_what_cannot_be_used_is_a_bad_request_with_its_place(post: Any, body: Any, told: str) -> None:
    got = post(body)
    assert (got.status, got.json["error"]["code"], got.json["error"]["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert told in got.json["error"]["message"]


def test_settings_that_the_model_does_not_know_are_left_out_and_named(serve: Callable[..., Site]) -> None:
    class Modest(Stage):
        known_settings = ("temperature",)

    modest = Modest()
    model = modest.plays("Yes.")
    site = serve(Gate(modest, []))
    config = {"temperature": 1, "topK": 5, "thinkingConfig": {"thinkingBudget": 3}, "imageConfig": {"size": 1}}
    got = site.post("/v1beta/models/callgate:generateContent", {"contents": said("?"), "generationConfig": config})
    assert (got.status, got.headers["callgate-left-out"]) == (200, "top_k, thinking, generationConfig")
    assert model.requests[0].settings == {"temperature": 1}


def test_names_that_a_client_made_up_do_no_harm_in_headers(serve: Callable[..., Site]) -> None:
    class Modest(Stage):
        known_settings = ()

    modest = Modest()
    modest.plays("Yes.")
    body = {"contents": said("?"), "a\r\nSet-Cookie: b": 1, "ü✓": 2, "fine": 3}
    got = serve(Gate(modest, [])).post("/v1beta/models/callgate:generateContent", body)
    assert (got.status, got.headers["callgate-left-out"]) == (200, "(a field), fine")
    assert "set-cookie" not in got.headers


def test_a_level_of_thought_that_the_model_lacks_becomes_the_nearest(serve: Callable[..., Site]) -> None:
    class Modest(Stage):
        known_settings = ("thinking",)

    modest = Modest()
    model = modest.plays("Yes.")
    site = serve(Gate(modest, []))
    body = {"model": "callgate", "messages": [{"role": "user", "content": "?"}], "reasoning_effort": "xhigh", "store": True}
    got = site.post("/v1/chat/completions", body)
    assert (got.status, got.headers["callgate-left-out"], got.headers["callgate-changed"]) == (200, "store", "thinking=high")
    assert model.requests[0].settings == {"thinking": "high"}


@pytest.mark.parametrize(
    ("words", "asked", "sent"),
    [
        (("low", "medium", "high"), "none", {"thinking": "low"}), (("low", "high"), "medium", {"thinking": "high"}),
        (("minimal", "low"), "xhigh", {"thinking": "low"}), (("low",), "low", {"thinking": "low"}), ((), "low", {}),
    ],
)  # fmt: skip
def test_a_client_of_another_api_gets_the_next_level_of_thought_that_the_model_says_it_has(
    serve: Callable[..., Site], words: tuple[str, ...], asked: str, sent: dict[str, str]
) -> None:
    class Modest(Stage):
        known_settings = ("thinking",)
        thinking_words = words

    modest = Modest()
    model = modest.plays("Yes.")
    body = {"model": "callgate", "messages": [{"role": "user", "content": "?"}], "reasoning_effort": asked}
    got = serve(Gate(modest, [])).post("/v1/chat/completions", body)
    changed = f"thinking={sent['thinking']}" if sent and sent != {"thinking": asked} else None
    assert (got.status, got.headers.get("callgate-changed")) == (200, changed)
    assert got.headers.get("callgate-left-out") == (None if sent else "thinking")
    assert model.requests[0].settings == sent


def test_a_client_of_messages_that_turns_thinking_off_is_told_what_it_gets_instead(serve: Callable[..., Site]) -> None:
    class Modest(Stage):
        known_settings = ("thinking", "max_output_tokens")
        thinking_words = ("low", "high")

    modest = Modest()
    model = modest.plays("Yes.")
    body = {
        "model": "callgate",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "?"}],
        "thinking": {"type": "disabled"},
    }
    got = serve(Gate(modest, [])).post("/v1/messages", body)
    assert (got.status, got.headers.get("callgate-changed")) == (200, "thinking=low")
    assert model.requests[0].settings == {"thinking": "low", "max_output_tokens": 9}


# The door ----------------------------------------------------------------------------------------------------------------


def test_the_door_holds_and_speaks_googles_language(site: Site) -> None:
    refused = site.get("/v1beta/models")
    assert (refused.status, refused.json["error"]["status"]) == (401, "UNAUTHENTICATED")
    # A key in an address is written down by every proxy on the way, so it opens nothing.
    assert site.get(f"/v1beta/models?key={TOKEN}").status == 401
    assert site.get("/v1beta/models", x_goog_api_key="wrong").status == 401
    assert site.get("/v1beta/models", x_goog_api_key=TOKEN).status == 200
    assert site.get("/v1beta/models", authorization=f"Bearer {TOKEN}").status == 200
    assert site.get("/v1beta/models", x_goog_api_key=TOKEN, Host="evil.example").status == 421
    assert site.get("/v1beta/models", x_goog_api_key=TOKEN, Origin="https://evil.example").json["error"]["code"] == 403
    nowhere = site.get("/v1beta/nowhere", x_goog_api_key=TOKEN)
    assert (nowhere.status, nowhere.json["error"]["status"]) == (404, "NOT_FOUND")


@pytest.mark.parametrize("action", ["generateContent", "streamGenerateContent?alt=sse"])
def test_leaving_in_the_middle_leaves_nothing_running(serve: Callable[..., Site], slow: Any, action: str) -> None:
    site = serve(Gate(ScriptedModel([call("slow"), "Done."]), [slow.tool]))
    body = json.dumps({"contents": said("Go.")}).encode()
    head = f"POST /v1/models/callgate:{action} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with site.connect() as connection:
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        assert slow.started.wait(60)
    site.until(lambda: not site.service.live, "no run")
    assert slow.states == ["cancelled"]


# A Gemini behind it ------------------------------------------------------------------------------------------------------


def test_a_gemini_behind_it_gets_what_googles_own_would(serve: Callable[..., Site]) -> None:
    from callgate.testing.fake_gemini import call as fake_call

    with FakeGemini.in_thread([fake_call("get_weather", city="Oslo"), "Cold."]) as fake:
        site = serve(
            Gate(
                GeminiModel(
                    "gemini-3.8-flash",
                    surface=Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="k"),
                ),
                [],
            )
        )
        client = genai.Client(api_key="k", http_options={"base_url": f"http://127.0.0.1:{site.port}"})

        def get_weather(city: str) -> str:
            """Tells the weather."""
            return f"cold in {city}"

        config = types.GenerateContentConfig(
            tools=[get_weather],
            temperature=0.1,
            top_k=3,
            safety_settings=[{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}],
        )
        got = client.models.generate_content(model="gemini-3.8-flash", contents="Oslo?", config=config)
        assert got.text == "Cold."
        assert fake.refusals == []
        first, second = (request.json for request in fake.requests)
    assert first["generationConfig"] == {"temperature": 0.1, "topK": 3}
    assert first["safetySettings"] == [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "OFF"}]
    called = second["contents"][1]["parts"][0]
    # The SDK writes bytes with the alphabet for addresses; they are the same bytes.
    assert called["thoughtSignature"].replace("-", "+").replace("_", "/") in fake.signatures
    assert second["contents"][2]["parts"][0]["functionResponse"]["response"] == {"result": "cold in Oslo"}


def test_a_gemini_behind_it_counts_tokens_itself(serve: Callable[..., Site]) -> None:
    with FakeGemini.in_thread([]) as fake:
        surface = Surface(kind="developer", base_url=fake.base_url, version="v1beta", api_key="k")
        site = serve(Gate(GeminiModel("gemini-3.8-flash", surface=surface), [add]))
        client = genai.Client(api_key="k", http_options={"base_url": f"http://127.0.0.1:{site.port}"})
        counted = client.models.count_tokens(model="callgate", contents="Hello there, whoever you are.").total_tokens
        [request] = fake.requests
    assert request.path == "/v1beta/models/gemini-3.8-flash:countTokens"
    assert request.json == {
        "generateContentRequest": {
            "model": "models/gemini-3.8-flash",
            "contents": [{"role": "user", "parts": [{"text": "Hello there, whoever you are."}]}],
        }
    }
    assert counted == len(json.dumps(request.json["generateContentRequest"]["contents"])) // 4


def test_async_clients_are_served_too(site: Site) -> None:
    STAGE.plays("One.")

    async def ask() -> str:
        client = genai.Client(api_key=TOKEN, http_options={"base_url": f"http://127.0.0.1:{site.port}"})
        chunks = await client.aio.models.generate_content_stream(model="callgate", contents="Hi")
        return "".join([chunk.text or "" async for chunk in chunks])

    assert asyncio.run(ask()) == "One."
