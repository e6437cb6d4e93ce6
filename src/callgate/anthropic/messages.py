"""A history in Gemini's form -> messages of the Messages API, as JSON text.

Contents come in, the encoded messages go out. The model's own thoughts go back with their signatures; those of other models
are left out, and stay in the history. This file knows no tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from callgate.content.build import thought_part, with_marked_signature
from callgate.content.read import parts_of, role_of, signature_mark
from callgate.definitions.items import Blob
from callgate.definitions.transfer import can_be_fetched, standard_base64
from callgate.history.repair import starts_exchange
from callgate.request import ModelRequest
from callgate.translation import blocks
from callgate.translation.blocks import AnswerForm, MediaForm, answer_blocks, kind_of, media_or_text, results_of, user_parts
from callgate.translation.history import HistoryWriter, IdRule
from callgate.types import Content, JsonObject, Part

__all__ = ["MessageWriter", "is_shown", "redacted_part", "signed_part"]

IDS = IdRule(r"[A-Za-z0-9_-]+", chars_max=64, prefix="toolu_")
_MARK = signature_mark("anthropic")
_REDACTED = "redacted:"
"""The prefix of the data of a thought that only Anthropic can read; no signature has a colon."""
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")


def signed_part(signature: str, text: str = "") -> Part:
    """The part that ends a thought: the rest of its text, and its signature."""
    return with_marked_signature(thought_part(text), _MARK, signature)


def redacted_part(data: str) -> Part:
    """A thought that only Anthropic can read."""
    return with_marked_signature(thought_part(""), _MARK, _REDACTED + data)


class MessageWriter:
    """A writer of the messages of one model's requests."""

    def __init__(self, origin: str) -> None:
        self._history = HistoryWriter(origin)

    def messages(self, request: ModelRequest) -> list[bytes]:
        """Every message of a request, encoded.

        Raises:
            UsageError: the newest words of the user hold media that the API has no place for.
        """
        return self._history.messages(request, IDS, _messages)


def _messages(content: Content, ids: Sequence[str], *, is_newest: bool) -> Iterator[JsonObject]:
    if role_of(content) == "model":
        blocks = [*answer_blocks(parts_of(content), ids, _ANSWERS)]
        if any(block["type"] in ("text", "tool_use") for block in blocks):
            yield {"role": "assistant", "content": blocks}
    elif starts_exchange(content):
        blocks = [media_or_text(part, _MEDIA, refuse=is_newest) for part in user_parts(content)]
        # A text of blanks alone is refused.
        if blocks := [block for block in blocks if block["type"] != "text" or block["text"].strip()]:
            yield {"role": "user", "content": blocks}
    else:
        yield {"role": "user", "content": [_result(*result) for result in results_of(content, ids)]}


def _result(call_id: str, response: JsonObject, text: str, media: Sequence[Part]) -> JsonObject:
    """The result of a call, with the media that it brought along."""
    shown = [media_or_text(part, _MEDIA, refuse=False) for part in media]
    content: Any = [_text(text), *shown] if shown else text
    value: Any = response.get("response")
    is_error = isinstance(value, Mapping) and "error" in value
    result: JsonObject = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return result | ({"is_error": True} if is_error else {})


def _text(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _thought(text: str, signature: str) -> JsonObject:
    if signature.startswith(_REDACTED):
        return {"type": "redacted_thinking", "data": signature.removeprefix(_REDACTED)}
    return {"type": "thinking", "thinking": text, "signature": signature}


def _media(blob: Blob) -> JsonObject | None:
    kind = kind_of(blob)
    if not can_be_fetched(blob, "http", "https"):
        return None
    if kind in _IMAGES or (blob.data is None and kind.startswith("image/")):
        return {"type": "image", "source": _source(blob, kind)}
    if kind == "application/pdf":
        return {"type": "document", "source": _source(blob, kind)} | ({"title": blob.name} if blob.name else {})
    return None


def _source(blob: Blob, kind: str) -> JsonObject:
    if blob.data is None:
        return {"type": "url", "url": blob.uri}
    return {"type": "base64", "media_type": kind, "data": standard_base64(blob.data)}


def is_shown(part: Part, is_model: bool) -> bool:
    """True if the media of a part can be sent: those of a model's answer cannot."""
    return not is_model and blocks.is_shown(part, _MEDIA)


_ANSWERS = AnswerForm(
    mark=_MARK,
    text=_text,
    call=lambda call_id, name, args: {"type": "tool_use", "id": call_id, "name": name, "input": args},
    thought=_thought,
)
_MEDIA = MediaForm(
    text=_text,
    media=_media,
    refusal=lambda blob: (
        f"media of type {kind_of(blob)!r} cannot be sent to Anthropic as it is: send the bytes or the web address of an "
        "image (JPEG, PNG, GIF, WebP) or of a PDF, or text"
    ),
)
