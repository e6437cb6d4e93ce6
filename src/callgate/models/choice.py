"""The choice of the model: the named one, else Gemini if there is a key, else the embedded one.

Names and the environment come in, a model goes out. A named model that cannot work is an error that says what to do; nothing
is ever switched in silence.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from callgate.errors import UsageError
from callgate.models import Mode, Model
from callgate.types import Limits

__all__ = [
    "ALIASES",
    "APIS",
    "MODEL_DEFAULT",
    "PROVIDERS",
    "Api",
    "ModelLike",
    "choose_model",
    "has_gemini_key",
    "open_model",
    "provider_of",
]

MODEL_DEFAULT = "gemini-flash-latest"
"""The model that answers when a key is there and nothing else is said."""

ModelLike: TypeAlias = "Model | str | Sequence[Model | str] | None"
"""A model object, a name, several of these that stand in for each other in this order, or None: the best there is."""

Env: TypeAlias = Mapping[str, str]
Api: TypeAlias = Literal["generateContent", "interactions"]
"""An API of Gemini."""
APIS: tuple[Api, ...] = ("generateContent", "interactions")


_OTHER_NAMES = {"gpt-": "openai", "chatgpt-": "openai", "claude-": "anthropic"}
"""Prefixes of model names that only one other provider has -> that provider."""


def open_model(
    model: ModelLike, *, mode: Mode = "auto", api: Api | None = None, env: Env | None = None, limits: Limits | None = None
) -> Model:
    """Open a model, with tools declared in this mode, and asked by this API if it is one of Gemini.

    `limits` bound the requests to a model that is named; a model object has its own.

    A name is a Gemini model; `openai:NAME` (chat completions), `openai-responses:NAME`, `anthropic:NAME`, `embedded:NAME`
    and `gemini:NAME` (or `google:NAME`) name the provider too, `embedded` and `gemini` alone their usual model, and a path
    that ends in `.gguf` is a file for the embedded one.

    Raises:
        UsageError: it cannot be used; the message says what is missing.
    """
    from callgate.models.modes import in_mode

    if api is not None:
        env = {**(os.environ if env is None else env), "GEMINI_API": _checked_api(api, "api")}
        _refuse_others(model, api, env)
    if isinstance(model, (list, tuple)):
        from callgate.models.chain import ModelChain

        if None in model:
            raise UsageError("a list of models holds None: name each of them")
        return ModelChain([open_model(one, mode=mode, env=env, limits=limits) for one in model])
    if model is None or isinstance(model, str):
        return in_mode(choose_model(model, env=env, limits=limits), mode)
    if not callable(getattr(model, "generate", None)):
        raise UsageError(f"{model!r} is not a model: pass a model's name, a ScriptedModel, or an object with generate()")
    return in_mode(model, mode)  # pyright: ignore[reportArgumentType] - a sequence that is no list has no generate()


def choose_model(
    name: str | None = None, *, provider: str | None = None, env: Env | None = None, limits: Limits | None = None
) -> Model:
    """The model of that name and provider; what is left open is decided by the environment.

    Raises:
        UsageError: an unknown provider, or one that cannot work as things are.
    """
    env = os.environ if env is None else env
    if provider is None and name is not None:
        provider, name = provider_of(name)
    if provider is None:
        provider = "gemini" if has_gemini_key(env) else "embedded"
    provider = ALIASES.get(provider, provider)
    if provider not in PROVIDERS:
        raise UsageError(f"unknown provider {provider!r}: use one of {', '.join(map(repr, PROVIDERS))}")
    return PROVIDERS[provider](name, env, limits)


def provider_of(name: str) -> tuple[str, str | None]:
    """The provider that a model's name tells of, and the name without it; the name of a provider alone is one, too.

    Raises:
        UsageError: the name begins with a provider that does not exist, or is a misspelt one.
    """
    head, colon, rest = name.partition(":")
    head = ALIASES.get(head, head)
    if any(map(str.isspace, name)) and not name.endswith(".gguf"):
        raise UsageError(f"the model name {name!r} has a blank in it")
    if not name:
        raise UsageError("the model name is empty: name one, as in 'gemini-3.8-flash' or 'openai:NAME'")
    if head in PROVIDERS:
        return head, rest or None
    other = next((provider for start, provider in _OTHER_NAMES.items() if not colon and name.startswith(start)), None)
    if other is not None:
        raise UsageError(f"{name!r} is not a Gemini model: use '{other}:{name}'")
    if name.endswith(".gguf"):
        return "embedded", name
    near = _nearest(head)
    if colon and "/" not in head:
        usable = f"{near or 'openai'}:{rest if near else name}"
        raise UsageError(
            f"unknown provider {head!r} in the model name {name!r}: use one of {', '.join(map(repr, PROVIDERS))}, "
            f"as in {usable!r}" + ("" if near else " for a model of a server like Ollama")
        )
    if near is not None and name.isalpha():
        raise UsageError(f"unknown model {name!r}: did you mean {near!r}?")
    if name == "demo":
        raise UsageError("the demo is a part of the command line: use 'embedded', or a ScriptedModel of callgate.testing")
    return "gemini", name


def _nearest(word: str) -> str | None:
    """Return the provider that a misspelt word, or another name of it, stands for."""
    from difflib import get_close_matches

    if word.lower() in ("google", "vertex", "vertexai") or word.lower().startswith(("google-", "google_")):
        return "gemini"
    if word.lower() == "claude":
        return "anthropic"
    return next(iter(get_close_matches(word.lower(), PROVIDERS, n=1, cutoff=0.85)), None)


def has_gemini_key(env: Env) -> bool:
    """True if the environment says how to reach Gemini: by a key, or on Vertex, whose credentials may name the project."""
    from callgate.gemini.surface import wants_vertex

    return any(env.get(name, "").strip() for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY")) or wants_vertex(env)


_OF_GEMINI = ("models", "tunedModels", "projects", "agents", "google", "gemini")
"""First parts of names of Gemini's own models."""


def _gemini(name: str | None, env: Env, limits: Limits | None) -> Model:
    from callgate.gemini.surface import wants_vertex

    named = name or env.get("GEMINI_MODEL") or MODEL_DEFAULT
    provider, named = provider_of(named) if ":" in named else ("gemini", named)
    if provider != "gemini":
        raise UsageError(f"{name or env['GEMINI_MODEL']!r} is not the name of a Gemini model, but one of {provider!r}")
    named = named or MODEL_DEFAULT
    head, slash, rest = named.partition("/")
    if slash and head in PROVIDERS and not wants_vertex(env):
        raise UsageError(f"{named!r} is not the name of a Gemini model: did you mean '{head}:{rest}'?")
    # Agents have no other API.
    if _checked_api(env.get("GEMINI_API", "").strip() or APIS[0], "GEMINI_API") == "interactions" or _is_agent(named):
        from callgate.models.interactions import InteractionsModel

        return InteractionsModel(named, env=env, limits=limits)
    from callgate.models.gemini import GeminiModel

    return GeminiModel(named, env=env, limits=limits)


def _refuse_others(model: ModelLike, api: str, env: Env) -> None:
    """Refuse an API of Gemini for a model that is not one of Gemini. Of several models, one must be.

    Raises:
        UsageError: it would have no effect.
    """
    if isinstance(model, (list, tuple)):
        if not any(isinstance(one, str) and _provider_in(one) == "gemini" for one in model):
            raise UsageError(f"api={api!r} is for models of Gemini, and none of {list(model)!r} is named as one")
    elif model is None:
        if not has_gemini_key(env):
            raise UsageError(f"api={api!r} is for models of Gemini, and there is no key: set GEMINI_API_KEY")
    elif not isinstance(model, str):
        raise UsageError(f"api={api!r} is for the name of a model: {model!r} has an API of its own")
    elif (provider := _provider_in(model)) != "gemini":
        raise UsageError(f"api={api!r} is for models of Gemini, and {model!r} is one of {provider!r}: leave api= out")


def _provider_in(name: str) -> str:
    """The provider that a name tells of; also that of `openai/NAME`, which is a publisher's model on Vertex."""
    head, slash, rest = name.partition("/")
    if slash and head == "publishers":
        head, slash, rest = rest.partition("/")
    return provider_of(name)[0] if not slash or head in _OF_GEMINI else head


def _is_agent(name: str) -> bool:
    if not name.startswith(("agents/", "deep-research", "antigravity", "code-mender")):
        return False
    from callgate.interactions.agents import agent_of

    return agent_of(name) is not None


def _checked_api(api: str, source: str) -> Api:
    for known in APIS:
        if api == known:
            return known
    raise UsageError(f"{source}={api!r}: use one of {', '.join(map(repr, APIS))}")


def _named(kind: str, whose: str, example: str) -> Callable[[str | None, Env, Limits | None], Model]:
    """The opener of models of a provider that has no usual one; `kind` is the module and the class."""

    def open_named(name: str | None, env: Env, limits: Limits | None) -> Model:
        if name is None:
            raise UsageError(f"{whose} has many models: name one, for example {example}")
        module, _, model = kind.partition(":")
        return getattr(importlib.import_module(f"callgate.models.{module}"), model)(name, env=env, limits=limits)

    return open_named


def _embedded(name: str | None, env: Env, limits: Limits | None) -> Model:
    from callgate.models.embedded import MODEL_NAME, EmbeddedModel

    if importlib.util.find_spec("xllamacpp") is None:
        raise UsageError("the embedded model needs xllamacpp; install it with: pip install 'callgate[local]'")
    return EmbeddedModel(None if name in (None, MODEL_NAME) else name)


PROVIDERS: dict[str, Callable[[str | None, Env, Limits | None], Model]] = {
    "gemini": _gemini,
    "openai": _named("openai:OpenAIModel", "an OpenAI-compatible server", "openai:gpt-5.2"),
    "openai-responses": _named("openai_responses:OpenAIResponsesModel", "OpenAI", "openai-responses:gpt-5.2"),
    "anthropic": _named("anthropic:AnthropicModel", "Anthropic", "anthropic:claude-opus-4-6"),
    "embedded": _embedded,
}
"""Name of a provider -> what opens one of its models."""

ALIASES = {
    "google": "gemini", "openai-chat": "openai", "openai_chat": "openai", "openai_responses": "openai-responses",
}  # fmt: skip
"""Another name of a provider -> the provider."""
