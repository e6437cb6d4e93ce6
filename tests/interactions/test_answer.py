"""The reader of answers: numbers as texts, and events that say nothing."""

from __future__ import annotations

from typing import Any

from callgate.content.read import parts_of, usage_of
from callgate.interactions.answer import AnswerReader


def read(*events: dict[str, Any]) -> list[dict[str, Any]]:
    reader = AnswerReader(origin="interactions:developer:gemini-3.8-flash")
    return [chunk for event in events for chunk in reader.feed(event) if isinstance(chunk, dict)]


def event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"event_type": kind, **fields}


END = event(
    "interaction.completed",
    interaction={"status": "completed", "usage": {"total_input_tokens": "5", "total_output_tokens": 2, "total_tokens": "7"}},
)


def test_numbers_of_64_bits_come_as_texts() -> None:
    chunks = read(
        event("step.start", index="0", step={"type": "thought"}),
        event("step.delta", index="0", delta={"type": "thought_signature", "signature": "c2ln"}),
        event("step.start", index="1", step={"type": "function_call", "id": "a", "name": "f"}),
        event("step.start", index="2", step={"type": "function_call", "id": "b", "name": "g"}),
        event("step.delta", index="2", delta={"type": "arguments_delta", "arguments": '{"x":1}'}),
        END,
    )
    parts = [part for chunk in chunks for part in parts_of(chunk["candidates"][0].get("content", {}))]
    assert [part["functionCall"] for part in parts] == [
        {"id": "a", "name": "f", "args": {}}, {"id": "b", "name": "g", "args": {"x": 1}},
    ]  # fmt: skip
    usage = usage_of(chunks[-1])
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (5, 2, 7)


def test_a_delta_without_anything_begins_no_step() -> None:
    chunks = read(
        event("step.delta", index=0, delta=None),
        event("step.delta", index=0, delta={}),
        event("step.start", index=0, step={"type": "model_output"}),
        event("step.delta", index=0, delta={"type": "text", "text": "Hi."}),
        END,
    )
    assert chunks[0]["candidates"][0]["content"]["parts"] == [{"text": "Hi."}]
