"""The body of a request to the Responses API -> what is wanted, in callgate's words.

Items and tools are read by `callgate.definitions`, settings that chat completions have too by `chat_request`; this file
knows the fields around them. Nothing is sent, and nothing is looked up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from callgate.definitions import definitions_from
from callgate.errors import UsageError
from callgate.permission import Answered, Approval
from callgate.server.compat.accepted_parts import PartTable, as_is, checked_setting, needs, reading, refuse, skipped
from callgate.server.compat.chat_request import (
    PARTS,
    carried_message,
    choice_of,
    format_settings,
    history_of,
    is_silent,
)
from callgate.server.compat.prompts import CompatRequest
from callgate.strict_json import objects_in
from callgate.types import JsonObject, ToolDefinition

__all__ = ["APPROVAL_PREFIX", "ResponsesRequest", "ToolForms", "items_in", "responses_request_of"]

APPROVAL_PREFIX = "mcpr_"
"""The beginning of the id of an approval request; the id of its call follows."""
_SETTINGS = {
    "temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_output_tokens", "user": "user",
    "safety_identifier": "user", "parallel_tool_calls": "parallel_tool_calls",
}  # fmt: skip
"""Field -> the setting that says the same."""
_READ = (
    "model", "input", "instructions", "tools", "tool_choice", "stream", "stream_options", "store", "background",
    "previous_response_id", "text", "reasoning", "include", "metadata", "prompt_cache_key",
)  # fmt: skip
_USUAL: Mapping[str, Any] = {"service_tier": "auto", "truncation": "disabled", "top_logprobs": 0}
"""Fields that say nothing with these values."""
_REFUSED = {
    "prompt": "templates of prompts are kept at OpenAI: send the instructions and the input",
    "conversation": "conversations are continued by previous_response_id here, or by the header Callgate-Session",
}
_BUILT_IN = {
    "web_search": "googleSearch", "web_search_preview": "googleSearch", "code_interpreter": "codeExecution",
}  # fmt: skip
"""A tool that runs at OpenAI -> the one of Gemini that does the same."""


def _message(item: JsonObject, where: str) -> list[JsonObject]:
    return [carried_message(item, where)]


def _output(item: JsonObject, where: str) -> list[JsonObject]:
    return [{**item, "output": PARTS.carried(item.get("output"), f"{where}.output")}]


def _image(item: JsonObject, where: str) -> list[JsonObject]:
    """An image that the model has made is part of what it said."""
    needs("result")(item, where)
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{item['result']}"}
    return [{"type": "message", "role": "assistant", "content": [image]}]


_ITEMS = PartTable("item", {
    "message": _message, "function_call": as_is, "function_call_output": _output, "custom_tool_call": as_is,
    "custom_tool_call_output": _output, "image_generation_call": _image, "mcp_approval_response": as_is,
    # Signatures are read from a thought; the rest are records of what an answer did, which its text speaks of.
    "reasoning": as_is, "mcp_approval_request": skipped, "web_search_call": skipped, "code_interpreter_call": skipped,
}, kind_of=lambda item: str(item.get("type") or "message"))  # fmt: skip
"""The items of an input, and how each is carried."""
_OWN, _NAMESPACE = ("function", "custom"), "namespace"
_ANSWER = "mcp_approval_response"
_ANSWER_FIELDS = frozenset({"type", "id", "approval_request_id", "approve", "reason", "request_id"})


@dataclass(frozen=True, slots=True)
class ToolForms:
    """The forms of tools that only this API has: calls of them are written in these again."""

    custom: frozenset[str] = frozenset()
    """Names of tools that take plain text."""
    namespaces: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Our name of a tool -> its namespace, and its name there."""


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """A request, and what only this API has."""

    wanted: CompatRequest
    forms: ToolForms
    previous: str | None
    stored: bool
    background: bool


def items_in(body: JsonObject) -> list[JsonObject]:
    """The items of the input; a text is one message."""
    given: Any = body.get("input")
    if isinstance(given, str) or given is None:
        return [{"role": "user", "content": given or ""}]
    return [_with_joined_name(item) for item in objects_in(given)]


def _joined(namespace: str, name: str) -> str:
    return f"{namespace}__{name}"


def _with_joined_name(item: JsonObject) -> JsonObject:
    namespace, name = item.get("namespace"), item.get("name")
    return {**item, "name": _joined(namespace, name)} if isinstance(namespace, str) and isinstance(name, str) else item


def responses_request_of(
    body: JsonObject, items: Sequence[JsonObject], *, calls: Sequence[JsonObject] = (), session: str | None = None
) -> ResponsesRequest:
    """Read a request with these items as its input; `calls` are those of the answer before it.

    Raises:
        UsageError: a part of it is not what it must be; the message says which.
    """
    for name, why in _REFUSED.items():
        if body.get(name):
            raise UsageError(f"{name}: {why}")
    items = cast("list[JsonObject]", _ITEMS.carried(list(items), "input"))
    answers: dict[str, Approval] = {_call_id(item): _approval(item) for item in items if item.get("type") == _ANSWER}
    if answers and len(answers) != len(items):
        raise UsageError("input: answers to approval requests come without other items")
    stored, background = body.get("store") is not False, body.get("background") is True
    if background and not stored:
        raise UsageError("background: a response that is not stored could not be fetched, so store must be true")
    contents, system = ([], None) if answers else _history(items, calls)
    definitions, built_in, forms = _tools(body)
    choice, allowed = choice_of(body.get("tool_choice") or "auto")
    kept = tuple(one for one in definitions if not allowed or one.name in allowed)
    settings, native = _settings(body)
    wanted = CompatRequest(
        model=body.get("model") or "callgate",
        has_cancelled=True,
        contents=contents,
        definitions=kept,
        built_in=tuple(built_in),
        tool_choice=choice,
        system="\n\n".join(filter(None, [body.get("instructions"), system])) or None,
        settings=settings,
        native=native,
        stream=bool(body.get("stream")),
        session=session,
        detached=background,
        answers=answers,
        asks=stored,
        is_silent=bool(items) and not answers and is_silent(items[-1]),
    )
    previous: Any = body.get("previous_response_id")
    return ResponsesRequest(wanted, forms, previous, stored, background)


def _history(items: Sequence[JsonObject], calls: Sequence[JsonObject]) -> tuple[list[Any], str | None]:
    """The contents of the items. Results name their calls by an id alone, so these are read with them and left out again."""
    _check_outputs(items, calls)
    answered = {item.get("call_id") for item in items if str(item.get("type")).endswith("_output")}
    known = {item.get("call_id") for item in items if str(item.get("type")).endswith("_call")}
    # All of them, in their order: which result belongs to a call without an id of its own is known by its place.
    before = list(calls) if answered - known else []
    signatures = [*[None] * len(before), *_signatures(items)]
    contents, system = history_of([*before, *items], signatures, "input", before=len(before))
    return contents[1:] if before else contents, system


def _check_outputs(items: Sequence[JsonObject], calls: Sequence[JsonObject]) -> None:
    """Refuse a result without a call before it, or a second one: a model would not know what to do with it."""
    known = Counter[Any](call.get("call_id") for call in calls)
    for number, item in enumerate(items):
        kind, id = str(item.get("type")), item.get("call_id")
        if kind.endswith("_call"):
            known[id] += 1
        elif kind.endswith("_output") and id is not None:
            if known[id] < 1:
                what = f"{kind.replace('_', ' ')} with call_id {str(id)[:100]!r}"
                refuse(f"input[{number}].call_id", f"No tool call found for {what}, or it has an output already.")
            known[id] -= 1


def _signatures(items: Sequence[JsonObject]) -> list[str | None]:
    """The signature of each call: it came in the reasoning before it."""
    found: list[str | None] = []
    last: str | None = None
    for item in items:
        if item.get("type") == "reasoning":
            last = item.get("encrypted_content")
        elif str(item.get("type")) in ("function_call", "custom_tool_call"):
            found.append(last if isinstance(last, str) else None)
            last = None
    return found


def _call_id(item: JsonObject) -> str:
    id: Any = item.get("approval_request_id")
    if not isinstance(id, str) or not id.startswith(APPROVAL_PREFIX):
        raise UsageError(f"input: {_ANSWER} names no approval request of ours in approval_request_id")
    return id.removeprefix(APPROVAL_PREFIX)


def _approval(item: JsonObject) -> Approval:
    if not isinstance(item.get("approve"), bool):
        raise UsageError(f"input: {_ANSWER} says in 'approve' true or false")
    if unknown := sorted(item.keys() - _ANSWER_FIELDS):  # Other arguments, for example, which would not be those that run.
        raise UsageError(f"input: {_ANSWER} has no field {unknown[0][:100]!r}")
    said = str(item.get("reason") or "")
    return Answered(answer="yes" if item["approve"] else "no", message=said, confirm=said.strip())


def _tools(body: JsonObject) -> tuple[list[ToolDefinition], list[JsonObject], ToolForms]:
    """The tools that the client runs, those that the model's own server runs, and the forms of the former."""
    own: list[JsonObject] = []
    built_in: list[JsonObject] = []
    namespaces: dict[str, tuple[str, str]] = {}
    for tool in objects_in(body.get("tools")):
        kind = str(tool.get("type"))
        if kind in _OWN:
            own.append(tool)
        elif kind in _BUILT_IN:
            built_in.append({_BUILT_IN[kind]: {}})
        elif kind == _NAMESPACE:
            space = str(tool.get("name"))
            for inner in objects_in(tool.get("tools")):
                name = str(inner.get("name"))
                namespaces[_joined(space, name)] = (space, name)
                own.append({**inner, "name": _joined(space, name)})
        else:
            known = ", ".join([*_OWN, _NAMESPACE, *_BUILT_IN])
            raise UsageError(f"tools: {kind!r} is not to be had here; there are {known}")
    custom = frozenset(str(tool.get("name")) for tool in own if tool.get("type") == "custom")
    with reading("tools"):
        return (definitions_from(own, "openai") if own else []), built_in, ToolForms(custom, namespaces)


def _settings(body: JsonObject) -> tuple[JsonObject, JsonObject]:
    """The words that a request says as settings, and the fields that there is no word for."""
    settings: JsonObject = {}
    native: JsonObject = {}
    for name, value in body.items():
        if value is None or name in _READ or _USUAL.get(name) == value:
            continue
        if name in _SETTINGS:
            settings[_SETTINGS[name]] = checked_setting(name, _SETTINGS[name], value)
        else:
            native[name] = value
    text = cast("JsonObject", body.get("text") or {})
    if text.get("format") is not None:
        settings |= format_settings(text["format"], "text.format")
    if text.get("verbosity") not in (None, "medium"):
        native["text.verbosity"] = text["verbosity"]
    reasoning = cast("JsonObject", body.get("reasoning") or {})
    if reasoning.get("effort") is not None:
        settings["thinking"] = reasoning["effort"]
    if reasoning.get("summary") is not None:
        settings["include_thoughts"] = True
    return settings, native
