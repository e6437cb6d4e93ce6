"""Views and builders over Gemini contents, which are kept as the JSON that came.

Contents and parts come in, words of `callgate.types` and new parts go out. This file and `gemini/` are the only places that
know the wire's camelCase names; it knows nothing of tools, permission or the network.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from operator import is_not
from typing import Any, TypeAlias, cast

from callgate import strict_json
from callgate.errors import JsonError, UsageError
from callgate.types import Content, FunctionCall, JsonObject, Media, Part, Usage

__all__ = [
    "PROMPT_ITEMS", "SKIP_SIGNATURE", "UNNAMED", "UNREADABLE", "WIRE_ID_CHARS_MAX", "Prompt", "answer_part", "block_of",
    "block_ratings_of", "call_from", "call_of", "call_part", "call_parts", "candidate_of", "content_of", "display_names",
    "finish_of", "from_elsewhere", "has_data", "has_feedback", "inline_part", "is_call", "is_piece", "is_plain_text",
    "is_response", "is_said", "is_signed", "is_thought", "is_whole", "is_wire_id", "media_of", "model_content",
    "model_version_of", "partial_args_of", "parts_of", "response_as_text", "response_media", "response_of", "response_part",
    "role_of", "same_kind_of_text", "say", "sendable_part", "signature_of", "spelled_content", "text_of", "text_part",
    "thought_part", "unsigned", "usage_of", "user_content", "with_args", "with_names", "with_parts", "with_signature",
    "with_sound_fields", "with_text", "without_stream_fields",
]  # fmt: skip

Prompt: TypeAlias = "str | Media | Part | Sequence[str | Media | Part]"
"""What a person may say: text, media, ready-made parts, or a list of these."""

SKIP_SIGNATURE = "skip_thought_signature_validator"
"""The documented value for the signature of a call that no Gemini model made."""

WIRE_ID_CHARS_MAX = 256

UNNAMED = "unnamed_function"
"""The name of a call that came without one, so that it can be answered."""

UNREADABLE = "unreadable"
"""Where arguments that are not an object are kept in the history, so that the model sees what it wrote."""

# Roles that other systems write into histories; the wire itself knows only user and model.
_ROLES = {
    "user": "user", "human": "user", "function": "user", "tool": "user",
    "model": "model", "assistant": "model", "ai": "model",
}  # fmt: skip

# Nearly every object is a dict, and to find that out takes a tenth of the time that it takes to ask for a mapping.
_OBJECT = (dict, Mapping)


# Reading -----------------------------------------------------------------------------------------------------------------


def role_of(content: Mapping[str, Any]) -> str:
    """`user` or `model`; foreign words for the two are understood, a missing or unreadable role means user."""
    role: Any = content.get("role")
    return _ROLES.get(role, role) if isinstance(role, str) and role else "user"


def parts_of(content: Mapping[str, Any]) -> list[Part]:
    """The parts of a content; none when the field is missing or not a list."""
    parts: list[Part | None] | None = content.get("parts")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, (list, tuple)) else []


def spelled_content(content: Any) -> Any:
    """A content with Google's own field names in camelCase, whoever wrote it; the very same object if they are so already.

    Google reads snake_case too, and its Python SDK writes it: an object of that SDK is understood as well. What is no
    content is given back as it is.
    """
    if not isinstance(content, _OBJECT):
        dump = getattr(content, "model_dump", None)
        content = dump(mode="json", by_alias=True, exclude_none=True) if callable(dump) else content
        if not isinstance(content, _OBJECT):
            return content
    fields = cast("Mapping[str, Any]", content)
    given: list[Any] | None = fields.get("parts")
    if not isinstance(given, (list, tuple)):
        return fields
    listed = [_spelled_part(part) for part in given]
    return {**fields, "parts": listed} if any(map(is_not, listed, given)) else fields


def _spelled_part(part: Any) -> Any:
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
    """Bytes of a signature or of media, as JSON says them."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


_SPELLED = {
    "function_call": "functionCall", "function_response": "functionResponse", "thought_signature": "thoughtSignature",
    "inline_data": "inlineData", "file_data": "fileData", "executable_code": "executableCode", "tool_call": "toolCall",
    "code_execution_result": "codeExecutionResult", "tool_response": "toolResponse", "video_metadata": "videoMetadata",
    "media_resolution": "mediaResolution", "part_metadata": "partMetadata", "mime_type": "mimeType", "file_uri": "fileUri",
    "display_name": "displayName", "will_continue": "willContinue", "partial_args": "partialArgs", "tool_type": "toolType",
}  # fmt: skip
# What stands in these under a name is a field; the arguments and results that they hold are data, and never touched.
_HOLDERS = frozenset({"functionCall", "functionResponse", "inlineData", "fileData", "toolCall", "toolResponse"})


def is_call(part: Mapping[str, Any]) -> bool:
    """Whether the part is a function call for us to answer (calls that ran at the server are not)."""
    return isinstance(part.get("functionCall"), dict)


def is_response(part: Mapping[str, Any]) -> bool:
    """Whether the part is the response to a function call."""
    return isinstance(part.get("functionResponse"), dict)


def is_thought(part: Mapping[str, Any]) -> bool:
    """Whether the part is reasoning, which is neither shown as an answer nor searched for calls."""
    return part.get("thought") is True


def is_signed(part: Mapping[str, Any]) -> bool:
    """Whether the part carries a thought signature, and so must stay exactly as it is."""
    return bool(part.get("thoughtSignature"))


def signature_of(part: Mapping[str, Any]) -> str | None:
    """The thought signature of a part, if it has a genuine one."""
    signature = part.get("thoughtSignature")
    return signature if isinstance(signature, str) and signature and signature != SKIP_SIGNATURE else None


def has_data(part: Mapping[str, Any]) -> bool:
    """Whether the part says anything: a field other than an empty text or a modifier."""
    return bool(part.get("text")) or any(
        value is not None and key not in _MODIFIERS for key, value in part.items() if key != "text"
    )


_MODIFIERS = frozenset({"thought", "thoughtSignature", "partMetadata", "videoMetadata", "mediaResolution"})


def is_plain_text(part: Mapping[str, Any]) -> bool:
    """Whether the part is a text delta that may be joined with its neighbours: text, perhaps a thought, and nothing else."""
    return isinstance(part.get("text"), str) and len(part) == ("thought" in part) + 1


def is_said(part: Mapping[str, Any]) -> bool:
    """Whether the part is plain text that says something: there is nothing in it that could have to be put right."""
    text = part.get("text")
    return isinstance(text, str) and text != "" and len(part) == ("thought" in part) + 1


def same_kind_of_text(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two text deltas belong to one part."""
    return is_thought(first) == is_thought(second)


def call_of(part: Mapping[str, Any]) -> JsonObject:
    """The inner object of a function call part."""
    return part["functionCall"]


def call_parts(content: Mapping[str, Any]) -> list[JsonObject]:
    """The inner objects of all function calls of a content, in order, thoughts included."""
    return [part["functionCall"] for part in parts_of(content) if is_call(part)]


def response_of(part: Mapping[str, Any]) -> JsonObject:
    """The inner object of a function response part."""
    return part["functionResponse"]


def response_as_text(part: Mapping[str, Any]) -> str:
    """A response in words, for places where a response part cannot stand."""
    response = response_of(part)
    return f"(Result of an earlier call of {response.get('name')!r}: {strict_json.dump(response.get('response')).decode()})"


def response_media(part: Mapping[str, Any]) -> list[Part]:
    """The media parts inside a response."""
    return parts_of(response_of(part))


def is_whole(part: Mapping[str, Any]) -> bool:
    """Whether the part is not both a call and a response, nor one of these without an object; true of all other parts."""
    call, response = part.get("functionCall"), part.get("functionResponse")
    if call is not None and response is not None:
        return False
    return isinstance(call or {}, dict) and isinstance(response or {}, dict)


def sendable_part(part: Part) -> Part:
    """The part with what the wire would refuse in a call or response put right; the part itself if nothing is wrong.

    A call needs a name and an object of arguments, an id must be text of a sensible length, and a response is an object.
    """
    if is_call(part):
        inner = call_of(part)
        fixed = {key: value for key, value in inner.items() if key != "id" or value is None or is_wire_id(value)}
        if not isinstance(inner.get("name"), str) or not inner["name"]:
            fixed["name"] = UNNAMED
        if inner.get("args") is not None:
            fixed["args"] = _sendable_args(inner["args"])
        return part if _same(fixed, inner) else {**part, "functionCall": fixed}
    if is_response(part) and not isinstance(response_of(part).get("response"), dict):
        return {**part, "functionResponse": {**response_of(part), "response": {"result": response_of(part).get("response")}}}
    return part


def with_sound_fields(part: Part) -> Part:
    """The part with text that is no text left out and a call that is no object without a name; itself if all is well.

    Neither could be sent back.
    """
    wrong = [key for key, kind in _KINDS.items() if part.get(key) is not None and not isinstance(part[key], kind)]
    if not wrong:
        return part
    kept = {key: value for key, value in part.items() if key not in wrong}
    return {**kept, **{key: {} for key in wrong if key != "text"}}


_KINDS = {"text": str, "functionCall": dict, "functionResponse": dict}


def is_wire_id(value: object) -> bool:
    """Whether an id that a model sent can be sent back."""
    return isinstance(value, str) and 0 < len(value) <= WIRE_ID_CHARS_MAX


def _same(fixed: JsonObject, inner: JsonObject) -> bool:
    return fixed.keys() == inner.keys() and all(fixed[key] is inner[key] for key in fixed)


def _sendable_args(raw: Any) -> JsonObject:
    args: Any = raw
    if isinstance(args, str):
        try:
            args = strict_json.mended(strict_json.parse_isolating(args))
        except JsonError:
            args = raw
    if args is None:
        return {}
    if strict_json.depth_exceeds(args, strict_json.DEPTH_MAX):
        return {UNREADABLE: f"nested deeper than {strict_json.DEPTH_MAX} levels"}
    return cast("JsonObject", args) if isinstance(args, dict) else {UNREADABLE: raw}


def text_of(content: Mapping[str, Any], *, thoughts: bool = False) -> str:
    """The text of a content without its thoughts (or only its thoughts)."""
    return "".join(
        [part["text"] for part in parts_of(content) if isinstance(part.get("text"), str) and is_thought(part) == thoughts]
    )


def display_names(media: Iterable[Mapping[str, Any]]) -> set[str]:
    """The names under which media parts can be referred to."""
    inline = [cast("JsonObject", part["inlineData"]) for part in media if isinstance(part.get("inlineData"), dict)]
    return {blob["displayName"] for blob in inline if isinstance(blob.get("displayName"), str)}


def media_of(part: Mapping[str, Any]) -> JsonObject | None:
    """What is known of the media of a part, in plain words: `mime_type`, `data` (base64) or `uri`, perhaps `name`.

    None when the part holds no media.
    """
    blob: Any = part.get("inlineData") or part.get("fileData")
    if not isinstance(blob, dict):
        return None
    fields = cast("JsonObject", blob)
    words = {"mime_type": "mimeType", "data": "data", "uri": "fileUri", "name": "displayName"}
    return {ours: fields[theirs] for ours, theirs in words.items() if isinstance(fields.get(theirs), str)}


def candidate_of(response: Mapping[str, Any]) -> JsonObject:
    """The first candidate of a response or chunk; an empty object when there is none."""
    candidates: list[JsonObject | None] | None = response.get("candidates")
    first = candidates[0] if isinstance(candidates, list) and candidates else None
    return first if isinstance(first, dict) else {}


def content_of(response: Mapping[str, Any]) -> Content:
    """The content of the first candidate of a response or chunk; an empty one when there is none."""
    content: Any = candidate_of(response).get("content")
    return cast("Content", content) if isinstance(content, dict) else {}


def finish_of(candidate: Mapping[str, Any]) -> tuple[str | None, str]:
    """The raw finish reason of a candidate, if it has one, and the message beside it."""
    reason, message = candidate.get("finishReason") or candidate.get("finish_reason"), candidate.get("finishMessage")
    return (reason if isinstance(reason, str) and reason else None), (message if isinstance(message, str) else "")


def has_feedback(response: Mapping[str, Any]) -> bool:
    """Whether the server says something of the prompt: only then can it have refused it."""
    return "promptFeedback" in response


def block_of(response: Mapping[str, Any]) -> tuple[str, str] | None:
    """Why the prompt was refused: the server's word and its message; None when it was not."""
    raw: Any = response.get("promptFeedback")
    feedback = cast("JsonObject", raw) if isinstance(raw, dict) else {}
    reason, message = feedback.get("blockReason"), feedback.get("blockReasonMessage")
    if not isinstance(reason, str) or not reason or reason.endswith("_UNSPECIFIED"):
        return None
    # Both end up in an error message, so neither may be of any length.
    return reason[:100], message[:1_000] if isinstance(message, str) else ""


def block_ratings_of(response: Mapping[str, Any]) -> list[JsonObject]:
    """What the server thinks of a prompt that it refused, category by category."""
    raw: Any = response.get("promptFeedback")
    ratings: Any = cast("JsonObject", raw).get("safetyRatings") if isinstance(raw, dict) else None
    return [item for item in cast("list[Any]", ratings) if isinstance(item, dict)] if isinstance(ratings, list) else []


def model_version_of(response: Mapping[str, Any]) -> str | None:
    """The model that answered, if the response says so."""
    version = response.get("modelVersion")
    return version if isinstance(version, str) else None


def usage_of(response: Mapping[str, Any]) -> Usage | None:
    """The token counts of a response or chunk, if it reports any."""
    counts: JsonObject | None = response.get("usageMetadata")
    if not isinstance(counts, dict):
        return None
    counted: dict[str, int] = {}
    for ours, theirs in _COUNTS.items():
        if theirs in counts:
            count = counts[theirs]
            count = count if type(count) is int else _count(count)
            if count > 0:
                counted[ours] = count
    return Usage(**counted) if counted else None


_COUNTS = {
    "prompt_tokens": "promptTokenCount", "cached_tokens": "cachedContentTokenCount", "output_tokens": "candidatesTokenCount",
    "thought_tokens": "thoughtsTokenCount", "tool_tokens": "toolUsePromptTokenCount", "total_tokens": "totalTokenCount",
}  # fmt: skip


def _count(value: object) -> int:
    """The number that stands where an integer should."""
    # Integers of 64 bits are text in protobuf's JSON, and some gateways write them as doubles.
    if isinstance(value, str) and len(value) <= 18 and value.isascii() and value.isdigit():
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else 0


# Building ----------------------------------------------------------------------------------------------------------------


def text_part(text: str) -> Part:
    """A part of plain text."""
    return {"text": text}


def thought_part(text: str) -> Part:
    """A part of reasoning."""
    return {"text": text, "thought": True}


def inline_part(media: Media) -> Part:
    """A part that carries the bytes of an image, a PDF or a sound."""
    blob: JsonObject = {"mimeType": media.mime_type, "data": base64.b64encode(media.data).decode("ascii")}
    return {"inlineData": blob | ({"displayName": media.name} if media.name else {})}


def unsigned(part: Part) -> Part:
    """The part without its thought signature; the part itself if it has none."""
    return {key: value for key, value in part.items() if key != "thoughtSignature"} if "thoughtSignature" in part else part


def with_signature(part: Part, signature: str | None) -> Part:
    """The part with the signature that it had when the model wrote it; as it is where that is not known."""
    return {**part, "thoughtSignature": signature} if signature else part


def call_part(call: FunctionCall, *, signature: str | None = None) -> Part:
    """A function call part, for calls that were made up or salvaged; real ones are replayed as they came."""
    inner: JsonObject = {"name": call.wire_name or call.name, "args": dict(call.args)}
    if call.wire_id is not None:
        inner = {"id": call.wire_id} | inner
    return {"functionCall": inner} | ({"thoughtSignature": signature} if signature else {})


def call_from(name: str, args: Any, *, wire_id: str | None) -> Part:
    """A function call part of what another model than Gemini sent: arguments as they came, and its id if it gave one."""
    return {"functionCall": ({} if wire_id is None else {"id": wire_id}) | {"name": name, "args": args}}


def response_part(call: FunctionCall, response: JsonObject, media: Iterable[Part] = ()) -> Part:
    """The response to a call: the name as the model wrote it, the model's own id if there was one, and no other."""
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


_MIME_TYPE: JsonObject = {"type": "string", "pattern": "^[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+$", "maxLength": 200}
PROMPT_ITEMS: JsonObject = {
    "type": "array",
    "minItems": 1,
    "maxItems": 1000,
    "items": {
        "anyOf": [
            {"type": "string", "pattern": "\\S"},
            {
                "type": "object",
                "required": ["text"],
                "properties": {"text": {"type": "string", "pattern": "\\S"}},
                "additionalProperties": False,
            },
            {
                "type": "object",
                "required": ["inlineData"],
                "properties": {
                    "inlineData": {
                        "type": "object",
                        "required": ["mimeType", "data"],
                        "properties": {
                            "mimeType": _MIME_TYPE,
                            "data": {"type": "string", "contentEncoding": "base64", "pattern": "^[A-Za-z0-9+/_-]+={0,2}$"},
                            "displayName": {"type": "string", "maxLength": 200},
                        },
                        "additionalProperties": False,
                    }
                },
                "additionalProperties": False,
            },
            {
                "type": "object",
                "required": ["fileData"],
                "properties": {
                    "fileData": {
                        "type": "object",
                        "required": ["fileUri"],
                        "properties": {"fileUri": {"type": "string", "minLength": 1}, "mimeType": _MIME_TYPE},
                        "additionalProperties": False,
                    }
                },
                "additionalProperties": False,
            },
        ]
    },
}
"""JSON Schema of a prompt that comes from elsewhere as a list: texts, media with their bytes, and media at an address."""


def user_content(prompt: Prompt) -> Content:
    """A user content from text, media, parts or a list of these.

    Raises:
        UsageError: the prompt is empty or of a kind that cannot be sent.
    """
    given: Any = prompt
    if isinstance(given, (str, Media, dict)):
        parts = _prompt_parts(given)
    elif isinstance(given, (bytes, bytearray)) or not isinstance(given, (list, Iterable)):
        raise UsageError(f"a prompt is text, Media, a part or a list of these, not {type(given).__name__!r}")
    else:
        items = cast("Iterable[Any]", [given] if isinstance(given, Mapping) else given)
        parts = [part for item in items for part in _prompt_parts(item)]
    if not parts:
        raise UsageError("the prompt is empty: pass some text, a Media object or a list of parts")
    return {"role": "user", "parts": parts}


def _prompt_parts(item: Any) -> list[Part]:
    """The parts that one thing in a prompt is sent as."""
    if isinstance(item, str):
        return [text_part(strict_json.without_surrogates(item))] if item.strip() else []
    if isinstance(item, Media):
        return [inline_part(item)]
    if not isinstance(item, _OBJECT):
        raise UsageError(f"a prompt may hold text, Media and parts (dicts), not {type(item).__name__!r}")
    part: Part = dict(cast("Mapping[str, Any]", item))
    if is_said(part):
        return [part]
    if "parts" in part:
        return _said(part)
    part = _spelled_part(part)
    if part.get("functionCall") is not None or part.get("functionResponse") is not None:
        raise UsageError("a prompt cannot hold function calls or responses: pass them as history")
    return [part] if has_data(part) else []


def _said(content: Mapping[str, Any]) -> list[Part]:
    """The parts of a whole content that is passed as a prompt."""
    if role_of(content) != "user":
        raise UsageError(f"a prompt is what the user says, not a content of the role {content.get('role')!r}: see history=")
    given: Any = content["parts"]
    items = cast("list[Any]", given) if isinstance(given, (list, tuple)) else [given]
    return [part for item in items for part in _prompt_parts(item)]


def model_content(parts: Iterable[Part]) -> Content:
    """A content of the model."""
    return {"role": "model", "parts": list(parts)}


def from_elsewhere(content: Content, *, signed: bool, vouch: bool) -> Content:
    """A model content as a Gemini model must see it that did not write it.

    Without `signed`, its signatures are another model's: they are left out, and so are its thoughts. With `vouch`, the first
    call of a content in which no call is signed carries the documented value for calls that Gemini did not make.
    """
    given = parts_of(content)
    parts = given if signed else [unsigned(part) for part in given if not is_thought(part) or is_call(part)]
    # Of a content that holds nothing but thoughts, something must stay.
    parts = [part for part in parts if has_data(part) or is_signed(part)] or [*map(unsigned, given)]
    calls = [index for index, part in enumerate(parts) if is_call(part)]
    if vouch and calls and not any(is_signed(parts[index]) for index in calls):
        parts[calls[0]] = {**parts[calls[0]], "thoughtSignature": SKIP_SIGNATURE}
    return {**content, "parts": parts}


def say(
    parts: Iterable[Part] = (),
    *,
    finish_reason: str | None = None,
    finish_message: str = "",
    usage: Usage | None = None,
    model: str | None = None,
) -> JsonObject:
    """A response chunk, for models that speak another language."""
    candidate: JsonObject = {"index": 0}
    if said := list(parts):
        candidate["content"] = model_content(said)
    if finish_reason is not None:
        candidate["finishReason"] = finish_reason
    if finish_message:
        candidate["finishMessage"] = finish_message
    chunk: JsonObject = {"candidates": [candidate]} if len(candidate) > 1 else {}
    if usage is not None:
        chunk["usageMetadata"] = {theirs: getattr(usage, ours) for ours, theirs in _COUNTS.items() if getattr(usage, ours)}
    return chunk | ({} if model is None else {"modelVersion": model})


def with_text(part: Part, text: str) -> Part:
    """The part with another text, all else kept."""
    return part | {"text": text}


def with_parts(response: Mapping[str, Any], parts: Iterable[Part]) -> JsonObject:
    """A response chunk with other parts in its first candidate, all else kept."""
    candidate = candidate_of(response)
    given: Any = candidate.get("content")
    content = {**(cast("JsonObject", given) if isinstance(given, dict) else {"role": "model"}), "parts": list(parts)}
    return {**response, "candidates": [{**candidate, "content": content}]}


def is_piece(part: Mapping[str, Any]) -> bool:
    """Whether a call part is the beginning of a call whose arguments come in pieces."""
    inner = call_of(part)
    return inner.get("willContinue") is True or isinstance(inner.get("partialArgs"), list)


def partial_args_of(part: Mapping[str, Any]) -> list[Any]:
    """The pieces of arguments in a call part."""
    entries: Any = call_of(part).get("partialArgs")
    return cast("list[Any]", entries) if isinstance(entries, list) else []


def with_args(part: Part, args: JsonObject) -> Part:
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
