"""Requests of other people's clients that used to be answered wrongly: unknown models, empty prompts, old forms, CORS."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from callgate import Gate
from callgate.models.gemini import GeminiModel
from callgate.models.openai import OpenAIModel
from callgate.server import Service, ServiceOptions
from callgate.server.providers import Provider, Providers
from callgate.testing import call
from callgate.testing.chat_faults import fault
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_openai import FakeOpenAI
from callgate.types import Limits

from .conftest import Site, Stage, add, serving

openai = pytest.importorskip("openai", reason="openai is not installed")

STAGE = Stage()
PAGE = "https://chat.example"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
KNOWN = ("gemini-3.8-flash", "gpt-5.2")


def gemini_model(fake: Any, name: str | None) -> Any:
    return GeminiModel(name or KNOWN[0], env={"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url})


def openai_model(fake: Any, name: str | None) -> Any:
    return OpenAIModel(name or KNOWN[1], base_url=fake.base_url, api_key="k")


@pytest.fixture(params=["gemini", "openai"])
def behind(request: pytest.FixtureRequest) -> Iterator[tuple[Site, Any]]:
    """A service whose provider knows one model."""
    kind, opened = (FakeGemini, gemini_model) if request.param == "gemini" else (FakeOpenAI, openai_model)
    with kind.in_thread(models=KNOWN) as fake:
        provider = Provider(name=request.param, open=lambda name: opened(fake, name))
        providers = Providers({request.param: provider}, default=request.param)
        with serving(Service(Gate(opened(fake, None), [add]), providers=providers)) as site:
            yield site, fake


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serving(Service(Gate(STAGE, [add]), options=ServiceOptions(origins=(PAGE,)))) as running:
        yield running


# Unknown models -----------------------------------------------------------------------------------------------------------


def test_google_before_the_name_of_a_model_means_gemini() -> None:
    with FakeGemini.in_thread(["Hi."] * 3, models=KNOWN) as fake:
        provider = Provider(name="gemini", open=lambda name: gemini_model(fake, name))
        for default in ("gemini", None):
            providers = Providers({"gemini": provider}, default=default)
            with serving(Service(Gate(STAGE, []), providers=providers)) as site:
                asked = {"model": f"google:{KNOWN[0]}", "messages": [{"role": "user", "content": "hi"}]}
                assert site.post("/v1/chat/completions", asked).json["choices"][0]["message"]["content"] == "Hi."
                assert site.get(f"/v1/models/google:{KNOWN[0]}").status == 200
        assert {request.model for request in fake.requests} == {KNOWN[0], ""}


def test_an_unknown_model_is_named_in_the_words_of_the_client_that_asks_for_it(behind: tuple[Site, Any]) -> None:
    site, _ = behind
    for name in ("nope", "nope:x"):
        problem = site.get(f"/v1/models/{name}").json["error"]
        assert (problem["type"], problem["code"]) == ("invalid_request_error", "model_not_found"), problem
        assert "''" not in problem["message"]
        googles = site.get(f"/v1/models/{name}", **{"x-goog-api-key": "k"}).json["error"]
        assert (googles["code"], googles["status"]) == (404, "NOT_FOUND"), googles


@pytest.mark.judge("openai")
@pytest.mark.parametrize("tools", [[], [TOOL]], ids=["our tools", "its tools"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_model_that_the_provider_does_not_know_is_404_and_asked_for_once(
    behind: tuple[Site, Any], tools: list[Any], stream: bool
) -> None:
    site, fake = behind
    given = {"tools": tools} if tools else {}
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "stream": stream, **given}
    with openai.OpenAI(api_key="k", base_url=f"http://127.0.0.1:{site.port}/v1") as client:
        create = client.chat.completions.create
        with pytest.raises(openai.NotFoundError) as caught:
            create(model="nope-1", **asked)
    assert (caught.value.code, caught.value.type) == ("model_not_found", "invalid_request_error")
    assert [request.model for request in fake.requests if request.method == "POST"] == ["nope-1"]


@pytest.mark.judge("openai")
def test_the_entry_of_a_model_that_there_is_not_is_404(behind: tuple[Site, Any]) -> None:
    site, _ = behind
    known = KNOWN[0] if site.service.gate.model.name == KNOWN[0] else KNOWN[1]
    with openai.OpenAI(api_key="k", base_url=f"http://127.0.0.1:{site.port}/v1", max_retries=0) as client:
        assert client.models.retrieve(known).id == known
        assert client.models.retrieve("callgate").id == "callgate"
        with pytest.raises(openai.NotFoundError, match="nope-1"):
            client.models.retrieve("nope-1")
    got = site.get("/v1beta/models/nope-1")
    assert (got.status, got.json["error"]["status"]) == (404, "NOT_FOUND")


def test_an_unknown_provider_before_a_model_of_gemini_is_404_and_nothing_is_sent() -> None:
    with FakeGemini.in_thread() as fake:
        providers = Providers(
            {"gemini": Provider(name="gemini", open=lambda name: gemini_model(fake, name))}, default="gemini"
        )
        with serving(Service(Gate(gemini_model(fake, None), []), providers=providers)) as site:
            got = site.post("/v1/chat/completions", {"model": "nope:x", "messages": [{"role": "user", "content": "hi"}]})
        assert (got.status, got.json["error"]["code"], fake.requests) == (404, "model_not_found", [])


def test_a_models_entry_has_the_limits_that_its_server_tells() -> None:
    with FakeGemini.in_thread() as fake, serving(Service(Gate(gemini_model(fake, None), []))) as site:
        got = site.get(f"/v1beta/models/{KNOWN[0]}").json
    assert (got["inputTokenLimit"], got["outputTokenLimit"]) == (1_048_576, 65_536)


def test_models_come_in_pages(site: Site) -> None:
    every = [model["name"] for model in site.get("/v1beta/models").json["models"]]
    found: list[str] = []
    token = ""
    while token is not None:
        page = site.get(f"/v1beta/models?pageSize=1&pageToken={token}").json
        found += [model["name"] for model in page["models"]]
        assert len(page["models"]) == 1
        token = page.get("nextPageToken")
    assert found == every
    assert len(every) > 1
    assert site.get("/v1beta/models?pageSize=many").status == 400


@pytest.mark.parametrize("path", ["/v1beta/models/callgate:predict", "/v1/models/callgate:nothing"])
def test_a_verb_that_there_is_not_is_404_in_googles_shape(site: Site, path: str) -> None:
    got = site.post(path, {})
    assert (got.status, got.json["error"]["status"]) == (404, "NOT_FOUND")


def test_the_place_of_googles_uploads_answers_in_googles_shape(site: Site) -> None:
    got = site.post("/upload/v1beta/files", {})
    assert (got.status, got.json["error"]["status"]) == (404, "NOT_FOUND")


# Prompts without a word ---------------------------------------------------------------------------------------------------


SILENT: dict[str, tuple[str, dict[str, Any]]] = {
    "gemini, instruction and an empty text": (
        "/v1beta/models/callgate:generateContent",
        {"systemInstruction": {"parts": [{"text": "say hi"}]}, "contents": [{"role": "user", "parts": [{"text": ""}]}]},
    ),
    "gemini, an empty text alone": (
        "/v1beta/models/callgate:generateContent",
        {"contents": [{"role": "user", "parts": [{"text": ""}]}]},
    ),
    "openai, a system message alone": (
        "/v1/chat/completions",
        {"model": "callgate", "messages": [{"role": "system", "content": "say hi"}]},
    ),
    "openai, an empty text after an answer": (
        "/v1/chat/completions",
        {
            "model": "callgate",
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "b"},
                {"role": "user", "content": ""},
            ],
        },
    ),
    "openai, an empty text with own tools": (
        "/v1/chat/completions",
        {"model": "callgate", "messages": [{"role": "user", "content": ""}], "tools": [TOOL]},
    ),
}


@pytest.mark.parametrize("name", SILENT)
def test_a_prompt_without_a_word_is_answered(site: Site, name: str) -> None:
    model = STAGE.plays("Hi.")
    path, body = SILENT[name]
    got = site.post(path, body)
    assert (got.status, b"Hi." in got.body) == (200, True)
    assert model.requests[0].contents[-1] == {"role": "user", "parts": [{"text": "(The user's message is empty.)"}]}


def test_an_instruction_after_the_users_words_leaves_them_the_newest(site: Site) -> None:
    model = STAGE.plays("Hi.")
    messages = [{"role": "user", "content": "Hello."}, {"role": "system", "content": "Be kind."}]
    assert site.post("/v1/chat/completions", {"model": "callgate", "messages": messages}).status == 200
    assert model.requests[0].contents == [{"role": "user", "parts": [{"text": "Hello."}]}]


# The old form of tools ----------------------------------------------------------------------------------------------------


@pytest.mark.judge("openai")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_functions_are_answered_in_the_form_in_which_they_were_declared(site: Site, stream: bool) -> None:
    STAGE.plays([call("f", a=1), call("f", a=2)])
    with openai.OpenAI(api_key="k", base_url=f"http://127.0.0.1:{site.port}/v1", max_retries=0) as client:
        got = client.chat.completions.create(
            model="callgate", messages=[{"role": "user", "content": "?"}], functions=[TOOL["function"]], stream=stream
        )
        if stream:
            choices = [chunk.choices[0] for chunk in got]
            [made] = [choice.delta.function_call for choice in choices if choice.delta.function_call]
            reason = choices[-1].finish_reason
        else:
            made, reason = got.choices[0].message.function_call, got.choices[0].finish_reason
            assert got.choices[0].message.tool_calls is None
    assert (made.name, made.arguments, reason) == ("f", '{"a":1}', "function_call")


# Pages of other origins ---------------------------------------------------------------------------------------------------


def test_a_page_that_was_named_may_send_the_headers_that_its_client_has(site: Site) -> None:
    asked = "authorization,content-type,x-stainless-os,x-stainless-retry-count,mcp-method,anthropic-version,x-api-key"
    got = site.request(
        "OPTIONS", "/v1/chat/completions", Origin=PAGE, Access_Control_Request_Method="POST",
        Access_Control_Request_Headers=asked,
    )  # fmt: skip
    assert got.status == 204
    assert [name.strip() for name in got.headers["access-control-allow-headers"].split(",")] == asked.split(",")


def test_what_is_no_name_of_a_header_is_not_repeated_to_a_page(site: Site) -> None:
    got = site.request(
        "OPTIONS", "/v1/models", Origin=PAGE, Access_Control_Request_Method="GET", Access_Control_Request_Headers="a b, x-ok"
    )
    assert got.headers["access-control-allow-headers"] == "x-ok"


def test_a_page_that_was_not_named_is_told_no_headers(site: Site) -> None:
    got = site.request(
        "OPTIONS", "/v1/models", Origin="https://evil.example", Access_Control_Request_Method="GET",
        Access_Control_Request_Headers="x-ok",
    )  # fmt: skip
    assert (got.status, [name for name in got.headers if name.startswith("access-control")]) == (403, [])


def test_the_key_of_anthropics_clients_is_a_token_too(serve: Callable[..., Site]) -> None:
    token = "a-token-of-some-length"
    with serving(Service(Gate(STAGE, []), options=ServiceOptions(token=token))) as locked:
        assert locked.get("/v1/models", x_api_key=token).status == 200
        assert locked.get("/v1/models", x_api_key="another-token-of-a-length").status == 401


# One request that fails ---------------------------------------------------------------------------------------------------


def test_a_request_that_the_model_fails_on_does_not_stop_the_next_one() -> None:
    limits = Limits(attempts=5, backoff_s=0.001, backoff_max_s=0.002)
    body = {"model": "callgate", "messages": [{"role": "user", "content": "?"}]}
    broken = fault("O07", times=5)
    with FakeOpenAI.in_thread([broken, "Yes."]) as fake:
        model = OpenAIModel("gpt-5.2", base_url=fake.base_url, api_key="k", limits=limits)
        with serving(Service(Gate(model, []))) as site:
            failed, answered = (site.post("/v1/chat/completions", body) for _ in range(2))
    assert (failed.status, failed.headers["retry-after"], answered.status) == (502, "1", 200)
    assert len(fake.requests) == 6


# Requests that are sent twice ---------------------------------------------------------------------------------------------

REPEATED: dict[str, tuple[str, dict[str, Any]]] = {
    "chat completions": ("/v1/chat/completions", {"model": "callgate", "messages": [{"role": "user", "content": "?"}]}),
    "gemini": ("/v1beta/models/callgate:generateContent", {"contents": [{"role": "user", "parts": [{"text": "?"}]}]}),
    "messages": (
        "/v1/messages",
        {"model": "callgate", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}]},
    ),
}


@pytest.mark.parametrize("name", REPEATED)
def test_a_request_with_the_same_key_is_the_same_run(site: Site, name: str) -> None:
    path, body = REPEATED[name]
    model = STAGE.plays("Once.", "Twice.")
    first, second = (site.post(path, body, Idempotency_Key=f"key of {name}") for _ in range(2))
    assert (first.status, second.status, len(model.requests)) == (200, 200, 1)
    assert b"Once." in first.body
    assert b"Once." in second.body
    assert first.headers["callgate-run"] == second.headers["callgate-run"]
    other = json.loads(json.dumps(body).replace("?", "!"))
    assert site.post(path, other, Idempotency_Key=f"key of {name}").status == 409


def test_a_file_that_a_server_cannot_fetch_is_refused_with_what_to_send_instead() -> None:
    with FakeOpenAI.in_thread() as fake, serving(Service(Gate(openai_model(fake, None), []))) as running:
        part = {"fileData": {"fileUri": "gs://bucket/a.pdf", "mimeType": "application/pdf"}}
        got = running.post(
            "/v1beta/models/callgate:generateContent", {"contents": [{"role": "user", "parts": [part, {"text": "?"}]}]}
        )
    assert got.status == 400
    assert "cannot be sent by its address (gs://bucket/a.pdf)" in got.json["error"]["message"]
    assert "send a PDF" not in got.json["error"]["message"]
