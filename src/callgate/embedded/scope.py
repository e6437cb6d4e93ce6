"""The scope of the tools: questions about it, and requests that are plainly outside it.

The user's words and the tools come in; a sentence goes out where the answer follows from the list of tools alone, or None.
A small model answers "what can you do?" and "goodbye" with anything, and meets "delete it" with the nearest one that writes.
Pure text work.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from callgate.embedded.numbers import stem
from callgate.types import ToolDefinition

__all__ = ["DECLINED", "is_question", "is_statement", "scope_answer"]

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
_FAREWELL = re.compile(
    r"\s*(?:ok(?:ay)?[\s,.]+)?(?:good ?bye|bye(?:[- ]bye)?|see you(?: later)?"
    r"|tschüss|auf wiedersehen|au revoir|adiós)[\s!.]*",
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
    frozenset({"send", "email", "mail", "phone", "ring", "sende", "schicke", "envoie", "envía"}),
    frozenset({"buy", "order", "pay", "purchase", "bestelle", "kaufe", "achète", "compra"}),
    frozenset({"translate", "übersetze", "traduis", "traduce"}),
)  # fmt: skip
"""Actions that must not be taken for other ones; each row means much the same."""
_SENDS = frozenset({"deliver", "delivery", "dispatch", "ship", "shipment", "transfer", "forward"})
"""Words of tools that send things."""
_TOPICS = (
    (frozenset({"weather", "forecast", "wetter", "météo"}), "I can't tell the weather: none of my tools does that."),
    (frozenset({"news", "headlines", "nachrichten"}), "I can't tell the news: none of my tools does that."),
    (
        frozenset({
            "cheapest", "dearest", "average", "median", "highest", "lowest", "largest", "smallest", "oldest", "youngest",
        }),
        "I can't compare or add up what is in files: none of my tools does that. I can show you a file.",
    ),
)  # fmt: skip
"""Words of a question that no tool speaks of, and the answer."""
_COMPOSED = re.compile(
    r"[^'\"“]*\b(?:a|an|some|the|ein|eine|einen|un|une)\s+(?:\w+\s+)?"
    r"(?:haiku|poem|story|joke|essay|song|letter|limerick|gedicht|poème)\b[^'\"“]*",
    re.IGNORECASE,
)
_MAKES = re.compile(r"\b(?:write|create|compose|make|tell|schreibe|erzähle|écris)\b", re.IGNORECASE)
COMPOSED = "I can't make up texts of my own. Give me the words, and I can write them to a file."
TOPIC_WORDS_MAX = 14
_WORD = re.compile(r"[^\W\d_]+", re.UNICODE)


_QUESTION = re.compile(r"\s*(?:what|who|whom|whose|why|how|which|where|when|do|does|did|is|are|was|were)\b", re.IGNORECASE)
_STATES = re.compile(
    r"\s*(?:the|my|our|his|her|their|there|this|that|it|he|she|they|we|a|an|in|at|on)\b"
    r"|\s*[^\W\d_][\w.'’-]*(?:\s+[^\s,]+){0,3}?\s+(?:is|are|was|were|has|have|had|needs|wants|will|won['’]t|must|can['’]t"
    r"|cannot|should|came|got|went|took|paid|said|says|stays?|takes?|gets?|goes|does|did)\b",
    re.IGNORECASE,
)
_WISHES = re.compile(
    r"\s*(?:please\b|(?:can|could|would|will)\b|i (?:want|need|would|wish)\b|i['’]d\b|let\b|we (?:want|need|would)\b"
    r"|we['’]d\b|give me\b|tell me\b|show\b|find\b|get me\b|play\b)",
    re.IGNORECASE,
)


def is_question(said: str) -> bool:
    """True for a question about how things are: it begins like one and ends like one."""
    return _QUESTION.match(said) is not None and said.rstrip().endswith("?")


def is_statement(said: str) -> bool:
    """True for a sentence that tells something, and neither asks nor commands."""
    return "?" not in said and not _WISHES.match(said) and _STATES.match(said) is not None


def scope_answer(said: str, tools: Sequence[ToolDefinition]) -> str | None:
    """The answer to a question about the tools, or to a request for an action that none of them has."""
    if not tools:
        return None
    if _ABOUT.fullmatch(said):
        return _listed(tools)
    if _FAREWELL.fullmatch(said):
        return "Goodbye!"
    if (known := _out_of_scope(said, tools)) is not None:
        return known
    asked = _ASKED.match(said)
    verb = asked[1].casefold() if asked else ""
    alike = next((row for row in _ACTIONS if verb in row), None)
    if alike is None:
        return None
    stems = {stem(word) for word in alike | (_SENDS if "send" in alike else set[str]())}
    return None if stems & _stems_of(tools) else f"I can't {verb} anything: none of my tools does that."


def _stems_of(tools: Sequence[ToolDefinition]) -> set[str]:
    """The words of the tools' names and descriptions."""
    return {
        stem(word.casefold())
        for tool in tools
        for word in [*re.findall(r"[A-Z]?[a-z]+|[A-Z]+", tool.name), *_WORD.findall(tool.description)]
    }


def _out_of_scope(said: str, tools: Sequence[ToolDefinition]) -> str | None:
    """The answer to a short question about something that no tool speaks of, and to a wish for a text of one's own."""
    words = {word.casefold() for word in _WORD.findall(said)}
    if _MAKES.search(said) and _COMPOSED.fullmatch(said):
        return COMPOSED
    if len(words) > TOPIC_WORDS_MAX or re.search(r"\w\.\w|/", said):
        return None
    stems = _stems_of(tools)
    return next((answer for topic, answer in _TOPICS if words & topic and not stems & {stem(word) for word in topic}), None)


def _listed(tools: Sequence[ToolDefinition]) -> str:
    lines = [f"- {tool.name}: {_short(tool.description)}".rstrip(": ") for tool in tools[:SHOWN_MAX]]
    more = f"\n- and {len(tools) - SHOWN_MAX} more" if len(tools) > SHOWN_MAX else ""
    return "I can use these tools:\n" + "\n".join(lines) + more


def _short(description: str) -> str:
    first = " ".join(description.split()).partition(". ")[0].rstrip(".")
    if len(first) <= DESCRIPTION_CHARS_MAX:
        return first
    return first[:DESCRIPTION_CHARS_MAX].rpartition(" ")[0] + " ..."
