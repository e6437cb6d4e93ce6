"""Models that requests name at a service of the library: they are asked where the gate's own model is, or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from callgate import Gate, ScriptedModel
from callgate.models.chain import ModelChain
from callgate.models.gemini import GeminiModel
from callgate.models.interactions import InteractionsModel
from callgate.models.openai import OpenAIModel
from callgate.models.prompted import PromptedModel
from callgate.testing.fake_gemini import FakeGemini
from callgate.testing.fake_interactions import FakeInteractions
from callgate.testing.fake_openai import FakeOpenAI

from .conftest import Site


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeOpenAI]:
    """The environment points to other servers, with keys that they would get."""
    with FakeOpenAI.in_thread(["from elsewhere"] * 4) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", "public")
        monkeypatch.setenv("GEMINI_API_KEY", "public")
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", fake.base_url)
        yield fake


WRAPPERS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda model: model,
    "prompted": PromptedModel,
    "chain": lambda model: ModelChain([ScriptedModel(["first"]), model]),
}


@pytest.mark.parametrize("kind", WRAPPERS)
@pytest.mark.parametrize("named", [{"model": "other"}, {"model": "openai:other"}, {"provider": "openai", "model": "other"}])
def test_a_named_model_of_the_gates_provider_is_asked_at_the_gates_endpoint(
    serve: Callable[..., Site], elsewhere: FakeOpenAI, named: dict[str, str], kind: str
) -> None:
    with FakeOpenAI.in_thread(["from here"] * 2) as fake:
        site = serve(Gate(WRAPPERS[kind](OpenAIModel("own", base_url=fake.base_url, api_key="mine"))))
        answers = [site.chat({"prompt": "hi", **one}) for one in (named, {"provider": "openai"})]
        assert [(answer.status, answer.json["response"]) for answer in answers] == [(200, "from here")] * 2
        asked = [(request.model, request.headers["authorization"]) for request in fake.requests]
    assert asked == [("other", "Bearer mine"), ("own", "Bearer mine")]
    assert elsewhere.requests == []


GOOGLE: dict[str, tuple[Any, Callable[[str], Any]]] = {
    "generateContent": (FakeGemini, lambda url: GeminiModel("own", api_key="mine", env={"GOOGLE_GEMINI_BASE_URL": url})),
    "interactions": (
        FakeInteractions,
        lambda url: InteractionsModel("own", api_key="mine", env={"GOOGLE_GEMINI_BASE_URL": url}),
    ),
}


@pytest.mark.parametrize("kind", GOOGLE)
@pytest.mark.parametrize("name", ["other", "gemini:other", "google:other"])
def test_a_named_model_of_gemini_is_asked_at_the_gates_endpoint(
    serve: Callable[..., Site], elsewhere: FakeOpenAI, kind: str, name: str
) -> None:
    fake_class, opened = GOOGLE[kind]
    with fake_class.in_thread(["from here"], models=["own", "other"]) as fake:
        site = serve(Gate(opened(fake.base_url)))
        answer = site.chat({"prompt": "hi", "model": name})
        assert (answer.status, answer.json.get("response")) == (200, "from here"), answer.json
        [asked] = [request for request in fake.requests if request.method == "POST"]
        assert (asked.model, asked.headers["x-goog-api-key"]) == ("other", "mine")
    assert (elsewhere.requests, elsewhere.looks) == ([], [])


def test_an_agent_that_is_named_at_a_gate_with_another_api_is_asked_at_its_endpoint(
    serve: Callable[..., Site], elsewhere: FakeOpenAI
) -> None:
    agent = "deep-research-preview-04-2026"
    with FakeInteractions.in_thread(["from here"]) as fake:
        model = GeminiModel("own", api_key="mine", env={"GOOGLE_GEMINI_BASE_URL": fake.base_url})
        answer = serve(Gate(model)).chat({"prompt": "hi", "model": agent})
        assert (answer.status, answer.json.get("response")) == (200, "from here"), answer.json
        assert fake.requests[0].headers["x-goog-api-key"] == "mine"
    assert (elsewhere.requests, elsewhere.looks) == ([], [])


class Foreign(ScriptedModel):
    """A model of a program's own that speaks to a server like OpenAI's."""

    provider = "openai"


def test_a_model_that_has_no_other_names_refuses_them(serve: Callable[..., Site], elsewhere: FakeOpenAI) -> None:
    site = serve(Gate(Foreign(["mine"])))
    refused = site.chat({"prompt": "hi", "model": "openai:gpt-5.2"})
    assert refused.status == 422
    assert "cannot be asked by another name" in str(refused.json)
    assert site.chat({"prompt": "hi"}).json["response"] == "mine"
    assert elsewhere.requests == []


def test_named_models_leave_the_connections_of_the_gates_model_open(serve: Callable[..., Site]) -> None:
    with FakeOpenAI.in_thread(["one", "two", "three"]) as fake:
        site = serve(Gate(OpenAIModel("own", base_url=fake.base_url, api_key="mine")))
        said = [site.chat({"prompt": "hi", **named}).json["response"] for named in ({}, {"model": "other"})]

        async def forget() -> None:
            for gate in site.service._gates.values():
                await gate.__aexit__(None, None, None)
            site.service._gates.clear()

        asyncio.run_coroutine_threadsafe(forget(), site.loop).result(60)
        said.append(site.chat({"prompt": "hi"}).json["response"])
        assert (said, fake.connections) == (["one", "two", "three"], 1)
