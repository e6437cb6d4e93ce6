"""One training example: a tool list and a conversation, as pieces of text of which the replies are learned.

Tools and turns come in; `(text, learned)` pieces go out, in the prompt format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from training import format as prompt_format
from training.format import Call

Piece = tuple[str, bool]


@dataclass(slots=True)
class Example:
    """A conversation. Each turn is what comes in, a request or results, and the reply that is wanted."""

    tools: list[dict[str, Any]]
    turns: list[tuple[str, str]]
    extra: str = ""
    rules: str = prompt_format.SYSTEM

    def pieces(self) -> list[Piece]:
        """The text, and which parts of it the model is to write."""
        system = prompt_format.turn("system", prompt_format.system_text(self.tools, rules=self.rules, extra=self.extra))
        pieces: list[Piece] = []
        for number, (given, reply) in enumerate(self.turns):
            before = system if number == 0 else "\n"
            pieces.append((before + prompt_format.turn("user", given) + prompt_format.OPEN_REPLY, False))
            pieces.append((reply + prompt_format.END, True))
        return pieces


def reply(calls: Sequence[Call]) -> str:
    """A reply that makes calls."""
    return prompt_format.calls_text(calls)


def results(calls: Sequence[Call], values: Sequence[Any]) -> str:
    """The turn that brings the results of calls."""
    return prompt_format.results_text([(name, value) for (name, _), value in zip(calls, values, strict=True)])
