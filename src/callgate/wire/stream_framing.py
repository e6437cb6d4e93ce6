"""Stream framing: bytes of an answer in, the texts of its JSON values out, for every known format.

Bytes come in, split anywhere; the texts of JSON values go out, still unparsed, each as soon as it is complete. Which form it
is (server-sent events, a JSON array, JSON objects one after another, one whole object) is seen from the first bytes. This
file refuses to know what is in the values; it only finds their ends.

Every byte is looked at a bounded number of times however the bytes were cut: scanning goes over new bytes only and keeps its
state, and what waits for its end is appended to, never copied again.
"""

from __future__ import annotations

import re
from typing import Protocol

from callgate.errors import JsonError, LimitExceededError, ProtocolError
from callgate.strict_json import parse_isolating

__all__ = ["Splitter", "cut_in", "excerpt", "splitter_of"]

_EXCERPT_CHARS = 200
_EXCERPT_BYTES = 4 * 1024

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

_SCRIPT = re.compile(r"<(script|style)\b.*?(?:</\1\s*>|$)", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>?")
_INVISIBLE = re.compile("[\x00-\x20\x7f-\xa0\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufffd]+")


class Splitter(Protocol):
    """A splitter of one answer format into the texts of JSON values."""

    def feed(self, data: bytes, texts: list[bytes]) -> None:
        """Take the next bytes; what became complete is appended to the texts."""
        ...

    def close(self, texts: list[bytes]) -> None:
        """Signal the end of the input."""
        ...


def splitter_of(head: bytes, bytes_max: int) -> Splitter | None:
    """The form of an answer that starts so; None while more bytes are needed to tell."""
    if head.startswith(b"data:"):  # Nearly all that come in pieces begin so.
        return _EventStream(bytes_max)
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
        if rest:
            self._line_start += rest
            self._check_size(len(self._line_start))

    def close(self, texts: list[bytes]) -> None:
        if line := bytes(self._line_start):
            if self._bare is None and _SSE_OTHER_FIELD.match(line) and not _is_known_field(line):
                raise cut_in("a line")
            self._take_line(line, texts)
        if self._bare is not None:
            self._bare.close(texts)
        # Whether it is whole is for the parser to say: no object is JSON before its last brace.
        self._end_event(texts, last=True)

    def _take_line(self, line: bytes, texts: list[bytes]) -> None:
        if not line:
            self._end_event(texts)
            return
        self._check_size(len(line))
        if line.startswith(b"data:"):
            self._take_data(line[6:] if line.startswith(b" ", 5) else line[5:], texts)
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
        event = self._event
        if not event:
            return
        self._event, self._event_bytes = [], 0
        if len(event) == 1:
            texts += event
            return
        # Proxies that swallow blank lines make one event of several; a pretty-printed one still comes out as one value.
        values = _JsonValues(self._bytes_max)
        values.feed(b"\n".join(event), texts)
        if values.is_open:
            raise cut_in("an event") if last else ProtocolError(f"the answer is not JSON: {excerpt(event[0])}")

    def _check_size(self, more: int) -> None:
        if self._event_bytes + more > self._bytes_max:
            raise _too_large(self._bytes_max)


# Of bytes, unlike of str, splitlines knows CR, LF and CRLF only: U+2028, VT and the like stay in their strings.
_lines = bytes.splitlines


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
        """True if a value or the array around the values has not ended."""
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
            raise cut_in("a JSON value" if self._depth else "a JSON array")

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
            raise ProtocolError(f"the answer holds something else where a JSON object should be: {excerpt(data[pos:])}")
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
        raise ProtocolError(f"the answer is {what}: {excerpt(start)}")


def _is_json(text: bytes) -> bool:
    try:
        parse_isolating(text)
    except JsonError:
        return False
    return True


def excerpt(text: bytes) -> str:
    """At most 200 characters for a person to see, without tags and control characters."""
    shown = text[:_EXCERPT_BYTES].decode("utf-8", "replace")
    shown = _TAG.sub(" ", _SCRIPT.sub(" ", shown))
    return _INVISIBLE.sub(" ", shown).strip()[:_EXCERPT_CHARS] or "nothing readable"


def cut_in(what: str) -> ProtocolError:
    """The error for an answer that ended there; asking again may help."""
    return ProtocolError(f"the answer ended in the middle of {what}", retryable=True)


def _too_large(bytes_max: int) -> LimitExceededError:
    return LimitExceededError(f"one response of the answer is larger than {bytes_max} bytes")
