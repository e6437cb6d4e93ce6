"""A history in Gemini's form -> messages of a chat completion, as JSON text.

Contents come in, the encoded messages go out; each content is written once and its bytes are kept. Thoughts, signatures and
whatever else only Gemini understands is left out of this rendering, and stays in the history. This file knows no tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from callgate import strict_json
from callgate.content.build import text_part
from callgate.content.read import (
    call_parts,
    has_data,
    is_response,
    is_thought,
    media_of,
    parts_of,
    response_media,
    response_of,
    role_of,
    text_of,
)
from callgate.definitions.items import Blob
from callgate.definitions.openai import media_block
from callgate.errors import UsageError
from callgate.history.repair import starts_exchange
from callgate.openai.quirks import Quirks
from callgate.request import ModelRequest
from callgate.translation.history import HistoryWriter, IdRule, in_words, legal_name, remark
from callgate.types import Content, JsonObject, Part

__all__ = ["MessageWriter"]


class MessageWriter:
    """A writer of the messages of one model's requests."""

    def __init__(self) -> None:
        self._history = HistoryWriter()

    def messages(self, request: ModelRequest, quirks: Quirks, *, model: str) -> list[bytes]:
        """Every message of a request, encoded.

        Raises:
            UsageError: the newest words of the user hold media that chat completions have no place for.
        """
        written = [strict_json.dump(_system(request.system, quirks, model))] if request.system else []
        write = partial(_messages, reasons=quirks.sends_reasoning_back)
        ids = IdRule(r"[\x21-\x7e]+", chars_max=quirks.id_chars_max)
        written += self._history.messages(request, ids, write, variant=quirks.sends_reasoning_back)
        if request.feedback:
            written.append(strict_json.dump({"role": "user", "content": strict_json.without_surrogates(request.feedback)}))
        return written


def _system(words: str, quirks: Quirks, model: str) -> JsonObject:
    is_developer = quirks.developer is not None and quirks.developer.match(model)
    return {"role": "developer" if is_developer else "system", "content": strict_json.without_surrogates(words)}


def _messages(content: Content, ids: Sequence[str], *, is_newest: bool, reasons: bool) -> Iterator[JsonObject]:
    if role_of(content) == "model":
        yield from _assistant(content, ids, reasons=reasons)
    elif starts_exchange(content):
        # What the user is said to have thought, or signed, was the model's of another conversation.
        said = [part for part in parts_of(content) if not is_thought(part) and has_data(part)]
        if said:
            yield {"role": "user", "content": _content(said, refuse=is_newest)}
    else:
        yield from _results(content, ids)


def _assistant(content: Content, ids: Sequence[str], *, reasons: bool) -> Iterator[JsonObject]:
    said = "".join(map(in_words, parts_of(content)))
    thoughts = text_of(content, thoughts=True) if reasons else ""
    calls = [
        {
            "id": call_id,
            "type": "function",
            "function": {
                "name": legal_name(str(call.get("name"))),
                "arguments": strict_json.dump(call.get("args") or {}).decode("utf-8"),
            },
        }
        for call_id, call in zip(ids, call_parts(content), strict=True)
    ]
    if said or calls:
        message: JsonObject = {"role": "assistant", "content": said or None}
        yield message | ({"reasoning_content": thoughts} if thoughts else {}) | ({"tool_calls": calls} if calls else {})


def _results(content: Content, ids: Sequence[str]) -> Iterator[JsonObject]:
    """One message for every result, then one of the user with the media that the results brought along."""
    shown: list[Part] = []
    responses = [part for part in parts_of(content) if is_response(part)]
    for call_id, part in zip(ids, responses, strict=True):
        response = response_of(part)
        text = strict_json.dump(response.get("response")).decode("utf-8")
        yield {"role": "tool", "tool_call_id": call_id, "content": text}
        if media := response_media(part):
            shown += [
                text_part(f"(What the call of {response.get('name')!r} with the id {call_id} returned:)"),
                *media,
            ]
    if shown:
        yield {"role": "user", "content": _content(shown, refuse=False)}


def _content(said: Sequence[Part], *, refuse: bool) -> Any:
    """The content of a message of the user: plain text where there is nothing else, which every server takes."""
    blocks = [_block(part, refuse=refuse) for part in said]
    if all(block["type"] == "text" for block in blocks):
        return "\n".join(block["text"] for block in blocks)
    return blocks


def _block(part: Part, *, refuse: bool) -> JsonObject:
    media = media_of(part)
    if media is None:
        text = part["text"] if isinstance(part.get("text"), str) else strict_json.dump(part).decode("utf-8")
        return {"type": "text", "text": text}
    fields: JsonObject = {"mime_type": "application/octet-stream"} | media
    block = media_block(Blob(**fields))
    if block is not None:
        return block
    if refuse:
        kind = media.get("mime_type", "an unknown type")
        if media.get("uri") and media_block(Blob(data="", mime_type=kind)) is not None:
            raise UsageError(
                f"media of type {kind!r} cannot be sent by its address ({media['uri'][:200]}) in a chat completion: send "
                "its bytes; only images can be sent by a web address"
            )
        raise UsageError(
            f"media of type {kind!r} cannot be sent in a chat completion: send an image, a PDF, a WAV or MP3 file, or text"
        )
    return {"type": "text", "text": remark(media)}
