"""Files that the server does not have any more: a sentence stands in for each, so that its conversation goes on.

Takes encoded contents and names of files; returns the contents without references to these files.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from callgate import strict_json
from callgate.content.build import text_part
from callgate.content.read import media_of, parts_of
from callgate.events import Notice
from callgate.types import JsonObject, Part

__all__ = ["missing_file_notice", "refers_to", "without_file_items", "without_files"]


def missing_file_notice(file: str) -> Notice:
    """Return a notice of a file that the server does not have any more."""
    return Notice("file_gone", f"The server does not have {file} any more; the conversation continues without.", "warning")


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
    return text_part(_stand_in((media_of(part) or {}).get("mime_type")))


def without_file_items(steps: Sequence[bytes], files: Collection[str]) -> list[bytes]:
    """Return encoded steps of an interaction in which a sentence stands in for each of these files."""
    return [_without_items(step, files) if any(refers_to(step, file) for file in files) else step for step in steps]


def _without_items(steps: bytes, files: Collection[str]) -> bytes:
    found = cast("list[Any]", strict_json.parse(b"[" + steps + b"]", depth_max=2 * strict_json.DEPTH_MAX))
    return strict_json.dump([_item_left(step, files) for step in found])[1:-1]


def _item_left(item: Any, files: Collection[str]) -> Any:
    if isinstance(item, list):
        return [_item_left(one, files) for one in cast("list[Any]", item)]
    if not isinstance(item, dict):
        return item
    fields = cast("JsonObject", item)
    uri = fields.get("uri")
    if isinstance(uri, str) and "type" in fields and any(uri.endswith(f"/{file}") for file in files):
        return {"type": "text", "text": _stand_in(fields.get("mime_type"))}
    return {name: _item_left(value, files) for name, value in fields.items()}


def _stand_in(mime_type: Any) -> str:
    return f"(A file of type {mime_type or 'unknown type'} was here. It is not available any more.)"


def _is_of(part: Part, files: Collection[str]) -> bool:
    uri = str((media_of(part) or {}).get("uri") or "")
    return any(uri.endswith(f"/{file}") for file in files)
