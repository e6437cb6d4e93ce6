"""Slips with a plain meaning do not cost a tool its place; what may mean several things does, with a sentence."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from callgate.declaration import declare
from callgate.schema import check_arguments, compile_schema
from callgate.schema.normalize import normalize_schema
from callgate.schema.validator import validator_of
from callgate.types import ToolDefinition

TEXT = {"type": "string"}
D4 = "http://json-schema.org/draft-04/schema#"


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.rows(
    ("schema", "meant"),
    [
        ({"type": "object", "properties": []}, {"type": "object"}),
        ({**of(a=TEXT), "required": None, "$schema": None, "description": None}, of(a=TEXT)),
        (of(a={"type": "string", "description": None, "enum": None, "format": None}), of(a=TEXT)),
        (of(a={"type": "array", "items": None}), of(a={"type": "array"})),
        (of(a={"type": "array", "items": []}), of(a={"type": "array", "items": {}})),
        ({**of(a=TEXT), "additionalProperties": []}, {**of(a=TEXT), "additionalProperties": {}}),
        (of(a=None), of(a={})),
        ({"type": "OBJECT", "properties": {"a": {"type": "STRING"}}}, of(a=TEXT)),
        (of(a={"type": "any", "description": "Whatever."}), of(a={"description": "Whatever."})),
        (of(a={"type": ["String", "NULL"]}), of(a={"type": ["string", "null"]})),
        ({**of(a=TEXT), "required": ["a", "a"]}, {**of(a=TEXT), "required": ["a"]}),
        (of(a={"type": "string", "required": True}, b={"type": "string", "required": False}),
         {**of(a=TEXT, b=TEXT), "required": ["a"]}),
        ({**of(a={"type": "string", "required": True}, b=TEXT), "required": ["b"]},
         {**of(a=TEXT, b=TEXT), "required": ["b", "a"]}),
        ({"$schema": D4, **of(a={"type": "number", "exclusiveMinimum": True}), "required": []}, of(a={"type": "number"})),
        ({**of(a={"$ref": "#here"}), "$defs": {"x": {"$id": "#here", "type": "string"}}}, of(a=TEXT)),
        ({**of(a={"$ref": "#/$defs/Map<größe, 5%>[]"}), "$defs": {"Map<größe, 5%>[]": TEXT}}, of(a=TEXT)),
        ({**of(a={"$ref": "#/$defs/a#b"}), "$defs": {"a#b": TEXT}}, of(a=TEXT)),
        (of(a={"type": "str", "description": 5, "title": ["t"], "examples": "x", "allOf": []}), of(a=TEXT)),
        (of(a={"type": "int"}, b={"type": ["list", "None"]}), of(a={"type": "integer"}, b={"type": ["array", "null"]})),
        (of(a={"type": "float"}, b={"type": "bool"}), of(a={"type": "number"}, b={"type": "boolean"})),
        ({"type": "dict", "properties": {"a": {"type": "double"}}}, of(a={"type": "number"})),
        ({"allOf": [of(a={"type": "Integer"})]}, {"allOf": [of(a={"type": "integer"})]}),
    ],
)  # fmt: skip
def test_a_slip_is_read_as_it_is_meant_and_the_schema_stays_as_it_came(schema, meant) -> None:
    before = copy.deepcopy(schema)
    for field, surface in (("parametersJsonSchema", "developer"), ("parameters", "developer"), ("parameters", "vertex")):
        sent, wanted = (compile_schema(one, field=field, surface=surface) for one in (schema, meant))
        assert (sent.schema, sent.losses) == (wanted.schema, wanted.losses)
    for args in ({}, {"a": 1}, {"a": "x"}, {"a": None}, {"b": "x"}):
        checked = [check_arguments(ToolDefinition(name="f", input_schema=one), args) for one in (schema, meant)]
        assert checked[0] == checked[1]
    assert schema == before


def test_every_slip_is_told_with_its_place() -> None:
    schema: dict[str, Any] = {
        "type": "OBJECT", "properties": {"a/b": {"type": "any", "required": True}, "c": None}, "required": ["c", "c"],
        "$defs": [], "description": None, "anyOf": [{"$id": "#x"}],
    }  # fmt: skip
    assert normalize_schema(schema) == [
        "/description: null is read as not there",
        "/$defs: an empty list is read as an empty object",
        "/properties/c: null is read as any value",
        "/type: 'OBJECT' is read as 'object'",
        "/required: a name that is listed twice is read once",
        "/properties/a~1b/required: true is read as a word of the object around it",
        "/properties/a~1b/type: 'any' is read as any value",
        "/anyOf/0/$id: '#x' is read as an $anchor",
    ]
    assert normalize_schema(schema) == []


def test_properties_named_like_keywords_may_be_anything() -> None:
    schema = of(type={"type": "null"}, required={"type": "boolean"}, properties={"const": None}, enum=TEXT)
    assert check_arguments(ToolDefinition(name="f", input_schema=schema), {"properties": None, "type": None}).problems == []
    assert check_arguments(ToolDefinition(name="f", input_schema=schema), {"properties": []}).problems != []


def test_null_stays_where_it_is_a_value() -> None:
    schema = of(a={"const": None, "default": None}, b={"enum": [None]})
    assert check_arguments(ToolDefinition(name="f", input_schema=schema), {"a": None, "b": None}).problems == []
    assert check_arguments(ToolDefinition(name="f", input_schema=schema), {"a": 1}).problems != []


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (of(a={"type": "file"}), "is not usable at /properties/a/type: 'file' is not a type; the types are string, number"),
        (of(a={"type": ["string", "blob"]}), "is not usable at /properties/a/type"),
        (of(a={"anyOf": []}), "is not usable at /properties/a/anyOf: what stands there has less than 1 item; correct"),
        ({"required": "a"}, "is not usable at /required"),
        ({"type": "object", "properties": ["a"]}, "is not usable at /properties"),
        (
            of(a={"$ref": "#/$defs/none"}),
            "does not exist; correct the schema, and move what it refers to into its own $defs",
        ),
    ],
)
def test_what_cannot_be_known_is_told_and_takes_no_other_tool_down(schema, sentence) -> None:
    good = ToolDefinition(name="good", input_schema=of(a=TEXT))
    declaration = declare([ToolDefinition(name="bad", input_schema=schema), good])
    assert list(declaration.names) == ["good"]
    assert sentence in declaration.quarantined["bad"]


@pytest.mark.parametrize(
    ("pattern", "fitting", "others"),
    [
        (r"^[\w-.]+$", ["a-b.c"], ["a b", ""]),
        (r"^[.-\w]+$", ["a-b.c"], ["a b"]),
        (r"^a[^]*b$", ["a\nb", "ab"], ["a"]),
        (r"^\d+\Z", ["12"], ["12a"]),
        (r"^(?<q>['\x22]).*\k<q>$", ["'a'"], ["'a"]),
        (r"^(a)(?:b)(?<q>c)\k<q>$", ["abcc"], ["abca"]),
        (r"^\0$", ["\x00"], ["0"]),
        (r"^{a}$", ["{a}"], ["a"]),
    ],
)
def test_a_pattern_that_has_another_spelling_is_checked(pattern, fitting, others) -> None:
    definition = ToolDefinition(name="f", input_schema=of(a={"type": "string", "pattern": pattern}))
    assert declare([definition]).quarantined == {}
    assert [text for text in fitting if check_arguments(definition, {"a": text}).problems] == []
    assert [text for text in others if not check_arguments(definition, {"a": text}).problems] == []


def test_a_pattern_that_only_python_reads_is_told_and_not_checked() -> None:
    definition = ToolDefinition(name="f", input_schema=of(a={"pattern": "^(?>a)b$"}, b={"type": "integer"}))
    assert declare([definition]).quarantined == {}
    assert check_arguments(definition, {"a": "zzz", "b": "x"}).problems == ["b: 'x' is a string, but an integer is needed"]
    assert validator_of(definition).slips == ["/properties/a/pattern: '^(?>a)b$' cannot be read, and is not checked"]


@pytest.mark.parametrize("field", ["parametersJsonSchema", "parameters"])
def test_a_pattern_that_is_not_checked_is_among_the_losses(field) -> None:
    keyed = {"type": "object", "patternProperties": {"^(?>a)": {"type": "integer"}}, "additionalProperties": False}
    definition = ToolDefinition(name="f", input_schema=of(a={"pattern": "^(?>a)b$"}, b=keyed, c={"pattern": "^c$"}))
    unchecked = [loss for loss in declare([definition], schema_field=field).losses if loss.instead == "not checked"]
    assert [(loss.tool, loss.pointer, loss.keyword) for loss in unchecked] == [
        ("f", "/properties/a/pattern", "pattern"),
        ("f", "/properties/b/patternProperties/^(?>a)", "patternProperties"),
    ]
    assert check_arguments(definition, {"a": "zzz", "b": {"any": "x"}, "c": "c"}).problems == []
    assert check_arguments(definition, {"b": [], "c": "d"}).problems != []


def test_a_key_pattern_that_other_keywords_depend_on_is_not_taken_out() -> None:
    keyed = {"type": "object", "patternProperties": {"^(?>a)": True}, "unevaluatedProperties": False}
    quarantined = declare([ToolDefinition(name="f", input_schema=of(a=keyed))]).quarantined
    assert "is not usable at /properties/a/patternProperties" in quarantined["f"]


def test_keys_by_patterns_are_spelled_anew_too() -> None:
    node = {"type": "object", "patternProperties": {r"^[\w-.]+$": {"type": "integer"}}, "additionalProperties": False}
    definition = ToolDefinition(name="f", input_schema=of(a=node))
    assert check_arguments(definition, {"a": {"x-y.z": 1}}).problems == []
    assert check_arguments(definition, {"a": {"x y": 1}}).problems != []


def test_a_pattern_that_nobody_reads_is_refused() -> None:
    definition = ToolDefinition(name="f", input_schema=of(a={"pattern": "("}))
    assert "is not usable at /properties/a/pattern" in declare([definition]).quarantined["f"]
