"""A request of the runtime -> the JSON body of a Responses request.

Input items are joined from bytes that are kept; what stands around them (tools, settings) is encoded once for each
declaration. Nothing is stored at the server. This file sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from callgate import strict_json
from callgate.errors import UsageError
from callgate.openai.quirks import QUIRKS, Quirks
from callgate.openai.request import THINKING
from callgate.openai.responses_input import InputWriter
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

__all__ = ["SETTINGS", "ResponsesBodyBuilder", "response_settings_of"]

# Setting -> its field.
_PLAIN = {
    "temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_output_tokens", "service_tier": "service_tier",
    "user": "user", "labels": "metadata", "parallel_tool_calls": "parallel_tool_calls",
}  # fmt: skip
# Written by callgate itself, so that no setting may replace them.
_OURS = ("input", "tools", "model", "stream", "instructions", "previous_response_id", "conversation", "background")


class ResponsesBodyBuilder:
    """A builder of the bodies of one model's requests."""

    def __init__(self, model: str, origin: str) -> None:
        self._model = model
        self._writer = InputWriter(origin)
        self._kept = KeptFields()

    def body(self, request: ModelRequest, quirks: Quirks, *, stream: bool) -> bytes:
        """The body of a request.

        Raises:
            UsageError: a setting, a tool or media that this server is known to refuse.
        """
        if request.output is not None and request.declaration.names and not quirks.schema_beside_tools:
            request = with_output_prompt(request)
        around = self._kept.encoded(request, (stream, quirks), lambda: self._fields(request, quirks, stream=stream))
        return joined("input", self._writer.items(request), around)

    def _fields(self, request: ModelRequest, quirks: Quirks, *, stream: bool) -> JsonObject:
        fields: JsonObject = {"model": self._model, "store": False}
        if self._reasons():
            fields["include"] = ["reasoning.encrypted_content"]
        if request.system:
            fields["instructions"] = strict_json.without_surrogates(request.system)
        fields |= _tool_fields(request, quirks)
        fields |= response_settings_of(request.settings, has_tools="tools" in fields)
        if stream:
            fields["stream"] = True
        if request.output is not None:
            fields |= _json_schema(request.output, {})
        return merged(fields, extra_body(request.settings, taken=_OURS))

    def _reasons(self) -> bool:
        """True for a model that reasons: "Encrypted content is not supported with this model" is said of the others."""
        reasoning = QUIRKS["openai"].developer
        return reasoning is not None and reasoning.match(self._model) is not None


def _tool_fields(request: ModelRequest, quirks: Quirks) -> JsonObject:
    if request.tool_config is None:  # which raises for a choice that cannot be made
        return {}
    written = tools_of(request.definitions, request.declaration, quirks)
    # A strict tool is one whose schema has OpenAI's own form, which few have.
    tools: list[JsonObject] = [{"type": "function", **tool["function"], "strict": False} for tool in written]
    choice, declared = choice_of(request)
    said = choice if declared is None else {"type": "function", "name": declared}
    return {"tools": tools} | ({} if choice == "auto" else {"tool_choice": said})


def response_settings_of(settings: Mapping[str, Any], *, has_tools: bool = False) -> JsonObject:
    """Settings in plain words -> the fields of a request.

    Raises:
        UsageError: an unknown setting, or one that the API does not have.
    """
    skipped = () if has_tools else ("parallel_tool_calls",)
    return fields_of_settings(settings, _PLAIN, _SPECIAL, skipped=skipped, known=SETTINGS)


def _thinking(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    if isinstance(value, str) and value.lower() in THINKING:
        return {"reasoning": {"effort": value.lower()}}
    raise UsageError(f"thinking={value!r}: the Responses API has levels only; use one of {', '.join(map(repr, THINKING))}")


def _mime_type(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    return mime_type_fields(value, settings, {"text": {"format": {"type": "json_object"}}})


def _json_schema(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    return {"text": {"format": {"type": "json_schema", "name": "answer", "schema": output_schema(value), "strict": False}}}


# Settings that are more than a name.
_SPECIAL: dict[str, Special] = {
    "thinking": _thinking,
    "response_mime_type": _mime_type,
    "response_json_schema": _json_schema,
}
SETTINGS = ("extra_body", "headers", *_PLAIN, *_SPECIAL)
"""Every setting that the API has."""
