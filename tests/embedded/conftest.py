"""A tiny reader of llama.cpp's grammars, so that they can be judged without llama.cpp: it matches texts and makes them up.

Written from the description of GBNF; understands what `callgate.embedded.grammar` writes and no more.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

MANY = 4
"""How often a sample repeats what may be repeated without end, at most."""

_TOKEN = re.compile(
    r'\s*(?:("(?:[^"\\]|\\.)*")|(\[(?:[^\]\\]|\\.)*\])|([A-Za-z][A-Za-z0-9-]*)|(\{\d+(?:,\d*)?\})|([()|*+?]))', re.DOTALL
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}

Node = tuple[Any, ...]


def _unescaped(text: str) -> list[tuple[str, bool]]:
    """Characters, and whether each was escaped."""
    found: list[tuple[str, bool]] = []
    place = 0
    while place < len(text):
        hit = _ESCAPE.match(text, place)
        if hit is None:
            found.append((text[place], False))
            place += 1
        else:
            word = hit[1]
            found.append((chr(int(word[1:], 16)) if len(word) > 1 else _PLAIN.get(word, word), True))
            place = hit.end()
    return found


def _class(text: str) -> Node:
    chars = _unescaped(text[1:-1])
    negated = chars[:1] == [("^", False)]
    chars = chars[1:] if negated else chars
    ranges: list[tuple[str, str]] = []
    place = 0
    while place < len(chars):
        if place + 2 < len(chars) and chars[place + 1] == ("-", False):
            ranges.append((chars[place][0], chars[place + 2][0]))
            place += 3
        else:
            ranges.append((chars[place][0], chars[place][0]))
            place += 1
    return ("class", negated, tuple(ranges))


class _Parser:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        place = 0
        while place < len(text.rstrip()):
            hit = _TOKEN.match(text, place)
            assert hit is not None, f"not GBNF: {text[place : place + 40]!r}"
            kinds = ("literal", "class", "name", "count", "sign")
            self.tokens.append(next((k, g) for k, g in zip(kinds, hit.groups(), strict=True) if g is not None))
            place = hit.end()
        self.place = 0

    def peek(self) -> tuple[str, str]:
        return self.tokens[self.place] if self.place < len(self.tokens) else ("end", "")

    def alternation(self) -> Node:
        arms = [self.sequence()]
        while self.peek() == ("sign", "|"):
            self.place += 1
            arms.append(self.sequence())
        return ("or", tuple(arms)) if len(arms) > 1 else arms[0]

    def sequence(self) -> Node:
        items: list[Node] = []
        while self.peek()[0] != "end" and self.peek() not in (("sign", "|"), ("sign", ")")):
            items.append(self.repeated(self.atom()))
        return ("seq", tuple(items))

    def atom(self) -> Node:
        kind, text = self.peek()
        self.place += 1
        if kind == "literal":
            return ("literal", "".join(char for char, _ in _unescaped(text[1:-1])))
        if kind == "class":
            return _class(text)
        if kind == "name":
            return ("rule", text)
        assert (kind, text) == ("sign", "("), f"unexpected {text!r}"
        inner = self.alternation()
        assert self.peek() == ("sign", ")")
        self.place += 1
        return inner

    def repeated(self, item: Node) -> Node:
        kind, text = self.peek()
        bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(text) if kind == "sign" else None
        if kind == "count":
            lowest, comma, highest = text[1:-1].partition(",")
            bounds = (int(lowest), (int(highest) if highest else None) if comma else int(lowest))
        if bounds is None:
            return item
        self.place += 1
        return ("repeat", item, *bounds)


@dataclass
class Gbnf:
    """A grammar that can be asked."""

    text: str
    rules: dict[str, Node] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for line in self.text.splitlines():
            name, sign, body = line.partition(" ::= ")
            assert sign, f"not a rule: {line!r}"
            assert name not in self.rules, f"{name} is written twice"
            parser = _Parser(body)
            self.rules[name] = parser.alternation()
            assert parser.peek()[0] == "end"
        used = set(re.findall(r'("rule", "([^"]+)")', repr(self.rules)))
        assert {name for _, name in used} <= set(self.rules)
        self._costs = self._weighed()

    # Matching

    def matches(self, text: str) -> bool:
        """Whether the whole text follows from `root`."""
        return len(text) in self._ends(("rule", "root"), text, frozenset({0}))

    def _ends(self, node: Node, text: str, starts: frozenset[int]) -> frozenset[int]:
        match node:
            case ("literal", word):
                return frozenset(place + len(word) for place in starts if text.startswith(word, place))
            case ("class", negated, ranges):
                return frozenset(
                    place + 1
                    for place in starts
                    if place < len(text) and any(a <= text[place] <= b for a, b in ranges) != negated
                )
            case ("seq", items):
                for item in items:
                    starts = self._ends(item, text, starts) if starts else starts
                return starts
            case ("or", arms):
                return frozenset().union(*(self._ends(arm, text, starts) for arm in arms))
            case ("repeat", item, lowest, highest):
                for _ in range(lowest):
                    starts = self._ends(item, text, starts)
                found, new, count = set(starts), starts, lowest
                while new and (highest is None or count < highest):
                    new = frozenset(self._ends(item, text, new) - found)
                    found |= new
                    count += 1
                return frozenset(found)
            case ("rule", name):
                return self._ends(self.rules[name], text, starts) if starts else starts
        raise AssertionError(node)

    # Making up

    def sample(self, dice: random.Random, *, depth: int = 60) -> str:
        """A text that follows from `root`."""
        return self._made(("rule", "root"), dice, depth)

    def _made(self, node: Node, dice: random.Random, depth: int) -> str:
        match node:
            case ("literal", word):
                return word
            case ("class", negated, ranges):
                return self._char(negated, ranges, dice)
            case ("seq", items):
                return "".join(self._made(item, dice, depth) for item in items)
            case ("or", arms):
                cheapest = min(map(self._cost, arms))
                open_arms = [arm for arm in arms if depth > 0 or self._cost(arm) == cheapest]
                return self._made(dice.choice(open_arms), dice, depth)
            case ("repeat", item, lowest, highest):
                most = lowest if depth <= 0 else min(highest if highest is not None else lowest + MANY, lowest + MANY)
                return "".join(self._made(item, dice, depth) for _ in range(dice.randint(lowest, most)))
            case ("rule", name):
                return self._made(self.rules[name], dice, depth - 1)
        raise AssertionError(node)

    def _char(self, negated: bool, ranges: tuple[tuple[str, str], ...], dice: random.Random) -> str:
        if not negated:
            first, last = dice.choice(ranges)
            return chr(dice.randint(ord(first), ord(last)))
        while True:
            char = dice.choice("abcdeTOL_ -./09\u00e9\u4e2d\n")
            if not any(a <= char <= b for a, b in ranges):
                return char

    def _weighed(self) -> dict[str, float]:
        costs: dict[str, float] = dict.fromkeys(self.rules, float("inf"))
        self._costs = costs
        for _ in range(len(self.rules) + 1):
            new = {name: 1 + self._cost(node) for name, node in self.rules.items()}
            if new == costs:
                break
            costs = self._costs = new
        return costs

    def _cost(self, node: Node) -> float:
        match node:
            case ("seq", items):
                return max(map(self._cost, items), default=0)
            case ("or", arms):
                return min(map(self._cost, arms))
            case ("repeat", item, lowest, _):
                return self._cost(item) if lowest else 0
            case ("rule", name):
                return self._costs[name]
        return 0


@pytest.fixture(scope="session")
def gbnf() -> Callable[[str], Gbnf]:
    return Gbnf
