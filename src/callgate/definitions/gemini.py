"""Gemini's format: declarations in either schema field, function calls and responses, and contents.

Field names are read in camelCase and snake_case and written in camelCase; user-defined keys are never changed.
Declarations are those of `declare`. Contents of other origin get the signatures that Gemini requires.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from callgate.content.build import call_part, text_part
from callgate.content.media_view import MediaView, same_fields
from callgate.content.normalize import UNNAMED
from callgate.content.read import SKIP_SIGNATURE, index_of, response_of, role_of
from callgate.content.response import to_function_response
from callgate.declaration import BUILT_IN, declare, declared_names
from callgate.definitions import transfer
from callgate.definitions.format import Kind, WriteContext
from callgate.definitions.gemini_schema import json_schema_from
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
from callgate.definitions.json_node import Node, ShapeError
from callgate.errors import ToolNotDeclarableError
from callgate.schema.refs import Source, as_mapping
from callgate.types import FunctionCall, JsonObject, Part, ToolDefinition, ToolResult

TITLE = "Gemini"
One = TypeVar("One", Call, Result)
_DECLARATIONS = ("functionDeclarations", "function_declarations")
_JSON_SCHEMA = ("parametersJsonSchema", "parameters_json_schema")
_OUTPUT = ("responseJsonSchema", "response_json_schema")
_FIELDS = frozenset({"name", "description", "parameters", *_JSON_SCHEMA, "response", *_OUTPUT, "behavior"})
_CALL = ("functionCall", "function_call")
_RESPONSE = ("functionResponse", "function_response")
_SYSTEM = ("systemInstruction", "system_instruction")
_INLINE = ("inlineData", "inline_data")
_FILE = ("fileData", "file_data")
_SIGNATURE = ("thoughtSignature", "thought_signature")
_BUILT_IN = frozenset(BUILT_IN) | {re.sub("([A-Z])", r"_\1", name).lower() for name in BUILT_IN}
_TALK = ("parts", "contents", "candidates")
_MARKS = frozenset({*_DECLARATIONS, *_TALK, *_CALL, *_RESPONSE})
"""Fields that tell by themselves what an object is."""
_SCHEMES = ("http", "https", "gs")
_RESULT_MEDIA = frozenset({"image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain"})


def detect(obj: JsonObject) -> frozenset[Kind]:
    """Return the kinds that an object may be."""
    is_marked = not _MARKS.isdisjoint(obj)
    if (is_marked and any(isinstance(obj.get(key), list) for key in _DECLARATIONS)) or (obj and _BUILT_IN.issuperset(obj)):
        return frozenset({"tool"})
    if is_marked and any(isinstance(obj.get(key), list) for key in _TALK):
        return frozenset({"history"})
    if "role" in obj or "type" in obj:
        return frozenset()
    if is_marked and any(isinstance(obj.get(key), dict) for key in _CALL):
        return frozenset({"call"})
    if is_marked and any(isinstance(obj.get(key), dict) for key in _RESPONSE):
        return frozenset({"result"})
    if not isinstance(obj.get("name"), str):
        return frozenset()
    if isinstance(obj.get("response"), dict) and {*obj} <= {"id", "name", "response", "parts"}:
        return frozenset({"result"})
    if "args" in obj and {*obj} <= {"id", "name", "args"}:
        return frozenset({"call"})
    described = _FIELDS.issuperset(obj) and len(obj) > 1 and isinstance(obj.get("parameters", {}), dict)
    return frozenset({"tool"} if described else ())


# Tools -------------------------------------------------------------------------------------------------------------------


def tools_from(node: Node) -> list[Tool | HostedTool]:
    """Read the declarations of a Tool object and its built-in tools, or one declaration."""
    listed = node.find(*_DECLARATIONS)
    if listed is None and not _is_built_in(node.object):
        return [_declaration_from(node)]
    declared = [] if listed is None else [_declaration_from(item) for item in listed.items]
    built_in = [
        (key, node.child(key)) for key, value in node.object.items() if key not in _DECLARATIONS and value is not None
    ]
    reason = "it runs at Google, and nowhere else"
    return [*declared, *(HostedTool(raw={key: at.value}, keyword=key, reason=reason, at=at.at) for key, at in built_in)]


def _is_built_in(tool: JsonObject) -> bool:
    """True for tools that run at Google, also for those that are not known here: nothing in them is of a declaration."""
    if _BUILT_IN.issuperset(tool):
        return True
    return _FIELDS.isdisjoint(tool) and all(isinstance(value, (dict, list)) for value in tool.values())


def _declaration_from(node: Node) -> Tool:
    schema, entry = node.find(*_JSON_SCHEMA), node.find("parameters")
    if schema is not None and entry is not None:
        raise ShapeError(node.at, f"{_JSON_SCHEMA[0]!r} and 'parameters' exclude each other")
    place = (schema or entry or node).at.removeprefix(node.at)
    if entry is not None:
        schema = Node(json_schema_from(entry.object), entry.at, entry.losses)
    output, output_message = node.find(*_OUTPUT), node.find("response")
    returns = output.object if output is not None else None
    if output_message is not None:
        returns = json_schema_from(output_message.object)
    definition = ToolDefinition(
        name=node.need_text("name"),
        description=node.find_text("description") or "",
        input_schema=transfer.schema_from(schema),
        output_schema=returns,
    )
    places = {"input_schema": place, "output_schema": f"/{_OUTPUT[0] if output is not None else 'response'}"}
    return Tool(definition=definition, at=node.at, extra=transfer.extra_of(node), places=places)


def tools_to(tools: Sequence[Tool], out: WriteContext) -> list[Any]:
    """Declarations as they would be sent, with the losses of their schemas. A tool that cannot be declared is left out.

    Raises:
        ToolNotDeclarableError: the only tool cannot be declared.
    """
    declaration = declare([tool.definition for tool in tools])
    for name, reason in declaration.quarantined.items():
        if len(tools) == 1:
            raise ToolNotDeclarableError(reason)
        tool = next(tool for tool in tools if tool.definition.name == name)
        out.lose(tool.at, name, reason, "the tool is left out")
    tools = [tool for tool in tools if tool.definition.name not in declaration.quarantined]
    for loss in declaration.losses:
        tool = next((tool for tool in tools if tool.definition.name == loss.tool), None)
        place = loss.pointer if tool is None else transfer.place_in_schema(tool, loss.pointer)
        out.losses.append(replace(loss, pointer=place))
    declared: list[JsonObject] = declaration.tools[0][_DECLARATIONS[0]] if declaration.tools else []
    for tool, written in zip(tools, declared, strict=True):
        _report_marks(tool, out)
        transfer.report_tool(tool, out, TITLE, says=("output_schema",), keeps=("behavior",))
        if tool.definition.output_schema is not None:
            written[_OUTPUT[0]] = tool.definition.output_schema
        if "behavior" in tool.extra:
            written["behavior"] = tool.extra["behavior"]
    return list[Any](declared)


def _report_marks(tool: Tool, out: WriteContext) -> None:
    """Report annotations of a schema that are not about the arguments."""
    for place in Source(tool.definition.input_schema).places():
        for keyword in ("$comment", "$id"):
            if keyword in as_mapping(place.schema):
                at = transfer.place_in_schema(tool, f"{place.pointer}/{keyword}")
                out.lose(at, keyword, f"{TITLE}: it has no such keyword")


def tools_wrap(tools: list[Any]) -> Any:
    """Wrap several tools in the format's list."""
    return [{_DECLARATIONS[0]: tools}] if tools else []


def names(own: Sequence[str]) -> dict[str, str]:
    """Map declared names to own names."""
    return declared_names(ToolDefinition(name=name) for name in dict.fromkeys(own))


# Calls and results -------------------------------------------------------------------------------------------------------


def calls_from(node: Node) -> list[Call]:
    """A function call, its part, or those of a content or answer."""
    if any(key in node.object for key in ("parts", "contents", "candidates")):
        return _only(Call, node)
    inner = node.find(*_CALL) or node
    call = Call(
        name=inner.need_text("name"),
        id=inner.find_text("id"),
        at=node.at,
        signature=_signature(node),
        **transfer.args_from(inner.find("args")),
    )
    inner.lose_unread(f"{TITLE}: only the name, the arguments and the id of a call are carried")
    if inner is not node:
        node.lose_unread(f"{TITLE}: fields next to a call are not converted")
    return [call]


def _only(kind: type[One], node: Node) -> list[One]:
    """Return the items of one kind of a content or response; the others are reported as losses."""
    found: list[One] = []
    for item in (item for message in history_from(node) for item in message.items):
        if isinstance(item, kind):
            found.append(item)
        else:
            Node(None, item.at, node.losses).lose(kind.__name__.lower(), "only items of this kind are converted")
    return found


def _signature(node: Node) -> str | None:
    signature = node.find_text(*_SIGNATURE)
    return None if signature == SKIP_SIGNATURE else signature


def calls_to(calls: Sequence[Call], out: WriteContext) -> list[Any]:
    """Calls as parts."""
    return [_call_part(transfer.unsigned(call, out), out) for call in calls]


def _call_part(call: Call, out: WriteContext, signature: str | None = None) -> Part:
    made = FunctionCall(name=call.name, args=transfer.args_to(call, out), wire_id=call.id)
    return call_part(made, signature=call.signature or signature)


def results_from(node: Node) -> list[Result]:
    """A function response, its part, or those of a content."""
    if "parts" in node.object and "response" not in node.object:
        return _only(Result, node)
    inner = node.find(*_RESPONSE) or node
    response = inner.need("response")
    said = response.object
    keys = {*said} - {"notes"}
    notes = _notes(said.get("notes", []))
    if notes is None or len(keys) != 1:
        keys, notes = {*said}, ()
    # Without one of these as its only key, the object as a whole is the value.
    key = next((key for key in ("result", "output", "error") if keys == {key}), None)
    value: Any = said if key is None else said[key]
    shown = (part for item in inner.find_items("parts") for part in _part(item, has_view=False))
    media = [part for part in shown if isinstance(part, (Text, Blob, Other))]
    result = Result(
        id=inner.find_text("id"),
        name=inner.need_text("name"),
        is_error=key == "error" or (key is None and "error" in said and not {"result", "output"} & {*said}),
        parts=(*_result_parts(value, response.at), *media),
        notes=notes,
        raw=said,
        at=node.at,
    )
    inner.lose_unread(f"{TITLE}: only the response, the name and the id are carried")
    if inner is not node:
        node.lose_unread(f"{TITLE}: fields next to a response are not converted")
    return [result]


def _notes(notes: Any) -> tuple[str, ...] | None:
    listed: list[Any] = cast("list[Any]", notes) if isinstance(notes, list) else [None]
    return tuple(listed) if all(isinstance(note, str) for note in listed) else None


def _result_parts(value: Any, at: str) -> tuple[ResultPart, ...]:
    if value is None:
        return ()
    return (Text(text=value, at=at) if isinstance(value, str) else Value(value=value, at=at),)


def results_to(results: Sequence[Result], out: WriteContext) -> list[Any]:
    """Results as parts: `{"result": value}` or `{"error": sentence}`, whatever its length."""
    return [_response_part(result, out) for result in results]


def _report_order(result: Result, out: WriteContext) -> None:
    """Report what stands after media in a result, and cannot stand there in a response."""
    is_after = False
    for part in result.parts:
        if is_after and isinstance(part, (Text, Value)):
            out.lose(part.at, "order", f"{TITLE}: a response has its media after its value", "it comes before them")
        is_after = is_after or (isinstance(part, Blob) and part.mime_type in _RESULT_MEDIA)


def _response_part(result: Result, out: WriteContext) -> Part:
    name = result.name
    if name is None:
        reason = f"{TITLE}: a response names its function, and this result does not say which it was"
        out.lose(result.at, "name", reason, f"called {UNNAMED!r}; in a history the name is found")
        name = UNNAMED
    media: list[Part] = []
    said: list[ResultPart] = []
    for part in result.parts:
        if isinstance(part, Other):
            if not out.is_same:
                out.lose(part.at, part.keyword, f"{TITLE}: it has no such block")
        elif not isinstance(part, Blob):
            said.append(part)
        elif _type_of(part) in _RESULT_MEDIA and transfer.can_be_fetched(part, *_SCHEMES):
            media.append(_media_part(part, out))
        else:
            said.append(transfer.media_stub(part, out, f"{TITLE}: no place for media of this type in a response"))
    _report_order(result, out)
    bare = replace(result, parts=tuple(said), notes=())
    error = transfer.text_of_parts(bare, out, TITLE) if result.is_error else None
    if any(isinstance(part, Value) and isinstance(part.value, (dict, list)) for part in said) and result.is_error:
        out.lose(result.at, "json", f"{TITLE}: an error is a sentence", "written as JSON text")
    made = ToolResult(
        call_id="",
        name=name,
        status="failed" if result.is_error else "finished",
        value=None if result.is_error else transfer.one_value(bare, out, TITLE),
        error=error,
        notes=result.notes,
        media=tuple(media),
    )
    call = FunctionCall(name=name, wire_id=result.id)
    part = to_function_response(call, made, output_chars=sys.maxsize)
    changes = cast("list[str]", response_of(part)["response"].get("notes", []))[len(result.notes) :]
    if out.is_same and result.raw is not None and not changes:
        response_of(part)["response"] = result.raw
    for note in changes:
        out.lose(result.at, "value", f"{TITLE}: the value cannot be sent as it is", note)
    return part


# Histories ---------------------------------------------------------------------------------------------------------------


def history_from(node: Node) -> list[Message]:
    """Contents; in a request, with the system instruction; or the content of an answer."""
    if isinstance(node.value, list):
        return _messages_from(node.items)
    messages: list[Message] = []
    if (system := node.find(*_SYSTEM)) is not None:
        messages.append(Message(role="system", items=tuple(_instruction(system)), at=system.at))
    if (contents := node.find("contents")) is not None:
        node.lose_unread("only the contents are converted")
        return messages + _messages_from(contents.items)
    if (candidates := node.find("candidates")) is not None:
        given = candidates.items
        first = min(given, key=lambda item: index_of(as_mapping(item.value)), default=Node({}))
        for place, candidate in enumerate(given):
            if candidate is not first:
                candidate.lose(str(place), "only the first candidate is converted")
        content = first.find("content")
        first.lose_unread("only the content of an answer is converted")
        node.lose_unread("only the content of an answer is converted")
        return (
            []
            if content is None
            else _messages_from([Node({"role": "model", **content.object}, content.at, content.losses)])
        )
    return _messages_from([node])


def _instruction(node: Node) -> list[Item]:
    if isinstance(node.value, str):
        return [Text(text=node.text, at=node.at)]
    items = _parts_of(node)
    node.find("role")
    node.lose_unread(f"{TITLE}: only the parts of a system instruction are carried")
    return items


def _messages_from(contents: list[Node]) -> list[Message]:
    messages: list[Message] = []
    for content in contents:
        role = role_of(content.object)
        if role not in ("user", "model", "system"):
            raise ShapeError(content.at, f"there is no role {role!r}; the roles are 'user' and 'model'")
        items = _parts_of(content)
        content.find("role")
        content.lose_unread(f"{TITLE}: only the role and the parts of a content are carried")
        messages.append(Message(role=role, items=tuple(items), at=content.at))
    return messages


def _parts_of(content: Node) -> list[Item]:
    return [item for part in content.find_items("parts") for item in _part(part)]


def _part(node: Node, *, has_view: bool = True) -> Iterator[Item]:
    if any(isinstance(node.object.get(key), dict) for key in _CALL):
        yield from calls_from(node)
        return
    if any(isinstance(node.object.get(key), dict) for key in _RESPONSE):
        yield from results_from(node)
        return
    signature, thought, text = _signature(node), node.find("thought"), node.find("text")
    view = MediaView.of_part(node.object) if has_view and text is None else MediaView()
    if text is not None:
        kind = Thought if thought is not None and thought.flag else Text
        yield kind(text=text.text, at=node.at, signature=signature)
    elif (blob := node.find(*_INLINE)) is not None:
        mime_type = blob.find_text("mimeType", "mime_type") or "application/octet-stream"
        name = blob.find_text("displayName", "display_name")
        yield Blob(mime_type=mime_type, data=blob.need_text("data"), name=name, view=view, at=node.at)
        blob.lose_unread(f"{TITLE}: only the content of a part is carried")
    elif (file := node.find(*_FILE)) is not None:
        uri = file.need_text("fileUri", "file_uri")
        mime_type = file.find_text("mimeType", "mime_type") or transfer.mime_type_of(uri, "*/*")
        name = file.find_text("displayName", "display_name")
        yield Blob(mime_type=mime_type, uri=uri, name=name, view=view, at=node.at)
        file.lose_unread(f"{TITLE}: only the content of a part is carried")
    else:
        keyword = next((key for key in node.object if key not in (*_SIGNATURE, "thought")), "part")
        yield Other(raw=node.object, keyword=keyword, at=node.at)
        return
    node.lose_unread(f"{TITLE}: only the content of a part is carried", but=same_fields(view.part_fields(), node.object))


def history_to(messages: Sequence[Message], out: WriteContext) -> Any:
    """Write contents, with the system instruction if there is any."""
    system, messages = transfer.split_system(messages, out, TITLE)
    contents = [content for message in messages for content in _contents(message, out)]
    if not system:
        return contents
    return {_SYSTEM[0]: {"parts": [text_part(text.text) for text in system]}, "contents": contents}


def _contents(message: Message, out: WriteContext) -> Iterator[JsonObject]:
    items = transfer.supported_items(message, out, TITLE, (Text, Thought, Blob, Call, Result), views=True)
    if out.is_same:
        parts = [results_to([item], out)[0] if isinstance(item, Result) else _part_to(item, out, None) for item in items]
        yield {"role": message.role, "parts": parts}
        return
    # Responses must be alone in their content.
    transfer.report_order(message, items, out, TITLE, Result)
    if results := [item for item in items if isinstance(item, Result)]:
        yield {"role": "user", "parts": results_to(results, out)}
    others = [item for item in items if not isinstance(item, Result)]
    # The first call of a content must be signed, or carry the marker for calls that are not Gemini's.
    first = next((item for item in others if isinstance(item, Call)), None)
    others = [_fetchable(item, out) for item in others]
    parts = [_part_to(item, out, SKIP_SIGNATURE if item is first else None) for item in others]
    if parts:
        yield {"role": message.role, "parts": parts}


def _fetchable(item: Item, out: WriteContext) -> Item:
    if isinstance(item, Blob) and not transfer.can_be_fetched(item, *_SCHEMES):
        return transfer.media_stub(item, out, f"{TITLE}: it cannot fetch this address")
    return item


def _part_to(item: Item, out: WriteContext, skip: str | None) -> Part:
    if isinstance(item, Call):
        return _call_part(item, out, skip)
    if isinstance(item, Blob):
        return _media_part(item, out)
    if isinstance(item, Other):
        return item.raw
    assert not isinstance(item, Result)
    part = text_part(item.text) | ({"thought": True} if isinstance(item, Thought) else {})
    return part | ({_SIGNATURE[0]: item.signature} if item.signature else {})


_USUAL_TYPES = {
    "image/*": "image/jpeg", "audio/*": "audio/mp3", "video/*": "video/mp4", "document/*": "application/pdf",
}  # fmt: skip
"""Kind of a file of which another format says nothing more -> the type that it is taken for."""


def _type_of(blob: Blob) -> str:
    return _USUAL_TYPES.get(blob.mime_type, blob.mime_type)


def _media_part(blob: Blob, out: WriteContext) -> Part:
    named, viewed = {"displayName": blob.name} if blob.name else {}, blob.view.part_fields()
    if blob.data is not None:
        return {_INLINE[0]: {"mimeType": blob.mime_type, "data": transfer.standard_base64(blob.data)} | named} | viewed
    mime_type = _type_of(blob)
    if mime_type != blob.mime_type:
        reason = f"{TITLE}: a file has a type, and its address implies none"
        out.lose(blob.at, blob.mime_type, reason, f"{mime_type} is assumed")
    typed = {} if mime_type.endswith("/*") else {"mimeType": mime_type}
    return {_FILE[0]: {"fileUri": blob.uri} | typed | named} | viewed
