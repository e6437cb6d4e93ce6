"""Match the calls and results of a history by id and name.

A result belongs to the open call with its id, else to the first open call of its name in the newest exchange that has
one. Ids are generated, deterministically, only where a format needs them and the source has none, and are omitted again
where a format allows it. Knows no format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from callgate.definitions.format import Format, WriteContext
from callgate.definitions.items import Call, Message, Result

__all__ = ["paired", "with_ids"]

_MADE_UP = re.compile(r"callgate_\d+")

One = TypeVar("One", Call, Result)


class _Ids:
    """Ids for one target: valid ones stay, others are replaced."""

    def __init__(self, target: Format, taken: Iterable[str], out: WriteContext) -> None:
        self._target = target
        self._given: set[str] = set()
        self._taken = set(taken)
        self._out = out
        self._count = 0

    def of_call(self, call: Call) -> str | None:
        """The id that a call goes by from now on."""
        if self._target.ids is None:
            return None if call.id is None or _MADE_UP.fullmatch(call.id) else call.id
        self._count += 1
        if call.id is not None and call.id not in self._given and self._target.ids.fullmatch(call.id):
            self._given.add(call.id)
            return call.id
        new = self._new()
        if call.id is not None:
            why = "used twice" if call.id in self._given else "of a form that is not allowed"
            self._out.lose(call.at, "id", f"{self._target.title}: the id {call.id!r} is {why}", f"{new!r}")
        return new

    def of_orphan(self, result: Result) -> str | None:
        """The id of a result whose call is not there."""
        if self._target.ids is None:
            return None if result.id is None or _MADE_UP.fullmatch(result.id) else result.id
        self._count += 1
        if result.id is not None and self._target.ids.fullmatch(result.id):
            return result.id
        new = self._new()
        self._out.lose(result.at, "id", f"{self._target.title}: a result needs the id of its call", f"{new!r}")
        return new

    def note_mismatch(self, result: Result, call: Call) -> None:
        """Report the id or the name of a result that its call does not have."""
        for keyword, given, own in (("id", result.id, call.id), ("name", result.name, call.name)):
            if given is not None and own is not None and given != own:
                self._out.lose(result.at, keyword, f"a result says {given!r}, and its call {own!r}", f"{own!r}")

    def _new(self) -> str:
        number = self._count
        while (new := f"callgate_{number}") in self._taken:
            number += 1
        self._taken.add(new)
        return new


def with_ids(items: Sequence[One], target: Format, out: WriteContext) -> list[One]:
    """Assign ids to calls or results outside a history."""
    ids = _Ids(target, (item.id for item in items if item.id is not None), out)
    return [replace(item, id=ids.of_call(item) if isinstance(item, Call) else ids.of_orphan(item)) for item in items]


@dataclass(frozen=True, slots=True)
class _Open:
    """A call that has no result yet, as it was and as it is now."""

    number: int
    exchange: int
    """The number of the exchange. Some systems number their calls from zero in every exchange."""
    given: Call
    call: Call


def paired(messages: Sequence[Message], target: Format, out: WriteContext) -> list[Message]:
    """Return the messages with ids and names filled in. Where ids are optional, results are in the order of their calls."""
    taken = {
        item.id for message in messages for item in message.items if isinstance(item, (Call, Result)) and item.id is not None
    }
    ids = _Ids(target, taken, out)
    waiting: list[_Open] = []
    result: list[Message] = []
    number = exchange = 0
    for message in messages:
        exchange += message.role != "model"
        items = list(message.items)
        answers: list[tuple[float, Result]] = []
        for place, item in enumerate(items):
            if isinstance(item, Call):
                number += 1
                items[place] = call = replace(item, id=ids.of_call(item))
                waiting.append(_Open(number, exchange, item, call))
            elif isinstance(item, Result):
                answers.append(_answer(item, waiting, ids))
        if target.ids is None:
            answers.sort(key=lambda answer: answer[0])
        ordered = (answer for _, answer in answers)
        result.append(replace(message, items=tuple(next(ordered) if isinstance(item, Result) else item for item in items)))
    return result


def _answer(result: Result, waiting: list[_Open], ids: _Ids) -> tuple[float, Result]:
    """Complete a result from its call; return it with the number of that call."""
    place = _place(result, waiting)
    if place is None:
        return float("inf"), replace(result, id=ids.of_orphan(result))
    answered = waiting.pop(place)
    ids.note_mismatch(result, answered.given)
    return answered.number, replace(result, id=answered.call.id, name=answered.call.name)


def _place(result: Result, waiting: Sequence[_Open]) -> int | None:
    if result.id is not None:
        same = [place for place, call in enumerate(waiting) if call.given.id == result.id]
        if same or result.name is None:
            return _first_of_newest(same, waiting)
    named = [place for place, call in enumerate(waiting) if result.name in (None, call.given.name)]
    return _first_of_newest(named, waiting)


def _first_of_newest(places: Sequence[int], waiting: Sequence[_Open]) -> int | None:
    if not places:
        return None
    newest = waiting[places[-1]].exchange
    return next(place for place in places if waiting[place].exchange == newest)
