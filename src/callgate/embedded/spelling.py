"""The prompt's own spellings: names, paths and codes that a small model copies with a letter lost.

The user's words come in; those that look like identifiers go out, and rules for a string in which such a word, once it has
begun, is spelled to its end as it stands in the prompt. At each boundary inside a word (`docs/` of `docs/setup.txt`) the
string may go its own way, and a string may hold any other word. Pure text work; knows nothing of tools.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from callgate.embedded.gbnf import class_char, literal

__all__ = ["spelled_rules", "spellings"]

WORDS_MAX = 48
WORD_CHARS = (4, 64)
BEGUN = 4
"""Letters after which a piece of a word counts as begun."""

_TOKEN = re.compile(r"[^\W_][\w./@+-]*[^\W_]|[^\W_]", re.UNICODE)
_PIECE = re.compile(r"[^\W_]+", re.UNICODE)
_QUOTED = re.compile(r"\"([^\"\n]{2,80})\"|'([^'\n]{2,80})'|`([^`\n]{2,80})`|“([^”\n]{2,80})”")


def spellings(text: str) -> list[str]:
    """The words of a text that must be copied exactly, and those that begin like one of them, in their order."""
    tokens = list(dict.fromkeys(token for token in _TOKEN.findall(text) if len(token) <= WORD_CHARS[1]))
    quoted = {token for groups in _QUOTED.findall(text) for group in groups for token in _TOKEN.findall(group)}
    marked = [token for token in tokens if len(token) >= WORD_CHARS[0] and (_is_identifier(token) or token in quoted)][
        :WORDS_MAX
    ]
    begun = {piece[:BEGUN] for token in marked for piece in _PIECE.findall(token) if len(piece) > BEGUN}
    # A plain word that begins like a marked one must stay possible: "payment" beside "payments-api".
    alike = [token for token in tokens if token not in marked and token[:BEGUN] in begun]
    return [*marked, *alike[:WORDS_MAX]]


def _is_identifier(token: str) -> bool:
    """True if the word is a name of something rather than a word of a language."""
    if not any(char.isalpha() for char in token):
        return False
    inside = token[1:]
    return any(char in "-_./@+" or char.isdigit() for char in token) or (
        token[0].isupper() or any(char.isupper() for char in inside)
    )


@dataclass(slots=True)
class _Node:
    next: dict[str, _Node] = field(default_factory=dict["str", "_Node"])
    must: bool = True
    """True if a word that has come so far has to go on."""


def spelled_rules(words: Iterable[str]) -> dict[str, str]:
    """Rules for `string`: free text in which the words are spelled as given. No words, no rules: the plain one stands."""
    top = _Node(must=False)
    for word in words:
        if not word.isprintable() or '"' in word or "\\" in word:
            continue  # JSON would write it in another way.
        node, begun = top, 0
        for place, char in enumerate(word):
            begun = begun + 1 if char.isalnum() else 0
            node = node.next.setdefault(char, _Node())
            last = place + 1 == len(word) or not word[place + 1].isalnum()
            if begun < BEGUN or last:
                node.must = False
    if not top.next:
        return {}
    # `string` is at the beginning of a word, `string-free` within one that is none of ours.
    named = {id(node): f"string-{index}" for index, node in enumerate(_nodes(top))}
    rules = {"string": f'"\\"" {named[id(top)]}', "string-free": f"{_FREE} | {_SPACE} {named[id(top)]} | {_END}"}
    for node in _nodes(top):
        arms = [f"{literal(char)} {named[id(child)]}" for char, child in node.next.items()]
        if not node.must:
            others = "".join(class_char(char) for char in node.next)
            arms += [
                f'[^"\\\\\\x00-\\x1f {others}] string-free',
                f"{_ESCAPE} string-free",
                f"{_SPACE} {named[id(top)]}",
                _END,
            ]
        rules[named[id(node)]] = " | ".join(arms)
    return rules


_ESCAPE = r'"\\" (["\\/bfnrt] | "u00" [01] [0-9a-f])'
_FREE = r'[^"\\\x00-\x1f ] string-free | "\\" (["\\/bfnrt] | "u00" [01] [0-9a-f]) string-free'
_SPACE = '" "'
_END = r'"\""'


def _nodes(node: _Node) -> Iterator[_Node]:
    yield node
    for child in node.next.values():
        yield from _nodes(child)
