"""The rules of OpenAI's chat completions, as far as a client can break them.

Takes the body of a request; returns the first breach, in OpenAI's words, or None. Sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from callgate.testing.google_fields import as_list, as_object
from callgate.types import JsonObject

__all__ = ["ChatRefusal", "chat_judge", "tool_breaches"]

TOOLS_MAX = 128
ID_CHARS_MAX = 40
STOPS_MAX = 4
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_REASONING_MODEL = re.compile(r"o\d|gpt-5")
_AT_ROOT = ("oneOf", "anyOf", "allOf", "enum", "not")
_FIELDS = frozenset([
    "messages", "model", "audio", "frequency_penalty", "function_call", "functions", "logit_bias", "logprobs",
    "max_completion_tokens", "max_tokens", "metadata", "modalities", "moderation", "n", "parallel_tool_calls", "prediction",
    "presence_penalty", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning_effort",
    "response_format", "safety_identifier", "seed", "service_tier", "stop", "store", "stream", "stream_options",
    "temperature", "tool_choice", "tools", "top_logprobs", "top_p", "user", "verbosity", "web_search_options",
])  # fmt: skip
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_BLOCKS = {
    "user": ("text", "image_url", "input_audio", "file"),
    "assistant": ("text", "refusal"),
    "system": ("text",),
    "developer": ("text",),
    "tool": ("text",),
}
_BOUNDS = {"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRefusal:
    """A request that OpenAI would refuse, and its error."""

    message: str
    """The message of the error."""
    status: int = 400
    """The HTTP status."""
    type: str = "invalid_request_error"
    """The type of the error."""
    param: str | None = None
    """The field that is to blame, if it is one."""
    code: str | None = None
    """The machine-readable code, if there is one."""

    @property
    def body(self) -> JsonObject:
        """The error in OpenAI's form."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def chat_judge(body: Any) -> ChatRefusal | None:
    """The first rule that the body of a request breaks."""
    if not isinstance(body, dict):
        return ChatRefusal(message="We could not parse the JSON body of your request.")
    request = as_object(body)
    for rule in (_fields, _messages, _tools, _tool_choice, _options):
        for breach in rule(request):
            return breach
    return None


def _fields(request: JsonObject) -> Iterator[ChatRefusal]:
    for name in request:
        if name not in _FIELDS:
            yield ChatRefusal(message=f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
    if not isinstance(request.get("model"), str) or not request["model"]:
        yield ChatRefusal(message="you must provide a model parameter")
    if not isinstance(request.get("messages"), list):
        yield ChatRefusal(
            message="Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter"
        )
    elif not request["messages"]:
        told = "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
        yield ChatRefusal(message=told, param="messages", code="empty_array")


def _messages(request: JsonObject) -> Iterator[ChatRefusal]:
    waiting: list[str] = []
    asked_at = 0
    for place, message in enumerate(as_list(request.get("messages"))):
        at = f"messages[{place}]"
        found = as_object(message)
        role = found.get("role")
        if role not in _ROLES:
            told = f"Invalid value: '{role}'. Supported values are: {', '.join(map(repr, _ROLES))}."
            yield ChatRefusal(message=told, param=f"{at}.role", code="invalid_value")
            return
        if role == "tool":
            yield from _result(found, waiting, at)
        elif waiting:
            yield _unanswered(waiting, asked_at)
        yield from _content(found, str(role), at)
        if role == "assistant":
            asked_at = place
            yield from _calls(found, at)
            waiting = [str(as_object(call).get("id")) for call in as_list(found.get("tool_calls"))]
    if waiting:
        yield _unanswered(waiting, asked_at)


def _result(message: JsonObject, waiting: list[str], at: str) -> Iterator[ChatRefusal]:
    call_id = message.get("tool_call_id")
    if not isinstance(call_id, str):
        told = f"Missing parameter 'tool_call_id': messages with role 'tool' must have a 'tool_call_id' ({at})."
        yield ChatRefusal(message=told, param=f"{at}.tool_call_id")
    elif call_id in waiting:
        waiting.remove(call_id)
    elif not waiting:
        told = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
        yield ChatRefusal(message=told, param=f"{at}.role")
    else:
        told = f"Invalid parameter: 'tool_call_id' of '{call_id}' not found in 'tool_calls' of previous message."
        yield ChatRefusal(message=told, param=f"{at}.tool_call_id")


def _unanswered(waiting: list[str], place: int) -> ChatRefusal:
    told = (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
        f"The following tool_call_ids did not have response messages: {', '.join(waiting)}"
    )
    return ChatRefusal(message=told, param=f"messages.[{place + 1}].role")


def _content(message: JsonObject, role: str, at: str) -> Iterator[ChatRefusal]:
    content = message.get("content")
    if content is None:
        if role != "assistant" or not as_list(message.get("tool_calls")):
            told = f"Invalid value for 'content': expected a string, got null ({at})."
            yield ChatRefusal(message=told, param=f"{at}.content")
        return
    if isinstance(content, str):
        return
    blocks = as_list(content)
    if not blocks:
        yield ChatRefusal(message=f"Invalid type for '{at}.content'.", param=f"{at}.content", code="invalid_type")
    for block in blocks:
        kind = as_object(block).get("type")
        if kind not in _BLOCKS.get(role, ()) or not as_object(block).get(str(kind)):
            told = f"Invalid value: '{kind}'. Supported values are: {', '.join(map(repr, _BLOCKS.get(role, ())))}."
            yield ChatRefusal(message=told, param=f"{at}.content", code="invalid_value")


def _calls(message: JsonObject, at: str) -> Iterator[ChatRefusal]:
    if "tool_calls" in message and not as_list(message["tool_calls"]):
        told = f"Invalid '{at}.tool_calls': empty array. Expected an array with minimum length 1."
        yield ChatRefusal(message=told, param=f"{at}.tool_calls", code="empty_array")
    seen: set[Any] = set()
    for place, call in enumerate(map(as_object, as_list(message.get("tool_calls")))):
        where = f"{at}.tool_calls[{place}]"
        call_id, function = call.get("id"), as_object(call.get("function"))
        if not isinstance(call_id, str) or not call_id:
            yield ChatRefusal(message=f"Missing required parameter: '{where}.id'.", param=f"{where}.id")
        elif len(call_id) > ID_CHARS_MAX:
            told = (
                f"Invalid '{where}.id': string too long. Expected a string with maximum length {ID_CHARS_MAX}, but got a "
                f"string with length {len(call_id)} instead."
            )
            yield ChatRefusal(message=told, param=f"{where}.id", code="string_above_max_length")
        elif call_id in seen:
            yield ChatRefusal(message=f"Duplicate value for 'tool_call_id' of '{call_id}' in message.", param=f"{where}.id")
        seen.add(call_id)
        if call.get("type") != "function":
            yield ChatRefusal(message=f"Missing required parameter: '{where}.type'.", param=f"{where}.type")
        yield from _name(function.get("name"), f"{where}.function.name")
        if not isinstance(function.get("arguments"), str):
            told = f"Invalid type for '{where}.function.arguments': expected a string."
            yield ChatRefusal(message=told, param=f"{where}.function.arguments", code="invalid_type")


def _name(name: Any, at: str) -> Iterator[ChatRefusal]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        told = f"Invalid '{at}': string does not match pattern. Expected a string that matches '^[a-zA-Z0-9_-]+$'."
        yield ChatRefusal(message=told, param=at, code="invalid_value")


def _tools(request: JsonObject) -> Iterator[ChatRefusal]:
    if "tools" not in request:
        return
    tools = as_list(request["tools"])
    if not tools:
        yield ChatRefusal(message="Invalid 'tools': empty array.", param="tools", code="empty_array")
    yield from tool_breaches(tools)


def tool_breaches(tools: list[Any]) -> Iterator[ChatRefusal]:
    """The rules that tools break, each as a request for a chat completion lists it."""
    if len(tools) > TOOLS_MAX:
        told = (
            f"Invalid 'tools': array too long. Expected an array with maximum length {TOOLS_MAX}, but got an array with "
            f"length {len(tools)} instead."
        )
        yield ChatRefusal(message=told, param="tools", code="array_above_max_length")
    for place, tool in enumerate(map(as_object, tools)):
        at = f"tools[{place}]"
        if tool.get("type") != "function":
            yield ChatRefusal(message=f"Invalid value for '{at}.type'.", param=f"{at}.type", code="invalid_value")
            return
        function = as_object(tool.get("function"))
        yield from _name(function.get("name"), f"{at}.function.name")
        if "parameters" in function:
            yield from _parameters(function["parameters"], str(function.get("name")), f"{at}.function.parameters")


def _parameters(schema: Any, name: str, at: str) -> Iterator[ChatRefusal]:
    kind = as_object(schema).get("type")
    bad = [key for key in _AT_ROOT if key in as_object(schema)]
    if kind == "object" and not bad:
        return
    why = (
        "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
        if kind == "object"
        else f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{kind}\"'."
    )
    yield ChatRefusal(
        message=f"Invalid schema for function '{name}': {why}", param=at, code="invalid_function_parameters"
    )  # fmt: skip


def _tool_choice(request: JsonObject) -> Iterator[ChatRefusal]:
    names = [as_object(as_object(tool).get("function")).get("name") for tool in as_list(request.get("tools"))]
    if "parallel_tool_calls" in request and not names:
        told = "Invalid value for 'parallel_tool_calls': 'parallel_tool_calls' is only allowed when 'tools' are specified."
        yield ChatRefusal(message=told, param="parallel_tool_calls")
    if "tool_choice" not in request:
        return
    choice = request["tool_choice"]
    if not names:
        told = "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified."
        yield ChatRefusal(message=told, param="tool_choice")
    elif isinstance(choice, str):
        if choice not in ("none", "auto", "required"):
            told = f"Invalid value: '{choice}'. Supported values are: 'none', 'auto', and 'required'."
            yield ChatRefusal(message=told, param="tool_choice", code="invalid_value")
    elif as_object(as_object(choice).get("function")).get("name") not in names:
        told = "Invalid value for 'tool_choice': the function was not found in the 'tools' parameter."
        yield ChatRefusal(message=told, param="tool_choice")


def _options(request: JsonObject) -> Iterator[ChatRefusal]:
    if "stream_options" in request and request.get("stream") is not True:
        told = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield ChatRefusal(message=told, param="stream_options")
    if "max_tokens" in request and _REASONING_MODEL.match(str(request.get("model"))):
        told = "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
        yield ChatRefusal(message=told, param="max_tokens", code="unsupported_parameter")
    for name, (low, high) in _BOUNDS.items():
        value = request.get(name, low)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            yield ChatRefusal(message=f"Invalid value for '{name}': it is not between {low} and {high}.", param=name)
    if len(as_list(request.get("stop"))) > STOPS_MAX:
        told = f"Invalid 'stop': array too long. Expected an array with maximum length {STOPS_MAX}."
        yield ChatRefusal(message=told, param="stop", code="array_above_max_length")
