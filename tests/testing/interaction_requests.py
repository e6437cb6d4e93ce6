"""Requests for an interaction that break one rule each, and requests that break none."""

from __future__ import annotations

from typing import Any

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
    ("IR06", body(tools=[{**ADD, "strict": True}])),
    ("IR06", body(response_format={"type": "text", "banana": 1})),
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
    ("IR35", body(model="gemini-2.5-flash", input=[USER, {
        "type": "url_context_call", "id": "u", "arguments": {"urls": []}, "signature": "b3du"}, SAID])),
    ("IR35", body(model="gemini-2.5-flash", input=[USER, {
        "type": "url_context_call", "id": "u", "arguments": {"urls": []}, "signature": "b3du"}, {
        "type": "url_context_result", "call_id": "u", "result": [], "signature": "b3du"}, SAID])),
    ("IR36", body(input=[USER, THOUGHT, USER], model="gemini-2.5-flash")),
    ("IR36", body(input=[USER, {"type": "thought", "signature": "skip_thought_signature_validator"}])),
    ("IR37", body(generation_config={"thinking_budget": 5})),
    ("IR38", body(generation_config={"thinking_level": "none"})),
    ("IR39", body(generation_config={"thinking_level": "minimal"})),
    ("IR39", body(model="gemini-2.5-flash-lite", generation_config={"thinking_level": "low"})),
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
    ("IR49", body(tools=[{**ADD, "name": "click_at"}, {"type": "computer_use", "environment": "browser"}])),
    ("IR50", body(tools=schema({"type": "OBJECT"}))),
    ("IR50", body(tools=schema({"type": "object", "properties": {"a": {"$ref": "#/$defs/x"}}}))),
    ("IR51", body(tools=schema({"type": "object", "properties": {"a": {}}, "required": []}))),
    ("IR51", body(tools=schema({"type": "object", "required": ["a"]}))),
    ("IR52", body(tools=schema(deep(60)))),
    ("IR52", body(tools=schema({"type": "object", "properties": {"a": {"description": "x" * 500_000}}}))),
    ("IR53", body(tools=[{"type": "mcp_server", "name": "server", "url": "http://x.test"}])),
    ("IR53", body(tools=[{"type": "mcp_server", "name": "server", "url": "https://x.test", "headers": {"a": 1}}])),
    ("IR53", body(tools=[{"type": "mcp_server", "name": "my-server", "url": "https://x.test"}])),
    ("IR54", body(tool_config={})),
    ("IR55", body(background=True)),
    ("IR56", body(previous_interaction_id="v1_done")),
    ("IR57", body(store=True, previous_interaction_id="v1_gone")),
    ("IR58", body(store=True, previous_interaction_id="v1_theirs")),
    ("IR57", body(store=True, previous_interaction_id="v1_old")),
    ("IR59", body(store=True, previous_interaction_id="v1_busy")),
    ("IR60", body(store=True, previous_interaction_id="v1_calls")),
    ("IR40", body(generation_config={"stop_sequences": "END"})),
    ("IR63", body(system_instruction=["x"])),
    ("IR64", body(labels={})),
    ("IR65", body(response_format={"type": "banana"})),
    ("IR65", body(response_format={"type": "text", "schema": {}})),
    ("IR65", body(response_format={"type": "text"}, response_mime_type="text/plain")),
    ("IR66", body(
        model=..., tools=..., agent="antigravity-preview-05-2026", background=True, store=True, environment="remote")),
    ("IR66", body(model=..., tools=..., agent="deep-research-preview-04-2026")),
    ("IR67", body(model=..., agent="deep-research-preview-04-2026", background=True, store=True)),
    ("IR67", body(model=..., agent="antigravity-preview-09-2026", tools=...)),
    ("IR68", body(continuation_token="unknown")),
    ("IR74", body(safety_settings=[{"category": "HARASSMENT", "threshold": "OFF"}])),
    ("IR75", body(service_tier="fast")),
    ("IR76", body(tools=[{"type": "computer_use", "environment": "ENVIRONMENT_BROWSER"}])),
    ("IR76", body(tools=[{"type": "google_search", "search_types": {"web_search": {}}}])),
    ("IR76", body(input=content(type="image", mime_type="image/x-banana", data="aGk="))),
    ("IR76", body(input=content(type="document", mime_type="application/zip", data="aGk="))),
    ("IR76", body(model="gemini-2.5-flash", input=[USER, {
        "type": "code_execution_call", "id": "x", "arguments": {"code": "1", "language": "cobol"}, "signature": "b3du"}])),
    ("IR76", body(input=content(type="image", mime_type="image/png", data="aGk=", resolution="huge"))),
]  # fmt: skip

RIGHT: list[Any] = [
    body(), body(input="Hi."), body(input={"type": "text", "text": "Hi."}), body(input=TURN),
    body(input=[USER, {"type": "thought", "signature": "context_engineering_is_the_way_to_go"}, CALL, RESULT, SAID, USER]),
    body(input=[USER, {**CALL, "signature": "context_engineering_is_the_way_to_go"}, RESULT]),
    body(store=True, previous_interaction_id="v1_calls", input=[RESULT]),
    body(store=True, background=True), body(generation_config={"tool_choice": "any", "thinking_level": "low"}),
]  # fmt: skip
