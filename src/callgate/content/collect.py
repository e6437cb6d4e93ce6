"""Collect function calls from whole and streamed answers, with one collector for both.

Takes response chunks in Gemini's form; returns events, and at the end one `ModelResponse` with its content and calls. A
whole answer is a stream of one chunk. Knows nothing of tools: it does not know which names exist, and it checks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from callgate.content.build import with_args, with_text, without_stream_fields
from callgate.content.metadata import (
    MetadataCollector,
    made_media,
    metadata_of,
    server_step,
    server_steps_of,
)
from callgate.content.normalize import UNREADABLE, single_parts, spelled_content
from callgate.content.partial_args import PartialArguments, will_continue
from callgate.content.read import (
    INTERACTION,
    CandidateChoice,
    block_of,
    block_ratings_of,
    call_of,
    finish_of,
    has_data,
    has_feedback,
    is_call,
    is_piece,
    is_response,
    is_sound_text,
    is_thought,
    model_version_of,
    partial_args_of,
    parts_of,
    same_kind_of_text,
    text_of,
    usage_of,
)
from callgate.content.read_call import (
    CleanPart,
    clean_part,
    excess_of,
    new_call_id,
    read_call,
    sound_fields,
    too_deep,
)
from callgate.errors import BlockedError, ProtocolError
from callgate.events import CallArgsDelta, CallProposed, Event, MediaReceived, ServerStepReported, TextDelta, ThoughtDelta
from callgate.metadata import AnswerMetadata
from callgate.types import Content, FunctionCall, JsonObject, Media, Part, Usage

if TYPE_CHECKING:
    from callgate.content.sounds import GrowingSound

__all__ = ["CALLS_MAX", "PARTIAL_CHARS_MAX", "RUNNABLE", "Collector", "ModelResponse", "function_calls"]

PARTIAL_CHARS_MAX = 1_000_000
"""Maximum length of the text kept of an aborted answer; more would double its memory."""

CALLS_MAX = 10_000
"""An answer with more calls than this is refused as a whole; no model means it."""

_TOO_MANY = f"the model's answer holds more than {CALLS_MAX} calls; nothing of it was run"

RUNNABLE = frozenset({"STOP", "MAX_TOKENS"})
"""The finish reasons of an answer whose calls may run; every other one, known or not, is an error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelResponse:
    """One complete answer of a model."""

    content: Content
    """The content as received, with text deltas joined; may have no parts."""
    calls: tuple[FunctionCall, ...]
    """The calls in the answer, in their order."""
    finish_reason: str
    """The provider's reason, such as `STOP`."""
    finish_message: str = ""
    """The provider's sentence about it, if it sent one."""
    usage: Usage = Usage()
    """Tokens of this request and its answer."""
    model: str | None = None
    """The version of the model that answered, if reported."""
    raw_metadata: tuple[JsonObject, ...] = ()
    """The metadata as received."""

    @property
    def metadata(self) -> AnswerMetadata | None:
        """Sources, citations, ratings and probabilities of the answer; None if nothing was reported."""
        return metadata_of(self.raw_metadata, self.content)

    @property
    def media(self) -> list[Media]:
        """Images, sounds and files that the model made."""
        return [media for part in parts_of(self.content) if (media := made_media(part)) is not None]

    @property
    def text(self) -> str:
        """The answer's text without thoughts."""
        return text_of(self.content)

    @property
    def calls_in_text(self) -> tuple[FunctionCall, ...]:
        """The calls that a model wrote as code into an answer which did not end in order."""
        if self.finish_reason == "STOP":
            return ()
        from callgate.content.salvage import salvaged_calls  # Few answers end in any other way.

        return tuple(salvaged_calls(self.finish_message or self.text))

    @property
    def is_empty(self) -> bool:
        """True if there is neither a call nor anything to show (thoughts alone are nothing)."""
        return not any(has_data(part) and not is_thought(part) for part in parts_of(self.content))


class Collector:
    """Assembler of the chunks of one answer, whatever a wire or a custom model puts into them.

    The result can be stored: `Conversation.add_model` accepts the content of every answer that is not empty. `new_id` is
    the source of call ids.

    ```python
    collector = Collector()
    for chunk in chunks:
        events = collector.feed(chunk)
    answer = collector.close()
    ```
    """

    def __init__(self, new_id: Callable[[], str] = new_call_id) -> None:
        self._new_id = new_id
        self.calls: list[FunctionCall] = []
        """The calls so far. None may run before `close` has returned the answer."""
        self._parts: list[Part] = []
        self._texts: list[str] = []
        self._sound: GrowingSound | None = None
        """The sound at the end of the answer so far, which may go on."""
        self._seen: dict[str, Part] = {}
        self._content: JsonObject = {}
        self._finish_reason: str | None = None
        self._finish_message = ""
        self._usage = Usage()
        self._model: str | None = None
        self._blocked: tuple[str, str] | None = None
        self._ratings: list[JsonObject] = []
        """The fields of the response beside its candidates."""
        self._announced: dict[str, FunctionCall] = {}
        """Calls whose arguments arrive as text, by their ids on the wire, until they are complete."""
        self._abandoned: list[FunctionCall] = []
        self._growing: PartialArguments | None = None
        """The arguments of the last call, while they are still streaming."""
        self._has_response = False
        """True if the model has written a function response, which only we may do."""
        self._metadata = MetadataCollector()
        self._chunks = 0
        self._is_plain = False
        """True if the newest chunk is known to be plain JSON."""
        self._choice = CandidateChoice()

    @property
    def text(self) -> str:
        """The text so far, without thoughts; of a very long one the beginning."""
        pieces: list[str] = []
        left = PARTIAL_CHARS_MAX
        for part in self._parts[: -1 if self._texts else None]:
            pieces.append(text_of({"parts": [part]})[:left])
            left -= len(pieces[-1])
        if self._texts and not is_thought(self._parts[-1]):
            for text in self._texts:
                if left <= 0:
                    break
                pieces.append(text[:left])
                left -= len(text)
        return "".join(pieces)

    @property
    def usage(self) -> Usage:
        """The tokens that were reported so far."""
        return self._usage

    @property
    def model(self) -> str | None:
        """The version of the model that answers, as far as it was reported."""
        return self._model

    def feed(self, chunk: Mapping[str, Any], *, is_plain: bool = False) -> list[Event]:
        """Add one response chunk and return its events.

        Only one candidate counts (see `CandidateChoice`); the first time that another is left out, a notice says so.
        `is_plain` says that the chunk is known to be plain JSON within the limits of a call, and need not be walked
        through.

        Raises:
            ProtocolError: the chunk is not an object, or the answer has too many calls.
        """
        if not isinstance(chunk, (dict, Mapping)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ProtocolError(f"a chunk of the answer is not an object but {type(chunk).__name__}", partial=self.text)
        self._chunks += 1
        self._is_plain = is_plain
        candidate = self._choice.of(chunk)
        events = self._feed(chunk, candidate)
        return [*notices, *events] if (notices := self._choice.notices()) else events

    def _feed(self, chunk: Mapping[str, Any], candidate: JsonObject) -> list[Event]:
        if len(chunk) > 1 or not candidate:
            # Most chunks of a stream have one candidate and nothing else; this is for the others.
            self._usage = usage_of(chunk) or self._usage
            self._model = model_version_of(chunk) or self._model
            self._metadata.feed_response(chunk)
            if has_feedback(chunk):
                self._blocked = block_of(chunk) or self._blocked
                self._ratings = block_ratings_of(chunk) or self._ratings
        reason, message = finish_of(candidate)
        self._finish_reason = reason or self._finish_reason
        self._finish_message = message or self._finish_message
        content: JsonObject | None = candidate.get("content")
        if len(candidate) > (content is not None) + ("index" in candidate) + ("finishReason" in candidate):
            self._metadata.feed(candidate)
        if not isinstance(content, dict):
            return self._end_sound() if reason else []
        if len(content) > 2 or "role" not in content or "parts" not in content:
            self._content |= sound_fields(content)
        events = [event for part in parts_of(content) for event in self._take(part)]
        if reason and self._sound is not None:
            events += self._end_sound()
        if INTERACTION in content:
            events = [*map(ServerStepReported, server_steps_of({INTERACTION: content[INTERACTION]})), *events]
        return events

    def announce(self, wire_id: str, name: str, text: str, *, is_first: bool) -> list[Event]:
        """Report a piece of the arguments of a call that is still being written. Only a chunk makes it a call.

        Raises:
            ProtocolError: the answer has too many calls.
        """
        events: list[Event] = []
        if is_first and (begun := self._announced.pop(wire_id, None)) is not None:
            self._abandoned.append(begun)
        call = self._announced.get(wire_id)
        if call is None:
            if len(self._announced) + len(self._abandoned) >= CALLS_MAX:
                raise ProtocolError(_TOO_MANY)
            call = self._announced[wire_id] = FunctionCall(name=name, args={}, id=self._new_id(), wire_id=wire_id)
            events.append(CallProposed(call))
        return [*events, CallArgsDelta(call.id, text)] if text else events

    @property
    def incomplete(self) -> list[FunctionCall]:
        """The calls that were announced, and that no chunk has completed."""
        return [*self._abandoned, *self._announced.values()]

    def take_calls(self, content: Mapping[str, Any]) -> None:
        """Take the calls of a content that is all there is: what is not complete in it never will be."""
        for part in parts_of(content):
            self._seen.clear()  # Each part is delivered once: the answer to the content answers all of its parts.
            if not is_sound_text(part) and is_call((clean := clean_part(part)).part):
                self._take_call(clean)
        self._cut_off()

    def _cut_off(self) -> None:
        if self._growing is not None:
            self._complete(problem="The call was cut off before its arguments were complete.")

    def close(self) -> ModelResponse:
        """Return the complete answer.

        Raises:
            BlockedError: the prompt was refused.
            ProtocolError: there was no answer at all, it ended without a finish reason, or it contains a function response.
        """
        if self._blocked and self._finish_reason is None:
            reason, message = self._blocked
            told = f"the prompt was blocked ({reason})" + (f": {message}" if message else "")
            raise BlockedError(told, reason=reason, ratings=self._ratings)
        if self._finish_reason is None:
            why = "ended early: it has no finish reason" if self._chunks else "is empty"
            raise ProtocolError(f"the model's answer {why}; nothing of it was run", partial=self.text, retryable=True)
        self._flush()
        self._end_sound()
        self._cut_off()
        if self._has_response:
            why = "holds a function response, which is not the model's to give"
            raise ProtocolError(f"the model's answer {why}; nothing of it was run", partial=self.text, retryable=True)
        return ModelResponse(
            content={**self._content, "role": "model", "parts": list(self._parts)},
            calls=tuple(self.calls),
            finish_reason=self._finish_reason,
            finish_message=self._finish_message,
            usage=self._usage,
            model=self._model,
            raw_metadata=self._metadata.raw,
        )

    def _take(self, part: Part) -> list[Event]:
        if self._sound is not None:
            return self._after_sound(self._sound, part)
        if is_sound_text(part):
            return self._take_text(part) if part["text"] else []  # An empty delta must not keep its neighbours apart.
        if len(singles := single_parts(part)) > 1:
            return [event for single in singles for event in self._take(single)]
        clean = clean_part(part, is_plain=self._is_plain)
        part = clean.part
        if is_response(part):
            self._has_response = True
        elif is_call(part):
            return self._take_call(clean)
        elif is_sound_text(part):
            return self._take(part)
        elif (sound := _sound_in(part)) is not None:
            self._flush()
            self._sound = sound
        elif part:
            self._flush()
            self._parts.append(part)
            return [_delta_of(part, part["text"])] if part.get("text") else _events_of(part)
        return []

    def _after_sound(self, sound: GrowingSound, part: Part) -> list[Event]:
        """Take the part that follows a piece of a sound: the next piece, or something else."""
        clean = clean_part(part).part
        if not clean or (is_sound_text(clean) and not clean["text"]):
            return []
        if sound.is_piece(clean) and sound.take(clean):
            return []
        ended = self._end_sound()
        return [*ended, *self._take(part)]

    def _end_sound(self) -> list[Event]:
        """Put a sound that is complete into the answer."""
        sound, self._sound = self._sound, None
        parts = [] if sound is None else sound.parts()
        self._parts += parts
        return [event for part in parts for event in _events_of(part)]

    def _take_text(self, part: Part) -> list[Event]:
        if self._texts and not same_kind_of_text(self._parts[-1], part):
            self._flush()
        if not self._texts:
            self._parts.append(part)
        text = part["text"]
        self._texts.append(text)
        return [_delta_of(part, text)]

    def _take_call(self, clean: CleanPart) -> list[Event]:
        self._flush()
        if self._growing is not None:
            if not call_of(clean.part).get("name"):
                return self._grow(clean)
            self._complete(problem="The next call began before the arguments of this one were complete.")
        if is_piece(clean.part):
            return self._begin(clean)
        return self._add(*read_call(clean, self._new_id))

    def _begin(self, clean: CleanPart) -> list[Event]:
        """The first piece of a call whose arguments stream; it has the name, the id and the signature."""
        events = self._add(*read_call(replace(clean, part=without_stream_fields(clean.part)), self._new_id))
        if not events:
            return []
        self._growing = PartialArguments(self.calls[-1].args)
        return [*events, *self._grow(clean)]

    def _grow(self, clean: CleanPart) -> list[Event]:
        assert self._growing is not None
        call_id = self.calls[-1].id
        events: list[Event] = []
        try:
            if clean.problem:
                raise ValueError(clean.problem.removesuffix("."))
            for entry in partial_args_of(clean.part):
                text = self._growing.add(entry)
                events += [CallArgsDelta(call_id, text)] if text else []
        except ValueError as error:
            self._complete(problem=f"The arguments cannot be used: {error}.")
            return events
        if not will_continue(call_of(clean.part)):
            self._complete()
        return events

    def _complete(self, problem: str | None = None) -> None:
        """The arguments are all there, or will never be: the call takes its final form, in the answer as in the list."""
        assert self._growing is not None
        args = self._growing.args
        self._growing = None
        if bad := excess_of(args) or too_deep(args):
            args, problem = {UNREADABLE: bad}, f"The arguments cannot be used: {bad}."
        call = self.calls[-1] = replace(self.calls[-1], args=args, problem=self.calls[-1].problem or problem)
        place = next(i for i in range(len(self._parts) - 1, -1, -1) if is_call(self._parts[i]))
        self._parts[place] = with_args(self._parts[place], args)
        if call.wire_id is not None:
            self._seen[call.wire_id] = self._parts[place]

    def _add(self, call: FunctionCall, part: Part) -> list[Event]:
        if call.wire_id is not None:
            if self._seen.get(call.wire_id) == part:
                return []  # The same event was delivered twice.
            self._seen[call.wire_id] = part
        if len(self.calls) >= CALLS_MAX:
            raise ProtocolError(_TOO_MANY)
        self._parts.append(part)
        announced = self._announced.get(call.wire_id or "")
        if announced is not None and announced.name == call.name:
            del self._announced[announced.wire_id or ""]
            self.calls.append(replace(call, id=announced.id))
            return []
        self.calls.append(call)
        return [CallProposed(call)]

    def _flush(self) -> None:
        if not self._texts:
            return
        text = "".join(self._texts)
        if text is not self._texts[0]:  # A single piece of text is already complete in its part.
            self._parts[-1] = with_text(self._parts[-1], text)
        self._texts.clear()


def function_calls(answer: Any) -> list[FunctionCall]:
    """Return the function calls of a response, a content, a part, or an SDK object of one; each with an id of its own.

    All parts of the first candidate are read, in order (other candidates are alternative answers). A call without
    arguments has `{}`; unreadable arguments give a call with a `problem`, never an empty object. So do incomplete
    arguments, and the calls of an answer that did not end normally: none of them should run.

    Raises:
        TypeError: the argument is none of these.
        ProtocolError: there are too many calls.
    """
    plain = _plain_object(answer)
    candidate = {} if "parts" in plain else CandidateChoice().of(plain)
    content = spelled_content(plain if "parts" in plain else candidate.get("content"))
    if content is None:  # A lone part, then; or an empty response.
        content = spelled_content({"parts": [plain]})
    if not isinstance(content, dict):
        return []
    collector = Collector()
    collector.take_calls(cast("JsonObject", content))
    calls = collector.calls
    reason = finish_of(candidate)[0]
    if not reason or reason in RUNNABLE:
        return calls
    sentence = f"The model's answer did not end well ({getattr(reason, 'value', reason)}), so nothing of it was run."
    return [replace(call, problem=call.problem or sentence) for call in calls]


def _sound_in(part: Part) -> GrowingSound | None:
    """The sound that begins with a part, if it is one."""
    if "inlineData" not in part:
        return None
    from callgate.content.sounds import GrowingSound  # Most answers are text.

    return GrowingSound(part) if GrowingSound.is_piece(part) else None


def _delta_of(part: Part, text: str) -> Event:
    return ThoughtDelta(text) if is_thought(part) else TextDelta(text)


def _events_of(part: Part) -> list[Event]:
    """Return the event of a part that is neither text nor a call."""
    if (media := made_media(part)) is not None:
        return [MediaReceived(media)]
    return [] if (step := server_step(part)) is None else [ServerStepReported(step)]


def _plain_object(answer: Any) -> JsonObject:
    if isinstance(answer, Mapping):
        return dict(cast("Mapping[str, Any]", answer))
    dump = getattr(answer, "model_dump", None)
    if callable(dump):
        return cast("JsonObject", dump(mode="json", by_alias=True, exclude_none=True))
    raise TypeError(f"expected a response, a content, a part or an SDK object of one of these, not {type(answer).__name__}")
