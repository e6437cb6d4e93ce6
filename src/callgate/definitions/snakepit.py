"""snakepit's format: tools of Python workers, whose parameters have Python's type names, and their calls and results.

Parts of a parameter's schema beyond its type are JSON text in `validation_json`. Knows nothing of workers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

from callgate import strict_json
from callgate.definitions import transfer
from callgate.definitions.format import Kind, WriteContext
from callgate.definitions.items import Blob, Call, Result, ResultPart, Text, Tool, Value
from callgate.definitions.json_node import Node, ShapeError, pointer
from callgate.definitions.names import NameRule
from callgate.errors import JsonError
from callgate.types import JsonObject, ToolDefinition

TITLE = "snakepit"
NAMES = NameRule(re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"), re.compile(r"[^A-Za-z0-9_.-]+"), first="a")
_KEEPS = ("metadata", "supports_streaming")
_PARAMETERS = "/parameters"
_TYPES_DEPTH_MAX = 32

_SCHEMAS: dict[str, JsonObject] = {
    "str": {"type": "string"}, "string": {"type": "string"}, "int": {"type": "integer"}, "integer": {"type": "integer"},
    "float": {"type": "number"}, "number": {"type": "number"}, "bool": {"type": "boolean"}, "boolean": {"type": "boolean"},
    "list": {"type": "array"}, "array": {"type": "array"}, "tuple": {"type": "array"}, "sequence": {"type": "array"},
    "set": {"type": "array", "uniqueItems": True}, "dict": {"type": "object"}, "object": {"type": "object"},
    "map": {"type": "object"}, "mapping": {"type": "object"}, "none": {"type": "null"}, "nonetype": {"type": "null"},
    "any": {}, "optional": {}, "union": {}, "": {},
}  # fmt: skip
"""Python's names for types, in lower case as workers send them. A bare `optional` does not restrict the value."""

_NAMES = {
    "string": "str", "integer": "int", "number": "float", "boolean": "bool", "array": "list", "object": "dict",
}  # fmt: skip
_OLDER = {"min": "minimum", "max": "maximum", "choices": "enum", "values": "enum"}
_GENERIC = re.compile(r"(?:typing\.)?(\w+)\[(.*)\]", re.DOTALL)


def detect(obj: JsonObject) -> frozenset[Kind]:
    """Return the kinds that an object may be."""
    if isinstance(obj.get("name"), str) and isinstance(obj.get("parameters"), list):
        return frozenset({"tool"})
    if isinstance(obj.get("tool_name"), str):
        return frozenset({"call"})
    return frozenset({"result"} if isinstance(obj.get("success"), bool) and {"result", "error_message"} & {*obj} else ())


# Tools -------------------------------------------------------------------------------------------------------------------


def tools_from(node: Node) -> list[Tool]:
    """A tool as a worker registers it."""
    properties: JsonObject = {}
    required: list[str] = []
    for parameter in node.find_items("parameters"):
        name = parameter.need_text("name")
        if name in properties:
            raise ShapeError(parameter.at, f"there are two parameters named {name!r}")
        properties[name] = _property(parameter)
        if (flag := parameter.find("required")) is not None and flag.flag:
            required.append(name)
        parameter.lose_unread(f"{TITLE}: a parameter has no such field")
    schema: JsonObject = {"type": "object", "properties": properties}
    definition = ToolDefinition(
        name=node.need_text("name"),
        description=node.find_text("description") or "",
        input_schema=schema | ({"required": required} if required else {}),
        kind="worker",
    )
    extra = transfer.extra_of(node, {"metadata": {}, "supports_streaming": False})
    places = {f"/properties/{name}": f"{_PARAMETERS}/{place}" for place, name in enumerate(properties)}
    return [Tool(definition=definition, at=node.at, extra=extra, places={"input_schema": _PARAMETERS, **places})]


def _property(node: Node) -> JsonObject:
    typed = node.find("type")
    schema = {} if typed is None else _schema_of(typed.text, typed)
    if description := node.find_text("description"):
        schema["description"] = description
    rules = node.find("validation_json", "validation")
    if rules is not None and rules.value not in ("", "{}"):
        schema |= {_OLDER.get(key, key): value for key, value in _rules(rules).items()}
    if (default := node.find("default_value", "default")) is not None:
        schema.setdefault("default", _default(default.value, schema))
    return schema


def _schema_of(written: str, node: Node, depth: int = 0) -> JsonObject:
    """The schema of a type's name: `str`, `list[int]`, `optional[str]`, `str | none`."""
    name = written.strip()
    if depth > _TYPES_DEPTH_MAX:
        node.lose("type", f"types are nested deeper than {_TYPES_DEPTH_MAX} levels", "any value is allowed")
        return {}
    options = [option.strip() for option in _split(name, "|")]
    if len(options) > 1:
        return _any_of([_schema_of(option, node, depth + 1) for option in options])
    if generic := _GENERIC.fullmatch(name):
        outer, parts = generic[1].lower(), [part for part in _split(generic[2], ",") if part.strip() != "..."]
        inner = [_schema_of(part, node, depth + 1) for part in parts] or [{}]
        if outer == "optional":
            return _any_of([*inner, {"type": "null"}])
        if outer == "union":
            return _any_of(inner)
        base = dict(_SCHEMAS.get(outer, {}))
        if base.get("type") == "array" and inner[0]:
            return base | {"items": inner[0]}
        if base.get("type") == "object" and inner[-1]:
            return base | {"additionalProperties": inner[-1]}
        return base
    schema = _SCHEMAS.get(name.lower().removeprefix("typing."))
    if schema is None:
        node.lose("type", f"{written!r} is no type that JSON has a word for", "any value is allowed")
        return {}
    return dict(schema)


def _split(text: str, separator: str) -> list[str]:
    """Split the text at separators outside brackets."""
    parts: list[str] = []
    begin = depth = 0
    for place, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == separator and depth == 0:
            parts.append(text[begin:place])
            begin = place + 1
    return [*parts, text[begin:]]


def _any_of(options: list[JsonObject]) -> JsonObject:
    if not all(options):
        return {}
    kinds = [option.get("type") for option in options]
    if all([*option] == ["type"] for option in options):
        return {"type": list(dict.fromkeys(kinds))}
    plain = [option for option in options if option != {"type": "null"}]
    if len(plain) == 1 and len(plain) < len(options):
        return plain[0] | {"type": [plain[0]["type"], "null"]}
    return {"anyOf": options}


def _rules(node: Node) -> JsonObject:
    rules: Any = node.value
    if isinstance(rules, str):
        try:
            rules = strict_json.parse(rules)
        except JsonError as error:
            raise ShapeError(node.at, f"{error}") from None
    return Node(rules, node.at).object


def _default(value: Any, schema: JsonObject) -> Any:
    """Parse a default, which may be JSON text. Text that is not JSON, or not of the type, is the default itself."""
    if not isinstance(value, str):
        return value
    try:
        parsed = strict_json.parse(value)
    except JsonError:
        return value
    return value if schema.get("type") == "string" and not isinstance(parsed, str) else parsed


def tools_to(tools: Sequence[Tool], out: WriteContext) -> list[Any]:
    """Tools as a worker would register them."""
    return [_tool(tool, out) for tool in tools]


def _tool(tool: Tool, out: WriteContext) -> JsonObject:
    transfer.report_tool(tool, out, TITLE, keeps=_KEEPS)
    schema = tool.definition.input_schema
    place = tool.at + tool.places.get("input_schema", "/input_schema")
    for key in schema:
        if key not in ("type", "properties", "required"):
            out.lose(pointer(place, key), key, f"{TITLE}: a tool is a list of parameters, and says no more of them")
    properties = cast("JsonObject", _of_type(schema, "properties", {}, place, out))
    required = cast("list[Any]", _of_type(schema, "required", [], place, out))
    for name in required:
        if not isinstance(name, str) or name not in properties:
            out.lose(pointer(place, "required"), "required", f"{TITLE}: {name!r} is required but not described")
    parameters = [_parameter(name, rules, name in required) for name, rules in properties.items()]
    written: JsonObject = {"name": tool.definition.name, "description": tool.definition.description}
    return written | {"parameters": parameters} | {key: tool.extra[key] for key in _KEEPS if key in tool.extra}


def _of_type(schema: Mapping[str, Any], key: str, default: Any, place: str, out: WriteContext) -> Any:
    """A field of a schema, if it is of the type that it must be."""
    value: Any = schema.get(key, default)
    if isinstance(value, cast("type[Any]", type(default))):
        return value
    out.lose(pointer(place, key), key, "it is not what a JSON Schema has there")
    return default


def _parameter(name: str, schema: Any, required: bool) -> JsonObject:
    # A schema may be true, which allows everything, or false, which allows nothing.
    rules: JsonObject = {"not": {}} if schema is False else {}
    if isinstance(schema, dict):
        rules = dict(cast("JsonObject", schema))
    kind = rules.get("type")
    named = _NAMES.get(kind) if isinstance(kind, str) else None
    if named is not None:
        del rules["type"]
    parameter: JsonObject = {"name": name, "type": named or "any"}
    if isinstance(rules.get("description"), str) and rules["description"]:
        parameter["description"] = rules.pop("description")
    parameter["required"] = required
    return parameter | ({"validation_json": transfer.dumped(rules)} if rules else {})


# Calls and results -------------------------------------------------------------------------------------------------------


def calls_from(node: Node) -> list[Call]:
    """A request to run a tool."""
    call = Call(name=node.need_text("tool_name"), at=node.at, **transfer.args_from(node.find("parameters")))
    if (binary := node.find("binary_parameters")) is not None and binary.value:
        binary.lose("binary_parameters", f"{TITLE}: bytes next to the parameters are not converted")
    node.lose_unread(f"{TITLE}: only the name and the parameters of a call are carried")
    return [call]


def calls_to(calls: Sequence[Call], out: WriteContext) -> list[Any]:
    """Write requests to run tools. A worker answers the request itself, so there are no ids."""
    for call in calls:
        if call.id is not None:
            out.lose(call.at, "id", f"{TITLE}: a call has no id; the answer comes on the same connection")
    return [{"tool_name": call.name, "parameters": transfer.args_to(transfer.unsigned(call, out), out)} for call in calls]


def results_from(node: Node) -> list[Result]:
    """The answer of a worker."""
    is_error = not node.need("success").flag
    error, value = node.find_text("error_message"), node.find("result")
    parts: list[ResultPart] = []
    if is_error:
        parts.append(Text(text=error or "failed without a message", at=node.at))
    elif value is not None:
        text = isinstance(value.value, str)
        parts.append(Text(text=value.text, at=value.at) if text else Value(value=value.value, at=value.at))
    node.lose_unread(f"{TITLE}: only the value and the error of a result are carried")
    return [Result(is_error=is_error, parts=tuple(parts), at=node.at)]


def results_to(results: Sequence[Result], out: WriteContext) -> list[Any]:
    """Write results in the form of a worker's response."""
    return [_result(result, out) for result in results]


def _result(result: Result, out: WriteContext) -> JsonObject:
    for field in ("id", "name"):
        if getattr(result, field):
            out.lose(result.at, field, f"{TITLE}: a result says nothing of its call")
    if result.is_error:
        return {"success": False, "error_message": transfer.text_of_parts(result, out, TITLE)}
    parts: list[ResultPart] = []
    for part in result.parts:
        if isinstance(part, (Text, Value)):
            parts.append(part)
        elif isinstance(part, Blob):
            parts.append(transfer.media_stub(part, out, f"{TITLE}: a result is one JSON value"))
        else:
            out.lose(part.at, part.keyword, f"{TITLE}: it has no such block")
    notes = [Text(text=note, at=result.at) for note in transfer.notes_in_words(result, out, TITLE)]
    return {"success": True, "result": transfer.one_value(Result(parts=(*parts, *notes), at=result.at), out, TITLE)}
