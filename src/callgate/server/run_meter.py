"""A meter of what a run or a passed-on request has used, for quotas, however it ends.

Events and chunks come in, tokens and their cost go out. An answer that broke off before the model had counted its tokens is
estimated by its bytes: the provider charges for it, whether or not anybody stayed to read it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from callgate.events import CallFinished, CallProposed, Event, TextDelta, ThoughtDelta, TurnEnded, UsageReported
from callgate.machine.machine import TOKENS_PER_BYTE
from callgate.store.principals import Used
from callgate.types import Reply, Usage

__all__ = ["RunMeter", "estimate", "written_bytes"]

More: TypeAlias = "Callable[[Used, Used], Awaitable[None]]"
"""Called before the model is asked again, with what was used and what the next answer is expected to use."""


def estimate(sent_tokens: int, received_bytes: int) -> Usage:
    """Return about what an answer has used that nobody has counted."""
    received = round(received_bytes * TOKENS_PER_BYTE)
    return Usage(input_tokens=sent_tokens, output_tokens=received, total_tokens=sent_tokens + received)


def written_bytes(event: Event) -> int:
    """Return about how many bytes the model has written, if an event reports some of its answer."""
    if isinstance(event, TextDelta | ThoughtDelta):
        return len(event.text.encode("utf-8", "replace"))
    return len(str(event.call.args)) if isinstance(event, CallProposed) else 0


class RunMeter:
    """Meter of what one run uses, by its events.

    `asked_bytes` is the length of what the client sent, `context` gives the tokens of the conversation as far as they are
    known, `cost_of` the cost of an answer, `answer_tokens` how long one is expected to be. One that `goes_on` after a pause
    leaves out what was counted before it.
    """

    def __init__(
        self,
        asked_bytes: int,
        context: Callable[[], int],
        cost_of: Callable[[Usage], float | None],
        *,
        goes_on: bool,
        answer_tokens: int = 0,
    ) -> None:
        self._goes_on = goes_on
        self._answer_tokens = answer_tokens
        self._cost_of = cost_of
        self._context = context
        self._sent = round(asked_bytes * TOKENS_PER_BYTE)
        """Tokens of the request that is under way, or comes next."""
        self._received = 0
        self._usage = Usage()
        self._cost = 0.0
        self._began = False
        self._is_asking = False
        """True if the model works on an answer, or is just about to."""
        self._before: Used | None = None
        """Use of the run before its first request here."""

    def watching(self, watch: Callable[[Event], Awaitable[None]]) -> Callable[[Event], Awaitable[None]]:
        """Return the watcher of a run that works itself, and does not only repeat what another one came to."""
        self._began = self._is_asking = True

        async def watched(event: Event) -> None:
            self.add_event(event)
            await watch(event)

        return watched

    async def before_model(self, usage: Usage, cost: float, *, more: More) -> None:
        """Ask for `more` before a request to the model, unless it is the first, by what the whole run has used by now."""
        if self._before is None:
            self._before = Used(usage.total_tokens, cost)
            return
        # No event reports what a summary has used.
        unseen = usage.total_tokens - self._before.tokens - self._usage.total_tokens
        if unseen > 0:
            self._usage += Usage(total_tokens=unseen)
        self._cost = max(self._cost, cost - self._before.cost)
        await more(Used(self._usage.total_tokens, self._cost), self.expected())

    def expected(self) -> Used:
        """Return about what the next answer will use."""
        sent = max(self._sent, self._context())
        usage = Usage(input_tokens=sent, output_tokens=self._answer_tokens, total_tokens=sent + self._answer_tokens)
        return Used(usage.total_tokens, self._cost_of(usage) or 0.0)

    def add_event(self, event: Event) -> None:
        """Take in an event."""
        if isinstance(event, UsageReported):
            self._add(event.usage)
            self._sent, self._received, self._is_asking = max(self._sent, event.usage.total_tokens), 0, False
        elif isinstance(event, TurnEnded):
            self._is_asking = True
        elif isinstance(event, CallFinished):
            self._sent += round(len(str(event.result.value)) * TOKENS_PER_BYTE)
        elif size := written_bytes(event):
            if not self._received:
                self._sent = max(self._sent, self._context())
            self._received, self._is_asking = self._received + size, True

    def total(self, reply: Reply | None) -> tuple[Usage, float]:
        """Return what the run has used, and the cost of it, when it is over."""
        if not self._began:
            return Usage(), 0.0
        if reply is not None and not self._goes_on:
            self._usage, self._cost = reply.usage, reply.cost or 0.0
        if reply is not None and reply.finish_reason != "cancelled":
            return self._usage, self._cost
        # A model that refused, or could not be reached, has used nothing; one that was left in the middle has.
        if self._is_asking and (self._received or reply is not None):
            self._add(estimate(self._sent, self._received))
        return self._usage, self._cost

    def _add(self, usage: Usage) -> None:
        self._usage += usage
        self._cost += self._cost_of(usage) or 0.0
