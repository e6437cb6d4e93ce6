"""`find_tools`: if there are too many tools to declare, the model searches for the others.

Takes definitions and a query, returns the nearest definitions. `FindTools` is the tool for the model; the run declares
what it finds.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from callgate.content.tool_names import FIND_TOOLS
from callgate.types import ToolContext, ToolDefinition

__all__ = ["FindTools", "nearest"]

FOUND_MAX = 8

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_a-zA-Z]+")


def nearest(query: str, definitions: Sequence[ToolDefinition], *, limit: int = FOUND_MAX) -> list[ToolDefinition]:
    """Return the definitions that match most words of the query, with more weight for rare words and words of the name."""
    wanted = set(_words(query))
    texts = [
        (Counter(_words(d.name)), Counter(_words(f"{d.title or ''} {d.description} {' '.join(_parameters(d))}")))
        for d in definitions
    ]
    holders = Counter(word for name, text in texts for word in wanted if name[word] or text[word])
    scores = [
        sum(
            (3 * bool(name[word]) + bool(text[word])) * math.log(1 + len(texts) / holders[word])
            for word in wanted
            if holders[word]
        )
        for name, text in texts
    ]
    order = sorted(range(len(scores)), key=lambda place: (-scores[place], place))
    return [definitions[place] for place in order[:limit] if scores[place] > 0]


class FindTools:
    """The tool `find_tools`, over definitions that may change."""

    definition = ToolDefinition(
        name=FIND_TOOLS,
        description="Finds tools beyond those that you were told of, by a few words on what is to be done. What it finds "
        "can be called from the next turn on.",
        input_schema={
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What the tool should do, in a few words."}},
            "required": ["query"],
            "additionalProperties": False,
        },
        read_only=True,
    )

    def __init__(self, definitions: Callable[[], Sequence[ToolDefinition]]) -> None:
        self._definitions = definitions

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """Return nothing: there are no checks beyond the schema."""
        return ()

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """The tools that were found, with what they do."""
        candidates = [d for d in self._definitions() if d.name != FIND_TOOLS]
        found = nearest(args["query"], candidates)
        return [{"name": d.name, "description": d.description[:300]} for d in found]


def _words(text: str) -> list[str]:
    # Match plurals to singulars; more stemming would be wrong for other languages.
    return [word[:-1] if len(word) > 3 and word.endswith("s") else word for word in map(str.lower, _WORD.findall(text))]


def _parameters(definition: ToolDefinition) -> list[str]:
    properties: Any = definition.input_schema.get("properties")
    return [*cast("Mapping[str, Any]", properties)] if isinstance(properties, Mapping) else []
