"""GBNF, the grammar notation of llama.cpp: text as a terminal, and inside a character class."""

from __future__ import annotations

import json

__all__ = ["class_char", "json_literal", "literal"]

_ESCAPED = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def literal(text: str) -> str:
    """The text as a terminal."""
    return '"' + "".join(_ESCAPED.get(char) or (char if char.isprintable() else _by_number(char)) for char in text) + '"'


def json_literal(value: object) -> str:
    """A JSON value, written as the model writes JSON, as a terminal."""
    return literal(json.dumps(value, ensure_ascii=False))


def class_char(char: str) -> str:
    """The character inside brackets, where a few of them have a meaning."""
    return _by_number(char) if char in "-^]\\[" or not char.isprintable() else char


def _by_number(char: str) -> str:
    number = ord(char)
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"
