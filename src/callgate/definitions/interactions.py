"""The format of Gemini's Interactions API: flat tools, and histories of steps.

Knows nothing of other formats, nor of how a history of callgate's own is sent to that API.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from callgate.content.media_type import type_of_address
from callgate.content.media_view import MediaView, same_fields
from callgate.content.normalize import UNNAMED
from callgate.content.read import SKIP_SIGNATURE
from callgate.definitions import transfer
from callgate.definitions.format import Kind, WriteContext
from callgate.definitions.items import (
    Blob,
    Call,
    HostedTool,
    Message,
    Other,
    Result,
    ResultPart,
    Text,
    Thought,
    Tool,
    Value,
)
from callgate.definitions.json_node import Node
from callgate.definitions.names import NameRule
from callgate.types import JsonObject, ToolDefinition

TITLE = "Interactions"
NAMES = NameRule(re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}"), re.compile(r"[^A-Za-z0-9_.:-]+"))
IDS = re.compile(r"[\x21-\x7e]{1,256}")
_HOSTED = frozenset({"google_search", "code_execution", "url_context", "google_maps", "mcp_server", "retrieval"})
_STEPS: dict[str, frozenset[Kind]] = {
    "function_call": frozenset({"call", "history"}),
    "function_result": frozenset({"result", "history"}),
    "user_input": frozenset({"history"}),
    "model_output": frozenset({"history"}),
    "thought": frozenset({"history"}),
}
_MEDIA = ("image", "audio", "video", "document")
_NAMED_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_INNER_SCHEMAS = ("items", "prefixItems", "anyOf", "oneOf", "allOf", "not", "additionalProperties", "if", "then", "else")


def detect(obj: JsonObject) -> frozenset[Kind]:
    """Return the kinds that an object may be."""
    kind = obj.get("type")
    if kind == "function_call" and ("call_id" in obj or not isinstance(obj.get("arguments"), dict)):
        return frozenset()  # That is how OpenAI writes one.
    if isinstance(kind, str) and kind in _STEPS:
        return _STEPS[kind]
    if isinstance(kind, str) and kind in _HOSTED:
        return frozenset({"tool"})
    if kind == "function" and "function" not in obj and {*obj} <= {"type", "name", "description", "parameters"}:
        return frozenset({"tool"})
    for key in ("input", "steps"):
        entries: Any = obj.get(key)
        if isinstance(entries, list) and entries:
            listed = cast("list[Any]", entries)
            fits = all(isinstance(each, dict) and _is_step(cast("JsonObject", each)) for each in listed)
            return frozenset({"history"} if fits else ())
    return frozenset()


def _is_step(step: JsonObject) -> bool:
    return "history" in detect(step) or str(step.get("type")).endswith(("_call", "_result"))


# Tools -------------------------------------------------------------------------------------------------------------------


def tools_from(node: Node) -> list[Tool | HostedTool]:
    """Read a function, or a tool that runs at Google."""
    kind = node.find_text("type")
    if kind not in (None, "function"):
        reason = f"a tool of type {kind!r} runs at Google; only functions can be converted"
        return [HostedTool(raw=node.object, keyword=str(kind), reason=reason, at=node.at)]
    parameters = node.find("parameters")
    definition = ToolDefinition(
        name=node.need_text("name"),
        description=node.find_text("description") or "",
        input_schema=transfer.schema_from(parameters),
    )
    places = {} if parameters is None else {"input_schema": parameters.at.removeprefix(node.at)}
    return [Tool(definition=definition, at=node.at, extra=transfer.extra_of(node), places=places)]


def tools_to(tools: Sequence[Tool], out: WriteContext) -> list[Any]:
    """Write functions, each by itself in the list of tools."""
    return [_tool(tool, out) for tool in tools]


def _tool(tool: Tool, out: WriteContext) -> JsonObject:
    transfer.report_tool(tool, out, TITLE, keeps=())
    made: JsonObject = {"type": "function", "name": tool.definition.name}
    if tool.definition.description:
        made["description"] = tool.definition.description
    schema = transfer.tool_schema(tool, out, TITLE)
    return made | {"parameters": schema if out.is_same else _without_empty_required(schema)}


def _without_empty_required(schema: Any) -> Any:
    """The schema without lists of required properties that are empty, which say nothing and are refused."""
    root: list[Any] = [schema]
    waiting: list[tuple[Any, Any]] = [(root, 0)]
    while waiting:
        holder, place = waiting.pop()
        item = holder[place]
        if isinstance(item, list):
            holder[place] = listed = [*cast("list[Any]", item)]
            waiting += [(listed, index) for index in range(len(listed))]
        elif isinstance(item, dict):
            given = cast("JsonObject", item)
            holder[place] = made = {name: value for name, value in given.items() if name != "required" or value != []}
            for name in [name for name in made if name in _NAMED_SCHEMAS and isinstance(made[name], dict)]:
                made[name] = named = dict(made[name])
                waiting += [(named, key) for key in named]
            waiting += [(made, name) for name in made if name in _INNER_SCHEMAS]
    return root[0]


# Calls and results -------------------------------------------------------------------------------------------------------


def calls_from(node: Node) -> list[Call]:
    """Read a call, or those of an interaction."""
    if (listed := node.find("steps")) is not None:
        node.lose_unread("only the calls are converted")
        return [call for step in listed.items if step.find_text("type") == "function_call" for call in calls_from(step)]
    node.find("type")
    call = Call(
        name=node.need_text("name"), id=node.find_text("id"), at=node.at, signature=node.find_text("signature"),
        **transfer.args_from(node.find("arguments")),
    )  # fmt: skip
    node.lose_unread(f"{TITLE}: only the name, the arguments and the id of a call are carried")
    return [call]


def calls_to(calls: Sequence[Call], out: WriteContext) -> list[Any]:
    """Write calls as steps."""
    return [
        {"type": "function_call", "id": call.id, "name": call.name, "arguments": transfer.args_to(call, out)}
        for call in (transfer.unsigned(call, out) for call in calls)
    ]


def results_from(node: Node) -> list[Result]:
    """Read a result."""
    node.find("type")
    is_error = node.find("is_error")
    found = Result(
        id=node.find_text("call_id"),
        name=node.find_text("name"),
        is_error=is_error is not None and is_error.value is True,
        parts=tuple(_result_parts(node.find("result"))),
        at=node.at,
    )
    node.lose_unread(f"{TITLE}: only the result, the name and the id of a call are carried")
    return [found]


def _result_parts(result: Node | None) -> Iterator[ResultPart]:
    if result is None or result.value in ("", []):
        return
    if isinstance(result.value, str):
        yield transfer.json_or_text(result.value, result.at)
    elif isinstance(result.value, list):
        for block in result.items:
            yield from cast("Iterator[ResultPart]", _block(block, has_view=False))
    else:
        yield Value(value=result.value, at=result.at)


def results_to(results: Sequence[Result], out: WriteContext) -> list[Any]:
    """Write results as steps."""
    return [_result(result, out) for result in results]


def _result(result: Result, out: WriteContext) -> JsonObject:
    value: Any
    if any(isinstance(part, Blob) for part in result.parts):
        value = [*_result_blocks(result, out)]
    elif (found := _object(result)) is not None:
        value = found
    else:
        value = transfer.text_of_parts(result, out, TITLE)
    if result.name is None:
        reason = f"{TITLE}: a result names its function, and this one answers no call of the history"
        out.lose(result.at, "name", reason, f"called {UNNAMED!r}")
    step: JsonObject = {"type": "function_result", "call_id": result.id, "name": result.name or UNNAMED, "result": value}
    return {key: field for key, field in step.items() if field is not None} | ({"is_error": True} if result.is_error else {})


def _result_blocks(result: Result, out: WriteContext) -> Iterator[JsonObject]:
    """The parts of a result with media as blocks, in their order, and its notes after them."""
    for part in result.parts:
        shown = part if isinstance(part, Blob) else transfer.in_words(part, out, TITLE)
        if shown is not None:
            yield _block_to(shown, out)
    for note in transfer.notes_in_words(result, out, TITLE):
        yield {"type": "text", "text": note}


def _object(result: Result) -> JsonObject | None:
    """The value of a result that is one object and nothing else."""
    part = result.parts[0] if len(result.parts) == 1 and not result.notes else None
    given: Any = part.value if isinstance(part, Value) else None
    return cast("JsonObject", given) if isinstance(given, dict) else None


# Histories ---------------------------------------------------------------------------------------------------------------


def history_from(node: Node) -> list[Message]:
    """Read steps, or what the user says as a text or as contents; also inside a request, or an interaction."""
    messages: list[Message] = []
    listed = node if isinstance(node.value, (list, str)) else node.find("input", "steps")
    if listed is not None and listed is not node:
        if (system := node.find("system_instruction")) is not None:
            messages.append(Message(role="system", items=(Text(text=system.text, at=system.at),), at=system.at))
        node.lose_unread("only the steps are converted")
    listed = node if listed is None else listed
    if isinstance(listed.value, str):
        return [*messages, Message(role="user", items=(Text(text=listed.value, at=listed.at),), at=listed.at)]
    entries = listed.items if isinstance(listed.value, list) else [listed]
    if entries and all(_is_content(entry.value) for entry in entries):
        said = tuple(item for entry in entries for item in _block(entry))
        return [*messages, Message(role="user", items=said, at=listed.at)]
    for entry in entries:
        message = _message_from(entry)
        last = messages[-1] if messages else None
        if last is not None and _continues(last, message):
            messages[-1] = Message(role=last.role, items=(*last.items, *message.items), at=last.at)
        else:
            messages.append(message)
    return messages


def _is_content(value: Any) -> bool:
    """True for a content, such as a text, which is no step."""
    return isinstance(value, dict) and cast("JsonObject", value).get("type") in ("text", *_MEDIA)


def _continues(last: Message, message: Message) -> bool:
    """True if a step belongs to the turn of the one before it: all of a model's do, and the results of one turn."""
    if last.role != message.role:
        return False
    return message.role == "model" or all(isinstance(item, Result) for item in (*last.items, *message.items))


def _message_from(node: Node) -> Message:
    kind = node.need_text("type")
    if kind == "function_result":
        return Message(role="user", items=tuple(results_from(node)), at=node.at)
    if kind == "function_call":
        return Message(role="model", items=tuple(calls_from(node)), at=node.at)
    if kind == "thought":
        return Message(role="model", items=tuple(_thoughts(node)), at=node.at)
    if kind in ("user_input", "model_output"):
        items = tuple(transfer.content_items(node.find("content"), _block))
        node.lose_unread(f"{TITLE}: only the content of a step is carried")
        return Message(role="user" if kind == "user_input" else "model", items=items, at=node.at)
    return Message(role="model", items=(Other(raw=node.object, keyword=kind, at=node.at),), at=node.at)


def _thoughts(node: Node) -> Iterator[Thought]:
    text = ""
    for block in node.find_items("summary"):
        block.find("type")
        text += block.find_text("text") or ""
        block.lose_unread(f"{TITLE}: only the text of a summary is carried")
    signature = node.find_text("signature")
    if text or signature != SKIP_SIGNATURE:  # The placeholder alone says nothing.
        yield Thought(text=text, signature=None if signature == SKIP_SIGNATURE else signature, at=node.at)
    node.lose_unread(f"{TITLE}: only the summary and the signature of a thought are carried")


def _block(node: Node, *, has_view: bool = True) -> Iterator[Text | Blob | Other]:
    view = MediaView()
    kind = node.need_text("type")
    if kind == "text":
        yield Text(text=node.need_text("text"), at=node.at)
    elif kind in _MEDIA:
        uri, known = node.find_text("uri"), node.find_text("mime_type")
        if known is None:
            told = type_of_address(uri or "")
            known = told if told is not None and _kind_of(told) == kind else f"{kind}/*"
        view = MediaView.of_block(node.object) if has_view else view
        yield Blob(mime_type=known, data=node.find_text("data"), uri=uri, view=view, at=node.at)
    else:
        yield Other(raw=node.object, keyword=kind, at=node.at)
        return
    node.lose_unread(
        f"{TITLE}: only the content of a block is carried", but=same_fields(view.block_fields(kind), node.object)
    )


def history_to(messages: Sequence[Message], out: WriteContext) -> Any:
    """Write steps, with the system text if there is any."""
    system, messages = transfer.split_system(messages, out, TITLE)
    steps = [step for message in messages for step in _steps(message, out)]
    return {"system_instruction": "\n\n".join(text.text for text in system), "input": steps} if system else steps


def _steps(message: Message, out: WriteContext) -> Iterator[JsonObject]:
    items = transfer.supported_items(message, out, TITLE, (Text, Thought, Blob, Call, Result), views=True)
    steps: list[JsonObject] = []
    has_thought = False
    for item in items:
        if isinstance(item, Call):
            steps += calls_to([item], out)
        elif isinstance(item, Result):
            steps += results_to([item], out)
        elif isinstance(item, Thought):
            has_thought = _add_thought(steps, item, out) or has_thought
        elif isinstance(item, Other):
            steps.append(item.raw)
        else:
            kind = "model_output" if message.role == "model" else "user_input"
            if not steps or steps[-1]["type"] != kind:
                steps.append({"type": kind, "content": []})
            steps[-1]["content"].append(_block_to(item, out))
    if any(step["type"] == "function_call" for step in steps) and not has_thought:
        # A turn with calls begins with a thought; the documented value says that no Gemini model signed it.
        steps.insert(0, {"type": "thought", "signature": SKIP_SIGNATURE})
    yield from steps


def _add_thought(steps: list[JsonObject], item: Thought, out: WriteContext) -> bool:
    if item.signature is None or not out.is_same:
        out.lose(item.at, "thought", f"{TITLE}: only thoughts that it signed itself are accepted")
        return False
    summary = {"summary": [{"type": "text", "text": item.text}]} if item.text else {}
    steps.append({"type": "thought", "signature": item.signature, **summary})
    return True


def _block_to(item: Text | Blob, out: WriteContext) -> JsonObject:
    if isinstance(item, Text):
        return {"type": "text", "text": item.text}
    transfer.unnamed(item, out, TITLE)
    if item.mime_type == "*/*":
        return _block_to(transfer.media_stub(item, out, f"{TITLE}: media needs a type, and its address implies none"), out)
    kind = _kind_of(item.mime_type)
    typed = {} if item.mime_type.endswith("/*") else {"mime_type": item.mime_type}
    where = {"data": item.data} if item.data is not None else {"uri": item.uri}
    viewed = item.view.block_fields(kind)
    if MediaView.of_block(viewed) != item.view:
        out.lose(item.at, "view", f"{TITLE}: media of this type has no segments or resolutions", "all of it is looked at")
    return {"type": kind, **typed, **where, **viewed}


def _kind_of(mime_type: str) -> str:
    kind = mime_type.partition("/")[0]
    return kind if kind in _MEDIA else "document"
