"""The mode of tool declarations: native where the model can, by prompt where it cannot.

A model and a mode come in, a model goes out that behaves the same in either mode. What a model can do is given by its
`supports_tools`, and by a server that refuses tools: then the same request is made again by prompt, and the model is
remembered as one without tools.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias

from callgate.errors import ToolsUnsupportedError, UsageError
from callgate.events import Notice
from callgate.models import (
    AnsweredBy,
    Embeddings,
    Item,
    Mode,
    Model,
    ModelRequest,
    answer_items,
    answering,
    close_items,
    close_model,
    count_tokens,
    describe,
    embed,
    known_settings,
    origin_of,
    provider_of_model,
)
from callgate.types import JsonObject

__all__ = ["in_mode"]

_Instead: TypeAlias = Callable[[ModelRequest, ToolsUnsupportedError], tuple[Notice, AsyncIterator[Item]]]

MODES: tuple[Mode, ...] = ("auto", "native", "prompted")


def in_mode(model: Model, mode: Mode) -> Model:
    """The model with tools declared in this mode.

    Raises:
        UsageError: an unknown mode, or one that the model cannot do.
    """
    if mode not in MODES:
        raise UsageError(f"mode={mode!r}: use one of {', '.join(map(repr, MODES))}")
    if getattr(model, "calls_by_prompt", False):
        if mode == "native":
            raise UsageError(f"{model.name!r} has no native tool calling: use mode='auto' or 'prompted'")
        return model
    return {"auto": ByAbility, "native": _itself, "prompted": _prompted}[mode](model)


def _itself(model: Model) -> Model:
    return model


def _prompted(model: Model) -> Model:
    from callgate.models.prompted import PromptedModel  # Most programs never need what it imports.

    return PromptedModel(model)


class ByAbility:
    """A model that is asked natively until it turns out that it has no tools."""

    def __init__(self, model: Model) -> None:
        self._native = model
        self._by_prompt_model: Model | None = None
        self._has_tools = getattr(model, "supports_tools", None) is not False

    @property
    def _prompted(self) -> Model:
        if self._by_prompt_model is None:
            self._by_prompt_model = _prompted(self._native)
        return self._by_prompt_model

    @property
    def name(self) -> str:
        """The model's own name."""
        return self._native.name

    @property
    def native(self) -> Model:
        """The model itself."""
        return self._native

    @property
    def provider(self) -> str:
        """The provider."""
        return provider_of_model(self._native)

    @property
    def origin(self) -> str:
        """The origin of the signatures in native answers."""
        return origin_of(self._native)

    @property
    def known_settings(self) -> frozenset[str] | None:
        """The settings that the model understands."""
        return known_settings(self._native)

    @property
    def files(self) -> object:
        """The files of the model, if it has uploads."""
        return getattr(self._native, "files", None)

    def generate(self, request: ModelRequest) -> AsyncIterator[Item]:
        """Ask natively if the model has tools or needs none, by prompt otherwise; a notice says when that changes.

        Raises:
            ModelError: there is no answer to be had.
        """
        if self._has_tools or not request.definitions:
            return _Native(answer_items(self._native, request), request, self._by_prompt_instead)
        return self._by_prompt(request)

    def _by_prompt_instead(self, request: ModelRequest, error: ToolsUnsupportedError) -> tuple[Notice, AsyncIterator[Item]]:
        self._has_tools = False
        message = f"{self.name} gets its tools in the prompt from now on: {error}"
        return Notice("mode_changed", message, "warning"), self._by_prompt(request)

    async def _by_prompt(self, request: ModelRequest) -> AsyncGenerator[Item, None]:
        yield AnsweredBy(self._prompted.name, origin_of(self._prompted))
        async with answering(self._prompted, request) as items:
            async for item in items:
                yield item

    async def count_tokens(self, request: ModelRequest) -> int | None:
        """The number of tokens of a request, if the model can count them."""
        return await count_tokens(self._native if self._has_tools else self._prompted, request)

    async def describe(self) -> JsonObject | None:
        """The description of the model by its server, if there is one."""
        return await describe(self._native)

    async def embed(self, requests: Sequence[JsonObject]) -> Embeddings | None:
        """The embeddings of contents by the model, if it has them."""
        return await embed(self._native, requests)

    async def aclose(self) -> None:
        """Let go of what the model holds open."""
        await close_model(self._native)


class _Native:
    """A native answer, in whose place a prompted one comes where tools are refused.

    It is not an async generator, because those that only hand on what they are given cost more than all that they do.
    """

    __slots__ = ("_instead", "_items", "_request")

    def __init__(self, items: AsyncIterator[Item], request: ModelRequest, instead: _Instead) -> None:
        self._items = items
        self._request = request
        self._instead: _Instead | None = instead

    @property
    def is_sound(self) -> bool:
        """True if the newest chunk is known to be plain JSON within the limits of a call."""
        return getattr(self._items, "is_sound", False)

    def __aiter__(self) -> _Native:
        return self

    def __anext__(self) -> Awaitable[Item]:
        return self._items.__anext__() if self._instead is None else self._first_item(self._instead)

    async def _first_item(self, instead: _Instead) -> Item:
        """The next item before any of the answer itself: only so long can tools be refused."""
        try:
            item = await self._items.__anext__()
        except ToolsUnsupportedError as error:
            await self.aclose()
            item, self._items = instead(self._request, error)
            self._instead = None
        if isinstance(item, dict):
            self._instead = None
        return item

    def aclose(self) -> Awaitable[None]:
        return close_items(self._items)
