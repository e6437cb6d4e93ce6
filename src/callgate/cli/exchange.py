"""One exchange at the terminal, and the exit codes of a chat.

Takes what the user said, shows the exchange while it runs, and returns whether to continue. No error of an exchange ends
the conversation.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from callgate.cli.chat_session import ChatSession
from callgate.cli.error_hints import with_hint
from callgate.cli.render import Terminal, one_line
from callgate.errors import CallgateError
from callgate.events import Event

if TYPE_CHECKING:
    from callgate.content.prompt import Prompt

__all__ = ["ERROR", "INTERRUPTED", "OK", "TURN_LIMIT", "run_exchange"]

OK, ERROR, TURN_LIMIT, INTERRUPTED = 0, 1, 53, 130


def run_exchange(
    chat: ChatSession, terminal: Terminal, prompt: Prompt | None, *, show: Callable[[Event], None] | None = None
) -> bool:
    """Run one exchange; return False when the user wants to leave. Errors are shown, and the conversation continues."""
    terminal.begin()
    try:
        chat.exchange(prompt, show or terminal.show, terminal.tick)
    except CallgateError as error:
        terminal.end()
        terminal.line(f"callgate: {one_line(with_hint(error), 1000)}", color="failed")
    except KeyboardInterrupt:
        return False
    except Exception as error:
        # A model, a tool or callgate itself has a fault: the conversation is worth more than this exchange.
        logging.getLogger("callgate.cli").exception("an exchange failed")
        terminal.end()
        terminal.line(f"callgate: {type(error).__name__}: {one_line(str(error), 1000)}", color="failed")
    finally:
        terminal.end()
    return True
