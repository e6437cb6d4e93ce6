"""The contents of a conversation, encoded once; long old ones are stored as JSON only.

Contents are decoded lazily. Responses to calls are most of a history, and storing them both as values and as JSON would
double it. Knows nothing of the rules of a conversation.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, count
from typing import Any, cast

from callgate import strict_json
from callgate.content.build import with_args
from callgate.content.read import call_of, is_call, is_response, parts_of, role_of
from callgate.errors import JsonError
from callgate.types import Content, Part

__all__ = ["HELD_BYTES_MAX", "ContentPrefix", "EncodedContents", "EncodedHistory"]

HELD_BYTES_MAX = 1_000
"""Longer responses to calls are stored as JSON only, as soon as a content follows them."""


class EncodedHistory:
    """A snapshot of the contents of a conversation."""

    __slots__ = ("_contents", "_encoded", "_held")

    def __init__(self, held: Sequence[Content | None], encoded: Sequence[bytes]) -> None:
        self._held, self._encoded = held, encoded
        self._contents: list[Content] | None = None

    @property
    def size_bytes(self) -> int:
        """The length of the encoded contents."""
        return sum(map(len, self._encoded))

    @property
    def contents(self) -> list[Content]:
        """The contents, decoded on first use; the same list every time."""
        if self._contents is None:
            self._contents = [
                _read(encoded) if held is None else held for held, encoded in zip(self._held, self._encoded, strict=True)
            ]
        return self._contents

    def __eq__(self, other: object) -> bool:
        return self.contents == other.contents if isinstance(other, EncodedHistory) else NotImplemented

    __hash__ = None  # pyright: ignore[reportAssignmentType]


class EncodedContents:
    """Contents in order, and the JSON of each."""

    __slots__ = ("_encoded", "_held", "_is_readable", "bytes_encoded", "size_bytes")

    def __init__(self) -> None:
        self._held: list[Content | None] = []
        """None for responses to calls that are stored as JSON only."""
        self._encoded: list[bytes] = []
        self._is_readable = False
        """True if the newest content is long responses that survive a round trip through JSON."""
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
    def history(self) -> EncodedHistory:
        """The contents as they are now, to be decoded later."""
        return EncodedHistory(tuple(self._held), tuple(self._encoded))

    def is_model(self, index: int) -> bool:
        """True if it is a model content."""
        held = self._held[index]
        return held is not None and held["role"] == "model"

    def is_responses(self, index: int) -> bool:
        """True if the content responds to calls."""
        held = self._held[index]
        return held is None or _is_responses(held)

    def add(self, content: Content, *, is_finite: bool = False) -> None:
        """Add a content. `is_finite` says that all of its numbers are known to be, as those of mere text are.

        Arguments in it that have their JSON text are then not written again.
        """
        encoded = _dump_with_texts(content) if is_finite else strict_json.dump(content)
        if self._is_readable:
            self._held[-1] = None
        self._held.append(content)
        self._encoded.append(encoded)
        size = len(encoded)
        self.size_bytes += size
        self.bytes_encoded += size
        self._is_readable = _is_readable(encoded, content)

    def insert(self, index: int, content: Content) -> None:
        """Insert a content before the one at the index."""
        encoded = strict_json.dump(content)
        self._held.insert(index, content)
        self._encoded.insert(index, encoded)
        self.size_bytes += len(encoded)
        self.bytes_encoded += len(encoded)

    def put(self, index: int, content: Content) -> None:
        """Replace a content."""
        encoded = strict_json.dump(content)
        is_newest = index == len(self) - 1
        is_readable = _is_readable(encoded, content)
        self.size_bytes += len(encoded) - len(self._encoded[index])
        self.bytes_encoded += len(encoded)
        self._held[index] = None if is_readable and not is_newest else content
        self._encoded[index] = encoded
        if is_newest:
            self._is_readable = is_readable

    def drop(self, start: int, end: int) -> None:
        """Drop the contents from `start` to before `end`."""
        if start < end == len(self):
            self._is_readable = False
        del self._held[start:end], self._encoded[start:end]
        self.size_bytes = sum(map(len, self._encoded))


class ContentPrefix:
    """The encoded contents that something was made of, so that a longer history costs only what is new."""

    __slots__ = ("contents",)

    def __init__(self) -> None:
        self.contents: tuple[bytes, ...] = ()

    def shared(self, encoded: tuple[bytes, ...]) -> int:
        """The number of contents that a history begins with in common."""
        length = min(len(self.contents), len(encoded))
        # Compared at once, and the same bytes by their identity.
        if (kept := self.contents[:length]) == (found := encoded[:length]):
            return length
        return next(place for place in range(length) if kept[place] != found[place])


def _dump_with_texts(content: Content) -> bytes:
    parts = parts_of(content)
    encoded = [_encoded_args(part) for part in parts]
    texts = [text for text in encoded if text is not None]
    for number in count() if texts else ():
        word = f"args {number}"  # Another one if this is in the content by chance.
        marked = [part if text is None else with_args(part, word) for part, text in zip(parts, encoded, strict=True)]
        around = strict_json.dump({**content, "parts": marked}, is_finite=True).split(f'"{word}"'.encode())
        if len(around) == len(texts) + 1:
            return b"".join((*chain.from_iterable(zip(around, texts, strict=False)), around[-1]))
    return strict_json.dump(content, is_finite=True)


def _encoded_args(part: Part) -> bytes | None:
    args: Any = call_of(part).get("args") if is_call(part) else None
    return args.take_encoded() if isinstance(args, strict_json.EncodedObject) else None


def _is_responses(content: Content) -> bool:
    return role_of(content) == "user" and any(map(is_response, parts_of(content)))


def _is_readable(encoded: bytes, content: Content) -> bool:
    """True if a content is long responses, and what is decoded from its JSON is the content again."""
    return len(encoded) > HELD_BYTES_MAX and _is_responses(content) and _reads_as(encoded, content)


def _reads_as(encoded: bytes, content: Content) -> bool:
    """Check the round trip: a program's own contents may not be JSON, or too deep to be parsed."""
    try:
        return _read(encoded) == content
    except JsonError:
        return False


def _read(encoded: bytes) -> Content:
    return cast("Content", strict_json.parse_own(encoded))
