"""Definitions -> the tools of another API, with their own JSON Schemas.

Definitions and the names under which they are declared come in; names, descriptions and schemas go out. A schema whose root
an API refuses is widened: what it said besides is still checked before a tool runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from callgate.declaration import BUILT_IN, Declaration
from callgate.definitions.transfer import description_of, schema_to
from callgate.errors import ToolNotDeclarableError, UsageError
from callgate.schema.compile import compiled_of
from callgate.strict_json import objects_in
from callgate.types import JsonObject, ToolDefinition

__all__ = ["REFUSED_AT_ROOT", "DeclaredTool", "declared_tools"]

REFUSED_AT_ROOT = ("anyOf", "oneOf", "allOf", "enum", "not", "$ref", "if", "const")
"""The keywords that OpenAI and Anthropic refuse at the root of a schema."""


class DeclaredTool(NamedTuple):
    """One tool, as a request declares it."""

    name: str
    description: str
    parameters: JsonObject


def declared_tools(
    definitions: Iterable[ToolDefinition],
    declaration: Declaration,
    *,
    title: str,
    tools_max: int | None = None,
    refused_at_root: Collection[str] = REFUSED_AT_ROOT,
    only: str | None = None,
) -> Iterator[DeclaredTool]:
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
    if tools_max is not None and len(names) > tools_max:
        raise ToolNotDeclarableError(
            f"{len(names)} tools: {title} takes at most {tools_max} in a request; leave some out, or give the "
            "gate tools_shown= so that the model finds the others by itself"
        )
    if missing := [own for _, own in names if own not in by_name]:
        raise UsageError(f"the tool {missing[0]!r} is declared, but its definition is not among those of the request")
    return (_declared(declared, by_name[own], refused_at_root) for declared, own in names)


def _declared(name: str, definition: ToolDefinition, refused_at_root: Collection[str]) -> DeclaredTool:
    schema, description = schema_to(definition), description_of(definition)
    if schema.get("type") != "object" or any(key in schema for key in refused_at_root):
        compiled = compiled_of(definition, field="parametersJsonSchema", surface="developer")
        schema = _widened(compiled.schema or {})
        if compiled.note and compiled.note not in description:
            description += f"\nArguments: {compiled.note}"
    return DeclaredTool(name, description, schema)


def _widened(schema: JsonObject) -> JsonObject:
    """The schema without alternatives at its root: every property of each, and required what all of them require."""
    kept = {key: value for key, value in schema.items() if key not in REFUSED_AT_ROOT}
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
