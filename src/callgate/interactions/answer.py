"""Events of an interaction, or a whole one -> response chunks in Gemini's form.

Events come in as they arrive; text and thoughts go out at once, calls when the answer has ended and all of their pieces are
there. The steps are put together as the server means them, and go out with the last chunk, so that they can be given back.
Knows nothing of requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, ClassVar, cast

from callgate import strict_json
from callgate.content.build import say, text_part, thought_part, with_fields
from callgate.content.call_args import args_from_text
from callgate.content.normalize import is_wire_id
from callgate.errors import ProtocolError, ServerUnavailableError
from callgate.gemini.incoming import blocked
from callgate.interactions.citations import metadata_fields
from callgate.interactions.failures import ending_of, error_of
from callgate.interactions.record import Record, call_parts_of, parts_of_step
from callgate.request import PartialCall
from callgate.strict_json import objects_in
from callgate.types import JsonObject, Part, Usage
from callgate.wire.failures import Sent

__all__ = ["COMPLETE", "PENDING", "AnswerReader", "event_type_of", "is_visible", "status_of"]

PENDING = frozenset({"in_progress", "queued"})
"""Statuses of an interaction that goes on."""
COMPLETE = frozenset({"completed", "requires_action"})
"""Statuses of an interaction that ended as it should."""
CONTINUED = "requires_continuation"

# Any other status ends an answer under its own name, which is no success.
_REASONS = {"completed": "STOP", "requires_action": "STOP", "incomplete": "MAX_TOKENS"}
_ENDINGS = frozenset({*_REASONS, "failed", "cancelled", "budget_exceeded", CONTINUED})
_STATUS_EVENTS = {
    "interaction.in_progress": "in_progress", "interaction.requires_action": "requires_action",
    "interaction.failed": "failed", "interaction.cancelled": "cancelled",
}  # fmt: skip
_MEDIA = ("image", "audio", "video", "document")
_COUNTS = {
    "input_tokens": "total_input_tokens", "cached_tokens": "total_cached_tokens", "output_tokens": "total_output_tokens",
    "thought_tokens": "total_thought_tokens", "tool_tokens": "total_tool_use_tokens", "total_tokens": "total_tokens",
}  # fmt: skip
_SOUND = {"audio_tokens": "input_tokens_by_modality", "cached_audio_tokens": "cached_tokens_by_modality"}
_COUNT_MAX = 2**53
_DIGITS = re.compile(r"[0-9]{1,18}", re.ASCII)
_NOBODY = Sent(model="", tools=[], size_bytes=0)


def event_type_of(event: Mapping[str, Any]) -> str:
    """The type of an event: what it says of itself, else what its fields tell; empty for a whole interaction."""
    said = event.get("event_type")
    if isinstance(said, str) and said:
        return said
    if isinstance(event.get("delta"), dict):
        return "step.delta"
    if isinstance(event.get("step"), dict):
        return "step.start"
    if isinstance(inner := event.get("interaction"), dict):
        is_new = cast("JsonObject", inner).get("status") in (None, *PENDING)
        return "interaction.created" if is_new else "interaction.completed"
    if "error" in event and "steps" not in event and "status" not in event:
        return "error"
    if isinstance(event.get("index"), int):
        return "step.stop"
    return "interaction.status_update" if "interaction_id" in event else ""


def status_of(event: JsonObject) -> str | None:
    """The status of a whole interaction, or of the end of one."""
    kind = event_type_of(event)
    if kind == "":
        status: Any = event.get("status")
    elif kind == "interaction.completed":
        status = _object(event.get("interaction")).get("status") or "completed"
    elif kind in ("interaction.requires_action", "interaction.failed", "interaction.cancelled"):
        status = _STATUS_EVENTS[kind]
    else:
        return None
    return status if isinstance(status, str) else None


def is_visible(event: JsonObject) -> bool:
    """True if the event is something that a caller sees, or names an interaction that the server keeps."""
    kind = event_type_of(event)
    if kind == "step.delta":
        delta = _object(event.get("delta"))
        return bool(delta.get("text") or delta.get("arguments") or _object(delta.get("content")).get("text"))
    return kind == "interaction.created" and bool(_object(event.get("interaction")).get("id"))


class AnswerReader:
    """A reader that assembles one answer.

    Args:
        origin: The API, the surface and the model that sign the steps.
        seen: The hash of the history that is answered, if the server keeps the interaction.
        until: When the server forgets it, in seconds since 1970.
        is_behind: Whether it is a background run, which goes on as long as nothing says that it has ended.
    """

    def __init__(self, *, origin: str, seen: str = "", until: float = 0.0, is_behind: bool = False) -> None:
        self._origin = origin
        self._seen = seen
        self._until = until
        self._is_behind = is_behind
        self.id = ""
        """The id of the interaction, if the server keeps it."""
        self.last_event = ""
        """The id of the newest event, by which a stream can be resumed."""
        self.status: str | None = None
        self.token: str | None = None
        """The continuation token of an answer that goes on in another request."""
        self.is_over = False
        self.is_recorded = False
        """True if the end of the answer names its id."""
        self.has_said = False
        """True if a caller has seen anything of the answer but pieces of calls."""
        self.has_announced = False
        """True if a caller has seen pieces of a call."""
        self.progress = ""
        """The newest status, until it was reported."""
        self._before: list[JsonObject] = []
        """The steps of earlier requests for the same answer."""
        self._steps: dict[int, JsonObject] = {}
        self._args: dict[int, list[str]] = {}
        self._growing: dict[int, tuple[JsonObject, list[str]]] = {}
        """Items of text with their pieces, by the identity of the item."""
        self._stopped: set[int] = set()
        self._events: set[str] = set()
        self._shown: dict[tuple[int, str], int] = {}
        """Characters of each step that the caller has seen."""
        self._read: dict[tuple[int, str], int] = {}
        self._announced: dict[str, int] = {}
        """The step of each call that the caller has seen pieces of, by the call's id."""
        self._used = Usage()
        self._usage = Usage()
        self._model: str | None = None
        self._is_resumed = False
        self._is_chainable = True
        self._is_repaired = False
        """True if a call got an id here."""

    def resume(self) -> None:
        """Another stream of the same interaction follows: after the last event, or from its beginning."""
        self._is_resumed = True

    def go_on(self) -> None:
        """Another request follows, for the rest of the answer."""
        self._join_texts()
        self._before += [self._steps[index] for index in sorted(self._steps)]
        self._used += self._usage
        self._usage = Usage()
        self._steps, self._args, self._read, self._shown, self._announced = {}, {}, {}, {}, {}
        self._stopped, self._events = set(), set()
        self.status, self.token, self.is_over, self._is_resumed = None, None, False, False

    @property
    def usage(self) -> Usage | None:
        """The tokens so far; None if nobody has counted any."""
        return self._total()

    def count(self, interaction: JsonObject) -> None:
        """Take the tokens of a whole interaction, and nothing else of it."""
        self._count(interaction.get("usage"))

    @property
    def size(self) -> int:
        """The number of steps so far."""
        return len(self._before) + len(self._steps)

    def feed(self, event: JsonObject) -> Iterator[JsonObject | PartialCall]:
        """Read one event, or a whole interaction, and yield what is new in it.

        Raises:
            ModelError: the answer failed, or breaks the protocol.
        """
        if self.is_over:
            return  # The first end counts.
        event_id = event.get("event_id")
        if isinstance(event_id, str) and event_id:
            if event_id in self._events:
                return
            self._events.add(event_id)
            self.last_event = event_id
        kind = event_type_of(event)
        handle = self._HANDLERS.get(kind)
        if handle is not None:
            yield from handle(self, event)

    # Events ---------------------------------------------------------------------------------------------------------------

    def _created(self, event: JsonObject) -> Iterator[JsonObject]:
        if self._steps and self._is_resumed:
            self._start_over()
        self._head(_object(event.get("interaction")))
        yield from ()

    def _status(self, event: JsonObject) -> Iterator[JsonObject]:
        kind = event_type_of(event)
        status = event.get("status") or _STATUS_EVENTS.get(kind)
        self._count(event.get("usage"))
        if isinstance(status, str):
            self.progress = status if status != self.status else self.progress
            self.status = status
        self._take_token(event)
        if kind in ("interaction.requires_action", "interaction.failed", "interaction.cancelled"):
            yield from self._completed({"interaction": {"status": status} | _object(event.get("interaction"))})

    def _started(self, event: JsonObject) -> Iterator[JsonObject]:
        index, step = _index(event), _object(event.get("step"))
        if index in self._steps:
            if not self._is_resumed:
                raise ProtocolError(f"the answer begins its step {index} twice; nothing of it was run", retryable=True)
            self._restart(index)
        self._steps[index] = made = {**step}
        if not isinstance(made.get("type"), str):
            made["type"] = "model_output"
        # Whatever a step begins with is its first piece.
        for part in parts_of_step(made) if made["type"] in ("model_output", "thought") else ():
            yield from self._show(index, part)

    def _delta(self, event: JsonObject) -> Iterator[JsonObject | PartialCall]:
        index, delta = _index(event), _object(event.get("delta"))
        kind = delta.get("type")
        if not isinstance(kind, str):
            kind = "text" if isinstance(delta.get("text"), str) else ""
        self._count(_object(event.get("metadata")).get("total_usage"))
        if index in self._stopped or not delta:
            return
        if index not in self._steps:
            if kind == "arguments_delta":
                raise ProtocolError("the answer holds arguments of a call that never began; nothing of it was run")
            self._steps[index] = {"type": "thought" if kind.startswith("thought") else "model_output"}
        step = self._steps[index]
        if kind in _DELTAS:
            yield from _DELTAS[kind](self, index, step, delta)
        elif kind in _MEDIA:
            item = dict(delta)
            _contents_of(step, "content").append(item)
            for part in parts_of_step({"type": "model_output", "content": [item]}):
                yield from self._show(index, part)
        else:
            # Deltas of tools at the server replace, and what is unknown is kept.
            step |= {key: value for key, value in delta.items() if key != "type"}

    def _stop(self, event: JsonObject) -> Iterator[JsonObject]:
        index = _index(event)
        self._count(event.get("usage"))
        if index in self._steps and index not in self._stopped:
            self._stopped.add(index)
            self._finish_args(index)
        yield from ()

    def _completed(self, event: JsonObject) -> Iterator[JsonObject]:
        interaction = _object(event.get("interaction"))
        if not self._steps and interaction.get("steps"):
            yield from self._whole({"status": "completed", **interaction})  # No event had any of it.
            return
        self._head(interaction)
        self._count(interaction.get("usage"))
        self._take_token(interaction)
        for index in self._steps:
            if index not in self._stopped:
                self._finish_args(index)
        status = interaction.get("status") or "completed"
        yield from self._end(str(status), interaction)

    def _whole(self, interaction: JsonObject) -> Iterator[JsonObject]:
        """A whole interaction, which is all that a caller sees, or the rest of what it has seen."""
        status = interaction.get("status")
        if not isinstance(status, str) and "steps" not in interaction:
            return  # Not an interaction at all.
        self._head(interaction)
        self._count(interaction.get("usage"))
        self._take_token(interaction)
        before, self.status = self.status, status if isinstance(status, str) else "completed"
        if self.status in PENDING or (self._is_behind and self.status not in _ENDINGS):
            self.progress = self.status if self.status != before else ""
            return
        self._start_over()
        steps = objects_in(interaction.get("steps"))
        # An interaction that is asked for later begins with what was said to it.
        while steps and steps[0].get("type") in ("user_input", "function_result"):
            steps.pop(0)
        for index, step in enumerate(steps):
            self._steps[index] = step
            self._finish_args(index)
            for part in parts_of_step(step) if step.get("type") in ("model_output", "thought") else ():
                yield from self._show(index, part)
        yield from self._end(self.status, interaction)

    def _error(self, event: JsonObject) -> Iterator[JsonObject]:
        """An error that ends the answer as a finish reason does."""
        error = _object(event.get("error"))
        ending = ending_of(error)
        self.is_over = True
        if ending is None:
            raise error_of(error, _NOBODY)
        reason, message = ending[0], str(error.get("message") or "")
        has_begun = self.has_said or any(step.get("type") != "thought" for step in self._steps.values())
        if ending[1] and not has_begun:
            yield blocked(reason, message, [])
        else:
            yield say(finish_reason=reason, finish_message=message, usage=self._total(), model=self._model)

    # Deltas ---------------------------------------------------------------------------------------------------------------

    def _text(self, index: int, step: JsonObject, delta: JsonObject) -> Iterator[JsonObject]:
        text = delta.get("text")
        if isinstance(text, str) and text:
            self._append(_contents_of(step, "content"), text)
            yield from self._show(index, text_part(text))

    def _summary(self, index: int, step: JsonObject, delta: JsonObject) -> Iterator[JsonObject]:
        content = _object(delta.get("content"))
        text = content.get("text")
        if isinstance(text, str) and text:
            self._append(_contents_of(step, "summary"), text)
            yield from self._show(index, thought_part(text))
        elif content:
            _contents_of(step, "summary").append(content)

    def _signature(self, index: int, step: JsonObject, delta: JsonObject) -> Iterator[JsonObject]:
        step["signature"] = delta.get("signature")
        yield from ()

    def _arguments(self, index: int, step: JsonObject, delta: JsonObject) -> Iterator[PartialCall]:
        piece: Any = delta.get("arguments", delta.get("partial_arguments"))
        if isinstance(piece, str):
            self._args.setdefault(index, []).append(piece)
            yield from self._announce(index, step, piece)
        elif isinstance(piece, dict):
            step["arguments"] = piece

    def _annotations(self, index: int, step: JsonObject, delta: JsonObject) -> Iterator[JsonObject]:
        contents = _contents_of(step, "content")
        if contents and contents[-1].get("type") == "text":
            contents[-1].setdefault("annotations", []).extend(objects_in(delta.get("annotations")))
        yield from ()

    # The end --------------------------------------------------------------------------------------------------------------

    def _end(self, status: str, interaction: JsonObject) -> Iterator[JsonObject]:
        self.status = status
        if status == CONTINUED and self.token:
            self.is_over = True
            return
        if status in PENDING or status not in _ENDINGS:
            raise ProtocolError(
                f"the answer ended with the status {status[:100]!r}, which is no end; nothing of it was run",
                retryable=self._is_behind,
            )
        self.is_over = True
        if status == "failed" and (yield from self._failed(interaction)):
            return
        steps = self._sound_steps()
        for step in steps:
            if step.get("type") == "model_output" and isinstance(error := step.get("error"), dict):
                yield from self._error({"error": cast("JsonObject", error)})
                return
        record = self._record(steps, status) if steps and not self._is_repaired else None
        self.is_recorded = record is not None and bool(record.id)
        end = say(
            call_parts_of(steps),
            finish_reason=_REASONS.get(status, status.upper()),
            usage=self._total(),
            model=self._model,
            interaction=None if record is None else record.to_json(),
        )
        yield with_fields(end, metadata_fields(steps))

    def _failed(self, interaction: JsonObject) -> Generator[JsonObject, None, bool]:
        errors = objects_in(interaction.get("errors"))
        error = errors[0] if errors else _object(interaction.get("error"))
        if not error:
            raise ServerUnavailableError("the server says that the interaction failed, and not why", retryable=True)
        yield from self._error({"error": error})
        return True

    def _sound_steps(self) -> list[JsonObject]:
        """The steps in order, with an id for every call, and none twice."""
        self._join_texts()
        steps = [*self._before, *(self._steps[index] for index in sorted(self._steps))]
        ids: set[str] = set()
        for place, step in enumerate(steps):
            if step.get("type") != "function_call":
                continue
            own = step.get("id")
            made = own if is_wire_id(own) and own not in ids else f"call_{place}"
            while made in ids:
                made += "_"
            if made != own:
                # The server knows the call by another id, or by none: it cannot take the signed steps back.
                steps[place] = {**step, "id": made}
                self._is_repaired = True
            if not isinstance(step.get("name"), str) or not isinstance(step.get("arguments", {}), dict):
                self._is_chainable = False
            ids.add(str(made))
        return steps

    def _record(self, steps: list[JsonObject], status: str) -> Record:
        # An open defect of the service: nothing can be chained to an answer that used a tool of its own, or whose thought
        # was not signed.
        is_safe = self._is_chainable and status in COMPLETE and all(map(_is_chainable, steps))
        seen = self._seen if is_safe and self.id else ""
        return Record(origin=self._origin, steps=steps, id=self.id, seen=seen, until=self._until if seen else 0.0)

    # Details --------------------------------------------------------------------------------------------------------------

    def _head(self, interaction: JsonObject) -> None:
        found, model = interaction.get("id"), interaction.get("model") or interaction.get("agent")
        if isinstance(found, str) and found:
            # After an id that changes in the middle, nobody knows which one is kept.
            self._is_chainable = self._is_chainable and self.id in ("", found)
            self.id = found
        self._model = model if isinstance(model, str) and model else self._model

    def _take_token(self, source: JsonObject) -> None:
        token = source.get("continuation_token")
        self.token = token if isinstance(token, str) and token else self.token

    def _count(self, usage: Any) -> None:
        counts = {ours: _number(_object(usage).get(theirs)) for ours, theirs in _COUNTS.items()}
        if any(counts.values()):
            sound = {ours: _sound_in(_object(usage).get(theirs)) for ours, theirs in _SOUND.items()}
            self._usage = Usage(**counts, **sound)

    def _total(self) -> Usage | None:
        total = self._used + self._usage
        return total if total != Usage() else None

    def _show(self, index: int, part: Part) -> Iterator[JsonObject]:
        """Yield a part, or as much of it as the caller has not seen."""
        text = part.get("text")
        if not isinstance(text, str):
            key, text = (index, "media"), "m"
        else:
            key = (index, "thought" if part.get("thought") else "text")
        unseen = self._unseen(key, text)
        if not unseen:
            return
        self._shown[key] = self._read[key]
        self.has_said = True
        yield say([part if unseen == text else {**part, "text": unseen}])

    def _unseen(self, key: tuple[int, str], text: str) -> str:
        """The rest of a piece that the caller has not seen."""
        start, self._read[key] = self._read.get(key, 0), self._read.get(key, 0) + len(text)
        return text[max(self._shown.get(key, 0) - start, 0) :]

    def _announce(self, index: int, step: JsonObject, piece: str) -> Iterator[PartialCall]:
        """Yield as much of a piece of arguments as the caller has not seen, if the call can be told from others."""
        key, (wire_id, name) = (index, "arguments"), (step.get("id"), step.get("name"))
        if step.get("type") != "function_call" or not is_wire_id(wire_id) or not isinstance(name, str) or not name:
            return
        if self._announced.setdefault(str(wire_id), index) != index:
            return  # A second call with the same id gets another one at the end.
        text, is_first = self._unseen(key, piece), key not in self._shown
        if text:
            self._shown[key] = self._read[key]
            self.has_announced = True
            sound = text if text.isascii() else text.encode("utf-8", "replace").decode()
            yield PartialCall(str(wire_id), name, sound, is_first)

    def _append(self, contents: list[JsonObject], text: str) -> None:
        """Add a piece of text to the last item. The pieces are joined at the end, so that a long text is copied once."""
        last = contents[-1] if contents else None
        if last is None or last.get("type") != "text" or not isinstance(last.get("text"), str):
            contents.append({"type": "text", "text": text})
        elif (growing := self._growing.get(id(last))) is not None:
            growing[1].append(text)
        else:
            self._growing[id(last)] = (last, [last["text"], text])

    def _join_texts(self) -> None:
        for item, pieces in self._growing.values():
            item["text"] = "".join(pieces)
        self._growing.clear()

    def _finish_args(self, index: int) -> None:
        step = self._steps[index]
        if step.get("type") != "function_call":
            return
        pieces, given = self._args.get(index), step.get("arguments")
        if pieces:
            step["arguments"] = args_from_text("".join(pieces))
        elif isinstance(given, str):
            step["arguments"] = args_from_text(given)
        elif given is None:
            step["arguments"] = {}
        if isinstance(step["arguments"], dict) and not strict_json.is_sound(step["arguments"]):
            self._is_chainable = False

    def _start_over(self) -> None:
        for index in [*self._steps]:
            self._restart(index)
        self._steps.clear()
        self._growing.clear()

    def _restart(self, index: int) -> None:
        self._args.pop(index, None)
        self._stopped.discard(index)
        for key in [key for key in self._read if key[0] == index]:
            del self._read[key]

    _HANDLERS: ClassVar[dict[str, Callable[[AnswerReader, JsonObject], Iterator[JsonObject | PartialCall]]]] = {
        "": _whole,
        "interaction.created": _created,
        "interaction.status_update": _status,
        **dict.fromkeys(_STATUS_EVENTS, _status),
        "step.start": _started,
        "step.delta": _delta,
        "step.stop": _stop,
        "interaction.completed": _completed,
        "error": _error,
    }


_DELTAS: dict[str, Callable[[Any, int, JsonObject, JsonObject], Iterator[JsonObject | PartialCall]]] = {
    "text": AnswerReader._text,  # pyright: ignore[reportPrivateUsage]
    "thought_summary": AnswerReader._summary,  # pyright: ignore[reportPrivateUsage]
    "thought_signature": AnswerReader._signature,  # pyright: ignore[reportPrivateUsage]
    "arguments_delta": AnswerReader._arguments,  # pyright: ignore[reportPrivateUsage]
    "text_annotation_delta": AnswerReader._annotations,  # pyright: ignore[reportPrivateUsage]
    "text_annotation": AnswerReader._annotations,  # pyright: ignore[reportPrivateUsage]
}


def _object(value: Any) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _index(event: JsonObject) -> int:
    return _whole_number(event.get("index")) or 0


def _number(value: Any) -> int:
    found = _whole_number(value)
    return found if found is not None and 0 < found <= _COUNT_MAX else 0


def _whole_number(value: Any) -> int | None:
    """A number, or the text of one: Google's JSON has numbers of 64 bits as texts."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _contents_of(step: JsonObject, field: str) -> list[JsonObject]:
    given: Any = step.get(field)
    if isinstance(given, str):
        step[field] = [{"type": "text", "text": given}] if given else []
    elif not isinstance(given, list):
        step[field] = []
    elif given and not all(isinstance(item, dict) for item in cast("list[Any]", given)):
        step[field] = objects_in(given)
    return step[field]


def _is_chainable(step: JsonObject) -> bool:
    kind = step.get("type")
    if kind == "thought":
        return bool(step.get("signature"))
    return kind in ("model_output", "function_call")


def _sound_in(counted: Any) -> int:
    """Return the tokens of sound in counts by modality."""
    sounds = [entry for entry in objects_in(counted) if str(entry.get("modality")).lower() == "audio"]
    return sum(_number(entry.get("tokens")) for entry in sounds)
