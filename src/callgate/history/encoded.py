"""The contents of a conversation as they are held: encoded once, and what is long and old as its JSON alone.

Contents come in and their JSON goes out, for every request; the contents themselves are read again for whoever asks. Answers
to calls are what a history mostly consists of, and to hold them both as values and as JSON would double it. This file knows
nothing of the rules of a conversation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from callgate import strict_json
from callgate.content.read import is_response, parts_of, role_of
from callgate.content.response import media_in, value_in
from callgate.errors import JsonError
from callgate.types import Content, Part, ToolResult
from callgate.unread import Unread, let_go

__all__ = ["Written", "WrittenAnswer", "WrittenHistory"]

HELD_BYTES_MAX = 1_000
"""Answers to calls that are longer are held as JSON alone, as soon as something follows them."""

_BEFORE, _AFTER = b'{"role":"user","parts":[', b"]}"


@dataclass(frozen=True, slots=True)
class WrittenAnswer:
    """A long answer to a call, and where it stands in the JSON of its content."""

    answer: Part
    encoded: bytes
    start: int
    end: int

    def relieve(self, result: ToolResult) -> None:
        """Makes the result that this is the answer of hold nothing long: it is read from here whenever somebody asks."""
        # Whatever stands beside media is short, and not worth reading those.
        name, what = ("media", media_in) if result.media else ("value", value_in)
        if said := what(self.answer):
            let_go(result, name, said, _Reading(self.encoded, self.start, self.end, what))


class _Reading(Unread):
    """Something in an answer to a call."""

    __slots__ = ("_encoded", "_end", "_start", "_what")

    def __init__(self, encoded: bytes, start: int, end: int, what: Callable[[Part], Any]) -> None:
        self._encoded, self._start, self._end, self._what = encoded, start, end, what

    def read(self) -> Any:
        """It, a new one every time."""
        return self._what(_read(self._encoded[self._start : self._end]))


class WrittenHistory(Unread):
    """The contents of a conversation as they are at one moment, whatever becomes of it."""

    __slots__ = ("_contents", "_encoded", "_held")

    def __init__(self, held: Sequence[Content | None], encoded: Sequence[bytes]) -> None:
        self._held, self._encoded = held, encoded
        self._contents: list[Content] | None = None

    def read(self) -> list[Content]:
        """The contents, the same list every time."""
        if self._contents is None:
            self._contents = [
                _read(encoded) if held is None else held for held, encoded in zip(self._held, self._encoded, strict=True)
            ]
        return self._contents


class Written:
    """Contents in order, and the JSON of each."""

    __slots__ = ("_encoded", "_held", "_is_readable", "bytes_encoded", "size_bytes")

    def __init__(self) -> None:
        self._held: list[Content | None] = []
        """None for an answer to calls that is held as JSON alone."""
        self._encoded: list[bytes] = []
        self._is_readable = False
        """Whether the newest content is a long answer, and what is read from its JSON is the content again."""
        self.size_bytes = 0
        """The length of the JSON of all contents."""
        self.bytes_encoded = 0
        """The same, and of all that were dropped: how much was encoded."""

    def __len__(self) -> int:
        return len(self._held)

    def __getitem__(self, index: int) -> Content:
        held = self._held[index]
        return _read(self._encoded[index]) if held is None else held

    @property
    def encoded(self) -> tuple[bytes, ...]:
        """The JSON of each content."""
        return tuple(self._encoded)

    @property
    def history(self) -> WrittenHistory:
        """The contents as they are now, to be read later."""
        return WrittenHistory(tuple(self._held), tuple(self._encoded))

    def is_model(self, index: int) -> bool:
        """Whether the model said it."""
        held = self._held[index]
        return held is not None and held["role"] == "model"

    def is_answers(self, index: int) -> bool:
        """Whether the content answers calls."""
        held = self._held[index]
        return held is None or _is_answers(held)

    def add(self, content: Content) -> None:
        """Adds a content."""
        self._add(content, strict_json.dump(content))

    def add_answers(self, answers: list[Part]) -> list[WrittenAnswer | None]:
        """Adds a content of answers to calls; returns where each stands that is long and can be read again."""
        pieces = [strict_json.dump(answer) for answer in answers]
        encoded = _BEFORE + b",".join(pieces) + _AFTER
        self._add({"role": "user", "parts": answers}, encoded)
        places: list[WrittenAnswer | None] = []
        start = len(_BEFORE)
        for answer, piece in zip(answers, pieces, strict=True):
            end = start + len(piece)
            is_long = self._is_readable and len(piece) > HELD_BYTES_MAX
            places.append(WrittenAnswer(answer, encoded, start, end) if is_long else None)
            start = end + len(b",")
        return places

    def put_first(self, content: Content) -> None:
        """Puts a content before all others."""
        encoded = strict_json.dump(content)
        self._held.insert(0, content)
        self._encoded.insert(0, encoded)
        self.size_bytes += len(encoded)
        self.bytes_encoded += len(encoded)

    def keep(self, kept: slice) -> None:
        """Drops all other contents."""
        newest = self._held[-1] if self._held else None
        self._held, self._encoded = self._held[kept], self._encoded[kept]
        self._is_readable = self._is_readable and bool(self._held) and self._held[-1] is newest
        self.size_bytes = sum(map(len, self._encoded))

    def _add(self, content: Content, encoded: bytes) -> None:
        if self._is_readable:
            self._held[-1] = None
        self._held.append(content)
        self._encoded.append(encoded)
        size = len(encoded)
        self.size_bytes += size
        self.bytes_encoded += size
        self._is_readable = size > HELD_BYTES_MAX and _is_answers(content) and _reads_as(encoded, content)


def _is_answers(content: Content) -> bool:
    return role_of(content) == "user" and any(map(is_response, parts_of(content)))


def _reads_as(encoded: bytes, content: Content) -> bool:
    """What a program put into a history itself may be more than JSON can say, or deeper than is read."""
    try:
        return _read(encoded) == content
    except JsonError:
        return False


def _read(encoded: bytes) -> Content:
    return cast("Content", strict_json.parse_own(encoded))
