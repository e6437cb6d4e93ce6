"""Missing arguments: a required argument that the user did not give becomes a question instead of an invention.

A call, its tool and everything that was said come in; the parameters whose values came from nowhere go out, and a question
about them. The rule, for required parameters only:

- text without choices, default or format passes if it is among the words that were said (user, results, system), compared
  without case and punctuation; or if at least half of its words are, or begin like one, where a number counts as said if
  any number was (a date in another form); or if the description lists it among quoted choices;
- a number without default or choices passes if a number was said at all (in digits or words), or if the tool's own
  description names this very number.

Everything else passes: choices, lists, objects, optional parameters. Pure text work.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from callgate.embedded.shapes import as_object, properties_of, required_of, resolved, types_of
from callgate.types import ToolDefinition

__all__ = ["made_up", "question", "respelled"]

RESPELLED_CHARS_MIN = 5
NEARLY = 0.68
"""The similarity of a misspelling to the word, from 0 to 1."""
CLEARLY = 0.1
"""The lead that the best match must have over the next."""
SPOKEN_MAX = 400
"""Words that are compared, the newest ones."""
ALIKE = 4
"""Letters that make two words alike."""

_WORD = re.compile(r"[^\W_]+", re.UNICODE)
_QUOTED = re.compile(r"'([^'\s][^'\n]{0,40})'|\"([^\"\n]{1,40})\"")
_NAME = re.compile(r"[^\W_][\w./@+-]*[^\W_]|[^\W_]", re.UNICODE)
_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")
_NUMBER_WORDS = frozenset({
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty", "thirty", "forty", "fifty", "sixty",
    "seventy", "eighty", "ninety", "hundred", "thousand", "million", "billion", "half", "quarter", "third", "dozen",
    "couple", "pair", "single", "double", "twice", "once", "both", "an",
})  # fmt: skip
"""`an` is a number as in "an hour"."""


def made_up(args: Mapping[str, Any], tool: ToolDefinition, said: str) -> list[str]:
    """The required parameters whose values do not come from what was said."""
    root = as_object(tool.input_schema)
    schema = resolved(root, root)
    properties = properties_of(schema)
    words = _words(said)
    described = f"{tool.description} {schema.get('description', '')}"
    found: list[str] = []
    for name in required_of(schema):
        if name not in args:
            continue
        shape = resolved(properties.get(name), root)
        if _is_open(shape) and not _is_said(args[name], words, said, f"{described} {shape.get('description', '')}"):
            found.append(name)
    return found


def _is_open(shape: Mapping[str, Any]) -> bool:
    """True if nothing but the conversation can tell the value."""
    given = ("enum", "const", "default", "format", "pattern", "anyOf", "oneOf")
    return not any(key in shape for key in given) and bool({"string", "integer", "number"} & set(types_of(shape)))


def _is_said(value: object, words: Sequence[str], said: str, described: str) -> bool:
    if isinstance(value, bool):
        return True
    if isinstance(value, (int, float)):
        if _has_number(said, words):
            return True
        return any(_number(text) == value for text in _DIGITS.findall(described))
    if not isinstance(value, str):
        return True
    wanted = _words(value)
    if not wanted:
        return bool(value.strip()) and value.strip() in said
    if "".join(wanted) in "".join(words) or value in _listed(described):
        return True
    beginnings, has_number = {word[:ALIKE] for word in words}, _has_number(said, words)
    known = [word for word in wanted if word[:ALIKE] in beginnings or (word.isdigit() and has_number)]
    return len(known) * 2 >= len(wanted)


def _has_number(said: str, words: Sequence[str]) -> bool:
    return bool(_DIGITS.search(said)) or bool(_NUMBER_WORDS & set(words))


def _listed(described: str) -> list[str]:
    """Choices that a description lists in quotes; a single one is an example."""
    found = [single or double for single, double in _QUOTED.findall(described)]
    return found if len(found) > 1 else []


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def respelled(value: object, said: str) -> str | None:
    """The one piece of what was said that the value is a misspelling of; None if there is none, or more than one.

    A small model copies a rare name with letters lost (`Creamure` for `Craignure`). Only values that were not said are
    looked at, so a name that the model took from elsewhere is a question unless it is nearly one of the user's.
    """
    if not isinstance(value, str) or len(value) < RESPELLED_CHARS_MIN:
        return None
    count = len(value.split())
    places = [(found.start(), found.end()) for found in _NAME.finditer(said)][-SPOKEN_MAX:]
    pieces = {said[first[0] : last[1]] for first, last in zip(places, places[count - 1 :], strict=False)}
    rated = sorted(
        ((SequenceMatcher(None, value.casefold(), piece.casefold()).ratio(), piece) for piece in pieces), reverse=True
    )
    if not rated or rated[0][0] < NEARLY or (len(rated) > 1 and rated[1][0] > rated[0][0] - CLEARLY):
        return None
    return rated[0][1]


def question(tool: ToolDefinition, names: Sequence[str]) -> str:
    """Ask for the values of these parameters."""
    root = as_object(tool.input_schema)
    properties = properties_of(resolved(root, root))
    asked: list[str] = []
    for name in names:
        description = resolved(properties.get(name), root).get("description")
        meaning = description.strip().rstrip(".") if isinstance(description, str) else ""
        label = name.replace("_", " ")
        asked.append(f"{label} ({meaning[0].lower() + meaning[1:]})" if meaning and meaning.casefold() != label else label)
    return f"To use {tool.name} I need to know the {' and the '.join(asked)}. What should it be?"
