"""A history in Gemini's form -> input items of the Responses API, as JSON text.

Contents come in, the encoded items go out. Reasoning of the model goes back, encrypted as it came, with the calls that it
led to; what only Gemini understands is left out, and stays in the history. This file knows no tools.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from callgate import strict_json
from callgate.content.build import thought_part, with_marked_signature
from callgate.content.read import call_parts, parts_of, role_of, signature_mark
from callgate.definitions.items import Blob
from callgate.definitions.transfer import can_be_fetched, data_url
from callgate.history.repair import starts_exchange
from callgate.request import ModelRequest
from callgate.translation import blocks
from callgate.translation.blocks import AnswerForm, MediaForm, answer_blocks, kind_of, media_or_text, results_of, user_parts
from callgate.translation.history import HistoryWriter, IdRule
from callgate.types import Content, JsonObject, Part

__all__ = ["InputWriter", "is_shown", "reasoning_part"]

IDS = IdRule(r"[\x21-\x7e]+", chars_max=64)
_MARK = signature_mark("openai-responses")
_PDF_NAME = "document.pdf"


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
        return self._history.messages(request, IDS, _items)


def _items(content: Content, ids: Sequence[str], *, is_newest: bool) -> Iterator[JsonObject]:
    if role_of(content) == "model":
        # Reasoning matters only as long as its calls are being answered, and must be followed by something.
        yield from answer_blocks(parts_of(content), ids, _ANSWERS, thinks=bool(call_parts(content)))
    elif starts_exchange(content):
        if said := user_parts(content):
            yield {"role": "user", "content": [media_or_text(part, _MEDIA, refuse=is_newest) for part in said]}
    else:
        for call_id, _, text, media in results_of(content, ids):
            shown = [media_or_text(part, _MEDIA, refuse=False) for part in media]
            output: Any = [_text(text), *shown] if shown else text
            yield {"type": "function_call_output", "call_id": call_id, "output": output}


def _text(text: str) -> JsonObject:
    return {"type": "input_text", "text": text}


def _call(call_id: str, name: str, args: Any) -> JsonObject:
    arguments = strict_json.dump(args).decode("utf-8")
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def _reasoning(text: str, signature: str) -> JsonObject:
    item_id, _, encrypted = signature.partition(" ")
    summary = [{"type": "summary_text", "text": text}] if text else []
    return {"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": encrypted}


def _media(blob: Blob) -> JsonObject | None:
    kind = kind_of(blob)
    if not can_be_fetched(blob, "http", "https"):
        return None
    if kind.startswith("image/"):
        return {"type": "input_image", "image_url": data_url(blob), "detail": "auto"}
    if kind == "application/pdf" and blob.data is None:
        return {"type": "input_file", "file_url": blob.uri}
    if kind == "application/pdf":
        return {"type": "input_file", "filename": blob.name or _PDF_NAME, "file_data": data_url(blob)}
    return None


def is_shown(part: Part, is_model: bool) -> bool:
    """True if the media of a part can be sent: those of a model's answer cannot."""
    return not is_model and blocks.is_shown(part, _MEDIA)


_ANSWERS = AnswerForm(
    mark=_MARK, text=lambda said: {"role": "assistant", "content": said}, call=_call, thought=_reasoning
)  # fmt: skip
_MEDIA = MediaForm(
    text=_text,
    media=_media,
    refusal=lambda blob: (
        f"media of type {kind_of(blob)!r} cannot be sent to the Responses API as it is: send the bytes or the web address "
        "of an image or a PDF, or text"
    ),
)
