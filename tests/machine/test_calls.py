"""The life of calls, apart from any run."""

from __future__ import annotations

from callgate.machine import facts
from callgate.machine.calls import CallBatch
from callgate.types import Decision, FunctionCall, ToolResult

FIRST, SECOND = FunctionCall(name="look", id="a"), FunctionCall(name="look", id="b")


def started(*calls: FunctionCall) -> CallBatch:
    batch = CallBatch(calls, parallel=2)
    for call in calls:
        batch.apply(facts.CallChecked(id=call.id, tool=call.name, args={}))
        batch.apply(facts.CallDecided(id=call.id, decision=Decision(verdict="allow")))
        batch.apply(facts.CallStarted(id=call.id))
    return batch


def test_calls_are_in_no_order_unless_told() -> None:
    batch = CallBatch([FIRST, SECOND], parallel=2)
    assert [call.ordered for call in batch.calls] == [False, False]
    assert batch.todo() == facts.Todo(check=(FIRST, SECOND))


def test_what_is_over_stays_as_it_was_when_the_rest_is_lost() -> None:
    batch = started(FIRST, SECOND)
    batch.apply(facts.CallEnded(id="a", result=ToolResult(call_id="a", name="look", status="finished", value=1)))
    batch.lose()
    assert [record.state for record in batch.records()] == ["finished", "unknown"]
    assert [record.call.id for record in batch.drain()] == ["b"]
