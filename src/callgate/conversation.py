"""The history of a conversation: contents in Gemini's form that can always be sent.

Contents come in, a valid history and its encoded bytes go out. Each content is encoded once, when it is added, and its bytes
are reused for every request; how contents are held is the business of `written.py`. This file knows nothing of tools or
models; it knows the rules of the wire:

1. the first content is the user's;
2. a content has at least one part, and no empty ones; calls have names and objects of arguments;
3. a content with function calls is followed by one user content that holds exactly one response per call, in call order,
   with the call's name, and its id if and only if the call has one;
4. responses stand nowhere else, and not beside other parts;
5. two model contents do not follow each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from callgate import strict_json
from callgate.errors import ConversationInvalid, JsonError, UsageError
from callgate.parts import (
    Prompt,
    answer_part,
    call_parts,
    from_elsewhere,
    has_data,
    is_call,
    is_response,
    is_said,
    is_signed,
    is_whole,
    parts_of,
    response_as_text,
    response_media,
    response_of,
    role_of,
    sendable_part,
    spelled_content,
    text_part,
    user_content,
)
from callgate.respond import json_safe
from callgate.types import Content, JsonObject, Part
from callgate.written import Written, WrittenAnswer, WrittenHistory

__all__ = ["Conversation", "is_user_turn", "repaired", "validate"]

INTERRUPTED = "The call was interrupted before it gave a result; whether it had any effect is not known."
CANCELLED = "The call was cancelled before it gave a result."


class Conversation:
    """A history that cannot become invalid by its own methods.

    ```python
    talk = Conversation()
    talk.add_user("Oslo and Rome?")
    talk.add_model(content)                      # as the model sent it
    talk.add_responses([part, part])             # one for each call
    talk.contents                                # what to send next
    ```
    """

    __slots__ = ("_open", "_origins", "_rewritten", "_writers", "_written", "repairs")

    def __init__(self, contents: Iterable[Mapping[str, Any]] = ()) -> None:
        self.repairs: tuple[str, ...] = ()
        """What had to be changed in the contents that it began with, or was left out of them."""
        self._written = Written()
        self._open: list[JsonObject] = []
        self._origins: list[str | None] = []
        self._writers: set[str | None] = set()
        self._rewritten: dict[tuple[int, bool, bool], bytes] = {}
        if contents:
            if isinstance(contents, (str, bytes, Mapping)) or not isinstance(cast("Any", contents), Iterable):
                raise UsageError(f"Conversation takes a list of contents, not {contents!r:.200}")
            kept, notes = repaired(contents)
            self.repairs = tuple(notes)
            for content in kept:
                self._append(content)
                if content["role"] == "model":
                    self._open = call_parts(content)
                    self._writers.add(None)

    def __len__(self) -> int:
        return len(self._origins)

    def __getitem__(self, index: int) -> Content:
        """One content. It is shared: treat it as read-only."""
        return self._written[index]

    @property
    def contents(self) -> list[Content]:
        """The history. The list is yours, the contents in it are shared: treat them as read-only."""
        return self.history.read()

    @property
    def history(self) -> WrittenHistory:
        """The contents as they are now, for somebody who may or may not want to read them later."""
        return self._written.history

    @property
    def encoded(self) -> Sequence[bytes]:
        """The JSON text of each content, in order, encoded once. A content keeps its bytes for as long as it is there."""
        return self._written.encoded

    @property
    def newest_user_turn(self) -> int | None:
        """The index of the last thing that the user said."""
        return next(filter(self._is_user_turn, range(len(self) - 1, -1, -1)), None)

    def is_model(self, index: int) -> bool:
        """Whether the content at the index is the model's; asking does not read it."""
        return self._written.is_model(index)

    def encoded_for(self, origin: str, *, vouch: bool = True) -> Sequence[bytes]:
        """As `encoded`, but as the model `origin` must see what other models wrote: without their signatures.

        A history that came from outside keeps its signatures. With `vouch`, calls that nobody signed are marked as not
        Gemini's own, which newer models ask for.
        """
        if self._writers <= {origin}:
            return self.encoded
        return tuple(map(self._seen_by(origin, vouch), range(len(self)), self.encoded))

    def _seen_by(self, origin: str, vouch: bool) -> Callable[[int, bytes], bytes]:
        def seen_by(index: int, encoded: bytes) -> bytes:
            written_by = self._origins[index]
            if written_by == origin or not self.is_model(index):
                return encoded
            key = (index, written_by is None, vouch)
            if key not in self._rewritten:
                content = self[index]
                seen = from_elsewhere(content, signed=written_by is None, vouch=vouch)
                self._rewritten[key] = encoded if seen == content else strict_json.dump(seen)
            return self._rewritten[key]

        return seen_by

    @property
    def last(self) -> Content | None:
        """The newest content, if there is one."""
        return self[-1] if len(self) else None

    @property
    def open_calls(self) -> list[JsonObject]:
        """The function calls of the newest content that have no responses yet."""
        return list(self._open)

    @property
    def size_bytes(self) -> int:
        """The length of the encoded history."""
        return self._written.size_bytes

    @property
    def bytes_encoded(self) -> int:
        """How many bytes were encoded in all; grows by what is new, not by the length of the history."""
        return self._written.bytes_encoded

    def add_user(self, prompt: Prompt) -> None:
        """Adds what the user said. Calls that are still open are answered as cancelled first."""
        content = user_content(prompt)
        if self._open:
            self.add_responses([], missing=CANCELLED)
        self._append(content)

    def add_said(self, content: Content) -> None:
        """As `add_user`, with a content that a journal holds. One of text alone is shared with it, others are read again."""
        parts = parts_of(content)
        if not parts or parts != content["parts"] or content.get("role") != "user" or not all(map(is_said, parts)):
            content = user_content(content["parts"])
        if self._open:
            self.add_responses([], missing=CANCELLED)
        self._append(content)

    def add_model(self, content: Mapping[str, Any], *, origin: str | None = None) -> None:
        """Adds an answer of the model as it came; only parts that say nothing and carry no signature are left out.

        Calls that could not be sent back get a name, arguments that are an object, and lose an id that is none. `origin`
        says which model wrote it, because its signatures are good for that one only.

        Raises:
            ConversationInvalid: the content says nothing, or it cannot stand here.
        """
        parts = parts_of(content) if isinstance(content, dict) else []
        is_text = bool(parts) and all(map(is_said, parts))
        if not is_text:
            # Only what is more than text may be spelled in another way, say nothing, or have to be put right.
            content = spelled_content(content)
            parts = [sendable_part(part) for part in parts_of(content) if has_data(part) or is_signed(part)]
        if not is_text and not any(map(has_data, parts)):
            raise ConversationInvalid(["a model content without parts cannot be stored"])
        if not self._origins or self.is_model(-1):
            raise ConversationInvalid([f"a model content at index {len(self)} must follow a user content"])
        added = {**content, "role": "model", "parts": parts}
        if not is_text and any(is_response(part) or not is_whole(part) for part in parts):
            raise ConversationInvalid([f"a model content at index {len(self)}: {breach}" for breach in _breaches(added)])
        self._append(added, origin)
        self._writers.add(origin)
        if not is_text:
            self._open = call_parts(added)

    def add_responses(self, responses: Sequence[Part], *, missing: str = INTERRUPTED) -> list[WrittenAnswer | None]:
        """Adds the answers to the open calls as one content, in call order; a call without one is answered by `missing`.

        Returns where each stands that is long and can be read again.

        Raises:
            ConversationInvalid: something is not a response, or belongs to no open call.
        """
        if not self._open:
            raise ConversationInvalid([f"responses at index {len(self)} follow no function call"])
        responses = cast("list[Part]", spelled_content({"parts": list(responses)})["parts"])
        if breaches := [breach for part in responses for breach in _not_a_response(part)]:
            raise ConversationInvalid([f"responses at index {len(self)}: {breach}" for breach in breaches])
        paired, rest = _paired(self._open, [*map(sendable_part, responses)], missing)
        if rest:
            names = ", ".join(repr(response_of(part).get("name")) for part in rest)
            raise ConversationInvalid([f"response(s) to {names} at index {len(self)} answer no open call"])
        places = self._written.add_answers(paired)
        self._origins.append(None)
        self._open = []
        return places

    def cut(self, length: int) -> None:
        """Drops every content from index `length` on, so that a turn that came to nothing leaves no trace."""
        self._keep(slice(0, length))
        self._open = call_parts(self[-1]) if len(self) and self.is_model(-1) else []

    def trim(self, bytes_max: int) -> int:
        """Drops whole turns from the front until the history fits; the newest turn always stays. Returns how many contents.

        Cuts only where the user said something, so calls and their responses stay together.
        """
        dropped = self.cut_for(bytes_max)
        self.shorten(dropped)
        return dropped

    def cut_for(self, bytes_max: int) -> int:
        """How many contents must go from the front so that the rest fits; as many as can go if it does not fit anyway.

        The cut is where the user said something, so calls and their responses stay together; the newest turn stays.
        """
        size, dropped, encoded = self.size_bytes, 0, self.encoded
        for start in filter(self._is_user_turn, range(1, len(self))):
            if size <= bytes_max:
                break
            size -= sum(map(len, encoded[dropped:start]))
            dropped = start
        return dropped

    def shorten(self, dropped: int, summary: str | None = None) -> None:
        """Leaves out the first `dropped` contents, which end before something that the user said.

        A summary of them, if there is one, becomes a user content in their place.
        """
        self._keep(slice(dropped, None))
        if summary is not None:
            self._written.put_first(user_content(summary))
            self._origins.insert(0, None)

    def _keep(self, kept: slice) -> None:
        self._written.keep(kept)
        self._origins = self._origins[kept]
        self._rewritten.clear()

    def _is_user_turn(self, index: int) -> bool:
        return not self._written.is_answers(index) and not self.is_model(index)

    def _append(self, content: Content, origin: str | None = None) -> None:
        self._written.add(content)
        self._origins.append(origin)
        self._open = []


def is_user_turn(content: Mapping[str, Any]) -> bool:
    """Whether the content is something the user said, rather than responses to calls."""
    return role_of(content) == "user" and not any(map(is_response, parts_of(content)))


def validate(contents: Sequence[Mapping[str, Any]], *, sendable: bool = False) -> list[str]:
    """Every breach of the rules as a sentence with its place; an empty list means valid.

    With `sendable` the history must also be one that can be sent now: not empty, no call unanswered, the user's word last.
    """
    problems: list[str] = []
    calls: list[JsonObject] = []
    before: Any = "model"
    for index, content in enumerate(contents):
        if not isinstance(cast("Any", content), Mapping):
            problems.append(f"contents[{index}]: not an object")
            continue
        problems += [f"contents[{index}]: {breach}" for breach in _breaches(content)]
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


def _breaches(content: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a content by itself."""
    parts = parts_of(content)
    role = content.get("role")
    responses = sum(map(is_response, parts))
    if role not in ("user", "model"):
        yield f"role {role!r} is not 'user' or 'model'"
    if not any(map(has_data, parts)):
        yield "no part says anything"
    elif not all(has_data(part) or is_signed(part) for part in parts):
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
    """What is wrong between the calls of a content and the responses of the next one."""
    if len(calls) != len(responses):
        yield f"{len(responses)} function response(s) for {len(calls)} function call(s)"
        return
    for call, response in zip(calls, responses, strict=True):
        if (call.get("name"), call.get("id")) != (response.get("name"), response.get("id")):
            yield f"the response to {response.get('name')!r} does not answer the call of {call.get('name')!r} in its place"


def _not_a_response(part: Any) -> Iterator[str]:
    if not isinstance(part, dict) or not is_response(cast("Part", part)) or not is_whole(cast("Part", part)):
        yield "a part is not a function response"


def repaired(contents: Iterable[Mapping[str, Any]]) -> tuple[list[Content], list[str]]:
    """A valid history that says as much of the given one as can be said, and notes on what had to be changed.

    Foreign roles are translated, empty parts left out, responses put behind their calls in order, missing responses made up
    (as errors that say so), orphaned responses turned into text. A valid history comes back unchanged, part by part.
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
        paired, orphans = _paired(unanswered, answers, INTERRUPTED)
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
    """Each content with a legal role and without empty parts; responses and other parts come as contents of their own."""
    for index, written in enumerate(contents):
        given: Any = spelled_content(written)
        if not isinstance(given, Mapping):
            notes.append(f"contents[{index}]: left out, because it is not an object")
            continue
        if given is not written:
            notes.append(f"contents[{index}]: its fields were given the names that they have on the wire")
        content = _writable(cast("Mapping[str, Any]", given), notes, index)
        kept = _kept_parts(content, notes, index)
        role = "model" if any(map(is_call, kept)) or role_of(content) == "model" else "user"
        if content.get("role", role) != role:
            notes.append(f"contents[{index}]: the role {content['role']!r} was read as {role!r}")
        # Responses answer what was called before; only those that stand behind a call may answer that one.
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
    """The content itself if it can be written as JSON, else the nearest one that can."""
    try:
        strict_json.dump(content)
    except JsonError as error:
        notes.append(f"contents[{index}]: values that JSON cannot say were replaced ({error})")
        return json_safe(content).value
    return content


def _kept_parts(content: Mapping[str, Any], notes: list[str], index: int) -> list[Part]:
    """The parts that say something, in a form that can be sent. Bare text, as some systems write it, becomes a part."""
    given: Any = content.get("parts")
    listed: list[Any] = [*cast("list[Any]", given)] if isinstance(given, (list, tuple)) else [given] if given else []
    if not isinstance(given, list) and listed:
        notes.append(f"contents[{index}]: its parts were not a list")
    kept = [(part, fit) for part in listed if (fit := _fit(part)) is not None]
    if len(kept) != len(listed):
        notes.append(f"contents[{index}]: {len(listed) - len(kept)} part(s) that say nothing were left out")
    if changed := sum(fit is not part for part, fit in kept):
        notes.append(f"contents[{index}]: {changed} part(s) were brought into a form that can be sent")
    return [fit for _, fit in kept]


def _fit(part: Any) -> Part | None:
    """A part that can be sent, or None where there is nothing to send."""
    whole: Part = text_part(part) if isinstance(part, str) else part
    if not isinstance(cast("Any", whole), dict):
        return None
    if not is_whole(whole) or not (has_data(whole) or is_signed(whole)):
        return None
    return sendable_part(whole)


def _in_words(response: Part) -> list[Part]:
    """What a response said, as parts that may stand anywhere in a user content."""
    return [text_part(response_as_text(response)), *response_media(response)]


def _joined(pieces: Iterable[Content], notes: list[str]) -> Iterator[Content]:
    """Responses that were spread over several contents become one, and so do model contents in a row."""
    last: Content | None = None
    kind, has_calls, is_joined = "", False, False
    for piece in pieces:
        piece_kind = "responses" if is_response(piece["parts"][0]) else piece["role"]
        piece_calls = bool(call_parts(piece))
        # Calls close a content, because their responses come next; but calls in a row were made at once.
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


def _paired(calls: Sequence[JsonObject], responses: Sequence[Part], missing: str) -> tuple[list[Part], list[Part]]:
    """One response part per call in call order, and the parts that answer none of them.

    A response belongs to the call with its id; without ids, or where they do not meet, to the first call of its name.
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
