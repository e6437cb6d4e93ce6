"""Providers of models that a request may name: names in, models out.

A request names a provider and a model, never a file or an address: what the service may reach is decided where it is
started.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from callgate.errors import ModelError, UsageError
from callgate.models import Model, close_model
from callgate.models.choice import ALIASES, MODEL_DEFAULT, choose_model, has_gemini_key, provider_of
from callgate.models.endpoints import endpoints_of
from callgate.models.google_resources import GoogleResources
from callgate.run.gate import Gate
from callgate.types import Limits

__all__ = ["Provider", "Providers", "providers_of", "usual_providers"]

logger = logging.getLogger("callgate.server")

LIST_S = 3.0
KEEP_S = 600.0
ASK_AGAIN_S = 30.0
LISTED_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A provider whose models can be requested."""

    name: str
    open: Callable[[str | None], Model]
    """Open a model by its name, or the usual one. Raises UsageError where it cannot be used."""
    default: str | None = None
    """The model that answers when none is named."""
    models: tuple[str, ...] = ()
    """The only names that may be asked for; empty: any."""
    why_not: Callable[[], str | None] = lambda: None
    """Reason why it cannot be used now; None if it can."""
    served: Callable[[], Awaitable[Sequence[str]]] | None = None
    """Ask the provider which models it has."""


class Providers:
    """The providers of a service, by name."""

    def __init__(self, providers: Mapping[str, Provider] | None = None, *, default: str | None = None) -> None:
        self.known = dict(usual_providers() if providers is None else providers)
        self._default = default
        self._served: dict[str, tuple[float, tuple[str, ...]]] = {}
        """Provider -> until when its list is good, and the list."""
        self._lock = asyncio.Lock()

    async def names(self, provider: Provider) -> tuple[str, ...]:
        """The models of a provider: those that may be named, or those that it says it has, or its usual one."""
        usual = (provider.default,) if provider.default else ()
        if provider.models or provider.served is None or provider.why_not() is not None:
            return provider.models or usual
        async with self._lock:
            until_s, found = self._served.get(provider.name, (0.0, ()))
            if time.monotonic() >= until_s:
                found, keep_s = await _ask(provider.served)
                self._served[provider.name] = (time.monotonic() + keep_s, found)
        return tuple(dict.fromkeys((*usual, *found)))

    def default_provider(self, gate: Gate) -> str:
        """The name of the provider of the gate's own model."""
        return self._default or str(getattr(gate.model, "provider", "") or "default")

    def resolve(self, provider: str | None, model: str | None) -> tuple[str, str | None]:
        """The provider and the model that a request names, apart.

        Raises:
            UsageError: there is no such provider.
        """
        if provider is None:
            assert model is not None
            head, colon, rest = model.partition(":")
            if colon and self._own(head) in self.known:
                provider, model = head, rest or None
            else:
                # A model of Gemini has no colon in its name, so that what stands before one is meant for a provider.
                is_name = self._default in self.known and not (self._default == "gemini" and colon)
                provider = (self._default if is_name else None) or provider_of(model)[0]
        provider = self._own(provider)
        if provider not in self.known:
            raise UsageError(f"there is no provider {provider!r}; there are {', '.join(sorted(self.known))}")
        return provider, model

    def _own(self, name: str) -> str:
        """The name of a provider that a request may call by another one."""
        return name if name in self.known else ALIASES.get(name, name)

    def open(self, provider: str | None, model: str | None) -> Model:
        """The model that a request names.

        Raises:
            UsageError: there is no such provider or model, or it cannot be used here.
        """
        provider, model = self.resolve(provider, model)
        chosen = self.known[provider]
        if chosen.models and model is not None and model not in chosen.models:
            raise UsageError(f"provider {provider!r} has no model {model!r} here; it has {', '.join(chosen.models)}")
        if (why := chosen.why_not()) is not None:
            raise UsageError(f"provider {provider!r} cannot be used: {why}")
        return chosen.open(model)


async def _ask(served: Callable[[], Awaitable[Sequence[str]]]) -> tuple[tuple[str, ...], float]:
    """The list of a provider, and for how many seconds it is good; empty where it cannot be had in time."""
    try:
        async with asyncio.timeout(LIST_S):
            return tuple(await served())[:LISTED_MAX], KEEP_S
    except (ModelError, UsageError, TimeoutError) as error:
        logger.info("the list of models cannot be had: %s", error or "no answer in time")
        return (), ASK_AGAIN_S


def usual_providers(env: Mapping[str, str] | None = None, *, limits: Limits | None = None) -> dict[str, Provider]:
    """Gemini, OpenAI and its like by both APIs, Anthropic, and the embedded model, as the environment says.

    Args:
        env: The environment as the service's own model was opened with, such as `Settings.environment`; otherwise that of
            the process.
        limits: The limits of requests to models.
    """
    env = os.environ if env is None else env
    from callgate.embedded.weights import MODEL_NAME

    def opens(provider: str) -> Callable[[str | None], Model]:
        return lambda model: choose_model(model, provider=provider, env=env, limits=limits)

    def why_no_gemini() -> str | None:
        return None if has_gemini_key(env) else "GEMINI_API_KEY is not set"

    def why_no_openai() -> str | None:
        return None if env.get("OPENAI_API_KEY") or env.get("OPENAI_BASE_URL") else "OPENAI_API_KEY is not set"

    def why_no_anthropic() -> str | None:
        names = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")
        return None if any(map(env.get, names)) else "ANTHROPIC_API_KEY is not set"

    async def gemini_names() -> Sequence[str]:
        model = opens("gemini")(None)
        try:
            return await model.served_names() if isinstance(model, GoogleResources) else ()
        finally:
            await close_model(model)

    return {
        "gemini": Provider(
            name="gemini",
            open=opens("gemini"),
            default=env.get("GEMINI_MODEL") or MODEL_DEFAULT,
            why_not=why_no_gemini,
            served=gemini_names,
        ),
        "openai": Provider(name="openai", open=opens("openai"), why_not=why_no_openai),
        "openai-responses": Provider(name="openai-responses", open=opens("openai-responses"), why_not=why_no_openai),
        "anthropic": Provider(name="anthropic", open=opens("anthropic"), why_not=why_no_anthropic),
        # A name here could be a path to a file, so there is just the one.
        "embedded": Provider(
            name="embedded",
            open=lambda _: opens("embedded")(None),
            default=MODEL_NAME,
            models=(MODEL_NAME,),
            why_not=_why_not_embedded,
        ),
    }


def providers_of(gate: Gate) -> Providers:
    """The usual providers; that of the gate's own model is asked where the gate asks it, whatever the environment says."""
    known, own = usual_providers(), endpoints_of(gate.model)
    for name, (model, opens) in own.items():
        known[name] = Provider(
            name=name,
            open=partial(_opened, model, opens),
            default=model.name,
            why_not=partial(_why_not_named, model, opens),
            served=model.served_names if isinstance(model, GoogleResources) else None,
        )
    return Providers(known, default=next(iter(own), None))


def _opened(model: Model, opens: Callable[[str], Model] | None, name: str | None) -> Model:
    assert opens is not None, "refused by `why_not`"
    return opens(name or model.name)


def _why_not_named(model: Model, opens: Callable[[str], Model] | None) -> str | None:
    if opens is not None:
        return None
    return f"the service's own model, {model.name!r}, cannot be asked by another name; it has no with_name(name)"


def _why_not_embedded() -> str | None:
    from callgate.embedded.weights import has_files

    if importlib.util.find_spec("xllamacpp") is None:
        return "it needs xllamacpp: pip install 'callgate[local]'"
    return None if has_files() else "its files are not there: callgate model fetch"
