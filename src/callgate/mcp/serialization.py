"""Serialization for MCP clients: a definition as a tool with its own schemas and hints, a result as content.

Our words come in, plain JSON of MCP goes out. Nothing is lowered here: the schema is the one that the tool came with. A
result that is too long is cut, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from callgate import strict_json
from callgate.content.json_safe import BIG_INT_NOTE
from callgate.content.read import display_names, media_of
from callgate.definitions import transfer
from callgate.errors import ToolNotDeclarableError
from callgate.schema.coerce import coerced
from callgate.schema.validator import SchemaValidator, usable_validator
from callgate.types import JsonObject, ToolDefinition, ToolResult

__all__ = ["TEXT_CHARS_MAX", "ServedTool", "listed", "result_of"]

TEXT_CHARS_MAX = 1_000_000
"""The limit of a result's text; the middle of a longer one is left out."""
MEDIA_BYTES_MAX = 15 * 1024 * 1024
"""The limit of one image or other medium; a larger one is only named."""
NOTES_MAX = 20
_DEFINITIONS = ("$defs", "definitions")
# Kinds of content of other servers that a result of ours holds as they came -> the field that each has.
_FOREIGN_BLOCKS = {"resource": "resource", "resource_link": "uri"}
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


@dataclass(frozen=True, slots=True)
class ServedTool:
    """A tool as clients see it."""

    tool: JsonObject
    output: SchemaValidator | None
    """The validator of structured content, if the tool has an output schema."""
    is_wrapped: bool
    """True if a result stands in an object with the one key `result`, because by itself it is none."""
    is_mcp: bool = False
    """True if the tool belongs to another MCP server, whose list of content is served as it came."""


def listed(definition: ToolDefinition) -> ServedTool:
    """The tool of a definition. A description of the output that clients could not use is left out."""
    tool: JsonObject = {"name": definition.name}
    if definition.title:
        tool["title"] = definition.title
    if definition.description:
        tool["description"] = definition.description
    tool["inputSchema"] = {**transfer.schema_to(definition), "type": "object"}
    schema, is_wrapped = _output_schema(definition.output_schema)
    output = None
    if schema is not None:
        try:
            output = usable_validator(schema, definition.name)
        except ToolNotDeclarableError:
            schema = None
    if schema is not None:
        tool["outputSchema"] = schema
    tool["annotations"] = _hints(definition)
    return ServedTool(tool, output, is_wrapped, is_mcp=definition.kind == "mcp")


def _hints(definition: ToolDefinition) -> JsonObject:
    hints: JsonObject = {
        "readOnlyHint": definition.read_only,
        # Nobody said that it only adds, so it may overwrite.
        "destructiveHint": not definition.read_only,
        "idempotentHint": definition.repeatable,
    }
    return hints | ({"openWorldHint": False} if definition.kind == "file" else {})


def _output_schema(schema: Mapping[str, Any] | None) -> tuple[JsonObject | None, bool]:
    """The schema of structured content, and whether that wraps the result: it must be an object."""
    if schema is None:
        return None, False
    if schema.get("type") == "object":
        return dict(schema), False
    inner = {key: value for key, value in schema.items() if key not in _DEFINITIONS and key != "$schema"}
    if _refers_to_itself(inner):
        return None, False
    shared = {key: schema[key] for key in (*_DEFINITIONS, "$schema") if key in schema}
    return {"type": "object", "properties": {"result": inner}, "required": ["result"], **shared}, True


def _refers_to_itself(value: Any) -> bool:
    """True if a reference would point to the wrong place once the schema is wrapped."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        target = fields.get("$ref")
        if isinstance(target, str) and not target.startswith(tuple(f"#/{key}/" for key in _DEFINITIONS)):
            return True
        return any(map(_refers_to_itself, fields.values()))
    return isinstance(value, list) and any(map(_refers_to_itself, cast("list[Any]", value)))


# Results -----------------------------------------------------------------------------------------------------------------


def result_of(result: ToolResult, served: ServedTool) -> JsonObject:
    """The result of a call: text for everybody, structured content where there is some, media, and notes."""
    notes = [_text_block(strict_json.without_surrogates(note)) for note in result.notes[:NOTES_MAX]]
    if result.is_error:
        error = strict_json.without_surrogates(result.error or "The tool failed without saying why.")
        return {"content": [_text_block(_cut(error)), *notes], "isError": True}
    media = [_medium(part) for part in result.media]
    named = {name: block for part, block in zip(result.media, media, strict=True) for name in display_names([part])}
    value: Any = result.value
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    blocks = [_block(item, named, served) for item in items]
    if _is_content(blocks, served):
        return {"content": [*blocks, *notes]}
    if served.is_mcp and len(items) > 1 and isinstance(items[0], dict) and all(blocks[1:]):
        # Structured content, and content beside it.
        value, media = cast("JsonObject", items[0]), cast("list[JsonObject]", blocks[1:])
    if isinstance(value, str):
        value = _cut(value)
    structured = _structured(value, served)
    if structured is not None and served.output is not None and BIG_INT_NOTE in result.notes:
        structured = _with_integers(structured, served.output)
        value = structured["result"] if served.is_wrapped else structured
        notes = [note for note in notes if note["text"] != BIG_INT_NOTE]
    text = value if isinstance(value, str) else strict_json.dump(value).decode()
    shown = text if isinstance(value, str) else _cut(text)
    if served.output is not None and (problem := _misfit(structured, text, served.output, is_long=shown != text)):
        return {"content": [_text_block(problem), _text_block(shown), *media, *notes], "isError": True}
    written: JsonObject = {"content": [_text_block(shown), *media, *notes]}
    if structured is not None and shown == text:
        written["structuredContent"] = structured
    return written


def _structured(value: Any, served: ServedTool) -> JsonObject | None:
    if served.is_wrapped:
        return {"result": value}
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _with_integers(structured: JsonObject, output: SchemaValidator) -> JsonObject:
    """The content with integers where results of ours have them as text: JSON of MCP has integers of any size."""
    fitting, _ = coerced(strict_json.parse(strict_json.dump(structured)), output)
    return fitting


def _misfit(structured: JsonObject | None, text: str, output: SchemaValidator, *, is_long: bool) -> str | None:
    """The reason why clients, which check results against the output schema, would refuse this one."""
    if is_long:
        return f"The call was made, but its result has {len(text)} characters, more than {TEXT_CHARS_MAX}."
    if structured is None or not output.root.is_valid(structured):
        return "The call was made, but its result is not what the tool says that it returns."
    return None


def _is_content(blocks: list[JsonObject | None], served: ServedTool) -> bool:
    """True if a result is content in this order: texts with media between them; of another server, whatever it sent."""
    kinds = {block["type"] if block else None for block in blocks}
    if not kinds or None in kinds:
        return False
    return "text" not in kinds or (served.output is None and (served.is_mcp or kinds != {"text"}))


def _block(item: Any, media: Mapping[str, JsonObject], served: ServedTool) -> JsonObject | None:
    """The content of one item; None if it is a value of another kind."""
    if isinstance(item, str):
        return _text_block(_cut(item))
    if not isinstance(item, dict):
        return None
    fields = cast("JsonObject", item)
    if fields.keys() == {"$ref"}:
        return media.get(fields["$ref"])
    wanted = _FOREIGN_BLOCKS.get(str(fields.get("type"))) if served.is_mcp else None
    return fields if wanted is not None and wanted in fields else None


def _medium(part: Mapping[str, Any]) -> JsonObject:
    medium = media_of(part) or {}
    mime_type, data, name = medium.get("mime_type", "application/octet-stream"), medium.get("data"), medium.get("name")
    if data is None:
        return _text_block(f"[{mime_type} at {medium.get('uri')}]")
    if len(data) * 3 // 4 > MEDIA_BYTES_MAX:
        return _text_block(f"[left out: {mime_type} of {len(data) * 3 // 4} bytes, more than {MEDIA_BYTES_MAX}]")
    data = transfer.standard_base64(data)
    kind = mime_type.partition("/")[0]
    is_resource = name is not None and _URI.match(name) is not None
    if kind in ("image", "audio") and not is_resource:
        return {"type": kind, "data": data, "mimeType": mime_type}
    uri = name if is_resource else f"resource:///{name or 'media'}"
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "blob": data}}


def _text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _cut(text: str) -> str:
    if len(text) <= TEXT_CHARS_MAX:
        return text
    half = TEXT_CHARS_MAX // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out} characters left out; ask for a smaller part ...]\n{text[-half:]}"
