"""Schemas whose unions multiply: the check of a value ends, says what is wrong with it, and never takes for ever."""

from __future__ import annotations

import random
from typing import Any

import pytest

from callgate.errors import ToolNotDeclarableError
from callgate.schema import check_arguments, compile_schema, stepwise_check
from callgate.schema.validation_cost import COST_MAX, ValidationCost
from callgate.types import Checked, ToolDefinition

KINDS = ("paragraph", "heading", "list", "quote", "panel", "table", "row", "cell")
TEXT = {"type": "object", "properties": {"type": {"const": "text"}, "text": {"type": "string"}, "size": {"type": "integer"}}}
DOCUMENT: dict[str, Any] = {
    "type": "object",
    "properties": {"body": {"$ref": "#/$defs/Node"}},
    "$defs": {
        "Node": {"anyOf": [*({"$ref": f"#/$defs/{kind}"} for kind in KINDS), {**TEXT, "required": ["type", "text"]}]},
        **{
            kind: {
                "type": "object",
                "properties": {"type": {"const": kind}, "content": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
                "required": ["type"],
            }
            for kind in KINDS
        },
    },
}
LISTS: dict[str, Any] = {
    "type": "object",
    "properties": {"v": {"$ref": "#/$defs/V"}},
    "$defs": {
        "V": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"$ref": "#/$defs/V"}},
                {"type": "array", "items": {"$ref": "#/$defs/V"}, "minItems": 1},
            ]
        }
    },
}


def document(depth: int, *leaves: Any) -> dict[str, Any]:
    inner: list[Any] = list(leaves)
    for level in range(depth):
        inner = [{"type": KINDS[level % len(KINDS)], "content": inner}]
    return {"body": inner[0]}


def nested(depth: int, value: Any) -> dict[str, Any]:
    for _ in range(depth):
        value = [value]
    return {"v": value}


def check(schema: dict[str, Any], args: dict[str, Any]) -> Checked:
    return check_arguments(ToolDefinition(name="t", input_schema=schema), args)


def laughs(depth: int, width: int) -> dict[str, Any]:
    levels = {f"d{i}": {"anyOf": [{"$ref": f"#/$defs/d{i + 1}"}] * width} for i in range(depth)}
    return {
        "type": "object",
        "properties": {"v": {"$ref": "#/$defs/d0"}},
        "$defs": {**levels, f"d{depth}": {"type": "string"}},
    }


@pytest.mark.parametrize("depth", [1, 8, 40])
def test_one_wrong_value_deep_in_a_document_of_many_forms_is_named(depth):
    where = "body" + ".content[0]" * depth
    checked = check(DOCUMENT, document(depth, {"type": "text", "text": 5}))
    assert [problem[-60:] for problem in checked.problems] == [
        f"{where}.text: 5 is an integer, but a string is needed"[-60:]
    ]


def test_a_document_of_many_forms_that_is_right_has_no_problems():
    args = document(40, {"type": "text", "text": "hello"})
    assert check(DOCUMENT, args) == Checked(args=args)


def test_values_deep_in_a_document_are_still_read_as_they_are_meant():
    checked = check(
        DOCUMENT, document(8, {"type": "text", "text": "a", "size": "12"}, {"type": "text", "text": "b", "size": 3.0})
    )
    assert checked.args == document(8, {"type": "text", "text": "a", "size": 12}, {"type": "text", "text": "b", "size": 3})
    assert [note.rpartition(".")[2] for note in checked.coercions[:1]] == ['size: "12" read as the integer 12']
    assert checked.problems == []


def test_a_form_that_does_not_exist_deep_in_a_document_is_named():
    checked = check(DOCUMENT, document(8, {"type": "text", "text": "a"}, {"type": "bogus"}))
    assert len(checked.problems) == 1
    assert checked.problems[0].startswith("body" + ".content[0]" * 7 + ".content[1]")
    assert "'bogus'" in checked.problems[0]


def test_the_wrong_member_of_a_form_is_told_and_not_that_it_is_no_other_form():
    checked = check(DOCUMENT, {"body": {"type": "text", "text": 5}})
    assert checked.problems == ["body.text: 5 is an integer, but a string is needed"]


@pytest.mark.parametrize("depth", [4, 12, 60])
def test_a_value_that_is_wrong_in_every_branch_is_named_at_any_depth(depth):
    (problem,) = check(LISTS, nested(depth, 1)).problems
    assert problem.startswith("v[0][0]")
    assert problem.endswith(("1 is an integer, but a string or an array is needed", "fits none of the 3 allowed forms"))


def test_unions_of_unions_without_end_are_refused_when_the_tool_is_declared():
    schema = laughs(15, 10)
    for field in ("parametersJsonSchema", "parameters"):
        with pytest.raises(ToolNotDeclarableError, match="unions refer to unions"):
            compile_schema(schema, field=field, tool="t")
    with pytest.raises(ToolNotDeclarableError, match=r"tool 't'.*more than 10,000 schemas"):
        check(schema, {"v": 1})


def test_unions_of_a_few_unions_are_fine():
    assert check(laughs(3, 5), {"v": "x"}).problems == []
    assert check(laughs(3, 5), {"v": 1}).problems == ["v: 1 is an integer, but a string is needed"]


def test_effort_counts_each_way_to_a_schema_and_stops_at_its_limit():
    assert ValidationCost({"type": "object", "properties": {"v": {}}}).of_one_value() == 0
    assert ValidationCost(laughs(2, 3)).of_one_value() == 1 + 1 + 3 * (1 + 1 + 3 * (1 + 1)) + 0
    assert ValidationCost(laughs(15, 10)).of({"v": 1}) == COST_MAX
    assert ValidationCost(laughs(15, 10)).of({}) == 1


def test_a_circle_of_references_has_an_end():
    schema = {"type": "object", "properties": {"v": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}}
    assert ValidationCost(schema).of({"v": 1}) < 10


def test_step_by_step_and_all_at_once_agree(monkeypatch, scale):
    """Over documents with a few random mistakes: both say yes, or both say no, and read values the same way."""
    chance = random.Random(7)

    def node(depth: int) -> Any:
        if depth == 0 or chance.random() < 0.2:
            return chance.choice([
                {"type": "text", "text": "a"}, {"type": "text", "text": "a", "size": "7"}, {"type": "text", "text": 1},
                {"type": "text"}, "x", {"type": "nope"}, {"type": "text", "text": "a", "size": "7x"}, None,
            ])  # fmt: skip
        return {"type": chance.choice(KINDS), "content": [node(depth - 1) for _ in range(chance.randint(0, 2))]}

    seen = set()
    for _ in range(60 * scale):
        args = {"body": node(2)}
        whole = check(DOCUMENT, args)
        with monkeypatch.context() as patch:
            patch.setattr(stepwise_check, "COST_LISTED_MAX", 0)
            patch.setattr(stepwise_check, "_FLAT_LEVELS", 0)
            stepwise = check(DOCUMENT, args)
        assert bool(stepwise.problems) == bool(whole.problems), args
        if not whole.problems:
            assert stepwise.args == whole.args
        seen.add(bool(whole.problems))
    assert seen == {True, False}
