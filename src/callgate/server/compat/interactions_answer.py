"""An answer in the form of the Interactions API: parts and metadata in, steps and events out.

Every event has an id that says how far the answer has come: the number of its step and the characters of it. So a stream can
be resumed after any event, whether it is read from a run or from a journal.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from callgate import strict_json
from callgate.content.metadata import MetadataCollector, metadata_of, server_step
from callgate.content.read import (
    call_of,
    candidate_of,
    content_of,
    finish_of,
    is_call,
    is_thought,
    parts_of,
    signature_of,
    usage_of,
)
from callgate.events import plain
from callgate.interactions.steps import content_item
from callgate.metadata import Citation, ServerStep
from callgate.server.compat.annotations import extra_fields
from callgate.server.compat.streaming import WholeAnswer
from callgate.server.errors import HttpError
from callgate.strict_json import objects_in
from callgate.types import JsonObject, Part, Usage

__all__ = [
    "EventWriter",
    "WholeWriter",
    "events_of",
    "head_of",
    "reported_fields",
    "status_fields",
    "steps_of",
    "usage_json",
]

DONE = b"event: done\ndata: [DONE]\n\n"
_COUNTS = {
    "total_input_tokens": "input_tokens", "total_cached_tokens": "cached_tokens", "total_output_tokens": "output_tokens",
    "total_thought_tokens": "thought_tokens", "total_tool_use_tokens": "tool_tokens", "total_tokens": "total_tokens",
}  # fmt: skip
_GROWING = ("model_output", "thought")
"""Steps that neighbours of their kind are joined to; every other part is a step of its own."""
_SERVER_TOOLS = {
    "google_search_web": "google_search", "google_search_image": "google_search", "url_context": "url_context",
    "google_maps": "google_maps", "file_search": "file_search",
}  # fmt: skip
_STATES = {"running": "in_progress", "interrupted": "in_progress", "approval_needed": "requires_action"}
_EVENT_ID = re.compile(r"(created|completed|[0-9]{1,9}\.(?:[0-9]{1,12}|stop))")
_FAR = 10**13


def head_of(model: str, id: str, *, at_s: float = 0) -> JsonObject:
    """The fields that every form of an interaction begins with; it was created at `at_s`, or now."""
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s or None))
    return {"id": id, "object": "interaction", "created": created, "updated": created, "model": model}


def status_fields(reason: str, *, has_calls: bool) -> JsonObject:
    """The status of an interaction that ended with this finish reason, with the error if it is one."""
    if reason in ("STOP", ""):
        return {"status": "requires_action" if has_calls else "completed"}
    if reason == "MAX_TOKENS":
        return {"status": "incomplete"}
    if reason in ("cancelled", "CANCELLED"):
        return {"status": "cancelled"}
    errors = [{"code": reason.lower(), "message": f"It ended with {reason}."}]
    return {"status": _STATES.get(reason, "failed"), "errors": errors}


def usage_json(usage: Usage | None) -> JsonObject:
    """Tokens in the words of the API."""
    return {theirs: getattr(usage or Usage(), ours) for theirs, ours in _COUNTS.items()}


# Steps -------------------------------------------------------------------------------------------------------------------


def steps_of(parts: Iterable[Part], raw: Sequence[Mapping[str, Any]] = ()) -> list[JsonObject]:
    """The steps of an answer: neighbours of one kind are one step, and passages with sources are annotated."""
    steps: list[JsonObject] = []
    said = [*parts]
    for part in said:
        if (signature := signature_of(part)) is not None:
            _sign(steps, signature)
        if _is_bare(part):
            continue
        kind, delta = _delta(part)
        if kind not in _GROWING:
            steps += [{"type": kind, **delta}] if kind else []
            continue
        field = "summary" if kind == "thought" else "content"
        if not steps or steps[-1]["type"] != kind or "signature" in steps[-1]:
            steps.append({"type": kind, field: []})
        items = steps[-1][field]
        if items and items[-1]["type"] == "text" and delta["type"] == "text":
            items[-1] = {"type": "text", "text": items[-1]["text"] + delta["text"]}
        else:
            items.append(delta)
    _annotate(steps, _citations(said, raw))
    return steps


def _sign(steps: list[JsonObject], signature: str) -> None:
    """Put a signature on the thought before a part: the newest step, or a new one."""
    if not steps or steps[-1]["type"] != "thought" or "signature" in steps[-1]:
        steps.append({"type": "thought"})
    steps[-1]["signature"] = signature


def _is_bare(part: Part) -> bool:
    """True if a part is nothing but its signature."""
    return part.get("text") == "" and signature_of(part) is not None


def _citations(parts: Sequence[Part], raw: Sequence[Mapping[str, Any]]) -> Sequence[Citation]:
    metadata = metadata_of(raw, {"parts": [*parts]}) if raw else None
    return () if metadata is None else metadata.citations


def _annotate(steps: Sequence[JsonObject], citations: Sequence[Citation]) -> None:
    place = 0
    for step in steps if citations else ():
        for item in step["content"] if step["type"] == "model_output" else ():
            if item["type"] == "text":
                if notes := _annotations(item["text"], place, citations):
                    item["annotations"] = notes
                place += len(item["text"])


def _annotations(text: str, place: int, citations: Sequence[Citation]) -> list[JsonObject]:
    """The annotations of a text that begins at this place of the answer; their positions count its bytes."""
    return [
        {
            "type": "url_citation", "url": source.uri, "title": source.title or source.uri,
            "start_index": len(text[: citation.start - place].encode()),
            "end_index": len(text[: citation.end - place].encode()),
        }
        for citation in citations
        if citation.start is not None and citation.end is not None and place <= citation.start < citation.end
        if citation.end <= place + len(text)
        for source in citation.sources
        if source.is_link
    ]  # fmt: skip


def _delta(part: Part) -> tuple[str, JsonObject]:
    """The kind of step that a part belongs to, and what it adds to one."""
    if is_call(part):
        call = call_of(part)
        return "function_call", {"id": call.get("id"), "name": call.get("name"), "arguments": call.get("args") or {}}
    if (step := server_step(part)) is not None:
        return _server_step(step)
    return ("thought" if is_thought(part) else "model_output"), content_item(part)


def _server_step(step: ServerStep) -> tuple[str, JsonObject]:
    """A step at the provider as this API has it; of one that it does not have (see `reported_fields`) nothing."""
    value, id = step.value, step.id or step.tool
    if step.kind == "code":
        code = {"code": value.get("code"), "language": str(value.get("language") or "python").lower()}
        return "code_execution_call", {"id": id, "arguments": code}
    if step.kind == "code_result":
        failed = {"is_error": True} if step.is_error else {}
        return "code_execution_result", {"call_id": id, "result": str(value.get("output") or ""), **failed}
    name = _SERVER_TOOLS.get(step.tool)
    if name is None:
        return "", {}
    if step.kind == "tool_call":
        return f"{name}_call", {"id": id, "arguments": value.get("args") or {}}
    response: Any = value.get("response")
    result: Any = cast("JsonObject", response).get("result") if isinstance(response, dict) else None
    found = objects_in(result) or ([cast("JsonObject", response)] if response else [])
    return f"{name}_result", {"call_id": id, "result": found}


def reported_fields(parts: Iterable[Part], raw: Sequence[Mapping[str, Any]]) -> JsonObject:
    """The field of an interaction for what was reported about its answer and has no other place in this API."""
    steps = (server_step(part) for part in parts if not is_call(part))
    return extra_fields(raw, [plain(step) for step in steps if step is not None and not _server_step(step)[0]])


# Events ------------------------------------------------------------------------------------------------------------------


def events_of(interaction: JsonObject, *, after: str = "") -> bytes:
    """The events of a whole interaction, or those after the one with this id.

    Raises:
        HttpError: there is no such event.
    """
    numbered = _Numbering(after)
    head = {key: value for key, value in interaction.items() if key not in ("steps", "usage")}
    events = [_created(head)]
    for index, step in enumerate(interaction["steps"]):
        events += _step_events(index, step)
    return numbered.encode([*events, _completed(interaction)]) + DONE


class _Numbering:
    """The ids of the events of one stream; those up to `after` are left out.

    Raises:
        HttpError: no event has such an id.
    """

    def __init__(self, after: str = "") -> None:
        if after and not _EVENT_ID.fullmatch(after):
            raise HttpError(400, "invalid_request", f"last_event_id: there is no event {after[:100]!r}")
        self._after = _place_of(after) if after else (-2, 0)
        self._chars = 0

    def encode(self, events: Iterable[JsonObject]) -> bytes:
        """The bytes of events that the client has not seen."""
        return b"".join(_sse(event) for event in map(self._numbered, events) if event is not None)

    def _numbered(self, event: JsonObject) -> JsonObject | None:
        kind, index = event["event_type"], event.get("index", 0)
        start = self._chars
        if kind == "step.delta":
            text = _text_in(event["delta"])
            self._chars += len(text) if text is not None else 1
            id = f"{index}.{self._chars}"
        else:
            self._chars = 0
            words = {"interaction.created": "created", "interaction.completed": "completed"}
            id = words.get(kind) or (f"{index}.0" if kind == "step.start" else f"{index}.stop")
        place = _place_of(id)
        if place <= self._after:
            return None
        if kind == "step.delta" and self._after[0] == index and start < self._after[1]:
            event = {**event, "delta": _rest_of(event["delta"], self._after[1] - start)}
        return event | {"event_id": id}


def _place_of(id: str) -> tuple[int, int]:
    if id in ("created", "completed"):
        return (-1, 0) if id == "created" else (_FAR, 0)
    step, _, chars = id.partition(".")
    return int(step), _FAR if chars == "stop" else int(chars)


def _text_in(delta: JsonObject) -> str | None:
    kind = delta["type"]
    text = delta.get("text") if kind == "text" else delta.get("arguments") if kind == "arguments_delta" else None
    if kind == "thought_summary":
        text = delta["content"].get("text")
    return text if isinstance(text, str) else None


def _rest_of(delta: JsonObject, seen: int) -> JsonObject:
    """A delta without the characters that the client has seen."""
    text = (_text_in(delta) or "")[seen:]
    if delta["type"] == "thought_summary":
        return {**delta, "content": {**delta["content"], "text": text}}
    return {**delta, ("arguments" if delta["type"] == "arguments_delta" else "text"): text}


def _sse(event: JsonObject) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event["event_type"].encode(), strict_json.dump(event))


def _created(head: JsonObject) -> JsonObject:
    return {"event_type": "interaction.created", "interaction": head | {"status": "in_progress"}}


def _completed(found: JsonObject) -> JsonObject:
    rest = {key: value for key, value in found.items() if key != "steps"}
    return {"event_type": "interaction.completed", "interaction": rest}


def _step_events(index: int, step: JsonObject) -> Iterator[JsonObject]:
    """The events of a whole step."""
    kind = step["type"]
    begun: JsonObject = {"type": kind}
    if kind in _GROWING:
        deltas: list[JsonObject] = []
        for item in step.get("content", step.get("summary", ())):
            deltas.append(_written(kind, {key: value for key, value in item.items() if key != "annotations"}))
            deltas += _annotated(item.get("annotations"))
        deltas += [_signed(step["signature"])] if "signature" in step else []
    elif kind == "user_input":
        begun, deltas = step, []
    elif kind == "function_call":
        begun = {**step, "arguments": {}}
        deltas = [{"type": "arguments_delta", "arguments": strict_json.dump(step["arguments"]).decode()}]
    else:
        begun |= {name: step[name] for name in ("id", "call_id") if name in step}
        deltas = [{"type": kind} | {name: value for name, value in step.items() if name not in begun}]
    yield {"event_type": "step.start", "index": index, "step": begun}
    for delta in deltas:
        yield {"event_type": "step.delta", "index": index, "delta": delta}
    yield {"event_type": "step.stop", "index": index}


def _annotated(annotations: Any) -> list[JsonObject]:
    return [{"type": "text_annotation_delta", "annotations": annotations}] if annotations else []


def _signed(signature: str) -> JsonObject:
    return {"type": "thought_signature", "signature": signature}


def _written(kind: str, item: JsonObject) -> JsonObject:
    return {"type": "thought_summary", "content": item} if kind == "thought" else item


# Writers -----------------------------------------------------------------------------------------------------------------


class _Collected:
    """The parts of an answer, and how it ended."""

    def __init__(self, head: JsonObject) -> None:
        self.head = head
        self.parts: list[Part] = []
        self.has_calls = False
        self._reason = ""
        self._usage: Usage | None = None
        self._metadata = MetadataCollector()

    def take(self, chunk: JsonObject) -> list[Part]:
        said = parts_of(content_of(chunk))
        candidate = candidate_of(chunk)
        self.parts += said
        self.has_calls = self.has_calls or any(map(is_call, said))
        self._reason = finish_of(candidate)[0] or self._reason
        self._usage = usage_of(chunk) or self._usage
        self._metadata.feed(candidate)
        self._metadata.feed_response(chunk)
        return said

    @property
    def raw(self) -> Sequence[Mapping[str, Any]]:
        return self._metadata.raw

    @property
    def interaction(self) -> JsonObject:
        done = self.head | {"usage": usage_json(self._usage)} | status_fields(self._reason, has_calls=self.has_calls)
        return done | reported_fields(self.parts, self.raw)


class WholeWriter(WholeAnswer):
    """The chunks as one interaction."""

    def __init__(self, head: JsonObject) -> None:
        super().__init__()
        self._head = head

    def end(self) -> bytes:
        """All of it."""
        answer = _Collected(self._head)
        for chunk in self._chunks:
            answer.take(chunk)
        return strict_json.dump(answer.interaction | {"steps": steps_of(answer.parts, answer.raw)})


class EventWriter:
    """The chunks as events, or those after the event with this id.

    Raises:
        HttpError: there is no such event.
    """

    media_type = "text/event-stream"
    streams = True
    ping = b": ping\n\n"

    def __init__(self, head: JsonObject, *, after: str = "") -> None:
        self._answer = _Collected(head)
        self._numbering = _Numbering(after)
        self._kind: str = ""
        self._index = -1
        self._text: list[str] = []
        """The text of the step that is open."""
        self._place = 0
        """The characters of the answer before it."""
        self._has_begun = self._has_failed = False

    def begin(self) -> bytes:
        """The event that says that the interaction is in progress."""
        return self._numbering.encode(self._created())

    def _created(self) -> list[JsonObject]:
        has_begun, self._has_begun = self._has_begun, True
        return [] if has_begun else [_created(self._answer.head)]

    def feed(self, item: JsonObject) -> bytes:
        """The events of a chunk."""
        events = self._created()
        for part in self._answer.take(item):
            events += self._part(part)
        return self._numbering.encode(events)

    def _part(self, part: Part) -> Iterator[JsonObject]:
        if (signature := signature_of(part)) is not None:
            yield from self._sign(signature)
        if _is_bare(part):
            return
        kind, delta = _delta(part)
        if kind not in _GROWING:
            yield from self._stop()
            self._index += bool(kind)
            yield from _step_events(self._index, {"type": kind, **delta}) if kind else ()
            return
        if kind != self._kind:
            yield from self._stop()
            self._kind, self._index = kind, self._index + 1
            yield {"event_type": "step.start", "index": self._index, "step": {"type": kind}}
        if kind == "model_output" and delta["type"] == "text":
            self._text.append(delta["text"])
        yield {"event_type": "step.delta", "index": self._index, "delta": _written(kind, delta)}

    def _sign(self, signature: str) -> Iterator[JsonObject]:
        """Close the thought before a signed part with its signature; it is a step of its own if none is open."""
        if self._kind != "thought":
            yield from self._stop()
            self._kind, self._index = "thought", self._index + 1
            yield {"event_type": "step.start", "index": self._index, "step": {"type": "thought"}}
        yield {"event_type": "step.delta", "index": self._index, "delta": _signed(signature)}
        yield from self._stop()

    def _stop(self, *, is_last: bool = False) -> Iterator[JsonObject]:
        if not self._kind:
            return
        text, self._text = "".join(self._text), []
        if is_last and text:  # Sources are reported with the end of an answer.
            notes = _annotations(text, self._place, _citations(self._answer.parts, self._answer.raw))
            for delta in _annotated(notes):
                yield {"event_type": "step.delta", "index": self._index, "delta": delta}
        self._place += len(text)
        yield {"event_type": "step.stop", "index": self._index}
        self._kind = ""

    def end(self) -> bytes:
        """The end of the interaction."""
        if self._has_failed:
            return DONE
        events = [*self._created(), *self._stop(is_last=True), _completed(self._answer.interaction)]
        return self._numbering.encode(events) + DONE

    def failed(self, problem: JsonObject) -> bytes:
        """An error as an event."""
        self._has_failed = True
        return _sse({"event_type": "error", **problem})
