"""A history in Gemini's form -> steps of an interaction, as JSON text.

Contents come in, encoded steps go out; each content is written once, and the text is kept with its conversation. A model
content that this API and model wrote goes back as it came; any other one is written anew, with the documented placeholder in
place of a signature.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

from callgate import strict_json
from callgate.content.build import unsigned
from callgate.content.media_type import type_of_address
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
from callgate.content.signature import own_signature
from callgate.history.conversation import Conversation
from callgate.history.encoded import ContentPrefix
from callgate.interactions.record import Record, fold
from callgate.strict_json import objects_in
from callgate.translation.history import remark
from callgate.types import Content, JsonObject, Part

__all__ = [
    "NEEDED", "Chain", "StepWriter", "content_item", "is_shown", "refusal_of", "result_of", "user_step", "without_steps",
]  # fmt: skip

_DOCUMENTS = frozenset([
    "application/pdf", "text/csv", "application/msword", "application/vnd.ms-powerpoint", "application/vnd.ms-excel",
    *(f"application/vnd.openxmlformats-officedocument.{name}" for name in (
        "presentationml.presentation", "wordprocessingml.document", "wordprocessingml.template", "spreadsheetml.sheet")),
    *(f"application/vnd.oasis.opendocument.{name}" for name in ("presentation", "text", "spreadsheet")),
])  # fmt: skip
"""The types of documents that the server takes."""
_TEXTS = frozenset(f"application/{name}" for name in ("json", "xml", "yaml", "x-yaml", "javascript"))
"""Types that are text, beside those that say so."""

NEEDED = frozenset({"user_input", "model_output", "thought", "function_call", "function_result"})
"""Types of steps without which a history is not the same."""

_PLACEHOLDER: JsonObject = {"type": "thought", "signature": SKIP_SIGNATURE}
"""Step before calls that have no signature."""


@dataclass(frozen=True, slots=True)
class Chain:
    """An interaction at the server that holds the first contents of a history."""

    id: str
    length: int
    """The number of contents that the server has."""


class _Steps(ContentPrefix):
    """The steps of a history as one text, which grows with it."""

    __slots__ = ("ends", "ids", "text")

    def __init__(self) -> None:
        super().__init__()
        self.text = bytearray()
        self.ends: list[int] = []
        """The end of each content's steps in the text."""
        self.ids: list[tuple[str, ...]] = []
        """The ids of each content's calls."""

    def cut(self, length: int) -> None:
        """Drop the steps of all contents but the first."""
        del self.ends[length:], self.ids[length:]
        del self.text[self.ends[-1] if self.ends else 0 :]

    def add(self, steps: bytes, ids: tuple[str, ...]) -> None:
        """Add the steps of another content."""
        if steps:
            self.text += b"," + steps if self.text else steps
        self.ends.append(len(self.text))
        self.ids.append(ids)

    @property
    def pieces(self) -> list[bytes]:
        """The steps of each content that has any."""
        starts = [0, *self.ends]
        return [bytes(self.text[start:end]).removeprefix(b",") for start, end in pairwise(starts) if start < end]


def without_steps(pieces: Sequence[bytes], kinds: Collection[str]) -> list[bytes]:
    """The encoded steps of contents without those of some types; a content that had no others is left out."""
    named = [strict_json.dump(kind) for kind in kinds]
    left = [_left(piece, kinds) if any(name in piece for name in named) else piece for piece in pieces]
    return [piece for piece in left if piece]


def _left(piece: bytes, kinds: Collection[str]) -> bytes:
    steps = objects_in(strict_json.parse(b"[" + piece + b"]", depth_max=2 * strict_json.DEPTH_MAX))
    return _joined([step for step in steps if step.get("type") not in kinds])


class _Hashes(ContentPrefix):
    """The hash of a history up to each of its contents."""

    __slots__ = ("hashes",)

    def __init__(self) -> None:
        super().__init__()
        self.hashes: list[str] = []


class StepWriter:
    """A writer of the steps of one model's requests. What it makes of a conversation is kept with the conversation.

    Args:
        origin: The API, the surface and the model whose signatures these requests may carry.
        vouch: Whether calls of other models need the placeholder of a signature.
        media_results: Whether results may hold media.
    """

    def __init__(self, origin: str, *, vouch: bool, media_results: bool) -> None:
        self._origin = origin
        self._vouch = vouch
        self._media_results = media_results

    def text(self, talk: Conversation, *, start: int = 0, own: bool = True) -> bytes | bytearray:
        """The steps of a history from a content on, with commas between them, to be read at once.

        Without `own`, no signature goes back, not even this model's. A longer history costs only what is new.
        """
        return b",".join(self._rest(talk, start, own=own)) if start else self._whole(talk, own=own).text

    def pieces(self, talk: Conversation, *, start: int = 0, own: bool = True) -> list[bytes]:
        """Like `text`, for each content that has any steps."""
        return self._rest(talk, start, own=own) if start else self._whole(talk, own=own).pieces

    def _rest(self, talk: Conversation, start: int, *, own: bool) -> list[bytes]:
        """The steps after those that the server has, of which only the ids of the newest calls are of interest."""
        ids = _ids_of(talk[start - 1]) if talk.is_model(start - 1) else ()
        written: list[bytes] = []
        for place in range(start, len(talk)):
            steps, ids = self._written(talk, place, ids, own=own)
            written += [steps] if steps else []
        return written

    def _whole(self, talk: Conversation, *, own: bool) -> _Steps:
        made = talk.derived((_Steps, self._origin, self._vouch, self._media_results, own), _Steps)
        encoded = talk.encoded
        known = made.shared(encoded)
        if known < len(made.ends):
            made.cut(known)
        for place in range(known, len(encoded)):
            made.add(*self._written(talk, place, made.ids[-1] if made.ids else (), own=own))
        made.contents = encoded
        return made

    def seen(self, talk: Conversation, length: int | None = None) -> str:
        """The hash of the first contents of a history."""
        made = talk.derived(_Hashes, _Hashes)
        encoded = talk.encoded[:length]
        hashes, known = made.hashes, made.shared(encoded)
        if known < len(encoded):
            del hashes[known:]
            for content in encoded[known:]:
                hashes.append(fold(hashes[-1] if hashes else "", content))
            made.contents = encoded
        return hashes[len(encoded) - 1] if encoded else ""

    def chain(self, talk: Conversation, *, now: float) -> Chain | None:
        """The interaction that holds the history up to its newest answer, if there is one that still does.

        `now` is the time in seconds since 1970.
        """
        newest = next((place for place in range(len(talk) - 1, -1, -1) if talk.is_model(place)), None)
        if newest is None or newest == len(talk) - 1:
            return None
        record = Record.of(talk[newest])
        if record is None or not record.id or not record.seen or record.origin != self._origin or now >= record.until:
            return None
        return Chain(record.id, newest + 1) if record.seen == self.seen(talk, newest) else None

    def _written(self, talk: Conversation, place: int, ids: tuple[str, ...], *, own: bool) -> tuple[bytes, tuple[str, ...]]:
        """The steps of a content after one with calls of these ids, and the ids of its own calls."""
        content = talk[place]
        if not talk.is_model(place):
            return _joined(self._of_user(content, ids)), ()
        record = Record.of(content) if own else None
        if record is not None and record.origin == self._origin and self._is_signed(record):
            return _joined(self._with_placeholder(record.steps)), _ids_of(content)
        steps, ids = self._rewritten(content, own=own)
        return _joined(steps), ids

    def _is_signed(self, record: Record) -> bool:
        """True if the steps can go back as they are: a thought that came without a signature is refused."""
        return not self._vouch or all(step.get("signature") for step in record.steps if step.get("type") == "thought")

    def _with_placeholder(self, steps: Sequence[JsonObject]) -> Sequence[JsonObject]:
        """The steps of an answer with the placeholder before calls that came without any signature."""
        calls = [step for step in steps if step.get("type") == "function_call"]
        is_vouched = not calls or steps[0].get("type") == "thought" or bool(calls[0].get("signature"))
        return steps if is_vouched or not self._vouch else [_PLACEHOLDER, *steps]

    def _rewritten(self, content: Content, *, own: bool) -> tuple[list[JsonObject], tuple[str, ...]]:
        """The steps of an answer of another model, or of this one by another API, or as a client has it."""
        ids = iter(made := _ids_of(content))
        steps: list[JsonObject] = []
        summary = ""
        is_signed = False
        for part in parts_of(content):
            summary += part["text"] if is_thought(part) and isinstance(part.get("text"), str) else ""
            if own and (signature := own_signature(part, self._origin)) is not None:
                # The first thought of a turn comes first in it, and each other one before what it led to.
                steps.insert(len(steps) if is_signed else 0, _thought(signature, summary))
                summary, is_signed = "", True
            if is_call(part):
                call = call_of(part)
                args: Any = call.get("args")
                fields: JsonObject = {"id": next(ids), "name": str(call.get("name") or UNNAMED), "arguments": args or {}}
                steps.append({"type": "function_call", **fields})
            elif not is_thought(part) and has_data(part):
                item = _sent_item(part)
                if steps and steps[-1]["type"] == "model_output":
                    steps[-1]["content"].append(item)
                else:
                    steps.append({"type": "model_output", "content": [item]})
        if made and self._vouch and not is_signed:
            steps.insert(0, _PLACEHOLDER)
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


def _thought(signature: str, summary: str) -> JsonObject:
    shown = {"summary": [{"type": "text", "text": summary}]} if summary else {}
    return {"type": "thought", "signature": signature, **shown}


def user_step(parts: Iterable[Part]) -> JsonObject:
    """The step of what a user says."""
    return {"type": "user_input", "content": [*map(_sent_item, parts)]}


def result_step(call_id: str, response: Mapping[str, Any], media: Iterable[Part]) -> JsonObject:
    """The step of a call's result."""
    result, is_error = result_of(response.get("response"))
    if shown := [*map(_sent_item, media)]:
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
        text = part["text"] if isinstance(part.get("text"), str) else strict_json.dump(unsigned(part)).decode("utf-8")
        return {"type": "text", "text": text}
    mime_type, _, details = _type_of(media).partition(";")
    mime_type = mime_type.strip().lower()
    kind = mime_type.partition("/")[0]
    if "data" in media and _is_text(mime_type) and (text := _decoded(media["data"])) is not None:
        return {"type": "text", "text": text}
    where = {name: media[name] for name in ("data", "uri") if name in media}
    kind = kind if kind in ("image", "audio", "video") else "document"
    if kind == "audio" and details:  # The rate of bare samples is one of them.
        mime_type = f"{mime_type};{details}"
    return {"type": kind, "mime_type": mime_type, **where, **MediaView.of_part(part).block_fields(kind)}


def is_shown(part: Part, is_model: bool) -> bool:
    """True if the server takes the media of a part, of a user or of a model."""
    return _is_taken(content_item(part))


def _is_taken(item: JsonObject) -> bool:
    return item["type"] != "document" or item["mime_type"] in _DOCUMENTS


def _sent_item(part: Part) -> JsonObject:
    """A part as an item of content that the server takes: media that it refuses become a remark."""
    item = content_item(part)
    if not _is_taken(item):
        return {"type": "text", "text": remark(media_of(part) or {})}
    return item


def refusal_of(parts: Iterable[Part]) -> str | None:
    """The sentence for media that a user says now and that the server does not take; None if there are none."""
    for item in map(content_item, parts):
        if not _is_taken(item):
            where = f" ({item['uri'][:200]})" if "uri" in item else ""
            told = "send text, an image, a sound, a video, a PDF, a CSV file or an office document, with its mime_type"
            return f"media of type {item['mime_type']!r}{where} cannot be sent by the Interactions API: {told}"
    return None


def _type_of(media: Mapping[str, Any]) -> str:
    return str(media.get("mime_type") or type_of_address(str(media.get("uri") or "")) or "application/octet-stream")


def _is_text(mime_type: str) -> bool:
    kind = mime_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+json", "+xml"))


def _decoded(data: str) -> str | None:
    try:
        return base64.b64decode(data).decode("utf-8")
    except (binascii.Error, ValueError):
        return None


def _ids_of(content: Content) -> tuple[str, ...]:
    """An id for every call of a content: the model's own if it can be sent, else one that is the same every time."""
    ids: dict[str, None] = {}
    for place, call in enumerate(call_parts(content)):
        own = call.get("id")
        made = str(own) if is_wire_id(own) and own not in ids else f"call_{place}"
        while made in ids:
            made += "_"
        ids[made] = None
    return tuple(ids)


def _joined(steps: Iterable[JsonObject]) -> bytes:
    return b",".join(strict_json.dump(step) for step in steps)
