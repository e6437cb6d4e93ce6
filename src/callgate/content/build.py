"""Builders of Gemini contents and parts: types of `callgate.types` in, JSON parts out."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from callgate.content.read import (
    COUNTS,
    INTERACTION,
    SKIP_SIGNATURE,
    call_of,
    candidate_of,
    content_of,
    has_data,
    has_interactions_mark,
    is_call,
    is_signed,
    is_signed_elsewhere,
    is_thought,
    parts_of,
    response_of,
)
from callgate.strict_json import without_surrogates
from callgate.types import Content, FunctionCall, JsonObject, Media, Part, Usage

__all__ = [
    "answer_part",
    "call_from",
    "call_part",
    "from_elsewhere",
    "inline_part",
    "media_part",
    "model_content",
    "part_of_media",
    "response_part",
    "say",
    "text_part",
    "thought_part",
    "unsigned",
    "with_args",
    "with_call_ids",
    "with_fields",
    "with_marked_signature",
    "with_names",
    "with_parts",
    "with_signature",
    "with_text",
    "with_usage_details",
    "without_stream_fields",
]

# Building ----------------------------------------------------------------------------------------------------------------


def text_part(text: str) -> Part:
    """A part of plain text."""
    return {"text": text}


def thought_part(text: str) -> Part:
    """A part of reasoning."""
    return {"text": text, "thought": True}


def inline_part(media: Media) -> Part:
    """A part that carries the bytes of an image, a PDF or a sound."""
    mime_type, name = without_surrogates(media.mime_type), without_surrogates(media.name or "")
    blob: JsonObject = {"mimeType": mime_type, "data": base64.b64encode(media.data).decode("ascii")}
    return {"inlineData": blob | ({"displayName": name} if name else {})}


def part_of_media(media: Mapping[str, str]) -> Part:
    """A part of media from plain fields, as `media_of` returns them: `mime_type`, and `data` (base64) or `uri`."""
    mime_type = {"mimeType": media["mime_type"]} if media.get("mime_type") else {}
    if media.get("uri"):
        return {"fileData": {**mime_type, "fileUri": media["uri"]}}
    name = {"displayName": media["name"]} if media.get("name") else {}
    return {"inlineData": {**mime_type, "data": media.get("data", ""), **name}}


def unsigned(part: Part) -> Part:
    """The part without its thought signature; the part itself if it has none."""
    return {key: value for key, value in part.items() if key != "thoughtSignature"} if "thoughtSignature" in part else part


def with_signature(part: Part, signature: str | None) -> Part:
    """Restore the signature that the part had when the model wrote it, if known."""
    return {**part, "thoughtSignature": signature} if signature else part


def with_marked_signature(part: Part, mark: str, words: str) -> Part:
    """Sign a part with the words of another API; `mark` is the one of that API (`signature_mark`)."""
    return with_signature(part, mark + base64.b64encode(words.encode()).decode("ascii"))


def call_part(call: FunctionCall, *, signature: str | None = None) -> Part:
    """Build a function call part, for generated or salvaged calls; real ones are replayed verbatim."""
    inner: JsonObject = {"name": call.wire_name or call.name, "args": dict(call.args)}
    if call.wire_id is not None:
        inner = {"id": call.wire_id} | inner
    return {"functionCall": inner} | ({"thoughtSignature": signature} if signature else {})


def call_from(name: str, args: Any, *, wire_id: str | None) -> Part:
    """Build a function call part for a call of another model than Gemini: its arguments, and its id if it has one."""
    return {"functionCall": ({} if wire_id is None else {"id": wire_id}) | {"name": name, "args": args}}


def response_part(call: FunctionCall, response: JsonObject, media: Iterable[Part] = ()) -> Part:
    """Build the response to a call: the name as the model wrote it, and the model's own id if there was one."""
    inner: JsonObject = {"name": call.wire_name or call.name, "response": response}
    if call.wire_id is not None:
        inner = {"id": call.wire_id} | inner
    if parts := list(media):
        inner["parts"] = parts
    return {"functionResponse": inner}


def answer_part(call: Mapping[str, Any], response: Part | None, missing: str) -> Part:
    """The response with the name and id of the call it answers; made up, with `missing` as its error, if there is none."""
    if response is None:
        response = {"functionResponse": {"response": {"error": missing}}}
    inner = response_of(response)
    if (inner.get("name"), inner.get("id")) == (call.get("name"), call.get("id")):
        return response
    fields = {key: value for key, value in inner.items() if key not in ("name", "id")}
    identity = {key: call[key] for key in ("id", "name") if call.get(key) is not None}
    return {**response, "functionResponse": identity | fields}


def model_content(parts: Iterable[Part]) -> Content:
    """A content of the model."""
    return {"role": "model", "parts": list(parts)}


def from_elsewhere(content: Content, *, origin: str | None, vouch: bool) -> Content:
    """A model content as a model must see it that did not write it.

    What the Interactions API wrote beside it is left out. If nobody knows who wrote it, `origin` is the model that is to see
    it: signatures that are known to be of another API, and their thoughts, are left out. Without `origin`, all signatures
    are another model's: they are left out, and so are all thoughts. With `vouch`, the first call of a content in which no
    call is signed carries the documented value for calls that Gemini did not make.
    """
    given = parts_of(content)
    is_kept = [
        origin is not None and not has_interactions_mark(part) and not is_signed_elsewhere(part, origin) for part in given
    ]  # fmt: skip
    parts = [
        part if kept else unsigned(part)
        for part, kept in zip(given, is_kept, strict=True)
        if kept or not is_thought(part) or is_call(part)
    ]
    # A content of nothing but thoughts must keep something.
    parts = [part for part in parts if has_data(part) or is_signed(part)] or [*map(unsigned, given)]
    calls = [index for index, part in enumerate(parts) if is_call(part)]
    if vouch and calls and not any(is_signed(parts[index]) for index in calls):
        parts[calls[0]] = {**parts[calls[0]], "thoughtSignature": SKIP_SIGNATURE}
    return {**{key: value for key, value in content.items() if key != INTERACTION}, "parts": parts}


def say(
    parts: Iterable[Part] = (),
    *,
    finish_reason: str | None = None,
    finish_message: str = "",
    usage: Usage | None = None,
    model: str | None = None,
    interaction: JsonObject | None = None,
) -> JsonObject:
    """A response chunk, for models that speak another language.

    `interaction` is what the Interactions API needs back of the answer; it stays with the content.
    """
    candidate: JsonObject = {"index": 0}
    if (said := list(parts)) or interaction is not None:
        candidate["content"] = model_content(said) | ({} if interaction is None else {INTERACTION: interaction})
    if finish_reason is not None:
        candidate["finishReason"] = finish_reason
    if finish_message:
        candidate["finishMessage"] = finish_message
    chunk: JsonObject = {"candidates": [candidate]} if len(candidate) > 1 else {}
    if usage is not None:
        chunk["usageMetadata"] = {theirs: getattr(usage, ours) for ours, theirs in COUNTS.items() if getattr(usage, ours)}
    return chunk | ({} if model is None else {"modelVersion": model})


def with_fields(response: Mapping[str, Any], fields: Mapping[str, Any]) -> JsonObject:
    """Add fields to the first candidate of a response chunk."""
    return {**response, "candidates": [{**candidate_of(response), **fields}]} if fields else dict(response)


def with_usage_details(response: Mapping[str, Any], details: Mapping[str, Any]) -> JsonObject:
    """Add details to the usage of a response chunk; its counts stay."""
    return {**response, "usageMetadata": {**details, **response.get("usageMetadata", {})}} if details else dict(response)


def media_part(media: Media) -> Part:
    """A part that carries media: its bytes, or its address."""
    if media.uri is None:
        return inline_part(media)
    data: JsonObject = {"fileUri": without_surrogates(media.uri)}
    return {"fileData": data | ({"mimeType": media.mime_type} if media.mime_type else {})}


def with_text(part: Part, text: str) -> Part:
    """Replace the text of a part, all else kept."""
    return part | {"text": text}


def with_parts(response: Mapping[str, Any], parts: Iterable[Part]) -> JsonObject:
    """Replace the parts in the first candidate of a response chunk, all else kept."""
    candidate = candidate_of(response)
    given: Any = candidate.get("content")
    content = {**(cast("JsonObject", given) if isinstance(given, dict) else {"role": "model"}), "parts": list(parts)}
    return {**response, "candidates": [{**candidate, "content": content}]}


def with_call_ids(response: JsonObject, new_id: Callable[[], str]) -> JsonObject:
    """A response chunk in which every call has an id, whatever the model sends."""
    parts = parts_of(content_of(response))
    if all(not is_call(part) or call_of(part).get("id") for part in parts):
        return response
    return with_parts(response, [_with_call_id(part, new_id) for part in parts])


def _with_call_id(part: Part, new_id: Callable[[], str]) -> Part:
    if not is_call(part) or call_of(part).get("id"):
        return part
    return {**part, "functionCall": {"id": new_id(), **call_of(part)}}


def with_args(part: Part, args: JsonObject | str) -> Part:
    """The call part with these arguments."""
    return {**part, "functionCall": {**call_of(part), "args": args}}


def with_names(content: Mapping[str, Any], names: Mapping[str, str]) -> Content:
    """The content with other names for the functions in its calls and responses; those that are not in the map stay."""
    return {**content, "parts": [_with_name(part, names) for part in parts_of(content)]}


def _with_name(part: Part, names: Mapping[str, str]) -> Part:
    for key in ("functionCall", "functionResponse"):
        inner: Any = part.get(key)
        if isinstance(inner, dict) and (name := names.get(cast("JsonObject", inner).get("name", ""))) is not None:
            return {**part, key: {**cast("JsonObject", inner), "name": name}}
    return part


def without_stream_fields(part: Part) -> Part:
    """A call part without the fields that only make sense while its arguments are streaming."""
    inner = {key: value for key, value in part["functionCall"].items() if key not in ("partialArgs", "willContinue")}
    return part | {"functionCall": inner}
