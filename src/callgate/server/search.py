"""Search in sessions: a query in, the sessions whose title or text has it out, with the words around the first place.

The texts of sessions are what the user and the model said in them; they are read from the journal and kept for the next
query. What was taken back is not found.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from callgate import user_code
from callgate.content.read import text_of
from callgate.errors import NewerSessionError
from callgate.machine.facts import Fact, HistoryGiven, ModelAnswered, ModelFailed, Rewound, RunStarted
from callgate.store import SessionInfo, Store
from callgate.store.listing import Place, place_of, read_facts, session_page
from callgate.types import Content

__all__ = ["Found", "SessionSearch", "spoken_text"]

BATCH = 200
READ_MAX = 400
"""Sessions that are read for one query; the others are looked through with the next page."""
KEPT_CHARS = 16_000_000
AROUND = 40
"""Characters shown on either side of what was found."""
_Spot: TypeAlias = "tuple[int, int]"
"""A place in a journal: the fact, and the content in it."""
_MARKS = re.compile(r"[*`]+")


@dataclass(frozen=True, slots=True)
class Found:
    """A page of sessions that have the query."""

    sessions: list[tuple[SessionInfo, str]]
    """Each with the words around the first place; empty if the title has it."""
    after: Place | None
    """Start of the next page; None if everything was searched."""


class SessionSearch:
    """Search over the sessions of a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._texts: OrderedDict[str, tuple[int, str]] = OrderedDict()
        self._kept = 0

    async def find(self, query: str, *, limit: int, before: Place | None, principal: str | None) -> Found:
        """Find at most `limit` sessions before a place, the one written to last first."""
        wanted, found, left = _plain(query).casefold(), list[tuple[SessionInfo, str]](), READ_MAX
        while True:
            batch = await session_page(self._store, limit=BATCH, before=before, principal=principal)
            for info in batch:
                if wanted in f"{_plain(info.title)} {info.id}".casefold():
                    found.append((info, ""))
                else:
                    left -= not self._has(info)
                    if (text := await self._text(info)) and (place := text.casefold().find(wanted)) >= 0:
                        found.append((info, _around(text, place, len(wanted))))
                before = place_of(info)
                if len(found) == limit or not left:
                    return Found(found, before)
            if len(batch) < BATCH:
                return Found(found, None)

    def _has(self, info: SessionInfo) -> bool:
        return self._texts.get(info.id, (-1, ""))[0] == info.facts

    async def _text(self, info: SessionInfo) -> str:
        if not self._has(info):
            try:
                facts = await read_facts(self._store, info.id)
                text = await asyncio.to_thread(spoken_text, facts)
            except NewerSessionError:  # It is in the list, and a process of that version can search it.
                text = ""
            self._kept += len(text) - len(self._texts.pop(info.id, (0, ""))[1])
            self._texts[info.id] = (info.facts, text)
            while self._kept > KEPT_CHARS and len(self._texts) > 1:
                self._kept -= len(self._texts.popitem(last=False)[1][1])
        return self._texts[info.id][1]


def spoken_text(facts: Sequence[Fact]) -> str:
    """Join the texts of the user and the model, without what was taken back."""
    said: list[tuple[_Spot, str]] = []
    for position, fact in enumerate(facts):
        match fact:
            case RunStarted(content=content) if content is not None:
                said.append(((position, 0), _text(content)))
            case ModelAnswered(content=content):
                said.append(((position, 0), _text(content)))
            case HistoryGiven(contents=contents):
                said = [((position, index), _text(content)) for index, content in enumerate(contents)]
            case ModelFailed(partial=partial):
                said.append(((position, 0), partial))
            case Rewound(exchange=exchange) if exchange is not None:
                first = _spot_of(exchange)
                said = [entry for entry in said if entry[0] < first]
            case _:
                pass
    return _plain(" ".join(text for _, text in said))


def _spot_of(exchange: str) -> _Spot:
    """Return the start of an exchange: its id is made of that."""
    position, _, index = exchange.removeprefix("x").partition(".")
    return (int(position), int(index or 0)) if position.isdecimal() and (index or "0").isdecimal() else (sys.maxsize, 0)


def _text(content: Content) -> str:
    outcome = user_code.call(lambda: text_of(content))  # A damaged journal has contents that are none.
    return outcome.value or ""


def _plain(text: str) -> str:
    """The text on one line, without the marks that Markdown puts around words."""
    return " ".join(_MARKS.sub("", text).split())


def _around(text: str, place: int, length: int) -> str:
    # Casefolding may change lengths (a German sharp s becomes two letters): the words around are then a little beside it.
    start, end = max(0, place - AROUND), place + length + AROUND
    return f"{'…' if start else ''}{text[start:end].strip()}{'…' if end < len(text) else ''}"
