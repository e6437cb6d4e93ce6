"""Anthropic's format: tools with `input_schema`, `tool_use` and `tool_result` blocks, and messages with system text.

Knows nothing of other formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, cast

from callgate.definitions import transfer
from callgate.definitions.format import Kind, WriteContext
from callgate.definitions.items import Blob, Call, HostedTool, Item, Message, Other, Result, ResultPart, Text, Thought, Tool
from callgate.definitions.json_node import Node, ShapeError
from callgate.definitions.names import NameRule
from callgate.types import JsonObject, ToolDefinition

TITLE = "Anthropic"
NAMES = NameRule(re.compile(r"[A-Za-z0-9_-]{1,64}"), re.compile(r"[^A-Za-z0-9_-]+"))
IDS = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REFUSED_AT_ROOT = ("anyOf", "oneOf", "allOf")
_BLOCKS = (
    "text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking", "search_result",
    "server_tool_use", "web_search_tool_result", "container_upload",
)  # fmt: skip
_HOSTED = re.compile(r"[a-z_]+_\d{8}|mcp_toolset")
_KEEPS = ("strict", "cache_control", "input_examples", "defer_loading", "allowed_callers", "eager_input_streaming")


def detect(obj: JsonObject) -> frozenset[Kind]:
    """Return the kinds that an object may be."""
    schema = obj.get("input_schema")
    if (
        isinstance(schema, dict)
        and isinstance(obj.get("name"), str)
        and [*cast("JsonObject", schema)] not in (["json"], ["schema"])
    ):
        return frozenset({"tool"})
    if "type" in obj and _HOSTED.fullmatch(str(obj["type"])) and isinstance(obj.get("name", ""), str):
        return frozenset({"tool"})
    if obj.get("type") in ("tool_use", "tool_result"):
        return frozenset({"call"} if obj["type"] == "tool_use" else {"result"})
    if obj.get("role") in ("user", "assistant") and "parts" not in obj and "tool_calls" not in obj:
        return frozenset({"history"} if _is_content(obj.get("content")) else ())
    entries = obj.get("messages")
    if isinstance(entries, list) and entries:
        fits = all(isinstance(entry, dict) and detect(cast("JsonObject", entry)) for entry in cast("list[Any]", entries))
        system = obj.get("system")
        return frozenset({"history"} if fits and _is_content("" if system is None else system) else ())
    return frozenset()


def _is_content(content: Any) -> bool:
    if isinstance(content, str):
        return True
    blocks = cast("list[Any]", content) if isinstance(content, list) else [None]
    return all(isinstance(block, dict) and cast("JsonObject", block).get("type") in _BLOCKS for block in blocks)


# Tools -------------------------------------------------------------------------------------------------------------------


def tools_from(node: Node) -> list[Tool | HostedTool]:
    """A tool of the user's own, or one that Anthropic defines, without a schema."""
    kind = node.find_text("type")
    if kind not in (None, "custom"):
        reason = f"a tool of type {kind!r} is Anthropic's own; only 'custom' can be converted"
        return [HostedTool(raw=node.object, keyword=kind, reason=reason, at=node.at)]
    definition = ToolDefinition(
        name=node.need_text("name"),
        description=node.find_text("description") or "",
        input_schema=transfer.schema_from(node.find("input_schema")),
    )
    return [Tool(definition=definition, at=node.at, extra=transfer.extra_of(node, {"strict": False}))]


def tools_to(tools: Sequence[Tool], out: WriteContext) -> list[Any]:
    """Tools as a request lists them."""
    return [_tool(tool, out) for tool in tools]


def _tool(tool: Tool, out: WriteContext) -> JsonObject:
    transfer.report_tool(tool, out, TITLE, keeps=_KEEPS)
    written: JsonObject = {"name": tool.definition.name}
    if tool.definition.description:
        written["description"] = tool.definition.description
    written["input_schema"] = transfer.schema_without_root_unions(tool, out, TITLE, _REFUSED_AT_ROOT)
    return written | {key: value for key, value in tool.extra.items() if key in _KEEPS}


# Calls and results -------------------------------------------------------------------------------------------------------


def calls_from(node: Node) -> list[Call]:
    """Read one `tool_use` block, or those of a message."""
    if "content" in node.object:
        return [call for block in _only("tool_use", node) for call in calls_from(block)]
    node.find("type")
    call = Call(
        name=node.need_text("name"), id=node.find_text("id"), at=node.at, **transfer.args_from(node.find("input"))
    )  # fmt: skip
    node.lose_unread(f"{TITLE}: only the name, the input and the id of a call are carried")
    return [call]


def calls_to(calls: Sequence[Call], out: WriteContext) -> list[Any]:
    """Calls as blocks."""
    return [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": transfer.args_to(transfer.unsigned(call, out), out)}
        for call in calls
    ]


def results_from(node: Node) -> list[Result]:
    """Read one `tool_result` block, or those of a message."""
    if "role" in node.object:
        return [result for block in _only("tool_result", node) for result in results_from(block)]
    node.find("type")
    flag = node.find("is_error")
    result = Result(
        id=node.find_text("tool_use_id"),
        is_error=flag is not None and flag.flag,
        parts=tuple(transfer.result_parts(node.find("content"), _block_of_result)),
        at=node.at,
    )
    node.lose_unread(f"{TITLE}: only the content, the id and the error flag of a result are carried")
    return [result]


def _block_of_result(block: Node) -> Iterator[ResultPart]:
    for part in _block(block):
        if isinstance(part, (Text, Blob, Other)):
            yield part
        else:  # A thought or a call has no place in a result elsewhere.
            yield Other(raw=block.object, keyword=block.need_text("type"), at=block.at)


def _only(kind: str, entry: Node) -> Iterator[Node]:
    """Return the blocks of one kind of a message; the others are reported as losses."""
    entry.find("role", "type")
    blocks = entry.find("content")
    entry.lose_unread(f"only the {kind} blocks are converted")
    if blocks is not None and isinstance(blocks.value, str):
        blocks.lose("content", f"only the {kind} blocks are converted")
        return
    for block in [] if blocks is None else blocks.items:
        named = block.need_text("type")
        if named == kind:
            yield block
        else:
            block.lose(named, f"only the {kind} blocks are converted")


def results_to(results: Sequence[Result], out: WriteContext) -> list[Any]:
    """Write results as blocks: a plain text, or the blocks of the result."""
    return [_result(result, out) for result in results]


def _result(result: Result, out: WriteContext) -> JsonObject:
    blocks = [block for part in result.parts for block in transfer.result_block(part, out, TITLE, _media_block)]
    blocks += [{"type": "text", "text": note} for note in transfer.notes_in_words(result, out, TITLE)]
    if result.name and not out.in_history:
        out.lose(result.at, "name", f"{TITLE}: a result names its call by the id alone")
    written: JsonObject = {"type": "tool_result", "tool_use_id": result.id}
    if blocks:
        written["content"] = blocks[0]["text"] if len(blocks) == 1 and blocks[0].get("type") == "text" else blocks
    return written | ({"is_error": True} if result.is_error else {})


# Histories ---------------------------------------------------------------------------------------------------------------


_SPEAKERS: Mapping[str, Literal["system", "user", "model"]] = {"user": "user", "assistant": "model", "system": "system"}
"""The roles of messages; an instruction may come in the middle of a conversation, too."""


def history_from(node: Node) -> list[Message]:
    """Read messages; in a request, with the system text."""
    messages: list[Message] = []
    entries = [node]
    if isinstance(node.value, list):
        entries = node.items
    elif (listed := node.find("messages")) is not None:
        if items := list(transfer.content_items(node.find("system"), _block)):
            messages.append(Message(role="system", items=tuple(items), at=f"{node.at}/system"))
        node.lose_unread("only the messages are converted")
        entries = listed.items
    return messages + [_message_from(entry) for entry in entries]


def _message_from(node: Node) -> Message:
    role = _SPEAKERS.get(named := node.need_text("role"))
    if role is None:
        raise ShapeError(node.at, f"there is no role {named!r}; the roles are 'user', 'assistant' and 'system'")
    items = tuple(transfer.content_items(node.need("content"), _block))
    node.find("type")
    node.lose_unread(f"{TITLE}: only the role and the content of a message are carried")
    return Message(role=role, items=items, at=node.at)


def _block(node: Node) -> Iterator[Item]:
    kind = node.need_text("type")
    if kind == "tool_use":
        yield from calls_from(node)
    elif kind == "tool_result":
        yield from results_from(node)
    elif kind == "text":
        yield Text(text=node.need_text("text"), at=node.at)
        node.lose_unread(f"{TITLE}: only the text of a block is carried")
    elif kind == "thinking":
        yield Thought(text=node.need_text("thinking"), signature=node.find_text("signature"), at=node.at)
        node.lose_unread(f"{TITLE}: only the text and the signature of a thought are carried")
    elif kind in ("image", "document") and (blob := _media(node)) is not None:
        yield blob
        node.lose_unread(f"{TITLE}: only the content of a block is carried")
    else:
        yield Other(raw=node.object, keyword=kind, at=node.at)


def _media(node: Node) -> Blob | None:
    source = node.need("source")
    name, kind = node.find_text("title"), source.need_text("type")
    default = "image/*" if node.value["type"] == "image" else "application/pdf"
    mime_type = source.find_text("media_type") or default
    if kind not in ("base64", "url"):
        return None
    data, uri = (source.need_text("data"), None) if kind == "base64" else (None, source.need_text("url"))
    source.lose_unread(f"{TITLE}: only the content of a block is carried")
    return Blob(mime_type=mime_type, data=data, uri=uri, name=name, at=node.at)


def history_to(messages: Sequence[Message], out: WriteContext) -> Any:
    """Write messages, with the system text if there is any."""
    system, messages = transfer.split_system(messages, out, TITLE)
    entries = [_message_to(message, out) for message in transfer.merged(messages, out, TITLE, strictly=False)]
    entries = [entry for entry in entries if entry["content"] or out.is_same]
    if not system:
        return entries
    texts = [text.text for text in system]
    return {
        "system": texts[0] if len(texts) == 1 else [{"type": "text", "text": text} for text in texts],
        "messages": entries,
    }


def _message_to(message: Message, out: WriteContext) -> JsonObject:
    items = transfer.supported_items(message, out, TITLE, (Text, Thought, Blob, Call, Result))
    # Results must come first in a message, or the request is refused.
    transfer.report_order(message, items, out, TITLE, Result)
    items.sort(key=lambda item: not isinstance(item, Result))
    blocks = [block for item in items for block in _block_to(item, message.role, out)]
    is_text = len(blocks) == 1 and [*blocks[0]] == ["type", "text"]
    return {"role": "user" if message.role == "user" else "assistant", "content": blocks[0]["text"] if is_text else blocks}


def _block_to(item: Item, role: str, out: WriteContext) -> Iterator[JsonObject]:
    if isinstance(item, Text):
        yield {"type": "text", "text": item.text}
    elif isinstance(item, Thought):
        if item.signature is None:
            # A thought that Anthropic did not sign is refused.
            out.lose(item.at, "thought", f"{TITLE}: only thoughts that it signed itself are accepted")
        else:
            yield {"type": "thinking", "thinking": item.text, "signature": item.signature}
    elif isinstance(item, Call):
        yield from calls_to([item], out)
    elif isinstance(item, Result):
        yield from results_to([item], out)
    elif isinstance(item, Blob):
        yield _media_block(item, out, role)
    else:
        yield item.raw


def _media_block(blob: Blob, out: WriteContext, role: str = "user") -> JsonObject:
    kind = "image" if blob.mime_type.startswith("image/") else "document"
    is_known = kind == "image" or blob.mime_type == "application/pdf"
    if role != "user" or not is_known or not transfer.can_be_fetched(blob, "http", "https"):
        stub = transfer.media_stub(blob, out, f"{TITLE}: no place for media of this type in a message of this role")
        return {"type": "text", "text": stub.text}
    if kind == "image":
        blob = transfer.unnamed(blob, out, TITLE)
    source: JsonObject = {"type": "url", "url": blob.uri}
    if blob.data is not None:
        source = {"type": "base64", "media_type": blob.mime_type, "data": transfer.standard_base64(blob.data)}
    return {"type": kind, "source": source} | ({"title": blob.name} if blob.name else {})
