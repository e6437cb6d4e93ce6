"""One protocol, several models.

A request comes in, response chunks in Gemini's form go out; a model that speaks another language translates at this edge.
Nothing here knows of tools being run, of permission or of history rules.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from callgate.errors import UsageError
from callgate.events import CallArgsDelta, Notice
from callgate.request import ModelRequest
from callgate.types import JsonObject

__all__ = ["Model", "ModelRequest", "open_model"]


class Model(Protocol):
    """Something that answers. `generate` yields response chunks as they arrive; a whole answer is one chunk.

    It may also yield events to pass on to whoever watches: a `Notice` of a retry, a `CallArgsDelta`.
    """

    @property
    def name(self) -> str:
        """What the model is called in logs and replies."""
        ...

    def generate(self, request: ModelRequest) -> AsyncIterator[JsonObject | Notice | CallArgsDelta]:
        """Asks the model. Raises a `ModelError` when there is no answer to be had."""
        ...


def open_model(model: Model | str) -> Model:
    """A model object as it is; a name is a Gemini model, reached as the environment says.

    Raises:
        UsageError: there is no key, or the object is not a model.
    """
    if isinstance(model, str):
        from callgate.models.gemini import GeminiModel

        return GeminiModel(model)
    if not callable(getattr(model, "generate", None)):
        raise UsageError(f"{model!r} is not a model: pass a model's name, a ScriptedModel, or an object with generate()")
    return model
