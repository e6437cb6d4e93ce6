"""Views of Gemini contents, which are kept as the received JSON: contents and parts in, types of `callgate.types` out.

The package `content/` and `gemini/` are the only places that know the wire's camelCase names.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any, cast

from callgate import strict_json
from callgate.events import Notice
from callgate.types import Content, JsonObject, Part, Usage

__all__ = [
    "INTERACTION",
    "OTHER_CANDIDATES",
    "ROLES",
    "SIGNATURE_MARK",
    "SKIP_SIGNATURE",
    "CandidateChoice",
    "block_of",
    "block_ratings_of",
    "call_of",
    "call_parts",
    "candidate_of",
    "content_of",
    "display_names",
    "finish_of",
    "has_data",
    "has_feedback",
    "has_interactions_mark",
    "index_of",
    "interaction_of",
    "is_call",
    "is_marked",
    "is_nonempty_text",
    "is_piece",
    "is_plain_text",
    "is_response",
    "is_signed",
    "is_signed_elsewhere",
    "is_sound_text",
    "is_thought",
    "marked_signature_of",
    "media_of",
    "model_version_of",
    "partial_args_of",
    "parts_of",
    "response_as_text",
    "response_media",
    "response_of",
    "role_of",
    "same_kind_of_text",
    "signature_mark",
    "signature_of",
    "text_of",
    "usage_of",
]

SKIP_SIGNATURE = "skip_thought_signature_validator"
SIGNATURE_MARK = "Y2FsbGdhdGUu"
"""`callgate.` in Base64: signatures of the Interactions API begin with it on parts (see `content/signature.py`)."""
"""The documented value for the signature of a call that no Gemini model made."""


INTERACTION = "interaction"
"""The field of a model content with what the Interactions API wrote and wants back. No other API is sent it."""


# Roles in histories of other systems; the wire itself knows only user and model.
ROLES = {
    "user": "user", "human": "user", "function": "user", "tool": "user",
    "model": "model", "assistant": "model", "ai": "model",
}  # fmt: skip

# Nearly every object is a dict, and to find that out takes a tenth of the time that it takes to ask for a mapping.
OBJECT = (dict, Mapping)


# Reading -----------------------------------------------------------------------------------------------------------------


def role_of(content: Mapping[str, Any]) -> str:
    """Return `user` or `model`; foreign names for the two are understood, a missing or invalid role means user."""
    role: Any = content.get("role")
    return ROLES.get(role, role) if isinstance(role, str) and role else "user"


def parts_of(content: Mapping[str, Any]) -> list[Part]:
    """The parts of a content; none when the field is missing or not a list."""
    parts: list[Part | None] | None = content.get("parts")
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, (list, tuple)) else []


def interaction_of(content: Mapping[str, Any]) -> JsonObject | None:
    """Return the record of the Interactions API beside a model content, if that API wrote it."""
    kept: Any = content.get(INTERACTION)
    return cast("JsonObject", kept) if isinstance(kept, dict) else None


def is_call(part: Mapping[str, Any]) -> bool:
    """True if the part is a function call for us to answer (calls that ran at the server are not)."""
    return isinstance(part.get("functionCall"), dict)


def is_response(part: Mapping[str, Any]) -> bool:
    """True if the part is the response to a function call."""
    return isinstance(part.get("functionResponse"), dict)


def is_thought(part: Mapping[str, Any]) -> bool:
    """True if the part is reasoning, which is neither shown as an answer nor searched for calls."""
    return part.get("thought") is True


def is_signed(part: Mapping[str, Any]) -> bool:
    """True if the part carries a thought signature, and so must stay exactly as it is."""
    return bool(part.get("thoughtSignature"))


def signature_mark(api: str) -> str:
    """The prefix of signatures of another API than Google's, which are kept as base64 like Google's own."""
    name = f"callgate/{api}:".encode()
    # Without padding, so that more base64 may follow.
    return base64.b64encode(name + b" " * (-len(name) % 3)).decode("ascii")


_MARK = base64.b64encode(b"callgate/").decode("ascii")


def is_marked(signature: str) -> bool:
    """True for a signature of another API than Google's, as it stands in a history."""
    return signature.startswith(_MARK)


def is_signed_elsewhere(part: Mapping[str, Any], origin: str) -> bool:
    """True if the part has a signature with the mark of another API than that of `origin`.

    The origins of models of other APIs than Google's begin with the API's name and a colon.
    """
    signature = signature_of(part) or ""
    return is_marked(signature) and not signature.startswith(signature_mark(origin.partition(":")[0]))


def marked_signature_of(part: Mapping[str, Any], mark: str) -> str | None:
    """Return what `with_marked_signature` wrote under this mark; None if the part has no such signature."""
    signature = signature_of(part) or ""
    try:
        return base64.b64decode(signature.removeprefix(mark)).decode() if signature.startswith(mark) else None
    except ValueError:  # Somebody has changed it.
        return None


def signature_of(part: Mapping[str, Any]) -> str | None:
    """Return the thought signature of a part, if it has a genuine one."""
    signature = part.get("thoughtSignature")
    return signature if isinstance(signature, str) and signature and signature != SKIP_SIGNATURE else None


def has_interactions_mark(part: Mapping[str, Any]) -> bool:
    """True if the part has a signature of the Interactions API, which no other API takes."""
    return (signature_of(part) or "").startswith(SIGNATURE_MARK)


def has_data(part: Mapping[str, Any]) -> bool:
    """True if the part is not empty: it has a field other than an empty text or a modifier."""
    return bool(part.get("text")) or any(
        value is not None and key not in _MODIFIERS for key, value in part.items() if key != "text"
    )


_MODIFIERS = frozenset({"thought", "thoughtSignature", "partMetadata", "videoMetadata", "mediaResolution"})


def is_plain_text(part: Mapping[str, Any]) -> bool:
    """True if the part is a text delta that may be joined with its neighbours: text, perhaps a thought, and nothing else."""
    return isinstance(part.get("text"), str) and len(part) == ("thought" in part) + 1


def is_sound_text(part: Mapping[str, Any]) -> bool:
    """True if the part is plain text that can be stored as it is."""
    text = part.get("text")
    if not isinstance(text, str) or (len(part) > 1 and not (len(part) == 2 and isinstance(part.get("thought"), bool))):
        return False
    return text.isascii() or strict_json.is_whole_text(text)


def is_nonempty_text(part: Mapping[str, Any]) -> bool:
    """True if the part is plain text that is not empty and needs no normalization."""
    text = part.get("text")
    return isinstance(text, str) and text != "" and len(part) == ("thought" in part) + 1


def same_kind_of_text(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """True if two text deltas belong to one part."""
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
    """Describe a response as text, for places where a response part is not allowed."""
    response = response_of(part)
    return f"(Result of an earlier call of {response.get('name')!r}: {strict_json.dump(response.get('response')).decode()})"


def response_media(part: Mapping[str, Any]) -> list[Part]:
    """The media parts inside a response."""
    return parts_of(response_of(part))


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
    """Return the media of a part as plain fields: `mime_type`, `data` (base64) or `uri`, perhaps `name`.

    None when the part holds no media.
    """
    blob: Any = part.get("inlineData") or part.get("fileData")
    if not isinstance(blob, dict):
        return None
    fields = cast("JsonObject", blob)
    words = {"mime_type": "mimeType", "data": "data", "uri": "fileUri", "name": "displayName"}
    return {ours: fields[theirs] for ours, theirs in words.items() if isinstance(fields.get(theirs), str)}


OTHER_CANDIDATES = Notice(
    "candidates_left_out",
    "The model gave more than one candidate: the first counts, and nothing of the others is run or shown.",
    "warning",
)


class CandidateChoice:
    """Selector of the same candidate in every chunk of one answer: the first one, which has index 0 or none.

    The others are alternatives: no call of theirs may run, and no text or finish reason of theirs is part of the answer. If
    the first chunk with a candidate has none of index 0, the lowest index in it counts.
    """

    __slots__ = ("_has_others", "_index", "_is_told")

    def __init__(self) -> None:
        self._index: int | None = None
        self._has_others = False
        self._is_told = False

    def of(self, response: Mapping[str, Any]) -> JsonObject:
        """The candidate in a response or chunk; an empty object if there is none."""
        listed: Any = response.get("candidates")
        given = cast("list[Any]", listed) if isinstance(listed, list) else []
        first = cast("JsonObject", given[0]) if len(given) == 1 and isinstance(given[0], dict) else None
        if first is not None and not self._index and not first.get("index"):
            self._index = 0  # As it mostly is.
            return first
        candidates = [cast("JsonObject", one) for one in given if isinstance(one, dict)]
        if self._index is None and candidates:
            self._index = min(map(index_of, candidates))
        chosen = next((one for one in candidates if index_of(one) == self._index), None)
        self._has_others = self._has_others or len(candidates) > (chosen is not None)
        return {} if chosen is None else chosen

    def alone_in(self, response: JsonObject) -> JsonObject:
        """The response or chunk without other candidates."""
        candidate, given = self.of(response), response.get("candidates")
        if not isinstance(given, list) or (len(cast("list[Any]", given)) == 1 and candidate):
            return response
        rest = {key: value for key, value in response.items() if key != "candidates"}
        return {"candidates": [candidate], **rest} if candidate else rest

    def notices(self) -> list[Notice]:
        """A notice once, if another candidate was left out."""
        if not self._has_others or self._is_told:
            return []
        self._is_told = True
        return [OTHER_CANDIDATES]


def index_of(candidate: Mapping[str, Any]) -> int:
    """The index of a candidate; JSON of protobuf leaves a zero out, and may write numbers as text."""
    index = candidate.get("index")
    if type(index) is int:
        return max(index, 0)
    if isinstance(index, float) and index.is_integer():
        return max(int(index), 0)
    is_written = isinstance(index, str) and len(index) < 10 and index.isascii() and index.isdigit()
    return int(cast("str", index)) if is_written else 0


def candidate_of(response: Mapping[str, Any]) -> JsonObject:
    """The first candidate of a response or chunk, by index; an empty object when there is none.

    Chunks of one answer may have different candidates: `CandidateChoice` keeps to one of them.
    """
    return CandidateChoice().of(response)


def content_of(response: Mapping[str, Any]) -> Content:
    """Return the content of the first candidate of a response or chunk; an empty one when there is none."""
    content: Any = candidate_of(response).get("content")
    return cast("Content", content) if isinstance(content, dict) else {}


def finish_of(candidate: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the raw finish reason of a candidate, if it has one, and its message."""
    reason, message = candidate.get("finishReason") or candidate.get("finish_reason"), candidate.get("finishMessage")
    return _text(reason) or None, _text(message)


def has_feedback(response: Mapping[str, Any]) -> bool:
    """True if the server has feedback on the prompt: only then can it have refused it."""
    return "promptFeedback" in response


def block_of(response: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return why the prompt was refused: the server's reason and message; None when it was not."""
    raw: Any = response.get("promptFeedback")
    feedback = cast("JsonObject", raw) if isinstance(raw, dict) else {}
    reason, message = feedback.get("blockReason"), feedback.get("blockReasonMessage")
    if not isinstance(reason, str) or not reason or reason.endswith("_UNSPECIFIED"):
        return None
    # Both end up in an error message, so neither may be of any length.
    return _text(reason)[:100], _text(message)[:1_000]


def block_ratings_of(response: Mapping[str, Any]) -> list[JsonObject]:
    """Return the safety ratings of a refused prompt."""
    raw: Any = response.get("promptFeedback")
    ratings: Any = cast("JsonObject", raw).get("safetyRatings") if isinstance(raw, dict) else None
    return strict_json.objects_in(strict_json.without_bad(strict_json.isolate(ratings)))


def model_version_of(response: Mapping[str, Any]) -> str | None:
    """Return the model that answered, if reported."""
    version = response.get("modelVersion")
    return _text(version) if isinstance(version, str) else None


def usage_of(response: Mapping[str, Any]) -> Usage | None:
    """The token counts of a response or chunk, if it reports any."""
    counts: JsonObject | None = response.get("usageMetadata")
    if not isinstance(counts, dict):
        return None
    counted: dict[str, int] = {}
    for ours, theirs in COUNTS.items():
        if theirs in counts:
            count = token_count(counts[theirs])
            if count:
                counted[ours] = count
    if not counted:
        return None
    if "promptTokensDetails" in counts:
        # Sound is billed by other rates.
        counted["audio_tokens"] = min(_sound_in(counts["promptTokensDetails"]), counted.get("input_tokens", 0))
        counted["cached_audio_tokens"] = min(_sound_in(counts.get("cacheTokensDetails")), counted["audio_tokens"])
    return Usage(**counted)


def _sound_in(details: Any) -> int:
    """Return the tokens of sound in counts by modality."""
    sounds = [entry for entry in strict_json.objects_in(details) if entry.get("modality") == "AUDIO"]
    return sum(token_count(entry.get("tokenCount")) for entry in sounds)


def token_count(value: object) -> int:
    """Return a number of tokens; 0 for what cannot be one."""
    count = value if type(value) is int else _count(value)
    return count if 0 < count <= _COUNT_MAX else 0


COUNTS = {
    "input_tokens": "promptTokenCount", "cached_tokens": "cachedContentTokenCount", "output_tokens": "candidatesTokenCount",
    "thought_tokens": "thoughtsTokenCount", "tool_tokens": "toolUsePromptTokenCount", "total_tokens": "totalTokenCount",
}  # fmt: skip


_COUNT_MAX = 2**53
"""No model has used more tokens; a larger number is not a count."""


def _text(value: object) -> str:
    """Return a text that can be stored; empty without one."""
    return strict_json.without_surrogates(str.__str__(value)) if isinstance(value, str) else ""


def _count(value: object) -> int:
    """Return the number of an integer field."""
    # Integers of 64 bits are text in protobuf's JSON, and some gateways write them as doubles.
    if isinstance(value, str) and len(value) <= 18 and value.isascii() and value.isdigit():
        return int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else 0


def is_piece(part: Mapping[str, Any]) -> bool:
    """True if a call part begins a call whose arguments arrive in pieces."""
    inner = call_of(part)
    return inner.get("willContinue") is True or isinstance(inner.get("partialArgs"), list)


def partial_args_of(part: Mapping[str, Any]) -> list[Any]:
    """The pieces of arguments in a call part."""
    entries: Any = call_of(part).get("partialArgs")
    return cast("list[Any]", entries) if isinstance(entries, list) else []
