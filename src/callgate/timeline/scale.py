"""Map times to positions on a line, where no work is too short to be visible.

Takes spans. Gaps in which neither the model nor a tool worked (waits for approval, or until the next day) are shortened,
and each cut says what it hides.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from callgate.timeline.spans import Span

__all__ = ["Cut", "Scale", "span_end"]

WORK = ("request", "execution")
LONG = 0.5
"""A pause longer than this part of all work is cut short."""
LONG_S = 1.0
"""Minimum length of a gap that is cut."""
SHORT = 0.08
"""The drawn length of a cut, as a fraction of all work."""
SHORTEST_S = 1e-9
"""No clock shows less, so no ticks are nearer to each other."""
_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Cut:
    """A stretch that was cut short, by its places on the line (0 to 1)."""

    start: float
    end: float
    hidden_s: float


def span_end(span: Span, now_s: float) -> float:
    """Return when the span ended, or the last known time."""
    return now_s if span.end_s is None else span.end_s


class Scale:
    """Positions of times on a line from 0 to 1."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self.start_s = min((span.start_s for span in spans), default=0.0)
        self.end_s = max((max(span.start_s, span.end_s or 0.0) for span in spans), default=0.0)
        worked = list(_merged((s.start_s, span_end(s, self.end_s)) for s in spans if s.kind in WORK))
        work_s = sum(end - start for start, end in worked)
        edges = [self.start_s, *(edge for stretch in worked for edge in stretch), self.end_s]
        # Segments of real time, each with its drawn length; every other one, from the first, is a gap.
        self._pieces: list[tuple[float, float, float]] = []
        drawn_s = 0.0
        cuts: list[tuple[float, float, float]] = []
        for index, (start, end) in enumerate(itertools.pairwise(edges)):
            length = end - start
            if index % 2 == 0 and work_s > 0 and length > max(LONG * work_s, LONG_S):
                cuts.append((drawn_s, drawn_s + SHORT * work_s, length))
                length = SHORT * work_s
            self._pieces.append((start, end, length))
            drawn_s += length
        self._ends = [end for _, end, _ in self._pieces]
        self._drawn = [0.0, *itertools.accumulate(length for _, _, length in self._pieces)]
        """The drawn length before each of them, and in total."""
        self.drawn_s = drawn_s or 1.0
        """Seconds that the line shows."""
        self.cuts = [Cut(start / self.drawn_s, end / self.drawn_s, hidden_s) for start, end, hidden_s in cuts]

    def place(self, time_s: float) -> float:
        """Return the position of a time; times outside are at the edge."""
        time_s = max(time_s, self.start_s)
        number = bisect.bisect_right(self._ends, time_s)
        if number == len(self._pieces):
            return min(self._drawn[-1] / self.drawn_s, 1.0)
        start, end, length = self._pieces[number]
        return (self._drawn[number] + (time_s - start) / (end - start) * length) / self.drawn_s

    def ticks(self, count: int = 8) -> list[tuple[float, float]]:
        """Places with the seconds since the beginning, at round numbers; none inside a cut."""
        step = _round_step(self.drawn_s / max(count, 1))
        found: list[tuple[float, float]] = []
        for start, end, length in self._pieces:
            if length < end - start:
                continue
            first, last = math.ceil((start - self.start_s) / step - 1e-9), math.floor((end - self.start_s) / step + 1e-9)
            for number in range(first, last + 1):
                place = self.place(self.start_s + number * step)
                if not found or place - found[-1][0] >= 0.6 / count:
                    found.append((place, number * step))
        return found


def _merged(stretches: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    current: tuple[float, float] | None = None
    for start, end in sorted(stretches):
        if current is None:
            current = (start, end)
        elif start <= current[1]:
            current = (current[0], max(current[1], end))
        else:
            yield current
            current = (start, end)
    if current is not None:
        yield current


def _round_step(seconds: float) -> float:
    if not math.isfinite(seconds) or seconds < SHORTEST_S:
        return 1.0
    power = 10 ** math.floor(math.log10(seconds))
    return next((step * power for step in _STEPS if step * power >= seconds), 10 * power)
