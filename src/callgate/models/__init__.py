"""One protocol, several models.

A request comes in, response chunks in Gemini's form go out; a model that speaks another language translates at this edge.
Nothing here knows of tools being run, of permission or of history rules.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from callgate.errors import ConnectionLostError, ModelError, UsageError
from callgate.events import CallArgsDelta, Notice
from callgate.request import Accepted, ContextCache, Embeddings, ModelRequest, PartialCall
from callgate.types import JsonObject
from callgate.user_code import is_cancelled, keeps_running

__all__ = [
    "Accepted",
    "AnsweredBy",
    "ContextCache",
    "Embeddings",
    "Item",
    "Mode",
    "Model",
    "ModelRequest",
    "PartialCall",
    "answer_items",
    "answering",
    "close_items",
    "close_model",
    "count_tokens",
    "describe",
    "embed",
    "has_context_cache",
    "known_settings",
    "members_of",
    "origin_of",
    "provider_of_model",
    "takes_functions",
    "thinking_words",
]  # fmt: skip

Mode: TypeAlias = Literal["auto", "native", "prompted"]
"""The mode of tool declarations: function calling of the API, words in the prompt, or a choice by capability."""


@dataclass(frozen=True, slots=True)
class AnsweredBy:
    """The name of the model, before the first chunk of its answer. A model that is always itself need not yield it."""

    model: str
    origin: str
    """The origin of the signatures in the answer."""


Item: TypeAlias = "JsonObject | Notice | CallArgsDelta | PartialCall | AnsweredBy | Accepted"
"""An item of a model's output: a chunk of the answer, an event to pass on, a piece of a call's arguments, the model that
answers, or the server's word that it works on the answer by itself."""


class Model(Protocol):
    """A language model. `generate` yields response chunks as they arrive; a whole answer is one chunk.

    It may also yield events to pass on to observers: a `Notice` of a retry, a `CallArgsDelta`. A `PartialCall`
    announces a call while its arguments are written. A coroutine `prepare(request)` is called, where it exists, to get
    ready for requests with these tools. These attributes are read where they exist: `origin` (a word for whose
    signatures its answers carry; its name otherwise), `provider` (whose model it is, for traces), `supports_tools`
    (False when it has no tool calling of its own), `calls_by_prompt` (True when it brings its own prompted format),
    `known_settings` (the settings that it understands), `thinking_words` (the words that the setting `thinking` may
    have, from the least on), `takes_functions` (False for an agent that is asked without them), `has_context_cache`
    (True when it uses the request's `cache`), `count_tokens(request)` (how many tokens a request has), `describe()`
    (the server's description of the model), `embed(requests)` (embeddings) and `with_name(name)` (another model at the
    same endpoint).
    """

    @property
    def name(self) -> str:
        """The name of the model in logs and replies."""
        ...

    def generate(self, request: ModelRequest) -> AsyncIterator[Item]:
        """Ask the model. Raises a `ModelError` when there is no answer to be had.

        A caller who stops early closes the iterator by `aclose`, where it has that.
        """
        ...


def provider_of_model(model: Model) -> str:
    """The provider of a model, in OpenTelemetry's vocabulary where it has a word."""
    return str(getattr(model, "provider", "callgate"))


def members_of(model: Model) -> list[Model]:
    """The models that may answer: the model itself, or those that it stands for."""
    members = getattr(model, "models", None) or ([native] if (native := getattr(model, "native", None)) is not None else [])
    return [one for member in members for one in members_of(member)] if members else [model]


def billed_names(model: Model) -> list[str]:
    """The names of the models that may answer and are billed for it; a model with `is_free = True` is not."""
    return [member.name for member in members_of(model) if not getattr(member, "is_free", False)]


def origin_of(model: Model) -> str:
    """The origin of the signatures in a model's answers."""
    return str(getattr(model, "origin", model.name))


def known_settings(model: Model) -> frozenset[str] | None:
    """The settings that a model understands; None for one that does not say, and is given any."""
    known: Collection[str] | None = getattr(model, "known_settings", None)
    return None if known is None else frozenset(known)


def thinking_words(model: Model) -> tuple[str, ...] | None:
    """The words of the setting `thinking` for all models that may answer, from the least on; None if one does not say."""
    said: list[Collection[str] | None] = [getattr(member, "thinking_words", None) for member in members_of(model)]
    known = [words for words in said if words is not None]
    return tuple(word for word in known[0] if all(word in words for words in known)) if known == said else None


def takes_functions(model: Model) -> bool:
    """True if one of the models that may answer can be given functions; some agents take none."""
    return any(getattr(member, "takes_functions", True) for member in members_of(model))


def has_context_cache(model: Model) -> bool:
    """True if one of the models that may answer can cache the beginning of requests at its provider."""
    return any(getattr(member, "has_context_cache", False) for member in members_of(model))


async def describe(model: Model) -> JsonObject | None:
    """The server's own description of a model, such as its limits; None where it gives none.

    Raises:
        InvalidRequestError: there is no such model; `is_model_unknown` is True.
    """
    found = getattr(model, "describe", None)
    return None if found is None else await found()


async def embed(model: Model, requests: Sequence[JsonObject]) -> Embeddings | None:
    """The embeddings of contents; None where the model has none.

    Each request has `content` (and what Gemini takes beside it: `taskType`, `title`, `outputDimensionality`), or `tokens`
    for models that take these.

    Raises:
        ModelError: there is no answer.
        UsageError: the model cannot embed this.
    """
    found = getattr(model, "embed", None)
    return None if found is None else await found(requests)


async def count_tokens(model: Model, request: ModelRequest) -> int | None:
    """The number of tokens of a request, counted by the model; None where it cannot."""
    count = getattr(model, "count_tokens", None)
    return None if count is None else await count(request)


def answer_items(model: Model, request: ModelRequest) -> AsyncIterator[Item]:
    """The items of an answer of a model, which may be one of the program's.

    Raises:
        UsageError: it gives something that cannot be read with `async for`.
    """
    items = model.generate(request)
    if not hasattr(items, "__anext__"):
        if inspect.iscoroutine(items):
            items.close()
        raise UsageError(
            f"generate() of model {model.name!r} returned a {type(items).__name__!r}: write it as `async def` with `yield`"
        )
    return items


class answering:
    """The items of one answer; what the model holds open for it is let go of, however the loop over them ends.

    ```python
    async with answering(model, request) as items:
        async for item in items: ...
    ```
    """

    __slots__ = ("_guard", "_items", "_name")

    def __init__(self, model: Model, request: ModelRequest) -> None:
        self._name = model.name
        self._guard = keeps_running(ModelError, f"model {self._name!r}")
        with self._guard:
            self._items = answer_items(model, request)

    async def __aenter__(self) -> AsyncIterator[Item]:
        return self._items

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._guard:
            await close_items(self._items)
        self._guard.__exit__(kind, error, trace)
        if isinstance(error, asyncio.CancelledError) and not is_cancelled():
            # It would pass for a cancellation of the caller, and end tasks without a word.
            raise ConnectionLostError(_GAVE_UP.format(self._name), retryable=True) from error


_GAVE_UP = "model {!r} gave the request up: something that it waited for was cancelled"


async def close_items(items: AsyncIterator[Item]) -> None:
    """Let go of what a model holds open for an answer, if it holds anything."""
    close = getattr(items, "aclose", None)
    if close is not None:
        await close()


async def close_model(model: Model) -> None:
    """Close what a model holds open, if it holds anything."""
    close = getattr(model, "aclose", None)
    if close is not None:
        with keeps_running(ModelError, f"model {model.name!r}"):
            await close()
