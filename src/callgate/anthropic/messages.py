"""A history in Gemini's form -> messages of the Messages API, as JSON text.

Contents come in, the encoded messages go out. The model's own thoughts go back with their signatures; those of other models
are left out, and stay in the history. This file knows no tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from callgate import strict_json
from callgate.content.build import thought_part, with_marked_signature
from callgate.content.read import (
    call_of,
    has_data,
    is_call,
    is_response,
    is_signed,
    is_thought,
    marked_signature_of,
    media_of,
    parts_of,
    response_media,
    response_of,
    role_of,
    signature_mark,
)
from callgate.definitions.items import Blob
from callgate.definitions.transfer import can_be_fetched, standard_base64
from callgate.errors import UsageError
from callgate.history.repair import starts_exchange
from callgate.request import ModelRequest
from callgate.translation.history import HistoryWriter, IdRule, in_words, legal_name, remark
from callgate.types import Content, JsonObject, Part

__all__ = ["MessageWriter", "redacted_part", "signed_part"]

IDS = IdRule(r"[A-Za-z0-9_-]+", chars_max=64, prefix="toolu_")
_MARK = signature_mark("anthropic")
_REDACTED = "redacted:"
"""The prefix of the data of a thought that only Anthropic can read; no signature has a colon."""
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_NOTHING = "(The user said nothing.)"
"""A request needs a message, even where there is nothing but an instruction."""


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
        written = self._history.messages(request, IDS, _messages)
        if request.feedback or not written:
            said = strict_json.without_surrogates(request.feedback or _NOTHING)
            written.append(strict_json.dump({"role": "user", "content": said}))
        return written


def _messages(content: Content, ids: Sequence[str], *, is_newest: bool) -> Iterator[JsonObject]:
    if role_of(content) == "model":
        blocks = [*_said_by_model(parts_of(content), ids)]
        if any(block["type"] in ("text", "tool_use") for block in blocks):
            yield {"role": "assistant", "content": blocks}
    elif starts_exchange(content):
        # What the user is said to have thought, or signed, was the model's of another conversation.
        said = [part for part in parts_of(content) if not is_thought(part) and has_data(part)]
        if blocks := [block for part in said if (block := _block(part, refuse=is_newest)) is not None]:
            yield {"role": "user", "content": blocks}
    else:
        responses = [part for part in parts_of(content) if is_response(part)]
        yield {"role": "user", "content": [_result(part, id) for id, part in zip(ids, responses, strict=True)]}


def _said_by_model(parts: Sequence[Part], ids: Sequence[str]) -> Iterator[JsonObject]:
    """The blocks of an answer: signed thoughts, texts joined, calls."""
    left = iter(ids)
    thought, said = "", ""
    for part in parts:
        if is_call(part):
            yield from _text(said)
            call, said = call_of(part), ""
            args: Any = call.get("args") or {}
            yield {"type": "tool_use", "id": next(left), "name": legal_name(str(call.get("name"))), "input": args}
        elif is_thought(part):
            thought += str(part.get("text") or "")
            signature = marked_signature_of(part, _MARK)
            if signature is not None:
                yield from _text(said)
                yield _thought(thought, signature)
                said = ""
            thought = "" if is_signed(part) else thought
        else:
            said, thought = said + in_words(part), ""
    yield from _text(said)


def _text(said: str) -> Iterator[JsonObject]:
    """A block of text; one of blanks alone is refused."""
    if said.strip():
        yield {"type": "text", "text": strict_json.without_surrogates(said)}


def _thought(text: str, signature: str) -> JsonObject:
    if signature.startswith(_REDACTED):
        return {"type": "redacted_thinking", "data": signature.removeprefix(_REDACTED)}
    return {"type": "thinking", "thinking": text, "signature": signature}


def _result(part: Part, call_id: str) -> JsonObject:
    """The result of a call, with the media that it brought along."""
    response: Any = response_of(part).get("response")
    text = strict_json.dump(response).decode("utf-8")
    media = [block for one in response_media(part) if (block := _block(one, refuse=False)) is not None]
    content: Any = [{"type": "text", "text": text}, *media] if media else text
    is_error = isinstance(response, Mapping) and "error" in response
    result: JsonObject = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return result | ({"is_error": True} if is_error else {})


def _block(part: Part, *, refuse: bool) -> JsonObject | None:
    """A part as a block of the user's; None for a text of blanks alone."""
    media = media_of(part)
    if media is None:
        text = part["text"] if isinstance(part.get("text"), str) else strict_json.dump(part).decode("utf-8")
        return {"type": "text", "text": strict_json.without_surrogates(text)} if text.strip() else None
    fields: JsonObject = {"mime_type": "application/octet-stream"} | media
    blob = Blob(**fields)
    kind = blob.mime_type.partition(";")[0].strip().lower()
    block = None
    if can_be_fetched(blob, "http", "https"):
        if kind in _IMAGES or (blob.data is None and kind.startswith("image/")):
            block = {"type": "image", "source": _source(blob, kind)}
        elif kind == "application/pdf":
            block = {"type": "document", "source": _source(blob, kind)} | ({"title": blob.name} if blob.name else {})
    if block is None and refuse:
        raise UsageError(
            f"media of type {kind!r} cannot be sent to Anthropic as it is: send the bytes or the web address of an image "
            "(JPEG, PNG, GIF, WebP) or of a PDF, or text"
        )
    return block or {"type": "text", "text": remark(media)}


def _source(blob: Blob, kind: str) -> JsonObject:
    if blob.data is None:
        return {"type": "url", "url": blob.uri}
    return {"type": "base64", "media_type": kind, "data": standard_base64(blob.data)}
