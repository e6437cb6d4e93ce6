"""A request of the runtime -> the JSON body of a Messages request.

Messages are joined from bytes that are kept; what stands around them (tools, settings) is encoded once for each declaration.
This file sends nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from callgate import strict_json
from callgate.anthropic.messages import MessageWriter
from callgate.errors import UsageError
from callgate.events import Notice
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
from callgate.translation.tools import declared_tools
from callgate.types import JsonObject

__all__ = ["SETTINGS", "THINKING", "BodyBuilder", "settings_of"]

TITLE = "Anthropic"
THINKING = ("none", "low", "medium", "high", "xhigh", "max")
"""The words of the setting `thinking`, from the least on."""
_BUDGETS = {"low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 24_576, "max": 28_672}
"""A word of the setting `thinking` -> the tokens for a model that has no such words."""
_BUDGET_MIN = 1_024
_OLDER = re.compile(r"claude-(?:[2-3]|instant|(?:opus|sonnet|haiku)-(?:4-[0-5](?!\d)|4-\d{8}|4$|4-0))")
"""The models whose thoughts are measured in tokens: those before Claude Opus 4.6."""
_ANSWER_TOKENS = ((re.compile(r"claude-(?:2|instant|3-(?:opus|sonnet|haiku))"), 4_096), (re.compile(r"claude-3-5"), 8_192))
_ANSWER_TOKENS_USUAL = 32_000
"""The limit of an answer where no setting says one: the API wants a number, and the models have different ones."""
# Setting -> its field.
_PLAIN = {
    "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "stop_sequences": "stop_sequences",
    "service_tier": "service_tier", "max_output_tokens": "max_tokens",
}  # fmt: skip
# Written by callgate itself, so that no setting may replace them.
_OURS = ("messages", "tools", "model", "stream", "system")


class BodyBuilder:
    """A builder of the bodies of one model's requests."""

    def __init__(self, model: str, origin: str) -> None:
        self._model = model
        self._writer = MessageWriter(origin)
        self._kept = KeptFields()

    def body(self, request: ModelRequest, *, stream: bool, counts_only: bool = False) -> bytes:
        """The body of a request; with `counts_only`, of one that has its tokens counted.

        Raises:
            UsageError: a setting, a tool or media that the API is known to refuse.
        """
        # A schema for an answer must have a form there that few have, so the model is told of it.
        request = with_output_prompt(request)
        around = self._kept.encoded(
            request, (stream, counts_only), lambda: self._fields(request, stream=stream, counts_only=counts_only)
        )  # fmt: skip
        return joined("messages", self._writer.messages(request), around)

    def notices(self, request: ModelRequest) -> list[Notice]:
        """Return a notice for thinking that is not sent as it was asked for."""
        value = request.settings.get("thinking")
        wanted = None if value is None else _wanted_thinking(value, self._model)
        if wanted is None:
            return []
        if _is_forced(_tool_fields(request)):
            told = f"thinking={value!r} is not sent with a request that requires a call: {TITLE} refuses both together."
            return [Notice("setting_changed", told)]
        most = (request.settings.get("max_output_tokens") or _answer_tokens(self._model)) - 1
        if wanted.budget is None or wanted.budget <= most:
            return []
        told = f"thinking={value!r} means {wanted.budget:,} tokens: {most:,} are sent, since the answer has {most + 1:,}."
        return [Notice("setting_changed", told)]

    def _fields(self, request: ModelRequest, *, stream: bool, counts_only: bool) -> JsonObject:
        fields: JsonObject = {"model": self._model}
        if request.system:
            fields["system"] = strict_json.without_surrogates(request.system)
        tools = _tool_fields(request)
        fields |= tools | settings_of(request.settings, self._model, is_forced=_is_forced(tools))
        if stream:
            fields["stream"] = True
        fields = merged(fields, extra_body(request.settings, taken=_OURS))
        return {name: value for name, value in fields.items() if name in _COUNTED} if counts_only else fields


_COUNTED = ("model", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control")
"""The fields of a request that has its tokens counted."""


_CHOICES = {"auto": "auto", "required": "any", "none": "none", "one": "tool"}


def _tool_fields(request: ModelRequest) -> JsonObject:
    if request.tool_config is None:  # which raises for a choice that cannot be made
        return {}
    found = declared_tools(request.definitions, request.declaration, title=TITLE)
    tools = [{"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in found]
    choice, declared = choice_of(request)
    said: JsonObject = {"type": _CHOICES[choice]} | ({} if declared is None else {"name": declared})
    if request.settings.get("parallel_tool_calls") is False and choice != "none":
        said["disable_parallel_tool_use"] = True
    # Not to say `auto` is to say it.
    return {"tools": tools} | ({"tool_choice": said} if said != {"type": "auto"} else {})


def _is_forced(tool_fields: JsonObject) -> bool:
    """True if the answer must have a call. "Thinking may not be enabled when tool_choice forces tool use."."""
    return tool_fields.get("tool_choice", {}).get("type") in ("any", "tool")


def settings_of(settings: Mapping[str, Any], model: str, *, is_forced: bool = False) -> JsonObject:
    """Settings in plain words -> the fields of a request. A call that `is_forced` cannot be thought about.

    Raises:
        UsageError: an unknown setting, or a value that the API does not take.
    """
    found = fields_of_settings(settings, _PLAIN, _SPECIAL, skipped=("parallel_tool_calls",), known=SETTINGS)
    body: JsonObject = {"max_tokens": _answer_tokens(model)} | found
    thinking = settings.get("thinking")
    return body if thinking is None else merged(body, _thinking(thinking, model, body["max_tokens"], is_forced=is_forced))


def _answer_tokens(model: str) -> int:
    return next((tokens for names, tokens in _ANSWER_TOKENS if names.match(model)), _ANSWER_TOKENS_USUAL)


@dataclass(frozen=True, slots=True)
class _Thinking:
    """The amount of thinking that a value of the setting asks for: a number of tokens, or an effort."""

    budget: int | None = None
    effort: str | None = None


def _wanted_thinking(value: Any, model: str) -> _Thinking | None:
    """Return the amount that a value of the setting asks for; None if it turns thinking off.

    Raises:
        UsageError: it is no such value.
    """
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number and str(value).lower() not in THINKING:
        known = ", ".join(map(repr, THINKING))
        raise UsageError(f"thinking={value!r}: use one of {known}, or a number of tokens")
    if is_number and value != 0 and value < _BUDGET_MIN:
        raise UsageError(f"thinking={value!r}: {TITLE} takes 0, or at least {_BUDGET_MIN:,} tokens")
    word = "none" if value == 0 else str(value).lower()
    if word == "none":
        return None
    if is_number:
        return _Thinking(budget=value)
    return _Thinking(budget=_BUDGETS[word]) if _OLDER.match(model) else _Thinking(effort=word)


def _thinking(value: Any, model: str, answer_tokens: Any, *, is_forced: bool) -> JsonObject:
    wanted = _wanted_thinking(value, model)
    if wanted is None:
        return {"thinking": {"type": "disabled"}}
    if is_forced:
        return {}
    if wanted.budget is None:
        return {"thinking": {"type": "adaptive"}, "output_config": {"effort": wanted.effort}}
    if isinstance(answer_tokens, int) and answer_tokens <= _BUDGET_MIN:
        raise UsageError(f"max_output_tokens={answer_tokens}: with thinking, {TITLE} takes more than {_BUDGET_MIN:,}")
    most = answer_tokens - 1 if isinstance(answer_tokens, int) else wanted.budget
    return {"thinking": {"type": "enabled", "budget_tokens": min(wanted.budget, most)}}


def _mime_type(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    if value == "application/json" and settings.get("response_json_schema") is None:
        raise UsageError(f"response_mime_type={value!r}: {TITLE} writes JSON by a schema only; add response_json_schema")
    return mime_type_fields(value, settings, {})


def _json_schema(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    return {"output_config": {"format": {"type": "json_schema", "schema": output_schema(value)}}}


def _user(value: Any, settings: Mapping[str, Any]) -> JsonObject:
    return {"metadata": {"user_id": value}}


# Settings that are more than a name.
_SPECIAL: dict[str, Special] = {
    "thinking": lambda value, settings: {},
    "response_mime_type": _mime_type,
    "response_json_schema": _json_schema,
    "user": _user,
}
SETTINGS = ("extra_body", "headers", "parallel_tool_calls", *_PLAIN, *_SPECIAL)
"""Every setting that the API has."""
