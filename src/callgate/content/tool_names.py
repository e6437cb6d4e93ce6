"""Names of tools: those that callgate needs itself, and the tool that a model means by the name it wrote."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from callgate.content.lookalikes import latin

__all__ = [
    "BUILT_IN_SERVER",
    "FIND_TOOLS",
    "READ_RESULT",
    "RESERVED",
    "is_reserved_server",
    "resolve_name",
    "unknown_name_sentence",
]

FIND_TOOLS = "find_tools"
"""The tool by which a model finds and loads tools that are not declared from the start."""

READ_RESULT = "read_result"
"""The tool by which a model reads what was left out of a long result."""

BUILT_IN_SERVER = "builtin"
"""In rules, the server of all tools that have none; so no server may be called that."""
RESERVED = frozenset({FIND_TOOLS, READ_RESULT})
"""Names that callgate needs for tools of its own; a server's tool with such a name gets a prefix."""

# Namespaces that models add to declared names.
_PREFIXES = ("default_api.", "default_api:", "functions.", "functions:", "tools.", "tool_code.")


def resolve_name(written: str, names: Mapping[str, str]) -> str | None:
    """The tool's own name for what a model wrote, or None. `names` maps declared names to tools' own names."""
    if written in names:
        return names[written]
    for prefix in _PREFIXES:
        if written.startswith(prefix) and written[len(prefix) :] in names:
            return names[written[len(prefix) :]]
    return None


def unknown_name_sentence(written: str, known: Iterable[str]) -> str:
    """The error for a call of an unknown tool: the nearest names first, at most 1 KB of them."""
    known = list(known)
    near = difflib.get_close_matches(written[:100], known, n=3)
    listed = near or known
    shown: list[str] = []
    for name in listed:
        if sum(map(len, shown)) + len(name) > 900:
            break
        shown.append(repr(name))
    hint = "There are no tools." if not known else ("Did you mean " if near else "The tools are ") + ", ".join(shown)
    return f"There is no tool named {written[:100]!r}. {hint}{'?' if near else '' if not known else '.'}"


def is_reserved_server(name: str) -> bool:
    """True if rules give this name of a server a meaning of their own."""
    return latin(name).strip() == BUILT_IN_SERVER
