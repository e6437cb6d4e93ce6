"""Embeddings by the SDKs of OpenAI and Google, over models of both, and over models that have none."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from callgate import Gate
from callgate.models.chain import ModelChain
from callgate.models.gemini import GeminiModel
from callgate.models.modes import in_mode
from callgate.models.openai import OpenAIModel
from callgate.models.prompted import PromptedModel
from callgate.server import Service
from callgate.server.providers import Provider, Providers
from callgate.testing.fake_embeddings import vector_of
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_openai import FakeOpenAI
from callgate.types import Limits

from .conftest import Site, Stage, serving

openai = pytest.importorskip("openai", reason="openai is not installed")
genai = pytest.importorskip("google.genai", reason="google-genai is not installed")

STAGE = Stage()
NAMES = {"gemini": "gemini-embedding-001", "openai": "text-embedding-3-small"}


def opened(kind: str, fake: Any, name: str | None) -> Any:
    limits = Limits(attempts=1)
    if kind == "gemini":
        env = {"GEMINI_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": fake.base_url}
        return GeminiModel(name or NAMES[kind], env=env, limits=limits)
    return OpenAIModel(name or NAMES[kind], base_url=fake.base_url, api_key="k", limits=limits)


@pytest.fixture(params=["gemini", "openai"])
def behind(request: pytest.FixtureRequest) -> Iterator[tuple[str, Site, Any]]:
    """A service whose own model has no embeddings, and a provider with one that has."""
    fake_class = FakeGemini if request.param == "gemini" else FakeOpenAI
    with fake_class.in_thread([]) as fake:
        provider = Provider(name=request.param, open=lambda name: in_mode(opened(request.param, fake, name), "auto"))
        providers = Providers({request.param: provider})
        with serving(Service(Gate(STAGE, []), providers=providers)) as site:
            yield request.param, site, fake


def vectors(kind: str, texts: list[str], size: int | None = None) -> list[list[float]]:
    return [vector_of({"parts": [{"text": text}]} if kind == "gemini" else text, size) for text in texts]


@pytest.mark.judge("openai")
@pytest.mark.parametrize("texts", [["one"], ["one", "two", "three"]], ids=["one", "three"])
@pytest.mark.parametrize("size", [None, 12])
def test_the_sdk_of_openai_gets_the_vectors_of_either_provider(
    behind: tuple[str, Site, Any], texts: list[str], size: int | None
) -> None:
    kind, site, _ = behind
    with openai.OpenAI(api_key="k", base_url=f"http://127.0.0.1:{site.port}/v1") as client:
        sized = {} if size is None else {"dimensions": size}
        given = texts[0] if len(texts) == 1 else texts
        packed = client.embeddings.create(model=f"{kind}:{NAMES[kind]}", input=given, **sized)
        plain = client.embeddings.create(model=f"{kind}:{NAMES[kind]}", input=given, encoding_format="float", **sized)
    assert [one.embedding for one in plain.data] == vectors(kind, texts, size)
    for one, expected in zip(packed.data, plain.data, strict=True):  # The SDK asks for base64 where nothing is said.
        assert list(one.embedding) == pytest.approx(expected.embedding)
    assert [one.index for one in plain.data] == list(range(len(texts)))
    assert plain.usage.prompt_tokens == plain.usage.total_tokens > 0


@pytest.mark.judge("google-genai")
@pytest.mark.parametrize("texts", [["one"], ["one", "two", "three"]], ids=["one", "three"])
def test_the_sdk_of_google_gets_the_vectors_of_either_provider(behind: tuple[str, Site, Any], texts: list[str]) -> None:
    kind, site, _ = behind
    client = genai.Client(api_key="k", http_options={"base_url": f"http://127.0.0.1:{site.port}"})
    found = client.models.embed_content(model=f"{kind}:{NAMES[kind]}", contents=texts)
    client.close()
    assert [len(one.values) for one in found.embeddings] == [8] * len(texts)
    if kind == "openai":
        assert [one.values for one in found.embeddings] == vectors(kind, texts)


def test_one_content_of_google_is_answered_by_its_own_verb(behind: tuple[str, Site, Any]) -> None:
    kind, site, fake = behind
    asked = {"content": {"parts": [{"text": "a"}, {"text": "b"}]}, "outputDimensionality": 3}
    answer = site.post(f"/v1beta/models/{kind}:{NAMES[kind]}:embedContent", asked)
    assert answer.status == 200
    expected = vector_of(asked["content"] if kind == "gemini" else "a\nb", 3)
    assert answer.json["embedding"]["values"] == expected
    assert (fake.requests or fake.looks)[-1].json.get("model") == (
        f"models/{NAMES[kind]}" if kind == "gemini" else NAMES[kind]
    )


def test_base64_holds_little_endian_floats(behind: tuple[str, Site, Any]) -> None:
    kind, site, _ = behind
    asked = {"model": f"{kind}:{NAMES[kind]}", "input": "x", "encoding_format": "base64"}
    packed = site.post("/v1/embeddings", asked).json["data"][0]["embedding"]
    assert list(struct.unpack("<8f", base64.b64decode(packed))) == pytest.approx(vectors(kind, ["x"])[0])


def test_more_texts_than_google_takes_at_once_are_sent_in_several_requests() -> None:
    with FakeGemini.in_thread([]) as fake:
        provider = Provider(name="gemini", open=lambda name: opened("gemini", fake, name))
        with serving(Service(Gate(STAGE, []), providers=Providers({"gemini": provider}))) as site:
            texts = [f"text {place}" for place in range(201)]
            answer = site.post("/v1/embeddings", {"model": f"gemini:{NAMES['gemini']}", "input": texts})
        assert [one["embedding"] for one in answer.json["data"]] == vectors("gemini", texts)
        assert [request.path.rpartition(":")[2] for request in fake.requests] == [
            "batchEmbedContents", "batchEmbedContents", "embedContent",
        ]  # fmt: skip


def test_tokens_go_to_a_server_that_takes_them_and_are_refused_for_gemini(behind: tuple[str, Site, Any]) -> None:
    kind, site, fake = behind
    for given in ([1, 2, 3], [[1, 2], [3]]):
        answer = site.post("/v1/embeddings", {"model": f"{kind}:{NAMES[kind]}", "input": given})
        if kind == "openai":
            assert answer.status == 200
            assert fake.looks[-1].json["input"] == (given if isinstance(given[0], list) else [given])
        else:
            assert answer.status == 400
            assert "Gemini embeds text, and no tokens" in answer.json["error"]["message"]


@pytest.mark.parametrize(
    "asked",
    [
        {"content": {"parts": [{"text": "a"}]}, "taskType": "RETRIEVAL_QUERY"},
        {"content": {"parts": [{"inlineData": {"mimeType": "image/png", "data": "AA=="}}]}},
    ],
    ids=["a task", "a picture"],
)
def test_what_a_server_of_chat_completions_cannot_embed_is_refused_by_name(asked: dict[str, Any]) -> None:
    with FakeOpenAI.in_thread([]) as fake:
        provider = Provider(name="openai", open=lambda name: opened("openai", fake, name))
        with serving(Service(Gate(STAGE, []), providers=Providers({"openai": provider}))) as site:
            answer = site.post(f"/v1beta/models/openai:{NAMES['openai']}:embedContent", asked)
            several = [{"content": {"parts": [{"text": "a"}]}, "outputDimensionality": size} for size in (3, 4)]
            sizes = site.post(f"/v1beta/models/openai:{NAMES['openai']}:batchEmbedContents", {"requests": several})
        assert (answer.status, answer.json["error"]["status"]) == (400, "INVALID_ARGUMENT")
        assert "an OpenAI-compatible server" in answer.json["error"]["message"]
        assert "the same 'outputDimensionality'" in sizes.json["error"]["message"]
        assert fake.looks == []


def test_a_model_without_embeddings_is_refused_in_the_words_of_the_clients_api(behind: tuple[str, Site, Any]) -> None:
    _, site, _ = behind
    problem = site.post("/v1/embeddings", {"model": "callgate", "input": "x"})
    assert (problem.status, problem.json["error"]["code"]) == (404, "embeddings_unsupported")
    assert "has no embeddings here" in problem.json["error"]["message"]
    for verb, asked in (
        ("embedContent", {"content": {"parts": []}}),
        ("batchEmbedContents", {"requests": [{"content": {}}]}),
    ):
        problem = site.post(f"/v1beta/models/callgate:{verb}", asked)
        assert (problem.status, problem.json["error"]["status"]) == (404, "NOT_FOUND")
        assert "has no embeddings here" in problem.json["error"]["message"]


def test_a_refusal_of_the_provider_is_passed_on(behind: tuple[str, Site, Any]) -> None:
    kind, site, _ = behind
    problem = site.post("/v1/embeddings", {"model": f"{kind}:chat-only", "input": "x"})
    assert problem.status == (404 if kind == "gemini" else 502), problem.json
    assert ("not supported for embedContent" if kind == "gemini" else "not allowed to generate embeddings") in str(
        problem.json
    )
    assert site.post("/v1/embeddings", {"model": "nobody:x", "input": "x"}).status == 404


@pytest.mark.parametrize("body", [{}, {"model": "callgate"}, {"model": "callgate", "input": []}, {"model": "m", "input": 5}])
def test_a_request_without_input_is_a_bad_request(behind: tuple[str, Site, Any], body: dict[str, Any]) -> None:
    assert behind[1].post("/v1/embeddings", body).status == 400


def test_embeddings_reach_a_model_through_a_chain_and_a_prompt() -> None:
    with FakeGemini.in_thread([]) as fake:
        inner = opened("gemini", fake, None)
        for model in (ModelChain([inner, STAGE]), PromptedModel(inner)):
            with serving(Service(Gate(model, []))) as site:
                answer = site.post("/v1/embeddings", {"model": "callgate", "input": "x"})
                assert answer.json["data"][0]["embedding"] == vectors("gemini", ["x"])[0]
