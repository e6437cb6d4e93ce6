"""Build a user content from a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

from callgate import strict_json
from callgate.content.build import media_part, text_part
from callgate.content.normalize import spelled_part
from callgate.content.read import OBJECT, has_data, is_nonempty_text, role_of
from callgate.errors import UsageError
from callgate.types import Content, JsonObject, Media, Part

__all__ = ["PROMPT_ITEMS", "FilePath", "Prompt", "user_content"]


class FilePath(Protocol):
    """The path of a file, such as a `pathlib.Path`."""

    def __fspath__(self) -> str:
        """Return the path as text."""
        ...


Prompt: TypeAlias = "str | bytes | FilePath | Media | Part | Sequence[str | bytes | FilePath | Media | Part]"
"""A prompt: text, media (`Media`, a `pathlib.Path`, bytes), ready-made parts, or a list of these."""


_MIME_TYPE: JsonObject = {"type": "string", "pattern": "^[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+$", "maxLength": 200}
PROMPT_ITEMS: JsonObject = {
    "type": "array",
    "minItems": 1,
    "maxItems": 1000,
    "items": {
        "anyOf": [
            {"type": "string", "pattern": "\\S"},
            {
                "type": "object",
                "required": ["text"],
                "properties": {"text": {"type": "string", "pattern": "\\S"}},
                "additionalProperties": False,
            },
            {
                "type": "object",
                "required": ["inlineData"],
                "properties": {
                    "inlineData": {
                        "type": "object",
                        "required": ["mimeType", "data"],
                        "properties": {
                            "mimeType": _MIME_TYPE,
                            "data": {"type": "string", "contentEncoding": "base64", "pattern": "^[A-Za-z0-9+/_-]+={0,2}$"},
                            "displayName": {"type": "string", "maxLength": 200},
                        },
                        "additionalProperties": False,
                    }
                },
                "additionalProperties": False,
            },
            {
                "type": "object",
                "required": ["fileData"],
                "properties": {
                    "fileData": {
                        "type": "object",
                        "required": ["fileUri"],
                        "properties": {"fileUri": {"type": "string", "minLength": 1}, "mimeType": _MIME_TYPE},
                        "additionalProperties": False,
                    }
                },
                "additionalProperties": False,
            },
        ]
    },
}
"""JSON Schema of a prompt of external origin as a list: texts, media with their bytes, and media by URL."""


def user_content(prompt: Prompt, *, is_journaled: bool = False) -> Content:
    """A user content from text, media, parts or a list of these.

    What is journaled was accepted once, and its fields are not checked again.

    Raises:
        UsageError: the prompt is empty or of a kind that cannot be sent, or a part has a field that does not exist.
    """
    given: Any = _as_mapping(prompt)
    if isinstance(given, (str, Media, dict)):
        parts = _prompt_parts(given)
    elif isinstance(given, (bytes, bytearray, memoryview)) or not isinstance(given, (list, Iterable)):
        kind = type(cast("object", given)).__name__
        raise UsageError(f"a prompt is text, Media, a part or a list of these, not {kind!r}")
    else:
        items = cast("Iterable[Any]", [given] if isinstance(given, Mapping) else given)
        parts = [part for item in items for part in _prompt_parts(item)]
    for part in () if is_journaled else parts:
        if not is_nonempty_text(part):
            from callgate.content.fields import check_part  # Most prompts are text.

            check_part(part)
    if not parts:
        raise UsageError("the prompt is empty: pass some text, a Media object or a list of parts")
    return {"role": "user", "parts": parts}


def _prompt_parts(item: Any) -> list[Part]:
    """Return the parts of one item of a prompt."""
    if isinstance(item, str):
        return [text_part(strict_json.without_surrogates(item))] if item.strip() else []
    if isinstance(item, Media):
        if item.path is not None:
            raise UsageError(f"{item.path!r} must be read first: pass it to run(), or pass Media(data=...)")
        return [media_part(item)]
    item = _as_mapping(item)
    if not isinstance(item, OBJECT):
        raise UsageError(f"a prompt may hold text, bytes, Path, Media and parts (dicts), not {type(item).__name__!r}")
    part: Part = dict(cast("Mapping[str, Any]", item))
    if is_nonempty_text(part):
        return [part]
    if "parts" in part:
        return _parts_of_content(part)
    part = spelled_part(part)
    if part.get("functionCall") is not None or part.get("functionResponse") is not None:
        raise UsageError("a prompt cannot hold function calls or responses: pass them as history")
    return [part] if has_data(part) else []


def _as_mapping(item: Any) -> Any:
    """A part or a content of google-genai by the fields that are set; anything else as it is."""
    is_of_sdk = type(item).__module__ == "google.genai.types" and hasattr(item, "model_dump")
    return item.model_dump(exclude_none=True) if is_of_sdk else item


def _parts_of_content(content: Mapping[str, Any]) -> list[Part]:
    """The parts of a whole content that is passed as a prompt."""
    if role_of(content) != "user":
        raise UsageError(f"a prompt is what the user says, not a content of the role {content.get('role')!r}: see history=")
    given: Any = content["parts"]
    items = cast("list[Any]", given) if isinstance(given, (list, tuple)) else [given]
    return [part for item in items for part in _prompt_parts(item)]
