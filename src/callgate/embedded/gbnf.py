"""GBNF, the grammar notation of llama.cpp: text as a terminal, and inside a character class."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby, takewhile

__all__ = ["class_char", "json_literal", "literal", "one_of"]

_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def literal(text: str) -> str:
    """The text as a terminal."""
    return '"' + "".join(_ESCAPED.get(char) or (char if char.isprintable() else _by_number(char)) for char in text) + '"'


def json_literal(value: object) -> str:
    """A JSON value, written as the model writes JSON, as a terminal."""
    return literal(json.dumps(value, ensure_ascii=False))


def one_of(texts: Iterable[str]) -> str:
    """One of several texts; what they begin with in common is written once, so that few ways are open at a time."""
    forms: list[str] = []
    for first, group in groupby(sorted(set(texts)), key=lambda text: text[:1]):
        alike = list(group)
        first_text, last_text = alike[0], alike[-1]  # In order: what these two share, all of them do.
        same = takewhile(lambda pair: pair[0] == pair[1], zip(first_text, last_text, strict=False))
        head = "".join(char for char, _ in same)
        if not first:
            forms.append('""')
        elif len(alike) == 1:
            forms.append(literal(head))
        else:
            forms.append(f"{literal(head)} {one_of(text[len(head) :] for text in alike)}")
    return forms[0] if len(forms) == 1 else f"({' | '.join(forms)})"


def class_char(char: str) -> str:
    """The character inside brackets, where a few of them have a meaning."""
    return _by_number(char) if char in "-^]\\[" or not char.isprintable() else char


def _by_number(char: str) -> str:
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
