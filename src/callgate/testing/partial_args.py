"""A streamed function call as on Vertex: opened by name, filled leaf by leaf, closed by an empty call.

Takes a part, returns the equivalent partial parts. Knows nothing of chunks or requests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from callgate.testing.google_fields import as_list, as_object
from callgate.types import JsonObject, Part

__all__ = ["partial_args", "streamed_call"]


def streamed_call(part: Part) -> Iterator[Part]:
    """Split a call part into pieces; any other part is returned unchanged."""
    call = part.get("functionCall")
    if not call:
        yield part
        return
    opening = {key: value for key, value in call.items() if key != "args"} | {"willContinue": True}
    yield part | {"functionCall": opening}
    for entry in partial_args(call.get("args") or {}):
        yield {"functionCall": {"partialArgs": [entry], "willContinue": True}}
    yield {"functionCall": {}}


def partial_args(value: Any, path: str = "$") -> Iterator[JsonObject]:
    """Return the leaves of some arguments, each with its JSON path; a string in two halves."""
    children = [(f"{path}{_segment(key)}", inner) for key, inner in as_object(value).items()]
    children += [(f"{path}[{index}]", inner) for index, inner in enumerate(as_list(value))]
    if children:
        for place, inner in children:
            yield from partial_args(inner, place)
    elif path != "$":
        yield from _leaf(value, path)


def _leaf(value: Any, path: str) -> Iterator[JsonObject]:
    if isinstance(value, str) and len(value) > 1:
        half = len(value) // 2
        yield {"jsonPath": path, "stringValue": value[:half], "willContinue": True}
        yield {"jsonPath": path, "stringValue": value[half:]}
    elif isinstance(value, list):
        yield {"jsonPath": f"{path}[]"}
    elif isinstance(value, dict):
        yield {"jsonPath": path}
    else:
        yield {"jsonPath": path, _LEAVES[type(value)]: value}


_LEAVES: dict[type, str] = {
    str: "stringValue", bool: "boolValue", int: "numberValue", float: "numberValue", type(None): "nullValue",
}  # fmt: skip


def _segment(key: str) -> str:
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key):
        return f".{key}"
    escaped = key.replace("\\", "\\\\").replace("'", "\\'")
    return f"['{escaped}']"
