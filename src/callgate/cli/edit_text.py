"""A text that is edited in the line, and what every editor of this terminal needs.

Takes a text, returns it as it was changed. prompt_toolkit is imported when it is needed, and draws on stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent

__all__ = ["done", "edit_text", "is_able", "rich_output"]


def is_able() -> bool:
    """True if the terminal can be drawn on."""
    return sys.stdin.isatty() and sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def rich_output() -> Any:
    """The screen, for prompt_toolkit."""
    from prompt_toolkit.output import create_output

    output: Any = create_output(stdout=sys.stderr)
    # Known to prompt_toolkit as a height, so that the footer is drawn without that report.
    output.get_rows_below_cursor_position = lambda: 1
    # The terminal's report of the cursor position may arrive late, and be read as an answer to a question of ours.
    output.enable_cpr = False
    return output


def done(action: Callable[[KeyPressEvent], object], event: KeyPressEvent) -> None:
    """Run the action of a key. Its return value is dropped, because prompt_toolkit would await it."""
    action(event)


async def edit_text(prompt: str, text: str) -> str | None:
    """Let a text be changed in place: Enter takes it, Alt-Enter begins a line, Ctrl-C leaves it (an empty text).

    None if this terminal has no editor.
    """
    if not is_able():
        return None
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.key_binding import KeyBindings
    except ImportError:
        return None
    keys = KeyBindings()
    bound: list[tuple[tuple[str, ...], Callable[[KeyPressEvent], object]]] = [
        (("enter",), lambda event: event.current_buffer.validate_and_handle()),
        (("escape", "enter"), lambda event: event.current_buffer.newline(copy_margin=False)),
        (("c-c",), lambda event: event.app.exit(result="")),
    ]
    for sequence, action in bound:
        keys.add(*sequence)(partial(done, action))
    session: PromptSession[str] = PromptSession(
        prompt, multiline=True, key_bindings=keys, output=rich_output(), prompt_continuation="  "
    )
    try:
        return await session.prompt_async(default=text, handle_sigint=False, set_exception_handler=False)
    except EOFError:
        return ""
