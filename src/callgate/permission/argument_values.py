"""One argument of a call, as rules test it: as the model wrote it, and as the tool will get it.

A value and a pattern come in, yes or no goes out. A date, an identifier or a number has many spellings and one value: a rule
that asks or denies holds for all of them, and a rule that allows looks at the value that runs.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, cast

from callgate.permission.call_paths import RunningValues, data_keys, leaves, text_of
from callgate.permission.patterns import Glob, Regex, number_in, plain_path
from callgate.types import ToolDefinition

__all__ = ["Argument"]

PLACES_MAX = 64
"""Values in one argument that are compared with the rule's own value; an argument with more is compared as text alone."""
_DIGITS_MAX = 400


class Argument:
    """One argument of a call."""

    def __init__(
        self,
        definition: ToolDefinition,
        name: str,
        value: Any,
        args: Mapping[str, Any],
        running: RunningValues | None,
    ) -> None:
        self._definition = definition
        self._name = name
        self._written = value
        self._args = args
        self._running = running
        self._views = self._read(value)

    def fits_widely(self, test: Glob | Regex) -> bool:
        """True if one of its values, in any form, is one that the pattern means."""
        return any(self._is_wide(test, value) for value in (self._written, *self._views)) or any(self._intended(test))

    def fits_narrowly(self, test: Glob | Regex) -> bool:
        """True if all of its values, as the tool gets them, are what the pattern says."""
        # The name of a link is not the name of its file: both are to fit.
        if (not self._views or self._definition.kind == "file") and not self._is_narrow(test, self._written, _text):
            return False
        if not self._views:
            return True
        if any(self._is_narrow(test, value, _number_texts) for value in self._views):
            return True
        meant = self._intended(test)
        return bool(meant) and all(meant) and not data_keys(self._definition, self._written)

    def _leaves(self, value: Any) -> list[Any]:
        return [*(leaf for _, leaf in leaves(value)), *data_keys(self._definition, value)]

    def _is_wide(self, test: Glob | Regex, value: Any) -> bool:
        found = self._leaves(value)
        if test.number is not None and any(number_in(_text(leaf)) == test.number for leaf in found if _is_number(leaf)):
            return True
        words = list(map(_text, found))
        spelled = map(plain_path, words)  # `src/*` is about `./src/x` and `src//x` too.
        numbers = (text for leaf in found for text in _number_texts(leaf))
        return any(map(test.wide, {*words, *_joined(value, words), " ".join(words), *spelled, *numbers}))

    def _is_narrow(self, test: Glob | Regex, value: Any, texts_of: Callable[[Any], str | list[str]]) -> bool:
        found = self._leaves(value)

        def fits(leaf: Any) -> bool:
            texts = texts_of(leaf)
            return any(map(test.narrow, [texts] if isinstance(texts, str) else texts))

        if found and all(map(fits, found)):
            return True
        # The words of a command make one line, quoted so that they cannot be mistaken for others. Those of another list
        # stand each for itself: one that fits says nothing of the rest.
        return self._definition.kind == "command" and any(map(test.narrow, _joined(value, list(map(_text, found)))))

    def _read(self, value: Any) -> list[Any]:
        if self._running is None:
            return []
        return [view[self._name] for view in self._running({**self._args, self._name: value}) if self._name in view]

    def _intended(self, test: Glob | Regex) -> list[bool]:
        """For each single value: True if the rule's own text in its place would be the same to the tool."""
        if test.literal is None or not self._views:
            return []
        places = list(itertools.islice(_places(self._written), PLACES_MAX + 1))
        return [self._is_intended(place, test.literal) for place in places] if len(places) <= PLACES_MAX else []

    def _is_intended(self, place: tuple[Any, ...], literal: str) -> bool:
        same = self._views[-1]
        return any(_are_equal(self._read(_with(self._written, place, said))[-1:], [same]) for said in _spellings(literal))


def _joined(value: Any, words: list[str]) -> list[str]:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return [shlex.join(words)] if is_list and len(words) == len(cast("Sequence[Any]", value)) else []


# Numbers -----------------------------------------------------------------------------------------------------------------


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (int, float, Decimal)) and not isinstance(leaf, bool)


def _text(leaf: Any) -> str:
    return str(leaf) if isinstance(leaf, Decimal) else text_of(leaf)


def _number_texts(leaf: Any) -> list[str]:
    """The text of a value; of a number also its digits: `1000000` of 1e6, `5` of 5.0."""
    number = number_in(_text(leaf)) if _is_number(leaf) else None
    if number is None or abs(number.adjusted()) > _DIGITS_MAX:
        return [_text(leaf)]
    is_whole = number == number.to_integral_value()
    return [_text(leaf), str(int(number)) if is_whole else format(number, "f").rstrip("0")]


# The rule's own value in place of the model's ----------------------------------------------------------------------------


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The place of every single value: the keys and positions that lead to it."""
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[Any, Any]", value).items():
            yield from _places(item, (*above, key))
    elif isinstance(value, list):
        for position, item in enumerate(cast("list[Any]", value)):
            yield from _places(item, (*above, position))
    else:
        yield above


def _with(value: Any, place: tuple[Any, ...], leaf: Any) -> Any:
    if not place:
        return leaf
    changed: Any = dict(cast("Mapping[Any, Any]", value)) if isinstance(value, Mapping) else list(value)
    changed[place[0]] = _with(changed[place[0]], place[1:], leaf)
    return changed


def _spellings(literal: str) -> Iterator[Any]:
    """The rule's text as JSON may hold it: as text, and as a number or truth value."""
    yield literal
    if number_in(literal) is not None or literal in ("true", "false"):
        try:
            yield json.loads(literal)
        except ValueError:
            return  # A number in a spelling that JSON does not have.


def _are_equal(one: list[Any], other: list[Any]) -> bool:
    return one == other and [type(each) is bool for each in one] == [type(each) is bool for each in other]
