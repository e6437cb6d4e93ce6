"""The state that a command of the conversation can reach.

The conversation, the terminal, the options and the stored session come in; commands read and change them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from callgate.cli.chat_session import ChatSession
from callgate.cli.options import Options
from callgate.cli.render import Terminal
from callgate.cli.state import StoredSession

if TYPE_CHECKING:
    from callgate.content.prompt import Prompt

__all__ = ["CommandContext"]


@dataclass(slots=True)
class CommandContext:
    """The state that commands can reach."""

    chat: ChatSession
    terminal: Terminal
    options: Options
    stored: StoredSession
    exchange: Callable[[Prompt | None], bool]
    """Run an exchange, or with None continue a waiting run; False when the user wants to leave."""
    leaves: bool = field(default=False)

    def say(self, text: str) -> None:
        """Print one line."""
        self.terminal.line(text)
