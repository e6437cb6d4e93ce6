"""Schemas become what Gemini takes: never narrower, nothing lost in silence, bounded, and the same every time."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from callgate import strict_json
from callgate.errors import ToolNotDeclarableError, UsageError
from callgate.schema import check_arguments, compile_schema
from callgate.schema.compile import compiled_of
from callgate.types import ToolDefinition

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
FORMS = [("parametersJsonSchema", "developer"), ("parameters", "developer"), ("parameters", "vertex")]
TEXT = {"type": "string"}


def tool(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def sent(x: Any, field: str = "parametersJsonSchema", surface: str = "developer", **root: Any) -> Any:
    """What is sent for a property."""
    compiled = compile_schema({**tool(x=x), **root}, field=field, surface=surface)
    assert compiled.schema
    return compiled.schema["properties"]["x"]


def losses(
    x: Any, field: str = "parametersJsonSchema", surface: str = "developer", **root: Any
) -> list[tuple[str, str, str]]:
    compiled = compile_schema({**tool(x=x), **root}, field=field, surface=surface)
    return [(loss.pointer, loss.keyword, loss.instead) for loss in compiled.losses]


# --- what is sent --------------------------------------------------------------------------------------------------------


@pytest.mark.rows(
    ("x", "as_json", "as_message"),
    [
        (TEXT, TEXT, TEXT),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ({"enum": [1, 2, 3]}, {"type": "integer", "enum": [1, 2, 3]}, {"type": "integer", "minimum": 1, "maximum": 3}),
        (
            {"enum": [60, 1440]},
            {"type": "integer", "enum": [60, 1440]},
            {"type": "integer", "description": "(one of 60, 1440)", "minimum": 60, "maximum": 1440},
        ),
        (
            {"enum": ["", "a"]},
            {"type": "string", "description": '(one of "", "a")'},
            {"type": "string", "description": '(one of "", "a")'},
        ),
        (
            {"type": "integer", "exclusiveMinimum": 0, "description": "How many."},
            {"type": "integer", "description": "How many.", "minimum": 1},
            {"type": "integer", "description": "How many.", "minimum": 1},
        ),
        (
            {"type": "number", "exclusiveMinimum": 0, "description": "How much."},
            {"type": "number", "description": "How much. (more than 0)", "minimum": 0},
            {"type": "number", "description": "How much. (more than 0)", "minimum": 0},
        ),
        (
            {"type": "string", "pattern": "^a+$", "minLength": 1},
            {"type": "string", "description": "(pattern ^a+$) (at least 1 character)"},
            {"type": "string", "pattern": "^a+$", "minLength": 1},
        ),
        (
            {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
            {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer"}}},
            {"type": "object", "description": "(any keys, each value: array of integer)"},
        ),
        (
            {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "additionalProperties": TEXT},
            {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "additionalProperties": False},
            {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
        ),
        (
            {"anyOf": [TEXT, {"type": "integer"}, {"type": "null"}], "description": "Who.", "default": 6},
            {"description": "Who. (default 6)", "anyOf": [TEXT, {"type": "integer"}, {"type": "null"}]},
            {
                "anyOf": [
                    {"type": "string", "description": "Who. (default 6)", "nullable": True},
                    {"type": "integer", "description": "Who. (default 6)"},
                ]
            },
        ),
        (
            {"oneOf": [{"const": 1, "title": "low"}, {"const": 2, "title": "high"}]},
            {"type": "integer", "description": "(1: low; 2: high)", "enum": [1, 2]},
            {"type": "integer", "description": "(1: low; 2: high)", "minimum": 1, "maximum": 2},
        ),
        (
            {"type": "array", "prefixItems": [TEXT, TEXT], "items": False, "minItems": 2},
            {"type": "array", "prefixItems": [TEXT, TEXT], "minItems": 2, "maxItems": 2},
            {"type": "array", "items": TEXT, "minItems": 2, "maxItems": 2},
        ),
        (
            {"type": "string", "format": "email"},
            {"type": "string", "format": "email"},
            {"type": "string", "description": "(format email)"},
        ),
        ({"type": "boolean", "default": False}, {"type": "boolean", "description": "(default false)"}, None),
    ],
)
def test_a_schema_has_a_form_in_each_dialect(x, as_json, as_message) -> None:
    assert sent(x) == as_json
    assert sent(x, "parameters") == (as_message or x)


def test_text_beside_a_reference_wins_and_the_rest_of_the_definition_stays() -> None:
    definitions = {"$defs": {"A": {"type": "string", "description": "theirs", "enum": ["a"]}}}
    for field in ("parametersJsonSchema", "parameters"):
        found = sent({"$ref": "#/$defs/A", "description": "mine"}, field, **definitions)
        assert found == {"type": "string", "description": "mine", "enum": ["a"]}


def test_titles_go_and_properties_of_that_name_stay() -> None:
    x = {"type": "object", "title": "T", "properties": {"title": {"type": "string", "title": "Title"}}}
    assert sent(x) == {"type": "object", "properties": {"title": TEXT}}
    assert losses(x) == [
        ("/properties/x/properties/title/title", "title", "left out"),
        ("/properties/x/title", "title", "left out"),
    ]


def test_definitions_that_came_along_inside_a_property_are_followed_there() -> None:
    node = {"$defs": {"A": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/A"}}
    for field, surface in FORMS:
        sent = compile_schema(tool(x=node), field=field, surface=surface)
        assert sent.schema == tool(x={"type": "array", "items": {"type": "integer"}})
        assert sent.losses == []


def test_recursion_stays_a_reference_where_it_may_be_left_out() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}
    compiled = compile_schema({**tool(x={"$ref": "#/$defs/Node"}), "$defs": {"Node": node}})
    assert compiled.schema == {**tool(x={"$ref": "#/$defs/Node"}), "$defs": {"Node": node}}
    assert compiled.losses == []


def test_recursion_through_a_required_property_is_unrolled_and_then_widened() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "required": ["next"]}
    compiled = compile_schema({**tool(x={"$ref": "#/$defs/Node"}), "$defs": {"Node": node}})
    depth, found = 0, compiled.schema["properties"]["x"]
    while "properties" in found:
        depth, found = depth + 1, found["properties"]["next"]
    assert (depth, found) == (3, {"type": "object", "description": "(nested as above)"})
    assert [(loss.pointer, loss.instead) for loss in compiled.losses] == [("/$defs/Node/properties/next/$ref", "widened")]


def test_a_definition_that_is_used_often_is_sent_once(wire) -> None:
    large = {"type": "object", "properties": {f"p{n}": TEXT for n in range(30)}}
    compiled = compile_schema({**tool(**{f"x{n}": {"$ref": "#/$defs/L"} for n in range(20)}), "$defs": {"L": large}})
    assert compiled.schema["$defs"] == {"L": large}
    assert sum(1 for _ in wire.nodes(compiled.schema)) < 60


def test_names_that_vertex_refuses_travel_under_an_alias_and_come_back() -> None:
    schema = {**tool(**{"$ref": TEXT, "x-y": {"type": "array", "items": tool(**{"a.b": TEXT})}}), "required": ["$ref"]}
    compiled = compile_schema(schema, field="parameters", surface="vertex")
    args = {"$ref": "a", "x-y": [{"a.b": "c"}]}
    assert compiled.schema
    assert not {"$ref", "x-y"} & compiled.schema["properties"].keys()
    assert compiled.encode(args).keys() == compiled.schema["properties"].keys()
    assert compiled.decode(compiled.encode(args)) == args
    definition = ToolDefinition(name="f", input_schema=schema)
    assert check_arguments(definition, compiled.encode(args)).args == args
    assert compile_schema(schema, field="parameters").schema == {"type": "object", **schema}


@pytest.mark.parametrize("field", ["parametersJsonSchema", "parameters"])
@pytest.mark.parametrize("schema", [True, {}, {"type": "object"}, {"type": "object", "properties": {}}])
def test_a_schema_that_asks_for_nothing_is_not_sent(schema, field) -> None:
    assert compile_schema(schema, field=field).schema is None


def test_free_arguments_are_told_in_the_tools_description_where_the_schema_cannot_be_sent() -> None:
    compiled = compile_schema({"type": "object", "additionalProperties": {"type": "integer"}}, field="parameters")
    assert (compiled.schema, compiled.note) == (None, "(any keys, each value: integer)")


@pytest.mark.rows("field", ["parametersJsonSchema", "parameters"])
@pytest.mark.rows(
    "schema",
    [
        False,
        {"type": "string"},
        {"const": 5},
        {"enum": ["a"]},
        {"not": {}},
        {"properties": {"a": {"not": True}}, "required": ["a"]},
        {"allOf": [{"type": "object"}, {"type": "string"}]},
        {"anyOf": [{"type": "string"}, False]},
        {"properties": {"a": False}, "required": ["a"]},
        {"additionalProperties": False, "required": ["a"]},
        {"$ref": "#/$defs/A", "$defs": {"A": {"type": "integer"}}},
    ],
)
def test_a_schema_that_accepts_no_object_is_refused_by_name(schema, field) -> None:
    with pytest.raises(ToolNotDeclarableError, match=r"^tool 't': its input schema accepts no object"):
        compile_schema(schema, field=field, tool="t")


def test_unknown_fields_and_surfaces_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown schema field 'schema'"):
        compile_schema({}, field="schema")
    with pytest.raises(UsageError, match="unknown surface 'moon'"):
        compile_schema({}, surface="moon")


# --- what is lost --------------------------------------------------------------------------------------------------------


@pytest.mark.rows(
    ("x", "keyword", "instead"),
    [
        ({"type": "array", "uniqueItems": True}, "uniqueItems", "stated in the description"),
        ({"type": "integer", "multipleOf": 3}, "multipleOf", "stated in the description"),
        ({"not": {"type": "string"}}, "not", "checked locally"),
        ({"not": {"const": ""}}, "not", "stated in the description"),
        ({"if": {"type": "string"}, "then": {"minLength": 1}}, "if", "checked locally"),
        ({"type": "array", "contains": TEXT}, "contains", "checked locally"),
        ({"type": "array", "contains": {}}, "contains", "checked locally"),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, "dependentRequired", "stated in the description"),
        ({"type": "object", "unevaluatedProperties": False}, "unevaluatedProperties", "checked locally"),
        ({"type": "object", "patternProperties": {"^a": TEXT}}, "patternProperties", "stated in the description"),
        ({"type": "object", "propertyNames": {"maxLength": 3}}, "propertyNames", "stated in the description"),
        ({"enum": ["", "a"]}, "enum", "widened"),
        ({"const": True}, "const", "stated in the description"),
        ({"oneOf": [{"minimum": 1}, {"maximum": 5}]}, "oneOf", "checked locally"),
        ({"type": "string", "x-vendor": 1}, "x-vendor", "left out"),
        ({"type": "string", "nullable": True}, "nullable", "left out"),
        ({"$ref": "http://127.0.0.1:9/a.json"}, "$ref", "widened"),
    ],
)  # fmt: skip
@pytest.mark.rows(("field", "surface"), FORMS)
def test_every_loss_names_its_place_and_what_is_done_instead(x, keyword, instead, field, surface) -> None:
    assert (f"/properties/x/{keyword}", keyword, instead) in losses(x, field, surface)


def test_a_recursion_that_cannot_be_sent_is_a_loss_where_it_is_cut() -> None:
    schema = {**tool(x={"$ref": "#/$defs/A"}), "$defs": {"A": tool(n={"$ref": "#/$defs/A"})}}
    found = compile_schema(schema, field="parameters", surface="developer").losses
    assert [(loss.pointer, loss.keyword, loss.instead) for loss in found] == [
        ("/$defs/A/properties/n/$ref", "$ref", "widened")
    ]


def test_alternatives_beside_a_cut_recursion_keep_only_its_type() -> None:
    beside = {"$ref": "#/$defs/A", "anyOf": [tool(k=TEXT), TEXT]}
    schema = {**tool(x={"$ref": "#/$defs/A"}), "$defs": {"A": tool(n=beside)}}
    sent: Any = compile_schema(schema, field="parameters", surface="developer").schema
    cut = sent["properties"]["x"]["properties"]["n"]["properties"]["n"]["properties"]["n"]
    assert cut == {"type": "object", "properties": {"k": {"type": "string"}}}


def test_alternatives_that_exclude_one_another_by_themselves_are_no_loss() -> None:
    def branch(tag: str) -> dict[str, Any]:
        return {**tool(kind={"const": tag}), "required": ["kind"]}

    assert losses({"oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]}) == []
    assert losses({"oneOf": [branch("a"), branch("b"), {"type": "null"}]}) == []
    shared = {"$defs": {name: branch(name) for name in "ab"}}
    assert losses({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}, **shared) == []


# --- bounds --------------------------------------------------------------------------------------------------------------


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = TEXT
    for _ in range(levels):
        schema = tool(a=schema)
    return schema


def laughs(levels: int, width: int) -> dict[str, Any]:
    definitions = {f"D{n}": tool(**{f"k{m}": {"$ref": f"#/$defs/D{n + 1}"} for m in range(width)}) for n in range(levels)}
    return {**tool(x={"$ref": "#/$defs/D0"}), "$defs": {**definitions, f"D{levels}": TEXT}}


def all_of_all(count: int) -> dict[str, Any]:
    names = [f"M{n}" for n in range(count)]
    node = {**tool(**{name: {"$ref": f"#/$defs/{name}", "description": "x"} for name in names}), "required": names}
    return {**tool(x={"$ref": "#/$defs/M0"}), "$defs": dict.fromkeys(names, node)}


def product(unions: int) -> dict[str, Any]:
    union = [{"anyOf": [tool(**{f"a{n}{m}": TEXT}) for m in range(5)]} for n in range(unions)]
    return tool(x={"allOf": union})


def doubled(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = TEXT
    for _ in range(levels):
        schema = tool(a=schema, b=schema)
    return schema


HOSTILE: dict[str, Any] = {
    "laughs": laughs(9, 10),
    "long laughs": laughs(40, 2),
    "200 deep": nested(200),
    "45 deep": nested(45),
    "10,000 values": tool(x={"enum": [f"v{n}" for n in range(10_000)]}),
    "3,000 alternatives": tool(x={"oneOf": [{"const": n} for n in range(3_000)]}),
    "4,000 properties": tool(**{f"p{n}": TEXT for n in range(4_000)}),
    "slow pattern": tool(x={"type": "string", "pattern": "(a+)+$"}),
    "everything in everything": all_of_all(20),
    "product of unions": product(20),
    "objects that are shared": doubled(60),
    "chain of references": {
        **tool(x={"$ref": "#/$defs/c0"}),
        "$defs": {**{f"c{n}": {"$ref": f"#/$defs/c{n + 1}"} for n in range(2_000)}, "c2000": TEXT},
    },
    "chain of definitions": {
        **tool(x={"$ref": "#/$defs/c0"}),
        "$defs": {**{f"c{n}": tool(y={"$ref": f"#/$defs/c{n + 1}"}) for n in range(2_000)}, "c2000": TEXT},
    },
    "nothing but itself": {"$ref": "#"},
    "circle": tool(x={"$ref": "#/properties/y"}, y={"$ref": "#/properties/x"}),
    "all of itself": {**tool(x={"$ref": "#/$defs/A"}), "$defs": {"A": {"allOf": [{"$ref": "#/$defs/A"}, tool(y=TEXT)]}}},
    "not a number": tool(x={"minimum": float("nan")}),
    "a key that is no text": {"properties": {"x": {1: 2}}},
    "bound beyond a double": tool(x={"minimum": 10**400, "maximum": -(10**400)}),
    "half a character": tool(x={"description": "\ud800"}),
    "nonsense": {"properties": 5, "anyOf": {}},
}


@pytest.mark.parametrize(("field", "surface"), FORMS)
def test_a_limit_of_a_type_that_cannot_occur_is_neither_sent_nor_told(wire, field, surface) -> None:
    compiled = wire.compile(tool(x={"allOf": [TEXT, {"minimum": 3}]}), field=field, surface=surface)
    assert (compiled.schema["properties"]["x"], compiled.losses) == (TEXT, [])


@pytest.mark.parametrize(("field", "surface"), FORMS)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_schemas_end_in_a_small_result_or_a_typed_error(wire, name, field, surface) -> None:
    start = time.process_time()
    try:
        compiled = compile_schema(HOSTILE[name], field=field, surface=surface)
    except ToolNotDeclarableError:
        pass
    else:
        assert wire.faults(compiled, field, surface) == []
        assert len(strict_json.dump(compiled.schema)) < 200_000
    assert time.process_time() - start < 20  # clock: processor time; without bounds it is years


def test_a_remote_reference_is_never_fetched_and_the_rest_is_still_checked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        schema = tool(x={"$ref": url}, n={"type": "integer"}, y={"not": {"$ref": f"{url}#/a"}})
        for field, surface in FORMS:
            compiled = compile_schema(schema, field=field, surface=surface)
            assert "/properties/x/$ref" in [loss.pointer for loss in compiled.losses]
        definition = ToolDefinition(name="t", input_schema=schema)
        assert tuple(check_arguments(definition, {"x": [1], "y": 1, "n": 1}).problems) == ()
        assert check_arguments(definition, {"n": "a"}).problems
        with pytest.raises(BlockingIOError):
            server.accept()


def test_the_same_schema_gives_the_same_bytes_in_every_process() -> None:
    code = """
import json, sys
from callgate.schema import compile_schema
schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/A"}, "y": {"type": ["null", "object", "string"]}},
  "$defs": {
    "A": {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}, "c": {"$ref": "#/$defs/C"}}},
    "B": {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}, "c": {"$ref": "#/$defs/C"}}},
    "C": {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}, "d": {"enum": ["x", 1, None, True]}}}}}
for field in ("parametersJsonSchema", "parameters"):
    compiled = compile_schema(schema, field=field)
    sys.stdout.write(json.dumps([compiled.schema, [repr(loss) for loss in compiled.losses]]))
"""
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(seen) == 1


def test_a_definition_is_compiled_once_and_a_shared_schema_names_the_right_tool() -> None:
    schema = tool(x={"type": "string", "default": "a"})
    first, second = ToolDefinition(name="a", input_schema=schema), ToolDefinition(name="b", input_schema=schema)
    kept = compiled_of(first, field="parametersJsonSchema", surface="developer")
    assert compiled_of(first, field="parametersJsonSchema", surface="developer") is kept
    other = compiled_of(second, field="parametersJsonSchema", surface="developer")
    assert other.schema is kept.schema
    assert [[loss.tool for loss in found.losses] for found in (kept, other)] == [["a"], ["b"]]


# --- any schema at all ---------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "$ref", "title", "items", "x-y", ""])
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([1.5, 2.0, 2**53 + 1, "", "a", "abc", "1"])
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=6
)
TYPES = st.sampled_from(["string", "number", "integer", "boolean", "array", "object", "null"])
NUMBERS = st.sampled_from([0, 1, -1, 1.5, 2**53 + 1, -(2**60) - 1])
COUNTS = st.integers(0, 3)
REFS = st.sampled_from(["#", "#/$defs/A", "#/$defs/B~1c", "#name", "#/properties/a", "http://127.0.0.1:9/x"])


def _keywords(inner: st.SearchStrategy[Any]) -> dict[str, st.SearchStrategy[Any]]:
    some = st.lists(inner, min_size=1, max_size=3)
    by_name = st.dictionaries(NAMES, inner, max_size=3)
    return {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=4, unique_by=lambda value: json.dumps(value, sort_keys=True)),
        "const": VALUES,
        **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), NUMBERS),
        "multipleOf": st.sampled_from([1, 2, 0.5]),
        **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), COUNTS),
        "pattern": st.sampled_from(["^a", "b$", "(a+)+$", "^(?!a)"]),
        "format": st.sampled_from(["date-time", "email", "int32"]),
        "uniqueItems": st.booleans(),
        **dict.fromkeys(("items", "additionalProperties", "contains", "not", "if", "then", "else"), inner),
        **dict.fromkeys(("propertyNames", "unevaluatedProperties", "unevaluatedItems"), inner),
        **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), some),
        **dict.fromkeys(("properties", "dependentSchemas"), by_name),
        "patternProperties": st.dictionaries(st.sampled_from(["^a", "^x"]), inner, max_size=2),
        "required": st.lists(NAMES, max_size=2, unique=True),
        "dependentRequired": st.just({"a": ["b"]}),
        **dict.fromkeys(("description", "title"), st.just("Some text.")),
        "default": VALUES,
        "examples": st.lists(VALUES, max_size=2),
        "$ref": REFS,
    }


def _node(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keywords = _keywords(inner)
    chosen = st.lists(st.sampled_from(sorted(keywords)), max_size=4, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: keywords[name] for name in names}))


SCHEMAS = st.recursive(st.booleans() | st.just({}), _node, max_leaves=8)
DIALECTS = st.sampled_from([
    None, "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-06/schema#",
])  # fmt: skip


@st.composite
def tool_schemas(draw: st.DrawFn) -> dict[str, Any]:
    beside = draw(SCHEMAS)
    schema: dict[str, Any] = {
        **(beside if isinstance(beside, dict) else {}),
        "type": "object",
        "properties": {"a": draw(SCHEMAS), **draw(st.dictionaries(NAMES, SCHEMAS, max_size=2))},
        "$defs": {"A": draw(SCHEMAS), "B/c": draw(SCHEMAS), "C": {"$anchor": "name", "type": "object"}},
    }
    dialect = draw(DIALECTS)
    return {"$schema": dialect, **schema} if dialect else schema


@settings(max_examples=150 * SCALE, deadline=None, suppress_health_check=list(HealthCheck))
@given(tool_schemas(), st.lists(st.dictionaries(NAMES, VALUES, max_size=3), min_size=1, max_size=6))
def test_what_a_schema_accepts_can_be_sent_and_comes_back(wire, schema, instances) -> None:
    forms = {}
    try:
        for field, surface in FORMS:
            forms[field, surface] = compile_schema(schema, field=field, surface=surface)
    except ToolNotDeclarableError as error:
        # A schema is refused as unusable in every form, or because no object fits it.
        usable = "accepts no object" in str(error)
        if usable:
            assert not any(_accepted(schema, args) for args in instances)
        assume(False)
    for (field, surface), compiled in forms.items():
        assert wire.faults(compiled, field, surface) == []
        for args in instances:
            if _accepted(schema, args):
                assert wire.accepts(compiled, field, args)
            assert compiled.decode(compiled.encode(args)) == args
    again = forms["parametersJsonSchema", "developer"].schema
    if again is not None:
        assert compile_schema(again).schema == again


def _accepted(schema: dict[str, Any], args: dict[str, Any]) -> bool:
    from callgate.schema.validator import usable_validator

    return usable_validator(schema, None).root.is_valid(args)


@settings(max_examples=150 * SCALE, deadline=None)
@given(
    st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(sorted(_keywords(TYPES))), inner))
)
def test_nothing_but_one_error_is_raised_whatever_comes_in(schema) -> None:
    assume(isinstance(schema, (dict, bool)))
    for field, surface in FORMS:
        try:
            compiled = compile_schema(schema, field=field, surface=surface)
        except ToolNotDeclarableError:
            continue
        assert compiled.schema is None or jsonschema_rs.validator_for(compiled.schema if "Json" in field else {})


@pytest.mark.parametrize("sign", [1, -1])
def test_bounds_of_listed_integers_that_no_double_holds_are_moved_outwards(wire, sign) -> None:
    values = [sign * (2**53 + 1), sign * (2**53 + 3), sign * 2**60]
    schema = tool(x={"type": "integer", "enum": values})
    for field, surface in wire.forms:
        compiled = wire.compile(schema, field=field, surface=surface)
        assert all(wire.accepts(compiled, field, {"x": value}) for value in values), compiled.schema


@pytest.mark.parametrize("field", ["parametersJsonSchema", "parameters"])
def test_listed_objects_without_a_required_name_are_none_of_the_values(field: str) -> None:
    needs = {"required": ["a"], "enum": [{}, {"a": 1}]}
    assert sent(needs, field)["description"] == '(only {"a": 1})'
    text = sent({"required": ["a"], "enum": [{}, "s"]}, field)
    assert (text["type"].lower(), text["enum"]) == ("string", ["s"])
    with pytest.raises(ToolNotDeclarableError):
        compile_schema({"type": "object", "required": ["a"], "allOf": [{"enum": [{}, None]}]}, field=field)


@pytest.mark.parametrize("schema", [None, [], "object", 5])
def test_a_schema_that_is_no_object_is_told_when_it_is_used(schema) -> None:
    with pytest.raises(
        ToolNotDeclarableError, match=r"tool 'f': its input schema is .*; a schema of arguments is an object"
    ):
        check_arguments(ToolDefinition(name="f", input_schema=schema), {})
