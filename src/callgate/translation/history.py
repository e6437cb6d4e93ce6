"""A history in Gemini's form -> the messages of another API, as JSON text.

Contents come in, the encoded messages go out; each content is written once and its bytes are kept. What a message looks like
is a function of the API's wire. This file knows no tools.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from callgate import strict_json
from callgate.content.normalize import UNNAMED
from callgate.content.read import call_parts, is_call, is_thought, media_of
from callgate.request import ModelRequest
from callgate.types import Content, JsonObject, Part

__all__ = ["HistoryWriter", "IdRule", "MessagesOf", "in_words", "legal_name", "remark"]

KEPT_MAX = 4_096
KEPT_BYTES_MAX = 64 * 1024 * 1024
"""The cache limits for encoded contents: entries and bytes."""

_ILLEGAL = re.compile(r"[^A-Za-z0-9_-]+")
_NAME_CHARS_MAX = 64

_NOTHING = "(The user said nothing.)"
"""A request needs a message, even where there is nothing but an instruction."""

Key = tuple[int, tuple[str, ...], bool, Any]


class MessagesOf(Protocol):
    """Writer of one content as messages."""

    def __call__(self, content: Content, ids: Sequence[str], *, is_newest: bool) -> Iterable[JsonObject]:
        """Return the messages of a content; `ids` are those of its calls, or of the calls that it answers.

        Raises:
            UsageError: it is what the user says now (`is_newest`), and the API has no place for it.
        """
        ...


class IdRule:
    """The ids of calls that an API takes."""

    def __init__(self, pattern: str, *, chars_max: int, prefix: str = "call_") -> None:
        self._pattern = re.compile(pattern)
        self._chars_max = chars_max
        self._prefix = prefix

    def ids_of(self, content: Content, encoded: bytes, taken: set[str]) -> tuple[str, ...]:
        """Return an id for every call of a content: the model's own if it can be sent, else one that never changes."""
        ids: list[str] = []
        for place, call in enumerate(call_parts(content)):
            wire_id: Any = call.get("id")
            own = wire_id if isinstance(wire_id, str) and self._takes(wire_id) else None
            source = str(wire_id).encode("utf-8", "replace") if wire_id and own is None else b"%d " % place + encoded
            made, again = own, 0
            while made is None or made in taken:
                made = f"{self._prefix}{hashlib.sha256(source + b' ' * again).hexdigest()[:24]}"
                again += 1
            taken.add(made)
            ids.append(made)
        return tuple(ids)

    def _takes(self, wire_id: str) -> bool:
        return len(wire_id) <= self._chars_max and self._pattern.fullmatch(wire_id) is not None


class HistoryWriter:
    """A writer of the messages of one model's requests.

    With an `origin`, contents are written as the model of that origin may see them: without the signatures of others.
    """

    def __init__(self, origin: str | None = None) -> None:
        self._origin = origin
        self._kept: dict[Key, tuple[bytes, list[bytes]]] = {}
        self._kept_bytes = 0

    def messages(
        self, request: ModelRequest, ids: IdRule, write: MessagesOf, *, variant: Any = None, can_be_none: bool = False
    ) -> list[bytes]:
        """Every message of a request, encoded, its feedback among them; `variant` is what `write` depends on besides.

        Raises:
            UsageError: the newest words of the user hold something that the API has no place for.
        """
        written: list[bytes] = []
        talk = request.conversation
        newest = talk.newest_exchange
        taken: set[str] = set()
        call_ids: tuple[str, ...] = ()
        seen = talk.encoded if self._origin is None else talk.encoded_for(self._origin, vouch=False)
        for place, (encoded, whole) in enumerate(zip(seen, talk.encoded, strict=True)):
            if talk.is_model(place):
                call_ids = ids.ids_of(talk[place], whole, taken)
            # The bytes are kept with what was made of them, so that their id stays their own.
            key = (id(encoded), call_ids, place == newest, variant)
            if key not in self._kept:
                content: Content = talk[place] if encoded is whole else strict_json.parse_own(encoded)
                messages = write(content, call_ids, is_newest=place == newest)
                self._keep(key, encoded, [strict_json.dump(message) for message in messages])
            written += self._kept[key][1]
        if request.feedback or not (written or can_be_none):
            said = strict_json.without_surrogates(request.feedback or _NOTHING)
            written.append(strict_json.dump({"role": "user", "content": said}))
        return written

    def _keep(self, key: Key, encoded: bytes, messages: list[bytes]) -> None:
        if len(self._kept) >= KEPT_MAX or self._kept_bytes > KEPT_BYTES_MAX:
            self._kept.clear()
            self._kept_bytes = 0
        self._kept[key] = (encoded, messages)
        self._kept_bytes += sum(map(len, messages))


def legal_name(written: str) -> str:
    """A name that a message may hold. A model may have called something that is no name, and has been told so."""
    return _ILLEGAL.sub("_", written)[:_NAME_CHARS_MAX] or UNNAMED


def in_words(part: Part) -> str:
    """A model's part as text for another model: text unchanged, code and media as a remark, nothing else."""
    if is_thought(part) or is_call(part):
        return ""
    if isinstance(part.get("text"), str):
        return part["text"]
    if (media := media_of(part)) is not None:
        return remark(media)
    fields: JsonObject = {key: value for key, value in part.items() if isinstance(value, Mapping)}
    return f"\n({strict_json.dump(fields).decode('utf-8')})\n" if fields else ""


def remark(media: Mapping[str, Any]) -> str:
    """A sentence in place of media that a model cannot be shown."""
    named = f" ({media['name']})" if media.get("name") else ""
    return f"(Media of type {media.get('mime_type')}{named} stood here, which this model cannot be shown.)"
