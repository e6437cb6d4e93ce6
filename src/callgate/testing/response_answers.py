"""Answers of a fake Responses server: those of the fake Gemini in the format of the other API.

Takes an `Answer` (parts, finish reason, cuts); returns one response, or the events of a streamed one. Knows nothing of
sockets.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from callgate.testing.answers import Answer, Chunk, Mint, Ready
from callgate.testing.chat_answers import text_pieces, tokens_of
from callgate.testing.examples import example_of
from callgate.testing.google_fields import as_list, as_object
from callgate.types import JsonObject

__all__ = ["response_chunks", "response_demo", "response_example_call"]

_CREATED = 1_760_000_000
_REASONS = {"MAX_TOKENS": "max_output_tokens", "SAFETY": "content_filter"}
_ARGS_CHARS = 8
_EMPTY: dict[str, JsonObject] = {
    "message": {"content": [], "status": "in_progress"},
    "function_call": {"arguments": "", "status": "in_progress"},
    "reasoning": {"summary": []},
}
"""The type of an item -> the fields that are empty when it is added."""


def response_chunks(
    given: Answer | Ready, mint: Mint, *, model: str, stream: bool, input_tokens: int, encrypts: bool
) -> list[Chunk]:
    """Return the messages of an answer: one for a whole one, its events for a streamed one.

    `encrypts` says whether reasoning comes with what only the server can read, as it was asked for.
    """
    if isinstance(given, Ready):
        return list(given.chunks) if stream else list(given.chunks[:1])
    head: JsonObject = {
        "id": f"resp_{mint.new_id(24)}", "object": "response", "created_at": _CREATED, "model": model, "error": None,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "instructions": None, "metadata": {},
        "incomplete_details": None, "temperature": 1.0, "top_p": 1.0,
    }  # fmt: skip
    items = [*_items(given, mint, encrypts=encrypts)]
    last = head | _ending(given) | {"output": items, "usage": _usage(given, input_tokens)}
    if not stream:
        return [last]
    begun: JsonObject = head | {"status": "in_progress", "output": [], "usage": None}
    events: list[JsonObject] = [{"type": f"response.{kind}", "response": begun} for kind in ("created", "in_progress")]
    for index, item in enumerate(items):
        events += [{**event, "output_index": index} for event in _events(item, given)]
    if given.finish_reason is not None:
        events.append({"type": f"response.{last['status']}", "response": last})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def _ending(given: Answer) -> JsonObject:
    if given.finish_reason in ("STOP", None):
        return {"status": "completed"}
    reason = str(given.finish_reason)
    return {"status": "incomplete", "incomplete_details": {"reason": _REASONS.get(reason, reason.lower())}}


def _items(given: Answer, mint: Mint, *, encrypts: bool) -> Iterator[JsonObject]:
    for part in given.parts:
        if "functionCall" in part:
            inner = as_object(part["functionCall"])
            args = json.dumps(as_object(inner.get("args")), ensure_ascii=False)
            yield {
                "type": "function_call", "id": f"fc_{mint.new_id(24)}", "call_id": f"call_{mint.new_id(24)}",
                "name": inner.get("name"), "arguments": args, "status": "completed",
            }  # fmt: skip
        elif part.get("thought"):
            summary = [{"type": "summary_text", "text": part["text"]}] if part.get("text") else []
            sealed = {"encrypted_content": mint.signature()} if encrypts else {}
            yield {"type": "reasoning", "id": f"rs_{mint.new_id(24)}", "summary": summary, **sealed}
        elif "text" in part:
            block: JsonObject = {"type": "output_text", "text": part["text"], "annotations": [], "logprobs": []}
            yield {
                "type": "message", "id": f"msg_{mint.new_id(24)}", "role": "assistant", "status": "completed",
                "content": [block],
            }  # fmt: skip


def _events(item: JsonObject, given: Answer) -> Iterator[JsonObject]:
    empty = _EMPTY[item["type"]]
    at: JsonObject = {"item_id": item["id"]}
    yield {"type": "response.output_item.added", "item": item | empty}
    if item["type"] == "function_call":
        args = item["arguments"]
        for start in range(0, len(args), _ARGS_CHARS):
            yield {"type": "response.function_call_arguments.delta", **at, "delta": args[start : start + _ARGS_CHARS]}
        yield {"type": "response.function_call_arguments.done", **at, "name": item["name"], "arguments": args}
    elif item["type"] == "message":
        yield from _text_events(item["content"][0], at | {"content_index": 0}, given)
    else:
        for number, block in enumerate(item["summary"]):
            yield from _summary_events(block, at | {"summary_index": number}, given)
    yield {"type": "response.output_item.done", "item": item}


def _text_events(block: JsonObject, at: JsonObject, given: Answer) -> Iterator[JsonObject]:
    yield {"type": "response.content_part.added", **at, "part": block | {"text": ""}}
    for piece in text_pieces(block, given):
        yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": block["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": block}


def _summary_events(block: JsonObject, at: JsonObject, given: Answer) -> Iterator[JsonObject]:
    yield {"type": "response.reasoning_summary_part.added", **at, "part": block | {"text": ""}}
    for piece in text_pieces(block, given):
        yield {"type": "response.reasoning_summary_text.delta", **at, "delta": piece}
    yield {"type": "response.reasoning_summary_text.done", **at, "text": block["text"]}
    yield {"type": "response.reasoning_summary_part.done", **at, "part": block}


def _usage(given: Answer, input_tokens: int) -> JsonObject:
    thoughts = sum(tokens_of(part) for part in given.parts if part.get("thought"))
    written = sum(map(tokens_of, given.parts)) or 1
    counts = given.counts(prompt=input_tokens, thoughts=thoughts, spoken=written - thoughts)
    return {
        "input_tokens": counts.prompt, "input_tokens_details": {"cached_tokens": counts.cached, "cache_write_tokens": 0},
        "output_tokens": counts.written, "output_tokens_details": {"reasoning_tokens": counts.thoughts},
        "total_tokens": counts.total,
    }  # fmt: skip


# Requests ----------------------------------------------------------------------------------------------------------------


def response_example_call(request: Any) -> tuple[str, JsonObject]:
    """A call to the first function that the request declares; to `get_weather` when it declares none."""
    for tool in map(as_object, as_list(as_object(request).get("tools"))):
        schema = tool.get("parameters")
        return str(tool.get("name")), as_object(example_of(schema)) if schema else {}
    return "get_weather", {"city": "Oslo"}


def response_demo(request: JsonObject) -> Answer:
    """The model of a server without a script: call the first declared tool, then return its result; else echo the text."""
    given = request.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else [*map(as_object, as_list(given))]
    newest = [*itertools.takewhile(lambda item: item.get("type") == "function_call_output", reversed(items))]
    if newest:
        return Answer(parts=({"text": "\n".join(str(item.get("output")) for item in reversed(newest))},))
    if as_list(request.get("tools")) and request.get("tool_choice") != "none":
        name, args = response_example_call(request)
        return Answer(parts=({"functionCall": {"name": name, "args": args}},))
    content = items[-1].get("content") if items else None
    blocks = [str(as_object(block).get("text", "")) for block in as_list(content)]
    return Answer(parts=({"text": (content if isinstance(content, str) else "".join(blocks)) or "(nothing was said)"},))
