"""The bytes of an answer become response chunks.

Bytes come in, split anywhere; GenerateContentResponse objects go out as they came, each as soon as it is complete. The form
(server-sent events, a JSON array, JSON objects one after another, one whole object) is seen from the first bytes, because
content types lie. This file refuses to know what a response means: an error body is a chunk like any other, and whether a
stream ended too early is for its reader to say.

Every byte is looked at a bounded number of times however the bytes were cut: scanning goes over new bytes only and keeps its
state, and what waits for its end is appended to, never copied again.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol, cast

from callgate.errors import JsonError, LimitExceeded, ProtocolError, UsageError
from callgate.strict_json import DEPTH_MAX, parse, parse_isolating
from callgate.types import JsonObject
from callgate.wire.endless import Lightening, is_heavy

__all__ = ["ResponseReader"]

EVENT_BYTES_MAX = 16 * 1024 * 1024
TOTAL_BYTES_MAX = 64 * 1024 * 1024

# candidates[0].content.parts[0].functionCall lies around the arguments, whose own depth is what is limited.
_DEPTH_MAX = DEPTH_MAX + 7
# A feed is worked on in slices, so that a large one of nothing but line ends does not become millions of objects at once.
_SLICE_BYTES = 64 * 1024
_EXCERPT_CHARS = 200
_EXCERPT_BYTES = 4 * 1024

_BOM = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"
_QUOTE = ord('"')
_BACKSLASH = ord("\\")
_OPENERS = b"{["
_SSE_FIELDS = (b"data", b"event", b"id", b"retry")
# Any other field is legal in server-sent events and to be ignored; a line of prose is not a field.
_SSE_OTHER_FIELD = re.compile(rb"[A-Za-z][\w-]*(?::|$)")

_OUTSIDE_STRING = re.compile(rb'"|[{\[]+|[}\]]+')
_INSIDE_STRING = re.compile(rb'["\\]')
_BETWEEN_VALUES = re.compile(rb"[ \t\r\n]*")
_BETWEEN_ELEMENTS = re.compile(rb"[ \t\r\n,]*")

# The closing quote is optional, so that a string that never ends is passed over once and not tried again from every quote.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[{\[]|[}\]]', re.DOTALL)
_SCRIPT = re.compile(r"<(script|style)\b.*?(?:</\1\s*>|$)", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>?")
_INVISIBLE = re.compile("[\x00-\x20\x7f-\xa0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufffd]+")


class ResponseReader:
    """Reads one answer: `feed` it the bytes as they arrive, then `close` it; both return the chunks that became complete.

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
        self._splitter: _Splitter | None = None
        self._failure: ProtocolError | LimitExceeded | None = None
        self._closed = False
        self._gave_any = False
        self._leaves_heavy = leaves_heavy
        self._left: deque[bytes] = deque()

    @property
    def is_behind(self) -> bool:
        """Whether there is something to `catch_up` with."""
        return bool(self._left)

    def feed(self, data: bytes) -> list[JsonObject]:
        """Take the next bytes; the chunks that are complete now.

        Raises:
            ProtocolError: the answer is not what the protocol promises.
            LimitExceeded: it is larger than allowed.
        """
        self._raise_failure()
        if self._closed:
            raise UsageError("this ResponseReader is closed: make a new one for every answer")
        self._refuse_if_behind()
        texts: list[bytes] = []
        try:
            self._take(data, texts)
        except (ProtocolError, LimitExceeded) as error:
            self._failure = error
        chunks = self._parsed(texts)
        if not chunks and not self._left:
            self._raise_failure()
        return chunks

    def close(self) -> list[JsonObject]:
        """Say that no more bytes come; the last chunks.

        Raises:
            ProtocolError: the answer is empty, ends in the middle of something, or had failed before.
            LimitExceeded: it is larger than allowed.
        """
        self._raise_failure()
        if self._closed:
            return []
        self._refuse_if_behind()
        self._closed = True
        texts: list[bytes] = []
        try:
            self._finish(texts)
        except (ProtocolError, LimitExceeded) as error:
            self._failure = error
        chunks = self._parsed(texts)
        if not self._left:
            self._check_end()
        return chunks

    def catch_up(self) -> Iterator[list[JsonObject]]:
        """Reads what was left, in short steps; gives out what became complete in each, which is mostly nothing.

        Raises:
            ProtocolError: the answer is not what the protocol promises.
            LimitExceeded: it is larger than allowed.
        """
        yield from self._heavy_steps()
        if self._closed:
            self._check_end()
        self._raise_failure()

    def _check_end(self) -> None:
        if self._failure is None and not self._gave_any:
            self._failure = ProtocolError("the answer holds no response", retryable=True)
        self._raise_failure()

    def _refuse_if_behind(self) -> None:
        if self._left:
            raise UsageError("this ResponseReader has not read all that it was given: go through catch_up() first")

    def read_whole(self, data: bytes) -> list[JsonObject]:
        """All chunks of an answer that is already complete: as `feed` and `close`, but quicker for the usual one object.

        Raises:
            ProtocolError: the answer is not what the protocol promises.
            LimitExceeded: it is larger than allowed.
        """
        if len(data) <= min(self._event_bytes_max, self._total_bytes_max) and data[:1] == b"{":
            if is_heavy(data):
                return self._read_heavy(data)
            try:
                return [parse(data, depth_max=_DEPTH_MAX)]
            except JsonError:
                pass  # Something else than one sound object; what exactly, the long way tells.
        return [*self.feed(data), *self.close()]

    def _read_heavy(self, data: bytes) -> list[JsonObject]:
        """As one event and nothing else: to look for its end among so many brackets would take too long."""
        self._closed = True
        chunks = self._parsed([data])
        if not self._left:
            self._check_end()
        return chunks

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure from None

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
            raise LimitExceeded(f"the answer is larger than {self._total_bytes_max} bytes")

    def _finish(self, texts: list[bytes]) -> None:
        if self._splitter is not None:
            self._splitter.close(texts)
        elif self._head:
            raise _cut_in("its first line")
        else:
            raise ProtocolError("the answer is empty", retryable=True)

    def _detect(self, data: bytes) -> bytes:
        """Choose the form as soon as the first bytes tell it. Returns what is to be split, nothing before that."""
        head = self._head + data
        if not self._past_bom:
            if len(head) < len(_BOM) and _BOM.startswith(head):
                self._head = head
                return b""
            self._past_bom = True
            head = head.removeprefix(_BOM)
        head = head.lstrip(_SPACE)
        self._splitter = _splitter_of(head, self._event_bytes_max)
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
        while self._left and not is_heavy(self._left[0]):
            try:
                chunks += self._read(self._left.popleft())
            except (ProtocolError, LimitExceeded) as error:
                self._fail(error)
        self._gave_any = self._gave_any or bool(chunks)
        return chunks

    def _heavy_steps(self) -> Iterator[list[JsonObject]]:
        while self._left:
            light = Lightening(self._left[0])
            try:
                for _ in light.steps():
                    yield []
                chunks = self._read(light.text)
                light.mark(chunks)
            except (ProtocolError, LimitExceeded) as error:
                self._fail(error)
                return
            self._gave_any = True
            self._left.popleft()
            yield [*chunks, *self._parsed_light()]

    def _fail(self, error: ProtocolError | LimitExceeded) -> None:
        self._failure = error
        self._left.clear()

    def _read(self, text: bytes) -> list[JsonObject]:
        return _objects(text, last=self._closed)


class _Splitter(Protocol):
    """Cuts one form of answer into the texts of JSON values."""

    def feed(self, data: bytes, texts: list[bytes]) -> None: ...

    def close(self, texts: list[bytes]) -> None: ...


def _splitter_of(head: bytes, bytes_max: int) -> _Splitter | None:
    """The form of an answer that starts so; None while more bytes are needed to tell."""
    if not head:
        return None
    if head[0] in _OPENERS:
        return _JsonValues(bytes_max)
    if head.startswith(b":"):
        return _EventStream(bytes_max)
    for field in _SSE_FIELDS:
        if field.startswith(head):
            return None
        if head.startswith(field) and head[len(field)] in b":\r\n":
            return _EventStream(bytes_max)
    return _Prose()


# Server-sent events ------------------------------------------------------------------------------------------------------


class _EventStream:
    """Server-sent events: lines end with CR, LF or CRLF and nothing else, a blank line ends an event.

    Some back ends break off and write an error as bare JSON between the events, and some write `data:` only before the first
    line of pretty-printed JSON. So a line that is no field is read as JSON, and so are the next ones until it is complete.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._line_start = bytearray()
        self._after_cr = False
        self._event: list[bytes] = []
        self._event_bytes = 0
        self._bare: _JsonValues | None = None

    def feed(self, data: bytes, texts: list[bytes]) -> None:
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            self._after_cr = False
        if not data:
            return
        self._after_cr = data.endswith(b"\r")
        lines = _lines(data)
        rest = b"" if data.endswith((b"\r", b"\n")) else lines.pop()
        if lines and self._line_start:
            lines[0] = bytes(self._line_start) + lines[0]
            self._line_start.clear()
        for line in lines:
            self._take_line(line, texts)
        self._line_start += rest
        self._check_size(len(self._line_start))

    def close(self, texts: list[bytes]) -> None:
        line = bytes(self._line_start)
        if self._bare is None and _SSE_OTHER_FIELD.match(line) and not _is_known_field(line):
            raise _cut_in("a line")
        if line:
            self._take_line(line, texts)
        if self._bare is not None:
            self._bare.close(texts)
        # Whether it is whole is for the parser to say: no object is JSON before its last brace.
        self._end_event(texts, last=True)

    def _take_line(self, line: bytes, texts: list[bytes]) -> None:
        self._check_size(len(line))
        if line.startswith(b"data:"):
            self._take_data(line[6:] if line.startswith(b" ", 5) else line[5:], texts)
        elif not line:
            self._end_event(texts)
        elif not _is_known_field(line):
            self._take_bare(line, texts)

    def _take_data(self, value: bytes, texts: list[bytes]) -> None:
        if self._bare is not None:
            self._take_bare(value, texts)
        elif not value.isspace() and value not in (b"", b"[DONE]"):
            self._event.append(value)
            self._event_bytes += len(value)

    def _take_bare(self, line: bytes, texts: list[bytes]) -> None:
        if self._bare is None and _SSE_OTHER_FIELD.match(line):
            return
        event, self._event, self._event_bytes = self._event, [], 0
        values = self._bare or _JsonValues(self._bytes_max)
        for piece in (*event, line):
            values.feed(piece + b"\n", texts)
        self._bare = values if values.is_open else None

    def _end_event(self, texts: list[bytes], *, last: bool = False) -> None:
        event, self._event, self._event_bytes = self._event, [], 0
        if len(event) <= 1:
            texts += event
            return
        # Proxies that swallow blank lines make one event of several; a pretty-printed one still comes out as one value.
        values = _JsonValues(self._bytes_max)
        values.feed(b"\n".join(event), texts)
        if values.is_open:
            raise _cut_in("an event") if last else ProtocolError(f"the answer is not JSON: {_excerpt(event[0])}")

    def _check_size(self, more: int) -> None:
        if self._event_bytes + more > self._bytes_max:
            raise _too_large(self._bytes_max)


def _lines(data: bytes) -> list[bytes]:
    # Of bytes, unlike of str, splitlines knows CR, LF and CRLF only: U+2028, VT and the like stay in their strings.
    return data.splitlines()


def _is_known_field(line: bytes) -> bool:
    name = line.partition(b":")[0]
    return name in _SSE_FIELDS or line.startswith(b":")


# JSON --------------------------------------------------------------------------------------------------------------------


class _JsonValues:
    """JSON objects one after another, or the elements of an array, found by their brackets.

    Which bracket closes which, and whether commas stand where they should, is left to the parser of the values or does not
    matter: it cannot make one object look like another.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._value = bytearray()
        self._depth = 0
        self._in_array = False
        self._in_string = False
        self._escaped = False

    @property
    def is_open(self) -> bool:
        """Whether a value or the array around the values has not ended."""
        return self._depth > 0 or self._in_array

    def feed(self, data: bytes, texts: list[bytes]) -> None:
        pos = 0
        while pos < len(data):
            if self._depth == 0:
                pos = self._begin(data, pos)
                continue
            end = self._scan(data, pos)
            self._value += data[pos:end]
            pos = end
            if len(self._value) > self._bytes_max:
                raise _too_large(self._bytes_max)
            if self._depth == 0:
                texts.append(bytes(self._value))
                self._value.clear()

    def close(self, texts: list[bytes]) -> None:
        if self.is_open:
            raise _cut_in("a JSON value" if self._depth else "a JSON array")

    def _begin(self, data: bytes, pos: int) -> int:
        """Go on between values: to the first byte inside the next one, or to the end of the data."""
        between = (_BETWEEN_ELEMENTS if self._in_array else _BETWEEN_VALUES).match(data, pos)
        pos = between.end() if between else pos
        byte = data[pos : pos + 1]
        if byte == b"[" and not self._in_array:
            self._in_array = True
        elif byte == b"]" and self._in_array:
            self._in_array = False
        elif byte in (b"{", b"["):
            self._value += byte
            self._depth = 1
        elif byte:
            raise ProtocolError(f"the answer holds something else where a JSON object should be: {_excerpt(data[pos:])}")
        return pos + len(byte)

    def _scan(self, data: bytes, pos: int) -> int:
        """Go on inside a value: to the first byte after it, or to the end of the data."""
        if self._escaped:
            self._escaped = False
            pos += 1
        while found := (_INSIDE_STRING if self._in_string else _OUTSIDE_STRING).search(data, pos):
            start, pos = found.span()
            byte = data[start]
            if byte == _QUOTE:
                self._in_string = not self._in_string
            elif byte == _BACKSLASH:
                self._escaped = pos == len(data)
                pos += not self._escaped
            elif byte in _OPENERS:
                self._depth += pos - start
            elif pos - start >= self._depth:
                pos = start + self._depth
                self._depth = 0
                return pos
            else:
                self._depth -= pos - start
        return len(data)


def _objects(text: bytes, *, last: bool) -> list[JsonObject]:
    """The object of this text, or the objects of an array of them, which is how some error bodies are wrapped."""
    try:
        value = _parse(text)
    except JsonError:
        raise _cut_in("an event") if last else ProtocolError(f"the answer is not JSON: {_excerpt(text)}") from None
    items: list[Any] = cast("list[Any]", value) if isinstance(value, list) and value else [value]
    if not all(isinstance(item, dict) for item in items):
        raise ProtocolError(f"the answer holds JSON that is not an object: {_excerpt(text)}")
    return items


def _parse(text: bytes) -> Any:
    try:
        return parse_isolating(text, depth_max=_DEPTH_MAX)
    except JsonError:
        shallow = _shallow(text)
        if shallow == text:
            raise
        return parse_isolating(shallow, depth_max=_DEPTH_MAX)


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


# What is no answer at all ------------------------------------------------------------------------------------------------


class _Prose:
    """Anything else: a page of HTML, a sentence, a bare number. Collected just as far as the error message shows it."""

    def __init__(self) -> None:
        self._start = bytearray()

    def feed(self, data: bytes, texts: list[bytes]) -> None:
        self._start += data
        if len(self._start) >= _EXCERPT_BYTES:
            self.close(texts)

    def close(self, texts: list[bytes]) -> None:
        start = bytes(self._start[:_EXCERPT_BYTES])
        what = "JSON, but not an object" if _is_json(start) else "neither JSON nor server-sent events"
        raise ProtocolError(f"the answer is {what}: {_excerpt(start)}")


def _is_json(text: bytes) -> bool:
    try:
        parse_isolating(text)
    except JsonError:
        return False
    return True


def _excerpt(text: bytes) -> str:
    """At most 200 characters for a person to see, without tags and control characters."""
    shown = text[:_EXCERPT_BYTES].decode("utf-8", "replace")
    shown = _TAG.sub(" ", _SCRIPT.sub(" ", shown))
    return _INVISIBLE.sub(" ", shown).strip()[:_EXCERPT_CHARS] or "nothing readable"


def _cut_in(what: str) -> ProtocolError:
    return ProtocolError(f"the answer ended in the middle of {what}", retryable=True)


def _too_large(bytes_max: int) -> LimitExceeded:
    return LimitExceeded(f"one response of the answer is larger than {bytes_max} bytes")
