"""The short way and the long way come to the same, and what is called sound surely compiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callgate.declaration import declare
from callgate.errors import ToolNotDeclarableError
from callgate.schema import compile as compiling
from callgate.schema import compile_schema, validator
from callgate.schema.soundness import sound_objects
from callgate.types import ToolDefinition

HERE = Path(__file__).resolve().parent / "cases"
CASES = [
    case
    for name in ("schema_cases", "keywords", "nasty")
    for case in json.loads((HERE / f"{name}.json").read_text("utf-8"))["cases"]
]
FORMS = (("parametersJsonSchema", "developer"), ("parameters", "developer"), ("parameters", "vertex"))


def outcome(schema: Any, field: Any, surface: Any) -> Any:
    try:
        found = compile_schema(schema, field=field, surface=surface, tool="t")
    except ToolNotDeclarableError as error:
        return str(error)
    args = {"a": 1, "x-y": {"x-y": [2]}}
    return found.schema, found.losses, found.note, found.encode(args), found.decode(found.encode(args))


def both_ways(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for field, surface in FORMS:
        short = outcome(schema, field, surface)
        with monkeypatch.context() as patch:
            patch.setattr(compiling, "_directly", lambda *_: None)
            assert short == outcome(schema, field, surface)


@pytest.mark.rows("case", CASES, ids=lambda case: case["id"])
def test_both_ways_come_to_the_same(case, monkeypatch) -> None:
    both_ways(case["tool"]["inputSchema"] if "tool" in case else case["schema"], monkeypatch)


# --- random schemas that are plain in most places -------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "x-y", "title", "$ref", "a/b", ""])
TEXTS = st.sampled_from(["Some text.", "Text (default 1)", "", "(one)", "ä"])
NUMBERS = st.sampled_from([0, 1, -1, 1.5, 2**53, 2**53 + 1, 10**400])
COUNTS = st.sampled_from([0, 1, 3, 2**31, 1.0])
DEFAULTS = st.sampled_from([None, True, 0, 1, 1.5, 2.0, "", "a", [], [1], {}, {"a": 1}])
COMMON = {"description": TEXTS, "title": TEXTS, "default": DEFAULTS}
TYPES = st.sampled_from(["string", "integer", "number", "boolean"])
SCALARS = st.one_of(
    st.fixed_dictionaries(
        {"type": TYPES},
        optional={
            **COMMON,
            "enum": st.lists(st.sampled_from(["a", "b", "", "a", 1, None]), min_size=1, max_size=3),
            "const": DEFAULTS,
            "format": st.sampled_from(["date-time", "email", "int32"]),
            "minimum": NUMBERS, "maximum": NUMBERS, "exclusiveMinimum": NUMBERS, "exclusiveMaximum": NUMBERS,
            "minLength": COUNTS, "maxLength": COUNTS, "pattern": st.sampled_from(["^a", "a$"]), "x-odd": DEFAULTS,
        },
    ),
    st.sampled_from([
        True, False, {}, {"type": "null"}, {"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A", "description": "Of this place."},
        {"$ref": "#/$defs/B"}, {"$ref": "#/$defs/B", "description": "Of that place."}, {"$ref": "#/nowhere"},
        {"$ref": "#/$defs/A/items", "description": "Of its items."}, {"$ref": "#/$defs/a~1b", "description": "Escaped."},
        {"$ref": "#/$defs/a/b", "description": "Not escaped."}, {"$ref": "#/definitions/A", "description": "Of old."},
        {"const": "a"}, {"const": "a", "description": "Only this."}, {"const": ""}, {"type": "string", "const": "a"},
        {"type": ["string", "null"]}, {"type": "integer", "minimum": 0}, {"type": "string", "description": "Some text."},
    ]),
)  # fmt: skip


def _around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    arrays = st.fixed_dictionaries(
        {"type": st.just("array")},
        optional={**COMMON, "items": inner, "minItems": COUNTS, "maxItems": COUNTS},
    )
    objects = st.fixed_dictionaries(
        {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=3)},
        optional={
            **COMMON,
            "required": st.lists(NAMES, max_size=3, unique=True),
            "additionalProperties": st.booleans() | inner,
            "$schema": st.sampled_from(["https://json-schema.org/draft/2020-12/schema"]),
        },
    )
    optionals = st.fixed_dictionaries(
        {"anyOf": st.tuples(inner, st.just({"type": "null"})).map(list) | st.lists(inner, min_size=1, max_size=3)},
        optional=COMMON,
    )
    return st.one_of(arrays, objects, optionals)


NODES = st.recursive(SCALARS, _around, max_leaves=6)
PLAIN = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(NAMES, NODES, max_size=4)},
    optional={
        "required": st.lists(NAMES, max_size=2, unique=True),
        "additionalProperties": st.booleans() | NODES,
        "description": TEXTS,
        "$defs": st.fixed_dictionaries({"A": NODES, "B": NODES}, optional={"a/b": NODES}),
        "definitions": st.fixed_dictionaries({"A": SCALARS}),
        "$schema": st.sampled_from(
            [
                "http://json-schema.org/draft-04/schema#",
                "http://json-schema.org/draft-07/schema#",
                "https://json-schema.org/draft/2020-12/schema",
            ]
        ),
    },
)


@pytest.mark.slow
def test_both_ways_come_to_the_same_for_any_plain_schema(monkeypatch, scale) -> None:
    @settings(max_examples=400 * scale, deadline=None, suppress_health_check=list(HealthCheck))
    @given(PLAIN)
    def holds(schema) -> None:
        both_ways(schema, monkeypatch)
        if sound_objects(schema) is not None:
            validator._compile(schema, "t")

    holds()


def test_a_tool_of_common_keywords_is_declared_without_compiling_its_validator(monkeypatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(compiling, "usable_validator", refuse)
    node = {"type": "string", "enum": ["a", "b"], "default": "a", "description": "Which."}
    schema = {"type": "object", "properties": {"x": node, "y": {"type": "array", "items": node}}, "required": ["x"]}
    assert declare([ToolDefinition(name="f", input_schema=schema)]).quarantined == {}


@pytest.mark.rows(
    "node",
    [
        {"pattern": "("}, {"type": "strange"}, {"type": []}, {"minLength": -1}, {"required": ["a", "a"]}, {"enum": 1},
        {"anyOf": []}, {"$ref": "#/$defs/None"}, {"$ref": 1}, {"properties": []}, {"description": 1}, {"minimum": "1"},
        {"default": float("inf")}, {"title": "\ud800"}, {"items": 5}, {"properties": {"\ud800": True}}, {1: True},
    ],
    ids=str,
)  # fmt: skip
def test_what_may_be_unusable_is_left_to_the_validator(node) -> None:
    assert sound_objects({"type": "object", "properties": {"x": node}}) is None


@pytest.mark.parametrize(
    "definitions",
    [
        {"A": {"type": "integer"}, "B": {"type": "strange"}},
        {"A": {"type": "integer", "minimum": "1"}}, {"A": {"type": "object", "properties": {"x": {"type": "strange"}}}},
        {"A": {"type": "integer"}, "B": 5},
    ],
    ids=str,
)  # fmt: skip
def test_a_definition_that_is_not_usable_is_refused_whether_it_is_used_or_not(definitions, monkeypatch) -> None:
    used = {"$ref": "#/$defs/A", "description": "Of this place."}
    schema = {"type": "object", "properties": {"x": used}, "$defs": definitions}
    with pytest.raises(ToolNotDeclarableError):
        compile_schema(schema)
    both_ways(schema, monkeypatch)


def test_definitions_that_are_odd_are_the_same_both_ways(monkeypatch) -> None:
    again = {"$ref": "#/$defs/A", "description": "Once more."}
    node = {"type": "object", "properties": {"next": again, "name": {"type": "string"}}}
    for required in ([], ["next"]):
        definitions = {
            "A": {**node, "required": required},
            "B": {"type": "integer", "description": 5},
            "C": {"$ref": "#/$defs/None"},
        }
        both_ways({"type": "object", "properties": {"x": again}, "$defs": definitions}, monkeypatch)
    text = {"$ref": "#/$defs/B", "description": "Its own is no text."}
    both_ways({"type": "object", "properties": {"x": text}, "$defs": definitions}, monkeypatch)


def test_what_is_sent_is_no_part_of_the_definition() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "string", "enum": ["a"]}}, "required": ["x"]}
    sent = compile_schema(schema).schema
    assert sent == schema
    sent["properties"]["x"]["enum"].append("b")
    sent["required"].clear()
    assert schema == {"type": "object", "properties": {"x": {"type": "string", "enum": ["a"]}}, "required": ["x"]}


def test_a_plain_schema_takes_the_short_way() -> None:
    node = {"type": "object", "properties": {"x": {"type": "integer", "minimum": 1}}, "required": ["x"]}
    assert compiling._directly(node, compiling._Judged(node, None), "parameters", "vertex") is not None
