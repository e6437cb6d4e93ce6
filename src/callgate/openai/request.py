"""A request of the runtime -> the JSON body of a chat completion.

Messages are joined from bytes that are kept; what stands around them (tools, settings) is encoded once for each declaration.
This file sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from callgate import strict_json
from callgate.errors import UsageError
from callgate.openai.messages import MessageWriter
from callgate.openai.quirks import Quirks
from callgate.openai.tools import tools_of
from callgate.request import ModelRequest, extra_body, is_of_interactions, merged, unknown_setting, with_output_prompt
from callgate.types import JsonObject

__all__ = ["SETTINGS", "THINKING", "BodyBuilder", "settings_of"]

# Setting -> its field. One that servers name differently is in the table of quirks.
_PLAIN = {
    "temperature": "temperature",
    "top_p": "top_p",
    "stop_sequences": "stop",
    "seed": "seed",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "service_tier": "service_tier",
    "parallel_tool_calls": "parallel_tool_calls",
    "logit_bias": "logit_bias",
    "user": "user",
}
THINKING = ("none", "minimal", "low", "medium", "high", "xhigh")
"""The words of the setting `thinking`, from the least on."""
# Written by callgate itself, so that no setting may replace them.
_OURS = ("messages", "tools", "model", "stream")
_KEPT_MAX = 64


class BodyBuilder:
    """A builder of the bodies of one model's requests."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._writer = MessageWriter()
        self._kept: dict[tuple[Any, ...], tuple[Any, bytes]] = {}

    def body(self, request: ModelRequest, quirks: Quirks, *, stream: bool) -> bytes:
        """The body of a request.

        Raises:
            UsageError: a setting, a tool or media that this server is known to refuse.
        """
        if request.output is not None and not (
            quirks.schema and (quirks.schema_beside_tools or not request.declaration.names)
        ):
            request = with_output_prompt(request)
        messages = self._writer.messages(request, quirks, model=self._model)
        return b'{"messages":[' + b",".join(messages) + b"]," + self._around(request, quirks, stream)[1:]

    def _around(self, request: ModelRequest, quirks: Quirks, stream: bool) -> bytes:
        key = (id(request.declaration), id(request.settings), id(request.output), request.tool_choice, stream, quirks)
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
            fields: JsonObject = {"model": self._model} | _tool_fields(request, quirks)
            fields |= settings_of(request.settings, quirks, has_tools="tools" in fields)
            if stream:
                fields |= {"stream": True} | ({"stream_options": {"include_usage": True}} if quirks.stream_options else {})
            if request.output is not None:
                fields |= _json_schema(request.output, {})
            encoded = strict_json.dump(merged(fields, extra_body(request.settings, taken=_OURS)))
            # The objects are kept with the bytes, so that their ids stay theirs.
            kept = self._kept[key] = ((request.declaration, request.settings, request.output), encoded)
        return kept[1]


def _tool_fields(request: ModelRequest, quirks: Quirks) -> JsonObject:
    names, choice = request.declaration.names, request.tool_choice
    if request.tool_config is None:  # which raises for a choice that cannot be made
        return {}
    if choice in ("auto", "validated", "required", "none"):
        # Not to say `auto` is to say it, and some servers refuse the field.
        said: JsonObject = {} if choice in ("auto", "validated") else {"tool_choice": choice}
        return {"tools": tools_of(request.definitions, request.declaration, quirks)} | said
    declared = next(declared for declared, own in names.items() if choice in (own, declared))
    if not quirks.names_tool:
        tools = tools_of(request.definitions, request.declaration, quirks, only=declared)
        return {"tools": tools, "tool_choice": "required"}
    tools = tools_of(request.definitions, request.declaration, quirks)
    return {"tools": tools, "tool_choice": {"type": "function", "function": {"name": declared}}}


def settings_of(settings: Mapping[str, Any], quirks: Quirks, *, has_tools: bool = False) -> JsonObject:
    """Settings in plain words -> the fields of a request.

    Raises:
        UsageError: an unknown setting, or one that the server does not have.
    """
    body: JsonObject = {}
    for name, value in settings.items():
        if value is None or name in ("extra_body", "headers"):
            continue
        if name == "max_output_tokens":
            body[quirks.max_tokens] = value
        elif name == "parallel_tool_calls" and not (has_tools and quirks.parallel_tool_calls):
            continue  # Refused by some servers where there are no tools, and ignored by others in any case.
        elif name in _PLAIN or name in quirks.settings:
            body[_PLAIN.get(name, name)] = value
        elif name in _SPECIAL:
            body |= _SPECIAL[name](value, settings)
        elif not is_of_interactions(name, value):
            raise UsageError(unknown_setting(name, [*SETTINGS, *quirks.settings]))
    return body


def _thinking(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    if isinstance(value, str) and value.lower() in THINKING:
        return {"reasoning_effort": value.lower()}
    raise UsageError(f"thinking={value!r}: a chat completion has levels only; use one of {', '.join(map(repr, THINKING))}")


def _mime_type(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    if value not in ("application/json", "text/plain"):
        raise UsageError(f"response_mime_type={value!r}: use 'application/json' or 'text/plain'")
    has_schema = settings.get("response_json_schema") is not None
    return {"response_format": {"type": "json_object"}} if value == "application/json" and not has_schema else {}


def _json_schema(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    if not isinstance(value, Mapping):
        raise UsageError(f"response_json_schema={value!r}: use a JSON Schema, as a mapping")
    schema = dict(cast("Mapping[str, Any]", value))
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}


def _labels(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    return {"metadata": value}


# Settings that are more than a name.
_SPECIAL: dict[str, Callable[[Any, Mapping[str, Any]], JsonObject]] = {
    "thinking": _thinking,
    "response_mime_type": _mime_type,
    "response_json_schema": _json_schema,
    "labels": _labels,
}
SETTINGS = ("max_output_tokens", "extra_body", "headers", *_PLAIN, *_SPECIAL)
"""Every setting that all servers have."""
