"""Arguments that never end are taken out of an event before it is parsed, in short steps.

The bytes of an event come in; the same bytes with a word in place of every `args` object that holds far too many values go
out, and later the marks in the parsed event that say so. A parser that makes a million keys holds up everything else in the
process, and there is no way to interrupt it; here every step looks at a bounded number of bytes, so that a caller who goes
through them can let others run in between. This file refuses to know anything of calls but where their arguments stand.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, cast

from callgate.content.normalize import UNREADABLE
from callgate.content.read import call_of, is_call, parts_of
from callgate.content.read_call import ARGS_CHARS_MAX, ARGS_VALUES_MAX
from callgate.errors import LimitExceededError
from callgate.strict_json import Bad, has_more_of
from callgate.types import JsonObject

__all__ = ["KEYS_MAX", "ArgumentPruner", "calls_in", "is_heavy", "is_within_limits"]

KEYS_MAX = 500_000
"""The limit of keys in one event, inside of arguments and elsewhere."""
HEAVY_FROM_BYTES = 512 * 1024
"""Anything smaller is parsed at once, whatever it holds."""
STEP_BYTES = 64 * 1024
_VALUE_STARTS = (b",", b"{", b"[")
_NO_VALUE_STARTS = bytes(byte for byte in range(256) if byte not in b",{[")
_DIGITS = 2_000
"""An integer of twice as many digits, which is near the most that Python reads, holds a whole block of them."""
_FEW_VALUES = 1_000
"""Fewer are found before all bytes are counted."""

# A quote in a string has a backslash before it, so this is a key wherever it is found in sound JSON.
_ARGS = re.compile(rb'"args"(?<!\\"args")[ \t\r\n]*:[ \t\r\n]*(?=\{)')
# Most arguments are small and flat: their end is found at once.
_FLAT = re.compile(rb'\{(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+")*+\}', re.DOTALL)
_FLAT_BYTES_MAX = 1024
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
# As far as strings are whole: up to a quote after which the end of the slice comes before the other one.
_WHOLE_TOKENS = re.compile(rb'(?:[^"]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
_INSIDE_STRING = re.compile(rb"(?:[^\"\\]++|\\.)*+", re.DOTALL)
_BRACKET_OR_STRING = re.compile(rb'[{\[]|[}\]]|"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_EMPTY = re.compile(rb"\{[ \t\r\n]*\}|\[[ \t\r\n]*\]")
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"{}[]")
_STEP_OF_BRACKET = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}


def is_heavy(text: bytes) -> bool:
    """True if a call in this event may hold too many values: a cheap look that counts too many rather than too few."""
    if len(text) <= HEAVY_FROM_BYTES or not has_more_of(text, _VALUE_STARTS, min(_FEW_VALUES, ARGS_VALUES_MAX)):
        return False
    values = 0
    for start in range(0, len(text), HEAVY_FROM_BYTES):
        # Where there are very many, the first part of them is enough to know.
        values += _values_at_most(text[start : start + HEAVY_FROM_BYTES])
        if values > ARGS_VALUES_MAX:
            return True
    return False


def is_within_limits(text: bytes) -> bool:
    """True if arguments in an event, which is not heavy, can exceed no limit but that of depth; False for short events.

    Those are looked through in no time, and may hold many values nevertheless.
    """
    if not HEAVY_FROM_BYTES < len(text) <= ARGS_CHARS_MAX:
        return False
    return not any(text[start : start + _DIGITS].isdigit() for start in range(0, len(text), _DIGITS))


class ArgumentPruner:
    """A filter for oversized arguments in one event: go through `steps`, parse `text`, then `mark` the parsed value."""

    def __init__(self, text: bytes) -> None:
        self.text = text
        """The event; without endless arguments once the steps are done."""
        self._removed = 0
        # Nobody who writes an answer can know this word, so wherever it stands, something was taken out.
        self._word = f"endless-{secrets.token_hex(16)}"

    def steps(self) -> Iterator[None]:
        """Do the work, each step a bounded part of it.

        Raises:
            LimitExceededError: the event holds too many keys even so.
        """
        text = self.text
        kept: list[bytes] = []
        copied = searched = rested = 0
        while found := _ARGS.search(text, searched):
            start = found.end()
            if flat := _FLAT.match(text, start, start + _FLAT_BYTES_MAX):
                searched = flat.end()
            else:
                extent = _Extent(text, start)
                for reached in extent.steps():
                    if reached - rested >= STEP_BYTES:
                        rested = reached
                        yield
                if extent.end is None:
                    break  # It is not JSON; the parser says so at that place, soon.
                searched = extent.end
                if extent.values > ARGS_VALUES_MAX:
                    kept += (text[copied:start], f'"{self._word}"'.encode())
                    copied = searched
                    self._removed += 1
            if searched - rested >= STEP_BYTES:
                rested = searched
                yield
        self.text = b"".join((*kept, text[copied:]))
        if self.text.count(b'":') - self.text.count(b'\\":') > KEYS_MAX:
            raise LimitExceededError(f"the answer holds more than {KEYS_MAX:,} keys in one event")

    def mark(self, chunks: list[JsonObject]) -> None:
        """Put a `Bad` where arguments were taken out.

        Raises:
            LimitExceededError: what was taken out was nobody's arguments.
        """
        reason = f"they hold more than {ARGS_VALUES_MAX:,} values"
        marked = 0
        for call in calls_in(chunks) if self._removed else ():
            if call.get("args") == self._word:
                call["args"] = Bad(reason, {UNREADABLE: reason})
                marked += 1
        if marked != self._removed:
            raise LimitExceededError(
                f"the answer holds an object of more than {ARGS_VALUES_MAX:,} values that is not a call's"
            )


class _Extent:
    """The extent of an object and the number of its values, found in steps."""

    def __init__(self, text: bytes, start: int) -> None:
        self.end: int | None = None
        """The first byte after the object; None while it is not found, and for ever if the object does not end."""
        self.values = 0
        """An upper bound, nearly exact: an empty list that is split between two steps counts once."""
        self._text = text
        self._pos = start
        self._depth = 0

    def steps(self) -> Iterator[int]:
        """Go on, each time by more bytes up to a limit; gives out how far it came."""
        step = _FLAT_BYTES_MAX
        while self.end is None and self._pos < len(self._text):
            step = min(2 * step, STEP_BYTES)
            whole = _WHOLE_TOKENS.match(self._text, self._pos, self._pos + step)
            end = whole.end() if whole else self._pos
            if end > self._pos:
                self._pass_tokens(end)
            else:
                yield from self._pass_long_string()
            yield self._pos

    def _pass_tokens(self, end: int) -> None:
        bare = _bare(self._text[self._pos : end])
        depths = list(
            accumulate(map(_STEP_OF_BRACKET.__getitem__, bare.translate(None, _NOT_BRACKETS)), initial=self._depth)
        )
        if 0 in depths[1:]:
            end = self.end = self._closing(end)
            bare = _bare(self._text[self._pos : end])
        self.values += _values_at_most(bare) - len(_EMPTY.findall(bare))
        self._depth = depths[-1]
        self._pos = end

    def _closing(self, end: int) -> int:
        """The end of the object, before this position."""
        depth = self._depth
        for found in _BRACKET_OR_STRING.finditer(self._text, self._pos, end):
            depth += _STEP_OF_BRACKET.get(self._text[found.start()], 0)
            if depth == 0:
                return found.end()
        raise AssertionError("a closing bracket was counted that is not there")

    def _pass_long_string(self) -> Iterator[int]:
        self._pos += 1
        while self._pos < len(self._text):
            inside = _INSIDE_STRING.match(self._text, self._pos, self._pos + STEP_BYTES)
            end = inside.end() if inside else self._pos
            if self._text.startswith(b'"', end):
                self._pos = end + 1
                return
            # Where nothing matches, there is a backslash and nothing after it: the text ends in the middle of the string.
            self._pos = end if end > self._pos else len(self._text)
            yield self._pos


def _values_at_most(text: bytes) -> int:
    """The number of values if no list or object is empty: each is the first of its container or follows a comma."""
    return len(text.translate(None, _NO_VALUE_STARTS))  # Half the time of counting one after the other.


def _bare(text: bytes) -> bytes:
    """The text with nothing in its strings."""
    return _STRING.sub(b'"', text)


def calls_in(chunks: list[JsonObject]) -> Iterator[JsonObject]:
    """The calls in the events of an answer, in Google's own spelling."""
    for chunk in chunks:
        candidates: Any = chunk.get("candidates")
        for candidate in cast("list[Any]", candidates) if isinstance(candidates, list) else ():
            content: Any = cast("JsonObject", candidate).get("content") if isinstance(candidate, dict) else None
            for part in parts_of(cast("JsonObject", content)) if isinstance(content, dict) else ():
                if is_call(part):
                    yield call_of(part)
