"""Several models in a row: when one is not available, the next takes over.

A request comes in and goes to the first model that answers. A model that refuses is an answer and not an outage: its error
is the caller's. An answer is never put together from two models, so one that breaks off in the middle is an error too; the
next request goes to the next model.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

from callgate.declaration import without_built_in
from callgate.errors import (
    ConnectionLostError,
    ModelError,
    RateLimitedError,
    RequestTimeoutError,
    ServerUnavailableError,
    UsageError,
)
from callgate.events import Notice
from callgate.models import (
    AnsweredBy,
    Embeddings,
    Item,
    Model,
    ModelRequest,
    answering,
    close_model,
    count_tokens,
    describe,
    embed,
    known_settings,
    origin_of,
    provider_of_model,
    thinking_words,
)
from callgate.types import JsonObject

__all__ = ["ModelChain"]

COOL_DOWN_S = 60.0
"""The time for which a model that was not available is tried last."""

THINKING = ("none", "minimal", "low", "medium", "high", "xhigh")
"""Words of the setting `thinking` in all APIs, from the least on."""
UNAVAILABLE = (RateLimitedError, ServerUnavailableError, ConnectionLostError, RequestTimeoutError)
"""Errors that say nothing about the request: another model may well answer it."""


class ModelChain:
    """A model that is the first of several that can be reached."""

    def __init__(self, models: Sequence[Model], *, clock: Callable[[], float] = time.monotonic) -> None:
        if not models:
            raise UsageError("a list of models needs at least one: the first is asked, the others stand in for it")
        self.models = tuple(models)
        self._clock = clock
        self._down_until: dict[int, float] = {}

    @property
    def name(self) -> str:
        """The names of all of them, in order."""
        return ", ".join(model.name for model in self.models)

    @property
    def provider(self) -> str:
        """The provider of the first model."""
        return provider_of_model(self.models[0])

    @property
    def known_settings(self) -> frozenset[str] | None:
        """The settings that all of them understand, since any of them may have to answer."""
        known_of_each = [known for model in self.models if (known := known_settings(model)) is not None]
        return known_of_each[0].intersection(*known_of_each) if known_of_each else None

    @property
    def files(self) -> object:
        """The files of the first model, if it has uploads."""
        return getattr(self.models[0], "files", None)

    async def generate(self, request: ModelRequest) -> AsyncGenerator[Item, None]:
        """The answer of the first model that gives one, and a notice for every change.

        Raises:
            ModelError: the last one was not available either, or a model refused.
        """
        order = self._order()
        for place, index in enumerate(order):
            model = self.models[index]
            who: AnsweredBy | None = None
            has_begun = False
            asked, notices = (request, []) if index == 0 else _fitted(request, model)
            for notice in notices:
                yield notice
            try:
                async with answering(model, asked) as items:
                    async for item in items:
                        if isinstance(item, AnsweredBy):
                            who = item
                        elif who is None and isinstance(item, dict):
                            who = AnsweredBy(model.name, origin_of(model))
                            yield who
                        has_begun = has_begun or isinstance(item, dict)
                        yield item
            except UNAVAILABLE as error:
                self._down_until[index] = self._clock() + COOL_DOWN_S
                if has_begun or place == len(order) - 1:
                    raise
                yield _change(model, self.models[order[place + 1]], error)
            else:
                self._down_until.pop(index, None)
                return

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """The number of tokens of a request, counted by the first model, if it can."""
        return await count_tokens(self.models[0], request)

    async def describe(self) -> JsonObject | None:
        """The description of the first model by its server, if there is one."""
        return await describe(self.models[0])

    async def embed(self, requests: Sequence[JsonObject]) -> Embeddings | None:
        """The embeddings of contents by the first model, if it has them."""
        return await embed(self.models[0], requests)

    async def aclose(self) -> None:
        """Let go of what the models hold open."""
        for model in self.models:
            await close_model(model)

    def _order(self) -> list[int]:
        """The models in the order given, those last that were not available a moment ago."""
        now = self._clock()
        return sorted(range(len(self.models)), key=lambda index: self._down_until.get(index, 0.0) > now)


def _fitted(request: ModelRequest, model: Model) -> tuple[ModelRequest, list[Notice]]:
    """The request without what a model that stands in does not know, and a notice for each change.

    What the first model does not know is an error of the program; in an outage of it, an answer is better than none.
    """
    known, words = known_settings(model), thinking_words(model)
    is_google = provider_of_model(model).startswith("gcp.")
    settings = {name: value for name, value in request.settings.items() if known is None or name in known}
    left_out = [f"the setting {name!r}" for name in request.settings if name not in settings]
    changed: list[str] = []
    if (level := settings.get("thinking")) is not None and words is not None:
        fitting = _fitting_level(level, words) if isinstance(level, str) else level if words and is_google else None
        if fitting is None:
            left_out.append("the setting 'thinking'")
        elif fitting != level:
            changed.append(f"{model.name} does not have thinking={level!r}, and is asked with {fitting!r}.")
        settings = {**settings, "thinking": fitting}
    declaration, built_in = (request.declaration, []) if is_google else without_built_in(request.declaration)
    left_out += [f"the tool {name!r}" for name in built_in]
    if left_out:
        changed.append(f"{model.name} is asked without {', '.join(left_out)}, which it does not have.")
    if not changed:
        return request, []
    fitted = replace(request, settings=settings, declaration=declaration)
    return fitted, [Notice("setting_changed", text, "warning") for text in changed]


def _fitting_level(level: str, words: Sequence[str]) -> str | None:
    """The next level of thinking that a model has; None for one that does not think, or a word that is no level."""
    if level.lower() not in THINKING or not words:
        return None
    return next((word for word in THINKING[THINKING.index(level.lower()) :] if word in words), words[-1])


def _change(model: Model, successor: Model, error: ModelError) -> Notice:
    return Notice("model_changed", f"{model.name} is not available ({error}); {successor.name} takes over.", "warning")
