"""Definitions -> the tools of a chat completion.

Definitions and the names under which they are declared come in; declarations with the tools' own schemas go out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from callgate.declaration import Declaration
from callgate.openai.quirks import Quirks
from callgate.translation.tools import REFUSED_AT_ROOT, declared_tools
from callgate.types import JsonObject, ToolDefinition

__all__ = ["tools_of"]

_CUT = " [the rest was cut off]"


def tools_of(
    definitions: Iterable[ToolDefinition], declaration: Declaration, quirks: Quirks, *, only: str | None = None
) -> list[JsonObject]:
    """The declared tools in their order, each under its declared name; with `only`, that one alone.

    Raises:
        UsageError: a tool among them runs at Google.
        ToolNotDeclarableError: there are more of them than the server takes.
    """
    # OpenAI: "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level".
    refused: Collection[str] = REFUSED_AT_ROOT if quirks.root_must_be_object else ()
    found = declared_tools(
        definitions, declaration, title=quirks.title, tools_max=quirks.tools_max, refused_at_root=refused, only=only
    )
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": _within(tool.description, quirks.description_chars_max),
                "parameters": tool.parameters,
            },
        }
        for tool in found
    ]


def _within(text: str, chars_max: int | None) -> str:
    if chars_max is None or len(text) <= chars_max:
        return text
    return text[: chars_max - len(_CUT)].rstrip() + _CUT
