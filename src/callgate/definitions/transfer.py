"""Shared parts of the formats: schemas, arguments and media in and out, and reports of what a format cannot express.

Works on the model of `items.py`, with a loss for everything that could not be converted. Knows no format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, cast

from callgate import strict_json
from callgate.content.media_type import type_of_address
from callgate.content.media_view import MediaView
from callgate.content.normalize import UNREADABLE
from callgate.content.read import is_marked
from callgate.definitions.format import WriteContext
from callgate.definitions.items import Blob, Call, Item, Message, Other, Result, ResultPart, Text, Thought, Tool, Value
from callgate.definitions.json_node import Node
from callgate.definitions.root_unions import with_open_root, without_root_unions
from callgate.errors import JsonError
from callgate.types import JsonObject, ToolDefinition

__all__ = [
    "MIME_TYPES", "STANDS_IN", "Arguments", "args_from", "args_text", "args_to", "blob_from_url", "can_be_fetched",
    "data_url", "description_of", "dumped", "extra_of", "in_words", "json_or_text", "media_stub", "merged", "mime_type_of",
    "notes_in_words", "one_value", "place_in_schema", "report_order", "report_tool", "result_parts", "schema_from",
    "schema_to", "schema_without_root_unions", "split_system", "standard_base64", "supported_items", "text_of_parts",
    "tool_schema", "unnamed", "unsigned",
]  # fmt: skip

# Tools -------------------------------------------------------------------------------------------------------------------


def schema_from(node: Node | None) -> JsonObject:
    """Read a schema of arguments. None, and an empty object, mean that there are no arguments."""
    schema = {} if node is None else node.object
    return schema or {"type": "object", "properties": {}}


def schema_to(definition: ToolDefinition) -> JsonObject:
    """Return the schema of arguments with its type, which every format requires and which can only be an object."""
    given = definition.input_schema
    return dict(given) if "type" in given else with_open_root({"type": "object", **given}, given)[0]


def tool_schema(tool: Tool, out: WriteContext, title: str) -> JsonObject:
    """Like `schema_to`; what that changes is reported."""
    given = tool.definition.input_schema
    return dict(given) if "type" in given else _for_objects({"type": "object", **given}, tool, out, title)


def _for_objects(schema: JsonObject, tool: Tool, out: WriteContext, title: str) -> JsonObject:
    """A schema whose root takes objects only, as the schema of the tool does not. References to the root still take all."""
    schema, is_wider = with_open_root(schema, tool.definition.input_schema)
    if is_wider:
        at = place_in_schema(tool, "")
        out.lose(at, "$ref", f"{title}: the arguments as a whole must be one plain object", "references to it are widened")
    return schema


def schema_without_root_unions(tool: Tool, out: WriteContext, title: str, refused: Sequence[str]) -> JsonObject:
    """Like `schema_to`, for formats that refuse some keywords at the root; changes are reported."""
    given = tool.definition.input_schema
    if out.is_same or given.keys().isdisjoint(refused):
        return tool_schema(tool, out, title)
    schema, instead = without_root_unions(given if "type" in given else {"type": "object", **given}, refused)
    schema = _for_objects(schema, tool, out, title)
    for keyword, done in instead.items():
        at = place_in_schema(tool, f"/{keyword}")
        out.lose(at, keyword, f"{title}: the arguments as a whole must be one plain object", done)
    return schema


def place_in_schema(tool: Tool, place: str) -> str:
    """The place in the source of a place in the schema of arguments."""
    for prefix, where in tool.places.items():
        if prefix.startswith("/") and f"{place}/".startswith(f"{prefix}/"):
            return tool.at + where + place.removeprefix(prefix)
    return tool.at + tool.places.get("input_schema", "/input_schema") + place


def description_of(definition: ToolDefinition) -> str:
    """Return a description for formats that refuse an empty one."""
    return definition.description or definition.title or f"Calls {definition.name}."


def extra_of(node: Node, defaults: Mapping[str, Any] | None = None) -> JsonObject:
    """Return the fields of a tool that were not read, except those that state a default."""
    return {key: child.value for key, child in node.unread.items() if (defaults or {}).get(key, _NO_DEFAULT) != child.value}


_NO_DEFAULT = object()

_SAID_OTHERWISE = {
    "title": "it has no field for a name that people read",
    "output_schema": "it does not describe what a tool returns",
    "read_only": "it does not say that a tool changes nothing",
    "idempotent": "it does not say that a tool may be run twice",
    "sequential": "it does not say that calls wait for one another",
    "timeout_s": "it has no deadline for a tool",
    "server": "it does not say where a tool lives",
    "touches": "it does not say what a tool reads or changes",
}


def report_tool(
    tool: Tool, out: WriteContext, title: str, *, says: Collection[str] = (), keeps: Collection[str] = ()
) -> None:
    """Report what the format cannot express: `says` are supported fields of the definition, `keeps` supported extras."""
    for field, reason in _SAID_OTHERWISE.items():
        if getattr(tool.definition, field) and field not in says:
            out.lose(tool.at + tool.places.get(field, f"/{field}"), field, f"{title}: {reason}")
    for key in tool.extra:
        if key not in keeps:
            out.lose(tool.at + tool.places.get(key, f"/{key}"), key.rpartition("/")[2], f"{title}: it has no such field")


# Arguments ---------------------------------------------------------------------------------------------------------------


class Arguments(TypedDict, total=False):
    """The fields of a `Call` about its arguments."""

    args: JsonObject | None
    raw: Any
    problem: str


def args_from(node: Node | None) -> Arguments:
    """Read arguments as an object or as JSON text. None and an empty text mean none; anything else is kept as it is."""
    if node is None or node.value == "":
        return {"args": {}}
    value: Any = node.value
    if isinstance(value, str):
        try:
            value = strict_json.parse(value)
        except JsonError as error:
            return {"args": None, "raw": node.value, "problem": str(error)}
        if value is None:
            return {"args": {}}
    if not isinstance(value, dict):
        return {"args": None, "raw": node.value, "problem": "the arguments are not an object"}
    return {"args": cast("JsonObject", value), "raw": node.value if isinstance(node.value, str) else None}


def args_to(call: Call, out: WriteContext) -> JsonObject:
    """Return the arguments as an object. Unreadable ones are included verbatim, and never dropped."""
    if call.args is not None:
        lost = strict_json.lost_by_reading(call.raw) if isinstance(call.raw, str) and not call.is_custom else ()
        for what, reason, instead in _READ_AS_LESS:
            if what in lost:
                out.lose(call.at, "arguments", reason, instead)
        return call.args
    out.lose(call.at, "arguments", f"the arguments cannot be read: {call.problem}", f"kept as text under {UNREADABLE!r}")
    return {UNREADABLE: call.raw}


_READ_AS_LESS = (
    ("keys", "a key stands twice in the text of the arguments", "the last value counts"),
    ("digits", "a number has more digits than a double holds", "the nearest double"),
)


def args_text(call: Call) -> str:
    """Return the arguments as JSON text, which may be invalid if they were unreadable."""
    if isinstance(call.raw, str):
        return call.raw
    return dumped(call.raw if call.args is None else call.args)


def dumped(value: Any) -> str:
    """The value as compact JSON text."""
    return strict_json.dump(value).decode()


# Results -----------------------------------------------------------------------------------------------------------------


def result_parts(content: Node | None, read_block: Callable[[Node], Iterable[ResultPart]]) -> Iterator[ResultPart]:
    """Read a result that is a text or a list of blocks; a text that stands alone may be JSON."""
    if content is None or content.value in ("", []):
        return
    if isinstance(content.value, str):
        yield json_or_text(content.value, content.at)
        return
    blocks = content.items
    for part in (part for block in blocks for part in read_block(block)):
        yield json_or_text(part.text, part.at) if isinstance(part, Text) and len(blocks) == 1 else part


def content_items(content: Node | None, read_block: Callable[[Node], Iterable[Item]]) -> Iterator[Item]:
    """Read the content of a message that is a text or a list of blocks."""
    if content is None:
        return
    if isinstance(content.value, str):
        yield Text(text=content.value, at=content.at)
        return
    for block in content.items:
        yield from read_block(block)


def json_or_text(text: str, at: str) -> Text | Value:
    """Parse a text of a format that has nothing but text, if a JSON encoder wrote it of an object or a list.

    Only such text: in JSON laid out by a person, the layout may matter.
    """
    if text[:1] in ("{", "["):
        try:
            value = strict_json.parse(text)
        except JsonError:
            return Text(text=text, at=at)
        if text in _encodings(value):
            return Value(value=value, at=at)
    return Text(text=text, at=at)


def _encodings(value: Any) -> Iterator[str]:
    yield dumped(value)
    for separators in (None, (",", ":")):
        for ensure_ascii in (True, False):
            yield json.dumps(value, separators=separators, ensure_ascii=ensure_ascii)


def one_value(result: Result, out: WriteContext, title: str) -> Any:
    """Return the parts of a result, without media, as one JSON value: itself, texts joined by line breaks, or a list."""
    said = [part.text if isinstance(part, Text) else part.value for part in result.parts if isinstance(part, (Text, Value))]
    if len(said) < 2:
        return said[0] if said else None
    if all(isinstance(part, Text) for part in result.parts):
        out.lose(result.at, "content", f"{title}: a result is one value", "the texts are joined by line breaks")
        return "\n".join(said)
    out.lose(result.at, "content", f"{title}: a result is one value", "the parts stand in a list")
    return said


def in_words(part: ResultPart, out: WriteContext, title: str) -> Text | None:
    """A part of a result as text, for formats that have nothing but text there."""
    if isinstance(part, Text):
        return part
    if isinstance(part, Value):
        value: Any = part.value
        if isinstance(value, str):
            return Text(text=value, at=part.at)
        if value is None or isinstance(value, (bool, int, float)):
            out.lose(part.at, "json", f"{title}: results are text", "written as JSON text")
        return Text(text=dumped(value), at=part.at)
    if isinstance(part, Blob):
        return media_stub(part, out, f"{title}: results are text")
    out.lose(part.at, part.keyword, f"{title}: it has no such block")
    return None


def result_block(
    part: ResultPart, out: WriteContext, title: str, media_block: Callable[[Blob, WriteContext], JsonObject]
) -> Iterator[JsonObject]:
    """Write a part of a result for the formats whose results are blocks of text and media."""
    if isinstance(part, Blob):
        yield media_block(part, out)
    elif isinstance(part, Other) and out.is_same:
        yield part.raw
    elif (text := in_words(part, out, title)) is not None:
        yield {"type": "text", "text": text.text}


def text_of_parts(result: Result, out: WriteContext, title: str) -> str:
    """Return a result as one text, including its notes."""
    texts = [text.text for part in result.parts if (text := in_words(part, out, title)) is not None]
    if len(texts) > 1:
        out.lose(result.at, "content", f"{title}: a result is one text", "the parts are joined by line breaks")
    return "\n".join([*texts, *notes_in_words(result, out, title)])


def notes_in_words(result: Result, out: WriteContext, title: str) -> list[str]:
    """The notes of a result as lines."""
    if result.notes:
        out.lose(result.at, "notes", f"{title}: it has no field for notes", "they follow the result as text")
    return [f"Note: {note}" for note in result.notes]


# Media -------------------------------------------------------------------------------------------------------------------

_DATA_URL = re.compile(r"data:(?P<mime>[^;,]*)(?:;[^;,]*)*;base64,(?P<data>.*)", re.DOTALL)


MIME_TYPES = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp",
    "pdf": "application/pdf", "csv": "text/csv", "html": "text/html", "txt": "text/plain", "md": "text/markdown",
    "doc": "application/msword", "xls": "application/vnd.ms-excel",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}  # fmt: skip
"""File name extension, which is also Amazon's name for the type -> its MIME type."""


def mime_type_of(uri: str, otherwise: str) -> str:
    """The type that the end of an address speaks of."""
    return type_of_address(uri) or otherwise


def blob_from_url(url: str, at: str, *, mime_type: str = "image/*", name: str | None = None) -> Blob:
    """Read media from a URL, which may hold the bytes themselves."""
    if found := _DATA_URL.fullmatch(url):
        return Blob(mime_type=found["mime"] or mime_type, data=found["data"], name=name, at=at)
    return Blob(mime_type=mime_type_of(url, mime_type), uri=url, name=name, at=at)


def unnamed(blob: Blob, out: WriteContext, title: str) -> Blob:
    """Drop the name of media, for formats without a field for it."""
    if blob.name is None:
        return blob
    out.lose(blob.at, "name", f"{title}: media of this type has no name")
    return replace(blob, name=None)


def data_url(blob: Blob) -> str:
    """Return the URL of media; a data URL, where there is no other."""
    return blob.uri or f"data:{blob.mime_type};base64,{standard_base64(blob.data or '')}"


def can_be_fetched(blob: Blob, *schemes: str) -> bool:
    """True if the bytes are included, or the URL has one of these schemes."""
    return blob.data is not None or (blob.uri or "").lower().startswith(tuple(f"{scheme}:" for scheme in schemes))


def standard_base64(data: str) -> str:
    """Normalize base64 to the standard alphabet; Google's libraries write the URL-safe one, without padding."""
    if "-" not in data and "_" not in data:
        return data
    return data.replace("-", "+").replace("_", "/") + "=" * (-len(data) % 4)


STANDS_IN = "a sentence that says so stands in its place"
"""The replacement of media that cannot be carried, in their loss."""


def media_stub(blob: Blob, out: WriteContext, reason: str) -> Text:
    """A sentence in place of media that cannot be carried."""
    kind = "unknown" if blob.mime_type == "*/*" else blob.mime_type
    out.lose(blob.at, kind, reason, STANDS_IN)
    named = f" ({blob.name})" if blob.name else ""
    return Text(text=f"(Media of type {kind}{named} stood here and was left out.)", at=blob.at)


# Turns -------------------------------------------------------------------------------------------------------------------


def supported_items(
    message: Message, out: WriteContext, title: str, kinds: tuple[type, ...], *, views: bool = False
) -> list[Item]:
    """Return the items that a format supports; the others are reported, and so are signatures of other providers.

    `views` is True for a format that can say which part of a video is looked at, and how closely.
    """
    found: list[Item] = []
    reported = len(out.losses)
    for item in message.items:
        if isinstance(item, Other):
            if out.is_same:
                found.append(item)
            else:
                out.lose(item.at, item.keyword, f"{title}: it has no such part")
        elif isinstance(item, Thought) and Thought not in kinds:
            out.lose(item.at, "thought", f"{title}: it has no place for thoughts of a model")
        elif isinstance(item, Blob) and item.view and not views:
            out.lose(item.at, "view", f"{title}: it has no segments of videos and no resolutions", "all of it is looked at")
            found.append(replace(item, view=MediaView()))
        elif not isinstance(kept := unsigned(item, out), (Text, Thought)) or kept.text or kept.signature or out.is_same:
            found.append(kept)  # A text that only carried a signature is empty now.
    if not found and not out.is_same and len(out.losses) == reported:
        out.lose(message.at, "content", "the message is empty", "left out")
    return found


def report_order(
    message: Message, items: Iterable[Item], out: WriteContext, title: str, *groups: type | tuple[type, ...]
) -> None:
    """Report items that are not in the order in which a format groups them. Empty texts do not count."""
    said = [item for item in items if not (isinstance(item, Text) and not item.text)]
    ranks = [next((rank for rank, group in enumerate(groups) if isinstance(item, group)), len(groups)) for item in said]
    if ranks != sorted(ranks):
        reason = f"{title}: a message keeps results, text, media and calls apart"
        out.lose(message.at, "content", reason, "the order among them is the format's")


def unsigned(item: Any, out: WriteContext) -> Any:
    """Drop the signature of an item, unless it goes back to its own format, or to the history that it came from."""
    if out.is_same or not getattr(item, "signature", None) or (out.is_of_history and is_marked(item.signature)):
        return item
    out.lose(item.at, "signature", "only the model that signed it can use it")
    return replace(item, signature=None)


def split_system(messages: Sequence[Message], out: WriteContext, title: str) -> tuple[list[Text], list[Message]]:
    """Separate the system texts, for formats that keep them apart, from the other messages."""
    system: list[Text] = []
    others: list[Message] = []
    for message in messages:
        if message.role != "system":
            others.append(message)
            continue
        if others:
            out.lose(message.at, "role", f"{title}: system text stands before all messages", "moved there")
        if not out.is_same and all(isinstance(item, Text) and not item.text for item in message.items):
            out.lose(message.at, "content", "the message is empty", "left out")
        for item in message.items:
            if isinstance(item, Text):
                system += [item] if item.text or out.is_same else []
            else:
                out.lose(item.at, "system", f"{title}: a system instruction is text")
    return system, others


def merged(messages: Sequence[Message], out: WriteContext, title: str, *, strictly: bool) -> list[Message]:
    """Merge results with the user message that follows them; with `strictly`, no role follows itself."""
    result: list[Message] = []
    for message in messages:
        last = result[-1] if result else None
        if last is None or last.role != message.role or not (strictly or _are_results(last)):
            result.append(message)
            continue
        if not _are_results(last):
            out.lose(message.at, "role", f"{title}: the two sides take turns", "joined with the message before it")
        result[-1] = replace(last, items=(*last.items, *message.items))
    return result


def _are_results(message: Message) -> bool:
    return bool(message.items) and all(isinstance(item, Result) for item in message.items)
