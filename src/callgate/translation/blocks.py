"""Contents in Gemini's form -> the blocks of other APIs' messages.

Contents come in; texts, calls, thoughts, results and media go out in the form of an API. What a message around them looks
like is known to the wire of that API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callgate import strict_json
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
)
from callgate.definitions.items import Blob
from callgate.errors import UsageError
from callgate.translation.history import in_words, legal_name, remark
from callgate.types import Content, JsonObject, Part

__all__ = ["AnswerForm", "MediaForm", "answer_blocks", "is_shown", "kind_of", "media_or_text", "results_of", "user_parts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForm:
    """The form in which an API takes back what its model said."""

    mark: str
    """The mark of its own signatures."""
    text: Callable[[str], JsonObject]
    call: Callable[[str, str, Any], JsonObject]
    """Id, name and arguments of a call."""
    thought: Callable[[str, str], JsonObject]
    """Text and signature of a thought."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaForm:
    """The form in which an API takes what a user says or a tool returns."""

    text: Callable[[str], JsonObject]
    media: Callable[[Blob], JsonObject | None]
    """A block for media; None for such that the API has no place for."""
    refusal: Callable[[Blob], str]
    """The sentence for media that the user says now, and that have no place."""


def answer_blocks(
    parts: Sequence[Part], ids: Sequence[str], form: AnswerForm, *, thinks: bool = True
) -> Iterator[JsonObject]:
    """The blocks of an answer: signed thoughts if it `thinks`, texts joined, calls. A text of blanks alone is none."""
    left = iter(ids)
    thought, said = "", ""
    for part in parts:
        block = None
        if is_call(part):
            call = call_of(part)
            block = form.call(next(left), legal_name(str(call.get("name"))), call.get("args") or {})
        elif is_thought(part):
            thought += str(part.get("text") or "")
            signature = marked_signature_of(part, form.mark)
            if signature is not None and thinks:
                block = form.thought(thought, signature)
            thought = "" if is_signed(part) else thought
        else:
            said, thought = said + in_words(part), ""
        if block is not None:
            yield from _text(said, form)
            yield block
            said = ""
    yield from _text(said, form)


def user_parts(content: Content) -> list[Part]:
    """The parts of a user's content. Its thoughts and signatures were the model's of another conversation."""
    return [part for part in parts_of(content) if not is_thought(part) and has_data(part)]


def results_of(content: Content, ids: Sequence[str]) -> Iterator[tuple[str, JsonObject, str, list[Part]]]:
    """The results in a content: the id of the call, the function response, its value as JSON text, and its media."""
    responses = [part for part in parts_of(content) if is_response(part)]
    for call_id, part in zip(ids, responses, strict=True):
        response = response_of(part)
        yield call_id, response, strict_json.dump(response.get("response")).decode("utf-8"), response_media(part)


def media_or_text(part: Part, form: MediaForm, *, refuse: bool) -> JsonObject:
    """A part as a block; media that the API has no place for become a remark.

    Raises:
        UsageError: there is no place for it, and it is to `refuse` that.
    """
    media = media_of(part)
    if media is None:
        text = part["text"] if isinstance(part.get("text"), str) else strict_json.dump(part).decode("utf-8")
        return form.text(strict_json.without_surrogates(text))
    blob = _blob(media)
    block = form.media(blob)
    if block is None and refuse:
        raise UsageError(form.refusal(blob))
    return form.text(remark(media)) if block is None else block


def kind_of(blob: Blob) -> str:
    """The MIME type of media without its parameters, in lower case."""
    return blob.mime_type.partition(";")[0].strip().lower()


def is_shown(part: Part, form: MediaForm) -> bool:
    """True if the API has a place for the media of a part."""
    media = media_of(part) or {}
    # Whether there is a place for the bytes does not hang on them, and they may be many.
    return form.media(_blob(media | ({"data": ""} if "data" in media else {}))) is not None


def _blob(media: Mapping[str, Any]) -> Blob:
    fields: JsonObject = {"mime_type": "application/octet-stream", **media}
    return Blob(**fields)


def _text(said: str, form: AnswerForm) -> Iterator[JsonObject]:
    if said.strip():
        yield form.text(strict_json.without_surrogates(said))
