"""Answers of a fake chat completion server: those of the fake Gemini in the format of the other API.

Takes an `Answer` (parts, finish reason, cuts) and a style; returns one chat completion, or the chunks of a streamed one.
The style is how a server writes, including faulty ones. Knows nothing of sockets.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from callgate.testing.answers import Answer, Chunk, Mint, Ready
from callgate.testing.examples import example_of
from callgate.testing.google_fields import as_list, as_object
from callgate.types import JsonObject, Part

__all__ = ["STYLES", "Style", "chat_chunks", "chat_demo", "chat_example_call", "text_pieces", "tokens_of"]

_CREATED = 1_760_000_000
_REASONS = {"MAX_TOKENS": "length", "SAFETY": "content_filter"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """Style of a server's answers."""

    server: str = "openai"
    fingerprint: str | None = "fp_0123456789"
    headers: tuple[tuple[str, str], ...] = ()
    id_prefix: str = "call_"
    id_chars: int = 24
    ids: bool = True
    """True if calls have ids."""
    index: Literal["counted", "missing", "zero"] = "counted"
    """Numbering of the pieces of calls."""
    object_args: bool = False
    """Arguments as an object instead of as text."""
    empty_args: bool = False
    """Arguments that are none as an empty text instead of as `{}`."""
    args_chars: int | None = 8
    """Into how long pieces arguments are cut; None streams every call whole."""
    name_pieces: int = 1
    """Into how many pieces a name is cut."""
    repeats_name: bool = False
    """True if every piece of a call repeats its whole name."""
    role_alone: bool = True
    """True if a stream begins with a piece that has nothing but the role."""
    empty_choices_first: bool = False
    """True if a stream begins with a chunk without choices."""
    done: bool = True
    """True if a stream ends with `[DONE]`."""
    finish: bool = True
    """True if the answer has a finish reason."""
    reasoning: str = "reasoning_content"
    """The field for thoughts."""
    refuses: bool = False
    """True if text is sent as a refusal."""


STYLES: dict[str, Style] = {
    "openai": Style(headers=(("openai-processing-ms", "12"), ("x-request-id", "req_fake"))),
    "ollama": Style(
        server="ollama", fingerprint="fp_ollama", id_chars=8, args_chars=None, role_alone=False, reasoning="reasoning"
    ),
    "vllm": Style(
        server="vllm", fingerprint=None, id_prefix="chatcmpl-tool-", id_chars=32, headers=(("Server", "uvicorn"),)
    ),
    "llama.cpp": Style(
        server="llama.cpp", fingerprint="b0-unknown", id_prefix="", id_chars=32, headers=(("Server", "llama.cpp"),)
    ),
    "lm studio": Style(server="lm studio", fingerprint="qwen3-8b", id_prefix="", id_chars=9),
    "generic": Style(server="generic", fingerprint=None, ids=False, index="missing", args_chars=None, role_alone=False),
}  # fmt: skip
"""The styles of known servers, as far as observed."""


def chat_chunks(
    given: Answer | Ready, mint: Mint, style: Style, *, model: str, stream: bool, usage: bool, prompt_tokens: int
) -> list[Chunk]:
    """Return the messages of an answer: one for a whole one, several for a streamed one, the last with the usage if
    requested.
    """
    if isinstance(given, Ready):
        return list(given.chunks) if stream else list(given.chunks[:1])
    head: JsonObject = {
        "id": f"chatcmpl-{mint.new_id(24)}",
        "object": "chat.completion.chunk" if stream else "chat.completion",
        "created": _CREATED,
        "model": model,
    }
    head |= {} if style.fingerprint is None else {"system_fingerprint": style.fingerprint}
    calls = list(_calls(given, mint, style))
    reason = _reason(given, calls) if style.finish else None
    counted = _usage(given, prompt_tokens)
    if not stream:
        message = {"role": "assistant"} | _message_fields(given, style) | ({"tool_calls": calls} if calls else {})
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        return [head | {"choices": [choice], "usage": counted}]
    deltas = list(_deltas(given, calls, style))
    if deltas and not style.role_alone:
        deltas[0] = {"role": "assistant"} | deltas[0]
    chunks: list[Chunk] = [head | {"choices": [], "prompt_filter_results": []}] if style.empty_choices_first else []
    chunks += [head | {"choices": [_choice(delta, None)]} for delta in deltas]
    if reason is not None:
        chunks.append(head | {"choices": [_choice({}, reason)]})
    if usage:
        chunks.append(head | {"choices": [], "usage": counted})
    return chunks


def _choice(delta: JsonObject, reason: str | None) -> JsonObject:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}


def _reason(given: Answer, calls: Sequence[JsonObject]) -> str | None:
    if given.finish_reason is None:
        return None
    if given.finish_reason == "STOP":
        return "tool_calls" if calls else "stop"
    return _REASONS.get(given.finish_reason, given.finish_reason.lower())


def _calls(given: Answer, mint: Mint, style: Style) -> Iterator[JsonObject]:
    for inner in (as_object(part["functionCall"]) for part in given.parts if "functionCall" in part):
        args = as_object(inner.get("args"))
        text = "" if style.empty_args and not args else json.dumps(args, ensure_ascii=False)
        call: JsonObject = (
            {"id": f"{style.id_prefix}{mint.new_id(style.id_chars)}"} if style.ids and given.ids is not False else {}
        )
        yield call | {
            "type": "function",
            "function": {"name": inner.get("name"), "arguments": args if style.object_args else text},
        }


def _message_fields(given: Answer, style: Style) -> JsonObject:
    text = "".join(part["text"] for part in given.parts if "text" in part and not part.get("thought"))
    thoughts = "".join(part["text"] for part in given.parts if part.get("thought"))
    said: JsonObject = {"content": None if style.refuses else text or None, "refusal": text if style.refuses else None}
    return said | ({style.reasoning: thoughts} if thoughts else {})


def _deltas(given: Answer, calls: Sequence[JsonObject], style: Style) -> Iterator[JsonObject]:
    if style.role_alone:
        yield {"role": "assistant", "content": "", "refusal": None}
    for part in given.parts:
        field = style.reasoning if part.get("thought") else "refusal" if style.refuses else "content"
        for piece in text_pieces(part, given):
            yield {field: piece}
    for place, call in enumerate(calls):
        number: JsonObject = {} if style.index == "missing" else {"index": 0 if style.index == "zero" else place}
        for piece in _call_pieces(call, style):
            yield {"tool_calls": [number | piece]}


def text_pieces(part: Part, given: Answer) -> Sequence[str]:
    """The pieces in which the text of a part is streamed."""
    text = part.get("text")
    if not isinstance(text, str):
        return []
    if isinstance(given.chunks, Sequence) and "".join(given.chunks) == text:
        return given.chunks
    size = 12 if not isinstance(given.chunks, int) else max(-(-len(text) // max(given.chunks, 1)), 1)
    return [text[start : start + size] for start in range(0, len(text), size)]


def _call_pieces(call: JsonObject, style: Style) -> Iterator[JsonObject]:
    inner = as_object(call["function"])
    name, args = str(inner["name"]), inner["arguments"]
    if style.args_chars is None or not isinstance(args, str):
        yield call
        return
    size = max(-(-len(name) // style.name_pieces), 1)
    names = [name[start : start + size] for start in range(0, len(name), size)]
    yield call | {"function": {"name": names[0], "arguments": ""}}
    for more in names[1:]:
        yield {"function": {"name": more}}
    for start in range(0, len(args), style.args_chars):
        piece: JsonObject = {"arguments": args[start : start + style.args_chars]}
        yield {"function": ({"name": name} if style.repeats_name else {}) | piece}


def _usage(given: Answer, prompt_tokens: int) -> JsonObject:
    thoughts = sum(tokens_of(part) for part in given.parts if part.get("thought"))
    written = sum(tokens_of(part) for part in given.parts) or 1
    counts = given.counts(prompt=prompt_tokens, thoughts=thoughts, spoken=written - thoughts)
    return {
        "prompt_tokens": counts.prompt,
        "completion_tokens": counts.written,
        "total_tokens": counts.total,
        "prompt_tokens_details": {"cached_tokens": counts.cached, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": counts.thoughts},
    }


def tokens_of(part: Part) -> int:
    """About how many tokens a part has."""
    return -(-len(part["text"] if "text" in part else json.dumps(part, default=str)) // 4)


# Requests ----------------------------------------------------------------------------------------------------------------


def chat_example_call(request: Any) -> tuple[str, JsonObject]:
    """A call to the first function that the request declares; to `get_weather` when it declares none."""
    for tool in as_list(as_object(request).get("tools")):
        function = as_object(as_object(tool).get("function"))
        schema = function.get("parameters")
        return str(function.get("name")), as_object(example_of(schema)) if schema else {}
    return "get_weather", {"city": "Oslo"}


def chat_demo(request: JsonObject) -> Answer:
    """The model of a server without a script: call the first declared tool, then return its result; else echo the text."""
    messages = [as_object(message) for message in as_list(request.get("messages"))]
    results = [*itertools.takewhile(lambda message: message.get("role") == "tool", reversed(messages))]
    if results:
        return Answer(parts=({"text": "\n".join(str(message.get("content")) for message in reversed(results))},))
    if as_list(request.get("tools")) and request.get("tool_choice") != "none":
        name, args = chat_example_call(request)
        return Answer(parts=({"functionCall": {"name": name, "args": args}},))
    content = messages[-1].get("content") if messages else None
    blocks = [str(as_object(block).get("text", "")) for block in as_list(content)]
    return Answer(parts=({"text": (content if isinstance(content, str) else "".join(blocks)) or "(nothing was said)"},))
