"""A request of the runtime -> the JSON body of a chat completion.

Messages are joined from bytes that are kept; what stands around them (tools, settings) is encoded once for each declaration.
This file sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callgate.errors import UsageError
from callgate.openai.messages import MessageWriter
from callgate.openai.quirks import Quirks
from callgate.openai.tools import tools_of
from callgate.request import ModelRequest, extra_body, merged, with_output_prompt
from callgate.translation.body import (
    KeptFields,
    Special,
    choice_of,
    fields_of_settings,
    joined,
    mime_type_fields,
    output_schema,
)
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


class BodyBuilder:
    """A builder of the bodies of one model's requests."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._writer = MessageWriter()
        self._kept = KeptFields()

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
        around = self._kept.encoded(request, (stream, quirks), lambda: self._fields(request, quirks, stream=stream))
        return joined("messages", messages, around)

    def _fields(self, request: ModelRequest, quirks: Quirks, *, stream: bool) -> JsonObject:
        fields: JsonObject = {"model": self._model} | _tool_fields(request, quirks)
        fields |= settings_of(request.settings, quirks, has_tools="tools" in fields)
        if stream:
            fields |= {"stream": True} | ({"stream_options": {"include_usage": True}} if quirks.stream_options else {})
        if request.output is not None:
            fields |= _json_schema(request.output, {})
        return merged(fields, extra_body(request.settings, taken=_OURS))


def _tool_fields(request: ModelRequest, quirks: Quirks) -> JsonObject:
    if request.tool_config is None:  # which raises for a choice that cannot be made
        return {}
    choice, declared = choice_of(request)
    is_only = declared is not None and not quirks.names_tool
    tools = tools_of(request.definitions, request.declaration, quirks, only=declared if is_only else None)
    if choice == "auto":  # Not to say it is to say it, and some servers refuse the field.
        return {"tools": tools}
    if declared is None or is_only:
        return {"tools": tools, "tool_choice": "required" if is_only else choice}
    return {"tools": tools, "tool_choice": {"type": "function", "function": {"name": declared}}}


def settings_of(settings: Mapping[str, Any], quirks: Quirks, *, has_tools: bool = False) -> JsonObject:
    """Settings in plain words -> the fields of a request.

    Raises:
        UsageError: an unknown setting, or one that the server does not have.
    """
    plain = {name: name for name in quirks.settings} | _PLAIN | {"max_output_tokens": quirks.max_tokens}
    # Refused by some servers where there are no tools, and ignored by others in any case.
    skipped = () if has_tools and quirks.parallel_tool_calls else ("parallel_tool_calls",)
    return fields_of_settings(settings, plain, _SPECIAL, skipped=skipped, known=[*SETTINGS, *quirks.settings])


def _thinking(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    if isinstance(value, str) and value.lower() in THINKING:
        return {"reasoning_effort": value.lower()}
    raise UsageError(f"thinking={value!r}: a chat completion has levels only; use one of {', '.join(map(repr, THINKING))}")


def _mime_type(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    return mime_type_fields(value, settings, {"response_format": {"type": "json_object"}})


def _json_schema(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": output_schema(value)}}}


def _labels(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    return {"metadata": value}


# Settings that are more than a name.
_SPECIAL: dict[str, Special] = {
    "thinking": _thinking,
    "response_mime_type": _mime_type,
    "response_json_schema": _json_schema,
    "labels": _labels,
}
SETTINGS = ("max_output_tokens", "extra_body", "headers", *_PLAIN, *_SPECIAL)
"""Every setting that all servers have."""
