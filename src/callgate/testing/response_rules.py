"""The rules of OpenAI's Responses API, as far as a client can break them.

Takes the body of a request; returns the first breach, in OpenAI's words, or None. Sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from callgate.testing.chat_rules import ChatRefusal, tool_breaches
from callgate.testing.google_fields import as_list, as_object
from callgate.types import JsonObject

__all__ = ["response_judge"]

_FIELDS = frozenset({
    "background", "context_management", "conversation", "include", "input", "instructions", "max_output_tokens",
    "max_tool_calls", "metadata", "model", "moderation", "parallel_tool_calls", "previous_response_id", "prompt",
    "prompt_cache_key", "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "stream",
    "stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user",
})  # fmt: skip
_ROLES = ("user", "assistant", "system", "developer")
_BLOCKS: Mapping[str, Collection[str]] = {
    "user": ("input_text", "input_image", "input_file"),
    "assistant": ("output_text", "refusal"),
    "system": ("input_text",),
    "developer": ("input_text",),
}
_ITEM_FIELDS: Mapping[str, Collection[str]] = {
    "message": ("role", "content", "id", "status", "phase"),
    "function_call": ("call_id", "name", "arguments", "id", "status"),
    "function_call_output": ("call_id", "output", "id", "status"),
    "reasoning": ("id", "summary", "encrypted_content", "content", "status"),
}
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_REASONING_MODEL = re.compile(r"o\d|gpt-[5-9]")
CALL_ID_CHARS_MAX = 64
TOKENS_MIN = 16


def response_judge(body: Any, *, signatures: Collection[str] = ()) -> ChatRefusal | None:
    """The first rule that the body of a request breaks.

    `signatures` are the encrypted reasoning that the server has given out: no other is genuine.
    """
    if not isinstance(body, dict):
        return ChatRefusal(message="We could not parse the JSON body of your request.")
    request = as_object(body)
    for breach in _breaches(request, signatures):
        return breach
    return None


def _breaches(request: JsonObject, signatures: Collection[str]) -> Iterator[ChatRefusal]:
    for name in request:
        if name not in _FIELDS:
            yield ChatRefusal(message=f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
    if not isinstance(request.get("model"), str) or not request["model"]:
        yield ChatRefusal(message="Missing required parameter: 'model'.", param="model", code="missing_required_parameter")
    if not request.get("input") and not request.get("previous_response_id"):
        told = "Missing required parameter: 'input'."
        yield ChatRefusal(message=told, param="input", code="missing_required_parameter")
    yield from _items(as_list(request.get("input")), signatures)
    yield from _tools(request)
    yield from _options(request)


def _items(items: list[Any], signatures: Collection[str]) -> Iterator[ChatRefusal]:
    called: list[str] = []
    answered: list[str] = []
    for place, item in enumerate(map(as_object, items)):
        at = f"input[{place}]"
        kind = str(item.get("type", "message"))
        if kind not in _ITEM_FIELDS:
            yield ChatRefusal(message=f"Invalid value: '{kind}'.", param=f"{at}.type", code="invalid_value")
            return
        yield from _strange_keys(item, kind, at)
        if kind == "message":
            yield from _message(item, at)
        elif kind == "function_call":
            yield from _call(item, at)
            called.append(str(item.get("call_id")))
        elif kind == "function_call_output":
            answered.append(str(item.get("call_id")))
            if item.get("call_id") not in called:
                told = f"No tool call found for function call output with call_id {item.get('call_id')}."
                yield ChatRefusal(message=told, param="input")
            yield from _content(item.get("output"), _BLOCKS["user"], f"{at}.output")
        else:
            yield from _reasoning(item, as_object(items[place + 1]) if place + 1 < len(items) else {}, at, signatures)
    for call in [call for call in called if call not in answered]:
        yield ChatRefusal(message=f"No tool output found for function call {call}.", param="input")
    if len({*called}) != len(called):
        yield ChatRefusal(message="Duplicate item found: two function calls have the same call_id.", param="input")


def _strange_keys(item: JsonObject, kind: str, at: str) -> Iterator[ChatRefusal]:
    for key in item:
        if key != "type" and key not in _ITEM_FIELDS[kind]:
            yield ChatRefusal(message=f"Unknown parameter: '{at}.{key}'.", param=f"{at}.{key}", code="unknown_parameter")


def _message(item: JsonObject, at: str) -> Iterator[ChatRefusal]:
    role = item.get("role")
    if role not in _ROLES:
        told = f"Invalid value: '{role}'. Supported values are: {', '.join(map(repr, _ROLES))}."
        yield ChatRefusal(message=told, param=f"{at}.role", code="invalid_value")
        return
    yield from _content(item.get("content"), _BLOCKS[str(role)], f"{at}.content")


def _content(content: Any, allowed: Collection[str], at: str) -> Iterator[ChatRefusal]:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        yield ChatRefusal(message=f"Missing required parameter: '{at}'.", param=at, code="missing_required_parameter")
    for number, block in enumerate(map(as_object, as_list(content))):
        kind = block.get("type")
        if kind not in allowed:
            told = f"Invalid value: '{kind}'. Supported values are: {', '.join(map(repr, allowed))}."
            yield ChatRefusal(message=told, param=f"{at}[{number}]", code="invalid_value")
        elif kind == "input_text" and not isinstance(block.get("text"), str):
            yield ChatRefusal(message=f"Missing required parameter: '{at}[{number}].text'.", param=f"{at}[{number}].text")
        elif kind == "input_image" and not str(block.get("image_url")).startswith(("https:", "http:", "data:image/")):
            yield ChatRefusal(message=f"Invalid '{at}[{number}].image_url'.", param=f"{at}[{number}].image_url")
        elif kind == "input_file" and not (block.get("file_url") or (block.get("file_data") and block.get("filename"))):
            yield ChatRefusal(message=f"Missing required parameter: '{at}[{number}].file_id'.", param=f"{at}[{number}]")


def _call(item: JsonObject, at: str) -> Iterator[ChatRefusal]:
    call_id = item.get("call_id")
    if not isinstance(call_id, str) or not call_id:
        yield ChatRefusal(message=f"Missing required parameter: '{at}.call_id'.", param=f"{at}.call_id")
    elif len(call_id) > CALL_ID_CHARS_MAX:
        told = f"Invalid '{at}.call_id': string too long. Expected a string with maximum length {CALL_ID_CHARS_MAX}."
        yield ChatRefusal(message=told, param=f"{at}.call_id", code="string_above_max_length")
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", str(item.get("name") or "")):
        told = f"Invalid '{at}.name': string does not match pattern. Expected a string that matches '^[a-zA-Z0-9_-]+$'."
        yield ChatRefusal(message=told, param=f"{at}.name", code="invalid_value")
    if not isinstance(item.get("arguments"), str):
        yield ChatRefusal(message=f"Invalid type for '{at}.arguments': expected a string.", param=f"{at}.arguments")


def _reasoning(item: JsonObject, following: JsonObject, at: str, signatures: Collection[str]) -> Iterator[ChatRefusal]:
    if item.get("encrypted_content") not in signatures:
        told = f"The encrypted content for item {item.get('id')} could not be verified."
        yield ChatRefusal(message=told, code="invalid_encrypted_content")
    if not isinstance(item.get("summary"), list):
        yield ChatRefusal(message=f"Missing required parameter: '{at}.summary'.", param=f"{at}.summary")
    if not (following.get("type") in ("function_call", "reasoning") or following.get("role") == "assistant"):
        told = f"Item '{item.get('id')}' of type 'reasoning' was provided without its required following item."
        yield ChatRefusal(message=told, param="input")


def _tools(request: JsonObject) -> Iterator[ChatRefusal]:
    tools = [*map(as_object, as_list(request.get("tools")))]
    functions = [tool for tool in tools if tool.get("type") == "function"]
    # The same rules as for the tools of a chat completion, which have a wrapper.
    wrapped = [{"type": "function", "function": tool} for tool in functions]
    yield from tool_breaches(wrapped)
    choice = request.get("tool_choice")
    names = [tool.get("name") for tool in functions]
    if isinstance(choice, str) and choice not in ("none", "auto", "required"):
        yield ChatRefusal(message=f"Invalid value: '{choice}'.", param="tool_choice", code="invalid_value")
    if isinstance(choice, dict) and as_object(choice).get("name") not in names:
        told = f"Tool choice '{as_object(choice).get('name')}' not found in 'tools' parameter."
        yield ChatRefusal(message=told, param="tool_choice")
    if choice == "required" and not tools:
        told = "Tool choice 'required' must be specified with 'tools' parameter."
        yield ChatRefusal(message=told, param="tool_choice")


def _options(request: JsonObject) -> Iterator[ChatRefusal]:
    model = str(request.get("model"))
    if "reasoning.encrypted_content" in as_list(request.get("include")) and not _REASONING_MODEL.match(model):
        yield ChatRefusal(message="Encrypted content is not supported with this model.", param="include")
    effort = as_object(request.get("reasoning")).get("effort")
    if effort is not None and effort not in _EFFORTS:
        yield ChatRefusal(message=f"Invalid value: '{effort}'.", param="reasoning.effort", code="invalid_value")
    if effort is not None and not _REASONING_MODEL.match(model):
        told = "Unsupported parameter: 'reasoning.effort' is not supported with this model."
        yield ChatRefusal(message=told, param="reasoning.effort", code="unsupported_parameter")
    most = request.get("max_output_tokens")
    if most is not None and (not isinstance(most, int) or most < TOKENS_MIN):
        told = f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {TOKENS_MIN}."
        yield ChatRefusal(message=told, param="max_output_tokens", code="integer_below_min_value")
    form = as_object(as_object(request.get("text")).get("format"))
    if form.get("type") == "json_schema" and not (form.get("name") and isinstance(form.get("schema"), dict)):
        told = "Missing required parameter: 'text.format.schema'."
        yield ChatRefusal(message=told, param="text.format", code="missing_required_parameter")
    if "stream_options" in request and request.get("stream") is not True:
        told = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        yield ChatRefusal(message=told, param="stream_options")
