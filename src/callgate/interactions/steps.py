"""A history in Gemini's form -> steps of an interaction, as JSON text.

Contents come in, encoded steps go out; each content is written once and its bytes are kept. A model content that this API
and model wrote goes back as it came; any other one is written anew, with the documented placeholder in place of a signature.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from callgate import strict_json
from callgate.content.media_view import MediaView
from callgate.content.normalize import UNNAMED, is_wire_id
from callgate.content.read import (
    SKIP_SIGNATURE,
    call_of,
    call_parts,
    has_data,
    is_call,
    is_response,
    is_thought,
    media_of,
    parts_of,
    response_media,
    response_of,
)
from callgate.history.conversation import Conversation
from callgate.interactions.record import Record, fold
from callgate.types import Content, JsonObject, Part

__all__ = ["Chain", "StepWriter", "content_item", "result_of", "user_step"]

KEPT_MAX = 4_096
KEPT_BYTES_MAX = 64 * 1024 * 1024
"""The cache limits for encoded contents: entries and bytes."""


@dataclass(frozen=True, slots=True)
class Chain:
    """An interaction at the server that holds the first contents of a history."""

    id: str
    length: int
    """The number of contents that the server has."""


@dataclass(frozen=True, slots=True)
class _Written:
    """The steps of one content, and what they were made of."""

    encoded: bytes
    steps: bytes
    ids: tuple[str, ...]
    record: Record | None


class StepWriter:
    """A writer of the steps of one model's requests.

    Args:
        origin: The API, the surface and the model whose signatures these requests may carry.
        vouch: Whether calls of other models need the placeholder of a signature.
        media_results: Whether results may hold media.
    """

    def __init__(self, origin: str, *, vouch: bool, media_results: bool) -> None:
        self._origin = origin
        self._vouch = vouch
        self._media_results = media_results
        self._kept: dict[tuple[int, tuple[str, ...], bool], _Written] = {}
        self._kept_bytes = 0
        self._line: list[_Written] = []
        """The contents of the newest history that was sent whole."""
        self._hashed: tuple[list[bytes], list[str]] = ([], [])
        """The contents of the newest history, and the hash of it up to each."""

    def steps(self, talk: Conversation, *, start: int = 0, own: bool = True) -> list[bytes]:
        """The steps of a history from a content on; without `own`, no signature goes back, not even this model's."""
        if own and not start:
            return [made.steps for made in self._line_of(talk) if made.steps]
        # Where the server has the beginning, only the ids of the newest calls are of interest.
        written: list[bytes] = []
        ids: tuple[str, ...] = ()
        for place in range(max(start - 1, 0), len(talk)):
            made = self._written(talk, place, talk.encoded[place], ids, own=own)
            ids = made.ids
            if place >= start and made.steps:
                written.append(made.steps)
        return written

    def _line_of(self, talk: Conversation) -> list[_Written]:
        """All steps of a history. Those of the newest one are kept, so that a longer one costs only what is new."""
        encoded, line = talk.encoded, self._line
        known = _shared([made.encoded for made in line], encoded)
        del line[known:]
        for place in range(known, len(encoded)):
            line.append(self._written(talk, place, encoded[place], line[-1].ids if line else (), own=True))
        return line

    def seen(self, talk: Conversation, length: int | None = None) -> str:
        """The hash of the first contents of a history."""
        encoded = talk.encoded if length is None else talk.encoded[:length]
        contents, hashes = self._hashed
        known = _shared(contents, encoded)
        if known < len(encoded):
            del contents[known:], hashes[known:]
        for content in encoded[known:]:
            contents.append(content)
            hashes.append(fold(hashes[-1] if hashes else "", content))
        return hashes[len(encoded) - 1] if encoded else ""

    def chain(self, talk: Conversation, *, now: float) -> Chain | None:
        """The interaction that holds the history up to its newest answer, if there is one that still does.

        `now` is the time in seconds since 1970.
        """
        newest = next((place for place in range(len(talk) - 1, -1, -1) if talk.is_model(place)), None)
        if newest is None or newest == len(talk) - 1:
            return None
        record = self._written(talk, newest, talk.encoded[newest], (), own=True).record
        if record is None or not record.id or not record.seen or record.origin != self._origin or now >= record.until:
            return None
        return Chain(record.id, newest + 1) if record.seen == self.seen(talk, newest) else None

    def _written(self, talk: Conversation, place: int, encoded: bytes, ids: tuple[str, ...], *, own: bool) -> _Written:
        key = (id(encoded), () if talk.is_model(place) else ids, own)
        made = self._kept.get(key)
        if made is not None:
            return made
        content = talk[place]
        if talk.is_model(place):
            record = Record.of(content)
            is_own = own and record is not None and record.origin == self._origin and self._is_signed(record)
            steps, ids = (record.steps, _ids_of(content)) if is_own and record else self._rewritten(content)
            made = _Written(encoded, _joined(steps), ids, record)
        else:
            made = _Written(encoded, _joined(self._of_user(content, ids)), (), None)
        if len(self._kept) >= KEPT_MAX or self._kept_bytes > KEPT_BYTES_MAX:
            self._kept.clear()
            self._kept_bytes = 0
        # The bytes are kept with what was made of them, so that their id stays their own.
        self._kept[key] = made
        self._kept_bytes += len(made.steps)
        return made

    def _is_signed(self, record: Record) -> bool:
        """True if the steps can go back as they are: a thought that came without a signature is refused."""
        return not self._vouch or all(step.get("signature") for step in record.steps if step.get("type") == "thought")

    def _rewritten(self, content: Content) -> tuple[list[JsonObject], tuple[str, ...]]:
        """The steps of an answer of another model, or of this one by another API."""
        ids = iter(made := _ids_of(content))
        steps: list[JsonObject] = []
        for part in parts_of(content):
            if is_call(part):
                call = call_of(part)
                args: Any = call.get("args")
                fields: JsonObject = {"id": next(ids), "name": str(call.get("name") or UNNAMED), "arguments": args or {}}
                steps.append({"type": "function_call", **fields})
            elif not is_thought(part) and has_data(part):
                item = content_item(part)
                if steps and steps[-1]["type"] == "model_output":
                    steps[-1]["content"].append(item)
                else:
                    steps.append({"type": "model_output", "content": [item]})
        if made and self._vouch:
            steps.insert(0, {"type": "thought", "signature": SKIP_SIGNATURE})
        return steps, made

    def _of_user(self, content: Content, ids: Sequence[str]) -> Iterator[JsonObject]:
        parts = parts_of(content)
        responses = [part for part in parts if is_response(part)]
        if not responses:
            said = [part for part in parts if not is_thought(part) and has_data(part)]
            if said:
                yield user_step(said)
            return
        shown: list[Part] = []
        for place, part in enumerate(responses):
            response = response_of(part)
            call_id = ids[place] if place < len(ids) else str(response.get("id") or f"call_{place}")
            media = response_media(part)
            yield result_step(call_id, response, media if self._media_results else ())
            if media and not self._media_results:
                shown += [{"text": f"(What the call of {response.get('name')!r} with the id {call_id} returned:)"}, *media]
        if shown:
            yield user_step(shown)


def _shared(kept: Sequence[bytes], encoded: Sequence[bytes]) -> int:
    """The number of contents that two histories begin with in common."""
    length = min(len(kept), len(encoded))
    if [*kept[:length]] == [*encoded[:length]]:  # Compared at once, and the same bytes by their identity.
        return length
    return next(place for place in range(length) if kept[place] != encoded[place])


def user_step(parts: Iterable[Part]) -> JsonObject:
    """The step of what a user says."""
    return {"type": "user_input", "content": [*map(content_item, parts)]}


def result_step(call_id: str, response: Mapping[str, Any], media: Iterable[Part]) -> JsonObject:
    """The step of a call's result."""
    result, is_error = result_of(response.get("response"))
    if shown := [*map(content_item, media)]:
        result = [{"type": "text", "text": _text(result)}, *shown]
    step: JsonObject = {
        "type": "function_result",
        "call_id": call_id,
        "name": str(response.get("name") or UNNAMED),
        "result": result,
    }
    return step | ({"is_error": True} if is_error else {})


def result_of(response: Any) -> tuple[Any, bool]:
    """A response as the service takes it, a text or an object, and whether it is an error.

    A bare list would be taken for content, and a number is refused: both are sent as JSON text.
    """
    if not isinstance(response, Mapping):
        return _text(response), False
    fields = dict(cast("Mapping[str, Any]", response))
    if fields.keys() == {"error"}:
        return _text(fields["error"]), True
    value: Any = fields["result"] if fields.keys() == {"result"} else fields
    return (cast("Any", value) if isinstance(value, dict) else _text(value)), "error" in fields


def _text(value: Any) -> str:
    return value if isinstance(value, str) else strict_json.dump(value).decode("utf-8")


def content_item(part: Part) -> JsonObject:
    """A part as an item of content; what has no counterpart as its JSON."""
    media = media_of(part)
    if media is None:
        text = part["text"] if isinstance(part.get("text"), str) else strict_json.dump(part).decode("utf-8")
        return {"type": "text", "text": text}
    mime_type = str(media.get("mime_type") or "application/octet-stream")
    kind = mime_type.partition("/")[0]
    if kind == "text" and "data" in media and (text := _decoded(media["data"])) is not None:
        return {"type": "text", "text": text}
    where = {name: media[name] for name in ("data", "uri") if name in media}
    kind = kind if kind in ("image", "audio", "video") else "document"
    return {"type": kind, "mime_type": mime_type, **where, **MediaView.of_part(part).block_fields(kind)}


def _decoded(data: str) -> str | None:
    try:
        return base64.b64decode(data).decode("utf-8")
    except (binascii.Error, ValueError):
        return None


def _ids_of(content: Content) -> tuple[str, ...]:
    """An id for every call of a content: the model's own if it can be sent, else one that is the same every time."""
    ids: list[str] = []
    for place, call in enumerate(call_parts(content)):
        own = call.get("id")
        made = str(own) if is_wire_id(own) else f"call_{place}"
        while made in ids:
            made += "_"
        ids.append(made)
    return tuple(ids)


def _joined(steps: Iterable[JsonObject]) -> bytes:
    return b",".join(strict_json.dump(step) for step in steps)
