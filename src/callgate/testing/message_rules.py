"""The rules of Anthropic's Messages API, as far as a client can break them.

Takes the body of a request; returns the first breach, in Anthropic's words, or None. Sends nothing.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from callgate.testing.google_fields import as_list, as_object
from callgate.types import JsonObject

__all__ = ["MessageRefusal", "message_judge"]

STATUSES: Mapping[int, str] = {
    400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
    404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 529: "overloaded_error",
}  # fmt: skip
_COUNTED = frozenset({
    "model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control",
    "context_management", "mcp_servers", "output_format",
})  # fmt: skip
_FIELDS = _COUNTED | {
    "max_tokens", "stream", "temperature", "top_p", "top_k", "stop_sequences", "metadata", "service_tier", "container",
    "inference_geo", "speed", "diagnostics", "user_profile_id", "workspace_id",
}  # fmt: skip
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_AT_ROOT = ("oneOf", "allOf", "anyOf")
_IMAGES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_BLOCKS: Mapping[str, Collection[str]] = {
    "user": ("text", "image", "document", "tool_result", "search_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
    "result": ("text", "image", "document", "search_result"),
}
_BLOCK_FIELDS: Mapping[str, Collection[str]] = {
    "text": ("text", "citations"), "image": ("source",), "document": ("source", "title", "context", "citations"),
    "tool_result": ("tool_use_id", "content", "is_error"), "tool_use": ("id", "name", "input"),
    "thinking": ("thinking", "signature"), "redacted_thinking": ("data",),
    "search_result": ("content", "source", "title", "citations"),
}  # fmt: skip
_CHOICES = ("auto", "any", "tool", "none")
_THINKING = ("enabled", "disabled", "adaptive", "between_tools")
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
BUDGET_MIN = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRefusal:
    """A request that Anthropic would refuse, and its error."""

    message: str
    """The message of the error."""
    status: int = 400
    """The HTTP status."""

    @property
    def body(self) -> JsonObject:
        """The error in Anthropic's form."""
        error = {"type": STATUSES.get(self.status, "api_error"), "message": self.message}
        return {"type": "error", "error": error, "request_id": "req_fake"}


def message_judge(body: Any, *, signatures: Collection[str] = (), counts_only: bool = False) -> MessageRefusal | None:
    """The first rule that the body of a request breaks.

    `signatures` are those that the server has given out: no other is genuine.
    """
    if not isinstance(body, dict):
        return MessageRefusal(message="The request body is not valid JSON")
    request = as_object(body)
    for told in _breaches(request, signatures, counts_only=counts_only):
        return MessageRefusal(message=told)
    return None


def _breaches(request: JsonObject, signatures: Collection[str], *, counts_only: bool) -> Iterator[str]:
    known = _COUNTED if counts_only else _FIELDS
    yield from (f"{name}: Extra inputs are not permitted" for name in request if name not in known)
    needed = ("model", "messages") if counts_only else ("model", "max_tokens", "messages")
    yield from (f"{name}: Field required" for name in needed if name not in request)
    yield from _messages(request, signatures)
    yield from _tools(request)
    yield from _options(request)


def _messages(request: JsonObject, signatures: Collection[str]) -> Iterator[str]:
    messages = as_list(request.get("messages"))
    if not messages:
        yield "messages: at least one message is required"
    open_calls: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(map(as_object, messages)):
        at = f"messages.{place}"
        role = message.get("role")
        if role not in ("user", "assistant"):
            yield f"{at}.role: Input should be 'user' or 'assistant'"
            return
        if place == 0 and role != "user":
            yield 'messages: first message must use the "user" role'
        if unknown := [key for key in message if key not in ("role", "content")]:
            yield f"{at}.{unknown[0]}: Extra inputs are not permitted"
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else [*map(as_object, as_list(content))]
        if not blocks or content == "":
            yield f"{at}: {role} messages must have non-empty content"
        for number, block in enumerate(blocks):
            yield from _block(block, _BLOCKS[role], f"{at}.content.{number}", signatures)
        yield from _results(blocks, open_calls, place)
        open_calls = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        if repeated := [call for call in open_calls if call in seen]:
            yield f"{at}: `tool_use` ids must be unique: {repeated[0]}"
        seen.update(open_calls)
    if open_calls:
        yield _unanswered(len(messages) - 1, open_calls)


def _results(blocks: list[JsonObject], open_calls: list[str], place: int) -> Iterator[str]:
    """Results stand right after the calls, before anything else of their message, and one for each."""
    answered = [str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
    if missing := [call for call in open_calls if call not in answered]:
        yield _unanswered(place - 1, missing)
    for number, block in enumerate(blocks):
        call = block.get("tool_use_id")
        if block.get("type") == "tool_result" and call not in open_calls:
            yield (
                f"messages.{place}.content.{number}: unexpected `tool_use_id` found in `tool_result` blocks: {call}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
    if len(answered) != len({*answered}):
        yield f"messages.{place}.content: each tool_use must have a single result. Found multiple `tool_result` blocks"
    kinds = [block.get("type") for block in blocks]
    if answered and "tool_result" in kinds[len(answered) :]:
        yield f"messages.{place}: `tool_result` blocks must come before any other content of the message"


def _unanswered(place: int, calls: list[str]) -> str:
    return (
        f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(calls)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def _block(block: JsonObject, allowed: Collection[str], at: str, signatures: Collection[str]) -> Iterator[str]:
    kind = block.get("type")
    if kind not in allowed:
        yield f"{at}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {', '.join(allowed)}"
        return
    fields = {"type", "cache_control", *_BLOCK_FIELDS[str(kind)]}
    yield from (f"{at}.{kind}.{key}: Extra inputs are not permitted" for key in block if key not in fields)
    if kind == "text":
        yield from _text(block.get("text"), at)
    elif kind in ("image", "document"):
        yield from _source(as_object(block.get("source")), str(kind), at)
    elif kind == "tool_use":
        yield from _call(block, at)
    elif kind == "tool_result":
        inner = block.get("content", "")
        for number, one in enumerate(map(as_object, as_list(inner))):
            yield from _block(one, _BLOCKS["result"], f"{at}.tool_result.content.{number}", signatures)
    elif kind in ("thinking", "redacted_thinking"):
        sign = block.get("signature" if kind == "thinking" else "data")
        if not isinstance(sign, str) or sign not in signatures:
            yield f"{at}: Invalid `{'signature' if kind == 'thinking' else 'data'}` in `{kind}` block"


def _text(text: Any, at: str) -> Iterator[str]:
    if not isinstance(text, str):
        yield f"{at}.text.text: Input should be a valid string"
    elif not text.strip():
        yield f"{at}: text content blocks must contain non-whitespace text"


def _call(block: JsonObject, at: str) -> Iterator[str]:
    if not isinstance(block.get("id"), str) or not _ID.fullmatch(block["id"]):
        yield f"{at}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'"
    if not isinstance(block.get("name"), str) or not _NAME.fullmatch(block["name"]):
        yield f"{at}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
    if not isinstance(block.get("input"), dict):
        yield f"{at}.tool_use.input: Input should be a valid dictionary"


def _source(source: JsonObject, kind: str, at: str) -> Iterator[str]:
    if source.get("type") == "url":
        if not str(source.get("url")).startswith(("https://", "http://")):
            yield f"{at}.{kind}.source.url.url: Only HTTPS URLs are supported"
    elif source.get("type") == "base64":
        known = _IMAGES if kind == "image" else ("application/pdf",)
        if source.get("media_type") not in known:
            yield f"{at}.{kind}.source.base64.media_type: Input should be {' or '.join(map(repr, known))}"
        try:
            base64.b64decode(str(source.get("data")), validate=True)
        except ValueError:
            yield f"{at}.{kind}.source.base64.data: Invalid base64 data"
    elif kind == "image" or source.get("type") not in ("text", "content"):
        yield f"{at}.{kind}.source: Input tag '{source.get('type')}' does not match any of the expected tags"


def _tools(request: JsonObject) -> Iterator[str]:
    names: list[Any] = []
    for place, tool in enumerate(map(as_object, as_list(request.get("tools")))):
        if tool.get("type") not in (None, "custom"):
            continue
        at, schema = f"tools.{place}.custom", as_object(tool.get("input_schema"))
        name = tool.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            yield f"{at}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
        if name in names:
            yield "tools: Tool names must be unique."
        names.append(name)
        if schema.get("type") != "object":
            yield f"{at}.input_schema.type: Field required"
        if any(key in schema for key in _AT_ROOT):
            yield f"{at}.input_schema: input_schema does not support oneOf, allOf, or anyOf at the top level"
    if choice := as_object(request.get("tool_choice")):
        yield from _choice(choice, names, as_object(request.get("thinking")))


def _choice(choice: JsonObject, names: list[Any], thinking: JsonObject) -> Iterator[str]:
    if choice.get("type") not in _CHOICES:
        yield f"tool_choice: Input tag '{choice.get('type')}' does not match any of the expected tags"
    if not names:
        yield "tool_choice: tool_choice may only be specified while providing tools"
    if choice.get("type") == "tool" and choice.get("name") not in names:
        yield f"tool_choice: Tool '{choice.get('name')}' not found in provided tools"
    if choice.get("type") in ("any", "tool") and thinking.get("type") in ("enabled", "adaptive"):
        yield "Thinking may not be enabled when tool_choice forces tool use."


def _options(request: JsonObject) -> Iterator[str]:
    most = request.get("max_tokens", 1)
    if isinstance(most, bool) or not isinstance(most, int) or most < 1:
        yield "max_tokens: Input should be greater than or equal to 1"
        return
    for name in ("temperature", "top_p"):
        value = request.get(name, 1)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            yield f"{name}: range: 0..1"
    yield from _thinking(as_object(request.get("thinking")), request)
    config = as_object(request.get("output_config"))
    if "effort" in config and config["effort"] not in _EFFORTS:
        yield f"output_config.effort: Input should be {' or '.join(map(repr, _EFFORTS))}"
    if "format" in config and as_object(config["format"]).get("type") != "json_schema":
        yield "output_config.format.type: Input should be 'json_schema'"


def _thinking(thinking: JsonObject, request: JsonObject) -> Iterator[str]:
    if thinking and thinking.get("type") not in _THINKING:
        yield f"thinking: Input tag '{thinking.get('type')}' does not match any of the expected tags"
    if thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens")
        if not isinstance(budget, int) or budget < BUDGET_MIN:
            yield f"thinking.enabled.budget_tokens: Input should be greater than or equal to {BUDGET_MIN}"
        elif "max_tokens" in request and budget >= request["max_tokens"]:
            yield "`max_tokens` must be greater than `thinking.budget_tokens`."
    if thinking.get("type") in ("enabled", "adaptive") and request.get("temperature", 1) != 1:
        yield "`temperature` may only be set to 1 when thinking is enabled."
