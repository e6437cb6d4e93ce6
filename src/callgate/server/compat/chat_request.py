"""The body of a chat completion that somebody sends to us -> what is wanted, in callgate's words.

Messages and tools are read by `callgate.definitions`; this file knows the fields around them. Nothing is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from callgate.content.build import with_names, with_signature
from callgate.content.read import is_call, parts_of
from callgate.definitions import convert, definitions_from
from callgate.errors import UsageError
from callgate.gemini.incoming import read_request
from callgate.server.compat.accepted_parts import (
    PartTable,
    as_is,
    check_ids,
    checked_setting,
    needs,
    reading,
    refuse,
    refuse_left_out,
)
from callgate.server.compat.prompts import CompatRequest
from callgate.strict_json import objects_in
from callgate.types import Content, JsonObject, ToolChoice, ToolDefinition

__all__ = [
    "EXTRA",
    "GOOGLE",
    "NATIVE_MARK",
    "PARTS",
    "SIGNATURE",
    "carried_message",
    "choice_of",
    "compat_request_of",
    "format_settings",
    "history_of",
    "is_silent",
]

# Google's own server of chat completions hands signatures around here, so clients may know the place.
EXTRA, GOOGLE, SIGNATURE = "extra_content", "google", "thought_signature"
NATIVE_MARK = "logit_bias"
"""A setting that only servers of chat completions have."""

_SETTINGS = {
    "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "seed": "seed", "stop": "stop_sequences",
    "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty", "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens", "reasoning_effort": "thinking", "logit_bias": "logit_bias",
    "parallel_tool_calls": "parallel_tool_calls", "user": "user",
}  # fmt: skip
"""Field -> the setting that says the same."""
_READ = ("model", "messages", "tools", "functions", "tool_choice", "function_call", "stream", "stream_options", "n")
_TEXTS = ("text", "input_text")
_FILE = "send the file itself in base64, as file_data, or its address, as file_url"
_IMAGE = "send the image itself as a data URL, or its address, as image_url"
PARTS = PartTable("part", {
    "text": as_is, "input_text": as_is, "output_text": as_is, "refusal": as_is,
    "image_url": needs("url", within="image_url"), "input_image": needs("image_url", instead=_IMAGE),
    "file": needs("file_data", "file_url", within="file", instead=_FILE),
    "input_file": needs("file_data", "file_url", instead=_FILE), "input_audio": needs("data", within="input_audio"),
})  # fmt: skip
"""The parts of messages in both of OpenAI's APIs, and how each is carried."""
_INSTRUCTIONS = PartTable("part of an instruction", {"text": as_is, "input_text": as_is})
_CALLS = PartTable("call", {"function": as_is, "custom": as_is})
_CHOICES = ("auto", "none", "required")
_USUAL: Mapping[str, Any] = {"service_tier": "auto", "logprobs": False, "store": False}
"""Fields that say nothing with these values."""


def compat_request_of(body: JsonObject, *, session: str | None) -> CompatRequest:
    """Read the body of a chat completion request.

    Raises:
        UsageError: a part of it is not what it must be; the message says which.
    """
    if body.get("n") not in (None, 1):
        raise UsageError("n: one answer at a time can be had here")
    messages = [_carried(message, f"messages[{number}]") for number, message in enumerate(body["messages"])]
    _check_results(messages)
    signatures = [_signature(call) for message in messages for call in objects_in(message.get("tool_calls"))]
    contents, system = history_of(messages, signatures)
    definitions = _definitions(body)
    choice, allowed = choice_of(body.get("tool_choice") or body.get("function_call") or "auto")
    if allowed:
        definitions = [definition for definition in definitions if definition.name in allowed]
    settings, native = _settings(body)
    return CompatRequest(
        model=body["model"],
        contents=contents,
        definitions=tuple(definitions),
        tool_choice=choice,
        system=system,
        settings=settings,
        native=native,
        native_mark=NATIVE_MARK,
        stream=bool(body.get("stream")),
        session=session,
        is_silent=is_silent(messages[-1]),
    )


def _carried(message: JsonObject, where: str) -> JsonObject:
    if message.get("audio"):
        refuse(f"{where}.audio", "an answer that was spoken is kept at OpenAI; send its transcript as content")
    check_ids(message, where)
    if message.get("role") == "user" and message.get("content") in (None, []):
        refuse(f"{where}.content", "a message of the user's has a text, or a list of parts")
    _CALLS.carried(message.get("tool_calls"), f"{where}.tool_calls")
    return carried_message(message, where)


def _check_results(messages: Sequence[JsonObject]) -> None:
    """Refuse a result without a call before it, or a second one: a model would not know what to do with it."""
    known = Counter[Any]()
    for number, message in enumerate(messages):
        known.update(call.get("id") for call in objects_in(message.get("tool_calls")))
        id = message.get("tool_call_id")
        if message.get("role") != "tool" or id is None:
            continue
        if known[id] < 1:
            where = f"messages[{number}].tool_call_id"
            refuse(where, "a message with the role 'tool' answers a call in 'tool_calls' of a message before it, each once")
        known[id] -= 1


def carried_message(message: JsonObject, where: str) -> JsonObject:
    """The message with its parts as they are carried; an instruction is made of text."""
    parts = _INSTRUCTIONS if message.get("role") in ("system", "developer") else PARTS
    return {**message, "content": parts.carried(message["content"], f"{where}.content")} if "content" in message else message


def is_silent(newest: JsonObject) -> bool:
    """True if the newest message says nothing to the model that it could answer."""
    if newest.get("role") in ("system", "developer"):
        return True
    content: Any = newest.get("content")
    if newest.get("role") != "user" or isinstance(content, str):
        return newest.get("role") == "user" and not content.strip()
    return all(block.get("type") in _TEXTS and not str(block.get("text") or "").strip() for block in objects_in(content))


def history_of(
    messages: Sequence[JsonObject], signatures: Sequence[str | None], field: str = "messages", *, before: int = 0
) -> tuple[list[Content], str | None]:
    """The contents and the instruction in messages or items of OpenAI; `signatures` are those of their calls, in order.

    `field` names them in refusals; the first `before` of them are not the client's.
    """
    with reading(field, before=before):
        converted = convert(messages, source="openai", target="gemini", kind="history")
    refuse_left_out(converted.losses, field, before=before)
    value: Any = converted.value
    incoming = read_request(cast("JsonObject", value) if isinstance(value, dict) else {"contents": value})
    contents = [with_names(content, converted.names) for content in incoming.contents]
    return _signed(contents, signatures), incoming.system


def _signed(contents: list[Content], signatures: Sequence[str | None]) -> list[Content]:
    """The contents with the signatures that their calls had. Calls stand in the same order in both forms."""
    if not any(signatures):
        return contents
    left = iter(signatures)
    return [
        {
            **content,
            "parts": [with_signature(part, next(left, None)) if is_call(part) else part for part in parts_of(content)],
        }
        for content in contents
    ]


def _signature(call: JsonObject) -> str | None:
    value: Any = call
    for key in (EXTRA, GOOGLE, SIGNATURE):
        value = cast("JsonObject", value).get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) and value else None


def _definitions(body: JsonObject) -> list[ToolDefinition]:
    declared: list[Any] = [*(body.get("tools") or []), *(body.get("functions") or [])]
    with reading("tools" if body.get("tools") else "functions"):
        return definitions_from(declared, "openai") if declared else []


def choice_of(given: Any) -> tuple[ToolChoice, list[str]]:
    """The choice, and the only tools that it leaves, if it names several."""
    if isinstance(given, str):
        if given not in _CHOICES:
            raise UsageError(f"tool_choice: {given!r} is none of {', '.join(_CHOICES)}, and no object that names a function")
        return given, []
    choice = cast("JsonObject", given)
    if choice.get("type") == "allowed_tools":
        inner = cast("JsonObject", choice.get("allowed_tools") or choice)
        mode = str(inner.get("mode") or "auto")
        return (mode if mode in _CHOICES else "auto"), [_name_in(tool) for tool in objects_in(inner.get("tools"))]
    return _name_in(choice), []


def _name_in(choice: JsonObject) -> str:
    inner: Any = choice.get("function") or choice
    name: Any = cast("JsonObject", inner).get("name") if isinstance(inner, dict) else None
    if not isinstance(name, str) or not name:
        raise UsageError("tool_choice: it names no function")
    return name


def _settings(body: JsonObject) -> tuple[JsonObject, JsonObject]:
    """The words that a request says as settings, and the fields that there is no word for."""
    settings: JsonObject = {}
    native: JsonObject = {}
    for field, value in body.items():
        if value is None or field in _READ or _USUAL.get(field) == value:
            continue
        if field == "response_format":
            settings |= format_settings(value, "response_format")
        elif field in _SETTINGS:
            settings[_SETTINGS[field]] = checked_setting(field, _SETTINGS[field], value)
        else:
            native[field] = value
    if isinstance(settings.get("stop_sequences"), str):
        settings["stop_sequences"] = [settings["stop_sequences"]]
    return settings, native


def format_settings(value: Any, field: str) -> JsonObject:
    """The settings for the format of an answer. The schema stands in an object of its own, or beside the type."""
    form = cast("JsonObject", value) if isinstance(value, dict) else {}
    kind = form.get("type")
    if kind == "text":
        return {}
    if kind == "json_object":
        return {"response_mime_type": "application/json"}
    inner: Any = form.get("json_schema", form) if kind == "json_schema" else None
    if not isinstance(inner, dict):
        raise UsageError(f"{field}: its type is 'text', 'json_object', or 'json_schema' with a schema")
    schema: Any = cast("JsonObject", inner).get("schema") or {}
    return {"response_mime_type": "application/json", "response_json_schema": schema}
