"""How replies are judged, and the cases that they are judged on."""

from __future__ import annotations

from typing import Any

import pytest
from training.grammar import grammar

from training import cases, catalogue, score

WANTED = [{"f": {"city": ["New York", "NYC"], "days": [3], "unit": ["", "c"]}}]


@pytest.mark.parametrize(
    ("calls", "right"),
    [
        ([("f", {"city": "new-york", "days": 3})], True),
        ([("f", {"city": "NYC", "days": 3.0, "unit": "C"})], True),
        ([("f", {"city": "NYC"})], False),
        ([("f", {"city": "NYC", "days": 4})], False),
        ([("f", {"city": "NYC", "days": 3, "more": 1})], False),
        ([("g", {"city": "NYC", "days": 3})], False),
        ([("f", {"city": "NYC", "days": 3})] * 2, False),
        ([], False),
    ],
)
def test_a_call_is_right_by_the_rules_of_bfcl(calls: Any, right: bool) -> None:
    assert score.bfcl_right(calls, WANTED) is right


def test_several_calls_may_come_in_any_order() -> None:
    wanted = [{"f": {"a": [1]}}, {"f": {"a": [2]}}]
    assert score.bfcl_right([("f", {"a": 2}), ("f", {"a": 1})], wanted)
    assert not score.bfcl_right([("f", {"a": 2}), ("f", {"a": 2})], wanted)


def test_true_is_not_one() -> None:
    assert not score.equal_value(True, 1)
    assert not score.equal_value(1, True)


CASE = {"expected": [{"name": "f", "args": {"path": "a b"}}], "accept": {"path": ["ab"]}}


@pytest.mark.parametrize(
    ("calls", "verdict"),
    [
        ([("f", {"path": " a b "})], (True, True)),
        ([("f", {"path": "ab"})], (True, True)),
        ([("f", {"path": "a b", "mode": "x"})], (True, True)),
        ([("f", {"path": "a b", "mode": "y"})], (True, False)),
        ([("f", {"path": "A B"})], (True, False)),
        ([("g", {"path": "a b"})], (False, False)),
        ([], (False, False)),
    ],
)
def test_a_prompt_is_right_with_its_accepted_values_and_defaults(calls: Any, verdict: Any) -> None:
    assert score.prompt_right(calls, CASE, {"f": {"mode": ["x"]}}) == verdict


def test_an_invented_tool_name_counts_as_malformed() -> None:
    tools = [{"name": "f", "description": "", "parameters": {"properties": {}, "required": []}}]
    case = cases.Case("bfcl:simple", "1", "", tools, {"wanted": [{"f": {}}]})
    assert case.verdict("TOOL_CALL: g({})")["malformed"] == 1
    assert case.verdict("TOOL_CALL: f({})") == {"n": 1, "malformed": 0, "tool": 1, "exact": 1, "prose": 0}


def test_a_missing_argument_is_asked_for_by_one_of_its_words() -> None:
    record = {"missing": ["city|where"], "expected": []}
    case = cases.Case("new:missing", "1", "", [], record)
    assert case.verdict("Where are you?")["right"] == 1
    assert case.verdict("What else?")["right"] == 0


def test_bfcl_is_split_by_the_name_of_the_function() -> None:
    names = [f"function_{number}" for number in range(1000)]
    kept = sum(map(catalogue.held_out, names))
    assert 350 < kept < 450
    assert [catalogue.held_out(name) for name in names] == [catalogue.held_out(name) for name in names]


def test_the_grammar_lets_optional_arguments_be_skipped_and_required_ones_not() -> None:
    properties = {"a": {"type": "string"}, "b": {"type": "integer", "enum": [1, 2]}}
    tool = {"name": "f", "description": "", "parameters": {"properties": properties, "required": ["a"]}}
    rules = dict(line.split(" ::= ", 1) for line in grammar([tool]).splitlines())
    assert rules["t0s0"] == "t0p0 t0c1"
    assert rules["t0c1"] == '", " t0p1 t0c2 | t0c2'
    assert rules["t0p1"] == r'"\"b\": " ("1" | "2")'
    assert "call" not in grammar([tool], calls=False).splitlines()[0]
