"""The scope of the tools: questions about it, and requests that are plainly outside it.

The user's words and the tools come in; a sentence goes out where the answer follows from the list of tools alone, or None.
A small model answers "what can you do?" with anything, and meets "delete it" with the nearest tool that writes. Pure text
work.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from callgate.embedded.numbers import stem
from callgate.types import ToolDefinition

__all__ = ["DECLINED", "scope_answer"]

DECLINED = "I can't do that with the tools I have: none of them seems to fit."

SHOWN_MAX = 12
DESCRIPTION_CHARS_MAX = 70

_ABOUT = re.compile(
    r"\s*(?:hi|hello|hey)?[\s,!.]*(?:so\s+)?(?:what (?:can|could) (?:you|i) (?:do|ask)(?: (?:for me|here|you))?"
    r"|what do you do|what are you able to do|how can you help(?: me)?"
    r"|what tools (?:do you have|are there|have you got)|help"
    r"|which tools (?:do you have|are there)|was kannst du(?: alles)?|que peux-tu faire|qué puedes hacer|cosa sai fare)"
    r"[\s?!.]*",
    re.IGNORECASE,
)
_ASKED = re.compile(
    r"\s*(?:please|kindly|(?:can|could|would|will) you(?: please)?|i (?:want|'d like|need) (?:you )?to|bitte|now)?"
    r"[\s,]*([^\W\d_]+)",
    re.IGNORECASE,
)
_ACTIONS = (
    frozenset({"delete", "remove", "erase", "discard", "drop", "clear", "wipe", "lösche", "entferne", "supprime", "borra"}),
    frozenset({"rename", "move", "umbenennen", "renomme", "renombra"}),
    frozenset({"copy", "duplicate", "clone", "kopiere", "copie", "copia"}),
    frozenset({"uninstall", "deinstall"}),
    frozenset({"translate", "übersetze", "traduis", "traduce"}),
)  # fmt: skip
"""Actions that must not be taken for other ones; each row means much the same."""
_WORD = re.compile(r"[^\W\d_]+", re.UNICODE)


def scope_answer(said: str, tools: Sequence[ToolDefinition]) -> str | None:
    """The answer to a question about the tools, or to a request for an action that none of them has."""
    if not tools:
        return None
    if _ABOUT.fullmatch(said):
        return _listed(tools)
    asked = _ASKED.match(said)
    verb = asked[1].casefold() if asked else ""
    alike = next((row for row in _ACTIONS if verb in row), None)
    if alike is None:
        return None
    stems = {stem(word) for word in alike}
    known = {
        stem(word)
        for tool in tools
        for word in [*re.findall(r"[A-Z]?[a-z]+|[A-Z]+", tool.name), *_WORD.findall(tool.description)]
    }
    return None if stems & known else f"I can't {verb} anything: none of my tools does that."


def _listed(tools: Sequence[ToolDefinition]) -> str:
    lines = [f"- {tool.name}: {_short(tool.description)}".rstrip(": ") for tool in tools[:SHOWN_MAX]]
    more = f"\n- and {len(tools) - SHOWN_MAX} more" if len(tools) > SHOWN_MAX else ""
    return "I can use these tools:\n" + "\n".join(lines) + more


def _short(description: str) -> str:
    first = " ".join(description.split()).partition(". ")[0].rstrip(".")
    if len(first) <= DESCRIPTION_CHARS_MAX:
        return first
    return first[:DESCRIPTION_CHARS_MAX].rpartition(" ")[0] + " ..."
