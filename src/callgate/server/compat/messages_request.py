"""The body of a Messages request that somebody sends to us -> what is wanted, in callgate's words.

Messages and tools are read by `callgate.definitions`; this file knows the fields around them. Nothing is sent.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from callgate.content.build import with_names
from callgate.definitions import convert, definitions_from
from callgate.errors import UsageError
from callgate.gemini.incoming import read_request
from callgate.server.compat.accepted_parts import (
    Carry,
    PartTable,
    as_is,
    check_data,
    checked_setting,
    reading,
    refuse,
    refuse_left_out,
    skipped,
)
from callgate.server.compat.prompts import CompatRequest
from callgate.strict_json import objects_in
from callgate.types import Content, JsonObject, ToolChoice, ToolDefinition

__all__ = ["messages_request_of"]

_SETTINGS = {
    "max_tokens": "max_output_tokens", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k",
    "stop_sequences": "stop_sequences",
}  # fmt: skip
"""Field -> the setting that says the same."""
_READ = ("model", "messages", "system", "tools", "tool_choice", "stream", "thinking", "output_format", "output_config")
_HOSTED = re.compile(r"([a-z_]+)_\d{8}")
_BUILT_IN: Mapping[str, str] = {"web_search": "googleSearch", "code_execution": "codeExecution", "web_fetch": "urlContext"}
"""A tool that runs at Anthropic -> the one of Gemini that does the same."""
_CHOICES: Mapping[str, str] = {"auto": "auto", "any": "required", "none": "none"}
_BUDGETS = ((2_048, "low"), (12_000, "medium"))
"""Fewer tokens of thought than these -> the level that comes near them."""
_EFFORTS = ("low", "medium", "high")
_INDEX = ".{}"


def _media(block: JsonObject, where: str) -> list[JsonObject]:
    """An image or a document: its bytes, its address, or its text."""
    given: Any = block.get("source")
    source = cast("JsonObject", given) if isinstance(given, dict) else {}
    kind = source.get("type")
    title, context = ([str(block[field])] if block.get(field) else [] for field in ("title", "context"))
    if kind in ("base64", "url"):
        for field in ("data", "media_type") if kind == "base64" else ("url",):
            if not isinstance(source.get(field), str) or not source[field]:
                refuse(f"{where}.source.{field}", "it is missing")
        check_data(source.get("data"), f"{where}.source.data", is_base64=True)
        return [*_texts(context), block]
    if block.get("type") == "document" and kind == "text" and isinstance(source.get("data"), str):
        return _texts(["\n\n".join([*title, *context, source["data"]])])
    if block.get("type") == "document" and kind == "content":
        content: Any = source.get("content")
        if isinstance(content, str):
            return _texts(["\n\n".join([*title, *context, content])])
        return [*_texts([*title, *context]), *(_INSIDE.carried(content, f"{where}.source.content") or [])]
    if kind == "file":
        told = "files kept at Anthropic cannot be read here; send the file itself, with source.type 'base64'"
        refuse(f"{where}.source.file_id", told)
    known = "'base64', 'url'" + (", 'text', 'content'" if block.get("type") == "document" else "")
    refuse(f"{where}.source.type", f"{kind!r} cannot be carried to the model; the types that can are {known}")


def _texts(texts: list[str]) -> list[JsonObject]:
    return [{"type": "text", "text": text} for text in texts]


def _found(block: JsonObject, where: str) -> list[JsonObject]:
    """A result of a search of the client's own, as the text that it is."""
    head = " ".join(str(block[field]) for field in ("title", "source") if block.get(field))
    return [*_texts([head] if head else []), *(_INSIDE.carried(block.get("content"), f"{where}.content") or [])]


def _result(block: JsonObject, where: str) -> list[JsonObject]:
    return [{**block, "content": _IN_RESULTS.carried(block.get("content"), f"{where}.content")}]


_INSIDE = PartTable("block", {"text": as_is, "image": _media}, _INDEX)
_SHOWN: Mapping[str, Carry] = {"text": as_is, "image": _media, "document": _media, "search_result": _found}
_IN_RESULTS = PartTable("block", _SHOWN, _INDEX)
_BLOCKS = PartTable("block", {
    **_SHOWN, "tool_use": as_is, "tool_result": _result, "thinking": as_is,
    "redacted_thinking": skipped,  # Only Anthropic can read it.
}, _INDEX)  # fmt: skip
"""The blocks of a message, and how each is carried."""
_INSTRUCTIONS = PartTable("block of an instruction", {"text": as_is}, _INDEX)


def messages_request_of(body: JsonObject, *, session: str | None) -> CompatRequest:
    """Read the body of a Messages request.

    Raises:
        UsageError: a part of it is not what it must be; the message says which.
    """
    if body.get("mcp_servers"):
        raise UsageError("mcp_servers: the service's own MCP servers are named where it is started, not in a request")
    contents, system = _history(body)
    definitions, built_in = _tools(body)
    settings, native = _settings(body)
    choice, is_single = _choice(body.get("tool_choice"))
    if is_single:
        settings["parallel_tool_calls"] = False
    return CompatRequest(
        model=body["model"],
        contents=contents,
        definitions=tuple(definitions),
        built_in=tuple(built_in),
        tool_choice=choice,
        system=system,
        settings=settings,
        native=native,
        stream=bool(body.get("stream")),
        session=session,
        is_silent=_is_silent(body["messages"][-1]),
    )


def _is_silent(newest: JsonObject) -> bool:
    content: Any = newest.get("content")
    if newest.get("role") != "user":
        return False
    if isinstance(content, str):
        return not content.strip()
    return all(block.get("type") == "text" and not str(block.get("text") or "").strip() for block in objects_in(content))


def _table(message: JsonObject) -> PartTable:
    return _INSTRUCTIONS if message.get("role") == "system" else _BLOCKS


def _check_results(messages: Sequence[JsonObject]) -> None:
    """Refuse a result without a call before it, or a second one: a model would not know what to do with it."""
    known = Counter[Any]()
    for number, message in enumerate(messages):
        for place, block in enumerate(objects_in(message.get("content"))):
            if block.get("type") == "tool_use":
                known[block.get("id")] += 1
            elif block.get("type") == "tool_result":
                id: Any = block.get("tool_use_id")
                if known[id] < 1:
                    where = f"messages.{number}.content.{place}.tool_use_id"
                    refuse(where, f"{str(id)[:100]!r} is no tool_use of a message before it without a result")
                known[id] -= 1


def _history(body: JsonObject) -> tuple[list[Content], str | None]:
    given: JsonObject = {
        "messages": [
            {**message, "content": _table(message).carried(message.get("content"), f"messages.{number}.content")}
            for number, message in enumerate(body["messages"])
        ]
    }
    _check_results(body["messages"])
    if body.get("system"):
        given["system"] = _INSTRUCTIONS.carried(body["system"], "system")
    with reading("", _INDEX):
        converted = convert(given, source="anthropic", target="gemini", kind="history")
    refuse_left_out(converted.losses, "", _INDEX)
    value: Any = converted.value
    incoming = read_request(cast("JsonObject", value) if isinstance(value, dict) else {"contents": value})
    return [with_names(content, converted.names) for content in incoming.contents], incoming.system


def _tools(body: JsonObject) -> tuple[list[ToolDefinition], list[JsonObject]]:
    """The tools that the client runs, and those that the model's own server runs."""
    own: list[JsonObject] = []
    built_in: list[JsonObject] = []
    for tool in objects_in(body.get("tools")):
        kind = str(tool.get("type") or "custom")
        if kind == "custom":
            own.append(tool)
            continue
        found = _HOSTED.fullmatch(kind)
        if found is None or found[1] not in _BUILT_IN:
            known = ", ".join(_BUILT_IN)
            raise UsageError(f"tools: {kind!r} is not to be had here; there are tools with an input_schema, and {known}")
        built_in.append({_BUILT_IN[found[1]]: {}})
    with reading("tools", _INDEX):
        return (definitions_from(own, "anthropic") if own else []), built_in


def _choice(given: Any) -> tuple[ToolChoice, bool]:
    """The choice, and whether there may be one call at a time only."""
    if given is None:
        return "auto", False
    choice = cast("JsonObject", given)
    kind, is_single = str(choice.get("type")), choice.get("disable_parallel_tool_use") is True
    if kind in _CHOICES:
        return _CHOICES[kind], is_single
    name = choice.get("name")
    if kind != "tool" or not isinstance(name, str) or not name:
        raise UsageError("tool_choice: its type is 'auto', 'any', 'none', or 'tool' with the name of a tool")
    return name, is_single


def _settings(body: JsonObject) -> tuple[JsonObject, JsonObject]:
    """The words that a request says as settings, and the fields that there is no word for."""
    settings: JsonObject = {}
    native: JsonObject = {}
    for field, value in body.items():
        if value is None or field in _READ or (field, value) == ("service_tier", "auto"):
            continue
        if field in _SETTINGS:
            settings[_SETTINGS[field]] = checked_setting(field, _SETTINGS[field], value)
        elif field == "metadata" and isinstance(value, dict) and {*cast("JsonObject", value)} <= {"user_id"}:
            settings |= {"user": value["user_id"]} if cast("JsonObject", value).get("user_id") else {}
        else:
            native[field] = value
    config = cast("JsonObject", body.get("output_config") or {})
    settings |= _thinking(cast("JsonObject", body.get("thinking") or {}), config.get("effort"))
    settings |= _format(config.get("format") or body.get("output_format"))
    return settings, native


def _thinking(thinking: JsonObject, effort: Any) -> JsonObject:
    if effort is not None:
        return {"thinking": effort if effort in _EFFORTS else "high"}
    if thinking.get("type") == "disabled":
        return {"thinking": "none"}
    budget: Any = thinking.get("budget_tokens")
    if thinking.get("type") != "enabled" or not isinstance(budget, int):
        return {}
    return {"thinking": next((level for most, level in _BUDGETS if budget < most), "high")}


def _format(given: Any) -> JsonObject:
    if given is None:
        return {}
    if not isinstance(given, dict) or cast("JsonObject", given).get("type") != "json_schema":
        raise UsageError("output_config: its format is of the type 'json_schema', with a schema")
    schema: Any = cast("JsonObject", given).get("schema") or {}
    return {"response_mime_type": "application/json", "response_json_schema": schema}
