"""The patterns of the grammar: lines that begin a call or a code fence, and their prefixes.

Each mark has two patterns: one for the complete mark, and one for every prefix of it, so that a stream knows how long to
buffer text. Knows nothing of arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

__all__ = [
    "ALONE", "CHAINED", "CHAINED_ALONE", "CLOSING", "CLOSING_BEGINS", "FENCE", "HEAD", "HEAD_BEGINS", "HEAD_MAX", "INDENT",
    "INTERESTING", "MARKER", "MARKER_BEGINS", "NEXT_BEGINS", "TRAILING", "UNWRAPPED_TAGS", "Block",
    "block_after", "mentions_behind_sentences",
]  # fmt: skip

HEAD_MAX = 1_024
"""A line with a longer head before its bracket is not a call."""

UNWRAPPED_TAGS = frozenset({"", "tool_call", "tool_code", "tool", "text", "plaintext", "json"})
"""Tags of code fences that are removed when they contain nothing but calls."""

_BLANK_CHARS = r" \t\u00a0\u3000\ufeff\u200b-\u200d\u2060"
_B = f"[{_BLANK_CHARS}]"
_BULLET = rf"(?:[-*+]|[0-9]{{1,9}}[.)]){_B}++"
_MARK = rf"(?P<bold>\*\*)?TOOL_CALL{_B}*+[:：]"
_UNBOLD = rf"{_B}*+(?(bold)(?:(?P<closed>\*\*){_B}*+)?|)"
_NAME = r"(?P<quote>[`\"'])?(?P<name>[^\W\d][\w.:/-]*+)(?(quote)(?P=quote)|)"
_OPENING = rf"{_UNBOLD}(?:(?P<object>\{{)|{_NAME}{_B}*+(?P<open>[({{]))"
_ENDING = rf"{_UNBOLD}{_NAME}[{_BLANK_CHARS};.]*+(?:\*\*)?[{_BLANK_CHARS};.]*+\r?"
_BETWEEN = f"[{_BLANK_CHARS},;]*+"

INDENT = re.compile(f"{_B}*+")
MARKER = re.compile(f"(?:{_BULLET})?{_MARK}")
HEAD = re.compile(f"(?:{_BULLET})?{_MARK}{_OPENING}")
ALONE = re.compile(f"(?:{_BULLET})?{_MARK}{_ENDING}")
"""A name and nothing else after the marker, to the end of the line."""
CHAINED = re.compile(f"{_BETWEEN}{_MARK}{_OPENING}")
"""A call directly after another one."""
CHAINED_ALONE = re.compile(f"{_BETWEEN}{_MARK}{_ENDING}")
TRAILING = re.compile(f"[{_BLANK_CHARS};.]++")
"""Punctuation that belongs to the call before it."""


def _beginnings(letters: Iterable[str], rest: str) -> str:
    """A pattern of every beginning of the letters, the last of them followed by `rest`."""
    pattern = rest
    for letter in reversed(list(letters)):
        pattern = f"(?:{re.escape(letter)}{pattern})?"
    return pattern


_END_BEGINS = rf"[{_BLANK_CHARS};.]*+\*{{0,2}}[{_BLANK_CHARS};.]*+\r?"
_NAME_BEGINS = rf"{_B}*+\*{{0,2}}{_B}*+[`\"']?(?:[^\W\d][\w.:/-]*+)?[`\"']?{_END_BEGINS}"
_MARK_BEGINS = _beginnings("TOOL_CALL", f"{_B}*+(?:[:：])?")
_HEAD_BEGINS = _beginnings("TOOL_CALL", f"{_B}*+(?:[:：]{_NAME_BEGINS})?")
_BULLET_BEGINS = r"[-*+]|[0-9]{1,9}[.)]?"
_TAG_BEGINS = "|".join(sorted({tag[:length] for tag in UNWRAPPED_TAGS for length in range(len(tag) + 1)}, reverse=True))
_FENCE_BEGINS = rf"`{{1,2}}|`{{3,}}[ \t]*(?:{_TAG_BEGINS})[ \t]*\r?"

MARKER_BEGINS = re.compile(rf"(?:{_BULLET_BEGINS}|(?:{_BULLET})?(?:\*|(?:\*\*)?{_MARK_BEGINS}))")
HEAD_BEGINS = re.compile(rf"(?:{_BULLET_BEGINS}|(?:{_BULLET})?(?:\*|(?:\*\*)?{_HEAD_BEGINS}|(?i:{_FENCE_BEGINS})))")
"""Also of a code fence that may be taken away."""
NEXT_BEGINS = re.compile(rf"{_BETWEEN}(?:\*|(?:\*\*)?{_HEAD_BEGINS})")
CLOSING = re.compile(r"[ \t]*(`+|~+)[ \t]*\r?\n?")
CLOSING_BEGINS = re.compile(r"[ \t]*`*[ \t]*\r?")

FENCE = re.compile(rf"{_B}*+(?:{_BULLET})?(?P<run>`{{3,}}|~{{3,}})(?P<info>[^\n]*)")
"""The line that opens a code fence. No backtick may follow the backticks: that would be inline code."""

INTERESTING = re.compile(rf"TOOL_CALL{_B}*+[:：]{_B}*+\S|```|~~~|<!--|<[tT][hH][iI][nN][kK]")
"""A line without any of these can neither be a call nor hide one."""


# Blocks that hide calls --------------------------------------------------------------------------------------------------

_COMMENT_END, _THOUGHT_END = "-->", "</think>"
_OPENERS = {"<!--": _COMMENT_END, "<think>": _THOUGHT_END, "<thinking>": _THOUGHT_END}
_ENDS = {_COMMENT_END: _COMMENT_END, _THOUGHT_END: _THOUGHT_END, "</thinking>": _THOUGHT_END}
_TOKENS = re.compile(r"`+|<!--|-->|</?think(?:ing)?(?:\s[^<>`]{0,200})?>", re.IGNORECASE)
_ATTRIBUTES = re.compile(r"\s.*>", re.DOTALL)


class Block(NamedTuple):
    """An open comment or thought, and the nesting depth: thoughts may be nested."""

    end: str
    depth: int = 1


def block_after(line: str, block: Block | None) -> Block | None:
    """Return the block that is still open after a line, or None. Inline code opens nothing."""
    if "<" not in line and "-->" not in line:
        return block
    tokens = [_ATTRIBUTES.sub(">", token[0].lower()) for token in _TOKENS.finditer(line)]
    last_place = {token: place for place, token in enumerate(tokens)}
    code = ""
    for place, token in enumerate(tokens):
        if block is not None and _ENDS.get(token) == block.end:
            block, code = (Block(block.end, block.depth - 1) if block.depth > 1 else None), ""
        elif code:
            code = "" if token == code else code
        elif token[0] == "`":
            code = token if last_place[token] > place else ""
        elif block is None:
            block = Block(_OPENERS[token]) if token in _OPENERS else None
        elif block.end == _THOUGHT_END and _OPENERS.get(token) == _THOUGHT_END:
            block = Block(_THOUGHT_END, block.depth + 1)
    return block


_NO_PROSE = re.compile(r"\s*(?:>|#{1,6}\s|\|)")
_BEHIND_SENTENCE = re.compile(rf"[.!?…。！？][\"')\]”’*_]*{_B}*(?P<call>(?:\*\*)?TOOL_CALL{_B}*[:：])")
_MENTIONS_MAX = 8


def mentions_behind_sentences(line: str) -> list[str]:
    """Return what follows each sentence end of a line of prose, if it begins with a marker; the first few of them."""
    if "TOOL_CALL" not in line or _NO_PROSE.match(line):
        return []
    found = _BEHIND_SENTENCE.finditer(line)
    return [line[match.start("call") :] for match, _ in zip(found, range(_MENTIONS_MAX), strict=False)]
