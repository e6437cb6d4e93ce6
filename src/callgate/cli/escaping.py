"""Escape untrusted text for a terminal: whatever could steer it, hide in it or reorder it is spelled out.

Takes text of a model, tool, file or server, returns text that shows what it contains, as in `<U+202E>`. Letters of all
scripts stay as they are. Pure; `render.py` does the writing.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, cast

from callgate.types import FunctionCall

__all__ = [
    "ascii_json",
    "one_line",
    "readable_args",
    "readable_value",
    "shown_args",
    "shown_call",
    "shown_name",
    "visible",
    "wrapped",
]

CONTEXT_CHARS = 8
"""Length of the preceding text needed to judge what follows."""
COMBINING_MAX = 4
"""More combining marks than this on one letter overlap the lines around it."""
SHOWN_CHARS_MAX = 20_000
JOINERS = ("\u200c", "\u200d")
"""Characters without width that join letters or emoji, or keep letters apart."""

_COMBINING = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u1ab0-\u1aff\u1dc0-\u1dff"
    "\u20d0-\u20dc\u20e1\u20e3\u20e5-\u20f0\ufe20-\ufe2f"
)
_JOINED = (
    "["
    "\u0600-\u06ff\u0700-\u074f\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefc"  # Arabic, Syriac
    "\u0900-\u0dff"  # the scripts of India and Sri Lanka
    "\u1000-\u109f\u1780-\u17b3\u17b6-\u17ff\u1820-\u18af"  # Myanmar, Khmer, Mongolian
    "\u2640\u2642\u2600-\u27bf\u2b00-\u2bff\ufe0f\U0001f000-\U0001faff"  # emoji
    "]"
)
_UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but newline and tab, delete, and their 8-bit twins
    "\u00ad\u034f\u061c\u180b-\u180f\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff"  # no width, or another direction
    "\u1680\u2000-\u200a\u2028\u2029\u205f\u2800\u3164\u115f\u1160\uffa0"  # spaces that are none, and ends of lines
    "\u0488\u0489\u20dd-\u20e0\u20e2\u20e4\ua670-\ua672"  # circles around others, which some terminals choke on
    "\u17b4\u17b5\ufff9-\ufffb\ufffe\uffff\U0001d173-\U0001d17a"  # invisible marks and non-characters
    "\ufe00-\ufe0d\U000e0000-\U000e0fff"  # tags and variation selectors: hidden text
    "\ud800-\udfff\ue000-\uf8ff\U000f0000-\U0010ffff"  # halves of pairs, and what means something else everywhere
    "]"
    # Joiners are legitimate between letters of scripts that need them, and in emoji; in Latin text they only hide something.
    f"|(?<!{_JOINED})[\u200c\u200d]|[\u200c\u200d](?!{_JOINED})"
    # One variation selector after a symbol is legitimate.
    "|(?<![\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff#*0-9])[\ufe0e\ufe0f]"
    f"|(?<=[{_COMBINING}]{{{COMBINING_MAX}}})[{_COMBINING}]"
)


def visible(text: str, *, before: str = "") -> str:
    """Escape everything that could steer a terminal or deceive a reader.

    `before` is the text right before it, where a text arrives in pieces.
    """
    before = before[-CONTEXT_CHARS:]
    pieces: list[str] = []
    place = len(before)
    whole = before + text
    for found in _UNSAFE.finditer(whole, place):
        pieces += [whole[place : found.start()], _spelled(found[0])]
        place = found.end()
    return "".join([*pieces, whole[place:]])


def one_line(text: str, chars_max: int, *, cut: str = "...") -> str:
    """Escape the text and put it on one line; excess is cut off."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= chars_max else line[:chars_max] + cut


def ascii_json(value: Any) -> str:
    """JSON in which every character that is not plain ASCII is escaped: two texts that look alike are never the same."""
    return json.dumps(value, default=repr).replace("\x7f", "\\u007f")


def shown_call(call: FunctionCall) -> str:
    """The exact call, whole and in ASCII, as in `write_file(path="notes.md")`."""
    args = ", ".join(f"{shown_name(name)}={ascii_json(value)}" for name, value in call.args.items())
    return f"{ascii_json(call.name)[1:-1]}({args})"


def shown_name(name: Any) -> str:
    """The exact name of an argument: as it is if it is an ASCII identifier, as JSON otherwise."""
    text = str(name)
    return text if text.isascii() and text.isidentifier() else ascii_json(text)


def shown_args(args: Mapping[str, Any]) -> Iterator[str]:
    """Format the exact arguments in ASCII, one per line. A very long value is cut, with its length and hash."""
    for name, value in args.items():
        text = ascii_json(value)
        if len(text) > SHOWN_CHARS_MAX:
            digest = hashlib.sha256(text.encode("ascii")).hexdigest()[:16]
            half = SHOWN_CHARS_MAX // 2
            left_out = f" ... {len(text) - SHOWN_CHARS_MAX} of {len(text)} characters not shown, sha256 {digest} ... "
            text = text[:half] + left_out + text[-half:]
        yield f"{shown_name(name)}: {text}"


def readable_args(args: Mapping[str, Any]) -> str:
    """Arguments for a person, as in `path="README.md", lines=3`; `shown_args` shows them exactly."""
    return ", ".join(f"{name}={_plain_json(value)}" for name, value in args.items())


def readable_value(value: Any) -> str:
    """A result for a person: text as it is, the fields of an object one after another."""
    if isinstance(value, str):
        return value
    return readable_args(cast("dict[str, Any]", value)) if isinstance(value, dict) else _plain_json(value)


def _plain_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=repr)


def wrapped(text: str, columns: int) -> Iterator[str]:
    """Split the escaped text into pieces of so many columns, behind a blank where there is one; nothing is left out."""
    piece, used = "", 0
    for char in visible(text):
        width = _width(char)
        if piece and used + width > columns:
            word = piece.rfind(" ") + 1
            cut = word if char != " " and word > len(piece) // 2 else len(piece)
            yield piece[:cut]
            piece = piece[cut:]
            used = sum(map(_width, piece))
        piece, used = piece + char, used + width
    yield piece


def _width(char: str) -> int:
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _spelled(char: str) -> str:
    return f"<U+{ord(char):04X}>"
