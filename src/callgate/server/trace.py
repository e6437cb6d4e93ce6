"""Durations in a session: its journal in, spans for a client out.

A client is shown runs and what was done in each: the model at work, somebody being asked, a call being run.
"""

from __future__ import annotations

from collections.abc import Sequence

from callgate.machine.facts import Fact
from callgate.timeline import Span, SpanKind, spans_of
from callgate.types import JsonObject

__all__ = ["trace_json"]

KINDS: dict[SpanKind, str] = {"run": "run", "request": "model", "approval": "approval", "execution": "call"}
"""Kinds of spans that are shown -> what they are called."""


def trace_json(facts: Sequence[Fact]) -> list[JsonObject]:
    """The spans of a session; none if it was written before times were kept."""
    if all(fact.at_s is None for fact in facts):
        return []
    spans = spans_of(facts)
    above = {span.id: span for span in spans}
    return [_json(span, above) for span in spans if span.kind in KINDS]


def _json(span: Span, above: dict[str, Span]) -> JsonObject:
    run = span
    while run.parent is not None:
        run = above[run.parent]
    id = f"{span.call_id}-approval" if span.kind == "approval" else span.call_id or span.id
    told: JsonObject = {"id": id, "parent": None if run is span else run.id, "name": span.name, "kind": KINDS[span.kind]}
    return told | {"start_s": span.start_s, "end_s": span.end_s, "state": span.state}
