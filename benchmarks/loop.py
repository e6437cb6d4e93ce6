"""What one turn of the loop costs as the history grows: processor time, and bytes encoded.

One run makes 420 calls on a scripted model, without a network. Beside it, in the same process, stand two bare loops over the
same contents: one encodes the whole history for every request, as clients do that are handed a list of contents, and one
encodes each content once and keeps its bytes. Figures are medians over a window of turns and several repetitions.

    python benchmarks/loop.py        ends with 1 if a goal is missed
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from callgate import Gate, Limits, ScriptedModel
from callgate.models import ModelRequest
from callgate.testing import call, text
from callgate.types import Content, JsonObject

CALLS = 420
REPETITIONS = 7
MARKS = (10, 100, 400)
WINDOW = 8
"""Turns on either side of a mark that count as being around it."""
GROWTH_MAX = 1.2
"""How much more a turn at the last mark may cost than one at the first."""

LIMITS = Limits(turns=1000, calls=1000, repeats=1000)


async def look_up(number: int) -> dict[str, object]:
    """Looks a number up."""
    return {"number": number, "found": True, "text": "a line of some length, as tools return it " * 4}


@dataclass
class Watched:
    """A scripted model that notes, at each request, what the turn before it cost. What the noting costs is left out."""

    model: ScriptedModel
    name: str = "watched"
    seconds: list[float] = field(default_factory=list)
    encoded: list[int] = field(default_factory=list)
    """Bytes that each turn encoded."""
    new: list[int] = field(default_factory=list)
    """Bytes of the contents that each turn added."""
    contents: list[Content] = field(default_factory=list)
    _since: tuple[float, int] | None = None

    async def generate(self, request: ModelRequest) -> AsyncIterator[JsonObject]:
        now, talk = time.process_time(), request.conversation
        if self._since is not None:
            self.seconds.append(now - self._since[0])
            self.encoded.append(talk.bytes_encoded - self._since[1])
            self.new.append(sum(map(len, talk.encoded[-2:])))
        self._since = time.process_time(), talk.bytes_encoded
        async for chunk in self.model.generate(request):
            yield chunk


def run(calls: int = CALLS) -> Watched:
    """One run of so many turns with one call each; every call differs from the others and has the same length."""
    script = [*(call("look_up", number=100_000 + index) for index in range(calls)), text("That is all.")]
    watched = Watched(ScriptedModel(script, strict=False, repeat_last=False, piece_chars=0))
    reply = asyncio.run(Gate(watched, tools=[look_up], limits=LIMITS).run("Look them all up."))
    assert (len(reply.calls), reply.finish_reason) == (calls, "STOP"), reply.finish_reason
    assert all(record.state == "finished" for record in reply.calls)
    watched.contents = reply.contents[:-1]
    return watched


def encoding_whole(contents: list[Content]) -> tuple[list[float], list[int]]:
    """Seconds and bytes of every turn of a loop that encodes the whole history for each request."""
    return _bare(contents, lambda history, _: len(json.dumps({"contents": history}).encode()))


def keeping_bytes(contents: list[Content]) -> tuple[list[float], list[int]]:
    """The same of a loop that encodes what is new, and joins the bytes that it kept."""
    kept: list[bytes] = []

    def request(_: list[Content], new: list[Content]) -> int:
        added = [json.dumps(content).encode() for content in new]
        kept.extend(added)
        b",".join(kept)
        return sum(map(len, added))

    return _bare(contents, request)


def _bare(contents: list[Content], request: Callable[[list[Content], list[Content]], int]) -> tuple[list[float], list[int]]:
    history: list[Content] = contents[:1]
    seconds: list[float] = []
    encoded: list[int] = []
    request(history, contents[:1])
    for index in range(1, len(contents), 2):
        new = contents[index : index + 2]
        begun = time.process_time()
        history.extend(new)
        size = request(history, new)
        seconds.append(time.process_time() - begun)
        encoded.append(size)
    return seconds, encoded


def around(mark: int, values: list[float] | list[int]) -> list[float] | list[int]:
    """The entries of the turns around a mark."""
    return values[max(0, mark - WINDOW - 1) : mark + WINDOW]


def table(title: str, micros: dict[int, float], size: dict[int, float]) -> None:
    print(f"\n{title}\n{'turn':>6}{'us CPU per turn':>18}{'ratio':>8}{'bytes encoded per turn':>25}")
    for mark in MARKS:
        print(f"{mark:>6}{micros[mark]:>18.1f}{micros[mark] / micros[MARKS[0]]:>8.2f}{size[mark]:>25.0f}")


def main() -> int:
    seconds: dict[str, dict[int, list[float]]] = {}
    encoded: dict[str, dict[int, list[float]]] = {}

    def note(title: str, turns: list[float], sizes: list[int]) -> None:
        for mark in MARKS:
            seconds.setdefault(title, {}).setdefault(mark, []).extend(around(mark, turns))
            encoded.setdefault(title, {}).setdefault(mark, []).extend(around(mark, sizes))

    run(20)  # The first run imports what is imported where it is used.
    proportional = True
    for _ in range(REPETITIONS):
        watched = run()
        note("callgate", watched.seconds, watched.encoded)
        note("bare loop that encodes the whole history each turn", *encoding_whole(watched.contents))
        note("bare loop that keeps bytes", *keeping_bytes(watched.contents))
        proportional &= watched.encoded == watched.new

    print(f"{CALLS} calls in one run, {REPETITIONS} repetitions, medians over the {2 * WINDOW + 1} turns around each mark")
    medians = {
        title: {mark: statistics.median(values) * 1e6 for mark, values in rows.items()} for title, rows in seconds.items()
    }
    for title, rows in medians.items():
        table(title, rows, {mark: statistics.median(values) for mark, values in encoded[title].items()})

    growth = medians["callgate"][MARKS[-1]] / medians["callgate"][MARKS[0]]
    print()
    goals = [
        (growth <= GROWTH_MAX, f"turn {MARKS[-1]} costs {growth:.2f} times turn {MARKS[0]} (at most {GROWTH_MAX})"),
        (proportional, "the bytes encoded in a turn are those of the contents that it added, and no others"),
    ]
    for reached, sentence in goals:
        print(f"{'ok' if reached else 'MISSED':<7}{sentence}")
    return 0 if all(reached for reached, _ in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
