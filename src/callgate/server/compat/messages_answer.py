"""Chunks in Gemini's form -> a message of Anthropic's Messages API, whole or as its events.

Chunks of an answer come in; the bytes that clients of Anthropic read go out.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator

from callgate import strict_json
from callgate.content.metadata import MetadataCollector, server_steps_of
from callgate.content.read import (
    call_of,
    candidate_of,
    content_of,
    finish_of,
    is_call,
    is_thought,
    media_of,
    parts_of,
    signature_of,
    usage_of,
)
from callgate.definitions import convert
from callgate.events import plain
from callgate.server.compat.annotations import AnswerText, extra_fields
from callgate.server.compat.chat_answer import finish_reason
from callgate.server.compat.prompts import whole
from callgate.server.compat.streaming import WholeAnswer
from callgate.types import JsonObject, Part, Usage

__all__ = ["MessageEvents", "WholeMessage"]

_REASONS = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}


def usage_json(usage: Usage) -> JsonObject:
    """The tokens of an answer; those read from a cache are counted apart."""
    return {
        "input_tokens": max(0, usage.input_tokens + usage.tool_tokens - usage.cached_tokens),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens + usage.thought_tokens,
    }


def _call(part: Part) -> JsonObject:
    written: JsonObject = convert(part, source="gemini", target="anthropic", kind="call").value
    # One without an id gets one that the way back leaves out again.
    return written if call_of(part).get("id") else written | {"id": f"callgate_{uuid.uuid4().int % 10**15}"}


def _block(part: Part) -> JsonObject | None:
    """A part as a block of a message; None if there is nothing to show."""
    if is_call(part):
        return _call(part)
    words = part.get("text")
    if isinstance(words, str):
        if is_thought(part):
            signature = signature_of(part) or ""
            return {"type": "thinking", "thinking": words, "signature": signature} if words or signature else None
        return {"type": "text", "text": words} if words else None
    media = media_of(part)
    if media is not None:  # Their messages have no place for it.
        return {"type": "text", "text": f"(Media of type {media.get('mime_type')} came here, which cannot be shown.)"}
    return None


def _joined_thoughts(blocks: Iterable[tuple[Part, JsonObject]]) -> list[tuple[Part, JsonObject]]:
    """The blocks, with a thought that came in several parts as one; its signature is its end."""
    joined: list[tuple[Part, JsonObject]] = []
    for part, block in blocks:
        last = joined[-1][1] if joined else {}
        if block["type"] == last.get("type") == "thinking" and not last["signature"]:
            joined[-1][1].update(thinking=last["thinking"] + block["thinking"], signature=block["signature"])
        else:
            joined.append((part, block))
    return joined


class _Answer:
    """The data of an answer beside its blocks: sources, steps at the provider, media."""

    def __init__(self) -> None:
        self._said = AnswerText()
        self._reported = MetadataCollector()
        self._steps: list[JsonObject] = []
        self._media: list[JsonObject] = []

    def feed(self, chunk: JsonObject) -> None:
        for part in parts_of(content_of(chunk)):
            self.add(part)
        self.report(chunk)

    def add(self, part: Part) -> None:
        self._said.add(part)
        media = media_of(part)
        self._media += [media] if media is not None and not is_thought(part) else []

    def report(self, chunk: JsonObject) -> None:
        self._reported.feed(candidate_of(chunk))
        self._reported.feed_response(chunk)
        self._steps += [plain(step) for step in server_steps_of(content_of(chunk))]

    @property
    def length(self) -> int:
        return self._said.length

    def citations(self, start: int, end: int | None) -> list[JsonObject]:
        """The sources of the text from here to there as citations; `cited_text` is the passage of the answer."""
        return [
            {
                "type": "web_search_result_location", "cited_text": citation.text, "url": source.uri,
                "title": source.title or source.uri, "encrypted_index": "",
            }
            for citation, source in self._said.notes(self._reported.raw)
            if source.is_link and start <= (citation.start or 0) and (end is None or (citation.start or 0) < end)
        ]  # fmt: skip

    @property
    def extra(self) -> JsonObject:
        return extra_fields(self._reported.raw, self._steps, self._media)


class _Message:
    """Fields that both forms share."""

    def __init__(self, model: str, run: str) -> None:
        self._head: JsonObject = {"id": f"msg_{run}", "type": "message", "role": "assistant", "model": model}

    @staticmethod
    def _ending(native: str, *, has_calls: bool) -> JsonObject:
        return {"stop_reason": _REASONS[finish_reason(native, has_calls=has_calls)], "stop_sequence": None}


class WholeMessage(WholeAnswer, _Message):
    """An answer in one object."""

    def __init__(self, model: str, run: str) -> None:
        WholeAnswer.__init__(self)
        _Message.__init__(self, model, run)

    def end(self) -> bytes:
        """All of it."""
        chunk = whole(self._chunks)
        said = parts_of(content_of(chunk))
        native = finish_of(candidate_of(chunk))[0] or "STOP"
        shown = _joined_thoughts((part, block) for part in said if (block := _block(part)) is not None)
        answer = _Answer()
        answer.feed(chunk)
        texts = [block for part, block in shown if block["type"] == "text" and "text" in part]
        place = 0
        for block in texts:
            end = place + len(block["text"])
            if cited := answer.citations(place, end if block is not texts[-1] else None):
                block["citations"] = cited
            place = end
        ending = self._ending(native, has_calls=any(map(is_call, said)))
        usage = usage_json(usage_of(chunk) or Usage())
        return strict_json.dump(
            {**self._head, "content": [block for _, block in shown], **ending, "usage": usage, **answer.extra}
        )


class MessageEvents(_Message):
    """An answer as server-sent events: the start of the message, its blocks piece by piece, how it ended."""

    media_type = "text/event-stream"
    streams = True
    ping = b'event: ping\ndata: {"type": "ping"}\n\n'

    def __init__(self, model: str, run: str) -> None:
        super().__init__(model, run)
        self._has_begun = self._has_failed = self._has_calls = False
        self._open: str | None = None
        """The type of the block that is being told."""
        self._index = -1
        self._native = "STOP"
        self._usage = Usage()
        self._answer = _Answer()
        self._place = 0
        """Position in the answer at which the current block starts."""

    def feed(self, item: JsonObject) -> bytes:
        """Encode one chunk."""
        candidate = candidate_of(item)
        self._usage = usage_of(item) or self._usage
        self._native = finish_of(candidate)[0] or self._native
        events: list[JsonObject] = []
        for part in parts_of(content_of(item)):
            events += self._part(part)
            self._answer.add(part)
        self._answer.report(item)
        return self.begin() + b"".join(map(_event, events))

    def end(self) -> bytes:
        """The end of the last block, how the message ended, and its tokens."""
        if self._has_failed:
            return b""
        ending = self._ending(self._native, has_calls=self._has_calls)
        # Blocks that are over take no citations any more; the extra field has the sources of all of them.
        found = self._answer.citations(self._place, None) if self._open == "text" else []
        cited = [self._delta({"type": "citations_delta", "citation": one}) for one in found]
        usage = {"usage": usage_json(self._usage)}
        last = [*cited, *self._closed(), {"type": "message_delta", "delta": ending, **usage, **self._answer.extra}]
        return self.begin() + b"".join(map(_event, [*last, {"type": "message_stop"}]))

    def failed(self, problem: JsonObject) -> bytes:
        """An error as an event."""
        self._has_failed = True
        return _event(problem)

    def begin(self) -> bytes:
        """The start of the message, once; tokens that are not known yet come with its end."""
        if self._has_begun:
            return b""
        self._has_begun = True
        usage = usage_json(self._usage) | {"output_tokens": 0}
        started: JsonObject = {**self._head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        return _event({"type": "message_start", "message": started})

    def _part(self, part: Part) -> Iterator[JsonObject]:
        block = _block(part)
        if block is None:
            return
        kind = block["type"]
        if kind == "tool_use":
            self._has_calls = True
            args = strict_json.dump(block["input"]).decode()
            yield from self._opened({**block, "input": {}}, is_new=True)
            yield self._delta({"type": "input_json_delta", "partial_json": args})
            yield from self._closed()
        elif kind == "thinking":
            yield from self._opened({"type": kind, "thinking": "", "signature": ""})
            if block["thinking"]:
                yield self._delta({"type": "thinking_delta", "thinking": block["thinking"]})
            if block["signature"]:
                yield self._delta({"type": "signature_delta", "signature": block["signature"]})
                yield from self._closed()
        else:
            yield from self._opened({"type": kind, "text": ""})
            yield self._delta({"type": "text_delta", "text": block["text"]})

    def _opened(self, block: JsonObject, *, is_new: bool = False) -> Iterator[JsonObject]:
        if self._open == block["type"] and not is_new:
            return
        yield from self._closed()
        self._index += 1
        self._open = block["type"]
        self._place = self._answer.length
        yield {"type": "content_block_start", "index": self._index, "content_block": block}

    def _delta(self, delta: JsonObject) -> JsonObject:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}

    def _closed(self) -> Iterator[JsonObject]:
        if self._open is not None:
            self._open = None
            yield {"type": "content_block_stop", "index": self._index}


def _event(fields: JsonObject) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(fields["type"]).encode(), strict_json.dump(fields))
