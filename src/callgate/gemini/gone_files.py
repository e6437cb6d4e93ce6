"""Files that the server does not have any more: a sentence stands in for each, so that its conversation goes on.

Takes encoded contents and names of files; returns the contents without references to these files.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from callgate import strict_json
from callgate.content.build import text_part
from callgate.content.read import media_of, parts_of
from callgate.types import JsonObject, Part

__all__ = ["refers_to", "without_files"]


def refers_to(body: bytes, file: str) -> bool:
    """True if a request refers to a file."""
    return f'/{file}"'.encode() in body


def without_files(contents: Sequence[bytes], files: Collection[str]) -> list[bytes]:
    """Return contents in which a sentence stands in for each of these files."""
    return [_without(content, files) if any(refers_to(content, file) for file in files) else content for content in contents]


def _without(content: bytes, files: Collection[str]) -> bytes:
    found = cast("JsonObject", strict_json.parse(content, depth_max=2 * strict_json.DEPTH_MAX))
    return strict_json.dump(found | {"parts": [_left(part, files) for part in parts_of(found)]})


def _left(part: Part, files: Collection[str]) -> Part:
    inner: Any = part.get("functionResponse")
    if isinstance(inner, dict):
        response = cast("JsonObject", inner)
        kept = [one for one in parts_of(response) if not _is_of(one, files)]
        rest = {key: value for key, value in response.items() if key != "parts"}
        return {**part, "functionResponse": rest | ({"parts": kept} if kept else {})}
    if not _is_of(part, files):
        return part
    kind = (media_of(part) or {}).get("mime_type") or "unknown type"
    return text_part(f"(A file of type {kind} was here. It is not available any more.)")


def _is_of(part: Part, files: Collection[str]) -> bool:
    uri = str((media_of(part) or {}).get("uri") or "")
    return any(uri.endswith(f"/{file}") for file in files)
