"""One run as the journal of its session has it: a claim and facts in, the state of the run and its events out.

Pieces that no journal holds (progress, thoughts, the answer bit by bit) are not told again. This file asks nobody anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from callgate.errors import ModelError
from callgate.events import (
    ApprovalNeeded,
    CallFinished,
    CallProposed,
    Event,
    MediaReceived,
    MetadataReported,
    RunEnded,
    ServerStepReported,
    TextDelta,
    ThoughtDelta,
)
from callgate.machine import facts as words
from callgate.machine.facts import Fact, Finish
from callgate.machine.machine import RunMachine
from callgate.sessions import State, state_of
from callgate.store import Claim
from callgate.types import Reply

__all__ = ["JournaledRun", "find", "open_since", "outcome", "replayed_events"]

_ENDS = (words.RunStarted, words.HistoryGiven, words.Rewound)
"""Facts with which something else than the run before them begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournaledRun:
    """A run as the journal has it."""

    state: State
    reply: Reply
    finish: Finish | None
    is_last: bool
    """True if it is the newest run of its session, so that it can go on."""
    is_marked: bool
    """True if the journal says which request began it; one that was open before the request came was begun by another."""
    took_s: float

    @property
    def is_over(self) -> bool:
        """True if nothing more will come of it."""
        return self.state == "idle"

    @property
    def came_to_nothing(self) -> bool:
        """True if it failed before anything happened, so that it may be tried again from the start."""
        is_failed = self.finish is not None and (self.finish.error is not None or self.finish.reason == "nothing_to_do")
        return is_failed and not self.reply.turns and not self.reply.calls

    @property
    def awaited(self) -> frozenset[str]:
        """The calls that somebody has to answer."""
        return frozenset(record.call.id for record in self.reply.approvals)


def find(claim: Claim, journal: Sequence[Fact]) -> JournaledRun | None:
    """The run that a claim stands for; None if it has not begun."""
    starts = [place for place, fact in enumerate(journal) if isinstance(fact, words.RunStarted)]
    marked = [place for place in starts if getattr(journal[place], "request", None) == claim.run]
    before = [place for place in starts if place < claim.position]
    if not marked and not before:
        return None
    start = (marked or before)[-1]
    end = next((place for place in range(start + 1, len(journal)) if isinstance(journal[place], _ENDS)), len(journal))
    loop = RunMachine(journal[:end])
    return JournaledRun(
        state=state_of(loop),
        reply=loop.reply(claim.session),
        finish=loop.run.finish,
        is_last=end == len(journal),
        is_marked=bool(marked),
        took_s=max(0.0, (journal[end - 1].at_s or 0.0) - (journal[start].at_s or 0.0)),
    )


def open_since(journal: Sequence[Fact]) -> int:
    """Count the facts of a session whose last run is not over; 0 if nothing is open."""
    return len(journal) if journal and state_of(RunMachine(journal)) != "idle" else 0


def outcome(found: JournaledRun) -> Reply:
    """The outcome of the run.

    Raises:
        ModelError: it failed.
    """
    if found.finish is not None and found.finish.error is not None:
        raise ModelError(f"the run failed: {found.finish.message or found.finish.reason}")
    return found.reply


def replayed_events(found: JournaledRun) -> Iterator[Event]:
    """The events of a run as far as the journal has them: its calls, then its last words, then its end."""
    for record in found.reply.calls:
        yield CallProposed(record.call)
        if record.state == "awaiting":
            yield ApprovalNeeded(record.call, record.decision.reason if record.decision else "")
        elif record.result.status != "awaiting":
            yield CallFinished(record.call, record.result)
    if found.finish is not None and found.finish.error is not None:
        return
    if found.reply.thoughts:
        yield ThoughtDelta(found.reply.thoughts)
    yield from map(ServerStepReported, found.reply.server_steps)
    if found.reply.text:
        yield TextDelta(found.reply.text)
    yield from map(MediaReceived, found.reply.media)
    yield from map(MetadataReported, found.reply.metadata)
    yield RunEnded(found.reply)
