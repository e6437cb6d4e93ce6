"""Aliases for property names that Vertex refuses. Knows nothing of the meaning of schemas.

A name that is not an identifier gets an alias with a hash of the name, so that an alias is distinguishable from any other
key and can be mapped back anywhere.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

__all__ = ["alias_of", "aliases_of", "renamed"]

_LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_]+")
_READABLE_CHARS = 40


def alias_of(name: str) -> str | None:
    """Return the alias of a property; None if it keeps its own name."""
    if _LEGAL.fullmatch(name):
        return None
    readable = _ILLEGAL.sub("_", name).strip("_")[:_READABLE_CHARS] or "name"
    readable = f"_{readable}" if readable[0].isdigit() else readable
    return f"{readable}_{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def aliases_of(nodes: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Alias -> name, for every property that the schemas speak of."""
    found: dict[str, str] = {}
    for node in nodes:
        named: list[Any] = []
        for keyword in ("properties", "required"):
            if isinstance(node.get(keyword), (Mapping, list, tuple)):
                named += node[keyword]
        names: Any = node.get("propertyNames")
        listed: Any = cast("Mapping[str, Any]", names).get("enum") if isinstance(names, Mapping) else None
        named += cast("list[Any]", listed) if isinstance(listed, (list, tuple)) else []
        found |= {alias: name for name in named if isinstance(name, str) and (alias := alias_of(name)) is not None}
    return found


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Copy a value with every key of `names` renamed."""
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {names.get(key, key): renamed(item, names) for key, item in members.items()}
    if isinstance(value, (list, tuple)):
        return [renamed(item, names) for item in cast("list[Any]", value)]
    return value
