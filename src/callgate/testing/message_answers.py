"""Answers of a fake Messages server: those of the fake Gemini in the format of the other API.

Takes an `Answer` (parts, finish reason, cuts); returns one message, or the events of a streamed one. Knows nothing of
sockets.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from callgate.testing.answers import Answer, Chunk, Mint, Ready
from callgate.testing.chat_answers import text_pieces, tokens_of
from callgate.testing.examples import example_of
from callgate.testing.google_fields import as_list, as_object
from callgate.types import JsonObject

__all__ = ["message_chunks", "message_demo", "message_example_call"]

_REASONS = {"MAX_TOKENS": "max_tokens", "SAFETY": "refusal"}
_ARGS_CHARS = 8
_EMPTY: dict[str, JsonObject] = {
    "text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}},
}  # fmt: skip
"""The type of a block -> the fields that are empty when it starts."""


def message_chunks(given: Answer | Ready, mint: Mint, *, model: str, stream: bool, input_tokens: int) -> list[Chunk]:
    """Return the messages of an answer: one for a whole one, its events for a streamed one."""
    if isinstance(given, Ready):
        return list(given.chunks) if stream else list(given.chunks[:1])
    blocks = [*_blocks(given, mint)]
    ending = {"stop_reason": _reason(given, blocks), "stop_sequence": None}
    thoughts = sum(tokens_of(part) for part in given.parts if part.get("thought"))
    written = sum(map(tokens_of, given.parts)) or 1
    counts = given.counts(prompt=input_tokens, thoughts=thoughts, spoken=written - thoughts)
    # Here the tokens out of a cache are not counted among the input's.
    usage: JsonObject = {
        "input_tokens": counts.prompt - counts.cached, "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": counts.cached, "output_tokens": counts.written,
        "output_tokens_details": {"thinking_tokens": counts.thoughts},
    }  # fmt: skip
    head: JsonObject = {"id": f"msg_{mint.new_id(24)}", "type": "message", "role": "assistant", "model": model}
    if not stream:
        return [{**head, "content": blocks, **ending, "usage": usage}]
    started: JsonObject = {
        **head,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage | {"output_tokens": 1},
    }
    events: list[Chunk] = [{"type": "message_start", "message": started}, {"type": "ping"}]
    for index, block in enumerate(blocks):
        events += [{**event, "index": index} for event in _events(block, given)]
    if ending["stop_reason"] is not None:
        events.append({"type": "message_delta", "delta": ending, "usage": usage})
        events.append({"type": "message_stop"})
    return events


def _reason(given: Answer, blocks: Sequence[JsonObject]) -> str | None:
    if given.finish_reason is None:
        return None
    if given.finish_reason == "STOP":
        return "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    return _REASONS.get(given.finish_reason, given.finish_reason.lower())


def _blocks(given: Answer, mint: Mint) -> Iterator[JsonObject]:
    for part in given.parts:
        if "functionCall" in part:
            inner = as_object(part["functionCall"])
            yield {
                "type": "tool_use", "id": f"toolu_{mint.new_id(24)}", "name": inner.get("name"),
                "input": as_object(inner.get("args")),
            }  # fmt: skip
        elif part.get("thought") and not part.get("text"):
            yield {"type": "redacted_thinking", "data": mint.signature()}
        elif part.get("thought"):
            yield {"type": "thinking", "thinking": part["text"], "signature": mint.signature()}
        elif "text" in part:
            yield {"type": "text", "text": part["text"]}


def _events(block: JsonObject, given: Answer) -> Iterator[JsonObject]:
    kind = block["type"]
    empty = _EMPTY.get(kind, {})
    yield {"type": "content_block_start", "content_block": block | empty}
    if kind == "tool_use":
        args = json.dumps(block["input"], ensure_ascii=False)
        pieces = ["", *(args[start : start + _ARGS_CHARS] for start in range(0, len(args), _ARGS_CHARS))]
        deltas: list[JsonObject] = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    elif kind in ("text", "thinking"):
        deltas = [{"type": f"{kind}_delta", kind: piece} for piece in text_pieces({"text": block[kind]}, given)]
        if kind == "thinking":
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
    else:
        deltas = []
    for delta in deltas:
        yield {"type": "content_block_delta", "delta": delta}
    yield {"type": "content_block_stop"}


# Requests ----------------------------------------------------------------------------------------------------------------


def message_example_call(request: Any) -> tuple[str, JsonObject]:
    """A call to the first function that the request declares; to `get_weather` when it declares none."""
    for tool in map(as_object, as_list(as_object(request).get("tools"))):
        schema = tool.get("input_schema")
        return str(tool.get("name")), as_object(example_of(schema)) if schema else {}
    return "get_weather", {"city": "Oslo"}


def message_demo(request: JsonObject) -> Answer:
    """The model of a server without a script: call the first declared tool, then return its result; else echo the text."""
    newest = as_object([{}, *as_list(request.get("messages"))][-1])
    content = newest.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [*map(as_object, as_list(content))]
    results = [str(block.get("content")) for block in blocks if block.get("type") == "tool_result"]
    if results:
        return Answer(parts=({"text": "\n".join(results)},))
    if as_list(request.get("tools")) and as_object(request.get("tool_choice")).get("type") != "none":
        name, args = message_example_call(request)
        return Answer(parts=({"functionCall": {"name": name, "args": args}},))
    said = "".join(str(block.get("text", "")) for block in blocks)
    return Answer(parts=({"text": said or "(nothing was said)"},))
