"""What a model is asked with.

Put together by the runtime, read by the models. This file knows nothing of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from callgate import parts
from callgate.conversation import Conversation
from callgate.declaration import Declaration, tool_config
from callgate.types import Content, JsonObject, ToolChoice, ToolDefinition

__all__ = ["ModelRequest"]


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

    stream: bool = True
    """Whether somebody watches the answer arrive. Where nobody does, it may be asked for whole, and again if it breaks."""

    @property
    def contents(self) -> list[Content]:
        """What is sent: the conversation, and the feedback if there is any."""
        contents = self.conversation.contents
        return [*contents, parts.user_content(self.feedback)] if self.feedback else contents

    @property
    def tool_config(self) -> JsonObject | None:
        """The configuration for the tool choice of this request."""
        return tool_config(self.tool_choice, self.declaration.names)
