"""Serialization for MCP clients: a definition as a tool with its own schemas and hints, a result as content.

Our words come in, plain JSON of MCP goes out. Nothing is lowered here: the schema is the one that the tool came with. A
result that is too long is cut, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from callgate import strict_json
from callgate.content.read import display_names, media_of
from callgate.definitions import transfer
from callgate.errors import ToolNotDeclarableError
from callgate.schema.validator import SchemaValidator, usable_validator
from callgate.types import JsonObject, ToolDefinition, ToolResult

__all__ = ["TEXT_CHARS_MAX", "ServedTool", "listed", "result_of"]

TEXT_CHARS_MAX = 1_000_000
"""The limit of a result's text; the middle of a longer one is left out."""
MEDIA_BYTES_MAX = 15 * 1024 * 1024
"""The limit of one image or other medium; a larger one is only named."""
NOTES_MAX = 20
_DEFINITIONS = ("$defs", "definitions")


@dataclass(frozen=True, slots=True)
class ServedTool:
    """A tool as clients see it."""

    tool: JsonObject
    output: SchemaValidator | None
    """The validator of structured content, if the tool has an output schema."""
    is_wrapped: bool
    """True if a result stands in an object with the one key `result`, because by itself it is none."""


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
    return ServedTool(tool, output, is_wrapped)


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
    names = display_names(result.media)
    media = [_medium(part) for part in result.media]
    if media and _is_only_media(result.value, names):
        return {"content": [*media, *notes]}
    structured = _structured(result.value, served)
    text = result.value if isinstance(result.value, str) else strict_json.dump(result.value).decode()
    if served.output is not None and (problem := _misfit(structured, text, served.output)):
        return {"content": [_text_block(problem), _text_block(_cut(text)), *media, *notes], "isError": True}
    written: JsonObject = {"content": [_text_block(_cut(text)), *media, *notes]}
    if structured is not None and len(text) <= TEXT_CHARS_MAX:
        written["structuredContent"] = structured
    return written


def _structured(value: Any, served: ServedTool) -> JsonObject | None:
    if served.is_wrapped:
        return {"result": value}
    return cast("JsonObject", value) if isinstance(value, dict) else None


def _misfit(structured: JsonObject | None, text: str, output: SchemaValidator) -> str | None:
    """The reason why clients, which check results against the output schema, would refuse this one."""
    if len(text) > TEXT_CHARS_MAX:
        return f"The call was made, but its result has {len(text)} characters, more than {TEXT_CHARS_MAX}."
    if structured is None or not output.root.is_valid(structured):
        return "The call was made, but its result is not what the tool says that it returns."
    return None


def _is_only_media(value: Any, names: set[str]) -> bool:
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    return all(isinstance(item, dict) and item.keys() == {"$ref"} and item["$ref"] in names for item in items)  # pyright: ignore[reportUnknownMemberType]


def _medium(part: Mapping[str, Any]) -> JsonObject:
    medium = media_of(part) or {}
    mime_type, data, name = medium.get("mime_type", "application/octet-stream"), medium.get("data"), medium.get("name")
    if data is None:
        return _text_block(f"[{mime_type} at {medium.get('uri')}]")
    if len(data) * 3 // 4 > MEDIA_BYTES_MAX:
        return _text_block(f"[left out: {mime_type} of {len(data) * 3 // 4} bytes, more than {MEDIA_BYTES_MAX}]")
    data = transfer.standard_base64(data)
    kind = mime_type.partition("/")[0]
    if kind in ("image", "audio"):
        return {"type": kind, "data": data, "mimeType": mime_type}
    uri = name if name and ":" in name else f"resource:///{name or 'media'}"
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "blob": data}}


def _text_block(text: str) -> JsonObject:
    return {"type": "text", "text": text}


def _cut(text: str) -> str:
    if len(text) <= TEXT_CHARS_MAX:
        return text
    half = TEXT_CHARS_MAX // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[... {left_out} characters left out; ask for a smaller part ...]\n{text[-half:]}"
