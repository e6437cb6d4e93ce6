"""Which model answers: by name, by provider, by what the environment holds."""

from __future__ import annotations

import re
from typing import Any

import pytest

from callgate import (
    AnthropicModel,
    GeminiModel,
    InteractionsModel,
    OpenAIModel,
    OpenAIResponsesModel,
    ScriptedModel,
)
from callgate.errors import UsageError
from callgate.models.chain import ModelChain
from callgate.models.choice import MODEL_DEFAULT, choose_model, has_gemini_key, open_model, provider_of

KEY = {"GEMINI_API_KEY": "test-key"}


@pytest.mark.parametrize(
    ("name", "env", "expected"),
    [
        ("gemini-3.8-flash", KEY, "gemini-3.8-flash"),
        ("gemini:gemini-3.8-pro", KEY, "gemini-3.8-pro"),
        ("tunedModels/mine:v2", KEY, "tunedModels/mine:v2"),
        ("gemini:", KEY, MODEL_DEFAULT),
        (None, KEY, MODEL_DEFAULT),
        (None, KEY | {"GEMINI_MODEL": "gemini-3.8-pro"}, "gemini-3.8-pro"),
    ],
)
def test_a_name_and_the_environment_choose_a_gemini_model(name: str | None, env: dict[str, str], expected: str) -> None:
    model = choose_model(name, env=env)
    assert isinstance(model, GeminiModel)
    assert model.name == expected


def test_a_named_provider_that_cannot_work_is_an_error_and_no_switch() -> None:
    with pytest.raises(UsageError, match="GEMINI_API_KEY"):
        choose_model(provider="gemini", env={})
    with pytest.raises(UsageError, match="unknown provider 'palm'"):
        choose_model(provider="palm", env=KEY)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, False),
        ({"GEMINI_API_KEY": " "}, False),
        ({"GOOGLE_API_KEY": "k"}, True),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "1"}, True),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "false", "GOOGLE_CLOUD_PROJECT": "p"}, False),
        ({"GOOGLE_GENAI_USE_ENTERPRISE": "0", "GOOGLE_GENAI_USE_VERTEXAI": "1", "GOOGLE_CLOUD_PROJECT": "p"}, False),
        ({"GOOGLE_CLOUD_PROJECT": "p"}, False),
        ({"GOOGLE_GENAI_USE_VERTEXAI": "1", "GOOGLE_CLOUD_PROJECT": "p"}, True),
    ],
)
def test_the_environment_says_whether_gemini_can_be_reached(env: dict[str, str], expected: bool) -> None:
    assert has_gemini_key(env) is expected


def test_a_list_is_a_chain_and_a_model_is_itself() -> None:
    scripted = ScriptedModel(["Hi."])
    assert open_model(scripted, mode="native") is scripted
    chain = open_model(["gemini-3.8-flash", scripted], env=KEY)
    assert isinstance(chain, ModelChain)
    assert chain.name == "gemini-3.8-flash, scripted"


@pytest.mark.parametrize("thing", [5, object(), {"name": "x"}])
def test_what_is_no_model_is_refused(thing: Any) -> None:
    with pytest.raises(UsageError, match="is not a model"):
        open_model(thing)


# Names --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("google-vertex:gemini-3.8-flash", "'gemini:gemini-3.8-flash'"),
        ("anthropc:claude-5", "'anthropic:claude-5'"),
        ("claude:claude-5", "'anthropic:claude-5'"),
        ("anthropic:", "name one, for example anthropic:"),
        ("openai-responses:", "name one, for example openai-responses:"),
        ("openai_response:gpt-5.2", "'openai-responses:gpt-5.2'"),
        ("opnai:gpt-5.2", "'openai:gpt-5.2'"),
        ("foo:bar", "unknown provider 'foo' in the model name 'foo:bar'"),
        ("gemma3:4b", "'openai:gemma3:4b'"),
        ("embeded", "did you mean 'embedded'?"),
        ("demo", "a part of the command line"),
    ],
)
def test_a_name_with_an_unknown_provider_is_refused_before_anything_is_sent(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        open_model(name, env={"GEMINI_API_KEY": "k"})


def test_a_provider_alone_means_its_usual_model() -> None:
    assert provider_of("embedded") == ("embedded", None)
    for name in ("gemini", "gemini:", "google", "google:"):
        assert open_model(name, env={"GEMINI_API_KEY": "k"}).name == "gemini-flash-latest"


@pytest.mark.parametrize(
    ("named", "said"),
    [("foo:bar", "unknown provider 'foo'"), ("openai:x", "'openai:x' is not the name of a Gemini model"), ("x:y:z", "'x'")],
)
def test_the_usual_gemini_model_is_checked_like_a_named_one(named: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        open_model(None, env={**KEY, "GEMINI_MODEL": named})
    with pytest.raises(UsageError, match=re.escape(said)):
        choose_model(named, provider="gemini", env=KEY)
    for prefix in ("gemini", "google"):
        assert open_model("gemini", env={**KEY, "GEMINI_MODEL": f"{prefix}:gemini-x"}).name == "gemini-x"


def test_google_is_another_name_of_the_provider_gemini() -> None:
    model = choose_model("google:gemini-3.8-flash", env=KEY)
    assert isinstance(model, GeminiModel)
    assert model.name == "gemini-3.8-flash"
    assert choose_model("gemini-3.8-flash", provider="google", env=KEY).name == "gemini-3.8-flash"
    assert open_model("google:gemini-3.8-flash", api="interactions", env=KEY).name == "gemini-3.8-flash"


@pytest.mark.parametrize(
    ("name", "kind", "variable"),
    [
        ("openai:gpt-5.2", OpenAIModel, "OPENAI_API_KEY"),
        ("openai-chat:gpt-5.2", OpenAIModel, "OPENAI_API_KEY"),
        ("openai-responses:gpt-5.2", OpenAIResponsesModel, "OPENAI_API_KEY"),
        ("anthropic:claude-opus-4-6", AnthropicModel, "ANTHROPIC_API_KEY"),
    ],
)
def test_a_prefix_names_the_api_and_its_key_is_needed(name: str, kind: type[Any], variable: str) -> None:
    model = open_model(name, mode="native", env={variable: "test-key"})
    assert isinstance(model, kind)
    assert model.name == name.partition(":")[2]
    with pytest.raises(UsageError, match=variable):
        open_model(name, env=KEY)


@pytest.mark.parametrize(
    "model",
    [
        "openai:gpt-5.2", "openai/gpt-5.2", "publishers/openai/models/gpt", "anthropic/claude", "embedded", "embedded:small",
        "mine.gguf", ["openai:gpt-5.2", "embedded"], [ScriptedModel(["One."])], ScriptedModel(["One."]), None,
    ],
)  # fmt: skip
def test_an_api_of_gemini_is_refused_for_a_model_that_is_not_one_of_gemini(model: Any) -> None:
    env = {"OPENAI_API_KEY": "test-key"} | ({} if model is None else KEY)
    with pytest.raises(UsageError, match="api='interactions' is for"):
        open_model(model, api="interactions", env=env)


@pytest.mark.parametrize(
    "model", ["models/gemini-3.8-flash", "google/gemini-3.8-flash", None, ["gemini-3.8-flash", "openai:gpt-5.2"]]
)
def test_an_api_of_gemini_is_taken_for_a_model_of_gemini_and_its_stand_ins(model: Any) -> None:
    opened = open_model(model, api="interactions", mode="native", env=KEY | {"OPENAI_API_KEY": "test-key"})
    first = opened.models[0] if isinstance(opened, ModelChain) else opened
    assert isinstance(first, InteractionsModel)


def test_a_provider_before_a_slash_is_no_gemini_model_except_on_vertex() -> None:
    with pytest.raises(UsageError, match=r"did you mean 'openai:gpt-5\.2'"):
        choose_model("openai/gpt-5.2", env=KEY)
    on_vertex = KEY | {"GOOGLE_GENAI_USE_VERTEXAI": "true"}
    assert choose_model("openai/gpt-oss-120b", env=on_vertex).name == "openai/gpt-oss-120b"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "is empty"), (" gemini-3.8-flash", "has a blank in it"),
        ("gemini 3.8", "has a blank in it"), ("gpt-5.2", "use 'openai:gpt-5.2'"),
        ("claude-opus-4-6", "use 'anthropic:claude-opus-4-6'"),
    ],
)  # fmt: skip
def test_a_name_that_no_model_of_gemini_has_is_refused(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)):
        open_model(name, env=KEY)


def test_a_list_of_models_with_none_in_it_is_refused() -> None:
    with pytest.raises(UsageError, match="holds None"):
        open_model(["gemini-3.8-flash", None], env=KEY)  # type: ignore[list-item]
