"""The texts that may come next in an answer, as an automaton over characters.

Values, pieces of messages and what may follow a value come in; a state goes out, which says which characters may follow and
what a piece of text leads to. Case and accents of what leads along a path do not matter, the characters of the path do: a
model that writes `Oslo` where `oslo` was said gets `oslo`. Pure text work.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

__all__ = ["Choices", "Span", "SpanText", "State"]


@dataclass(frozen=True, slots=True)
class Span:
    """A word of a text: where it is, and what it may be for a value."""

    start: int
    end: int
    begins: bool = True
    ends: bool = True
    is_content: bool = True
    """True for a word that says something by itself; a value has at least one."""
    full_end: int = 0
    """Another place where a value may end with it, if not 0."""


class SpanText:
    """A text whose pieces from word to word are values."""

    def __init__(self, text: str, spans: Sequence[Span], *, breaks: Iterable[int] = ()) -> None:
        pieces = [json.dumps(char, ensure_ascii=False)[1:-1] for char in text]
        places = [0]
        for piece in pieces:
            places.append(places[-1] + len(piece))
        self.text = "".join(pieces)
        self.ends = frozenset(places[end] for span in spans if span.ends for end in (span.end, span.full_end) if end)
        self.breaks = frozenset(places[place] for place in breaks)
        """Places that no value goes across."""
        content = bytearray(len(self.text) + 1)
        for span in spans:
            if span.is_content:
                content[places[span.start] : places[span.end]] = b"\1" * (places[span.end] - places[span.start])
        self.content = content
        self.leads = self._leading()
        """For each place, without and with content so far: whether a value that has come there can end."""
        self.starts = [places[span.start] for span in spans if span.begins and self.leads[places[span.start]][0]]

    def pieces(self, *, chars_max: int) -> list[str]:
        """The values, as they are written inside of quotes, that are not longer than this."""
        found: dict[str, None] = {}
        for start in self.starts:
            has_content = False
            for place in range(start, min(start + chars_max, len(self.text)) + 1):
                if has_content and place in self.ends:
                    found[self.text[start:place]] = None
                if has_content and place in self.breaks:
                    break
                has_content = has_content or bool(self.content[place])
        return list(found)

    def _leading(self) -> list[tuple[bool, bool]]:
        size = len(self.text)
        leads = [(False, False)] * size + [(False, size in self.ends)]
        for place in range(size - 1, -1, -1):
            without, with_content = leads[place + 1]
            leads[place] = (
                with_content if self.content[place] else without and place + 1 not in self.breaks,
                place in self.ends or (place not in self.breaks and with_content),
            )
        return leads


@dataclass(slots=True, eq=False)
class _Node:
    next: dict[str, _Node] = field(default_factory=dict["str", "_Node"])
    is_last: bool = False


def _trie(texts: Iterable[str]) -> _Node:
    top = _Node()
    for text in texts:
        node = top
        for char in text:
            node = node.next.setdefault(char, _Node())
        node.is_last = True
    return top


@dataclass(frozen=True, slots=True)
class _At:
    """A place on the way: in the trie of values or of endings, or in a text."""

    node: _Node | None = None
    text: SpanText | None = None
    place: int = 0
    has_content: bool = False
    is_ending: bool = False

    def __hash__(self) -> int:
        return hash((id(self.node), id(self.text), self.place, self.has_content))


class Choices:
    """A value, one of `values` or a quoted piece of `texts`, and after it one of `endings`. Values begin after `lead`."""

    def __init__(
        self, values: Iterable[str], *, texts: Sequence[SpanText] = (), endings: Sequence[str] = (), lead: str = " "
    ) -> None:
        self.lead = lead
        self.values = [f"{lead}{value}" for value in values]
        self.texts = list(texts)
        self.endings = _trie(endings)
        self._ends_at_once = not endings
        quoted = _Node()
        self._top = _trie(self.values)
        if self.texts:
            node = self._top
            for char in f'{lead}"':
                node = node.next.setdefault(char, _Node())
            quoted = node
        self._quoted = quoted if self.texts else None

    def start(self) -> State:
        """The state before the first character."""
        return State(self, frozenset({_At(node=self._top)}))

    def moves(self, at: _At) -> dict[str, list[_At]]:
        """The characters that may follow at a place."""
        found: dict[str, list[_At]] = {}
        if at.text is not None:
            self._along(at, found)
            return found
        assert at.node is not None
        for char, node in at.node.next.items():
            found.setdefault(char, []).append(_At(node=node, is_ending=at.is_ending))
        if at.node.is_last and not at.is_ending:
            self._after_value(found)
        if at.node is self._quoted:
            for text in self.texts:
                for start in text.starts:
                    self._along(_At(text=text, place=start), found)
        return found

    def _along(self, at: _At, found: dict[str, list[_At]]) -> None:
        text = at.text
        assert text is not None
        if at.has_content and at.place in text.ends:
            found.setdefault('"', []).append(_At(node=_Node(is_last=True)))
        if at.place < len(text.text) and not (at.has_content and at.place in text.breaks):
            has_content = at.has_content or bool(text.content[at.place])
            is_across = not has_content and at.place + 1 in text.breaks
            if text.leads[at.place + 1][has_content] and not is_across:
                found.setdefault(text.text[at.place], []).append(_At(text=text, place=at.place + 1, has_content=has_content))

    def _after_value(self, found: dict[str, list[_At]]) -> None:
        for char, node in self.endings.next.items():
            found.setdefault(char, []).append(_At(node=node, is_ending=True))

    def is_end(self, at: _At) -> bool:
        """True if the whole text may end at this place."""
        return at.node is not None and at.node.is_last and (at.is_ending or self._ends_at_once)


@dataclass(frozen=True, slots=True)
class State:
    """Position of a text among the choices."""

    choices: Choices
    places: frozenset[_At]

    def moves(self) -> dict[str, list[_At]]:
        """The characters that may come next."""
        found: dict[str, list[_At]] = {}
        for place in self.places:
            for char, targets in self.choices.moves(place).items():
                found.setdefault(char, []).extend(targets)
        return found

    @property
    def is_end(self) -> bool:
        """True if the text is whole."""
        return any(self.choices.is_end(place) for place in self.places)

    def step(self, char: str) -> tuple[str, State] | None:
        """The character that was meant and the state after it; None if it cannot follow."""
        moves = self.moves()
        meant = char if char in moves else next((one for one in moves if _plain(one) == _plain(char)), None)
        return None if meant is None else (meant, State(self.choices, frozenset(moves[meant])))

    def take(self, piece: bytes) -> tuple[str, State] | None:
        """The text that a token leads along and the state after it; None if the token does not fit.

        A token may go beyond the end of the choices, and may end in the middle of a character.
        """
        text = piece.decode("utf-8", "ignore")
        rest = piece[len(text.encode()) :]
        state, taken = self, ""
        for char in text:
            if state.is_end:
                return taken, state
            stepped = state.step(char)
            if stepped is None:
                return None
            taken, state = taken + stepped[0], stepped[1]
        if rest and not state.is_end:
            fitting = next((char for char in state.moves() if char.encode().startswith(rest)), None)
            if fitting is None:
                return None
            stepped = state.step(fitting)
            assert stepped is not None
            taken, state = taken + fitting, stepped[1]
        return (taken, state) if taken else None


@lru_cache(maxsize=4_096)
def _plain(char: str) -> str:
    """A letter without case and accent; anything else unchanged."""
    if not char.isalpha():
        return {"’": "'", "‘": "'", "–": "-", "—": "-"}.get(char, char)
    low = unicodedata.normalize("NFKD", char)[0].casefold()
    return _STROKES.get(low, low)


_STROKES = dict(zip("łøđðħŧıæœþß", "loddhtiaots", strict=True))
"""Letters that have no accent to take off, but are written as another one where they cannot be written."""
