"""Colours for code in an answer, line by line while it arrives.

Takes a language and complete lines, returns styled pieces. pygments (a dependency of rich) reads the code; where it is not
installed or does not know the language, code has one colour.
"""

from __future__ import annotations

from typing import Any

from callgate.cli.themes import code_of

__all__ = ["CodeColors"]

LINE_CHARS_MAX = 2_000
CONTEXT_LINES_MAX = 100
"""Lines of an open string or comment that are read again for the next one."""

# Kinds of tokens, the most specific first -> what they mean.
_STYLES: tuple[tuple[str, str], ...] = (
    ("Token.Comment", "comment"),
    ("Token.Keyword", "keyword"),
    ("Token.Literal.String", "string"),
    ("Token.Literal.Number", "number"),
    ("Token.Name.Function", "name"),
    ("Token.Name.Class", "name"),
    ("Token.Name.Decorator", "name"),
    ("Token.Name.Builtin", "number"),
    ("Token.Name.Tag", "name"),
    ("Token.Name.Attribute", "number"),
    ("Token.Generic.Inserted", "added"),
    ("Token.Generic.Deleted", "removed"),
    ("Token.Generic.Heading", "strong"),
    ("Token.Generic.Subheading", "place"),
)


class CodeColors:
    """The colours of one block of code."""

    def __init__(self, language: str) -> None:
        self._lexer = _lexer_of(language)
        self._context: list[str] = []
        """Lines of a string or comment that is still open."""

    def line(self, text: str) -> list[tuple[str, str]]:
        """The pieces of the next line, each with its codes."""
        if self._lexer is None or len(text) > LINE_CHARS_MAX:
            return [(text, code_of("code"))]
        before = "".join(f"{line}\n" for line in self._context)
        tokens = [(str(kind), value) for _, kind, value in self._lexer.get_tokens_unprocessed(f"{before}{text}\n")]
        self._remember(text, tokens)
        found: list[tuple[str, str]] = []
        place = 0
        for kind, value in tokens:
            piece = value[max(0, len(before) - place) :] if place + len(value) > len(before) else ""
            place += len(value)
            if piece := piece.replace("\n", ""):
                found.append((piece, _style_of(kind)))
        return found

    def _remember(self, text: str, tokens: list[tuple[str, str]]) -> None:
        last = next((kind for kind, value in reversed(tokens) if value), "")
        is_open = last.startswith(("Token.Literal.String", "Token.Comment.Multi"))
        self._context = [*self._context, text][-CONTEXT_LINES_MAX:] if is_open else []


def _style_of(kind: str) -> str:
    return next((code_of(meaning) for start, meaning in _STYLES if kind.startswith(start)), "")


def _lexer_of(language: str) -> Any:
    if not language:
        return None
    try:
        from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]
        from pygments.util import ClassNotFound
    except ImportError:
        return None
    try:
        return get_lexer_by_name(language)
    except ClassNotFound:
        return None
