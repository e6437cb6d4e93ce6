"""The strict fake of the Interactions API: a request that breaks a rule is refused by that rule, and a right one is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from callgate.testing.interaction_rules import InteractionState, Stored, interaction_judge

USER = {"type": "user_input", "content": [{"type": "text", "text": "Hi."}]}
THOUGHT = {"type": "thought", "signature": "c2ln"}
CALL = {"type": "function_call", "id": "c1", "name": "add", "arguments": {"a": 1}}
RESULT = {"type": "function_result", "call_id": "c1", "name": "add", "result": "2"}
SAID = {"type": "model_output", "content": [{"type": "text", "text": "Two."}]}
ADD = {"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object", "properties": {"a": {}}}}
TURN = [USER, THOUGHT, CALL, RESULT]


def body(**changes: Any) -> dict[str, Any]:
    made = {"model": "gemini-3.8-flash", "input": [USER], "tools": [ADD], "store": False} | changes
    return {name: value for name, value in made.items() if value is not ...}


def schema(inner: Any) -> list[Any]:
    return [{**ADD, "parameters": inner}]


def deep(levels: int) -> Any:
    node: Any = {"type": "string"}
    for _ in range(levels):
        node = {"type": "object", "properties": {"a": node}}
    return node


def content(**item: Any) -> list[Any]:
    return [{"type": "user_input", "content": [item]}]


BROKEN: list[tuple[str, Any]] = [
    ("IR03", []),
    ("IR05", body(banana=1)),
    ("IR06", body(input=[{**USER, "banana": 1}])),
    ("IR07", body(systemInstruction="x")),
    ("IR08", body(agent="deep-research-preview-04-2026")),
    ("IR08", body(model=...)),
    ("IR10", body(contents=[])),
    ("IR10", body(input=[{"role": "user", "parts": []}])),
    ("IR11", body(input=[])),
    ("IR11", body(input=...)),
    ("IR12", body(input=[USER, {"type": "text", "text": "x"}])),
    ("IR13", body(input=[{"type": "banana"}])),
    ("IR14", body(input=content(type="banana"))),
    ("IR15", body(input=content(type="text", text=7))),
    ("IR16", body(input=content(type="image", mime_type="image/png"))),
    ("IR16", body(input=content(type="image", mime_type="image/png", data="***"))),
    ("IR17", body(input=[USER, THOUGHT, {**CALL, "arguments": "x"}, RESULT])),
    ("IR18", body(input=[USER, THOUGHT, {**CALL, "call_id": "c1"}, RESULT])),
    ("IR19", body(input=[USER, THOUGHT, CALL, {"type": "function_result", "name": "add", "result": "2"}])),
    ("IR20", body(input=[USER, THOUGHT, CALL, {**RESULT, "id": "c1"}])),
    ("IR21", body(input=[USER, THOUGHT, CALL, {**RESULT, "name": ""}])),
    ("IR22", body(input=[USER, THOUGHT, CALL, {**RESULT, "result": 2}])),
    ("IR22", body(input=[USER, THOUGHT, CALL, {**RESULT, "result": [1, 2]}])),
    ("IR23", body(model="gemini-2.5-flash", input=[
        USER, CALL, {**RESULT, "result": [{"type": "image", "mime_type": "image/png", "data": "aGk="}]}])),
    ("IR24", body(input=[USER, RESULT])),
    ("IR25", body(input=[USER, THOUGHT, CALL])),
    ("IR25", body(input=[USER, THOUGHT, CALL, USER])),
    ("IR26", body(input=[USER, THOUGHT, CALL, {**RESULT, "call_id": "other"}])),
    ("IR27", body(input=[USER, THOUGHT, CALL, {**RESULT, "name": "sub"}])),
    ("IR28", body(model="gemini-2.5-flash", input=[USER, CALL, CALL, RESULT])),
    ("IR29", body(model="gemini-2.5-flash", input=[USER, CALL, {**CALL, "id": "c2"}, RESULT, SAID])),
    ("IR30", body(input=[USER, CALL, RESULT])),
    ("IR31", body(input=[USER, {"type": "thought", "signature": ""}, CALL, RESULT])),
    ("IR32", body(input=[USER, {"type": "thought", "signature": "b3RoZXI="}, CALL, RESULT])),
    ("IR33", body(input=[USER, THOUGHT, {**CALL, "arguments": {"a": 2}}, RESULT])),
    ("IR35", body(model="gemini-2.5-flash", input=[USER, {"type": "google_search_call", "id": "g", "arguments": {}}, SAID])),
    ("IR36", body(input=[USER, {"type": "thought", "signature": "skip_thought_signature_validator"}])),
    ("IR37", body(generation_config={"thinking_budget": 5})),
    ("IR38", body(generation_config={"thinking_level": "none"})),
    ("IR39", body(generation_config={"thinking_level": "minimal"})),
    ("IR40", body(generation_config={"temperature": "hot"})),
    ("IR41", body(generation_config={"max_output_tokens": 0})),
    ("IR42", body(tool_choice="auto")),
    ("IR43", body(generation_config={"tool_choice": "required"})),
    ("IR44", body(tools=..., generation_config={"tool_choice": "any"})),
    ("IR45", body(generation_config={"tool_choice": {"allowed_tools": {"mode": "any", "tools": ["sub"]}}})),
    ("IR46", body(tools=[{"type": "banana"}])),
    ("IR47", body(tools=[{"function_declarations": []}])),
    ("IR48", body(tools=[{**ADD, "name": "1 add"}])),
    ("IR49", body(tools=[ADD, ADD])),
    ("IR50", body(tools=schema({"type": "OBJECT"}))),
    ("IR50", body(tools=schema({"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}}))),
    ("IR51", body(tools=schema({"type": "object", "properties": {"a": {}}, "required": []}))),
    ("IR52", body(tools=schema(deep(60)))),
    ("IR53", body(tools=[{"type": "mcp_server", "name": "my-server", "url": "https://x.test"}])),
    ("IR54", body(tool_config={})),
    ("IR55", body(background=True)),
    ("IR56", body(previous_interaction_id="v1_done")),
    ("IR57", body(store=True, previous_interaction_id="v1_gone")),
    ("IR57", body(store=True, previous_interaction_id="v1_theirs")),
    ("IR57", body(store=True, previous_interaction_id="v1_old")),
    ("IR59", body(store=True, previous_interaction_id="v1_busy")),
    ("IR60", body(store=True, previous_interaction_id="v1_calls")),
    ("IR40", body(generation_config={"stop_sequences": "END"})),
    ("IR63", body(system_instruction=["x"])),
    ("IR64", body(labels={})),
    ("IR65", body(response_format={"type": "banana"})),
    ("IR65", body(response_format={"type": "text", "schema": {}})),
    ("IR66", body(model=..., tools=..., agent="deep-research-preview-04-2026")),
    ("IR67", body(model=..., agent="deep-research-preview-04-2026", background=True, store=True)),
    ("IR67", body(model=..., agent="antigravity-preview-09-2026", tools=...)),
    ("IR68", body(continuation_token="unknown")),
    ("IR74", body(safety_settings=[{"category": "HARASSMENT", "threshold": "OFF"}])),
    ("IR75", body(service_tier="fast")),
    ("IR76", body(input=content(type="image", mime_type="image/png", data="aGk=", resolution="huge"))),
]  # fmt: skip

RIGHT: list[Any] = [
    body(), body(input="Hi."), body(input={"type": "text", "text": "Hi."}), body(input=TURN),
    body(input=[USER, {"type": "thought", "signature": "context_engineering_is_the_way_to_go"}, CALL, RESULT, SAID, USER]),
    body(store=True, previous_interaction_id="v1_calls", input=[RESULT]),
    body(store=True, background=True), body(generation_config={"tool_choice": "any", "thinking_level": "low"}),
]  # fmt: skip


@pytest.fixture
def judge() -> Callable[[Any], Any]:
    state = InteractionState(kept_s=100.0)
    state.remember([THOUGHT, CALL])

    def stored(
        id: str, status: str = "completed", *, key: str = "k", at: float = 950.0, steps: Any = (USER, SAID)
    ) -> Stored:
        return Stored(id=id, key=key, steps=list(steps), output=[], status=status, at=at)

    for each in (
        stored("v1_done"), stored("v1_theirs", key="other"), stored("v1_old", at=800.0),
        stored("v1_busy", "in_progress"), stored("v1_calls", "requires_action", steps=(USER, THOUGHT, CALL)),
    ):  # fmt: skip
        state.stored[each.id] = each
    return lambda request: interaction_judge(request, state, key="k", now=1_000.0)


@pytest.mark.parametrize(("rule", "request_"), BROKEN, ids=[f"{rule}-{place}" for place, (rule, _) in enumerate(BROKEN)])
def test_a_request_that_breaks_a_rule_is_refused_by_it(judge: Callable[[Any], Any], rule: str, request_: Any) -> None:
    refusal = judge(request_)
    assert refusal is not None
    assert refusal.rule == rule


@pytest.mark.parametrize("request_", RIGHT)
def test_a_right_request_breaks_none(judge: Callable[[Any], Any], request_: Any) -> None:
    assert judge(request_) is None
