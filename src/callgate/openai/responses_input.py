"""A history in Gemini's form -> input items of the Responses API, as JSON text.

Contents come in, the encoded items go out. Reasoning of the model goes back, encrypted as it came, with the calls that it
led to; what only Gemini understands is left out, and stays in the history. This file knows no tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from callgate import strict_json
from callgate.content.build import thought_part, with_marked_signature
from callgate.content.read import (
    call_of,
    call_parts,
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
from callgate.definitions.transfer import can_be_fetched, data_url
from callgate.errors import UsageError
from callgate.history.repair import starts_exchange
from callgate.request import ModelRequest
from callgate.translation.history import HistoryWriter, IdRule, in_words, legal_name, remark
from callgate.types import Content, JsonObject, Part

__all__ = ["InputWriter", "reasoning_part"]

IDS = IdRule(r"[\x21-\x7e]+", chars_max=64)
_MARK = signature_mark("openai-responses")
_PDF_NAME = "document.pdf"
_NOTHING = "(The user said nothing.)"
"""A request needs an item, even where there is nothing but an instruction."""


def reasoning_part(item_id: str, encrypted: str) -> Part:
    """The part that ends the text of a reasoning item: its id, and what only OpenAI can read of it."""
    return with_marked_signature(thought_part(""), _MARK, f"{item_id} {encrypted}")


class InputWriter:
    """A writer of the input items of one model's requests."""

    def __init__(self, origin: str) -> None:
        self._history = HistoryWriter(origin)

    def items(self, request: ModelRequest) -> list[bytes]:
        """Every input item of a request, encoded.

        Raises:
            UsageError: the newest words of the user hold media that the API has no place for.
        """
        written = self._history.messages(request, IDS, _items)
        if request.feedback or not written:
            said = strict_json.without_surrogates(request.feedback or _NOTHING)
            written.append(strict_json.dump({"role": "user", "content": said}))
        return written


def _items(content: Content, ids: Sequence[str], *, is_newest: bool) -> Iterator[JsonObject]:
    if role_of(content) == "model":
        # Reasoning matters only as long as its calls are being answered, and must be followed by something.
        yield from _said_by_model(parts_of(content), ids, reasons=bool(call_parts(content)))
    elif starts_exchange(content):
        # What the user is said to have thought, or signed, was the model's of another conversation.
        said = [part for part in parts_of(content) if not is_thought(part) and has_data(part)]
        if said:
            yield {"role": "user", "content": [_block(part, refuse=is_newest) for part in said]}
    else:
        responses = [part for part in parts_of(content) if is_response(part)]
        for call_id, part in zip(ids, responses, strict=True):
            text = strict_json.dump(response_of(part).get("response")).decode("utf-8")
            media = [_block(one, refuse=False) for one in response_media(part)]
            output: Any = [{"type": "input_text", "text": text}, *media] if media else text
            yield {"type": "function_call_output", "call_id": call_id, "output": output}


def _said_by_model(parts: Sequence[Part], ids: Sequence[str], *, reasons: bool) -> Iterator[JsonObject]:
    left = iter(ids)
    thought, said = "", ""
    for part in parts:
        if is_call(part):
            yield from _message(said)
            call, said = call_of(part), ""
            args = strict_json.dump(call.get("args") or {}).decode("utf-8")
            name = legal_name(str(call.get("name")))
            yield {"type": "function_call", "call_id": next(left), "name": name, "arguments": args}
        elif is_thought(part):
            thought += str(part.get("text") or "")
            signature = marked_signature_of(part, _MARK)
            if signature is not None and reasons:
                yield from _message(said)
                yield _reasoning(thought, signature)
                said = ""
            thought = "" if is_signed(part) else thought
        else:
            said += in_words(part)
    yield from _message(said)


def _message(said: str) -> Iterator[JsonObject]:
    if said:
        yield {"role": "assistant", "content": strict_json.without_surrogates(said)}


def _reasoning(text: str, signature: str) -> JsonObject:
    item_id, _, encrypted = signature.partition(" ")
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": encrypted}


def _block(part: Part, *, refuse: bool) -> JsonObject:
    media = media_of(part)
    if media is None:
        text = part["text"] if isinstance(part.get("text"), str) else strict_json.dump(part).decode("utf-8")
        return {"type": "input_text", "text": strict_json.without_surrogates(text)}
    fields: JsonObject = {"mime_type": "application/octet-stream"} | media
    blob = Blob(**fields)
    kind = blob.mime_type.partition(";")[0].strip().lower()
    if can_be_fetched(blob, "http", "https"):
        if kind.startswith("image/"):
            return {"type": "input_image", "image_url": data_url(blob), "detail": "auto"}
        if kind == "application/pdf" and blob.data is None:
            return {"type": "input_file", "file_url": blob.uri}
        if kind == "application/pdf":
            return {"type": "input_file", "filename": blob.name or _PDF_NAME, "file_data": data_url(blob)}
    if refuse:
        raise UsageError(
            f"media of type {kind!r} cannot be sent to the Responses API as it is: send the bytes or the web address of an "
            "image or a PDF, or text"
        )
    return {"type": "input_text", "text": remark(media)}
