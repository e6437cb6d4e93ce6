"""The endpoints that a model is asked at, and other models there: a model in, what opens others by their names out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from callgate.models import Model, provider_of_model

__all__ = ["endpoints_of"]

_PROVIDER_WORDS = {"openai": "openai", "anthropic": "anthropic", "gcp.gemini": "gemini", "gcp.vertex_ai": "gemini"}
"""Word of a model for its provider -> the provider."""


def endpoints_of(model: Model) -> dict[str, tuple[Model, Callable[[str], Model] | None]]:
    """Return the providers that a model is asked at, each with its first model and what opens another one there.

    A model that cannot be asked by another name has None for that.
    """
    found: dict[str, tuple[Model, Callable[[str], Model] | None]] = {}
    for one in _leaf_models(model):
        provider = "openai-responses" if _has_responses(one) else _PROVIDER_WORDS.get(provider_of_model(one))
        if provider is not None and provider not in found:
            found[provider] = (one, partial(_at_endpoint, one) if hasattr(one, "with_name") else None)
    return found


def _leaf_models(model: Model) -> list[Model]:
    """Return the models that are asked in the end, in order."""
    from callgate.models.chain import ModelChain
    from callgate.models.modes import ByAbility
    from callgate.models.prompted import PromptedModel

    if isinstance(model, ModelChain):
        return [one for inner in model.models for one in _leaf_models(inner)]
    return _leaf_models(model.native) if isinstance(model, (ByAbility, PromptedModel)) else [model]


def _has_responses(model: Model) -> bool:
    """True for a model by OpenAI's Responses API, which is another provider than chat completions by the same words."""
    from callgate.models.openai_responses import OpenAIResponsesModel

    return isinstance(model, OpenAIResponsesModel)


def _at_endpoint(model: Any, name: str) -> Model:
    from callgate.interactions.agents import agent_of
    from callgate.models.gemini import GeminiModel

    if not isinstance(model, GeminiModel) or agent_of(name) is None:
        return model.with_name(name)
    from callgate.interactions.client import InteractionsClient
    from callgate.models.interactions import InteractionsModel  # Agents have no other API.

    client = model.client
    return InteractionsModel(name, client=InteractionsClient(client.surface, limits=client.limits, options=client.options))
