"""The bytes of an answer become response chunks.

Bytes come in, split anywhere; response objects go out as they came, each as soon as it is complete. Their form is seen from
the first bytes (`stream_framing.py`), because content types lie. This file refuses to know what a response means: an error
body is a chunk like any other, and whether a stream ended too early is for its reader to say.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any, NoReturn, cast

from callgate.errors import JsonError, LimitExceededError, ProtocolError, UsageError
from callgate.strict_json import (
    DEPTH_MAX,
    EncodedObject,
    SoundObject,
    has_more_of,
    parse,
    parse_isolating,
    parse_shallow,
    why_unsound,
)
from callgate.types import JsonObject
from callgate.wire.oversized_args import ArgumentPruner, calls_in, is_heavy, is_within_limits
from callgate.wire.stream_framing import Splitter, cut_in, excerpt, splitter_of

__all__ = ["ResponseReader"]

EVENT_BYTES_MAX = 16 * 1024 * 1024
TOTAL_BYTES_MAX = 64 * 1024 * 1024

# candidates[0].content.parts[0].functionCall lies around the arguments, whose own depth is what is limited.
_DEPTH_MAX = DEPTH_MAX + 7
# A feed is worked on in slices, so that a large one of nothing but line ends does not become millions of objects at once.
_SLICE_BYTES = 64 * 1024

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_QUOTE = ord('"')
_OPENERS = b"{["

# The closing quote is optional, so that a string that never ends is passed over once and not tried again from every quote.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{\[]|[}\]]', re.DOTALL)


class ResponseReader:
    """A reader of one answer: `feed` it the bytes as they arrive, then `close` it; both return the complete chunks.

    What was complete before a fault is given out first: the error then comes from the next call. After an error the reader
    stays failed and raises it again. Bad places inside a chunk (NaN, bytes that are not UTF-8, too deep, too many arguments)
    are `strict_json.Bad` objects there.

    An event with endless arguments takes long to read. A reader with `leaves_heavy=True` leaves such events, and those
    behind them, to `catch_up`, which reads them in short steps; until that is done, it takes nothing new.
    """

    def __init__(
        self,
        *,
        event_bytes_max: int = EVENT_BYTES_MAX,
        total_bytes_max: int = TOTAL_BYTES_MAX,
        leaves_heavy: bool = False,
    ) -> None:
        self._event_bytes_max = event_bytes_max
        self._total_bytes_max = total_bytes_max
        self._total_bytes = 0
        self._head = b""
        self._past_bom = False
        self._splitter: Splitter | None = None
        self._failure: ProtocolError | LimitExceededError | None = None
        self._closed = False
        self._gave_any = False
        self._leaves_heavy = leaves_heavy
        self._left: deque[bytes] = deque()
        self._has_all = False
        """True if no more bytes come, but the reader is behind and not closed yet."""

    @property
    def is_behind(self) -> bool:
        """True if there is something to `catch_up` with."""
        return bool(self._left)

    def feed(self, data: bytes) -> list[JsonObject]:
        """Take the next bytes; the chunks that are complete now.

        Raises:
            ProtocolError: the answer is not what the protocol promises.
            LimitExceededError: it is larger than allowed.
        """
        if self._failure is not None or self._closed or self._left:
            self._refuse()
        if type(data) is not bytes:
            data = _as_bytes(data)
        texts: list[bytes] = []
        try:
            self._take(data, texts)
        except (ProtocolError, LimitExceededError) as error:
            self._failure = error
        chunks = self._parsed(texts) if texts else []
        if self._failure is not None and not chunks and not self._left:
            raise self._failure from None
        return chunks

    def close(self) -> list[JsonObject]:
        """Say that no more bytes come; the last chunks.

        Raises:
            ProtocolError: the answer is empty, ends in the middle of something, or had failed before.
            LimitExceededError: it is larger than allowed.
        """
        if self._closed and self._failure is None:
            return []
        if self._failure is not None or self._left:
            self._refuse()
        self._closed = True
        texts: list[bytes] = []
        try:
            self._finish(texts)
        except (ProtocolError, LimitExceededError) as error:
            self._failure = error
        chunks = self._parsed(texts) if texts else []
        if not self._left:
            self._check_end()
        return chunks

    def catch_up(self) -> Iterator[list[JsonObject]]:
        """Read what was left, in short steps; gives out what became complete in each, which is mostly nothing.

        Raises:
            ProtocolError: the answer is not what the protocol promises.
            LimitExceededError: it is larger than allowed.
        """
        yield from self._heavy_steps()
        if self._has_all and self._failure is None:
            self._has_all = False
            yield self.close()
            yield from self._heavy_steps()
        if self._closed:
            self._check_end()
        if self._failure is not None:
            raise self._failure from None

    def _check_end(self) -> None:
        if self._failure is None and not self._gave_any:
            self._failure = ProtocolError("the answer holds no response", retryable=True)
        if self._failure is not None:
            raise self._failure from None

    def _refuse(self) -> NoReturn:
        """Say why nothing more is taken."""
        if self._failure is not None:
            raise self._failure from None
        if self._closed:
            raise UsageError("this ResponseReader is closed: make a new one for every answer")
        raise UsageError("this ResponseReader has not read all that it was given: go through catch_up() first")

    def read_whole(self, data: bytes) -> list[JsonObject]:
        """All chunks of an answer that is already complete: as `feed` and `close`, but quicker for the usual one object.

        Raises:
            ProtocolError: the answer is not what the protocol promises.
            LimitExceededError: it is larger than allowed.
        """
        if len(data) <= min(self._event_bytes_max, self._total_bytes_max) and data[:1] == b"{":
            if is_heavy(data):
                return self._read_heavy(data)
            try:
                return [_parse_sound(data)]
            except JsonError:
                pass  # Something else than one sound object; what exactly, the long way tells.
        chunks = self.feed(data)
        if self._left:
            self._has_all = True
            return chunks
        return [*chunks, *self.close()]

    def _read_heavy(self, data: bytes) -> list[JsonObject]:
        """Read the data as a single event: scanning so many brackets for its end would take too long."""
        self._closed = True
        chunks = self._parsed([data])
        if not self._left:
            self._check_end()
        return chunks

    def _take(self, data: bytes, texts: list[bytes]) -> None:
        room = self._total_bytes_max - self._total_bytes
        self._total_bytes += len(data)
        taken = data if len(data) <= room else data[:room]
        if self._splitter is None:
            taken = self._detect(taken)
        if self._splitter is not None:
            for start in range(0, len(taken), _SLICE_BYTES):
                self._splitter.feed(taken[start : start + _SLICE_BYTES], texts)
        if len(data) > room:
            raise LimitExceededError(f"the answer is larger than {self._total_bytes_max} bytes")

    def _finish(self, texts: list[bytes]) -> None:
        if self._splitter is not None:
            self._splitter.close(texts)
        elif self._head:
            raise cut_in("its first line")
        else:
            raise ProtocolError("the answer is empty", retryable=True)

    def _detect(self, data: bytes) -> bytes:
        """Choose the format as soon as the first bytes show it. Returns the bytes to split, none before that."""
        head = self._head + data
        if not self._past_bom:
            if len(head) < len(_BOM) and _BOM.startswith(head):
                self._head = head
                return b""
            self._past_bom = True
            head = head.removeprefix(_BOM)
        head = head.lstrip(_SPACE)
        self._splitter = splitter_of(head, self._event_bytes_max)
        self._head = head if self._splitter is None else b""
        return b"" if self._splitter is None else head

    def _parsed(self, texts: list[bytes]) -> list[JsonObject]:
        """The chunks of these texts, up to one that takes long if such are to be left."""
        self._left.extend(texts)
        chunks = self._parsed_light()
        if self._left and not self._leaves_heavy:
            for more in self._heavy_steps():
                chunks += more
        return chunks

    def _parsed_light(self) -> list[JsonObject]:
        chunks: list[JsonObject] = []
        left = self._left
        while left and not is_heavy(left[0]):
            try:
                chunks += self._read(left.popleft(), is_light=True)
            except (ProtocolError, LimitExceededError) as error:
                self._fail(error)
        if chunks:
            self._gave_any = True
        return chunks

    def _heavy_steps(self) -> Iterator[list[JsonObject]]:
        while self._left:
            light = ArgumentPruner(self._left[0])
            try:
                for _ in light.steps():
                    yield []
                chunks = self._read(light.text)
                light.mark(chunks)
            except (ProtocolError, LimitExceededError) as error:
                self._fail(error)
                return
            self._gave_any = True
            self._left.popleft()
            yield [*chunks, *self._parsed_light()]

    def _fail(self, error: ProtocolError | LimitExceededError) -> None:
        self._failure = error
        self._left.clear()

    def _read(self, text: bytes, *, is_light: bool = False) -> list[JsonObject]:
        """The object of this text, or the objects of an array of them, which is how some error bodies are wrapped."""
        try:
            value = _parse(text, is_light=is_light)
        except JsonError:
            raise (cut_in("an event") if self._closed else _not_json(text)) from None
        if isinstance(value, dict):
            return [cast("JsonObject", value)]
        items: list[Any] = cast("list[Any]", value) if isinstance(value, list) else []
        if not items or not all(isinstance(item, dict) for item in items):
            raise ProtocolError(f"the answer holds JSON that is not an object: {excerpt(text)}")
        return items


def _not_json(text: bytes) -> ProtocolError:
    return ProtocolError(f"the answer is not JSON: {excerpt(text)}")


def _as_bytes(data: Any) -> bytes:
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(cast("Any", data))
    # Text has lost what a character that is split between two chunks, or is no character at all, looked like.
    raise UsageError(
        f"ResponseReader.feed takes the bytes of the answer as they came, not {type(data).__name__}: give it those, or "
        "text.encode() where there is nothing but text"
    )


def _parse(text: bytes, *, is_light: bool) -> Any:
    try:
        return _parse_sound(text) if is_light else parse(text, depth_max=_DEPTH_MAX)
    except JsonError:
        pass
    try:
        return parse_isolating(text, depth_max=_DEPTH_MAX, is_refused=True)
    except JsonError:
        shallow = _shallow(text)
        if shallow == text:
            raise
        return parse_isolating(shallow, depth_max=_DEPTH_MAX)


def _parse_sound(text: bytes) -> Any:
    """Parse an event that is not heavy; a long object is marked, so that it is not looked through again."""
    if text[:1] != b"{" or not is_within_limits(text):
        return parse(text, depth_max=_DEPTH_MAX)
    if has_more_of(text, (b"{", b"["), _DEPTH_MAX):  # A look at so many objects takes long.
        try:
            return SoundObject(_parse_encoding(text))
        except JsonError:  # Or it may be nested just as deeply as it may.
            pass
    return SoundObject(cast("JsonObject", parse(text, depth_max=_DEPTH_MAX)))


def _parse_encoding(text: bytes) -> JsonObject:
    """Parse a long event, and write the arguments of its calls as the history has them, which shows infinite numbers too.

    Raises:
        JsonError: it is not JSON, or not sound.
    """
    event: JsonObject = parse_shallow(text, _DEPTH_MAX)
    calls = [(call, call["args"]) for call in calls_in([event]) if type(call.get("args")) is dict]
    for call, _ in calls:
        call["args"] = None
    if (problem := why_unsound(event, _DEPTH_MAX)) is not None:
        raise JsonError(problem)
    for call, args in calls:
        call["args"] = EncodedObject(args)
    return event


def _shallow(text: bytes) -> bytes:
    """The text with its containers emptied from two levels beyond the depth limit on.

    Nesting of thousands of levels stops any parser. One level beyond the limit stays, with something in it, so that the
    parser still sees that the limit was passed and marks the place as bad.
    """
    level = _DEPTH_MAX + 2
    kept: list[bytes] = []
    depth = copied = 0
    for token in _TOKEN.finditer(text):
        byte = text[token.start()]
        if byte in _OPENERS:
            depth += 1
            if depth == level:
                kept.append(text[copied : token.end()])
        elif byte != _QUOTE:
            if depth == level:
                copied = token.start()
            depth -= 1
    return b"".join((*kept, text[copied:])) if depth < level else text
