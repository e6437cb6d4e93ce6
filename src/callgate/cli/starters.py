"""Examples of what can be asked here, made from the tools at hand.

Takes the definitions of tools and a folder, returns sentences that those tools can answer. Nothing is called.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from callgate.errors import CallgateError
from callgate.types import ToolDefinition

if TYPE_CHECKING:
    from callgate.cli.chat_session import ChatSession
    from callgate.cli.options import Options

__all__ = ["examples_for", "opening_lines"]

EXAMPLES_MAX = 3
FILES_SEEN_MAX = 1_000


def _file_in(folder: str) -> str | None:
    """The name of a text file in the folder, a README before others."""
    try:
        with os.scandir(folder) as entries:
            names = sorted(
                entry.name
                for entry, _ in zip(entries, range(FILES_SEEN_MAX), strict=False)
                if entry.name.endswith((".md", ".txt", ".csv", ".py")) and entry.name.isprintable() and entry.is_file()
            )
    except OSError:
        return None
    return next((name for name in names if name.lower().startswith("readme")), names[0] if names else None)


def _read(folder: str) -> str | None:
    name = _file_in(folder)
    return f"What does {name} say?" if name else None


_EXAMPLES: Mapping[str, Callable[[str], str | None]] = {
    "list_files": lambda folder: "Which files are here?",
    "read_file": _read,
    "calculate": lambda folder: "What is 15% of 240?",
    "current_time": lambda folder: "What time is it in Tokyo?",
    "get_current_weather": lambda folder: "What is the weather in Oslo?",
    "search_files": lambda folder: "Which files mention TODO?",
}
"""Name of a tool -> a question that it answers; None if the folder has nothing to ask about."""


def examples_for(definitions: Sequence[ToolDefinition], folder: str) -> list[str]:
    """Up to three questions that these tools can answer."""
    names = {definition.name for definition in definitions}
    found = [made for name, make in _EXAMPLES.items() if name in names and (made := make(folder))]
    found += [
        f"Use {definition.name}: {first[:60]}"
        for definition in definitions
        if definition.name not in _EXAMPLES and (first := definition.description.strip().split("\n")[0].rstrip("."))
    ]
    return found[:EXAMPLES_MAX]


def opening_lines(chat: ChatSession, options: Options) -> list[str]:
    """Name examples in one line; none where servers must be started to know their tools."""
    if chat.servers:
        return []
    try:
        examples = examples_for(chat.gate.definitions, options.root or ".")
    except (CallgateError, click.ClickException):
        return []  # It is said with the first message, as before.
    return [f"Try: {' | '.join(examples)}"] if examples else []
