"""Events of the Messages API -> response chunks in Gemini's form.

Events come in as they arrive, whole messages as one; text and thoughts go out at once, calls when the answer has ended and
all of their pieces are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from callgate import strict_json
from callgate.anthropic.messages import redacted_part, signed_part
from callgate.content.build import call_from, say, text_part, thought_part
from callgate.content.call_args import args_from_text
from callgate.content.normalize import is_wire_id
from callgate.types import JsonObject, Part, Usage

__all__ = ["AnswerReader", "says_something", "stop_reason_of"]

# What the model's own last word means. Any other one is kept, and is no success.
_REASONS = {
    "end_turn": "STOP", "tool_use": "STOP", "stop_sequence": "STOP", "max_tokens": "MAX_TOKENS",
    "model_context_window_exceeded": "MAX_TOKENS", "refusal": "SAFETY",
}  # fmt: skip
_SHOWN = ("text", "thinking")


def stop_reason_of(event: Mapping[str, Any]) -> str | None:
    """The server's own word for why the answer ended, if this event has it."""
    holder = event if event.get("type") == "message" else _object(event, "delta")
    reason = holder.get("stop_reason")
    return reason if isinstance(reason, str) and reason else None


def says_something(event: Mapping[str, Any]) -> bool:
    """True if the event holds text. Pieces of calls are nothing yet: nobody sees a call before it is complete."""
    blocks = strict_json.objects_in(event.get("content")) if event.get("type") == "message" else []
    return any(block.get(kind) for block in (*blocks, _object(event, "delta")) for kind in _SHOWN)


@dataclass(slots=True)
class _Block:
    """A block that is still arriving."""

    start: JsonObject
    pieces: list[str] = field(default_factory=list[str])
    """Pieces of the arguments of a call."""
    signature: str = ""


class AnswerReader:
    """A reader that assembles one answer."""

    def __init__(self) -> None:
        self._blocks: dict[Any, _Block] = {}
        self._parts: list[Part] = []
        """The calls, and what must stay in its place between them."""
        self._stop: str | None = None
        self._counts: JsonObject = {}
        self._model: str | None = None

    def feed(self, event: JsonObject) -> Iterator[JsonObject]:
        """Read one event and yield the parts that became known with it."""
        kind = event.get("type")
        message = event if kind == "message" else _object(event, "message")
        model = message.get("model")
        self._model = model if isinstance(model, str) and model else self._model
        for usage in (_object(message, "usage"), _object(event, "usage")):
            self._counts |= {name: count for name, count in usage.items() if count is not None}
        self._stop = stop_reason_of(event) or self._stop
        if kind == "message":
            for index, block in enumerate(strict_json.objects_in(message.get("content"))):
                self._blocks[index] = _Block(block)
                yield from self._started(block)
                yield from self._ended(index)
        elif kind == "content_block_start":
            block = _object(event, "content_block")
            self._blocks[event.get("index")] = _Block(block)
            yield from self._started(block)
        elif kind == "content_block_delta":
            yield from self._more(event.get("index"), _object(event, "delta"))
        elif kind == "content_block_stop":
            yield from self._ended(event.get("index"))

    def close(self) -> Iterator[JsonObject]:
        """Yield the calls and the finish reason."""
        if self._stop is None:
            return  # The collector of the chunks reports that it broke off; no call of it may run.
        reason = _REASONS.get(self._stop.lower(), self._stop.upper())
        yield say(self._parts, finish_reason=reason, usage=self._usage(), model=self._model)

    def _started(self, block: JsonObject) -> Iterator[JsonObject]:
        text, thought = block.get("text"), block.get("thinking")
        if block.get("type") == "text" and isinstance(text, str) and text:
            yield say([text_part(text)])
        elif block.get("type") == "thinking" and isinstance(thought, str) and thought:
            yield say([thought_part(thought)])

    def _more(self, index: Any, delta: JsonObject) -> Iterator[JsonObject]:
        block = self._blocks.setdefault(index, _Block({}))
        kind = delta.get("type")
        text = next((value for key in ("text", "thinking", "partial_json", "signature")
                     if isinstance(value := delta.get(key), str)), "")  # fmt: skip
        if kind == "text_delta" and text:
            yield say([text_part(text)])
        elif kind == "thinking_delta" and text:
            yield say([thought_part(text)])
        elif kind == "input_json_delta":
            block.pieces.append(text)
        elif kind == "signature_delta":
            block.signature += text

    def _ended(self, index: Any) -> Iterator[JsonObject]:
        block = self._blocks.pop(index, None)
        kind = None if block is None else block.start.get("type")
        if block is None:
            return
        if kind == "tool_use":
            self._parts.append(_call(block))
        elif kind == "thinking" and (signature := block.signature or str(block.start.get("signature") or "")):
            yield from self._signed(signed_part(signature))
        elif kind == "redacted_thinking" and isinstance(block.start.get("data"), str):
            yield from self._signed(redacted_part(block.start["data"]))

    def _signed(self, part: Part) -> Iterator[JsonObject]:
        if self._parts:  # Its place among the calls matters when it goes back.
            self._parts.append(part)
        else:
            yield say([part])

    def _usage(self) -> Usage | None:
        written = _count(self._counts, "output_tokens")
        thoughts = min(_count(_object(self._counts, "output_tokens_details"), "thinking_tokens"), written)
        cached = _count(self._counts, "cache_read_input_tokens")
        # Tokens that come from a cache, or go into one, are counted apart from the others.
        read = _count(self._counts, "input_tokens") + _count(self._counts, "cache_creation_input_tokens") + cached
        usage = Usage(
            input_tokens=read,
            cached_tokens=cached,
            output_tokens=written - thoughts,
            thought_tokens=thoughts,
            total_tokens=read + written,
        )
        return usage if usage != Usage() else None


def _call(block: _Block) -> Part:
    start = block.start
    text = "".join(block.pieces)
    # What cannot be read stays text, and is never taken for none.
    args: Any = args_from_text(text) if text.strip() else start.get("input") or {}
    name = start["name"] if isinstance(start.get("name"), str) else ""
    return call_from(name, args, wire_id=start["id"] if is_wire_id(start.get("id")) else None)


def _object(event: Mapping[str, Any], key: str) -> JsonObject:
    found = event.get(key)
    return cast("JsonObject", found) if isinstance(found, dict) else {}


def _count(counts: JsonObject, key: str) -> int:
    value = counts.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
