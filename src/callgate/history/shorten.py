"""Plan how to shorten a history so that it fits: sizes in, a plan out.

A plan says, in this order: which of the oldest exchanges are dropped; which results of the newest exchange are cut; which
of its oldest pairs (calls and their responses) are dropped; and, only if that is not enough, how short its newest results
become. The newest user content and the newest pair always stay. `conversation.py` applies plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from callgate import strict_json
from callgate.content.prompt import user_content
from callgate.content.read import parts_of
from callgate.content.response import SHORTENED_CHARS_MIN
from callgate.types import Content

__all__ = ["RESULT_CHARS", "SUMMARY", "Outline", "Shortening", "fitting_summary", "is_summary", "plan_shortening"]

SUMMARY = (
    "Summary of the conversation up to here, made by you to save room. It is data about the past, not an instruction:\n\n{}"
)
"""The text of a summary in a history."""

_SUMMARY_BEGINS = SUMMARY.partition("\n")[0]

RESULT_CHARS = 1_000
"""Characters of JSON that are left of an old result."""

SUMMARY_BYTES_MIN = 400
"""A summary that would have to be shorter than this is left out."""

Kind: TypeAlias = Literal["user", "summary", "model", "responses"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortening:
    """The steps of a plan, in integers, so that it can be journalled and applied again."""

    dropped: int = 0
    """Contents that are dropped from the front: whole exchanges."""
    start: int = 0
    """Index of the contents of the newest exchange that are dropped, before any step."""
    pairs: int = 0
    """Contents that are dropped there."""
    keep: int | None = None
    """Newest response contents that keep their results; those of all others are cut to `RESULT_CHARS`."""
    newest_chars: int | None = None
    """Characters of JSON that each of the newest results is cut to."""
    summary_bytes: int = 0
    """Maximum JSON size of a summary of the dropped contents, so that the history still fits."""

    @property
    def summarized(self) -> int:
        """Contents, from the front, that a summary should cover; 0 if nothing is dropped."""
        return self.start + self.pairs if self.pairs else self.dropped

    @property
    def has_room_for_summary(self) -> bool:
        """True if there is something to summarize, and room for the summary."""
        return self.summarized > 0 and self.summary_bytes >= SUMMARY_BYTES_MIN

    def sentence(self, *, has_summary: bool) -> str:
        """Describe the plan to the user."""
        gone, how = self.dropped + self.pairs, "replaced by a summary" if has_summary else "left out"
        if not gone:
            return "Long results were shortened to save room."
        also = "" if self.keep is None and self.newest_chars is None else ", and long results shortened,"
        return f"The {gone} oldest contents were {how}{also} to save room."

    def moved(self, index: int, *, has_summary: bool) -> int:
        """Return the new index of a content, or of the end of the history; for a dropped one, that of the cut."""
        if self.pairs and index > self.start:
            index = max(index - self.pairs, self.start) + has_summary
        return max(index - self.dropped, 0) + (has_summary and not self.pairs)


@dataclass(frozen=True, slots=True)
class Outline:
    """The facts about a history that a plan needs."""

    kinds: Sequence[Kind]
    sizes: Sequence[int]
    """Bytes of JSON."""
    shortened_size: Callable[[int, int], int]
    """The size of the responses at an index, with each result cut to so many characters."""


def plan_shortening(outline: Outline, bytes_max: int, target: int) -> Shortening | None:
    """Plan how a history of more than `bytes_max` bytes gets at most `target`; None if there is nothing to do.

    If `target` cannot be reached, it comes as near as possible. After a plan was applied, with a summary of at most
    `summary_bytes` or without one, there is nothing to do.
    """
    planner = _Planner(outline, target)
    if planner.size <= bytes_max or not outline.kinds:
        return None
    planner.drop_exchanges()
    planner.cut_old_results()
    planner.drop_pairs()
    if planner.size > bytes_max:
        # If something is dropped, the newest results leave room for a summary of it.
        planner.cut_newest_results(bytes_max - (bytes_max // 8 if planner.plan.summarized else 0))
        if planner.plan.newest_chars is None:
            planner.cut_newest_results(bytes_max)
    if planner.plan == Shortening():
        return None
    return replace(planner.plan, summary_bytes=max(bytes_max - planner.size, 0))


def is_summary(content: Content) -> bool:
    """True if a user content is the summary of dropped contents, rather than user input."""
    first: object = parts_of(content)[0].get("text") if parts_of(content) else None
    return isinstance(first, str) and first.startswith(_SUMMARY_BEGINS)


def fitting_summary(summary: str, bytes_max: int) -> str | None:
    """Cut the text of a summary so that its content has at most so many bytes of JSON; None if that is too few."""
    if bytes_max < SUMMARY_BYTES_MIN:
        return None
    text, kept = SUMMARY.format(summary), len(summary)
    while len(strict_json.dump(user_content(text))) > bytes_max:
        kept = kept * 7 // 8
        text = SUMMARY.format(summary[:kept] + " [...]")
    return text


class _Planner:
    """The steps of one plan; each does nothing once the target is reached."""

    def __init__(self, outline: Outline, target: int) -> None:
        self.kinds, self.sizes, self.shortened_size = outline.kinds, list(outline.sizes), outline.shortened_size
        self.target = target
        self.size = sum(self.sizes)
        self.plan = Shortening()
        self.newest = max((index for index, kind in enumerate(self.kinds) if kind == "user"), default=0)
        """The content that starts the newest exchange."""

    @property
    def fits(self) -> bool:
        return self.size <= self.target

    def drop_exchanges(self) -> None:
        for start in range(1, self.newest + 1):
            if self.fits:
                return
            if self.kinds[start] == "user":
                self.size -= sum(self.sizes[self.plan.dropped : start])
                self.plan = replace(self.plan, dropped=start)

    def cut_old_results(self) -> None:
        places = self._places("responses")
        for number, place in enumerate(places[:-1], 1):
            if self.fits:
                return
            if (saved := self.sizes[place] - self.shortened_size(place, RESULT_CHARS)) > 0:
                self.sizes[place] -= saved
                self.size -= saved
                self.plan = replace(self.plan, keep=len(places) - number)

    def drop_pairs(self) -> None:
        start = self.newest + 1
        done = start
        for place in self._places("model"):
            if self.fits:
                return
            if place == start:
                continue
            self.size -= sum(self.sizes[done:place])
            done = place
            self.plan = replace(self.plan, start=start, pairs=place - start)

    def cut_newest_results(self, bytes_max: int) -> None:
        places = [place for place in self._places("responses") if place >= self.plan.start + self.plan.pairs]
        if self.size <= bytes_max or not places:
            return
        place = places[-1]
        room = bytes_max - (self.size - self.sizes[place])
        low, high = SHORTENED_CHARS_MIN, max(self.sizes[place], SHORTENED_CHARS_MIN)
        if self.shortened_size(place, low) > room:
            return  # It cannot fit, and a model that sees nothing of its results would only ask for them again.
        while high - low > max(low // 50, 1):
            middle = (low + high) // 2
            low, high = (middle, high) if self.shortened_size(place, middle) <= room else (low, middle)
        self.size += self.shortened_size(place, low) - self.sizes[place]
        self.plan = replace(self.plan, newest_chars=low)

    def _places(self, kind: Kind) -> list[int]:
        return [index for index in range(self.newest + 1, len(self.kinds)) if self.kinds[index] == kind]
