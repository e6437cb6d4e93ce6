"""A call that has arrived in part: its text so far, and where it ends if it is broken.

Takes text piece by piece, returns where to cut. Knows nothing of the tool.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from callgate.prompted.call_reader import RawCall
from callgate.prompted.scanner import Form, Scanner

__all__ = ["CALL_CHARS_MAX", "RAW_CHARS_KEPT", "RESCANNED_MAX", "TOO_LONG", "PartialCall"]

CALL_CHARS_MAX = 16 * 1024 * 1024
"""A longer call is an error; only its beginning is kept."""

RESCANNED_MAX = 1024 * 1024
"""Characters that may be read again because a call in them turned out to be broken. Beyond it a marker at the beginning of a
line always ends the call before it, even in what looks like a string, so that hostile text costs no more than any other."""

RAW_CHARS_KEPT = 1_000
TOO_LONG = f"it is longer than {CALL_CHARS_MAX:,} characters"

_LAST_CLOSE: Mapping[Form, re.Pattern[str]] = {
    "(": re.compile(r"\)[ \t;.*]*+\r?(?=\n|\Z)"),
    "{": re.compile(r"[)}][ \t;.*]*+\r?(?=\n|\Z)"),
}


@dataclass(slots=True)
class PartialCall:
    """The call that is being read."""

    name: str | None
    form: Form
    bold: bool
    scan: Scanner
    raw: list[str]
    length: int
    args_begin: int
    first_marker: int | None = None
    """The position of the first line-start marker inside."""
    is_too_long: bool = False

    def add(self, text: str) -> None:
        """Add what was read."""
        self.length += len(text)
        if not self.is_too_long:
            self.raw.append(text)

    def text(self) -> str:
        """The text so far; of an oversized call, the beginning."""
        self.raw[:] = ["".join(self.raw)]
        return self.raw[0]

    def last_close(self, limit: int | None) -> int | None:
        """The end of the last bracket that ends a line, before `limit`; None if there is none."""
        raw = self.text()
        closes = _LAST_CLOSE[self.form].finditer(raw, self.args_begin, len(raw) if limit is None else limit)
        last = next(iter(deque(closes, maxlen=1)), None)
        return last.start() + 1 if last is not None else None

    def raw_call(self, raw: str, args: str) -> RawCall:
        """The call in its pieces."""
        return RawCall(self.name, args, raw)
