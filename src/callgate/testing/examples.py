"""Example arguments for a schema, and the answers of a model without a script.

Reads both of Gemini's schema dialects. Knows nothing of sockets, and promises no more than a plausible value: patterns
and exotic keywords are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from callgate.testing.answers import Answer, call, text
from callgate.testing.google_fields import as_list, as_object
from callgate.types import JsonObject

__all__ = ["demo", "example_call", "example_of"]

_DEPTH_MAX = 20


def example_of(schema: Any, root: JsonObject | None = None, depth: int = 0) -> Any:
    """Return a value that fits the schema: its own example, default or first choice, else a small plain value."""
    node = as_object(schema)
    root = node if root is None else root
    if depth > _DEPTH_MAX:
        return None
    for key in ("const", "example", "default"):
        if key in node:
            return node[key]
    for key in ("enum", "examples"):
        if as_list(node.get(key)):
            return int(node[key][0]) if str(node.get("type")).lower() == "integer" else node[key][0]
    if isinstance(target := node.get("$ref"), str):
        return example_of(_resolved(target, root), root, depth + 1)
    for key in ("anyOf", "oneOf", "allOf"):
        if as_list(node.get(key)):
            return example_of(node[key][0], root, depth + 1)
    return _KINDS.get(_kind(node), _null)(node, root, depth)


def _kind(node: JsonObject) -> str:
    kind = node.get("type") or ("object" if "properties" in node else "string")
    return str(next((one for one in as_list(kind) if one != "null"), "null") if isinstance(kind, list) else kind).lower()


def _resolved(target: str, root: JsonObject) -> Any:
    node: Any = root
    for key in target.lstrip("#/").split("/") if target != "#" else ():
        node = as_object(node).get(key.replace("~1", "/").replace("~0", "~"))
    return node


def _string(node: JsonObject, _root: JsonObject, _depth: int) -> str:
    known = {"date-time": "2026-01-02T03:04:05Z", "date": "2026-01-02", "time": "03:04:05Z", "email": "a@example.com"}
    least = int(node.get("minLength", 0))
    example = known.get(str(node.get("format")), "example").ljust(least, "x")
    return example[: max(int(node["maxLength"]), least)] if "maxLength" in node else example


def _number(node: JsonObject, _root: JsonObject, _depth: int) -> int | float:
    # A step of one satisfies an exclusive bound, which is good enough for an example.
    lowest = node.get("minimum", node["exclusiveMinimum"] + 1 if "exclusiveMinimum" in node else 1)
    highest = node.get("maximum", node["exclusiveMaximum"] - 1 if "exclusiveMaximum" in node else lowest)
    value: float = min(lowest, highest) if "minimum" not in node else lowest
    return int(value) if _kind(node) == "integer" else value


def _array(node: JsonObject, root: JsonObject, depth: int) -> list[Any]:
    return [example_of(node.get("items"), root, depth + 1) for _ in range(min(int(node.get("minItems", 1)), 100))]


def _object(node: JsonObject, root: JsonObject, depth: int) -> JsonObject:
    properties = as_object(node.get("properties"))
    wanted = as_list(node.get("required")) or list(properties)
    # A recursive schema ends only because optional properties are left out below the first level.
    if depth and not node.get("required"):
        wanted = []
    return {name: example_of(properties.get(name), root, depth + 1) for name in wanted}


def _null(_node: JsonObject, _root: JsonObject, _depth: int) -> None:
    return None


def _boolean(_node: JsonObject, _root: JsonObject, _depth: int) -> bool:
    return True


_KINDS: dict[str, Callable[[JsonObject, JsonObject, int], Any]] = {
    "string": _string, "number": _number, "integer": _number, "boolean": _boolean, "array": _array, "object": _object,
    "null": _null,
}  # fmt: skip


# Requests ----------------------------------------------------------------------------------------------------------------


def example_call(request: Any) -> tuple[str, JsonObject]:
    """A call to the first function that the request declares; to `get_weather` when it declares none."""
    for tool in as_list(as_object(request).get("tools")):
        for declaration in as_list(_either(tool, "functionDeclarations", "function_declarations")):
            schema = _either(declaration, "parametersJsonSchema", "parameters_json_schema") or _either(
                declaration, "parameters"
            )
            return str(as_object(declaration).get("name")), as_object(example_of(schema)) if schema else {}
    return "get_weather", {"city": "Oslo"}


def demo(request: JsonObject) -> Answer:
    """The model of a server without a script: call the first declared tool, then return its result; else echo the text."""
    contents = as_list(request.get("contents"))
    last = [as_object(part) for part in as_list(as_object(contents[-1] if contents else None).get("parts"))]
    if responses := [found for part in last if (found := _either(part, "functionResponse", "function_response"))]:
        told = [f"{found.get('name')}: {json.dumps(found.get('response'), ensure_ascii=False)}" for found in responses]
        return text("\n".join(told))
    config = _either(_either(request, "toolConfig", "tool_config"), "functionCallingConfig", "function_calling_config")
    if as_list(request.get("tools")) and as_object(config).get("mode") != "NONE" and _declares(request):
        name, args = example_call(request)
        return call(name, **args)
    return text("".join(str(part.get("text", "")) for part in last) or "(nothing was said)")


def _declares(request: JsonObject) -> bool:
    return any(_either(tool, "functionDeclarations", "function_declarations") for tool in as_list(request.get("tools")))


def _either(value: Any, *keys: str) -> Any:
    return next((as_object(value)[key] for key in keys if key in as_object(value)), None)
