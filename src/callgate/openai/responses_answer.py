"""Events of the Responses API -> response chunks in Gemini's form.

Events come in as they arrive, whole responses as one; text and reasoning go out at once, calls when the answer has ended and
all of their pieces are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from callgate import strict_json
from callgate.content.build import call_from, say, text_part, thought_part
from callgate.content.call_args import args_from_text
from callgate.content.normalize import is_wire_id
from callgate.openai.responses_input import reasoning_part
from callgate.types import JsonObject, Part, Usage

__all__ = ["ResponseEventReader", "response_ended", "response_error_in", "response_says_something"]

_TEXTS = {
    "response.output_text.delta": "text", "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "thought", "response.reasoning_text.delta": "thought",
}  # fmt: skip
_ENDS = ("response.completed", "response.incomplete")
_REASONS = {"max_output_tokens": "MAX_TOKENS", "content_filter": "SAFETY"}
"""Reason of an incomplete response -> the finish reason. Any other one is kept, and is no success."""


def response_error_in(chunk: Mapping[str, Any]) -> JsonObject | None:
    """The error object of a response that failed, or of an event that says so."""
    if chunk.get("type") == "error" and "message" in chunk:
        return dict(chunk)
    response = _response_of(chunk)
    if response.get("status") in ("failed", "cancelled"):
        return _object(response, "error") or {"message": f"the response is {response['status']}"}
    return None


def response_says_something(chunk: Mapping[str, Any]) -> bool:
    """True if the event holds text. Pieces of calls are nothing yet: nobody sees a call before it is complete."""
    if chunk.get("type") in _TEXTS:
        return bool(chunk.get("delta"))
    items = strict_json.objects_in(chunk.get("output")) if chunk.get("object") == "response" else []
    return any(text for item in items for _, text in _texts_of(item))


def response_ended(chunk: Mapping[str, Any]) -> bool:
    """True for the last event of a response, and for a whole one."""
    is_whole = chunk.get("object") == "response" and chunk.get("status") in ("completed", "incomplete")
    return is_whole or chunk.get("type") in _ENDS


class ResponseEventReader:
    """A reader that assembles one answer."""

    def __init__(self) -> None:
        self._streamed: set[Any] = set()
        """The items whose text has come in pieces."""
        self._parts: list[Part] = []
        """The calls, and what must stay in its place between them."""
        self._refusal: list[str] = []
        self._response: JsonObject | None = None

    def feed(self, event: JsonObject) -> Iterator[JsonObject]:
        """Read one event and yield the parts that became known with it."""
        kind = event.get("type")
        text = event.get("delta")
        if kind in _TEXTS and isinstance(text, str) and text:
            self._streamed.add(event.get("output_index"))
            yield self._shown(_TEXTS[str(kind)], text)
        elif kind == "response.reasoning_summary_part.added" and event.get("summary_index"):
            yield say([thought_part("\n\n")])
        elif kind == "response.output_item.done":
            yield from self._item(_object(event, "item"), has_text=event.get("output_index") not in self._streamed)
        elif response_ended(event):
            self._response = _response_of(event)
            if event.get("object") == "response":
                for item in strict_json.objects_in(event.get("output")):
                    yield from self._item(item, has_text=True)

    def close(self) -> Iterator[JsonObject]:
        """Yield the calls and the finish reason."""
        if self._response is None:
            return  # The collector of the chunks reports that it broke off; no call of it may run.
        why = _object(self._response, "incomplete_details").get("reason")
        reason = "STOP"
        if self._response.get("status") == "incomplete":
            reason = _REASONS.get(str(why), str(why or "incomplete").upper())
        message = "".join(self._refusal)
        if message:
            reason = "SAFETY" if reason == "STOP" else reason
        model = self._response.get("model")
        yield say(
            self._parts,
            finish_reason=reason,
            finish_message=message,
            usage=_usage_of(self._response),
            model=model if isinstance(model, str) else None,
        )

    def _shown(self, kind: str, text: str) -> JsonObject:
        if kind == "refusal":
            self._refusal.append(text)
        return say([thought_part(text) if kind == "thought" else text_part(text)])

    def _item(self, item: JsonObject, *, has_text: bool) -> Iterator[JsonObject]:
        """One item that is complete; its text is shown only if it has not come in pieces."""
        if has_text:
            for kind, text in _texts_of(item):
                yield self._shown(kind, text)
        if item.get("type") == "function_call":
            self._parts.append(_call(item))
        elif item.get("type") == "reasoning" and isinstance(item.get("encrypted_content"), str):
            signed = reasoning_part(str(item.get("id") or ""), item["encrypted_content"])
            if self._parts:  # Its place among the calls matters when it goes back.
                self._parts.append(signed)
            else:
                yield say([signed])


def _call(item: JsonObject) -> Part:
    args: Any = item.get("arguments")
    name = item["name"] if isinstance(item.get("name"), str) else ""
    call_id = item.get("call_id")
    # What cannot be read stays text, and is never taken for none.
    return call_from(
        name, args_from_text(args) if isinstance(args, str) else args, wire_id=call_id if is_wire_id(call_id) else None
    )


def _texts_of(item: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts of an item, each with its kind."""
    if item.get("type") == "message":
        for block in strict_json.objects_in(item.get("content")):
            for key, kind in (("text", "text"), ("refusal", "refusal")):
                if isinstance(block.get(key), str) and block[key]:
                    yield kind, block[key]
    elif item.get("type") == "reasoning":
        blocks = strict_json.objects_in(item.get("summary")) or strict_json.objects_in(item.get("content"))
        texts = [block["text"] for block in blocks if isinstance(block.get("text"), str) and block["text"]]
        if texts:
            yield "thought", "\n\n".join(texts)


def _usage_of(response: JsonObject) -> Usage | None:
    counts = _object(response, "usage")
    read, written = _count(counts, "input_tokens"), _count(counts, "output_tokens")
    # Tokens of thoughts are among those of the answer.
    thoughts = min(_count(_object(counts, "output_tokens_details"), "reasoning_tokens"), written)
    usage = Usage(
        input_tokens=read,
        cached_tokens=_count(_object(counts, "input_tokens_details"), "cached_tokens"),
        output_tokens=written - thoughts,
        thought_tokens=thoughts,
        total_tokens=_count(counts, "total_tokens") or read + written,
    )
    return usage if usage != Usage() else None


def _response_of(chunk: Mapping[str, Any]) -> JsonObject:
    return cast("JsonObject", chunk) if chunk.get("object") == "response" else _object(chunk, "response")


def _object(holder: Mapping[str, Any], key: str) -> JsonObject:
    found = holder.get(key)
    return cast("JsonObject", found) if isinstance(found, dict) else {}


def _count(counts: JsonObject, key: str) -> int:
    value = counts.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
