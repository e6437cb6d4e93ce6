"""Normalize parts for sending: foreign spellings, calls without a name, arguments that are not an object.

Takes parts of any origin; returns parts that the wire accepts.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from operator import is_not
from typing import Any, cast

from callgate import strict_json
from callgate.content.read import OBJECT, call_of, is_call, is_plain_text, is_response, is_signed, response_of
from callgate.errors import JsonError
from callgate.types import JsonObject, Part

__all__ = [
    "UNNAMED",
    "UNREADABLE",
    "WIRE_ID_CHARS_MAX",
    "as_object",
    "is_whole",
    "is_wire_id",
    "sendable_part",
    "single_parts",
    "spelled_content",
    "spelled_part",
    "with_sound_fields",
]

WIRE_ID_CHARS_MAX = 256

UNNAMED = "unnamed_function"
"""The name given to a call without one, so that it can be answered."""

UNREADABLE = "unreadable"
"""The key of arguments that are not an object, so that the history shows what the model wrote."""


def as_object(content: Any) -> Mapping[str, Any]:
    """Return a JSON object, converting an object of Google's Python SDK; an empty one for anything else."""
    if not isinstance(content, OBJECT):
        dump = getattr(content, "model_dump", None)
        content = dump(mode="json", by_alias=True, exclude_none=True) if callable(dump) else content
    return cast("Mapping[str, Any]", content) if isinstance(content, OBJECT) else {}


def spelled_content(content: Any) -> Any:
    """Rename the fields of a content to camelCase; return the same object if they already are.

    Google reads snake_case too, and its Python SDK writes it: objects of that SDK are accepted as well. Anything but a
    content is returned unchanged.
    """
    fields = as_object(content)
    if not fields:
        return content
    given: list[Any] | None = fields.get("parts")
    if not isinstance(given, (list, tuple)):
        return fields
    listed = [spelled_part(part) for part in given]
    return {**fields, "parts": listed} if any(map(is_not, listed, given)) else fields


def spelled_part(part: Any) -> Any:
    """A part with Google's own field names in camelCase; the very same object if they are so already."""
    fields: JsonObject | None = part
    if not isinstance(fields, dict) or is_plain_text(fields):
        return part
    if not any("_" in key for key in fields if isinstance(cast("Any", key), str)):
        return part
    fields = {_SPELLED.get(key, key): value for key, value in fields.items() if value is not None}
    for key in _HOLDERS & fields.keys():
        if isinstance(fields[key], dict):
            inner = cast("JsonObject", fields[key])
            inner = {_SPELLED.get(name, name): value for name, value in inner.items() if value is not None}
            fields[key] = spelled_content({name: _as_text(value) for name, value in inner.items()})
    return {key: _as_text(value) for key, value in fields.items()}


def _as_text(value: Any) -> Any:
    """Encode bytes of a signature or of media for JSON."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


_SPELLED = {
    "function_call": "functionCall", "function_response": "functionResponse", "thought_signature": "thoughtSignature",
    "inline_data": "inlineData", "file_data": "fileData", "executable_code": "executableCode", "tool_call": "toolCall",
    "code_execution_result": "codeExecutionResult", "tool_response": "toolResponse", "video_metadata": "videoMetadata",
    "media_resolution": "mediaResolution", "part_metadata": "partMetadata", "mime_type": "mimeType", "file_uri": "fileUri",
    "display_name": "displayName", "will_continue": "willContinue", "partial_args": "partialArgs", "tool_type": "toolType",
}  # fmt: skip
_DATA = frozenset({
    "text", "functionCall", "functionResponse", "inlineData", "fileData", "executableCode", "codeExecutionResult",
    "toolCall", "toolResponse",
})  # fmt: skip
"""Fields of which a part may have one."""
# Named members of these are fields; the arguments and results inside are data, and never touched.
_HOLDERS = frozenset({"functionCall", "functionResponse", "inlineData", "fileData", "toolCall", "toolResponse"})


def single_parts(part: Part) -> list[Part]:
    """Split a part with several kinds of data, of which the wire allows one: a part for each, in the order of the fields.

    Signatures and other fields stay with the call, or else with the first; `thought` with the text too.
    """
    data = [key for key, value in part.items() if value is not None and _SPELLED.get(key, key) in _DATA]
    if len(data) < 2:
        return [part]
    calls = [key for key in data if _SPELLED.get(key, key) == "functionCall"]
    keeper = (calls or data)[0]
    others = {key: value for key, value in part.items() if key not in data and key != "thought"}
    thought = {"thought": part["thought"]} if "thought" in part else {}
    return [
        {key: part[key], **(others if key == keeper else {}), **(thought if key == "text" or "text" not in data else {})}
        for key in data
    ]


def is_whole(part: Mapping[str, Any]) -> bool:
    """True unless the part is both a call and a response, or one of these without an object."""
    call, response = part.get("functionCall"), part.get("functionResponse")
    if call is not None and response is not None:
        return False
    return isinstance(call or {}, dict) and isinstance(response or {}, dict)


def sendable_part(part: Part, *, is_shallow: bool = False) -> Part:
    """Fix what the wire would refuse in a call or response; return the part itself if nothing is wrong.

    A call needs a name and an object of arguments, an id must be text of a sensible length, and a response is an object.
    `is_shallow` says that the part is known not to be nested too deeply.
    """
    if is_call(part):
        inner = call_of(part)
        fixed: JsonObject = {}
        if not isinstance(inner.get("name"), str) or not inner["name"]:
            fixed["name"] = UNNAMED
        raw = inner.get("args")
        is_object = raw is None or (is_shallow and isinstance(raw, dict))
        if not is_object and (args := _sendable_args(raw)) is not raw:
            fixed["args"] = args
        is_id_fine = inner.get("id") is None or is_wire_id(inner["id"])
        if is_id_fine and not fixed:
            return part
        kept = inner if is_id_fine else {key: value for key, value in inner.items() if key != "id"}
        return {**part, "functionCall": {**kept, **fixed}}
    if is_response(part) and not isinstance(response_of(part).get("response"), dict):
        return {**part, "functionResponse": {**response_of(part), "response": {"result": response_of(part).get("response")}}}
    return part


def with_sound_fields(part: Part) -> Part:
    """Drop fields whose values are of the wrong type, which could not be sent back; return the part itself if all is well.

    A call that is not an object becomes one without a name, so that it is answered; so does a response, to be refused.
    """
    wrong = [key for key in _KINDS.keys() & part.keys() if part[key] is not None and not isinstance(part[key], _KINDS[key])]
    if not wrong:
        return part
    kept = {key: value for key, value in part.items() if key not in wrong}
    sound: Part = {**kept, **{key: {} for key in wrong if key in ("functionCall", "functionResponse")}}
    # A signature needs something that it stands on.
    return {"text": "", **sound} if is_signed(sound) and not _DATA & sound.keys() else sound


_KINDS: dict[str, type[Any]] = {"text": str, "thought": bool, "thoughtSignature": str} | dict.fromkeys(
    ("functionCall", "functionResponse", "inlineData", "fileData", "executableCode", "codeExecutionResult", "toolCall",
     "toolResponse", "videoMetadata", "mediaResolution", "partMetadata"), dict
)  # fmt: skip


def is_wire_id(value: object) -> bool:
    """True if an id that a model sent can be sent back."""
    return isinstance(value, str) and 0 < len(value) <= WIRE_ID_CHARS_MAX


def _sendable_args(raw: Any) -> JsonObject:
    args: Any = raw
    if isinstance(args, str):
        try:
            args = strict_json.without_bad(strict_json.parse_isolating(args))
        except JsonError:
            args = raw
    if args is None:
        return {}
    if strict_json.depth_exceeds(args, strict_json.DEPTH_MAX):
        return {UNREADABLE: f"nested deeper than {strict_json.DEPTH_MAX} levels"}
    return cast("JsonObject", args) if isinstance(args, dict) else {UNREADABLE: raw}
