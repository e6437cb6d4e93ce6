"""What took how long: the events of runs in, spans out."""

from __future__ import annotations

from collections.abc import Iterable

from callgate.events import ApprovalNeeded, CallFinished, CallStarted, TurnEnded, UsageReported
from callgate.server.runs import Run
from callgate.types import JsonObject

__all__ = ["spans_of"]


def spans_of(runs: Iterable[Run]) -> list[JsonObject]:
    """The spans of some runs, as far as their events are still known."""
    return [span for run in runs for span in _spans(run)]


def _spans(run: Run) -> list[JsonObject]:
    state = run.reply.finish_reason if run.reply else str(run.problem["error"]) if run.problem else "running"
    spans = [_span(run.id, None, "run", "run", run.began_s, run.ended_s, state)]
    asked_s, turn = run.began_s, 1
    open_spans: dict[str, JsonObject] = {}
    for item in run.ring:
        event = item.event
        match event:
            case UsageReported():
                spans.append(_span(f"{run.id}-m{turn}", run.id, run.model, "model", asked_s, item.at_s, "finished"))
                turn += 1
            case ApprovalNeeded():
                span = _span(f"{event.call.id}-approval", run.id, event.call.name, "approval", item.at_s, None, "waiting")
                open_spans[f"approval {event.call.id}"] = span
                spans.append(span)
            case CallStarted():
                _close(open_spans.pop(f"approval {event.call.id}", None), item.at_s, "answered")
                span = _span(event.call.id, run.id, event.call.name, "call", item.at_s, None, "started")
                open_spans[event.call.id] = span
                spans.append(span)
            case CallFinished():
                _close(open_spans.pop(f"approval {event.call.id}", None), item.at_s, "answered")
                _close(open_spans.pop(event.call.id, None), item.at_s, event.result.status)
            case TurnEnded():
                asked_s = item.at_s
            case _:
                pass
    return spans


def _span(id: str, parent: str | None, name: str, kind: str, start_s: float, end_s: float | None, state: str) -> JsonObject:
    return {"id": id, "parent": parent, "name": name, "kind": kind, "start_s": start_s, "end_s": end_s, "state": state}


def _close(span: JsonObject | None, end_s: float, state: str) -> None:
    if span is not None:
        span["end_s"], span["state"] = end_s, state
