"""Choose the provider: the named one, or the best one available.

Takes options and the environment; returns a model, a line that describes it, and its default tools. A named provider that
cannot work is an error with a remedy; there is no silent fallback.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import click

from callgate.cli.error_hints import for_command_line
from callgate.errors import UsageError
from callgate.models import Model
from callgate.models.choice import ALIASES, choose_model, has_gemini_key, provider_of
from callgate.models.demo import DemoModel
from callgate.testing import answer
from callgate.types import Limits

__all__ = ["PROVIDERS", "ProviderChoice", "choose"]


class BadFileError(click.ClickException):
    """A file that was named cannot be used as a model."""

    exit_code = 42


DEMO_LINE = "demo: a scripted stand-in, not a language model; set GEMINI_API_KEY to use Gemini"
EMBEDDED_LINE = (
    "embedded: {name}, a small language model on this machine's CPU, so check what it says; set GEMINI_API_KEY to use Gemini"
)


def _honest_tools() -> Sequence[Callable[..., Any]]:
    from callgate.cli.demo_tools import HONEST_TOOLS

    return HONEST_TOOLS


def _demo_tools() -> Sequence[Callable[..., Any]]:
    from callgate.cli.demo_tools import DEMO_TOOLS

    return DEMO_TOOLS


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderChoice:
    """The model of a conversation."""

    model: Model
    provider: str = ""
    """The provider of the model."""
    line: str | None = None
    """A line about the model for the user, shown before it answers."""
    tools: Callable[[], Sequence[Callable[..., Any]]] = _honest_tools
    """The default tools."""
    warm: Callable[[], None] = lambda: None
    """Prepare the model while the user types."""


Open: TypeAlias = Callable[["str | None", Mapping[str, str], "Limits | None"], ProviderChoice]
"""Open the model of a provider: its name, the environment, and limits of requests."""


def choose(
    provider: str | None, model: str | None, env: Mapping[str, str], *, limits: Limits | None = None
) -> ProviderChoice:
    """The model that was named; else Gemini if there is a key; else the embedded model if it is installed; else the demo.

    Raises:
        click.ClickException: what was named cannot work.
    """
    if provider is None and model is not None:
        if model in PROVIDERS:
            provider, model = model, None
        else:
            try:
                provider, model = provider_of(model)
            except UsageError as error:
                raise click.UsageError(str(error)) from error
    provider = provider or _at_hand(env)
    provider = ALIASES.get(provider, provider)
    if provider not in PROVIDERS:
        raise click.UsageError(f"there is no provider {provider!r}; there are {', '.join(PROVIDERS)}")
    return replace(PROVIDERS[provider](model, env, limits), provider=provider)


def _at_hand(env: Mapping[str, str]) -> str:
    if env.get("CALLGATE_PROVIDER"):
        return env["CALLGATE_PROVIDER"]
    if has_gemini_key(env):
        return "gemini"
    return "embedded" if _can_embed() else "demo"


def _can_embed() -> bool:
    from callgate.embedded.weights import has_files

    return importlib.util.find_spec("xllamacpp") is not None and has_files()


def _demo(model: str | None, env: Mapping[str, str], limits: Limits | None) -> ProviderChoice:
    if model is not None:
        raise click.UsageError("--provider demo has no models to choose from: leave out -m")
    return ProviderChoice(model=DemoModel(answer), line=DEMO_LINE, tools=_demo_tools)


def _remote(provider: str) -> Open:
    def chosen(model: str | None, env: Mapping[str, str], limits: Limits | None) -> ProviderChoice:
        try:
            return ProviderChoice(model=choose_model(model, provider=provider, env=env, limits=limits))
        except UsageError as error:
            raise click.UsageError(for_command_line(str(error))) from error

    return chosen


def _embedded(model: str | None, env: Mapping[str, str], limits: Limits | None) -> ProviderChoice:
    from callgate.embedded.weights import MODEL_NAME
    from callgate.models.embedded import EmbeddedModel

    if importlib.util.find_spec("xllamacpp") is None:
        raise click.ClickException("the embedded model needs xllamacpp; install it with: pip install 'callgate[local]'")
    try:
        opened = EmbeddedModel(None if model in (None, MODEL_NAME) else model, announce=False)
    except UsageError as error:
        raise (click.ClickException if model in (None, MODEL_NAME) else BadFileError)(str(error)) from error

    def warm() -> None:
        # Errors surface with the first request; nothing has been asked yet.
        threading.Thread(target=_quietly(opened.load), name="callgate-embedded-load", daemon=True).start()

    line = EMBEDDED_LINE.format(name=opened.name) if opened.name == MODEL_NAME else None
    return ProviderChoice(model=opened, line=line, warm=warm)


def _quietly(load: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        try:
            load()
        except UsageError:
            return

    return run


PROVIDERS: dict[str, Open] = {
    "demo": _demo,
    "gemini": _remote("gemini"),
    "openai": _remote("openai"),
    "openai-responses": _remote("openai-responses"),
    "anthropic": _remote("anthropic"),
    "embedded": _embedded,
}
"""Name of a provider -> what opens its model."""
