"""Chunks in Gemini's form -> a chat completion, whole or in pieces.

Chunks of an answer come in; the bytes that clients of chat completions read go out.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence

from callgate import strict_json
from callgate.content.build import text_part
from callgate.content.metadata import MetadataCollector, server_steps_of
from callgate.content.read import (
    call_of,
    candidate_of,
    content_of,
    finish_of,
    is_call,
    is_thought,
    parts_of,
    signature_of,
    text_of,
    usage_of,
)
from callgate.definitions import convert
from callgate.events import plain
from callgate.server.compat.annotations import logprobs_of, media_fields, message_fields, metadata_fields, other_media
from callgate.server.compat.chat_request import EXTRA, GOOGLE, SIGNATURE
from callgate.server.compat.prompts import whole
from callgate.server.compat.streaming import WholeAnswer
from callgate.types import JsonObject, Part, Usage

__all__ = ["Pieces", "WholeCompletion", "finish_reason"]

DONE = b"data: [DONE]\n\n"
_REASONS = {
    "STOP": "stop", "SAFETY": "content_filter", "RECITATION": "content_filter", "BLOCKLIST": "content_filter",
    "PROHIBITED_CONTENT": "content_filter", "SPII": "content_filter", "IMAGE_SAFETY": "content_filter",
}  # fmt: skip


def finish_reason(native: str, *, has_calls: bool) -> str:
    """The word for how an answer ended. What is no success and no filter was cut off, which is what `length` says."""
    return "tool_calls" if has_calls and native == "STOP" else _REASONS.get(native, "length")


def usage_json(usage: Usage) -> JsonObject:
    """The tokens of an answer."""
    prompt, answered = usage.input_tokens + usage.tool_tokens, usage.output_tokens + usage.thought_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answered,
        "total_tokens": usage.total_tokens or prompt + answered,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.thought_tokens},
    }


def call_json(part: Part) -> JsonObject:
    """A call as a message of the assistant has it. One without an id gets one that the way back leaves out again."""
    written: JsonObject = convert(part, source="gemini", target="openai", kind="call").value
    if not call_of(part).get("id"):
        written["id"] = f"callgate_{uuid.uuid4().int % 10**15}"
    signature = signature_of(part)
    return written | ({EXTRA: {GOOGLE: {SIGNATURE: signature}}} if signature else {})


class _Completion:
    """Fields that both forms share."""

    def __init__(self, kind: str, model: str, run: str, *, functions: bool) -> None:
        self._functions = functions
        """True if calls are told in the old form, which has a place for one."""
        self._head: JsonObject = {
            "id": f"chatcmpl-{run}", "object": kind, "created": int(time.time()), "model": model,
        }  # fmt: skip

    def _reason(self, native: str, *, has_calls: bool) -> str:
        reason = finish_reason(native, has_calls=has_calls)
        return "function_call" if self._functions and reason == "tool_calls" else reason

    def _calls(self, calls: Sequence[JsonObject]) -> JsonObject:
        """The field of a message, or of a piece of it, that holds calls."""
        if not calls:
            return {}
        return {"function_call": calls[0]["function"]} if self._functions else {"tool_calls": [*calls]}


class WholeCompletion(WholeAnswer, _Completion):
    """An answer in one object."""

    def __init__(self, model: str, run: str, *, functions: bool = False) -> None:
        WholeAnswer.__init__(self)
        _Completion.__init__(self, "chat.completion", model, run, functions=functions)

    def end(self) -> bytes:
        """All of it."""
        chunk = whole(self._chunks)
        candidate = candidate_of(chunk)
        content = content_of(chunk)
        calls = [call_json(part) for part in parts_of(content) if is_call(part)]
        said, thoughts = text_of(content), text_of(content, thoughts=True)
        message: JsonObject = {"role": "assistant", "content": said or (None if calls else ""), "refusal": None}
        message |= {"reasoning_content": thoughts} if thoughts else {}
        message |= self._calls(calls)
        reported = MetadataCollector()
        reported.feed(candidate)
        reported.feed_response(chunk)
        message |= message_fields(content, reported.raw)
        native = finish_of(candidate)[0] or "STOP"
        choice = {
            "index": 0, "message": message, "logprobs": logprobs_of(reported.raw),
            "finish_reason": self._reason(native, has_calls=bool(calls)), "native_finish_reason": native,
        }  # fmt: skip
        usage = usage_json(usage_of(chunk) or Usage())
        return strict_json.dump({**self._head, "choices": [choice], "usage": usage})


class Pieces(_Completion):
    """An answer as server-sent events, with `[DONE]` at the end."""

    media_type = "text/event-stream"
    streams = True
    ping = b": ping\n\n"

    def __init__(self, model: str, run: str, *, counts: bool, functions: bool = False) -> None:
        super().__init__("chat.completion.chunk", model, run, functions=functions)
        self._counts = counts
        self._has_begun = False
        self._has_failed = False
        self._count = 0
        self._native = "STOP"
        self._usage: Usage | None = None
        self._texts: list[str] = []
        self._steps: list[JsonObject] = []
        self._media: list[JsonObject] = []
        self._reported = MetadataCollector()

    def feed(self, item: JsonObject) -> bytes:
        """Encode one chunk."""
        candidate = candidate_of(item)
        self._usage = usage_of(item) or self._usage
        self._native = finish_of(candidate)[0] or self._native
        self._reported.feed(candidate)
        self._reported.feed_response(item)
        content = content_of(item)
        self._steps += [plain(step) for step in server_steps_of(content)]
        said = parts_of(content)
        return b"".join(self._piece(delta) for part in said for delta in self._deltas(part))

    def end(self) -> bytes:
        """Write the finish reason, the tokens if they were requested, and the last line."""
        if self._has_failed:
            return DONE
        reason = self._reason(self._native, has_calls=self._count > 0)
        said: list[Part] = [text_part("".join(self._texts))] if self._texts else []
        about = metadata_fields(said, self._reported.raw, self._steps, self._media)
        last = self._piece(about) if about else b""
        likely = logprobs_of(self._reported.raw)
        last += self._piece({}, finish_reason=reason, native_finish_reason=self._native, logprobs=likely)
        if self._counts:
            last += self._event({"choices": [], "usage": usage_json(self._usage or Usage())})
        return last + DONE

    def failed(self, problem: JsonObject) -> bytes:
        """An error as an event."""
        self._has_failed = True
        return b"data: %b\n\n" % strict_json.dump(problem)

    def _deltas(self, part: Part) -> Iterator[JsonObject]:
        if is_call(part):
            if not (self._functions and self._count):
                yield self._calls([{"index": self._count, **call_json(part)}])
            self._count += 1
        elif isinstance(part.get("text"), str) and part["text"]:
            if not is_thought(part):
                self._texts.append(part["text"])
            yield {"reasoning_content" if is_thought(part) else "content": part["text"]}
        elif fields := media_fields(part):
            yield fields
        elif named := other_media(part):
            self._media.append(named)

    def _piece(self, delta: JsonObject, **ends: str | JsonObject | None) -> bytes:
        if not self._has_begun:
            self._has_begun = True
            delta = {"role": "assistant", "content": "", **delta}
        choice: JsonObject = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        # Where tokens are asked for, every event has the field, and only the last one says something in it.
        return self._event({"choices": [{**choice, **ends}]} | ({"usage": None} if self._counts else {}))

    def _event(self, fields: JsonObject) -> bytes:
        return b"data: %b\n\n" % strict_json.dump({**self._head, **fields})
