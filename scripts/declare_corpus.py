"""Declares every tool of a file in every form and prints what went wrong: the table should hold nothing but zeros.

A JSON file of tools goes in: a list of them, an object with `tools`, a list of servers with `tools` each, or an object with
`cases` whose `tool` has `valid_args` and `invalid_args`. Arguments are made up besides, at random with a fixed seed, and
judged by the schema itself. Needs the packages of the `dev` group: protobuf's parser is the one that Google's client uses.

    python scripts/declare_corpus.py tools.json [--arguments 20] [--verbose]       ends with 1 if anything is not 0
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema_rs
from google.ai import generativelanguage
from google.protobuf import json_format

from callgate import ToolDefinition, check_arguments, declare, definition_from
from callgate.schema import Compiled, compile_schema
from callgate.schema.refs import Source, as_list, as_mapping
from callgate.schema.validator import validator_of
from callgate.testing.google_rules import judge_all

FORMS = tuple((field, surface) for field in ("parametersJsonSchema", "parameters") for surface in ("developer", "vertex"))

DOCUMENTED = frozenset({
    "$id", "$defs", "$ref", "$anchor", "type", "format", "title", "description", "enum", "items", "prefixItems", "minItems",
    "maxItems", "minimum", "maximum", "anyOf", "oneOf", "properties", "additionalProperties", "required", "propertyOrdering",
})  # fmt: skip
MESSAGE = frozenset({
    "type", "format", "title", "description", "nullable", "enum", "items", "maxItems", "minItems", "properties", "required",
    "minProperties", "maxProperties", "minimum", "maximum", "minLength", "maxLength", "pattern", "example", "anyOf",
    "propertyOrdering", "default",
})  # fmt: skip
COLUMNS = (
    "exceptions", "quarantined", "refused by protobuf", "against the rules", "undocumented keywords", "legal refused",
    "illegal passed", "not decoded",
)  # fmt: skip


# --- a compiled form, read back and judged ---------------------------------------------------------------------------------


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


def undocumented(schema: Any, field: str, surface: str) -> list[str]:
    """Keywords that the form does not have, and what stands beside a reference."""
    message = MESSAGE | ({"additionalProperties"} if surface == "vertex" else set())
    known = DOCUMENTED if field == "parametersJsonSchema" else message
    found = [f"unknown keyword {key!r}" for node in nodes(schema) for key in node if key not in known]
    return found + [f"beside $ref: {sorted(node)}" for node in nodes(schema) if "$ref" in node and len(node) > 1]


def broken_rules(schema: Any, field: str, surface: str) -> list[str]:
    """What the server would say of a request with this declaration."""
    declaration = {"name": "f", "description": "d", field: schema}
    body = {"contents": [{"role": "user", "parts": [{"text": "x"}]}], "tools": [{"functionDeclarations": [declaration]}]}
    return [f"{refusal.field}: {refusal.message}" for refusal in judge_all(body, surface=surface)]


def protobuf_refusal(schema: Any, field: str, surface: str) -> str | None:
    """What Google's own parser says of a Schema message. Its client has no field for what Vertex has beside it."""
    node = upper(schema) if field == "parameters" else {}
    try:
        json_format.ParseDict(node if surface == "developer" else _without_maps(node), generativelanguage.Schema.pb()())
    except json_format.ParseError as error:
        return str(error)
    return None


def _without_maps(node: Any) -> Any:
    if isinstance(node, dict):
        return {
            key: {name: _without_maps(one) for name, one in inner.items()} if key == "properties" else _without_maps(inner)
            for key, inner in node.items()
            if key != "additionalProperties"
        }
    return [_without_maps(inner) for inner in node] if isinstance(node, list) else node


def accepts(compiled: Compiled, field: str, args: Mapping[str, Any]) -> bool:
    """Whether a model could send the arguments."""
    if compiled.schema is None:
        return True
    schema = compiled.schema if field == "parametersJsonSchema" else read_back(compiled.schema)
    return jsonschema_rs.validator_for(schema, validate_formats=False).is_valid(compiled.encode(args))


# --- arguments -------------------------------------------------------------------------------------------------------------


class Arguments:
    """Makes up values that often fit a schema, and often do not quite."""

    def __init__(self, schema: Any, chance: random.Random) -> None:
        self.source = Source(schema)
        self.chance = chance

    def value(self, place: Any = None, depth: int = 0) -> Any:
        place = place or self.source.root
        node = as_mapping(place.schema)
        if depth > 8 or self.chance.random() < 0.05:
            return self.chance.choice([None, True, 0, -1, 2.5, "", "a", [], {}, ["a"], {"a": 1}])
        if "$ref" in node and (target := self.source.target(place, "$ref")):
            return self.value(target, depth + 1)
        for key in ("const", "default"):
            if key in node and self.chance.random() < (0.9 if key == "const" else 0.2):
                return node[key]
        if as_list(node.get("enum")) and self.chance.random() < 0.9:
            return self.chance.choice(list(node["enum"]))
        for key in ("anyOf", "oneOf", "allOf"):
            if count := len(as_list(node.get(key))):
                return self.value(self.source.below(place, key, self.chance.randrange(count)), depth + 1)
        return self._typed(place, node, depth)

    def _typed(self, place: Any, node: Mapping[str, Any], depth: int) -> Any:
        named = node.get("type", "object" if "properties" in node else "string")
        kind = self.chance.choice(named) if isinstance(named, list) else named
        if kind == "object":
            needed = set(map(str, as_list(node.get("required"))))
            names = [name for name in as_mapping(node.get("properties")) if name in needed or self.chance.random() < 0.5]
            made = {name: self.value(self.source.below(place, "properties", name), depth + 1) for name in names}
            if self.chance.random() < 0.1:
                made["else"] = 1
            if isinstance(node.get("additionalProperties"), dict):
                made["other"] = self.value(self.source.below(place, "additionalProperties"), depth + 1)
            return made
        if kind == "array":
            count = int(node.get("minItems", 0)) + self.chance.randrange(3)
            has_items = isinstance(node.get("items"), dict)
            return [self.value(self.source.below(place, "items"), depth + 1) if has_items else 1 for _ in range(count)]
        if kind in ("integer", "number"):
            low = node.get("minimum", node.get("exclusiveMinimum", 0))
            return low + self.chance.choice([0, 1, 2, -1] if kind == "integer" else [0, 1.5, 0.25])
        if kind == "string":
            return self.chance.choice(["a", "2026-01-02T03:04:05Z", "x" * int(node.get("minLength", 5)), "a@example.com"])
        return {"boolean": self.chance.random() < 0.5}.get(kind)


# --- the table -------------------------------------------------------------------------------------------------------------


@dataclass
class Row:
    """What one form came to."""

    counts: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)

    def add(self, column: str, tool: str, what: object) -> None:
        self.counts[column] += 1
        self.found.append(f"{column}: {tool}: {what}"[:500])


def tools_of(whole: Any) -> Iterator[tuple[ToolDefinition, list[Any]]]:
    """Every tool of a file, with the arguments that came along."""
    for item in whole if isinstance(whole, list) else whole.get("cases", whole.get("tools", [])):
        if "tools" in item:
            yield from tools_of(item["tools"])
        elif "valid_args" in item:
            tool = item.get("tool") or {"name": item["id"], "inputSchema": item["schema"]}
            definition = ToolDefinition(name=tool["name"], description="d", input_schema=tool["inputSchema"])
            yield definition, [*item["valid_args"], *item["invalid_args"]]
        else:
            yield definition_from(item), []


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is not fetched")


def judge_of(definition: ToolDefinition) -> jsonschema_rs.Validator:
    """What decides which arguments are legal: the schema as it is, or as callgate reads it if it is not quite usable."""
    schema = json.loads(json.dumps(definition.input_schema))
    try:
        return jsonschema_rs.validator_for(schema, validate_formats=False, retriever=_refuse)
    except ValueError:
        return validator_of(definition).root


def judge(definition: ToolDefinition, given: list[Any], form: tuple[Any, Any], row: Row) -> None:
    """Adds to the row what is wrong with one tool in one form."""
    schema_field, surface = form
    name, schema = definition.name, definition.input_schema
    try:
        declaration = declare([definition], schema_field=schema_field, surface=surface)
        for reason in declaration.quarantined.values():
            return row.add("quarantined", name, reason)
        compiled = compile_schema(schema, field=schema_field, surface=surface)
    except Exception as error:  # whatever it is, it is what is looked for
        return row.add("exceptions", name, repr(error))
    if compiled.schema is not None:
        if refusal := protobuf_refusal(compiled.schema, schema_field, surface):
            row.add("refused by protobuf", name, refusal)
        for rule in broken_rules(compiled.schema, schema_field, surface):
            row.add("against the rules", name, rule)
        for word in undocumented(compiled.schema, schema_field, surface):
            row.add("undocumented keywords", name, word)
    judged = judge_of(definition)
    for args in given:
        row.counts["legal" if judged.is_valid(args) else "illegal"] += 1
        _judge_arguments(definition, args, (judged, compiled, schema_field), row)
    return None


def _judge_arguments(definition: ToolDefinition, args: Any, forms: tuple[Any, Compiled, str], row: Row) -> None:
    judged, compiled, schema_field = forms
    checked = check_arguments(definition, compiled.encode(args))
    if judged.is_valid(args):
        if checked.problems or not accepts(compiled, schema_field, args):
            row.add("legal refused", definition.name, (args, checked.problems))
        if compiled.decode(compiled.encode(args)) != args:
            row.add("not decoded", definition.name, args)
    # What passes after all was lossless to mend, and must be legal then.
    elif not checked.problems and not (checked.coercions and judged.is_valid(checked.args)):
        row.add("illegal passed", definition.name, args)


def judged_rows(whole: Any, arguments: int) -> dict[tuple[str, str], Row]:
    """The table: one row a form."""
    rows = {form: Row() for form in FORMS}
    for definition, given in tools_of(whole):
        made = Arguments(definition.input_schema, random.Random(f"callgate {definition.name}"))
        values = [value for _ in range(arguments) if isinstance(value := made.value(), dict)]
        for form, row in rows.items():
            row.counts["tools"] += 1
            judge(definition, [*given, *values], form, row)
    return rows


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Declares every tool of a file in every form and counts what went wrong.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--arguments", type=int, default=20, help="how many to make up for each tool")
    parser.add_argument("--verbose", action="store_true", help="name what was found")
    chosen = parser.parse_args(arguments)
    rows = judged_rows(json.loads(chosen.file.read_text("utf-8")), chosen.arguments)
    names = [f"{schema_field} {surface}" for schema_field, surface in rows]
    width = max(map(len, (*COLUMNS, "illegal arguments tried")))
    print(" " * width, *names, sep="  ")
    for label, column in (
        ("tools", "tools"), ("legal arguments tried", "legal"), ("illegal arguments tried", "illegal"),
        *((column, column) for column in COLUMNS),
    ):  # fmt: skip
        figures = [str(row.counts[column]).rjust(len(name)) for row, name in zip(rows.values(), names, strict=True)]
        print(label.ljust(width), *figures, sep="  ")
    for form, row in rows.items():
        for line in row.found if chosen.verbose else row.found[:3]:
            print(*form, line)
    return 1 if any(row.found for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
