"""A result as MCP has it -> what a tool of ours returns: a value with its media, or a `ToolError`.

The error flag wins over everything; structured content is preferred to the text that repeats it; nothing else is dropped but
what is too large, and that is said. An embedded text keeps its address and MIME type; embedded bytes are a medium that is
named by its address.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
from typing import Any, cast

from callgate import strict_json
from callgate.definitions.items import Blob, ResultPart, Text, Value
from callgate.definitions.json_node import Node, ShapeError
from callgate.definitions.mcp import results_from
from callgate.errors import JsonError, ToolError
from callgate.types import JsonObject, Media

__all__ = ["value_of"]

TEXT_CHARS_MAX = 2_000_000
"""The limit of one text; the rest is cut off."""
MEDIA_BYTES_MAX = 15 * 1024 * 1024
"""The limit of one image or other medium; a larger one is only named."""
ERROR_CHARS_MAX = 20_000
AS_MEDIUM = "(given as media beside this)"


def value_of(result: JsonObject) -> object:
    """The value of a result: alone if there is one, else a list of all.

    Raises:
        ToolError: the server says that the call failed, or the result cannot be read.
    """
    try:
        (read,) = results_from(Node(result))
    except ShapeError as error:
        raise ToolError(f"The result of the MCP server cannot be read: {error}") from error
    if read.is_error:
        said = "\n".join(filter(None, map(_in_words, read.parts)))
        raise ToolError(said[:ERROR_CHARS_MAX] or "The tool failed without saying why.")
    structured: list[Any] = [part.value for part in read.parts if isinstance(part, Value)][:1]
    media = frozenset(part.data for part in read.parts if isinstance(part, Blob) and part.data)
    blocks: list[Any] = result.get("content") or []
    kept = [part for part in read.parts if not (structured and _repeats(part, structured[0]))]
    values = [_embedded(part, blocks) or _plain(part, media) for part in kept]
    return values[0] if len(values) == 1 else values or "The tool gave no output."


def _repeats(part: ResultPart, structured: Any) -> bool:
    """True if a text only says once more what the structured content says, whatever its layout.

    Servers wrap what is no object in one with a single key, such as `result`; their text is of what is inside.
    """
    if not isinstance(part, Text):
        return False
    said: Any = part.text
    with contextlib.suppress(JsonError):
        said = strict_json.parse(part.text)
    inner = next(iter(structured.values())) if len(structured) == 1 else structured
    return said in (structured, inner) or part.text == inner


def _without_media(value: Any, media: frozenset[str]) -> Any:
    """The value without the bytes of what comes beside it as a medium: as text they would only cost, and dearly."""
    if isinstance(value, str):
        return AS_MEDIUM if value in media else value
    if isinstance(value, dict):
        return {key: _without_media(item, media) for key, item in cast("JsonObject", value).items()}
    return [_without_media(item, media) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _embedded(part: ResultPart, blocks: list[Any]) -> JsonObject | None:
    """The block of an embedded text as the server sent it; None for everything else."""
    if not isinstance(part, Text):
        return None
    block: JsonObject = blocks[int(part.at.rpartition("/")[2])]
    if block["type"] != "resource":
        return None
    return {**block, "resource": {**block["resource"], "text": _plain(part, frozenset())}}


def _plain(part: ResultPart, media: frozenset[str]) -> Any:
    if isinstance(part, Value):
        return _without_media(part.value, media) if media else part.value
    if isinstance(part, Text):
        cut = len(part.text) - TEXT_CHARS_MAX
        return part.text if cut <= 0 else f"{part.text[:TEXT_CHARS_MAX]}\n[cut off: {cut} more characters]"
    return _medium(part) if isinstance(part, Blob) else part.raw


def _medium(part: Blob) -> Media | str:
    data = part.data or ""
    if len(data) * 3 // 4 > MEDIA_BYTES_MAX:
        return f"[left out: {part.mime_type} of {len(data) * 3 // 4} bytes, more than {MEDIA_BYTES_MAX}]"
    try:
        return Media(data=base64.b64decode(data, validate=True), mime_type=part.mime_type, name=part.name)
    except (binascii.Error, ValueError):
        return f"[left out: {part.mime_type} that is not base64]"


def _in_words(part: ResultPart) -> str:
    if isinstance(part, Text):
        return part.text
    if isinstance(part, Blob):
        return f"[{part.mime_type}]"
    return json.dumps(part.value if isinstance(part, Value) else part.raw, ensure_ascii=False)
