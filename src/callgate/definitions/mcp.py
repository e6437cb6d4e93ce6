"""MCP's format: tools with their annotations, parameters of `tools/call`, and its results.

Reads plain objects and the JSON-RPC messages around them. MCP has no histories. Knows nothing of connections.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from callgate.definitions import transfer
from callgate.definitions.format import Kind, WriteContext
from callgate.definitions.items import Blob, Call, Other, Result, ResultPart, Text, Tool, Value
from callgate.definitions.json_node import Node, pointer
from callgate.definitions.names import NameRule
from callgate.types import JsonObject, ToolDefinition

TITLE = "MCP"
NAMES = NameRule(re.compile(r"[A-Za-z0-9_.-]{1,128}"), re.compile(r"[^A-Za-z0-9_.-]+"), chars_max=128)
_BLOCKS = ("text", "image", "audio", "resource", "resource_link")
_HINTS = {"readOnlyHint": "read_only", "idempotentHint": "idempotent"}
_KEEPS = (
    "annotations/destructiveHint", "annotations/openWorldHint", "annotations/title", "icons", "_meta", "execution",
)  # fmt: skip
_PLACES = {
    "input_schema": "/inputSchema", "output_schema": "/outputSchema",
    **{field: f"/annotations/{hint}" for hint, field in _HINTS.items()},
}  # fmt: skip


def detect(obj: JsonObject) -> frozenset[Kind]:
    """Return the kinds that an object may be."""
    if "role" in obj or "type" in obj:
        return frozenset()
    if obj.get("method") == "tools/call":
        return frozenset({"call"})
    if isinstance(obj.get("name"), str):
        schema = obj.get("inputSchema")
        if isinstance(schema, dict) and [*cast("JsonObject", schema)] != ["json"]:
            return frozenset({"tool"})
        return frozenset(
            {"call"} if isinstance(obj.get("arguments"), dict) and {*obj} <= {"name", "arguments", "_meta"} else ()
        )
    inner: Any = obj.get("result", obj) if "jsonrpc" in obj else obj
    return frozenset({"result"} if isinstance(inner, dict) and _is_result(cast("JsonObject", inner)) else ())


def _is_result(obj: JsonObject) -> bool:
    content = obj.get("content")
    if not isinstance(content, list) or not {*obj} <= {"content", "structuredContent", "isError", "_meta"}:
        return False
    blocks = cast("list[Any]", content)
    return all(isinstance(block, dict) and cast("JsonObject", block).get("type") in _BLOCKS for block in blocks)


# Tools -------------------------------------------------------------------------------------------------------------------


def tools_from(node: Node) -> list[Tool]:
    """Read a tool. The read-only and idempotent hints become fields of the definition; other hints are extras."""
    hints = node.find("annotations")
    flags = {field: hints.find(hint) for hint, field in _HINTS.items()} if hints is not None else {}
    said = {field: flag.flag for field, flag in flags.items() if flag is not None}
    title, places = node.find_text("title"), _PLACES
    if hints is not None and title is None and (title := hints.find_text("title")) is not None:
        places = {**_PLACES, "title": "/annotations/title"}
    output = node.find("outputSchema")
    definition = ToolDefinition(
        name=node.need_text("name"),
        description=node.find_text("description") or "",
        input_schema=transfer.schema_from(node.find("inputSchema")),
        output_schema=None if output is None else output.object,
        title=title,
        kind="mcp",
        read_only=said.get("read_only", False),
        idempotent=said.get("idempotent", False),
    )
    beside = {} if hints is None else {f"annotations/{key}": value for key, value in transfer.extra_of(hints).items()}
    return [Tool(definition=definition, at=node.at, extra=beside | transfer.extra_of(node), places=places)]


def tools_to(tools: Sequence[Tool], out: WriteContext) -> list[Any]:
    """Tools as a server lists them."""
    return [_tool(tool, out) for tool in tools]


def _tool(tool: Tool, out: WriteContext) -> JsonObject:
    definition = tool.definition
    transfer.report_tool(tool, out, TITLE, says=("title", "output_schema", "read_only", "idempotent"), keeps=_KEEPS)
    written: JsonObject = {"name": definition.name}
    if definition.title:
        written["title"] = definition.title
    if definition.description:
        written["description"] = definition.description
    written["inputSchema"] = transfer.tool_schema(tool, out, TITLE)
    if definition.output_schema is not None:
        written["outputSchema"] = definition.output_schema
    hints = {hint: True for hint, field in _HINTS.items() if getattr(definition, field)}
    kept = {key: value for key, value in tool.extra.items() if key in _KEEPS}
    hints |= {key.removeprefix("annotations/"): value for key, value in kept.items() if key.startswith("annotations/")}
    if hints:
        written["annotations"] = hints
    return written | {key: value for key, value in kept.items() if "/" not in key}


def tools_wrap(tools: list[Any]) -> JsonObject:
    """Wrap several tools in the format's list."""
    return {"tools": tools}


# Calls and results -------------------------------------------------------------------------------------------------------


def calls_from(node: Node) -> list[Call]:
    """The parameters of `tools/call`, or the request around them."""
    inner = node.find("params") or node
    call_id = node.find("id") if inner is not node else None
    call = Call(
        name=inner.need_text("name"),
        id=None if call_id is None else str(call_id.value),
        at=node.at,
        **transfer.args_from(inner.find("arguments")),
    )
    inner.lose_unread(f"{TITLE}: only the name and the arguments of a call are carried")
    if inner is not node:
        node.lose_unread(f"{TITLE}: only the parameters of a request are carried", but=("jsonrpc", "method"))
    return [call]


def calls_to(calls: Sequence[Call], out: WriteContext) -> list[Any]:
    """Parameters of `tools/call`. The id of a call is that of the request that carries it."""
    for call in calls:
        if call.id is not None:
            out.lose(call.at, "id", f"{TITLE}: the id belongs to the request, not to its parameters")
    return [{"name": call.name, "arguments": transfer.args_to(transfer.unsigned(call, out), out)} for call in calls]


def results_from(node: Node) -> list[Result]:
    """A result, or the answer around it. Text that only repeats the structured value is not carried twice."""
    inner = node.find("result") or node
    call_id = node.find("id") if inner is not node else None
    flag = inner.find("isError")
    structured = inner.find("structuredContent")
    parts: list[ResultPart] = [] if structured is None else [Value(value=structured.object, at=structured.at)]
    said = [part for block in inner.find_items("content") for part in _block(block)]
    parts += [part for part in said if structured is None or not _repeats(part, structured.value)]
    inner.lose_unread(f"{TITLE}: only the content and the error flag of a result are carried")
    if inner is not node:
        node.lose_unread(f"{TITLE}: only the result of an answer is carried", but=("jsonrpc",))
    return [
        Result(
            id=None if call_id is None else str(call_id.value),
            is_error=flag is not None and flag.flag,
            parts=tuple(parts),
            at=node.at,
        )
    ]


def _repeats(part: ResultPart, value: Any) -> bool:
    said = transfer.json_or_text(part.text.strip(), "") if isinstance(part, Text) else None
    return isinstance(said, Value) and said.value == value


def _block(node: Node) -> Iterator[ResultPart]:
    kind = node.need_text("type")
    if kind == "text":
        yield Text(text=node.need_text("text"), at=node.at)
    elif kind in ("image", "audio"):
        yield Blob(mime_type=node.need_text("mimeType"), data=node.need_text("data"), at=node.at)
    elif kind == "resource" and (blob := node.need("resource").find("blob")) is not None:
        resource = node.need("resource")
        mime_type = resource.find_text("mimeType") or "application/octet-stream"
        yield Blob(mime_type=mime_type, data=blob.text, name=resource.find_text("uri"), at=node.at)
        resource.find("blob")
        resource.lose_unread(f"{TITLE}: only the bytes of a resource are carried")
    elif kind == "resource" and (text := node.need("resource").find("text")) is not None:
        resource = node.need("resource")
        resource.find("text")
        yield Text(text=text.text, at=node.at)
        resource.lose_unread(f"{TITLE}: only the text of a resource is carried")
    else:
        yield Other(raw=node.object, keyword=kind, at=node.at)
        return
    node.lose_unread(f"{TITLE}: only the content of a block is carried")


def results_to(results: Sequence[Result], out: WriteContext) -> list[Any]:
    """Write results. An object is structured content, with its text for clients that know only text."""
    return [_result(result, out) for result in results]


def _result(result: Result, out: WriteContext) -> JsonObject:
    for field in ("id", "name"):
        if getattr(result, field):
            out.lose(result.at, field, f"{TITLE}: a result says nothing of its call; the answer that carries it does")
    values: list[Any] = [part.value for part in result.parts if isinstance(part, Value)]
    structured = next((cast("JsonObject", value) for value in values if isinstance(value, dict)), None)
    content: list[JsonObject] = []
    for part in result.parts:
        if isinstance(part, Value) and part.value is not structured and isinstance(part.value, (dict, list)):
            out.lose(part.at, "json", f"{TITLE}: structured content is one object", "written as JSON text")
        content += transfer.result_block(part, out, TITLE, _media_block)
    content += [{"type": "text", "text": note} for note in transfer.notes_in_words(result, out, TITLE)]
    written: JsonObject = {"content": content}
    if structured is not None:
        written["structuredContent"] = structured
    return written | ({"isError": True} if result.is_error else {})


def _media_block(blob: Blob, out: WriteContext) -> JsonObject:
    kind = blob.mime_type.partition("/")[0]
    if blob.data is None:
        link: JsonObject = {"type": "resource_link", "uri": blob.uri, "name": blob.name or blob.uri}
        return link | ({} if blob.mime_type.endswith("/*") else {"mimeType": blob.mime_type})
    data = transfer.standard_base64(blob.data)
    if kind in ("image", "audio"):
        transfer.unnamed(blob, out, TITLE)
        return {"type": kind, "data": data, "mimeType": blob.mime_type}
    uri = blob.name if blob.name and ":" in blob.name else pointer("resource:", blob.name or "media")
    return {"type": "resource", "resource": {"uri": uri, "mimeType": blob.mime_type, "blob": data}}
