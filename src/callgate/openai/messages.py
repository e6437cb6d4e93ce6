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
from callgate.content.read import call_parts, parts_of, role_of, text_of
from callgate.definitions.items import Blob
from callgate.definitions.openai import media_block
from callgate.history.repair import starts_exchange
from callgate.openai.quirks import Quirks
from callgate.request import ModelRequest
from callgate.translation import blocks
from callgate.translation.blocks import MediaForm, media_or_text, results_of, user_parts
from callgate.translation.history import HistoryWriter, IdRule, in_words, legal_name
from callgate.types import Content, JsonObject, Part

__all__ = ["MessageWriter", "is_shown"]


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
        return written + self._history.messages(
            request, ids, write, variant=quirks.sends_reasoning_back, can_be_none=True
        )  # fmt: skip


def _system(words: str, quirks: Quirks, model: str) -> JsonObject:
    is_developer = quirks.developer is not None and quirks.developer.match(model)
    return {"role": "developer" if is_developer else "system", "content": strict_json.without_surrogates(words)}


def _messages(content: Content, ids: Sequence[str], *, is_newest: bool, reasons: bool) -> Iterator[JsonObject]:
    if role_of(content) == "model":
        yield from _assistant(content, ids, reasons=reasons)
    elif starts_exchange(content):
        if said := user_parts(content):
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
    for call_id, response, text, media in results_of(content, ids):
        yield {"role": "tool", "tool_call_id": call_id, "content": text}
        if media:
            shown += [
                text_part(f"(What the call of {response.get('name')!r} with the id {call_id} returned:)"),
                *media,
            ]
    if shown:
        yield {"role": "user", "content": _content(shown, refuse=False)}


def _content(said: Sequence[Part], *, refuse: bool) -> Any:
    """The content of a message of the user: plain text where there is nothing else, which every server takes."""
    blocks = [media_or_text(part, _MEDIA, refuse=refuse) for part in said]
    if all(block["type"] == "text" for block in blocks):
        return "\n".join(block["text"] for block in blocks)
    return blocks


def _refusal(blob: Blob) -> str:
    kind = blob.mime_type
    if blob.uri and media_block(Blob(data="", mime_type=kind)) is not None:
        return (
            f"media of type {kind!r} cannot be sent by its address ({blob.uri[:200]}) in a chat completion: send its bytes; "
            "only images can be sent by a web address"
        )
    return f"media of type {kind!r} cannot be sent in a chat completion: send an image, a PDF, a WAV or MP3 file, or text"


def is_shown(part: Part, is_model: bool) -> bool:
    """True if the media of a part can be sent: those of a model's answer cannot."""
    return not is_model and blocks.is_shown(part, _MEDIA)


_MEDIA = MediaForm(text=lambda text: {"type": "text", "text": text}, media=media_block, refusal=_refusal)
