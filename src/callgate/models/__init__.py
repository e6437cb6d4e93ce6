"""One protocol, several models.

A request comes in, response chunks in Gemini's form go out; a model that speaks another language translates at this edge.
Nothing here knows of tools being run, of permission or of history rules.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from callgate import parts
from callgate.conversation import Conversation
from callgate.declaration import Declaration, tool_config
from callgate.errors import UsageError
from callgate.events import CallArgsDelta, Notice
from callgate.types import Content, JsonObject, ToolChoice, ToolDefinition

__all__ = ["Model", "ModelRequest", "open_model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """Everything that a model is asked with."""

    conversation: Conversation
    definitions: tuple[ToolDefinition, ...] = ()
    declaration: Declaration = field(default_factory=lambda: Declaration(tools=[], tool_config=None, names={}))
    tool_choice: ToolChoice = "auto"
    system: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    feedback: str | None = None
    """A sentence behind the conversation, for this request only."""

    @property
    def contents(self) -> list[Content]:
        """What is sent: the conversation, and the feedback if there is any."""
        contents = self.conversation.contents
        return [*contents, parts.user_content(self.feedback)] if self.feedback else contents

    @property
    def tool_config(self) -> JsonObject | None:
        """The configuration for the tool choice of this request."""
        return tool_config(self.tool_choice, self.declaration.names)


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
    """A model object as it is.

    Raises:
        UsageError: a name, which this version cannot turn into a model, or something that is not a model.
    """
    if isinstance(model, str):
        raise UsageError(f"model={model!r}: this version takes model objects only; pass a ScriptedModel or your own Model")
    if not callable(getattr(model, "generate", None)):
        raise UsageError(f"{model!r} is not a model: it has no generate()")
    return model
