"""The record of an answer: what the Interactions API wrote, and wants back unchanged.

It stays in the history beside the parts of a model content. Steps in, parts out, and the question whether a content is still
the one that the record was made with. Nothing is sent here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from callgate import strict_json
from callgate.content.build import call_from, part_of_media, text_part, thought_part
from callgate.content.normalize import is_wire_id
from callgate.content.read import call_of, interaction_of, is_call, is_thought, parts_of
from callgate.strict_json import objects_in
from callgate.types import Content, JsonObject, Part

__all__ = ["Record", "call_parts_of", "fold", "parts_of_step", "records_of"]

_MEDIA = ("image", "audio", "video", "document")


class Record:
    """The record of one answer.

    `steps` are the server's own, in order; `origin` is the API, the surface and the model that signed them. `id` is the
    interaction's, and `seen` a hash of the history that it answered, if the server keeps both until `until` (seconds since
    1970).
    """

    __slots__ = ("id", "origin", "seen", "steps", "until")

    def __init__(
        self, *, origin: str, steps: Sequence[JsonObject], id: str = "", seen: str = "", until: float = 0.0
    ) -> None:
        self.origin = origin
        self.steps = list(steps)
        self.id = id
        self.seen = seen
        self.until = until

    def to_json(self) -> JsonObject:
        """The record as it is stored."""
        state = {"seen": self.seen, "until": self.until} if self.seen else {}
        return {"origin": self.origin} | ({"id": self.id} if self.id else {}) | state | {"steps": self.steps}

    @classmethod
    def of(cls, content: Content) -> Record | None:
        """The record of a content, if it has one and still is what was answered."""
        kept = interaction_of(content)
        if kept is None or not isinstance(kept.get("origin"), str):
            return None
        steps = objects_in(kept.get("steps"))
        if not steps or _gist(parts_of(content)) != _gist(_parts_of_steps(steps)):
            return None
        seen, until, found = kept.get("seen"), kept.get("until"), kept.get("id")
        return cls(
            origin=kept["origin"],
            steps=steps,
            id=found if isinstance(found, str) else "",
            seen=seen if isinstance(seen, str) else "",
            until=float(until) if isinstance(until, (int, float)) and abs(until) < 1e15 else 0.0,
        )


def records_of(contents: Iterable[Content]) -> list[Record]:
    """The records of contents, in order."""
    return [record for content in contents if (record := Record.of(content)) is not None]


def fold(seen: str, encoded: bytes) -> str:
    """The hash of a history that is one content longer."""
    return hashlib.sha256(seen.encode("ascii") + hashlib.sha256(encoded).digest()).hexdigest()[:32]


def parts_of_step(step: JsonObject) -> list[Part]:
    """The parts of a content that a step is for everybody else. Tools that ran at the server leave none."""
    kind = step.get("type")
    if kind == "model_output":
        return [part for item in _items(step.get("content")) if (part := _part(item)) is not None]
    if kind == "thought":
        texts = [item["text"] for item in _items(step.get("summary")) if isinstance(item.get("text"), str)]
        return [thought_part(text) for text in texts if text]
    return [_call(step)] if kind == "function_call" else []


def call_parts_of(steps: Sequence[JsonObject]) -> list[Part]:
    """The parts of the calls that are to be answered."""
    return [part for part in _parts_of_steps(steps) if is_call(part)]


def _parts_of_steps(steps: Sequence[JsonObject]) -> list[Part]:
    """The parts of all steps of an answer. A call that the same answer answers itself is none for us."""
    answered = {str(step.get("call_id")) for step in steps if step.get("type") == "function_result"}
    return [
        part
        for step in steps
        if step.get("type") != "function_call" or str(step.get("id")) not in answered
        for part in parts_of_step(step)
    ]


def _call(step: JsonObject) -> Part:
    name, wire_id = step.get("name"), step.get("id")
    args: Any = step.get("arguments")
    return call_from(
        name if isinstance(name, str) else "", {} if args is None else args, wire_id=wire_id if is_wire_id(wire_id) else None
    )


def _items(content: Any) -> list[JsonObject]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return objects_in([cast("Any", content)] if isinstance(content, Mapping) else content)


def _part(item: JsonObject) -> Part | None:
    if item.get("type") in _MEDIA:
        fields = {name: item[name] for name in ("mime_type", "data", "uri") if isinstance(item.get(name), str)}
        return part_of_media(fields) if "data" in fields or "uri" in fields else None
    text = item.get("text")
    return text_part(text) if isinstance(text, str) and text else None


def _gist(parts: Iterable[Part]) -> list[Any]:
    """The gist of a content: the same for all ways of cutting it into parts."""
    text: list[str] = []
    thoughts: list[str] = []
    others: list[bytes] = []
    calls: list[bytes] = []
    for part in parts:
        if is_call(part):
            call = call_of(part)
            calls.append(strict_json.dump([call.get("id"), call.get("name"), call.get("args") or {}]))
        elif isinstance(part.get("text"), str):
            (thoughts if is_thought(part) else text).append(part["text"])
        else:
            others.append(strict_json.dump(part))
    return ["".join(text), "".join(thoughts), calls, others]
