"""What the schema tests share: the compiled forms of a schema, read back and judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import jsonschema_rs
import pytest
from google.ai import generativelanguage
from google.protobuf import json_format

from callgate.schema import Compiled, compile_schema
from callgate.testing.google_rules import judge_all

FORMS = (("parametersJsonSchema", "developer"), ("parameters", "developer"), ("parameters", "vertex"))

DOCUMENTED = frozenset({
    "$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum", "items", "prefixItems", "minItems",
    "maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties", "additionalProperties", "required", "propertyOrdering",
})  # fmt: skip
MESSAGE = frozenset({
    "type", "format", "title", "description", "nullable", "enum", "items", "maxItems", "minItems", "properties", "required",
    "minProperties", "maxProperties", "minimum", "maximum", "minLength", "maxLength", "pattern", "example", "anyOf",
    "propertyOrdering", "default",
})  # fmt: skip


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema inside a schema that was compiled, by position."""
    if not isinstance(schema, dict):
        return
    yield schema
    for key in ("properties", "$defs"):
        for inner in schema.get(key, {}).values():
            yield from nodes(inner)
    for key in ("anyOf", "oneOf", "prefixItems"):
        for inner in schema.get(key, ()):
            yield from nodes(inner)
    for key in ("items", "additionalProperties"):
        yield from nodes(schema.get(key))


def read_back(schema: Any) -> Any:
    """A Schema message as JSON Schema: `nullable` allows null."""
    if not isinstance(schema, dict):
        return schema
    plain = {key: value for key, value in schema.items() if key not in ("nullable", "description", "default", "format")}
    if "properties" in plain:
        plain["properties"] = {name: read_back(inner) for name, inner in plain["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in plain:
            plain[key] = read_back(plain[key])
    if "anyOf" in plain:
        plain["anyOf"] = [read_back(inner) for inner in plain["anyOf"]]
    return {"anyOf": [plain, {"type": "null"}]} if schema.get("nullable") else plain


def upper(schema: Any) -> Any:
    """A Schema message with its types as protobuf spells them."""
    if not isinstance(schema, dict):
        return schema
    node = dict(schema)
    if "type" in node:
        node["type"] = node["type"].upper()
    if "properties" in node:
        node["properties"] = {name: upper(inner) for name, inner in node["properties"].items()}
    for key in ("items", "additionalProperties"):
        if key in node:
            node[key] = upper(node[key])
    if "anyOf" in node:
        node["anyOf"] = [upper(inner) for inner in node["anyOf"]]
    return node


def accepts(compiled: Compiled, field: str, args: Mapping[str, Any]) -> bool:
    """Whether a model could send the arguments."""
    if compiled.schema is None:
        return True
    schema = compiled.schema if field == "parametersJsonSchema" else read_back(compiled.schema)
    return jsonschema_rs.validator_for(schema, validate_formats=False).is_valid(compiled.encode(args))


def faults(compiled: Compiled, field: str, surface: str) -> list[str]:
    """Everything that is wrong with a compiled form: fields that do not exist, what protobuf or the server would refuse."""
    if compiled.schema is None:
        return []
    known = (
        DOCUMENTED
        if field == "parametersJsonSchema"
        else MESSAGE | ({"additionalProperties"} if surface == "vertex" else set())
    )
    found = [f"unknown keyword {key!r}" for node in nodes(compiled.schema) for key in node if key not in known]
    found += [f"beside $ref: {sorted(node)}" for node in nodes(compiled.schema) if "$ref" in node and len(node) > 1]
    declaration = {"name": "f", "description": "d", field: compiled.schema}
    body = {"contents": [{"role": "user", "parts": [{"text": "x"}]}], "tools": [{"functionDeclarations": [declaration]}]}
    found += [f"{refusal.field}: {refusal.message}" for refusal in judge_all(body, surface=surface)]
    if field == "parameters" and surface == "developer":
        json_format.ParseDict(upper(compiled.schema), generativelanguage.Schema.pb()())
    return found


@pytest.fixture(scope="session")
def wire() -> SimpleNamespace:
    return SimpleNamespace(
        forms=FORMS, accepts=accepts, faults=faults, nodes=nodes, read_back=read_back, compile=compile_schema
    )
