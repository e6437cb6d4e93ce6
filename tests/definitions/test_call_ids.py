"""Results find their calls: by id, else by name; first in, first out, in the newest exchange that has any."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import convert

NAMED = ["gemini", "anthropic", "openai", "bedrock", "amazon_q"]


def _call(name: str, call_id: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


def _result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def _answers(history: list[dict[str, Any]], target: str) -> list[tuple[str, str]]:
    """The name of each call with the text of its result, as a history for Gemini says it by order and id."""
    through = convert(history, source="openai", target=target, kind="history").value
    contents = convert(through, source=target, target="gemini", kind="history").value
    parts = [part for content in contents for part in content["parts"]]
    responses = [part["functionResponse"] for part in parts if "functionResponse" in part]
    return [(response["name"], response["response"]["result"]) for response in responses]


@pytest.mark.parametrize("target", NAMED)
def test_parallel_calls_with_one_id_get_their_results_in_order(target: str) -> None:
    history = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [_call(f"f{place}", "x") for place in range(3)]},
        *(_result("x", f"result of f{place}") for place in range(3)),
    ]
    assert _answers(history, target) == [(f"f{place}", f"result of f{place}") for place in range(3)]


@pytest.mark.parametrize("target", NAMED)
def test_ids_that_are_counted_from_zero_in_every_turn_mean_the_newest_turn(target: str) -> None:
    history = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [_call("never_answered", "0")]},
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": None, "tool_calls": [_call("a", "0"), _call("b", "0")]},
        _result("0", "of a"),
        _result("0", "of b"),
    ]
    assert _answers(history, target) == [("a", "of a"), ("b", "of b")]


def test_a_result_without_an_id_goes_to_the_newest_exchange_too() -> None:
    def call(n: int) -> dict[str, Any]:
        return {"functionCall": {"name": "f", "args": {"n": n}}}

    def response(n: int) -> dict[str, Any]:
        return {"functionResponse": {"name": "f", "response": {"result": f"of {n}"}}}

    contents = [
        {"role": "user", "parts": [{"text": "q"}]},
        {"role": "model", "parts": [call(1)]},
        {"role": "user", "parts": [{"text": "never mind"}]},
        {"role": "model", "parts": [call(2), call(3)]},
        {"role": "user", "parts": [response(2), response(3)]},
    ]
    messages = convert(contents, source="gemini", target="openai").value
    calls = {call["id"]: call["function"]["arguments"] for message in messages for call in message.get("tool_calls", ())}
    answered = [(calls[message["tool_call_id"]], message["content"]) for message in messages if message["role"] == "tool"]
    assert answered == [('{"n":2}', "of 2"), ('{"n":3}', "of 3")]
