"""Forms of servers: which fields they have, and what a typed text stands for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.mcp.forms import Field, fields_of, value_of

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "title": "Name", "description": "Of the guest.", "minLength": 2},
        "age": {"type": "integer", "minimum": 0},
        "tip": {"type": "number", "default": 1.5},
        "outside": {"type": "boolean"},
        "menu": {"type": "string", "enum": ["a", "b"], "enumNames": ["Fish", "Cake"]},
        "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["ice", "mint"]}, "minItems": 1},
        "more": {"type": "array", "items": {"anyOf": [{"const": "x", "title": "Ex"}, {"const": "y"}]}},
        "odd": True,
    },
    "required": ["name"],
}


def test_every_field_of_a_form_is_found():
    fields = {field.name: field for field in fields_of(SCHEMA)}
    assert {name: field.kind for name, field in fields.items()} == {
        "name": "text", "age": "integer", "tip": "number", "outside": "boolean", "menu": "choice", "size": "choice",
        "extras": "choices", "more": "choices",
    }  # fmt: skip
    assert fields["name"] == Field(
        name="name", kind="text", schema=SCHEMA["properties"]["name"], title="Name", description="Of the guest.",
        required=True,
    )  # fmt: skip
    assert fields["tip"].default == 1.5
    assert fields["menu"].options == (("a", "Fish"), ("b", "Cake"))
    assert fields["size"].options == (("s", "Small"), ("l", "Large"))
    assert fields["more"].options == (("x", "Ex"), ("y", "y"))


@pytest.mark.parametrize(
    ("name", "typed", "value"),
    [
        ("name", " Ada ", "Ada"), ("age", "7", 7), ("tip", "2.5", 2.5), ("outside", "Y", True), ("outside", "no", False),
        ("menu", "2", "b"), ("menu", "fish", "a"), ("size", "l", "l"), ("size", "Small", "s"),
        ("extras", "1, 2,1", ["ice", "mint"]),
        ("more", "Ex", ["x"]), ("more", "", []),
    ],
)  # fmt: skip
def test_a_typed_text_becomes_a_value(name: str, typed: str, value: Any):
    (field,) = [field for field in fields_of(SCHEMA) if field.name == name]
    assert value_of(field, typed) == (value, None)


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [
        ("name", "A", "2"), ("age", "x", "a whole number is expected"), ("age", "-1", "0"),
        ("tip", "much", "a number is expected"),
        ("outside", "maybe", "yes or no is expected"), ("menu", "9", "one of 1 to 2 is expected"),
        ("extras", "1, 9", "numbers of 1 to 2 are expected"), ("extras", "", "1"), ("tip", "nan", ""),
    ],
)  # fmt: skip
def test_what_cannot_be_a_value_is_said(name: str, typed: str, said: str):
    (field,) = [field for field in fields_of(SCHEMA) if field.name == name]
    value, problem = value_of(field, typed)
    assert value is None
    assert problem is not None
    assert said in problem


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "enum", "oneOf", "items"]), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=3), st.text(max_size=8))
def test_no_form_is_too_odd_to_be_read(properties: dict[str, Any], typed: str):
    for field in fields_of({"properties": properties, "required": list(properties)}):
        value, problem = value_of(field, typed)
        assert value is None or problem is None


def test_what_has_no_fields_has_none():
    assert fields_of({}) == fields_of({"properties": [1]}) == []
