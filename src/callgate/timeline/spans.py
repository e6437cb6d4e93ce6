"""Derive spans from the facts of a session.

Takes facts in the order of the journal; returns spans, parents before their children:

    run ── turn ──┬── request                      the model's request
                  ├── server_step                  the provider ran a tool of its own during the request
                  └── call ──┬── approval          an approval is pending
                             └── execution         the tool ran

Times are those of the facts; a step at the provider has those of its request, since nobody says when it ran. A journal
without times gives spans all the same: calls have their duration, and everything else takes no time. Knows no clock, no
store and no drawing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from callgate.content.metadata import server_steps_of, step_name
from callgate.content.read import text_of
from callgate.machine import facts
from callgate.machine.machine import RunMachine
from callgate.types import CallRecord, JsonObject

__all__ = ["Span", "SpanKind", "spans_of"]

SpanKind: TypeAlias = Literal["run", "turn", "request", "server_step", "call", "approval", "execution"]
"""The kinds of spans, from the outermost on."""

NAME_CHARS_MAX = 80
LATEST_S = 253_402_300_800.0
"""The end of the year 9999. A fact that claims to be later, or is from before 1970, does not say when it was."""
_STEP_RESULTS = ("code_result", "tool_result")


@dataclass(slots=True, kw_only=True)
class Span:
    """An interval of time."""

    id: str
    """The id of the span, unique in its session."""
    parent: str | None
    """The id of the span around it; None for a run."""
    name: str
    """The user's prompt, the number of the turn, the model, or the tool."""
    kind: SpanKind
    """The kind of the span."""
    start_s: float
    """Seconds since 1970."""
    end_s: float | None = None
    """None while in progress."""
    state: str = "open"
    """The outcome: the finish reason of a run or request, the status of a call, the answer of an approval."""
    call_id: str | None = None
    """The id of its call, if it belongs to one."""

    @property
    def duration_s(self) -> float | None:
        """The duration; None while in progress."""
        return None if self.end_s is None else self.end_s - self.start_s

    def to_json(self) -> JsonObject:
        """The span as a JSON object."""
        return {
            "id": self.id,
            "parent": self.parent,
            "name": self.name,
            "kind": self.kind,
            "start_s": self.start_s,
            "end_s": self.end_s,
            "state": self.state,
            "call_id": self.call_id,
        }


def spans_of(journal: Iterable[facts.Fact]) -> list[Span]:
    """Return the spans, parents before their children and otherwise in the order of their start."""
    reader = _Reader()

    def begin() -> Callable[[facts.Fact], None]:
        nonlocal reader
        reader = _Reader()
        return reader.take

    facts.replay(journal, begin)
    return reader.spans


@dataclass(slots=True)
class _Call:
    """The open spans of one call."""

    call: Span
    approval: Span | None = None
    execution: Span | None = None


class _Reader:
    """Reader of facts, one by one, that tracks open spans."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self._counts: Counter[str] = Counter()
        self._loop = RunMachine()
        self._now_s = 0.0
        self._started_s: dict[str, float] = {}
        self._run: Span | None = None
        self._turn: Span | None = None
        self._turn_has_calls = False
        self._request: Span | None = None
        self._calls: dict[str, _Call] = {}

    def take(self, fact: facts.Fact) -> None:
        """Apply one fact."""
        before_s, self._now_s = self._now_s, self._time_of(fact)
        if isinstance(fact, facts.Recovered):
            # Everything had stopped by then, at an unknown time.
            self._stop_all("interrupted", before_s)
        elif isinstance(fact, (facts.RunStarted, facts.HistoryGiven, facts.Rewound)):
            self._end_run("given up")
        settled = self._loop.apply(fact)
        if (note := self._NOTES.get(type(fact))) is not None:
            note(self, fact)
        for record in settled:
            self._settle(record)
        self._follow_phase()

    def _time_of(self, fact: facts.Fact) -> float:
        """The time of the fact, which never runs backwards, whatever the clock said."""
        at_s = _plausible(fact.at_s)
        if at_s is None and isinstance(fact, facts.CallEnded):
            at_s = self._started_s.get(fact.id, self._now_s) + (_plausible(fact.result.duration_s) or 0.0)
        return min(max(self._now_s, at_s or 0.0), LATEST_S)

    # Facts ----------------------------------------------------------------------------------------------------------------

    def _run_started(self, fact: facts.RunStarted) -> None:
        said = "" if fact.content is None else " ".join(text_of(fact.content).split())
        self._run = self._open("run", said[:NAME_CHARS_MAX] or "(goes on)", None)

    def _model_answered(self, fact: facts.ModelAnswered) -> None:
        request = self._request
        self._end_request(str(fact.finish_reason), str(fact.model or ""))
        if request is not None:
            self._add_server_steps(fact, request)
        for record in self._loop.open_calls:
            self._begin_call(record)

    def _model_failed(self, fact: facts.ModelFailed) -> None:
        self._end_request("error")

    def _history_shortened(self, fact: facts.HistoryShortened) -> None:
        self._end_request("left out" if fact.summary is None else "summarized")

    def _call_decided(self, fact: facts.CallDecided) -> None:
        call = self._calls.get(fact.id)
        if call is None or call.approval is not None or self._state_of(fact.id) != "awaiting":
            return
        call.approval = self._open("approval", call.call.name, call.call, fact.id)

    def _approval_answered(self, fact: facts.ApprovalAnswered) -> None:
        call = self._calls.get(fact.id)
        if call is not None and call.approval is not None:
            self._end(call.approval, fact.answer)
            call.approval = None

    def _call_started(self, fact: facts.CallStarted) -> None:
        call = self._calls.get(fact.id)
        if call is not None and call.execution is None and self._state_of(fact.id) == "started":
            self._started_s[fact.id] = self._now_s
            call.execution = self._open("execution", call.call.name, call.call, fact.id)

    def _cancelled(self, fact: facts.Cancelled) -> None:
        self._end_request("cancelled")

    _NOTES: ClassVar[dict[type[Any], Callable[[Any, Any], None]]] = {
        facts.RunStarted: _run_started,
        facts.ModelAnswered: _model_answered,
        facts.ModelFailed: _model_failed,
        facts.HistoryShortened: _history_shortened,
        facts.CallDecided: _call_decided,
        facts.ApprovalAnswered: _approval_answered,
        facts.CallStarted: _call_started,
        facts.Cancelled: _cancelled,
    }

    # Spans ----------------------------------------------------------------------------------------------------------------

    def _follow_phase(self) -> None:
        """Open and close turns and requests as the run proceeds."""
        phase = self._loop.phase
        # A repeated request for an unusable answer belongs to the same turn.
        if self._turn is not None and phase == "asking" and self._request is None and self._turn_has_calls:
            self._end(self._turn, "done")
            self._turn = None
        if phase == "asking" and self._request is None and self._run is not None:
            if self._turn is None:
                self._turn = self._open("turn", f"turn {self._loop.run.turn + 1}", self._run)
                self._turn_has_calls = False
            self._request = self._open("request", "model", self._turn)
        if phase == "done" and self._run is not None:
            finish = self._loop.run.finish
            self._end_run(finish.reason if finish is not None else "done")

    def _add_server_steps(self, fact: facts.ModelAnswered, request: Span) -> None:
        """Add what the provider ran by itself, each with its outcome."""
        steps = server_steps_of(fact.content)
        results = [step for step in steps if step.kind in _STEP_RESULTS]
        for step in steps:
            if step.kind in _STEP_RESULTS:
                continue
            # Results without an id follow the order of the steps.
            result = next((found for found in results if found.id == step.id), None)
            if result is not None:
                results.remove(result)
            span = self._open("server_step", step_name(step), self._turn)
            span.start_s = request.start_s
            self._end(span, "no result" if result is None else "error" if result.is_error else "finished")

    def _begin_call(self, record: CallRecord) -> None:
        if record.call.id not in self._calls and self._turn is not None:
            self._turn_has_calls = True
            self._calls[record.call.id] = _Call(self._open("call", record.call.name, self._turn, record.call.id))

    def _settle(self, record: CallRecord) -> None:
        self._begin_call(record)
        call = self._calls.pop(record.call.id, None)
        if call is None:
            return
        call.call.name = record.call.name
        for span in (call.approval, call.execution, call.call):
            if span is not None:
                self._end(span, record.state)

    def _state_of(self, call_id: str) -> str:
        return next((record.state for record in self._loop.open_calls if record.call.id == call_id), "")

    def _end_request(self, state: str, model: str = "") -> None:
        if self._request is not None:
            self._request.name = model or self._request.name
            self._end(self._request, state)
            self._request = None

    def _stop_all(self, state: str, at_s: float) -> None:
        """End what only a living process can do."""
        if self._request is not None:
            self._end(self._request, state, at_s)
            self._request = None
        for call in self._calls.values():
            if call.execution is not None:
                self._end(call.execution, state, at_s)
                call.execution = None

    def _end_run(self, state: str) -> None:
        self._end_request(state)
        for call in self._calls.values():
            for span in (call.approval, call.execution, call.call):
                if span is not None:
                    self._end(span, state)
        self._calls.clear()
        if self._turn is not None:
            self._end(self._turn, "done")
        if self._run is not None:
            self._end(self._run, state)
        self._turn = self._run = None

    def _open(self, kind: SpanKind, name: str, parent: Span | None, call_id: str | None = None) -> Span:
        self._counts[kind] += 1
        parent_id = None if parent is None else parent.id
        id = f"{kind}-{self._counts[kind]}"
        span = Span(id=id, parent=parent_id, name=name, kind=kind, start_s=self._now_s, call_id=call_id)
        self.spans.append(span)
        return span

    def _end(self, span: Span, state: str, at_s: float | None = None) -> None:
        if span.end_s is None:
            span.end_s, span.state = max(span.start_s, self._now_s if at_s is None else at_s), state


def _plausible(seconds: float | None) -> float | None:
    """A time or duration that a clock can have shown, or None: a journal of others may hold any number, and NaN."""
    return float(seconds) if seconds is not None and 0 <= seconds <= LATEST_S else None
