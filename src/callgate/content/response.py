"""A `ToolResult` -> the `functionResponse` part that answers its call, at most as long as the limit allows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from callgate import strict_json
from callgate.content.build import response_part
from callgate.content.json_safe import NOTE_CHARS_MAX, NOTES_MAX, Encoder, encoded_by, json_safe
from callgate.content.read import display_names, response_media, response_of
from callgate.types import FunctionCall, JsonObject, Part, PlainJson, ToolResult

__all__ = ["SHORTENED_CHARS_MIN", "is_longer", "shortened_response", "to_function_response", "whole_text"]


def to_function_response(
    call: FunctionCall, result: ToolResult, *, output_chars: int = 40_000, reader: str | None = None
) -> Part:
    """Build the part that answers `call`: `{"result": value}` or `{"error": sentence}`, with `notes` if there are any.

    A value longer than `output_chars` characters of JSON is sent as text with its middle omitted. A value with a `$ref`
    key is sent as JSON text, because the server would try to resolve it; references to the result's own media stay.
    `reader` is the tool that shows the omitted part, if there is one.
    """
    notes = list(result.notes)
    media = list(result.media)
    if result.is_error:
        error = _without_tags(strict_json.without_surrogates(result.error or "failed without a message"), notes)
        response: JsonObject = {"error": _cut(error, output_chars, notes)}
    else:
        known = result.known_json
        if known is None:
            encoded = encoded_by(result.value, Encoder(strict_json.DEPTH_MAX, display_names(media)))
            media += encoded.media
            notes += encoded.notes
            known = PlainJson(encoded.value)
        response = {"result": _sendable(known, media, output_chars, notes)}
    if reader is not None:
        how = f"Call {reader} with id={call.id!r} to read them."
        notes = [note.removesuffix(_HOW_TO_READ) + how if note.endswith(_HOW_TO_READ) else note for note in notes]
    if notes:
        response["notes"] = _bounded(notes)
    return response_part(call, response, media)


SHORTENED_CHARS_MIN = 300
"""No response is shortened to fewer characters: the rest would be meaningless."""


def shortened_response(part: Part, chars_max: int) -> Part:
    """Shorten the response to so many characters of JSON; return the part itself if it is short and has no media.

    Results and errors keep their beginning and say that they were shortened; media are dropped. Idempotent.
    """
    chars_max = max(chars_max, SHORTENED_CHARS_MIN)
    inner = response_of(part)
    given: Any = inner.get("response")
    media = response_media(part)
    if not media and len(strict_json.dump(given)) <= chars_max:
        return part
    response = cast("JsonObject", given) if isinstance(given, dict) else {"result": given}
    is_usual = response.keys() <= {"result", "error", "notes"}
    key = "error" if "error" in response and "result" not in response else "result"
    value = response.get(key) if is_usual else response
    notes = response.get("notes") if is_usual else None
    bare = {name: item for name, item in inner.items() if name != "parts"}
    with_notes = {} if notes is None or len(strict_json.dump(notes)) > chars_max // 3 else {"notes": notes}
    text = value if isinstance(value, str) else strict_json.dump(value).decode()
    about = f"{len(media)} media item(s) left out to save room" if media else ""
    shown = text if not about else f"{text}\n[{about}]"
    kept = len(text)
    while len(strict_json.dump({key: shown, **with_notes})) > chars_max:
        kept = min(kept * 7 // 8, chars_max)
        cut = f"shortened to save room: {len(text) - kept} characters left out"
        shown = f"{text[:kept]}\n[{'; '.join(filter(None, [cut, about]))}]"
    return {**part, "functionResponse": bare | {"response": {key: shown, **with_notes}}}


def is_longer(result: ToolResult, chars: int) -> bool:
    """True if a result is longer than so many characters, mostly without decoding its JSON."""
    known = _known(result)
    if result.is_error or isinstance(known.short, str):
        return len(whole_text(result)) > chars
    encoded = _json_of(known)
    if len(encoded) > chars * _BYTES_OF_CHAR_MAX:
        return True
    return len(encoded) > chars and (encoded.isascii() or len(encoded.decode()) > chars)


_BYTES_OF_CHAR_MAX = 4


def whole_text(result: ToolResult) -> str:
    """A result as the text of which the model sees the beginning and the end when it is long."""
    if result.is_error:
        return strict_json.without_surrogates(result.error or "")
    known = _known(result)
    return known.short if isinstance(known.short, str) else _json_of(known).decode()


def _known(result: ToolResult) -> PlainJson:
    return result.known_json or PlainJson(json_safe(result.value).value)


def _json_of(known: PlainJson) -> bytes:
    return strict_json.dump(known.short) if known.encoded is None else known.encoded


def _bounded(notes: list[str]) -> list[str]:
    texts = [strict_json.without_surrogates(note)[:NOTE_CHARS_MAX] for note in dict.fromkeys(notes)]
    left_out = len(texts) - NOTES_MAX
    return texts if left_out <= 0 else [*texts[:NOTES_MAX], f"{left_out} more note(s) were left out."]


def _sendable(known: PlainJson, media: list[Part], output_chars: int, notes: list[str]) -> Any:
    if isinstance(known.short, str):
        return _cut(_without_tags(known.short, notes), output_chars, notes)
    encoded = _json_of(known)
    is_ascii = encoded.isascii()
    may_have_tags = not is_ascii and _TAGS_BEGIN in encoded
    if is_ascii and len(encoded) > output_chars:
        return _cut(encoded, output_chars, notes)
    if len(encoded) > output_chars:
        text = _without_tags(encoded.decode(), notes) if may_have_tags else encoded.decode()
        if len(text) > output_chars:
            return _cut(text, output_chars, notes)
    value = known.value
    if may_have_tags:
        value = _without_tags(value, notes)
        encoded = strict_json.dump(value)
    if b'"$ref"' in encoded and _has_foreign_ref(value, display_names(media)):
        notes.append("The result is given as JSON text.")
        return encoded.decode()
    return value


# Invisible letters that models read: instructions are hidden in them. Only in flags (the English one is a black flag
# with "gbeng" in such letters) they have a use.
_TAGS_BEGIN = "\U000e0000".encode()[:2]
_TAGS = re.compile("\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{2,6}\U000e007f|[\U000e0000-\U000e007f]+")


def _without_tags(value: Any, notes: list[str]) -> Any:
    if isinstance(value, str):
        shown = value if value.isascii() else _TAGS.sub(lambda found: found[0] if found[0][0] == "\U0001f3f4" else "", value)
        if shown != value:
            notes.append("Hidden characters (Unicode tags) in it were left out.")
        return shown
    if isinstance(value, dict):
        members = cast("JsonObject", value).items()
        return {_without_tags(key, notes): _without_tags(member, notes) for key, member in members}
    return [_without_tags(item, notes) for item in cast("list[Any]", value)] if isinstance(value, list) else value


def _cut(text: str | bytes, chars_max: int, notes: list[str]) -> str:
    """Leave out the middle of a text that is too long; of ASCII, what is left is decoded alone."""
    if len(text) <= chars_max:
        return _decoded(text)
    # The marker counts too. Its number is at most as long as that of all characters.
    half = max(chars_max - len(_LEFT_OUT.format(len(text))), 0) // 2
    left_out = len(text) - 2 * half
    notes.append(f"The result has {len(text)} characters; {left_out} in the middle were left out. {_HOW_TO_READ}")
    return _decoded(text[:half]) + _LEFT_OUT.format(left_out) + _decoded(text[len(text) - half :])


def _decoded(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode("ascii")


_LEFT_OUT = "\n[... {} characters left out ...]\n"
_HOW_TO_READ = "Ask for a smaller part to see them."


def _has_foreign_ref(value: Any, own: set[str]) -> bool:
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value)
        if "$ref" in items and not (len(items) == 1 and isinstance(items["$ref"], str) and items["$ref"] in own):
            return True
        return any(_has_foreign_ref(item, own) for item in items.values())
    return isinstance(value, list) and any(_has_foreign_ref(item, own) for item in cast("list[Any]", value))
