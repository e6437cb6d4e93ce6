"""Answers of a fake Interactions API: those of the fake Gemini, as steps and events.

Takes an `Answer` (parts, finish reason, cuts); returns the steps of an interaction, and the events that stream them. Knows
nothing of sockets.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from callgate.testing.answers import Answer, Mint
from callgate.testing.examples import example_of
from callgate.testing.google_fields import as_list, as_object
from callgate.testing.interaction_rules import steps_of_input
from callgate.types import JsonObject, Part

__all__ = ["events_of", "example_interaction_call", "interaction_demo", "status_of", "steps_of", "usage_of"]

ARGS_CHARS = 8
_STATUSES = {"STOP": "completed", "MAX_TOKENS": "incomplete", "BUDGET_EXCEEDED": "budget_exceeded"}


def steps_of(given: Answer, mint: Mint) -> list[JsonObject]:
    """The steps of an answer: a signed thought first, as the service writes every turn."""
    texts = [part["text"] for part in given.parts if part.get("thought") and "text" in part]
    signature = "" if given.signed is False else mint.signature()
    first: JsonObject = {"type": "thought", "signature": signature}
    steps = [first | ({"summary": [{"type": "text", "text": text} for text in texts]} if texts else {})]
    for part in given.parts:
        if not part.get("thought"):
            _add(steps, part, given, mint)
    return steps


def _add(steps: list[JsonObject], part: Part, given: Answer, mint: Mint) -> None:
    if "functionCall" in part:
        call = as_object(part["functionCall"])
        made = {} if given.ids is False else {"id": call.get("id") or mint.new_id(8)}
        steps.append({"type": "function_call", **made, "name": call.get("name"), "arguments": call.get("args") or {}})
        return
    blob = as_object(part.get("inlineData"))
    item: JsonObject = {"type": "text", "text": part.get("text", "")}
    if blob:
        kind = str(blob.get("mimeType")).partition("/")[0]
        item = {"type": kind if kind in ("image", "audio", "video") else "document", "mime_type": blob.get("mimeType")}
        item["data"] = blob.get("data")
    if steps[-1]["type"] == "model_output":
        steps[-1]["content"].append(item)
    else:
        steps.append({"type": "model_output", "content": [item]})


def status_of(given: Answer, steps: Sequence[JsonObject], *, stored: bool) -> str:
    """The status of an interaction with this answer."""
    has_calls = any(step.get("type") == "function_call" for step in steps)
    if given.finish_reason == "STOP" and has_calls and stored:
        return "requires_action"  # Without state at the server there is nothing that could wait for it.
    return _STATUSES.get(given.finish_reason or "STOP", "failed")


def usage_of(steps: Sequence[JsonObject], input_tokens: int, given: Answer) -> JsonObject:
    """Token counts in the service's words."""
    thoughts = sum(_tokens(step) for step in steps if step.get("type") == "thought")
    spoken = sum(_tokens(step) for step in steps if step.get("type") != "thought")
    counts = given.counts(prompt=input_tokens, thoughts=thoughts, spoken=spoken)
    return {
        "total_input_tokens": counts.prompt, "total_cached_tokens": counts.cached, "total_output_tokens": counts.spoken,
        "total_thought_tokens": counts.thoughts, "total_tool_use_tokens": 0, "total_tokens": counts.total,
    }  # fmt: skip


def _tokens(step: JsonObject) -> int:
    return -(-len(json.dumps(step, default=str)) // 8)


def events_of(interaction: JsonObject, *, cut: Any = None, numbered: bool = False) -> list[JsonObject]:
    """The events that stream a whole interaction; with `numbered` each has an id by which the stream can be resumed."""
    head = {key: value for key, value in interaction.items() if key not in ("steps", "usage", "errors")}
    made: list[JsonObject] = [
        {"event_type": "interaction.created", "interaction": head | {"status": "in_progress", "id": head.get("id", "")}},
        {"event_type": "interaction.status_update", "interaction_id": head.get("id", ""), "status": "in_progress"},
    ]
    for index, step in enumerate(as_list(interaction.get("steps"))):
        made += _step_events(index, as_object(step), cut)
    end = {key: value for key, value in interaction.items() if key != "steps"}
    made.append({"event_type": "interaction.completed", "interaction": {"id": ""} | end})
    return [event | ({"event_id": f"evt_{place}"} if numbered else {}) for place, event in enumerate(made)]


def _step_events(index: int, step: JsonObject, cut: Any) -> Iterator[JsonObject]:
    kind = step.get("type")
    deltas: list[JsonObject] = []
    begun: JsonObject = {"type": kind}
    if kind == "thought":
        deltas += [{"type": "thought_summary", "content": item} for item in as_list(step.get("summary"))]
        if "signature" in step:
            deltas.append({"type": "thought_signature", "signature": step["signature"]})
    elif kind == "model_output":
        for item in map(as_object, as_list(step.get("content"))):
            if item.get("type") == "text":
                deltas += [{"type": "text", "text": piece} for piece in _pieces(item["text"], cut)]
                if "annotations" in item:
                    deltas.append({"type": "text_annotation_delta", "annotations": item["annotations"]})
            else:
                deltas.append(item)
        begun |= {"error": step["error"]} if "error" in step else {}
    elif kind == "function_call":
        begun = {**step, "arguments": {}}
        text = json.dumps(step.get("arguments"), ensure_ascii=False) if step.get("arguments") else ""
        deltas += [
            {"type": "arguments_delta", "arguments": text[start : start + ARGS_CHARS]}
            for start in range(0, len(text), ARGS_CHARS)
        ]
    else:
        names = ("id", "call_id", "name", "server_name")
        begun |= {name: step[name] for name in names if name in step}
        rest = {name: value for name, value in step.items() if name not in begun}
        deltas += [{"type": kind, **rest}] if rest else []
    yield {"event_type": "step.start", "index": index, "step": begun}
    for delta in deltas:
        yield {"event_type": "step.delta", "index": index, "delta": delta}
    yield {"event_type": "step.stop", "index": index}


def _pieces(text: str, cut: Any) -> Sequence[str]:
    listed = [str(piece) for piece in as_list(cut)]
    if listed and "".join(listed) == text:
        return listed
    size = 12 if not isinstance(cut, int) else max(-(-len(text) // max(cut, 1)), 1)
    return [text[start : start + size] for start in range(0, len(text), size)]


# Requests ----------------------------------------------------------------------------------------------------------------


def example_interaction_call(request: Any) -> tuple[str, JsonObject]:
    """A call of the first function that the request declares; of `get_weather` when it declares none."""
    for tool in map(as_object, as_list(as_object(request).get("tools"))):
        if tool.get("type") == "function":
            schema = tool.get("parameters")
            return str(tool.get("name")), as_object(example_of(schema)) if schema else {}
    return "get_weather", {"city": "Oslo"}


def interaction_demo(request: JsonObject) -> Answer:
    """The model of a server without a script: call the first declared tool, then return its result; else echo the text."""
    steps = steps_of_input(request.get("input"))
    results = [*itertools.takewhile(lambda step: step.get("type") == "function_result", reversed(steps))]
    if results:
        texts = [result if isinstance(result := step.get("result"), str) else json.dumps(result) for step in results]
        return Answer(parts=({"text": "\n".join(reversed(texts))},))
    choice = as_object(request.get("generation_config")).get("tool_choice")
    if any(as_object(tool).get("type") == "function" for tool in as_list(request.get("tools"))) and choice != "none":
        name, args = example_interaction_call(request)
        return Answer(parts=({"functionCall": {"name": name, "args": args}},))
    content = steps[-1].get("content") if steps else None
    said = (
        content if isinstance(content, str) else "".join(str(as_object(item).get("text", "")) for item in as_list(content))
    )
    return Answer(parts=({"text": said or "(nothing was said)"},))
