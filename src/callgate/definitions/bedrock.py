"""Bedrock's variant of Amazon's format: `toolSpec`, and messages made of blocks, with system text.

Tools, tool uses and results are read as `amazon_q.py` reads them. Knows nothing of other formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from callgate.definitions import amazon_q, transfer
from callgate.definitions.format import Kind, WriteContext
from callgate.definitions.items import Blob, Call, Item, Message, Other, Result, Text, Thought, Tool, Value
from callgate.definitions.json_node import Node, ShapeError
from callgate.definitions.names import NameRule
from callgate.types import JsonObject

TITLE = "Bedrock"
NAMES = NameRule(re.compile(r"[A-Za-z0-9_-]{1,64}"), re.compile(r"[^A-Za-z0-9_-]+"))
IDS = re.compile(r"[A-Za-z0-9_-]{1,64}")
tools_from, calls_from, results_from = amazon_q.tools_from, amazon_q.calls_from, amazon_q.results_from
_BLOCKS = frozenset({
    "text", "image", "document", "video", "toolUse", "toolResult", "guardContent", "cachePoint", "reasoningContent",
    "citationsContent", "searchResult", "audio",
})  # fmt: skip


def detect(obj: JsonObject) -> frozenset[Kind]:
    """Return the kinds that an object may be."""
    if obj.get("role") in ("user", "assistant") and "parts" not in obj:
        return frozenset({"history"} if _is_content(obj.get("content")) else ())
    if len(obj) == 1 and {*obj} <= {*amazon_q.HOSTED}:
        return frozenset({"tool"})
    entries = obj.get("messages")
    if isinstance(entries, list) and entries:
        fits = all(isinstance(entry, dict) and detect(cast("JsonObject", entry)) for entry in cast("list[Any]", entries))
        return frozenset({"history"} if fits and _is_content(obj.get("system", [])) else ())
    return amazon_q.detect_pieces(obj) if "ToolSpecification" not in obj and "toolSpecification" not in obj else frozenset()


def _is_content(content: Any) -> bool:
    blocks = cast("list[Any]", content) if isinstance(content, list) else [None]
    return all(isinstance(block, dict) and _is_block(cast("JsonObject", block)) for block in blocks)


def _is_block(block: JsonObject) -> bool:
    return "type" not in block and len(_BLOCKS & {*block}) == 1


def tools_to(tools: Sequence[Tool], out: WriteContext) -> list[Any]:
    """Tools as a `toolConfig` lists them."""
    return [{"toolSpec": amazon_q.specification(tool, out, TITLE)} for tool in tools]


def tools_wrap(tools: list[Any]) -> JsonObject:
    """Wrap several tools in the format's list."""
    return {"tools": tools}


def calls_to(calls: Sequence[Call], out: WriteContext) -> list[Any]:
    """Tool uses as blocks."""
    return [{"toolUse": use} for use in amazon_q.calls_to(calls, out)]


def results_to(results: Sequence[Result], out: WriteContext) -> list[Any]:
    """Tool results as blocks."""
    return [{"toolResult": amazon_q.result_body(result, [*_result_blocks(result, out)], out, TITLE)} for result in results]


def _result_blocks(result: Result, out: WriteContext) -> Iterator[JsonObject]:
    for part in result.parts:
        if isinstance(part, Blob):
            yield _media_block(part, out)
        elif isinstance(part, Value):
            yield {"json": part.value}
        elif isinstance(part, Other) and out.is_same:
            yield part.raw
        elif (text := transfer.in_words(part, out, TITLE)) is not None:
            yield {"text": text.text}


def history_from(node: Node) -> list[Message]:
    """Read messages; in a request, with the system text."""
    messages: list[Message] = []
    entries = [node]
    if isinstance(node.value, list):
        entries = node.items
    elif (listed := node.find("messages")) is not None:
        if items := [item for block in node.find_items("system") for item in _block(block)]:
            messages.append(Message(role="system", items=tuple(items), at=f"{node.at}/system"))
        node.lose_unread("only the messages are converted")
        entries = listed.items
    return messages + [_message_from(entry) for entry in entries]


def _message_from(node: Node) -> Message:
    role = node.need_text("role")
    if role not in ("user", "assistant"):
        raise ShapeError(node.at, f"there is no role {role!r}; the roles are 'user' and 'assistant'")
    items = tuple(item for block in node.need("content").items for item in _block(block))
    node.lose_unread(f"{TITLE}: only the role and the content of a message are carried")
    return Message(role="user" if role == "user" else "model", items=items, at=node.at)


def _block(node: Node) -> Iterator[Item]:
    if (text := node.find("text")) is not None:
        yield Text(text=text.text, at=node.at)
    elif "toolUse" in node.object:
        yield from calls_from(node)
    elif "toolResult" in node.object:
        yield from results_from(node)
    elif (reasoning := node.find("reasoningContent")) is not None and (said := reasoning.find("reasoningText")) is not None:
        yield Thought(text=said.need_text("text"), signature=said.find_text("signature"), at=node.at)
        for holder in (said, reasoning):
            holder.lose_unread(f"{TITLE}: only the text and the signature of a thought are carried")
    else:
        found = amazon_q.content_block(node)
        yield found
        if isinstance(found, Other):
            return
    node.lose_unread(f"{TITLE}: only the content of a block is carried")


def history_to(messages: Sequence[Message], out: WriteContext) -> Any:
    """Write messages, with the system text if there is any."""
    system, messages = transfer.split_system(messages, out, TITLE)
    entries = [_message_to(message, out) for message in transfer.merged(messages, out, TITLE, strictly=True)]
    entries = [entry for entry in entries if entry["content"] or out.is_same]
    return {"system": [{"text": text.text} for text in system], "messages": entries} if system else entries


def _message_to(message: Message, out: WriteContext) -> JsonObject:
    items = transfer.supported_items(message, out, TITLE, (Text, Thought, Blob, Call, Result))
    blocks = [block for item in items for block in _block_to(item, message.role, out)]
    return {"role": "user" if message.role == "user" else "assistant", "content": blocks}


def _block_to(item: Item, role: str, out: WriteContext) -> Iterator[JsonObject]:
    if isinstance(item, Text):
        yield {"text": item.text}
    elif isinstance(item, Thought):
        if item.signature is None:
            out.lose(item.at, "thought", f"{TITLE}: only thoughts that it signed itself are accepted")
        else:
            yield {"reasoningContent": {"reasoningText": {"text": item.text, "signature": item.signature}}}
    elif isinstance(item, Call):
        yield from calls_to([item], out)
    elif isinstance(item, Result):
        yield from results_to([item], out)
    elif isinstance(item, Blob):
        yield _media_block(item, out, role)
    else:
        yield item.raw


def _media_block(blob: Blob, out: WriteContext, role: str = "user") -> JsonObject:
    named = next((named for named, mime in transfer.MIME_TYPES.items() if mime == blob.mime_type and named != "jpg"), None)
    if named is None or not transfer.can_be_fetched(blob, "s3") or role != "user":
        reason = f"{TITLE}: no place for media of this type in a message of this role"
        return {"text": transfer.media_stub(blob, out, reason).text}
    source = amazon_q.source_of(blob)
    if blob.mime_type.startswith("image/"):
        transfer.unnamed(blob, out, TITLE)
        return {"image": {"format": named, "source": source}}
    return {"document": {"format": named, "name": blob.name or "document", "source": source}}
