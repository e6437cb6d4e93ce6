"""Definitions -> the tools of a chat completion.

Definitions and the names under which they are declared come in; declarations with the tools' own schemas go out. A schema
whose root OpenAI refuses is widened: what it said besides is still checked before a tool runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from callgate.declaration import BUILT_IN, Declaration
from callgate.definitions.transfer import description_of, schema_to
from callgate.errors import ToolNotDeclarableError, UsageError
from callgate.openai.quirks import Quirks
from callgate.schema.compile import compiled_of
from callgate.strict_json import objects_in
from callgate.types import JsonObject, ToolDefinition

__all__ = ["tools_of"]

# OpenAI: "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level".
_NOT_AT_ROOT = ("anyOf", "oneOf", "allOf", "enum", "not", "$ref", "if", "const")
_CUT = " [the rest was cut off]"


def tools_of(
    definitions: Iterable[ToolDefinition], declaration: Declaration, quirks: Quirks, *, only: str | None = None
) -> list[JsonObject]:
    """The declared tools in their order, each under its declared name; with `only`, that one alone.

    Raises:
        UsageError: a tool among them runs at Google.
        ToolNotDeclarableError: there are more of them than the server takes.
    """
    built_in = [key for tool in declaration.tools for key in tool if key in BUILT_IN]
    if built_in:
        raise UsageError(f"the built-in tool {built_in[0]!r} runs at Google; leave it out for other models")
    by_name = {definition.name: definition for definition in definitions}
    names = [(declared, own) for declared, own in declaration.names.items() if only in (None, declared)]
    if quirks.tools_max is not None and len(names) > quirks.tools_max:
        raise ToolNotDeclarableError(
            f"{len(names)} tools: {quirks.title} takes at most {quirks.tools_max} in a request; leave some out, or give the "
            "gate tools_shown= so that the model finds the others by itself"
        )
    if missing := [own for _, own in names if own not in by_name]:
        raise UsageError(f"the tool {missing[0]!r} is declared, but its definition is not among those of the request")
    return [_tool(declared, by_name[own], quirks) for declared, own in names]


def _tool(declared: str, definition: ToolDefinition, quirks: Quirks) -> JsonObject:
    schema = schema_to(definition)
    function: JsonObject = {"name": declared, "description": description_of(definition), "parameters": schema}
    if schema.get("type") != "object" or (quirks.root_must_be_object and _is_refused(schema)):
        compiled = compiled_of(definition, field="parametersJsonSchema", surface="developer")
        function["parameters"] = _widened(compiled.schema or {})
        if compiled.note and compiled.note not in function["description"]:
            function["description"] += f"\nArguments: {compiled.note}"
    function["description"] = _within(function["description"], quirks.description_chars_max)
    return {"type": "function", "function": function}


def _within(text: str, chars_max: int | None) -> str:
    if chars_max is None or len(text) <= chars_max:
        return text
    return text[: chars_max - len(_CUT)].rstrip() + _CUT


def _is_refused(schema: Mapping[str, Any]) -> bool:
    return any(key in schema for key in _NOT_AT_ROOT)


def _widened(schema: JsonObject) -> JsonObject:
    """The schema without alternatives at its root: every property of each, and required what all of them require."""
    kept = {key: value for key, value in schema.items() if key not in _NOT_AT_ROOT}
    branches = [branch for branch in objects_in(schema.get("anyOf")) if isinstance(branch.get("properties"), dict)]
    properties: dict[str, list[Any]] = {}
    for source in (kept, *branches):
        for name, inner in cast("JsonObject", source.get("properties") or {}).items():
            forms = properties.setdefault(name, [])
            forms += [inner] if inner not in forms else []
    required = [_required(branch) for branch in objects_in(schema.get("anyOf"))]
    shared: set[str] = required[0].intersection(*required) if required else set()
    needed = _required(kept) | shared
    merged = {name: forms[0] if len(forms) == 1 else {"anyOf": forms} for name, forms in properties.items()}
    return {**kept, "type": "object", "properties": merged} | ({"required": sorted(needed)} if needed else {})


def _required(schema: Mapping[str, Any]) -> set[str]:
    return set(cast("list[str]", schema.get("required") or []))
