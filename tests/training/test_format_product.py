"""The text that the product shows its embedded model is the text that the model was trained on, letter for letter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from callgate import FunctionCall, ToolDefinition
from callgate.content.build import call_part, model_content, response_part
from callgate.content.prompt import user_content
from callgate.embedded import prompt
from training import format as taught

DATA = Path(__file__).resolve().parents[2] / "benchmarks" / "data"


def tool_lists() -> dict[str, list[dict[str, Any]]]:
    """The lists of tools of both sets of prompts, and one of everything that a list can show."""
    found: dict[str, list[dict[str, Any]]] = {}
    for file in ("tool_prompts.json", "new_prompts.json"):
        data = json.loads((DATA / file).read_text("utf-8"))
        for name, tools in (data.get("lists") or {"six": data["tools"]}).items():
            found[f"{file}:{name}"] = tools
    everything = {
        "kind": {"type": "string", "enum": ["a", "b"], "description": "Which.", "default": "a"},
        "tags": {"type": "array", "items": {"type": "string"}, "description": "Names; the default is none."},
        "place": {
            "type": "object",
            "description": "Where.",
            "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
        },
        "count": {"type": "integer", "default": 3},
        "note": {"type": "string"},
    }
    found["everything"] = [
        {
            "name": "all_of_it",
            "description": "Shows it all.",
            "parameters": {"properties": everything, "required": ["kind"]},
        },
        {"name": "bare", "description": "Takes nothing.", "parameters": {"properties": {}, "required": []}},
    ]
    return found


LISTS = tool_lists()


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("extra", ["", "Answer in English."])
def test_the_system_turn_is_the_one_of_the_training(name, extra) -> None:
    tools = LISTS[name]
    own = [
        ToolDefinition(name=t["name"], description=t["description"], input_schema={"type": "object", **t["parameters"]})
        for t in tools
    ]
    shown = prompt.turn_text("system", prompt.system_text(own, extra=extra))
    assert shown == taught.turn("system", taught.system_text(tools, extra=extra))


def test_no_tools_are_the_rules_alone_in_both() -> None:
    assert prompt.system_text([]) == taught.system_text([]) == taught.SYSTEM


def test_calls_and_results_are_the_lines_of_the_training() -> None:
    calls = [FunctionCall(name="f", args={"a": "é ü", "b": [1, 2.5, None, True]}), FunctionCall(name="g", args={})]
    results: list[tuple[str, Any]] = [("f", {"found": ["x"], "n": 1}), ("g", {"error": "There is no g."})]
    contents = [
        user_content("Do it."),
        model_content([call_part(call) for call in calls]),
        {"role": "user", "parts": [
            response_part(calls[0], {"result": results[0][1]}), response_part(calls[1], results[1][1]),
        ]},
    ]  # fmt: skip
    assert prompt.turns_of(contents, result_chars_max=1_000) == [
        taught.turn("user", "Do it."),
        taught.turn("assistant", taught.calls_text([(call.name, dict(call.args)) for call in calls])),
        taught.turn("user", taught.results_text(results)),
    ]


def test_the_marks_and_limits_are_the_same() -> None:
    assert (prompt.SYSTEM, prompt.CALL, prompt.RESULT, prompt.OPEN, prompt.STOP) == (
        taught.SYSTEM, taught.CALL_MARK, taught.RESULT_MARK, taught.OPEN_REPLY, taught.END,
    )  # fmt: skip
