"""A request of the runtime -> the JSON body of a Responses request.

Input items are joined from bytes that are kept; what stands around them (tools, settings) is encoded once for each
declaration. Nothing is stored at the server. This file sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from callgate import strict_json
from callgate.errors import UsageError
from callgate.openai.quirks import QUIRKS, Quirks
from callgate.openai.request import THINKING
from callgate.openai.responses_input import InputWriter
from callgate.openai.tools import tools_of
from callgate.request import ModelRequest, extra_body, is_of_interactions, merged, unknown_setting, with_output_prompt
from callgate.types import JsonObject

__all__ = ["SETTINGS", "ResponsesBodyBuilder", "response_settings_of"]

# Setting -> its field.
_PLAIN = {
    "temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_output_tokens", "service_tier": "service_tier",
    "user": "user", "labels": "metadata",
}  # fmt: skip
# Written by callgate itself, so that no setting may replace them.
_OURS = ("input", "tools", "model", "stream", "instructions", "previous_response_id", "conversation", "background")
_KEPT_MAX = 64


class ResponsesBodyBuilder:
    """A builder of the bodies of one model's requests."""

    def __init__(self, model: str, origin: str) -> None:
        self._model = model
        self._writer = InputWriter(origin)
        self._kept: dict[tuple[Any, ...], tuple[Any, bytes]] = {}

    def body(self, request: ModelRequest, quirks: Quirks, *, stream: bool) -> bytes:
        """The body of a request.

        Raises:
            UsageError: a setting, a tool or media that this server is known to refuse.
        """
        if request.output is not None and request.declaration.names and not quirks.schema_beside_tools:
            request = with_output_prompt(request)
        items = self._writer.items(request)
        return b'{"input":[' + b",".join(items) + b"]," + self._around(request, quirks, stream)[1:]

    def _around(self, request: ModelRequest, quirks: Quirks, stream: bool) -> bytes:
        key = (
            id(request.declaration), id(request.settings), id(request.output), request.system, request.tool_choice, stream,
            quirks,
        )  # fmt: skip
        kept = self._kept.get(key)
        if kept is None:
            if len(self._kept) >= _KEPT_MAX:
                self._kept.clear()
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
            encoded = strict_json.dump(merged(fields, extra_body(request.settings, taken=_OURS)))
            # The objects are kept with the bytes, so that their ids stay theirs.
            kept = self._kept[key] = ((request.declaration, request.settings, request.output), encoded)
        return kept[1]

    def _reasons(self) -> bool:
        """True for a model that reasons: "Encrypted content is not supported with this model" is said of the others."""
        reasoning = QUIRKS["openai"].developer
        return reasoning is not None and reasoning.match(self._model) is not None


def _tool_fields(request: ModelRequest, quirks: Quirks) -> JsonObject:
    names, choice = request.declaration.names, request.tool_choice
    if request.tool_config is None:  # which raises for a choice that cannot be made
        return {}
    written = tools_of(request.definitions, request.declaration, quirks)
    # A strict tool is one whose schema has OpenAI's own form, which few have.
    tools: list[JsonObject] = [{"type": "function", **tool["function"], "strict": False} for tool in written]
    if choice in ("auto", "validated"):
        return {"tools": tools}
    if choice in ("required", "none"):
        return {"tools": tools, "tool_choice": choice}
    declared = next(declared for declared, own in names.items() if choice in (own, declared))
    return {"tools": tools, "tool_choice": {"type": "function", "name": declared}}


def response_settings_of(settings: Mapping[str, Any], *, has_tools: bool = False) -> JsonObject:
    """Settings in plain words -> the fields of a request.

    Raises:
        UsageError: an unknown setting, or one that the API does not have.
    """
    body: JsonObject = {}
    for name, value in settings.items():
        if value is None or name in ("extra_body", "headers"):
            continue
        if name == "parallel_tool_calls":
            body |= {name: value} if has_tools else {}
        elif name in _PLAIN:
            body[_PLAIN[name]] = value
        elif name in _SPECIAL:
            body |= _SPECIAL[name](value, settings)
        elif not is_of_interactions(name, value):
            raise UsageError(unknown_setting(name, SETTINGS))
    return body


def _thinking(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    if isinstance(value, str) and value.lower() in THINKING:
        return {"reasoning": {"effort": value.lower()}}
    raise UsageError(f"thinking={value!r}: the Responses API has levels only; use one of {', '.join(map(repr, THINKING))}")


def _mime_type(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    if value not in ("application/json", "text/plain"):
        raise UsageError(f"response_mime_type={value!r}: use 'application/json' or 'text/plain'")
    has_schema = settings.get("response_json_schema") is not None
    return {"text": {"format": {"type": "json_object"}}} if value == "application/json" and not has_schema else {}


def _json_schema(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    if not isinstance(value, Mapping):
        raise UsageError(f"response_json_schema={value!r}: use a JSON Schema, as a mapping")
    schema = dict(cast("Mapping[str, Any]", value))
    return {"text": {"format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": False}}}


# Settings that are more than a name.
_SPECIAL: dict[str, Callable[[Any, Mapping[str, Any]], JsonObject]] = {
    "thinking": _thinking,
    "response_mime_type": _mime_type,
    "response_json_schema": _json_schema,
}
SETTINGS = ("extra_body", "headers", "parallel_tool_calls", *_PLAIN, *_SPECIAL)
"""Every setting that the API has."""
