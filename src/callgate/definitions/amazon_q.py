"""The format of Amazon Q CLI and Bedrock: tool specifications, tool uses, tool results and conversations.

Reads every spelling in use: camelCase and snake_case, wrapped and bare, the CLI's index of tools and its saved
conversations. Writes what Q's service accepts; `bedrock.py` writes Bedrock's variant.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from callgate.definitions import transfer
from callgate.definitions.format import Kind, WriteContext
from callgate.definitions.items import (
    Blob,
    Call,
    HostedTool,
    Item,
    Message,
    Other,
    Result,
    ResultPart,
    Text,
    Thought,
    Tool,
    Value,
)
from callgate.definitions.json_node import Node, ShapeError, pointer
from callgate.definitions.names import NameRule
from callgate.types import JsonObject, ToolDefinition

__all__ = [
    "HOSTED", "calls_from", "content_block", "detect_pieces", "image_from", "result_body", "results_from", "tools_from",
]  # fmt: skip

TITLE = "Amazon Q"
NAMES = NameRule(re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}"), re.compile(r"[^A-Za-z0-9_]+"), first="a")
IDS = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TOOL = ("toolSpecification", "ToolSpecification", "tool_specification", "toolSpec", "tool_spec")
HOSTED = {"cachePoint": "it is about Bedrock's cache", "systemTool": "it runs at Amazon, and nowhere else"}
_UNKNOWN = "it is a kind of tool that only Bedrock knows"
_USE = ("toolUse", "ToolUse", "tool_use")
_RESULT = ("toolResult", "ToolResult", "tool_result")
_ID = ("toolUseId", "tool_use_id")
_SCHEMA = ("inputSchema", "input_schema")
_OWN = frozenset({*_TOOL, *_SCHEMA})
"""Fields of a tool that is described in full."""
_USER = ("userInputMessage", "user_input_message", "UserInputMessage")
_ASSISTANT = ("assistantResponseMessage", "assistant_response_message", "AssistantResponseMessage")
_TALK = frozenset({*_USER, *_ASSISTANT, "conversationState"})
_PIECES = frozenset({*_TOOL, *_USE, *_RESULT, *_ID})
_IMAGES = frozenset({"png", "jpeg", "gif", "webp"})


def detect(obj: JsonObject) -> frozenset[Kind]:
    """Return the kinds that an object may be."""
    if not _TALK.isdisjoint(obj) or ("user" in obj and "assistant" in obj):
        return frozenset({"history"})
    if isinstance(obj.get("history"), list):
        return frozenset({"history"})
    return frozenset({"tool"}) if _is_index(obj) else detect_pieces(obj)


def detect_pieces(obj: JsonObject) -> frozenset[Kind]:
    """Return the kinds that an object may be, conversations excepted; the same for all of Amazon's variants."""
    if "type" in obj:
        return frozenset()
    is_marked = not _PIECES.isdisjoint(obj)
    if is_marked and any(isinstance(obj.get(key), dict) for key in _TOOL):
        return frozenset({"tool"})
    if isinstance(obj.get("name"), str) and "title" not in obj and "annotations" not in obj:
        schema = obj.get("inputSchema")
        if isinstance(obj.get("input_schema"), dict) or (
            isinstance(schema, dict) and [*cast("JsonObject", schema)] == ["json"]
        ):
            return frozenset({"tool"})
    if not is_marked:
        return frozenset()
    if any(isinstance(obj.get(key), dict) for key in _USE):
        return frozenset({"call"})
    if any(isinstance(obj.get(key), dict) for key in _RESULT):
        return frozenset({"result"})
    if any(isinstance(obj.get(key), str) for key in _ID):
        return frozenset({"call"} if "name" in obj else {"result"} if "content" in obj else ())
    return frozenset()


def _is_index(obj: JsonObject) -> bool:
    for entry in obj.values():
        if not isinstance(entry, dict) or not _is_entry(cast("JsonObject", entry)):
            return False
    return bool(obj)


def _is_entry(entry: JsonObject) -> bool:
    return any(isinstance(entry.get(key), dict) for key in _SCHEMA) and isinstance(entry.get("name", ""), str)


# Tools -------------------------------------------------------------------------------------------------------------------


def tools_from(node: Node) -> list[Tool | HostedTool]:
    """Read a specification, wrapped or bare, or the index of tools, where each has a key of its own."""
    if not any(key in node.object for key in (*_TOOL, *_SCHEMA)) and _is_index(node.object):
        return [_indexed(key, node.child(key)) for key in node.object]
    if len(node.object) == 1 and isinstance(node.object[kind := next(iter(node.object))], dict) and kind not in _OWN:
        return [HostedTool(raw=node.object, keyword=kind, reason=HOSTED.get(kind, _UNKNOWN), at=node.at)]
    return [_tool_from(node.find(*_TOOL) or node, node)]


def _indexed(key: str, entry: Node) -> Tool:
    name = entry.find_text("name")
    if name is None:
        entry.value = {**entry.object, "name": key}
    elif name != key:
        entry.lose(key, f"the tool stands under {key!r} but is called {name!r}", "the name counts")
    return _tool_from(entry, entry)


def _tool_from(inner: Node, node: Node) -> Tool:
    schema = inner.find(*_SCHEMA)
    # The schema may be wrapped in an object. A schema that happens to have such a key has a type as well.
    for key in ("json", "schema"):
        if schema is not None and [*schema.object] == [key]:
            schema = schema.need(key)
    definition = ToolDefinition(
        name=inner.need_text("name"),
        description=inner.find_text("description") or "",
        input_schema=transfer.schema_from(schema),
    )
    places = {} if schema is None else {"input_schema": schema.at.removeprefix(node.at)}
    extra = transfer.extra_of(node)
    if inner is not node:
        within = inner.at.removeprefix(node.at)[1:]
        extra |= {f"{within}/{key}": value for key, value in transfer.extra_of(inner).items()}
    return Tool(definition=definition, at=node.at, extra=extra, places=places)


def tools_to(tools: Sequence[Tool], out: WriteContext) -> list[Any]:
    """Tools as a message to Q's service lists them."""
    return [{"toolSpecification": specification(tool, out, TITLE)} for tool in tools]


def specification(tool: Tool, out: WriteContext, title: str) -> JsonObject:
    """Return the fields that Amazon's variants share. A description must not be empty."""
    transfer.report_tool(tool, out, title)
    return {
        "name": tool.definition.name,
        "description": transfer.description_of(tool.definition),
        "inputSchema": {"json": transfer.tool_schema(tool, out, title)},
    }


# Calls and results -------------------------------------------------------------------------------------------------------


def calls_from(node: Node) -> list[Call]:
    """A tool use, wrapped or bare, or those of a message."""
    for key in _ASSISTANT:
        if key in node.object:
            entry = node.need(key)
            uses = entry.find_items("toolUses", "tool_uses")
            entry.lose_unread("only the calls are converted")
            return [call for item in uses for call in calls_from(item)]
    inner = node.find(*_USE) or node
    call = Call(
        name=inner.need_text("name"),
        id=inner.find_text(*_ID, "id"),
        at=node.at,
        **transfer.args_from(inner.find("input", "args")),
    )
    inner.lose_unread("only the name, the input and the id of a tool use are carried")
    if inner is not node:
        node.lose_unread("fields next to a tool use are not converted")
    return [call]


def calls_to(calls: Sequence[Call], out: WriteContext) -> list[Any]:
    """Tool uses."""
    return [
        {"toolUseId": call.id, "name": call.name, "input": transfer.args_to(transfer.unsigned(call, out), out)}
        for call in calls
    ]


def results_from(node: Node) -> list[Result]:
    """A tool result, wrapped or bare."""
    inner = node.find(*_RESULT) or node
    status = (inner.find_text("status") or "success").lower()
    if status not in ("success", "error"):
        raise ShapeError(pointer(inner.at, "status"), f"there is no status {status!r}; it is 'success' or 'error'")
    result = Result(
        id=inner.find_text(*_ID),
        is_error=status == "error",
        parts=tuple(part for block in inner.find_items("content") for part in _result_part(block)),
        at=node.at,
    )
    inner.lose_unread("only the content, the id and the status of a result are carried")
    if inner is not node:
        node.lose_unread("fields next to a result are not converted")
    return [result]


def _result_part(node: Node) -> Iterator[ResultPart]:
    if (text := node.find("text", "Text")) is not None:
        yield Text(text=text.text, at=node.at)
    elif "json" in node.object or "Json" in node.object:
        node.find("json", "Json")
        yield Value(value=node.object.get("json", node.object.get("Json")), at=node.at)
    else:
        found = content_block(node)
        yield found
        if isinstance(found, Other):
            return
    node.lose_unread("only the content of a block is carried")


def content_block(node: Node) -> Blob | Other:
    """Media, or a block that has no counterpart."""
    for key in ("image", "document"):
        if (block := node.find(key)) is not None and (blob := image_from(block, node.at)) is not None:
            return blob
    return Other(raw=node.object, keyword=next(iter(node.object), "content"), at=node.at)


def image_from(node: Node, at: str) -> Blob | None:
    """Read an image or document: its bytes, or its location in S3; None without either."""
    named = node.need_text("format").lower()
    mime_type = transfer.MIME_TYPES.get(named, f"application/{named}")
    place, name = node.need("source"), node.find_text("name")
    source, stored = place.find("bytes", "Bytes"), place.find("s3Location")
    uri = stored.find_text("uri") if stored is not None and source is None else None
    if source is None and uri is None:
        return None
    for holder in (node, place, stored):
        if holder is not None:
            holder.lose_unread("only the content of a block is carried")
    if source is None:
        return Blob(mime_type=mime_type, uri=uri, name=name, at=at)
    data: Any = source.value
    if isinstance(data, list):  # The form in which Rust serializes bytes.
        try:
            data = base64.b64encode(bytes(cast("list[int]", data))).decode("ascii")
        except (TypeError, ValueError):
            raise ShapeError(source.at, "these are not bytes") from None
    return Blob(mime_type=mime_type, data=Node(data, source.at).text, name=name, at=at)


def results_to(results: Sequence[Result], out: WriteContext) -> list[Any]:
    """Tool results. Values stay values; media has no place in them."""
    return [result_body(result, [*_result_blocks(result, out)], out, TITLE) for result in results]


def result_body(result: Result, blocks: list[JsonObject], out: WriteContext, title: str) -> JsonObject:
    """A tool result with these blocks."""
    blocks += [{"text": note} for note in transfer.notes_in_words(result, out, title)]
    if result.name and not out.in_history:
        out.lose(result.at, "name", f"{title}: a result names its call by the id alone")
    return {"toolUseId": result.id, "content": blocks, "status": "error" if result.is_error else "success"}


def _result_blocks(result: Result, out: WriteContext) -> Iterator[JsonObject]:
    for part in result.parts:
        if isinstance(part, Value):
            yield {"json": part.value}
        elif isinstance(part, Other) and out.is_same:
            yield part.raw
        elif (text := transfer.in_words(part, out, TITLE)) is not None:
            yield {"text": text.text}


# Histories ---------------------------------------------------------------------------------------------------------------


def history_from(node: Node) -> list[Message]:
    """Messages of Q's service, the state of a conversation around them, or a conversation as the CLI saves it."""
    entries = [node]
    if isinstance(node.value, list):
        entries = node.items
    else:
        state = node.find("conversationState") or node
        if state is not node:
            node.lose_unread("only the messages are converted")
        if (history := state.find("history")) is not None:
            current = state.find("currentMessage", "current_message")
            entries = [*history.items, *([current] if current is not None else [])]
            state.lose_unread("only the messages are converted")
    return [message for entry in entries for message in _messages_from(entry)]


def _messages_from(node: Node) -> Iterator[Message]:
    if isinstance(node.value, list) and len(node.items) == 2:  # Saved by older versions of the CLI.
        yield from (_saved_user(node.child(0)), _saved_assistant(node.child(1)))
    elif (entry := node.find(*_USER)) is not None:
        yield _user(entry, node.at)
        node.lose_unread(f"{TITLE}: only the messages are converted")
    elif (entry := node.find(*_ASSISTANT)) is not None:
        yield _assistant(entry, node.at)
        node.lose_unread(f"{TITLE}: only the messages are converted")
    elif (saved := node.find("user")) is not None:
        yield _saved_user(saved)
        yield _saved_assistant(node.need("assistant"))
        node.lose_unread(f"{TITLE}: only the messages are converted")
    else:
        raise ShapeError(node.at, f"expected {_USER[0]!r} or {_ASSISTANT[0]!r}")


def _user(node: Node, at: str) -> Message:
    items: list[Item] = []
    if (context := node.find("userInputMessageContext", "user_input_message_context")) is not None:
        items += [result for item in context.find_items("toolResults", "tool_results") for result in results_from(item)]
        context.lose_unread(f"{TITLE}: what the message says of its surroundings is not carried")
    items.append(Text(text=node.find_text("content") or "", at=at))
    items += _images(node)
    node.lose_unread(f"{TITLE}: only the content of a message is carried")
    return Message(role="user", items=tuple(items), at=at)


def _images(node: Node) -> Iterator[Item]:
    for image in node.find_items("images"):
        blob = image_from(image, image.at)
        yield Other(raw=image.object, keyword="image", at=image.at) if blob is None else blob


def _assistant(node: Node, at: str) -> Message:
    items: list[Item] = [Text(text=node.find_text("content") or "", at=at)]
    items += [call for item in node.find_items("toolUses", "tool_uses") for call in calls_from(item)]
    node.lose_unread(f"{TITLE}: only the content of a message is carried")
    return Message(role="model", items=tuple(items), at=at)


def _saved_user(node: Node) -> Message:
    content = node.need("content")
    body = content.find("Prompt", "ToolUseResults", "CancelledToolUses")
    if body is None:
        raise ShapeError(content.at, "expected 'Prompt', 'ToolUseResults' or 'CancelledToolUses'")
    items: list[Item] = [result for item in body.find_items("tool_use_results") for result in results_from(item)]
    if text := body.find_text("prompt"):
        items.append(Text(text=text, at=body.at))
    items += _images(node)
    for holder in (body, content, node):
        holder.lose_unread(f"{TITLE}: only the content of a message is carried")
    return Message(role="user", items=tuple(items), at=node.at)


def _saved_assistant(node: Node) -> Message:
    body = node.find("Response", "ToolUse")
    if body is None:
        raise ShapeError(node.at, "expected 'Response' or 'ToolUse'")
    node.lose_unread(f"{TITLE}: only the content of a message is carried")
    return _assistant(body, node.at)


def history_to(messages: Sequence[Message], out: WriteContext) -> Any:
    """Write messages for Q's service. It has no system text, so that is put before the first user message."""
    system, messages = transfer.split_system(messages, out, TITLE)
    for text in system:
        out.lose(text.at, "system", f"{TITLE}: it has no system text", "stands before the first message")
    entries = [_message_to(message, out) for message in transfer.merged(messages, out, TITLE, strictly=True)]
    entries = [entry for entry in entries if out.is_same or [*entry.values()] != [{"content": ""}]]
    if system:
        first: JsonObject = entries[0] if entries else {}
        texts = [text.text for text in system]
        if _USER[0] in first:
            first[_USER[0]]["content"] = "\n\n".join([*texts, first[_USER[0]]["content"]])
        else:
            entries.insert(0, {_USER[0]: {"content": "\n\n".join(texts)}})
    return entries


def _message_to(message: Message, out: WriteContext) -> JsonObject:
    items = transfer.supported_items(message, out, TITLE, (Text, Blob, Call, Result))
    transfer.report_order(message, items, out, TITLE, Result, Text, (Blob, Other), Call)
    images: list[JsonObject] = []
    texts: list[Text] = []
    for item in items:
        if isinstance(item, Text):
            texts.append(item)
        elif isinstance(item, Blob):
            image = _image_to(item, out) if message.role == "user" else None
            if image is None:
                reason = f"{TITLE}: no place for media of this type in a message of this role"
                texts.append(transfer.media_stub(item, out, reason))
            else:
                images.append(image)
        elif isinstance(item, (Other, Thought)):
            images += [item.raw] if isinstance(item, Other) else []
    if len(texts) > 1:
        out.lose(message.at, "content", f"{TITLE}: a message is one text", "the texts are joined by line breaks")
    calls = [item for item in items if isinstance(item, Call)]
    body: JsonObject = {"content": "\n".join(text.text for text in texts)}
    if message.role != "user":
        return {_ASSISTANT[0]: body | ({"toolUses": calls_to(calls, out)} if calls else {})}
    if results := [item for item in items if isinstance(item, Result)]:
        body["userInputMessageContext"] = {"toolResults": results_to(results, out)}
    return {_USER[0]: body | ({"images": images} if images else {})}


def _image_to(blob: Blob, out: WriteContext) -> JsonObject | None:
    named = next((named for named, mime in transfer.MIME_TYPES.items() if mime == blob.mime_type and named in _IMAGES), None)
    if named is None or not transfer.can_be_fetched(blob, "s3"):
        return None
    return {"format": named, "source": source_of(transfer.unnamed(blob, out, TITLE))}


def source_of(blob: Blob) -> JsonObject:
    """The bytes of media, or their location in S3."""
    return {"s3Location": {"uri": blob.uri}} if blob.data is None else {"bytes": transfer.standard_base64(blob.data)}
