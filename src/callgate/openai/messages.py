"""A history in Gemini's form -> messages of a chat completion, as JSON text.

Contents come in, the encoded messages go out; each content is written once and its bytes are kept. Thoughts, signatures and
whatever else only Gemini understands is left out of this rendering, and stays in the history. This file knows no tools.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from callgate import strict_json
from callgate.content.build import text_part
from callgate.content.normalize import UNNAMED
from callgate.content.read import (
    call_parts,
    has_data,
    is_call,
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
from callgate.types import Content, JsonObject, Part

__all__ = ["MessageWriter", "legal_name"]

KEPT_MAX = 4_096
KEPT_BYTES_MAX = 64 * 1024 * 1024
"""The cache limits for encoded contents: entries and bytes."""

_ID = re.compile(r"[\x21-\x7e]+")
_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_CHARS_MAX = 64


class MessageWriter:
    """A writer of the messages of one model's requests."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, tuple[str, ...], bool, bool], tuple[bytes, list[bytes]]] = {}
        self._kept_bytes = 0

    def messages(self, request: ModelRequest, quirks: Quirks, *, model: str) -> list[bytes]:
        """Every message of a request, encoded.

        Raises:
            UsageError: the newest words of the user hold media that chat completions have no place for.
        """
        written = [strict_json.dump(_system(request.system, quirks, model))] if request.system else []
        talk = request.conversation
        newest = talk.newest_exchange
        taken: set[str] = set()
        ids: tuple[str, ...] = ()
        for place, encoded in enumerate(talk.encoded):
            if talk.is_model(place):
                ids = _ids_of(talk[place], encoded, taken, quirks.id_chars_max)
            # The bytes are kept with what was made of them, so that their id stays their own.
            key = (id(encoded), ids, place == newest, quirks.sends_reasoning_back)
            if key not in self._kept:
                messages = _messages(talk[place], ids, is_newest=place == newest, reasons=quirks.sends_reasoning_back)
                self._keep(key, encoded, [strict_json.dump(message) for message in messages])
            written += self._kept[key][1]
        if request.feedback:
            written.append(strict_json.dump({"role": "user", "content": strict_json.without_surrogates(request.feedback)}))
        return written

    def _keep(self, key: tuple[int, tuple[str, ...], bool, bool], encoded: bytes, messages: list[bytes]) -> None:
        if len(self._kept) >= KEPT_MAX or self._kept_bytes > KEPT_BYTES_MAX:
            self._kept.clear()
            self._kept_bytes = 0
        self._kept[key] = (encoded, messages)
        self._kept_bytes += sum(map(len, messages))


def legal_name(written: str) -> str:
    """A name that a message may hold. A model may have called something that is no name, and has been fields so."""
    return _ILLEGAL.sub("_", written)[:_NAME_CHARS_MAX] or UNNAMED


def _system(words: str, quirks: Quirks, model: str) -> JsonObject:
    is_developer = quirks.developer is not None and quirks.developer.match(model)
    return {"role": "developer" if is_developer else "system", "content": strict_json.without_surrogates(words)}


def _ids_of(content: Content, encoded: bytes, taken: set[str], chars_max: int) -> tuple[str, ...]:
    """An id for every call of a content: the model's own where it can be sent, else one that is the same every time."""
    ids: list[str] = []
    for place, call in enumerate(call_parts(content)):
        wire_id: Any = call.get("id")
        own = wire_id if isinstance(wire_id, str) and _ID.fullmatch(wire_id) and len(wire_id) <= chars_max else None
        source = str(wire_id).encode("utf-8", "replace") if wire_id and own is None else b"%d " % place + encoded
        made, again = own, 0
        while made is None or made in taken:
            made = f"call_{hashlib.sha256(source + b' ' * again).hexdigest()[:24]}"
            again += 1
        taken.add(made)
        ids.append(made)
    return tuple(ids)


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
    said = "".join(map(_in_words, parts_of(content)))
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


def _in_words(part: Part) -> str:
    """A model's part as text for another model: text unchanged, code and media as a remark, nothing else."""
    if is_thought(part) or is_call(part):
        return ""
    if isinstance(part.get("text"), str):
        return part["text"]
    if (media := media_of(part)) is not None:
        return _remark(media)
    fields: JsonObject = {key: value for key, value in part.items() if isinstance(value, Mapping)}
    return f"\n({strict_json.dump(fields).decode('utf-8')})\n" if fields else ""


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
    return {"type": "text", "text": _remark(media)}


def _remark(media: Mapping[str, Any]) -> str:
    named = f" ({media['name']})" if media.get("name") else ""
    return f"(Media of type {media.get('mime_type')}{named} stood here, which this model cannot be shown.)"
