"""OpenAI's format: tools with and without their wrapper, tool calls, `role: tool` messages, and chat or response histories.

Writes chat completions; reads the items of the Responses API as well. Knows nothing of other formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, cast

from callgate.definitions import transfer
from callgate.definitions.format import Kind, WriteContext
from callgate.definitions.items import Blob, Call, HostedTool, Message, Other, Result, Text, Tool
from callgate.definitions.json_node import Node, ShapeError
from callgate.definitions.names import NameRule
from callgate.types import JsonObject, ToolDefinition

TITLE = "OpenAI"
NAMES = NameRule(re.compile(r"[A-Za-z0-9_-]{1,64}"), re.compile(r"[^A-Za-z0-9_-]+"))
IDS = re.compile(r"[\x21-\x7e]{1,40}")
_REFUSED_AT_ROOT = ("anyOf", "oneOf", "allOf", "enum", "const", "not")
_SPEAKERS: dict[str, Literal["system", "user", "model"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "model",
}
_ROLES = (*_SPEAKERS, "tool", "function")
_BLOCKS = (
    "text", "image_url", "input_audio", "file", "refusal", "input_text", "output_text", "input_image", "input_file",
)  # fmt: skip
_ITEMS: dict[str, frozenset[Kind]] = {
    "custom_tool_call": frozenset({"call", "history"}),
    "custom_tool_call_output": frozenset({"result", "history"}),
    "function_call": frozenset({"call", "history"}),
    "function_call_output": frozenset({"result", "history"}),
    "reasoning": frozenset({"history"}),
    "message": frozenset({"history"}),
}
_HOSTED = frozenset({
    "apply_patch", "code_interpreter", "computer", "computer_use_preview", "file_search", "image_generation", "local_shell",
    "mcp", "shell", "tool_search", "web_search", "web_search_preview",
})  # fmt: skip
_BARE = frozenset({"name", "description", "parameters", "strict"})
_AUDIO = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_SOUNDS = {
    "audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/vnd.wave": "wav",
    "audio/mpeg": "mp3", "audio/mp3": "mp3", "audio/x-mp3": "mp3", "audio/mpeg3": "mp3",
}  # fmt: skip
"""Media types in use -> the format of a sound."""
_ERROR_MARK = "Error: "


def detect(obj: JsonObject) -> frozenset[Kind]:
    """Return the kinds that an object may be."""
    kind = obj.get("type")
    wrapped: Any = obj.get("function")
    # Ollama leaves the type out.
    if kind == "function" or (kind is None and isinstance(wrapped, dict) and "name" in wrapped):
        inner: Any = obj.get("function", obj)
        return frozenset({"call"} if isinstance(inner, dict) and "arguments" in inner else {"tool"})
    if isinstance(kind, str) and kind in _ITEMS:
        return _ITEMS[kind]
    if isinstance(kind, str) and kind in _HOSTED:
        return frozenset({"tool"})
    if kind == "custom":
        return _detect_custom(obj)
    if obj.get("role") in _ROLES and "parts" not in obj and _is_content(obj.get("content")):
        return frozenset({"result", "history"} if obj["role"] in ("tool", "function") else {"history"})
    for key in ("messages", "input"):
        if isinstance(obj.get(key), list):
            return _detect_all(cast("list[Any]", obj[key])) if "system" not in obj else frozenset()
    if isinstance(obj.get("choices"), list):
        return frozenset({"history"})
    return frozenset({"tool"} if _is_bare_tool(obj) else ())


def _detect_custom(obj: JsonObject) -> frozenset[Kind]:
    """Tell tools and calls that take plain text apart. Tools of Anthropic may have the same type, and a schema."""
    inner: Any = obj.get("custom", obj)
    if not isinstance(inner, dict) or "name" not in inner or "input_schema" in obj:
        return frozenset()
    return frozenset({"call"} if "input" in inner else {"tool"})


def _detect_all(entries: list[Any]) -> frozenset[Kind]:
    fits = all(isinstance(entry, dict) and "history" in detect(cast("JsonObject", entry)) for entry in entries)
    return frozenset({"history"} if fits and entries else ())


def _is_content(content: Any) -> bool:
    if content is None or isinstance(content, str):
        return True
    blocks = cast("list[Any]", content) if isinstance(content, list) else [None]
    return all(isinstance(block, dict) and cast("JsonObject", block).get("type") in _BLOCKS for block in blocks)


def _is_bare_tool(obj: JsonObject) -> bool:
    parameters = obj.get("parameters")
    if not isinstance(obj.get("name"), str) or not _BARE.issuperset(obj):
        return False
    if isinstance(parameters, dict):
        kind = cast("JsonObject", parameters).get("type", "object")
        return not isinstance(kind, str) or kind.islower()
    return parameters is None and "description" in obj


# Tools -------------------------------------------------------------------------------------------------------------------


def tools_from(node: Node) -> list[Tool | HostedTool]:
    """A tool with its wrapper, without it, or as the Responses API has it; or one that runs at OpenAI."""
    kind = node.find_text("type")
    if kind == "custom":
        return [_custom_tool(node)]
    if kind not in (None, "function"):
        reason = f"a tool of type {kind!r} runs at OpenAI; only 'function' and 'custom' can be converted"
        return [HostedTool(raw=node.object, keyword=kind, reason=reason, at=node.at)]
    inner = node.find("function") or node
    parameters = inner.find("parameters")
    definition = ToolDefinition(
        name=inner.need_text("name"),
        description=inner.find_text("description") or "",
        input_schema=transfer.schema_from(parameters),
    )
    places = {} if parameters is None else {"input_schema": parameters.at.removeprefix(node.at)}
    extra = transfer.extra_of(inner, {"strict": False})
    if inner is not node:
        extra = {f"function/{key}": value for key, value in extra.items()} | transfer.extra_of(node, {"strict": False})
    strict = next((key for key in ("function/strict", "strict") if key in extra), None)
    if strict is not None:
        extra["strict"] = extra.pop(strict)
        places["strict"] = f"/{strict}"
    return [Tool(definition=definition, at=node.at, extra=extra, places=places)]


def _custom_tool(node: Node) -> Tool:
    """A tool that takes plain text: elsewhere a function with that text as its argument `input`, as in its calls."""
    inner = node.find("custom") or node
    definition = ToolDefinition(
        name=inner.need_text("name"),
        description=inner.find_text("description") or "",
        input_schema={"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
    )
    kind = "custom" if inner is not node else "type"
    return Tool(definition=definition, at=node.at, extra={kind: node.object} | transfer.extra_of(node))


def tools_to(tools: Sequence[Tool], out: WriteContext) -> list[Any]:
    """Tools for chat completions."""
    return [_tool(tool, out) for tool in tools]


def _tool(tool: Tool, out: WriteContext) -> JsonObject:
    raw = tool.extra.get("custom", tool.extra.get("type")) if out.is_same else None
    if isinstance(raw, dict):
        return cast("JsonObject", raw)
    transfer.report_tool(tool, out, TITLE, keeps=("strict",))
    function: JsonObject = {"name": tool.definition.name}
    if tool.definition.description:
        function["description"] = tool.definition.description
    function["parameters"] = transfer.schema_without_root_unions(tool, out, TITLE, _REFUSED_AT_ROOT)
    if "strict" in tool.extra:
        function["strict"] = tool.extra["strict"]
    return {"type": "function", "function": function}


# Calls and results -------------------------------------------------------------------------------------------------------


def calls_from(node: Node) -> list[Call]:
    """Read one call, or those of a message, of a response or of its choice."""
    for key in ("choices", "tool_calls", "output"):
        if (listed := node.find(key)) is not None:
            node.find("role", "object", "index")
            node.lose_unread("only the calls are converted")
            return [call for item in listed.items for call in calls_from(item)]
    if (inside := node.find("message")) is not None:
        node.find("index")
        node.lose_unread("only the calls are converted")
        return calls_from(inside)
    if node.find("role") is not None and node.find("function_call") is None:
        node.lose_unread("only the calls are converted")
        return []
    call = _call(node)
    return [] if call is None else [call]


def _call(node: Node) -> Call | None:
    kind = node.find_text("type")
    if kind in ("custom", "custom_tool_call"):
        return _custom_call(node)
    inner = node.find("function", "function_call") or node
    if kind not in (None, "function", "function_call"):
        node.lose(kind, f"{TITLE}: a call of this type is made at OpenAI, and nowhere else")
        return None
    call = Call(
        name=inner.need_text("name"),
        id=node.find_text("call_id" if "call_id" in node.object else "id"),
        at=node.at,
        **transfer.args_from(inner.find("arguments")),
    )
    node.lose_unread(f"{TITLE}: only the name, the arguments and the id of a call are carried")
    if inner is not node:
        inner.lose_unread(f"{TITLE}: only the name, the arguments and the id of a call are carried")
    return call


def _custom_call(node: Node) -> Call:
    """The call of a tool that takes plain text."""
    inner = node.find("custom") or node
    name, text = inner.need_text("name"), inner.find_text("input") or ""
    call_id = node.find_text("call_id" if "call_id" in node.object else "id")
    for read in (node, inner) if inner is not node else (node,):
        read.lose_unread(f"{TITLE}: only the name, the input and the id of a call are carried")
    return Call(name=name, args={"input": text}, raw=text, is_custom=True, id=call_id, at=node.at)


def calls_to(calls: Sequence[Call], out: WriteContext) -> list[Any]:
    """Calls as a message of the assistant lists them."""
    return [_call_to(transfer.unsigned(call, out)) for call in calls]


def _call_to(call: Call) -> JsonObject:
    if call.is_custom:
        return {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": call.raw}}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": transfer.args_text(call)}}


def results_from(node: Node) -> list[Result]:
    """A `role: tool` message, or an output of the Responses API."""
    node.find("role", "type")
    found = Result(
        id=node.find_text("tool_call_id", "call_id"),
        name=node.find_text("name"),
        parts=tuple(transfer.result_parts(node.find("content", "output"), _block)),
        at=node.at,
    )
    node.lose_unread(f"{TITLE}: only the content and the id of a result are carried")
    return [found]


def results_to(results: Sequence[Result], out: WriteContext) -> list[Any]:
    """Write results as messages. There is no error flag, so an error's text is marked."""
    return [_result(result, out) for result in results]


def _result(result: Result, out: WriteContext) -> JsonObject:
    text = transfer.text_of_parts(result, out, TITLE)
    if result.is_error:
        out.lose(result.at, "is_error", f"{TITLE}: a result has no error flag", f"the text begins with {_ERROR_MARK!r}")
        text = _ERROR_MARK + text
    if result.name and not out.in_history:
        out.lose(result.at, "name", f"{TITLE}: a result names its call by the id alone")
    return {"role": "tool", "tool_call_id": result.id, "content": text}


# Histories ---------------------------------------------------------------------------------------------------------------


def history_from(node: Node) -> list[Message]:
    """Read messages, or items of the Responses API; also inside a request, or a single response."""
    messages: list[Message] = []
    if isinstance(node.value, dict):
        if instructions := node.find("instructions"):
            messages.append(
                Message(role="system", items=(Text(text=instructions.text, at=instructions.at),), at=instructions.at)
            )
        listed = node.find("messages", "input", "choices", "output")
        if listed is not None:
            node.lose_unread("only the messages are converted")
        entries = [node] if listed is None else listed.items
    else:
        entries = node.items
    for entry in entries:
        message = _message_from(_message_in(entry))
        last = messages[-1] if messages else None
        if last is not None and _continues(last, message):
            messages[-1] = Message(role=last.role, items=(*last.items, *message.items), at=last.at)
        else:
            messages.append(message)
    return messages


def _message_in(node: Node) -> Node:
    """Return a message, or the one of a choice."""
    entry = node.find("message")
    if entry is None:
        return node
    node.find("index")
    node.lose_unread("only the message of a choice is converted")
    return entry


def _continues(last: Message, message: Message) -> bool:
    """True if a message continues the previous one: results of one turn do, and the items of one response."""
    if last.role != message.role or not message.items:
        return False
    if message.role == "user":
        return all(isinstance(item, Result) for item in (*last.items, *message.items))
    return message.role == "model" and isinstance(message.items[-1], Call) and message.at.count("/") == last.at.count("/")


def _message_from(node: Node) -> Message:
    kind = node.find_text("type")
    if kind in ("function_call", "custom_tool_call"):
        return Message(role="model", items=tuple(calls_from(node)), at=node.at)
    if kind in ("function_call_output", "custom_tool_call_output"):
        return Message(role="user", items=tuple(results_from(node)), at=node.at)
    if kind not in (None, "message"):
        role = "model" if kind == "reasoning" else "user"
        return Message(role=role, items=(Other(raw=node.object, keyword=kind, at=node.at),), at=node.at)
    role = node.need_text("role")
    if role in ("tool", "function"):
        return Message(role="user", items=tuple(results_from(node)), at=node.at)
    if role not in _ROLES:
        raise ShapeError(node.at, f"there is no role {role!r}; the roles are {', '.join(sorted(_ROLES))}")
    items = [*transfer.content_items(node.find("content"), _block)]
    if (refusal := node.find("refusal")) is not None:
        items.append(_refused(refusal))
    items += [call for item in node.find_items("tool_calls") if (call := _call(item)) is not None]
    if (legacy := node.find("function_call")) is not None:
        items.append(Call(name=legacy.need_text("name"), at=legacy.at, **transfer.args_from(legacy.find("arguments"))))
        legacy.lose_unread(f"{TITLE}: only the name and the arguments of a call are carried")
    node.lose_unread(f"{TITLE}: only the role, the content and the calls of a message are carried")
    return Message(role=_SPEAKERS[role], items=tuple(items), at=node.at)


def _refused(node: Node) -> Text:
    node.lose("refusal", "only OpenAI tells a refusal from an answer", "carried as text")
    return Text(text=node.text, at=node.at, is_refusal=True)


def _block(node: Node) -> Iterator[Text | Blob | Other]:
    kind = node.need_text("type")
    if kind in ("text", "input_text", "output_text"):
        yield Text(text=node.need_text("text"), at=node.at)
    elif kind == "refusal":
        yield _refused(node.need("refusal"))
    elif kind in ("image_url", "input_image"):
        place = node.need("image_url")
        yield transfer.blob_from_url(place.text if isinstance(place.value, str) else place.need_text("url"), node.at)
        if isinstance(place.value, dict):
            place.lose_unread(f"{TITLE}: only the image itself is carried")
    elif kind == "input_audio":
        audio = node.need("input_audio")
        named = audio.need_text("format")
        yield Blob(mime_type=_AUDIO.get(named, f"audio/{named}"), data=audio.need_text("data"), at=node.at)
        audio.lose_unread(f"{TITLE}: only the sound itself is carried")
    elif kind in ("file", "input_file") and (file := node.find("file") or node).find("file_data", "file_url") is not None:
        node.find("filename")
        yield _file(file, node.at)
        if file is not node:
            file.lose_unread(f"{TITLE}: only the file itself is carried")
    else:
        yield Other(raw=node.object, keyword=kind, at=node.at)
        return
    node.lose_unread(f"{TITLE}: only the content of a block is carried")


def _file(node: Node, at: str) -> Blob:
    """A file: its bytes, in a data URL or bare, or its address."""
    name = node.find_text("filename")
    mime_type = transfer.mime_type_of(name or "", "application/pdf")
    data = node.find_text("file_data")
    if data and not re.match(r"[a-z][a-z0-9+.-]*:", data):
        return Blob(mime_type=mime_type, data=data, name=name, at=at)
    return transfer.blob_from_url(data or node.need_text("file_url"), at, mime_type=mime_type, name=name)


def history_to(messages: Sequence[Message], out: WriteContext) -> Any:
    """Messages of a chat completion."""
    return [entry for message in messages for entry in _messages_to(message, out)]


def _messages_to(message: Message, out: WriteContext) -> Iterator[JsonObject]:
    items = transfer.supported_items(message, out, TITLE, (Text, Blob, Call, Result))
    transfer.report_order(message, items, out, TITLE, Result, (Text, Blob, Other), Call)
    results = [item for item in items if isinstance(item, Result)]
    yield from results_to(results, out)
    calls = [item for item in items if isinstance(item, Call)]
    items = [item for item in items if not isinstance(item, Other) or _has_block(item, out)]
    refusal = next((item for item in items if isinstance(item, Text) and _is_field(item, out)), None)
    said = [item for item in items if isinstance(item, (Text, Blob, Other)) and item is not refusal]
    blocks = [_block_to(item, message.role, out) for item in said]
    if not blocks and not calls and (results or not out.is_same):
        return
    entry: JsonObject = {"role": {"model": "assistant"}.get(message.role, message.role), "content": _content(blocks)}
    entry |= {"refusal": refusal.text} if refusal is not None else {}
    yield entry | ({"tool_calls": calls_to(calls, out)} if calls else {})


def _is_field(item: Text, out: WriteContext) -> bool:
    """True if a refusal was in a field of its own."""
    return item.is_refusal and out.is_same and "/content/" not in item.at


def _has_block(item: Other, out: WriteContext) -> bool:
    """True if chat completions have the block too; the Responses API has more of them."""
    if item.keyword in ("file", "input_audio"):
        return True
    out.lose(item.at, item.keyword, f"{TITLE}: a chat completion has no such block")
    return False


def _content(blocks: list[JsonObject]) -> Any:
    if not blocks:
        return None
    return blocks[0]["text"] if len(blocks) == 1 and blocks[0].get("type") == "text" else blocks


def _block_to(item: Text | Blob | Other, role: str, out: WriteContext) -> JsonObject:
    if isinstance(item, Other):
        return item.raw
    if isinstance(item, Blob):
        block = _media_block(item, out) if role == "user" else None
        if block is not None:
            return block
        item = transfer.media_stub(item, out, f"{TITLE}: no place for media of this type in a message of this role")
    if item.is_refusal and out.is_same:
        return {"type": "refusal", "refusal": item.text}
    return {"type": "text", "text": item.text}


def _media_block(blob: Blob, out: WriteContext) -> JsonObject | None:
    block = media_block(blob)
    if block is not None and block["type"] != "file":
        transfer.unnamed(blob, out, TITLE)
    return block


def media_block(blob: Blob) -> JsonObject | None:
    """The block that shows an image, a sound or a PDF to the model; None for other media, and for what cannot be fetched."""
    kind = blob.mime_type.partition(";")[0].strip().lower()
    audio = _SOUNDS.get(kind)
    if kind.startswith("image/") and transfer.can_be_fetched(blob, "http", "https"):
        return {"type": "image_url", "image_url": {"url": transfer.data_url(blob)}}
    if blob.data is not None and audio is not None:
        return {"type": "input_audio", "input_audio": {"data": transfer.standard_base64(blob.data), "format": audio}}
    if blob.data is not None and kind == "application/pdf":
        named = {"filename": blob.name} if blob.name else {}
        return {"type": "file", "file": named | {"file_data": transfer.data_url(blob)}}
    return None
