"""The rules of a history: contents in; breaches, or the nearest history that breaks none, out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from callgate import strict_json
from callgate.content.build import answer_part, text_part
from callgate.content.json_safe import json_safe
from callgate.content.normalize import is_whole, sendable_part, single_parts, spelled_content
from callgate.content.prompt import user_content
from callgate.content.read import (
    call_parts,
    has_data,
    is_call,
    is_response,
    is_signed,
    parts_of,
    response_as_text,
    response_media,
    response_of,
    role_of,
)
from callgate.errors import JsonError
from callgate.types import Content, JsonObject, Part

__all__ = ["INTERRUPTED", "repaired", "starts_exchange", "validate"]

INTERRUPTED = "The call was interrupted before it gave a result; whether it had any effect is not known."


def starts_exchange(content: Mapping[str, Any]) -> bool:
    """True if the content is user input, rather than responses to calls."""
    return role_of(content) == "user" and not any(map(is_response, parts_of(content)))


def validate(contents: Sequence[Mapping[str, Any]], *, sendable: bool = False) -> list[str]:
    """Return every breach of the rules as a sentence with its place; an empty list means valid.

    With `sendable` the history must also be ready to send: not empty, no open call, a user content last.
    """
    problems: list[str] = []
    calls: list[JsonObject] = []
    before: Any = "model"
    for index, content in enumerate(contents):
        if not isinstance(cast("Any", content), Mapping):
            problems.append(f"contents[{index}]: not an object")
            continue
        problems += [f"contents[{index}]: {breach}" for breach in breaches_of(content)]
        if content.get("role") == before == "model":
            problems.append(f"contents[{index}]: a model content must follow a user content")
        before = content.get("role")
        responses = [response_of(part) for part in parts_of(content) if is_response(part)]
        problems += [f"contents[{index}]: {breach}" for breach in _response_breaches(calls, responses)]
        calls = call_parts(content) if content.get("role") == "model" else []
    if sendable and calls:
        problems.append(f"contents[{len(contents) - 1}]: {len(calls)} function call(s) have no responses")
    elif sendable and (not contents or before != "user"):
        problems.append("the last content must be the user's")
    return problems


def breaches_of(content: Mapping[str, Any]) -> Iterator[str]:
    """Check a content by itself."""
    parts = parts_of(content)
    role = content.get("role")
    responses = sum(map(is_response, parts))
    if role not in ("user", "model"):
        yield f"role {role!r} is not 'user' or 'model'"
    empty = [part for part in parts if not has_data(part)]
    if len(empty) == len(parts):
        yield "no part says anything"
    elif not all(map(is_signed, empty)):
        yield "a part says nothing"
    if content.get("parts") != parts:
        yield "the parts are not a list of objects"
    if any(not is_whole(part) or sendable_part(part) is not part for part in parts):
        yield "a function call or response lacks a name, has an id that is no id, or is not made of objects"
    if role == "model" and responses:
        yield "a model content holds function responses"
    if responses not in (0, len(parts)):
        yield "function responses stand beside other parts"
    if role != "model" and any(map(is_call, parts)):
        yield "a user content holds function calls"


def _response_breaches(calls: Sequence[JsonObject], responses: Sequence[JsonObject]) -> Iterator[str]:
    """Check the calls of a content against the responses of the next one."""
    if len(calls) != len(responses):
        yield f"{len(responses)} function response(s) for {len(calls)} function call(s)"
        return
    for call, response in zip(calls, responses, strict=True):
        if (call.get("name"), call.get("id")) != (response.get("name"), response.get("id")):
            yield f"the response to {response.get('name')!r} does not answer the call of {call.get('name')!r} in its place"


def not_a_response(part: Any) -> Iterator[str]:
    if not isinstance(part, dict) or not is_response(cast("Part", part)) or not is_whole(cast("Part", part)):
        yield "a part is not a function response"


def repaired(contents: Iterable[Mapping[str, Any]]) -> tuple[list[Content], list[str]]:
    """Return the nearest valid history, and notes on what was changed.

    Foreign roles are translated, empty parts dropped, responses moved after their calls in order, missing responses added
    (as errors that say so), orphaned responses turned into text. A valid history is returned unchanged, part by part.
    Calls of the last content may still be open.
    """
    notes: list[str] = []
    result: list[Content] = []
    for piece in _joined(_pieces(contents, notes), notes):
        unanswered = call_parts(result[-1]) if result and result[-1]["role"] == "model" else []
        answers: list[Part] = piece["parts"] if _is_responses(piece) else []
        if not result and piece["role"] == "model":
            notes.append("the history began with the model; a user content was put before it")
            result.append(user_content("(The beginning of this conversation is not available.)"))
        paired, orphans = paired_responses(unanswered, answers, INTERRUPTED)
        if len(answers) - len(orphans) < len(unanswered):
            notes.append("function calls without a response were answered as interrupted")
        elif paired != answers[: len(paired)]:
            notes.append("function responses were given the order, names and ids of their calls")
        if paired:
            result.append({"role": "user", "parts": paired} if paired != answers else piece)
        if orphans:
            notes.append(f"{len(orphans)} function response(s) without a call were turned into text")
            result.append(user_content([told for part in orphans for told in _in_words(part)]))
        if not answers:
            result.append(piece)
    return result, notes


_READ_ELSEWHERE = "convert(..., target='gemini', kind='history') reads the messages of other systems"


def _pieces(contents: Iterable[Mapping[str, Any]], notes: list[str]) -> Iterator[Content]:
    """Iterate over contents with a legal role and without empty parts; responses and other parts in separate contents."""
    for index, written in enumerate(contents):
        given: Any = spelled_content(written)
        if not isinstance(given, Mapping):
            notes.append(f"contents[{index}]: left out, because it is not an object")
            continue
        if given is not written:
            notes.append(f"contents[{index}]: its fields were given the names that they have on the wire")
        content = _writable(cast("Mapping[str, Any]", given), notes, index)
        kept = _sendable_parts(content, notes, index)
        role = "model" if any(map(is_call, kept)) or role_of(content) == "model" else "user"
        if content.get("role", role) != role:
            notes.append(f"contents[{index}]: the role {content['role']!r} was read as {role!r}")
        # Responses answer earlier calls; only those after a call may answer that one.
        first_call = next((place for place, part in enumerate(kept) if is_call(part)), len(kept))
        early = [part for part in kept[:first_call] if is_response(part)]
        late = [part for part in kept[first_call:] if is_response(part)]
        others = [part for part in kept if not is_response(part)]
        if (early or late) and (others or role == "model"):
            notes.append(f"contents[{index}]: function responses were put into a content of their own")
        if early:
            yield {"role": "user", "parts": early} if others else {**content, "role": "user", "parts": early}
        if any(map(has_data, others)):
            yield {**content, "role": role, "parts": others}
        elif not early:
            why = "it says nothing" if "content" not in content else f"it has 'content' and no 'parts'; {_READ_ELSEWHERE}"
            notes.append(f"contents[{index}]: left out, because {why}")
        if late:
            yield {"role": "user", "parts": late}


def _writable(content: Mapping[str, Any], notes: list[str], index: int) -> Mapping[str, Any]:
    """Return the content itself if it is JSON, else the nearest one that is."""
    try:
        strict_json.dump(content)
    except JsonError as error:
        notes.append(f"contents[{index}]: values that JSON cannot say were replaced ({error})")
        return json_safe(content).value
    return content


def _sendable_parts(content: Mapping[str, Any], notes: list[str], index: int) -> list[Part]:
    """Return the parts that are not empty, in a form that can be sent. Bare text becomes a part."""
    given: Any = content.get("parts")
    listed: list[Any] = [*cast("list[Any]", given)] if isinstance(given, (list, tuple)) else [given] if given else []
    if not isinstance(given, list) and listed:
        notes.append(f"contents[{index}]: its parts were not a list")
    listed = [single for part in listed for single in _singles(part)]
    kept = [(part, fit) for part in listed if (fit := _fit(part)) is not None]
    if len(kept) != len(listed):
        notes.append(f"contents[{index}]: {len(listed) - len(kept)} part(s) that say nothing were left out")
    if changed := sum(fit is not part for part, fit in kept):
        notes.append(f"contents[{index}]: {changed} part(s) were brought into a form that can be sent")
    return [fit for _, fit in kept]


def _singles(part: Any) -> list[Any]:
    """Split a part with several kinds of data; what is no part at all stays as it is, to be left out."""
    return single_parts(cast("Part", part)) if isinstance(part, dict) and is_whole(cast("Part", part)) else [part]


def _fit(part: Any) -> Part | None:
    """Return a part that can be sent, or None if there is nothing to send."""
    whole: Part = text_part(part) if isinstance(part, str) else part
    if not isinstance(cast("Any", whole), dict):
        return None
    if not is_whole(whole) or not (has_data(whole) or is_signed(whole)):
        return None
    return sendable_part(whole)


def _in_words(response: Part) -> list[Part]:
    """Convert a response to parts that are allowed anywhere in a user content."""
    return [text_part(response_as_text(response)), *response_media(response)]


def _joined(pieces: Iterable[Content], notes: list[str]) -> Iterator[Content]:
    """Join responses that were spread over several contents, and consecutive model contents."""
    last: Content | None = None
    kind, has_calls, is_joined = "", False, False
    for piece in pieces:
        piece_kind = "responses" if is_response(piece["parts"][0]) else piece["role"]
        piece_calls = bool(call_parts(piece))
        # Calls end a content, because their responses come next; but consecutive calls were made together.
        if last is not None and kind == piece_kind != "user" and (piece_calls or not has_calls):
            notes.append(f"two {last['role']} contents in a row were joined")
            if not is_joined:
                last, is_joined = {**last, "parts": [*last["parts"]]}, True
            last["parts"] += piece["parts"]
        else:
            if last is not None:
                yield last
            last, kind, is_joined = piece, piece_kind, False
        has_calls = piece_calls
    if last is not None:
        yield last


def _is_responses(content: Content) -> bool:
    return all(map(is_response, content["parts"]))


def paired_responses(calls: Sequence[JsonObject], responses: Sequence[Part], missing: str) -> tuple[list[Part], list[Part]]:
    """Return one response part per call in call order, and the parts that answer none of them.

    A response belongs to the call with its id; without ids, or if they do not match, to the first call of its name.
    """
    waiting = dict(enumerate(responses))
    by_id, by_name = _places(responses, "id"), _places(responses, "name")

    def take(places: deque[int] | None) -> Part | None:
        while places:
            if (place := places.popleft()) in waiting:
                return waiting.pop(place)
        return None

    found = [take(by_id.get(call.get("id"))) for call in calls]
    found = [part or take(by_name.get(call.get("name"))) for call, part in zip(calls, found, strict=True)]
    return [answer_part(call, part, missing) for call, part in zip(calls, found, strict=True)], list(waiting.values())


def _places(responses: Sequence[Part], key: str) -> dict[Any, deque[int]]:
    places: dict[Any, deque[int]] = {}
    for place, part in enumerate(responses):
        if isinstance(value := response_of(part).get(key), str):
            places.setdefault(value, deque()).append(place)
    return places
