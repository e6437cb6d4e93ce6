"""Arguments that arrive in pieces are the ones that the model meant, or a sentence says why not."""

import json
import os
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.content.partial_args import PartialArguments, parse_path, will_continue
from callgate.strict_json import Bad

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))


def assembled(*entries: dict[str, Any]) -> dict[str, Any]:
    partial = PartialArguments()
    for entry in entries:
        partial.add(entry)
    return partial.args


def text(path: str, value: str, **more: Any) -> dict[str, Any]:
    return {"jsonPath": path, "stringValue": value, **more}


def number(path: str, value: float) -> dict[str, Any]:
    return {"jsonPath": path, "numberValue": value}


def test_the_leaves_of_a_call_become_its_arguments():
    args = assembled(
        text("$.path", "src/", willContinue=True),
        text("$.path", "main.py"),
        number("$.opt.mode", 420),
        {"jsonPath": "$.opt.force", "boolValue": False},
        {"jsonPath": "$.opt.owner", "nullValue": None},
        number("$.lines[0].n", 1),
        {"jsonPath": "$.tags[]"},
    )
    assert args == {
        "path": "src/main.py",
        "opt": {"mode": 420, "force": False, "owner": None},
        "lines": [{"n": 1}],
        "tags": [],
    }


def test_falsy_values_are_values():
    args = assembled(
        text("$.s", ""),
        number("$.n", 0),
        {"jsonPath": "$.b", "boolValue": False},
        {"jsonPath": "$.z", "nullValue": "NULL_VALUE"},
    )
    assert args == {"s": "", "n": 0, "b": False, "z": None}


def test_strings_append_whether_or_not_more_was_announced():
    assert assembled(text("$.a", "he"), text("$.a", ""), text("$.a", "llo", willContinue=True)) == {"a": "hello"}
    assert assembled(text("$.a[0]", "x"), text("$.a[1]", "y"), text("$.a[0]", "z")) == {"a": ["xz", "y"]}


def test_each_entry_tells_by_what_the_arguments_grew():
    partial = PartialArguments()
    entries = [text("$.a", "he"), text("$.a", "llo"), {"jsonPath": "$.a"}, number("$.n", 1.5), number("$.n", 1.5),
               {"jsonPath": "$.b", "boolValue": True}, {"jsonPath": "$.z", "nullValue": None}, {"jsonPath": "$.l[]"},
               {"jsonPath": "$.o"}, {"jsonPath": "$.later", "willContinue": True}]  # fmt: skip
    assert [partial.add(entry) for entry in entries] == ["he", "llo", "", "1.5", "", "true", "null", "[]", "{}", ""]


def test_an_entry_without_value_ends_what_is_there_or_makes_it_empty():
    assert assembled({"jsonPath": "$.x"}) == {"x": {}}
    assert assembled({"jsonPath": "$.x[]"}) == {"x": []}
    assert assembled({"jsonPath": "$.x[0]"}) == {"x": [{}]}
    assert assembled({"jsonPath": "$"}) == {}
    assert assembled({"jsonPath": "$.x", "willContinue": True}, {"jsonPath": "$.y[]", "willContinue": True}) == {}
    assert assembled(text("$.x", "a"), {"jsonPath": "$.x"}) == {"x": "a"}
    assert assembled(number("$.x[0]", 1), {"jsonPath": "$.x[]"}, {"jsonPath": "$.x"}) == {"x": [1]}
    assert assembled({"jsonPath": "$.x"}, number("$.x.y", 1)) == {"x": {"y": 1}}
    assert assembled({"jsonPath": "$.x[]"}, number("$.x[0]", 1)) == {"x": [1]}


def test_elements_left_out_are_null_until_they_come():
    assert assembled(number("$.a[2]", 2)) == {"a": [None, None, 2]}
    assert assembled(number("$.a[2]", 2), text("$.a[0]", "x"), number("$.a[1].b", 1)) == {"a": ["x", {"b": 1}, 2]}


def test_what_was_handed_out_does_not_change_later():
    partial = PartialArguments()
    partial.add(text("$.a.b", "x"))
    before = partial.args
    partial.add(text("$.a.b", "y"))
    assert (before, partial.args) == ({"a": {"b": "x"}}, {"a": {"b": "xy"}})


@pytest.mark.parametrize(
    ("path", "segments"),
    [
        ("$", []),
        ("$.a.b[0].c", ["a", "b", 0, "c"]),
        ("$['odd key']", ["odd key"]),
        ('$["x"]["y"][12]', ["x", "y", 12]),
        ("$[ 'a' ][ 0 ]", ["a", 0]),
        (r"$['it\'s']", ["it's"]),
        (r'$["\"\\\/\b\f\n\r\t"]', ['"\\/\b\f\n\r\t']),
        (r"$['\u0041\ud83d\ude00\ud800']", ["A😀\ufffd"]),
        ("$['']", [""]),
        ("$['a.b[0]']", ["a.b[0]"]),
        ("$['[]']", ["[]"]),
        ("$.__proto__.constructor", ["__proto__", "constructor"]),
        ("$.content-type.2nd.zażółć.a b", ["content-type", "2nd", "zażółć", "a b"]),
        ("$.a[10000]", ["a", 10_000]),
    ],
)
def test_paths_are_read(path: str, segments: list[Any]):
    assert parse_path(path) == (segments, False)


def test_brackets_at_the_end_mean_an_empty_array():
    assert parse_path("$.a[]") == (["a"], True)
    assert parse_path("$['a'][0][]") == (["a", 0], True)


@pytest.mark.rows(
    "path",
    ["", "a", ".a", "$a", "$.", "$..a", "$.*", "$[*]", "$.a[*]", "$.a[-1]", "$.a[01]", "$.a[0:2]", "$.a[0,1]", "$.a[?@.b]",
     "$[]", "$.a[", "$.a]", "$.a[][]", "$['a", "$['a\"]", r"$['\x']", r"$['\u12']", "$.a[10001]", "$.a[" + "9" * 5_000 + "]",
     "$" + ".a" * 101, "$.a.", "$ .a", "$.a[1.5]", "$.a[0]b", "$" + "[" * 50_000, "$['" + "\\" * 50_001],
)  # fmt: skip
def test_paths_to_anything_but_one_place_are_refused_in_a_short_sentence(path: str):
    with pytest.raises(ValueError, match=r"path|index|escape") as caught:
        assembled(text(path, "x"))
    assert len(str(caught.value)) < 250


@pytest.mark.rows(
    ("entries", "sentence"),
    [
        ([text("$.a", "x"), text("$.a.b", "y")], "needs an object where a string is"),
        ([number("$.a", 1), number("$.a[0]", 1)], "needs an array where a number is"),
        ([number("$.a.b", 1), number("$.a[0]", 1)], "needs an array where an object is"),
        ([number("$.a[0]", 1), number("$.a.b", 1)], "needs an object where an array is"),
        ([number("$.a.b", 1), number("$.a", 1)], "holds an object already and cannot become a number"),
        ([number("$.a[0]", 1), text("$.a", "x")], "holds an array already and cannot become a string"),
        ([number("$.a", 1), number("$.a", 2)], "holds a number already"),
        ([number("$.a", 1), {"jsonPath": "$.a", "boolValue": True}], "cannot become a boolean"),
        ([{"jsonPath": "$.a", "nullValue": None}, text("$.a", "x")], "holds null already"),
        ([text("$.a", "x"), {"jsonPath": "$.a[]"}], "cannot become an array"),
        ([number("$[0]", 1)], "needs an array where an object is"),
        ([text("$", "x")], "stands for all arguments"),
        ([text("$.a[]", "x")], "stands for an empty array"),
        ([{"stringValue": "x"}], "no jsonPath"),
        ([{"jsonPath": 5, "stringValue": "x"}], "no jsonPath"),
        ([text("$.a", "x", numberValue=1)], "stringValue and numberValue"),
        ([{"jsonPath": "$.a", "structValue": {}}], "structValue"),
        ([text("$.a", 5)], "the stringValue of '$.a' is a number"),  # type: ignore[arg-type]
        ([{"jsonPath": "$.a", "numberValue": "NaN"}], "the numberValue of '$.a' is a string"),
        ([{"jsonPath": "$.a", "numberValue": True}], "is a boolean"),
        ([{"jsonPath": "$.a", "boolValue": 1}], "the boolValue of '$.a' is a number"),
        ([{"jsonPath": "$.a", "numberValue": Bad("the number NaN is not finite")}], "NaN is not finite"),
        ([{"jsonPath": Bad("not UTF-8"), "stringValue": ""}], "no jsonPath"),
        (["$.a"], "not an object but str"),
        ([number(f"$.a{n}[9999]", 1) for n in range(3)], "more than 10000 array elements were left out"),
    ],
)
def test_contradictions_are_refused_in_a_sentence(entries: list[Any], sentence: str):
    with pytest.raises(ValueError, match=sentence.replace("$", r"\$").replace(".", r"\.")):
        assembled(*entries)


def test_more_is_announced_by_the_call_or_by_one_of_its_entries():
    assert will_continue({"name": "f", "willContinue": True})
    assert will_continue({"partialArgs": [text("$.a", "x"), text("$.b", "y", willContinue=True)]})
    for ended in ({}, {"name": "f"}, {"partialArgs": [text("$.a", "x")]}, {"partialArgs": None}, {"partialArgs": ["x"]},
                  {"willContinue": False}):  # fmt: skip
        assert not will_continue(ended)


def test_a_long_string_in_small_pieces_is_joined_once():
    partial = PartialArguments()
    for _ in range(100_000):
        partial.add(text("$.a", "xy"))
    assert partial.args == {"a": "xy" * 100_000}


KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LEAVES = st.none() | st.booleans() | st.integers(-1000, 1000) | st.floats(allow_nan=False, allow_infinity=False) | KEYS
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=12
)


def leaves(value: Any, path: str, piece: int) -> list[dict[str, Any]]:
    """A value as a server would stream it."""
    if isinstance(value, dict):
        inner = [entry for key, item in value.items() for entry in leaves(item, f"{path}[{json.dumps(key)}]", piece)]
        return inner or [{"jsonPath": path}]
    if isinstance(value, list):
        inner = [entry for at, item in enumerate(value) for entry in leaves(item, f"{path}[{at}]", piece)]
        return inner or [{"jsonPath": path + "[]"}]
    if isinstance(value, str):
        return [text(path, value[at : at + piece]) for at in range(0, max(len(value), 1), piece)]
    key = "nullValue" if value is None else "boolValue" if isinstance(value, bool) else "numberValue"
    return [{"jsonPath": path, key: value}]


@settings(max_examples=200 * SCALE, deadline=None)
@given(st.dictionaries(KEYS, VALUES, max_size=4), st.integers(1, 5))
def test_any_arguments_survive_being_streamed(args: dict[str, Any], piece: int):
    entries = leaves(args, "$", piece)
    assert assembled(*entries) == args
    assert json.dumps(assembled(*reversed(entries)) if piece == 5 and not has_long_text(args) else args, sort_keys=True) == (
        json.dumps(args, sort_keys=True)
    )


def has_long_text(value: Any) -> bool:
    if isinstance(value, dict):
        return any(has_long_text(item) for item in value.values())
    if isinstance(value, list):
        return any(has_long_text(item) for item in value)
    return isinstance(value, str) and len(value) > 5
