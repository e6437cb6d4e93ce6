"""Arguments against schemas: what is coerced, what is refused, and in which words."""

import os
import socket
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.errors import ToolNotDeclarableError, UsageError
from callgate.schema import check_arguments
from callgate.schema.validator import SchemaValidator, validator_of
from callgate.types import Checked, ToolDefinition

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
thorough = settings(max_examples=200 * SCALE, deadline=None)


def definition(properties=None, **keywords):
    return ToolDefinition(name="t", input_schema={"type": "object", "properties": properties or {}, **keywords})


def check_one(schema, value):
    """The value after the check, with its coercions and problems, for a tool with the one argument `x`."""
    checked = check_arguments(definition({"x": schema}), {"x": value})
    return checked.args["x"], tuple(checked.coercions), tuple(checked.problems)


INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}


def test_valid_arguments_come_back_equal_and_as_a_new_object():
    args = {"x": {"a": [1, "5"]}}
    checked = check_arguments(definition({"x": {"type": "object"}}), args)
    assert checked == Checked(args={"x": {"a": [1, "5"]}})
    assert checked.args is not args
    assert checked.args["x"] is not args["x"]


@pytest.mark.rows(
    ("schema", "value", "expected", "note"),
    [
        (INTEGER, "5", 5, 'x: "5" read as the integer 5'),
        (INTEGER, "-12", -12, 'x: "-12" read as the integer -12'),
        (INTEGER, "1234567890123456789", 1234567890123456789,
         'x: "1234567890123456789" read as the integer 1234567890123456789'),
        (INTEGER, 5.0, 5, "x: 5.0 read as the integer 5"),
        (INTEGER, float(2**53), 2**53, "x: 9007199254740992.0 read as the integer 9007199254740992"),
        (NUMBER, "3.5", 3.5, 'x: "3.5" read as the number 3.5'),
        (NUMBER, "7", 7, 'x: "7" read as the integer 7'),
        (NUMBER, "1e2", 100.0, 'x: "1e2" read as the number 100.0'),
        ({"type": "boolean"}, "true", True, 'x: "true" read as the boolean true'),
        ({"type": "boolean"}, "false", False, 'x: "false" read as the boolean false'),
        ({"type": "array"}, '["a"]', ["a"], 'x: "["a"]" read as an array'),
        ({"type": "object"}, '{"a": 1}', {"a": 1}, 'x: "{"a": 1}" read as an object'),
        ({"type": ["integer", "null"]}, "5", 5, 'x: "5" read as the integer 5'),
        ({"type": ["integer", "null"]}, 5.0, 5, "x: 5.0 read as the integer 5"),
        ({"enum": [1, 2]}, "2", 2, 'x: "2" read as the integer 2'),
        ({"const": True}, "true", True, 'x: "true" read as the boolean true'),
        ({"anyOf": [INTEGER, {"type": "null"}]}, "5", 5, 'x: "5" read as the integer 5'),
        ({"anyOf": [INTEGER, {"type": "null"}]}, 5.0, 5, "x: 5.0 read as the integer 5"),
        ({"oneOf": [{"type": "boolean"}, INTEGER]}, "5", 5, 'x: "5" read as the integer 5'),
        ({"allOf": [INTEGER, {"minimum": 1}]}, "5", 5, 'x: "5" read as the integer 5'),
        ({"allOf": [NUMBER, INTEGER]}, 5.0, 5, "x: 5.0 read as the integer 5"),
        ({"items": INTEGER}, [1, "2"], [1, 2], 'x[1]: "2" read as the integer 2'),
        ({"items": INTEGER}, [1, 2.0], [1, 2], "x[1]: 2.0 read as the integer 2"),
        ({"prefixItems": [INTEGER], "items": NUMBER}, [1.0, 2.0], [1, 2.0], "x[0]: 1.0 read as the integer 1"),
        ({"additionalProperties": INTEGER}, {"a": "2"}, {"a": 2}, 'x.a: "2" read as the integer 2'),
        ({"additionalProperties": INTEGER}, {"a": 2.0}, {"a": 2}, "x.a: 2.0 read as the integer 2"),
    ],
)  # fmt: skip
def test_lossless_coercion_is_made_and_recorded(schema, value, expected, note):
    result, coercions, problems = check_one(schema, value)
    assert (result, coercions, problems) == (expected, (note,), ())
    assert type(result) is type(expected)


@pytest.mark.parametrize(
    "text", ["3.7", "5.0", "00501", "1_000", " 5", "5 ", "+5", "-0", "0x10", "1e3", "٥", "", "five", "null"]
)
def test_text_that_is_not_plainly_an_integer_is_refused(text):
    assert check_one(INTEGER, text) == (text, (), (f"x: '{text}' is a string, but an integer is needed",))


@pytest.mark.parametrize("text", ["1e999", "1e-999", "0.1234567890123456789", ".5", "5.", "NaN", "Infinity", "1,5"])
def test_text_that_a_double_cannot_hold_exactly_is_not_read_as_a_number(text):
    assert check_one(NUMBER, text)[:2] == (text, ())


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "string"}, "00501"),
        ({"type": ["string", "integer"]}, "5"),
        ({"anyOf": [INTEGER, {"type": "string"}]}, "5"),
        ({}, "5"),
        ({"enum": ["1", 1]}, "1"),
        (NUMBER, 5.0),
        ({"anyOf": [INTEGER, NUMBER]}, 5.0),
        (INTEGER, 1e300),
        ({"type": ["integer", "string"]}, '{"a": 1}'),
    ],
)
def test_values_that_are_allowed_as_they_are_stay_as_they_are(schema, value):
    result, coercions, problems = check_one(schema, value)
    assert (result, coercions, problems) == (value, (), ())
    assert type(result) is type(value)


@pytest.mark.rows(
    ("schema", "value", "problem"),
    [
        (INTEGER, True, "x: true was given, but an integer is needed"),
        ({"type": "boolean"}, 1, "x: 1 is an integer, but a boolean is needed"),
        ({"type": "boolean"}, "True", "x: 'True' is a string, but a boolean is needed"),
        ({"type": "null"}, "null", "x: 'null' is a string, but null is needed"),
        (INTEGER, 3.7, "x: 3.7 is a number, but an integer is needed"),
        ({"type": "string"}, 5, "x: 5 is an integer, but a string is needed"),
        ({"type": "array"}, "[1,", "x: '[1,' is a string, but an array is needed"),
        ({"type": "array"}, '{"a": 1}', "x: '{\"a\": 1}' is a string, but an array is needed"),
        ({"type": "object"}, [1], "x: an array was given, but an object is needed"),
        ({"anyOf": [INTEGER, {"type": "null"}]}, "s", "x: 's' is a string, but an integer or null is needed"),
        ({"enum": ["celsius", "fahrenheit"]}, "kelvin", "x: 'kelvin' is not one of 'celsius', 'fahrenheit'"),
        ({"oneOf": [{"const": 1}, {"const": 2}]}, 4, "x: 4 is not one of 1, 2"),
        ({"const": 1}, 2, "x: 2 is not 1, the only value allowed"),
        ({"type": "integer", "minimum": 3}, "1", "x: 1 is less than the minimum of 3"),
        (
            {"oneOf": [INTEGER, {"minimum": 1}]},
            5,
            "x: 5 fits more than one of the allowed forms, where exactly one must fit",
        ),
        (False, 5, "x: no value is allowed here"),
    ],
)
def test_problem_is_a_sentence_with_its_path(schema, value, problem):
    assert check_one(schema, value)[2] == (problem,)


def test_missing_and_unknown_arguments_are_named_with_a_guess():
    checked = check_arguments(definition({"city": {}}, required=["city"], additionalProperties=False), {"citty": 1, "zz": 2})
    assert tuple(checked.problems) == (
        "unknown argument 'citty'; did you mean 'city'?", "unknown argument 'zz'", "'city' is required but missing",
    )  # fmt: skip


def test_nested_problem_has_a_readable_path():
    operation = {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": ["path"],
        "additionalProperties": False,
    }
    schema = definition({"operations": {"type": "array", "items": {"$ref": "#/$defs/op"}}}, **{"$defs": {"op": operation}})
    checked = check_arguments(schema, {"operations": [{"pth": 1}, {"path": 5}]})
    assert tuple(checked.problems) == (
        "operations[0]: unknown key 'pth'; did you mean 'path'?",
        "operations[0]: 'path' is required but missing",
        "operations[1].path: 5 is an integer, but a string is needed",
    )


def test_tool_without_parameters_refuses_any():
    assert check_arguments(definition(additionalProperties=False), {"a": 1}).problems in (
        ["this tool takes no arguments"], ["unknown argument 'a'"],
    )  # fmt: skip


def test_json_text_is_opened_and_what_it_holds_is_coerced_too():
    checked = check_arguments(definition({"x": {"type": "array", "items": INTEGER}}), {"x": '["1", 2]'})
    assert checked == Checked(
        args={"x": [1, 2]}, coercions=('x: "["1", 2]" read as an array', 'x[0]: "1" read as the integer 1')
    )


def test_branch_of_a_union_is_chosen_by_what_makes_the_value_valid():
    def form(kind, value):
        return {"type": "object", "properties": {"kind": {"const": kind}, "n": value}, "required": ["kind", "n"]}

    schema = {"oneOf": [form("a", INTEGER), form("b", {"type": "boolean"})]}
    assert check_one(schema, {"kind": "b", "n": "true"}) == (
        {"kind": "b", "n": True}, ('x.n: "true" read as the boolean true',), (),
    )  # fmt: skip


def test_coercion_follows_recursive_references():
    node = {"type": "object", "properties": {"n": INTEGER, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}
    schema = definition({"x": {"$ref": "#/$defs/node"}}, **{"$defs": {"node": node}})
    checked = check_arguments(schema, {"x": {"n": "1", "kids": [{"n": 2.0, "kids": [{"n": "3"}]}]}})
    assert checked.args == {"x": {"n": 1, "kids": [{"n": 2, "kids": [{"n": 3}]}]}}
    assert tuple(checked.problems) == ()


def test_unions_nested_in_unions_are_tried_a_bounded_number_of_times():
    node = {
        "anyOf": [{"type": "object", "properties": {k: {"$ref": "#/$defs/node"}}, "required": [k]} for k in ("a", "b", "c")]
    }
    value = "leaf"
    for _ in range(40):
        value = {"a": value, "b": value, "c": 1} if isinstance(value, str) else {"a": value}
    assert check_arguments(definition({"x": {"$ref": "#/$defs/node"}}, **{"$defs": {"node": node}}), {"x": value}).problems


def test_a_union_that_lies_inside_itself_ends():
    inner = {"A": {"oneOf": [{"$ref": "#/$defs/B"}]}, "B": {"allOf": [{"$ref": "#/$defs/A"}, {"type": "object"}]}}
    schema = definition({"x": {"$ref": "#/$defs/A"}}, **{"$defs": inner})
    assert check_arguments(schema, {"x": "a"}).problems != []
    assert check_arguments(schema, {"x": {}}).problems == []


def test_at_most_ten_problems_are_told_and_values_are_cut():
    checked = check_arguments(
        definition({"x": {"type": "array", "items": {"enum": ["a"]}}}), {"x": ["y" * 900 + str(i) for i in range(50)]}
    )
    assert len(checked.problems) == 10
    assert checked.problems[-1] == "and 41 more problems"
    assert max(map(len, checked.problems)) < 310


def test_arguments_nested_ten_thousand_deep_are_a_problem():
    deep: list = []
    for _ in range(10_000):
        deep = [deep]
    assert tuple(check_arguments(definition(), {"x": deep}).problems) == ("the arguments are nested deeper than 100 levels",)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (float("nan"), "the number nan is not finite"),
        ({1, 2}, "the arguments hold a value of type 'set', which cannot be passed on"),
        ([10**5000], "the arguments hold an integer of 16610 bits, which cannot be passed on"),
        ("\ud800", "the arguments hold text with half a surrogate pair, which cannot be passed on"),
        ({1: 2}, "the arguments hold a key that is not a string, which cannot be passed on"),
    ],
)
def test_what_is_not_json_is_a_problem(value, problem):
    assert tuple(check_arguments(definition(), {"x": value}).problems) == (problem,)


def test_keys_that_look_like_indexes_are_kept_apart_from_them():
    schema = {"additionalProperties": INTEGER}
    assert check_one(schema, {"0": "5"}) == ({"0": 5}, ('x.0: "5" read as the integer 5',), ())
    # The validator's paths show "0" and "00" alike, so nothing is coerced here.
    assert check_one(schema, {"00": "5"}) == ({"00": "5"}, (), ("x.0: '5' is a string, but an integer is needed",))


def test_long_array_of_numbers_in_quotes_is_coerced_quickly():
    checked = check_arguments(definition({"x": {"type": "array", "items": INTEGER}}), {"x": [str(i) for i in range(5_000)]})
    assert checked.args == {"x": list(range(5_000))}


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_remote_reference_is_never_fetched_and_asks_for_nothing(keyword):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        url = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        schema = definition(
            {"x": {keyword: url, "type": "integer"}, "y": {"oneOf": [{keyword: url}, {"not": {keyword: url}}]}}
        )
        assert tuple(check_arguments(schema, {"x": 1, "y": 1}).problems) == ()
        assert tuple(check_arguments(schema, {"x": "a"}).problems) == ("x: 'a' is a string, but an integer is needed",)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_definitions_that_came_along_inside_a_property_are_found_there():
    inner = {
        "$defs": {"n/1": INTEGER},
        "anyOf": [{"$ref": "#/$defs/n~11"}, {"type": "array", "items": {"$ref": "#/$defs/n~11"}}],
    }
    schema = definition({"x": inner, "y": {"$id": "urn:other", "properties": {"z": inner}}})
    assert tuple(check_arguments(schema, {"x": 1, "y": {"z": [2, 3]}}).problems) == ()
    assert check_arguments(schema, {"x": "a"}).problems
    assert check_arguments(schema, {"y": {"z": ["a"]}}).problems


def test_a_definition_of_the_whole_schema_wins_over_one_that_is_nearer():
    schema = definition(
        {"x": {"$defs": {"A": {"type": "string"}}, "allOf": [{"$ref": "#/$defs/A"}]}}, **{"$defs": {"A": INTEGER}}
    )
    assert tuple(check_arguments(schema, {"x": 1}).problems) == ()
    assert check_arguments(schema, {"x": "a"}).problems


def test_a_reference_into_an_old_list_of_items_is_followed():
    schema = definition({"x": {"items": [INTEGER, {"$ref": "#/properties/x/items/0"}]}})
    assert tuple(check_arguments(schema, {"x": [1, 2]}).problems) == ()
    assert check_arguments(schema, {"x": [1, "a"]}).problems


def test_the_schema_of_schemas_of_another_draft_asks_for_nothing():
    other, own = "http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"
    schema = definition({"x": {"$ref": other}, "y": {"$ref": own}})
    assert tuple(check_arguments(schema, {"x": {"type": 5}, "y": {"type": "string"}}).problems) == ()
    assert check_arguments(schema, {"y": {"type": 5}}).problems


def test_what_refuses_everything_still_does_beside_a_remote_reference():
    schema = definition({"x": {"$ref": "http://127.0.0.1:9/a"}, "y": {"not": {}}})
    assert tuple(check_arguments(schema, {"x": 1}).problems) == ()
    assert check_arguments(schema, {"y": 1}).problems


def test_file_reference_is_not_read(tmp_path):
    path = tmp_path / "s.json"
    path.write_text('{"type": "integer"}')
    assert tuple(check_arguments(definition({"x": {"$ref": path.as_uri()}}), {"x": "a"}).problems) == ()


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"x": {"type": "text"}}},
        {"required": True},
        {"$ref": "#/$defs/nowhere"},
        {"properties": {"x": {"pattern": "("}}},
    ],
)
def test_schema_that_cannot_be_used_names_its_tool(schema):
    with pytest.raises(ToolNotDeclarableError, match=r"tool 'broken': its input schema is not usable"):
        check_arguments(ToolDefinition(name="broken", input_schema=schema), {})


def test_schema_nested_too_deep_names_its_tool():
    schema: dict = {"type": "object"}
    for _ in range(10_000):
        schema = {"properties": {"a": schema}}
    with pytest.raises(ToolNotDeclarableError, match="nested deeper"):
        check_arguments(ToolDefinition(name="broken", input_schema=schema), {})


def test_unknown_dialect_is_read_as_the_current_one():
    schema = definition({"x": INTEGER}, **{"$schema": "http://example.com/my-dialect"})
    assert tuple(check_arguments(schema, {"x": "a"}).problems) == ("x: 'a' is a string, but an integer is needed",)


def test_old_dialect_keeps_its_meaning():
    schema = definition(
        {"x": {"minimum": 3, "exclusiveMinimum": True}}, **{"$schema": "http://json-schema.org/draft-04/schema#"}
    )
    assert tuple(check_arguments(schema, {"x": 3}).problems) == ("x: 3 is less than or equal to the minimum of 3",)


def test_formats_are_not_asserted():
    assert check_one({"type": "string", "format": "date"}, "soon")[2] == ()


def test_schema_may_be_a_read_only_mapping():
    schema = types.MappingProxyType({"type": "object", "properties": types.MappingProxyType({"x": INTEGER})})
    assert check_arguments(ToolDefinition(name="t", input_schema=schema), {"x": "5"}).args == {"x": 5}


def test_compiled_schema_is_kept_by_identity_and_the_store_is_bounded():
    first = definition({"x": INTEGER})
    kept = validator_of(first)
    assert validator_of(first) is kept
    assert isinstance(validator_of(definition({"x": INTEGER})), SchemaValidator)
    assert validator_of(definition({"x": INTEGER})) is not kept
    for _ in range(1_100):
        validator_of(definition({"x": INTEGER}))
    assert validator_of(first) is not kept


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
schemas = st.recursive(
    st.sampled_from(
        [{}, *({"type": name} for name in ("integer", "number", "string", "boolean", "null", "array", "object"))]
    ),
    lambda inner: st.one_of(
        inner.map(lambda s: {"type": "array", "items": s}),
        inner.map(lambda s: {"type": "object", "additionalProperties": s}),
        st.lists(inner, min_size=1, max_size=3).map(lambda s: {"anyOf": s}),
        st.lists(inner, min_size=1, max_size=3).map(lambda s: {"oneOf": s}),
    ),
    max_leaves=5,
)


@thorough
@given(schema=schemas, value=json_values)
def test_coercion_never_changes_a_valid_value(schema, value):
    import copy

    import jsonschema_rs

    before = copy.deepcopy(value)
    result, coercions, _ = check_one(schema, value)
    assert value == before
    if jsonschema_rs.validator_for(schema).is_valid(value):
        # 5.0 may become 5, which is the same number.
        assert result == value
        assert all("read as the integer" in note for note in coercions)


@thorough
@given(schema=schemas, value=json_values)
def test_checking_twice_is_the_same_as_checking_once(schema, value):
    once = check_arguments(definition({"x": schema}), {"x": value})
    again = check_arguments(definition({"x": schema}), once.args)
    assert again.args == once.args
    if not once.problems:
        assert tuple(again.problems) == ()


@thorough
@given(st.integers())
def test_every_integer_survives_its_text(number):
    assert check_one(INTEGER, str(number))[0] == number


@thorough
@given(st.text(alphabet="0123456789+-.eE_ ", max_size=12))
def test_text_becomes_an_integer_only_if_it_is_written_back_the_same(text):
    result = check_one(INTEGER, text)[0]
    assert result == text or str(result) == text


_FLAT = st.dictionaries(
    st.sampled_from(["a", "b", "c", "0", "00", "é", ""]),
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.sampled_from(["5", "true", "[1]", "\ud800", 2**60]),
    max_size=3,
)
_FLAT_SCHEMA = st.fixed_dictionaries(
    {"type": st.just("object")},
    optional={
        "properties": st.dictionaries(
            st.sampled_from("abc"),
            st.sampled_from(
                [{"type": kind} for kind in ("integer", "string", "boolean", "number", "array")] + [{}, {"enum": [5, "5"]}]
            ),
        ),
        "required": st.lists(st.sampled_from("abc"), unique=True),
        "additionalProperties": st.booleans(),
    },
)


@given(_FLAT_SCHEMA, _FLAT)
def test_the_short_way_for_plain_arguments_comes_to_the_same_as_the_long_one(schema, args):
    definition = ToolDefinition(name="t", input_schema=schema)
    # What is no dict takes the long way.
    assert check_arguments(definition, args) == check_arguments(definition, types.MappingProxyType(args))


def test_no_arguments_at_all_are_an_empty_object_and_others_than_an_object_are_a_problem() -> None:
    nothing, needs = ToolDefinition(name="f"), ToolDefinition(name="g", input_schema={"required": ["a"]})
    assert check_arguments(nothing, None) == Checked(args={})
    assert check_arguments(needs, None).problems == ["'a' is required but missing"]
    for args in ([], "x", 5):
        assert check_arguments(nothing, args).problems == [  # type: ignore[arg-type]
            f"the arguments must be an object, not {type(args).__name__}"
        ]
    with pytest.raises(UsageError, match="takes a ToolDefinition, not"):
        check_arguments(print, {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "array"}, "[0.1234567890123456789012345]"),
        ({"type": "array"}, "[1e-400]"),
        ({"type": "array"}, "[9007199254740993.0]"),
        ({"type": "object"}, '{"a": 1, "a": 2}'),
        ({"type": "object"}, '{"a": {"b": 1, "b": 1}}'),
    ],
)
def test_json_in_a_string_is_read_only_where_nothing_of_it_is_lost(schema, text) -> None:
    definition = ToolDefinition(name="f", input_schema={"type": "object", "properties": {"x": schema}})
    checked = check_arguments(definition, {"x": text})
    assert checked.problems
    assert checked.args == {"x": text}
    assert not check_arguments(definition, {"x": '{"a": [0.5, 1e2]}' if "object" in str(schema) else "[0.5, 1e2]"}).problems


@pytest.mark.rows(
    ("pattern", "good", "bad"),
    [
        (r"^\<\>$", "<>", ""), (r"^[\\w-z]\Z", "x", "a"), (r"^[\\w-z]\Z", "\\", "a"), (r"^\e\i\y\h\8$", "eiyh8", "x"),
        (r"^\c$", "\\c", "c"), (r"^\x4$", "x4", "4"), (r"^\u12$", "u12", "12"), (r"^\1(a)$", "a", "aa"),
        (r"^(a)\1$", "aa", "a"),
        (r"^(?<q>a)\k<q>$", "aa", "a"), (r"^[\w-.]+$", "a-.", "!"), (r"^[^]$", "x", "xx"), (r"^[[a]$", "[", "b"),
        (r"^[a&&b]$", "&", "c"), (r"^[~~]$", "~", "x"), (r"^\0$", "\0", "0"), (r"^{a}$", "{a}", "a"), (r"^a{2}$", "aa", "a"),
        (r"^[\]a]+$", "]a", "b"), (r"^[a-\d]$", "-", "b"), (r"^[\b]$", "\x08", "b"), (r"^\[\]$", "[]", "x"),
        (r"^\k$", "k", "x"), (r"^a(?:[]|b)$", "ab", "a"), (r"^[]a]$", "]", "b"),
    ],
)  # fmt: skip
def test_a_pattern_means_what_javascript_and_python_mean_by_it(pattern, good, bad) -> None:
    for schema in (
        {"properties": {"x": {"pattern": pattern}}},
        {"properties": {"x": {"propertyNames": {"pattern": pattern}}}},
    ):
        definition = ToolDefinition(name="f", input_schema={"type": "object", **schema})
        is_key = "propertyNames" in str(schema)
        assert not check_arguments(definition, {"x": {good: 1} if is_key else good}).problems
        assert check_arguments(definition, {"x": {bad: 1} if is_key else bad}).problems
