"""Arguments that are a union as a whole, for those who refuse that: one object, never narrower, and a loss for it."""

from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from callgate import ToolDefinition, convert
from callgate.definitions.root_unions import without_root_unions

REFUSED = ("anyOf", "oneOf", "allOf", "enum", "const", "not")
TEXT = {"type": "string", "description": "A text."}
COUNT = {"type": "integer"}


def test_alternatives_of_required_properties_are_said_in_words() -> None:
    schema = {
        "type": "object",
        "properties": {"a": TEXT, "b": TEXT},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    }
    found = convert(ToolDefinition(name="f", description="d", input_schema=schema), target="anthropic")
    assert found.value["input_schema"] == {
        "type": "object",
        "properties": {"a": TEXT, "b": TEXT},
        "description": "(needs a or b)",
    }
    (loss,) = found.losses
    assert (loss.pointer, loss.keyword, loss.tool) == ("/input_schema/anyOf", "anyOf", "f")
    assert loss.instead == "merged into one object; what is needed when is stated in the description"


def test_closed_alternatives_keep_the_types_of_their_properties() -> None:
    schema = {
        "oneOf": [
            {"type": "object", "properties": {"kind": {"const": "x"}, "n": COUNT}, "required": ["kind", "n"],
             "additionalProperties": False},
            {"$ref": "#/$defs/B"},
        ],
        "$defs": {"B": {"type": "object", "properties": {"kind": {"const": "y"}}, "required": ["kind"],
                        "additionalProperties": False}},
    }  # fmt: skip
    whole, done = without_root_unions(schema, REFUSED)
    assert whole == {
        "$defs": schema["$defs"],
        "type": "object",
        "properties": {"kind": {"anyOf": [{"const": "x"}, {"const": "y"}]}, "n": COUNT},
        "required": ["kind"],
        "description": "(needs exactly one of: n or nothing more)",
    }
    assert list(done) == ["oneOf"]


def test_a_property_that_other_alternatives_leave_open_is_described() -> None:
    schema = {"anyOf": [{"properties": {"a": TEXT}}, {"properties": {"b": {"enum": [1, 2]}}}]}
    whole, _ = without_root_unions(schema, REFUSED)
    assert whole["properties"] == {"a": {"description": "A text. (string)"}, "b": {"description": "(one of 1, 2)"}}


def test_parts_that_all_hold_are_merged_without_a_change() -> None:
    schema = {"properties": {"a": TEXT}, "allOf": [{"properties": {"a": {"minLength": 1}, "b": COUNT}, "required": ["b"]}]}
    whole, done = without_root_unions(schema, REFUSED)
    assert whole["properties"] == {"a": {"allOf": [TEXT, {"minLength": 1}]}, "b": COUNT}
    assert whole["required"] == ["b"]
    assert done == {"allOf": "merged into one object"}


def test_openai_refuses_more_than_anthropic() -> None:
    schema = {"type": "object", "properties": {"a": TEXT}, "not": {"required": ["a"]}}
    tool = ToolDefinition(name="f", description="d", input_schema=schema)
    assert [loss.keyword for loss in convert(tool, target="openai").losses] == ["not"]
    assert convert(tool, target="anthropic").losses == []


@pytest.mark.parametrize("target", ["openai", "anthropic"])
def test_a_tool_of_the_same_format_stays_as_it_is(target) -> None:
    schema = {"type": "object", "anyOf": [{"required": ["a"]}]}
    own = {
        "openai": {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}},
        "anthropic": {"name": "f", "description": "d", "input_schema": schema},
    }[target]
    assert convert(own, source=target, target=target).value == own


def test_alternatives_that_lead_back_to_the_whole_end() -> None:
    whole, _ = without_root_unions({"anyOf": [{"$ref": "#"}, *[{"$ref": "#", "required": ["a"]}] * 100]}, REFUSED)
    assert whole["type"] == "object"


# --- whatever it is --------------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
LEAVES = st.sampled_from([{}, True, False, COUNT, TEXT, {"const": 1}, {"enum": ["x", 2]}, {"type": ["integer", "null"]}])
PARTS = st.recursive(
    st.sampled_from(
        [True, {}, {"type": "string"}, {"$ref": "#/$defs/A"}, {"$ref": "#"}, {"$ref": "#/$defs/A", "required": ["c"]}]
    ),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "type": st.just("object"),
            "properties": st.dictionaries(NAMES, LEAVES, max_size=3),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "additionalProperties": st.booleans(),
            "patternProperties": st.just({"^a": COUNT}),
            **dict.fromkeys(("anyOf", "oneOf", "allOf"), st.lists(inner, min_size=1, max_size=3)),
        },
    ),
    max_leaves=6,
)
WHOLES = st.builds(
    lambda part, extra, held: {**(part if isinstance(part, dict) else {}), **extra, "$defs": {"A": held}},
    PARTS,
    st.fixed_dictionaries(
        {},
        optional={
            "$schema": st.just("http://json-schema.org/draft-07/schema#"),
            "unevaluatedProperties": st.just(False),
            "not": st.just({"required": ["a"]}),
            "enum": st.just([{"a": 1}]),
        },
    ),
    PARTS,
)
ARGS = st.dictionaries(NAMES, st.sampled_from([1, "x", None, [], 2]), max_size=3)


def test_what_a_schema_accepts_its_plain_form_accepts(scale) -> None:
    @settings(max_examples=300 * scale, deadline=None, suppress_health_check=list(HealthCheck))
    @given(WHOLES, st.lists(ARGS, min_size=4, max_size=8))
    def holds(schema: dict[str, Any], instances: list[Any]) -> None:
        whole, _ = without_root_unions(schema, REFUSED)
        assert not {*REFUSED} & {*whole}
        try:
            judge = jsonschema_rs.validator_for(schema)
            plain = jsonschema_rs.validator_for(whole)
            accepted = [args for args in instances if judge.is_valid(args)]
        except ValueError:
            return
        assert [args for args in accepted if not plain.is_valid(args)] == []

    holds()
