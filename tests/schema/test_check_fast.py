"""Arguments that are plain and valid are checked in one walk, with the same outcome as by the long way."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from callgate import ToolDefinition, check_arguments
from callgate.schema.validation_cost import ValidationCost

ROWS: dict[str, Any] = {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}}
ANY: dict[str, Any] = {"type": "array", "items": {"type": "object"}}


def checked(items: dict[str, Any], args: dict[str, Any]) -> tuple[Any, list[str], list[str]]:
    definition = ToolDefinition(name="store", input_schema={"type": "object", "properties": {"rows": items}})
    found = check_arguments(definition, args)
    return found.args, found.problems, found.coercions


def test_valid_arguments_come_back_equal_and_apart() -> None:
    args = {"rows": [{"n": 1, "text": "ä", "deep": [[{"x": 2.5}]]}, {"n": 2**40}]}
    found, problems, coercions = checked(ROWS, args)
    assert (found, problems, coercions) == (args, [], [])
    found["rows"][0]["deep"][0][0]["x"] = 9
    assert args["rows"][0]["deep"] == [[{"x": 2.5}]]


def test_whole_floats_become_integers_only_where_the_schema_asks_for_them() -> None:
    args = {"rows": [{"n": 5.0}]}
    assert type(checked(ROWS, args)[0]["rows"][0]["n"]) is int
    assert len(checked(ROWS, args)[2]) == 1
    assert type(checked(ANY, args)[0]["rows"][0]["n"]) is float


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (float("nan"), "not finite"), ("\ud800", "surrogate"), (1 << 20_000, "integer"), ({1: 2}, "not a string"),
        (b"x", "bytes"),
    ],
    ids=["nan", "surrogate", "huge", "key", "bytes"],
)  # fmt: skip
def test_what_is_not_json_is_still_found_deep_inside(value: Any, told: str) -> None:
    args = {"rows": [{"n": 1}, {"other": [value]}]}
    (problem,) = checked(ANY, args)[1]
    assert told in problem


def test_nesting_beyond_the_limit_is_still_refused() -> None:
    deep: Any = 1
    for _ in range(120):
        deep = [deep]
    assert "nested deeper" in checked(ANY, {"rows": [{"deep": deep}]})[1][0]


def test_the_arguments_given_are_never_changed() -> None:
    args = {"rows": [{"n": "5"}, {"n": 6.0}]}
    before = copy.deepcopy(args)
    checked(ROWS, args)
    assert args == before


def referring(chain: int, last: dict[str, Any]) -> dict[str, Any]:
    """A schema of references, one after the other, that lead to the last one."""
    names = [f"#/$defs/d{number}" for number in range(chain)]
    definitions: dict[str, Any] = {f"d{number}": {"$ref": name} for number, name in enumerate(names[1:])}
    return {"type": "object", "properties": {"v": {"$ref": names[0]}}, "$defs": {**definitions, f"d{chain - 1}": last}}


TREE = {"type": "object", "properties": {"left": {"$ref": "#/$defs/d0"}}}
MANY = {"properties": {f"p{number}": {"type": "integer"} for number in range(600)}}
HALVES = {"properties": {name: {"$ref": "#/$defs/d1"} for name in ("a", "b")}}


@pytest.mark.parametrize(
    ("schema", "is_unbounded"),
    [
        (ROWS, False), (referring(3, {"type": "integer"}), False), (referring(40, {"type": "integer"}), True),
        (referring(1, TREE), True), (referring(1, MANY), True), ({"$ref": "#"}, True), (MANY, False),
        ({"properties": {"v": {"$ref": "#/nowhere"}}}, False),
        ({**HALVES, "$defs": {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 3} for n in range(1, 7)}}, True),
    ],
)  # fmt: skip
def test_references_that_end_soon_are_followed_at_once(schema: dict[str, Any], is_unbounded: bool) -> None:
    assert ValidationCost(schema).is_unbounded is is_unbounded


@pytest.mark.parametrize("value", [5.0, 5, {"n": 5.0}, [5.0], "5", 5.5, None])
def test_references_change_nothing_of_the_outcome(value: Any) -> None:
    inner = {"anyOf": [{"type": "integer"}, {"properties": {"n": {"type": "integer"}}, "type": "object"}]}
    near = referring(3, inner)
    far = {**near, "$defs": {**near["$defs"], "other": MANY}}  # So much is checked by the long way.
    outcomes = [
        check_arguments(ToolDefinition(name="t", input_schema=schema), {"v": value})
        for schema in ({"type": "object", "properties": {"v": inner}}, near, far)
    ]
    direct, short, long = [(repr(one.args), one.problems, one.coercions) for one in outcomes]
    assert direct == short == long
