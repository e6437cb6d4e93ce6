"""Chunks in Gemini's form -> a response of the Responses API, whole or as its events; contents -> items of one.

Chunks of an answer come in; the bytes that clients of OpenAI's Responses API read go out. The whole form is what the events
add up to, so that there is one way to write an item.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from callgate import strict_json
from callgate.content.metadata import MetadataCollector, made_media, server_step, server_steps_of
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
from callgate.metadata import ServerStep
from callgate.server.compat import chat_answer
from callgate.server.compat.annotations import AnswerText, TextBlock, extra_fields
from callgate.server.compat.prompts import APPROVALS, whole
from callgate.server.compat.responses_request import APPROVAL_PREFIX, ToolForms
from callgate.types import CallRecord, Content, JsonObject, Part, Usage

__all__ = ["PREFIX", "ResponseEncoder", "head_of", "input_items", "item_place"]

PREFIX = "resp_"
LABEL = "callgate"
"""The name of the service as a server of tools, where the tool has no other."""
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
_ECHOED: Mapping[str, Any] = {
    "instructions": None, "metadata": {}, "parallel_tool_calls": True, "temperature": None, "tool_choice": "auto",
    "tools": [], "top_p": None, "background": False, "max_output_tokens": None, "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None}, "store": True, "text": {"format": {"type": "text"}},
    "truncation": "disabled", "user": None,
}  # fmt: skip
"""Fields of a request that its response repeats -> what they say if the request does not have them."""
_PIECES = frozenset({"response.output_text.delta", "response.reasoning_summary_text.delta"})
_ERRORS = {"rate_limit_error": "rate_limit_exceeded", "invalid_request_error": "invalid_prompt"}


def head_of(body: JsonObject, model: str, token: str, at_s: float | None = None) -> JsonObject:
    """The fields of a response that are known before its answer."""
    given = {name: usual if body.get(name) is None else body[name] for name, usual in _ECHOED.items()}
    made = {"id": f"{PREFIX}{token}", "object": "response", "created_at": int(time.time() if at_s is None else at_s)}
    return {**made, "model": model, "status": "in_progress", "error": None, "incomplete_details": None, **given}


def item_place(id: str) -> tuple[str, int] | None:
    """The token of the response that an item is of, and its number there; None if the id is no item's."""
    _, _, rest = id.partition("_")
    token, _, number = rest.rpartition("_")
    return (token, int(number)) if token and number.isdecimal() else None


def usage_json(usage: Usage) -> JsonObject:
    """The tokens of a response: those of a chat completion by other names."""
    counted = chat_answer.usage_json(usage)
    return {
        "input_tokens": counted["prompt_tokens"],
        "input_tokens_details": counted["prompt_tokens_details"] | {"cache_write_tokens": 0},  # The SDK's type has it.
        "output_tokens": counted["completion_tokens"],
        "output_tokens_details": counted["completion_tokens_details"],
        "total_tokens": counted["total_tokens"],
    }


class ResponseEncoder:
    """Writer of one response; with `stream` as server-sent events, of which those up to the number `after` are left out."""

    def __init__(self, head: JsonObject, *, stream: bool, forms: ToolForms | None = None, after: int = -1) -> None:
        self.streams = stream
        self.media_type = "text/event-stream" if stream else "application/json"
        self.ping = b": ping\n\n" if stream else b""
        self._head = head
        self._token = str(head["id"]).removeprefix(PREFIX)
        self._forms = forms or ToolForms()
        self._after = after
        self._sequence = -1
        self._output: list[JsonObject] = []
        self._texts = TextBlock()
        """The pieces of the item that is being written; it is the last of the output."""
        self._messages: list[tuple[int, TextBlock]] = []
        """The messages of the output, each with its text."""
        self._said = AnswerText()
        self._steps: list[JsonObject] = []
        self._media: list[JsonObject] = []
        self._is_open = False
        self._chunks: list[JsonObject] = []
        self._native = "STOP"
        self._usage: Usage | None = None
        self._reported = MetadataCollector()
        self._approvals: Sequence[CallRecord] = ()
        self._problem: JsonObject | None = None

    @property
    def sequence(self) -> int:
        """The number of the newest event."""
        return self._sequence

    def begin(self) -> bytes:
        """The events that say that the response is in progress."""
        return self._begin_events()

    def feed(self, item: JsonObject) -> bytes:
        """Encode one chunk."""
        if not self.streams:
            self._chunks.append(item)
            return b""
        return self._begin_events() + self._written(self._chunk(item))

    def end(self) -> bytes:
        """The end of the last item, and of the response."""
        if not self.streams:
            return strict_json.dump(self.response())
        return self._begin_events() + self._written(self._ended())

    def failed(self, problem: JsonObject) -> bytes:
        """A failure in the middle of a stream: the response ends with it."""
        self._problem = problem
        return b"" if self.streams else strict_json.dump(problem)

    def response(self) -> JsonObject:
        """The whole response to the chunks so far.

        Raises:
            ProtocolError: the answer broke off.
        """
        for _ in self._chunk(whole(self._chunks) if len(self._chunks) > 1 else (self._chunks or [{}])[0]):
            pass
        for _ in self._ended():
            pass
        return self._state()

    # Events ---------------------------------------------------------------------------------------------------------------

    def _written(self, events: Iterator[JsonObject]) -> bytes:
        return b"".join(map(self._event, events))

    def _event(self, fields: JsonObject) -> bytes:
        """Number an event. A piece of text counts by its characters, so that no number depends on how the text was cut."""
        before = self._sequence
        self._sequence += len(fields["delta"]) if fields["type"] in _PIECES else 1
        if self._sequence <= self._after:
            return b""
        if fields["type"] in _PIECES and before < self._after:
            fields = {**fields, "delta": fields["delta"][self._after - before :]}
        data = strict_json.dump({**fields, "sequence_number": self._sequence})
        return b"event: %b\ndata: %b\n\n" % (str(fields["type"]).encode(), data)

    def _begin_events(self) -> bytes:
        if self._sequence >= 0:
            return b""
        kinds = ("response.created", "response.in_progress")
        return self._written({"type": kind, "response": {**self._head, "output": []}} for kind in kinds)

    def _chunk(self, chunk: JsonObject) -> Iterator[JsonObject]:
        candidate = candidate_of(chunk)
        self._usage = usage_of(chunk) or self._usage
        self._native = finish_of(candidate)[0] or self._native
        self._approvals = chunk.get(APPROVALS) or self._approvals
        self._reported.feed(candidate)
        self._reported.feed_response({name: value for name, value in chunk.items() if name != APPROVALS})
        content = content_of(chunk)
        self._steps += [plain(step) for step in server_steps_of(content)]
        for part in parts_of(content):
            yield from self._part(part)
            self._said.add(part)

    def _ended(self) -> Iterator[JsonObject]:
        notes = self._annotations()
        yield from self._closed(notes)
        yield from self._annotated(notes)
        for record in self._approvals:
            call = record.call
            args = strict_json.dump(dict(call.args)).decode()
            fields = {"arguments": args, "name": call.name, "server_label": LABEL}
            yield from self._whole_item({"id": f"{APPROVAL_PREFIX}{call.id}", "type": "mcp_approval_request", **fields})
        state = self._state()
        yield {"type": f"response.{state['status'] if state['status'] != 'cancelled' else 'incomplete'}", "response": state}

    def _state(self) -> JsonObject:
        done: JsonObject = {**self._head, "output": self._output, "usage": usage_json(self._usage or Usage())}
        done |= extra_fields(self._reported.raw, self._steps, self._media)
        if self._problem is not None:
            error: JsonObject = self._problem.get("error") or {}
            code = _ERRORS.get(str(error.get("type")), "server_error")
            return done | {"status": "failed", "error": {"code": code, "message": str(error.get("message") or "")}}
        if self._native.lower() == "cancelled":
            return done | {"status": "cancelled"}
        why = _INCOMPLETE.get(chat_answer.finish_reason(self._native, has_calls=False))
        if why is not None and not self._approvals:
            return done | {"status": "incomplete", "incomplete_details": {"reason": why}}
        return done | {"status": "completed", "completed_at": int(time.time())}

    # Items ----------------------------------------------------------------------------------------------------------------

    def _part(self, part: Part) -> Iterator[JsonObject]:
        if is_call(part):
            yield from self._call(part)
        elif isinstance(part.get("text"), str):
            if part["text"]:
                yield from self._text(part["text"], is_thought=is_thought(part))
        elif (step := server_step(part)) is not None:
            yield from self._step(step)
        elif (media := made_media(part)) is not None and media.mime_type.startswith("image/") and media.uri is None:
            fields = {"id": self._id("ig"), "status": "completed", "result": plain(media)["data"]}
            yield from self._whole_item({"type": "image_generation_call", **fields})
        elif (named := media_of(part)) is not None:  # A response has no place for it.
            told = f"(Media of type {named.get('mime_type')} came here, which cannot be shown.)"
            self._media.append(named)
            yield from self._text(told, is_thought=False, is_said=False)

    def _id(self, kind: str) -> str:
        return f"{kind}_{self._token}_{len(self._output)}"

    def _opened(self, item: JsonObject) -> JsonObject:
        self._output.append(item)
        self._texts, self._is_open = TextBlock(), True
        return {"type": "response.output_item.added", "output_index": len(self._output) - 1, "item": item}

    def _done(self, item: JsonObject) -> JsonObject:
        self._output[-1] = item
        self._is_open = False
        return {"type": "response.output_item.done", "output_index": len(self._output) - 1, "item": item}

    def _whole_item(self, item: JsonObject) -> Iterator[JsonObject]:
        yield from self._closed()
        yield self._opened(item)
        yield self._done(item)

    def _of_item(self, kind: str, **fields: Any) -> JsonObject:
        item = self._output[-1]
        return {"type": f"response.{kind}", "item_id": item["id"], "output_index": len(self._output) - 1, **fields}

    def _text(self, text: str, *, is_thought: bool, is_said: bool = True) -> Iterator[JsonObject]:
        kind = "reasoning" if is_thought else "message"
        if not self._is_open or self._output[-1]["type"] != kind:
            yield from self._closed()
            yield from self._thinking() if is_thought else self._speaking()
        self._texts.add(text, self._said.length if is_said and not is_thought else None)
        if is_thought:
            yield self._of_item("reasoning_summary_text.delta", summary_index=0, delta=text)
        else:
            yield self._of_item("output_text.delta", content_index=0, delta=text, logprobs=[])

    def _thinking(self) -> Iterator[JsonObject]:
        yield self._opened({"id": self._id("rs"), "type": "reasoning", "summary": []})
        yield self._of_item("reasoning_summary_part.added", summary_index=0, part={"type": "summary_text", "text": ""})

    def _speaking(self) -> Iterator[JsonObject]:
        item: JsonObject = {"id": self._id("msg"), "type": "message", "status": "in_progress", "role": "assistant"}
        yield self._opened({**item, "content": []})
        self._messages.append((len(self._output) - 1, self._texts))
        yield self._of_item("content_part.added", content_index=0, part=_output_text("", []))

    def _closed(
        self, found: Mapping[int, list[JsonObject]] | None = None, *, signature: str | None = None
    ) -> Iterator[JsonObject]:
        """Close the item that is open. A signature of the call that follows is kept in the thought before it."""
        if not self._is_open:
            return
        item, text = self._output[-1], self._texts.text
        if item["type"] == "reasoning":
            part: JsonObject = {"type": "summary_text", "text": text}
            yield self._of_item("reasoning_summary_text.done", summary_index=0, text=text)
            yield self._of_item("reasoning_summary_part.done", summary_index=0, part=part)
            yield self._done({**item, "summary": [part], **({"encrypted_content": signature} if signature else {})})
        elif item["type"] == "message":
            notes = (found or {}).get(len(self._output) - 1, [])
            for index, note in enumerate(notes):
                place = {"content_index": 0, "annotation_index": index}
                yield self._of_item("output_text.annotation.added", annotation=note, **place)
            yield self._of_item("output_text.done", content_index=0, text=text, logprobs=[])
            yield self._of_item("content_part.done", content_index=0, part=_output_text(text, notes))
            yield self._done({**item, "status": "completed", "content": [_output_text(text, notes)]})
        else:
            yield self._done({**item, "status": "completed"})

    def _annotations(self) -> dict[int, list[JsonObject]]:
        """The sources of the messages, by their place in the output."""
        found: dict[int, list[JsonObject]] = {}
        for citation, source in self._said.notes(self._reported.raw) if self._messages else ():
            if not source.is_link:
                continue
            start, end = citation.start or 0, citation.end or 0
            places = [(index, block.passage(start, end)) for index, block in self._messages]
            index, place = next((one for one in places if one[1] is not None), places[-1])
            first, last = place or (len(self._messages[-1][1].text),) * 2
            note = {"type": "url_citation", "start_index": first, "end_index": last, "url": source.uri}
            found.setdefault(index, []).append({**note, "title": source.title or source.uri})
        return found

    def _annotated(self, found: Mapping[int, list[JsonObject]]) -> Iterator[JsonObject]:
        """Annotate the messages that were over when their sources became known."""
        for index, notes in found.items():
            item = self._output[index]
            [part] = item["content"]
            if part["annotations"]:
                continue
            self._output[index] = {**item, "content": [{**part, "annotations": notes}]}
            place = {"item_id": item["id"], "output_index": index, "content_index": 0}
            for number, note in enumerate(notes):
                kind = "response.output_text.annotation.added"
                yield {"type": kind, **place, "annotation_index": number, "annotation": note}

    def _call(self, part: Part) -> Iterator[JsonObject]:
        signature = signature_of(part)
        if signature and not (self._is_open and self._output[-1]["type"] == "reasoning"):
            yield from self._closed()
            yield from self._whole_item(
                {"id": self._id("rs"), "type": "reasoning", "summary": [], "encrypted_content": signature}
            )
        yield from self._closed(signature=signature)
        item = _call_item(part, self._id, f"{self._token}/{len(self._output)}", self._forms)
        is_custom = item["type"] == "custom_tool_call"
        field, event = ("input", "custom_tool_call_input") if is_custom else ("arguments", "function_call_arguments")
        yield self._opened({**item, field: "", **({} if is_custom else {"status": "in_progress"})})
        yield self._of_item(f"{event}.delta", delta=item[field])
        yield self._of_item(f"{event}.done", **{field: item[field]}, **({} if is_custom else {"name": item["name"]}))
        yield self._done(item)

    def _step(self, step: ServerStep) -> Iterator[JsonObject]:
        """Code that the provider ran; its other steps have no item of their own."""
        kind, event = "code_interpreter_call", "code_interpreter_call_code"
        if step.kind == "code":
            yield from self._closed()
            code = str(step.value.get("code") or "")
            item: JsonObject = {"id": self._id("ci"), "type": kind, "container_id": LABEL, "outputs": None}
            yield self._opened({**item, "code": "", "status": "in_progress"})
            yield self._of_item(f"{kind}.in_progress")
            yield self._of_item(f"{event}.delta", delta=code)
            yield self._of_item(f"{event}.done", code=code)
            yield self._of_item(f"{kind}.interpreting")
            self._output[-1] = {**item, "code": code, "status": "in_progress"}
        elif step.kind == "code_result" and self._is_open and self._output[-1]["type"] == kind:
            logs = {"type": "logs", "logs": str(step.value.get("output") or "")}
            self._output[-1] = {**self._output[-1], "outputs": [logs]}
            yield self._of_item(f"{kind}.completed")
            yield from self._closed()


def _output_text(text: str, notes: Sequence[JsonObject]) -> JsonObject:
    return {"type": "output_text", "text": text, "annotations": [*notes], "logprobs": []}


def _call_item(part: Part, id_of: Callable[[str], str], place: str, forms: ToolForms) -> JsonObject:
    """A call as an item. One without an id gets one by its place, which the way back leaves out again."""
    call: JsonObject = convert(part, source="gemini", target="openai", kind="call").value
    made = f"callgate_{int.from_bytes(hashlib.sha256(place.encode()).digest()[:8]) % 10**15}"
    call_id = call["id"] if call_of(part).get("id") else made
    name, args = call["function"]["name"], call["function"]["arguments"]
    space, own = forms.namespaces.get(name, ("", name))
    head: JsonObject = {"call_id": call_id, "name": own, **({"namespace": space} if space else {})}
    if name in forms.custom:
        read: JsonObject = call_of(part).get("args") or {}
        given: Any = read.get("input")
        return {"id": id_of("ctc"), "type": "custom_tool_call", **head, "input": given if isinstance(given, str) else args}
    return {"id": id_of("fc"), "type": "function_call", **head, "arguments": args, "status": "completed"}


def input_items(contents: Sequence[Content]) -> list[JsonObject]:
    """A conversation as items of an input."""
    messages: Any = convert(list(contents), source="gemini", target="openai", kind="history").value
    items: list[JsonObject] = []
    for index, message in enumerate(messages):
        calls = message.get("tool_calls") or ()
        if message["role"] == "tool":
            output = {"call_id": message["tool_call_id"], "output": message["content"]}
            items.append({"id": f"fco_{index}", "type": "function_call_output", "status": "completed", **output})
        elif message.get("content"):
            said = _blocks(message["content"], is_output=message["role"] == "assistant")
            items.append({"id": f"msg_{index}", "type": "message", "role": message["role"], "content": said})
            items[-1] |= {"status": "completed"}
        items += [
            {"id": f"fc_{index}_{number}", "type": "function_call", "call_id": call["id"], **call["function"]}
            for number, call in enumerate(calls)
        ]
    return items


def _blocks(content: Any, *, is_output: bool) -> list[JsonObject]:
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return [_block(block, is_output=is_output) for block in content]


def _block(block: JsonObject, *, is_output: bool) -> JsonObject:
    kind = block["type"]
    if kind == "text":
        return _output_text(block["text"], []) if is_output else {"type": "input_text", "text": block["text"]}
    if kind == "image_url":
        return {"type": "input_image", "image_url": block["image_url"]["url"], "detail": "auto"}
    return {"type": "input_file", **block["file"]} if kind == "file" else block
