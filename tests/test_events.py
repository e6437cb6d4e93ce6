"""Events as JSON: one closed list, each with a name."""

from __future__ import annotations

import types
from typing import Any, get_args

import pytest

from callgate import events, strict_json
from callgate.history.conversation import Conversation
from callgate.metadata import AnswerMetadata, ServerStep, Source
from callgate.types import CallRecord, Decision, FunctionCall, Media, Reply, ToolResult, Usage

CALL = FunctionCall(name="f", args=types.MappingProxyType({"a": [1]}), id="c1", notes=("n",))
PLAIN_CALL = {
    "name": "f", "args": {"a": [1]}, "id": "c1", "wire_id": None, "wire_name": None, "problem": None, "notes": ["n"],
}  # fmt: skip
RESULT = ToolResult(call_id="c1", name="f", status="finished", value={"x": 1}, media=({"inlineData": {}},))
PLAIN_RESULT = {
    "call_id": "c1",
    "name": "f",
    "status": "finished",
    "value": {"x": 1},
    "error": None,
    "notes": [],
    "media": [{"inlineData": {}}],
    "duration_s": 0.0,
}
USAGE = Usage(total_tokens=3)
PLAIN_USAGE = {
    "input_tokens": 0, "cached_tokens": 0, "output_tokens": 0, "thought_tokens": 0, "tool_tokens": 0, "total_tokens": 3,
    "audio_tokens": 0, "cached_audio_tokens": 0,
}  # fmt: skip
REPLY = Reply(
    text="hi",
    calls=[CallRecord(call=CALL, state="finished", decision=Decision(verdict="allow"), result=RESULT)],
    usage=USAGE,
    finish_reason="STOP",
    history=Conversation([{"role": "user", "parts": [{"text": "a"}]}]).history,
    session="s",
)

ROWS: list[tuple[Any, Any]] = [
    (events.TextDelta("a"), {"type": "text_delta", "text": "a"}),
    (events.OutputDelta({"a": 1}), {"type": "output_delta", "partial": {"a": 1}}),
    (events.ThoughtDelta("a"), {"type": "thought_delta", "text": "a"}),
    (
        events.MediaReceived(Media(data=b"\x00\xff", mime_type="image/png")),
        {
            "type": "media_received",
            "media": {"data": "AP8=", "mime_type": "image/png", "name": None, "path": None, "uri": None, "transcript": ""},
        },
    ),
    (
        events.ServerStepReported(ServerStep(kind="code", tool="code_execution", value={"code": "1"})),
        {
            "type": "server_step_reported",
            "step": {"kind": "code", "tool": "code_execution", "id": None, "value": {"code": "1"}},
        },
    ),
    (events.CallProposed(CALL), {"type": "call_proposed", "call": PLAIN_CALL}),
    (events.CallArgsDelta("c1", "{"), {"type": "call_args_delta", "call_id": "c1", "text": "{"}),
    (
        events.ApprovalNeeded(CALL, "why"),
        {"type": "approval_needed", "call": PLAIN_CALL, "reason": "why", "preview": None, "always": "", "confirm": ""},
    ),
    (events.CallStarted(CALL), {"type": "call_started", "call": PLAIN_CALL, "preview": None}),
    (events.CallProgress("c1", "half", 0.5), {"type": "call_progress", "call_id": "c1", "message": "half", "fraction": 0.5}),
    (events.CallFinished(CALL, RESULT), {"type": "call_finished", "call": PLAIN_CALL, "result": PLAIN_RESULT}),
    (events.UsageReported(USAGE), {"type": "usage_reported", "usage": PLAIN_USAGE}),
    (
        events.MetadataReported(AnswerMetadata(queries=("q",), sources=(Source(uri="https://a.example/"),))),
        {
            "type": "metadata_reported",
            "metadata": {
                "sources": [
                    {"uri": "https://a.example/", "title": "", "kind": "web", "domain": "", "text": "", "license": ""}
                ],
                "citations": [],
                "queries": ["q"],
                "search_suggestions": [],
                "search_links": [],
                "urls": [],
                "safety_ratings": [],
                "logprobs": [],
                "avg_logprobs": None,
                "finish_message": "",
                "response_id": "",
                "raw": [],
            },
        },
    ),
    (events.Notice("retry", "again"), {"type": "notice", "code": "retry", "message": "again", "level": "info"}),
    (events.TurnEnded(1, "STOP"), {"type": "turn_ended", "turn": 1, "finish_reason": "STOP"}),
    (
        events.RunEnded(REPLY),
        {
            "type": "run_ended",
            "reply": {
                "text": "hi",
                "calls": [
                    {
                        "call": PLAIN_CALL,
                        "state": "finished",
                        "decision": {"verdict": "allow", "reason": "", "by": "policy", "rule": "", "approver": ""},
                        "result": PLAIN_RESULT,
                        "edited": False,
                        "preview": None,
                        "confirm": "",
                    }
                ],
                "usage": PLAIN_USAGE,
                "finish_reason": "STOP",
                "contents": [{"role": "user", "parts": [{"text": "a"}]}],
                "session": "s",
                "turns": 0,
                "limited": False,
                "approvals": [],
                "model": "",
                "cost": None,
                "context_tokens": 0,
                "output": None,
                "thoughts": "",
                "metadata": [],
                "citations": [],
                "media": [],
                "server_steps": [],
            },
        },
    ),
]


@pytest.mark.rows(("event", "plain"), ROWS, ids=lambda row: type(row).__name__)
def test_an_event_is_its_fields_and_its_name(event: Any, plain: Any) -> None:
    assert events.to_json(event) == plain
    assert strict_json.parse(strict_json.dump(events.to_json(event))) == plain


def test_the_list_of_events_is_complete_and_each_is_tested() -> None:
    assert get_args(events.Event) == events.EVENTS == tuple(type(event) for event, _ in ROWS)
