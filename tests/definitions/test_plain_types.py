"""Functions with plain parameters are declared and called without pydantic, and as pydantic would do it."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
import subprocess
import sys
from typing import Annotated, Any, cast

import pytest

from callgate import Gate, ScriptedModel
from callgate.definitions import ArgumentsInvalidError, FunctionTool, function_tool
from callgate.testing import call

TYPES: list[Any] = [
    str, int, float, bool, list[str], list[int], list[float], list[bool],
    str | None, int | None, float | None, bool | None, dict, dict[str, Any], list[dict], list[dict[str, Any]],
]  # fmt: skip
RESULTS: list[Any] = [dict, dict[str, Any], list[dict[str, Any]], dict[str, int], list, set[int]]
DEFAULTS: list[Any] = [..., None, "x", "ä\ud800", 3, True, 2.5, float("nan"), [], ["a"], 2**60, b"x", {}, {"a": 1}]
VALUES: list[Any] = [
    None, "", "text", "ä", "\ud800", "5", 5, -(2**70), 2**53, True, False, 2.0, 2.5, float("inf"), 1e308, [], ["a", "b"],
    [1, 2], [1.5, 2], [True], [None], ["a", 1], {}, {"a": 1}, (1, 2), [{}], [{"a": [1, None], "b": {"c": 2.0}}] * 30,
    {"a": [1, None], "b": {"c": -(2**70)}}, {"a": "\ud800"}, {"a": float("inf")}, {"a": (1,)}, {1: 2}, [{"a": b"x"}],
    [{}, 1],
]  # fmt: skip


def made(kind: Any, default: Any, *, plain: bool, returns: Any = None) -> FunctionTool | str:
    """A tool of one parameter. Anything in `Annotated` is read by pydantic, and this says nothing to it."""

    def work(value: Any = default) -> Any:
        """Works.

        Args:
            value: Something.
        """
        return value

    if default is ...:
        work.__defaults__ = None
    mark = object()
    work.__annotations__ = {"value": kind if plain else Annotated[kind, mark]}
    if returns is not None:
        work.__annotations__["return"] = returns if plain else Annotated[returns, mark]
    try:
        return function_tool(work)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def bound(tool: FunctionTool | str, args: dict[str, Any]) -> Any:
    assert isinstance(tool, FunctionTool)
    try:
        values = tool.bind(args, None)[1]
    except ArgumentsInvalidError as error:
        return error.problems
    return {key: (cast("type", type(value)), value) for key, value in values.items()}


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_plain_parameter_is_declared_and_read_as_pydantic_does(kind: Any) -> None:
    for default in DEFAULTS:
        plain, typed = made(kind, default, plain=True), made(kind, default, plain=False)
        if isinstance(plain, str) or isinstance(typed, str):
            assert plain == typed
            continue
        assert json.dumps(plain.definition.input_schema) == json.dumps(typed.definition.input_schema)
        for value in VALUES:
            assert bound(plain, {"value": value}) == bound(typed, {"value": value}), (kind, default, value)
        for args in ({}, {"other": 1}, {"value": "a", "other": 1}):
            assert bound(plain, args) == bound(typed, args), (kind, default, args)


@pytest.mark.rows("returns", [*TYPES, dict, dict[str, Any], list[dict[str, Any]], dict[str, int], list, set[int]], ids=str)
def test_a_plain_result_is_declared_as_pydantic_does(returns: Any) -> None:
    plain, typed = (made(int, ..., plain=plain, returns=returns) for plain in (True, False))
    assert isinstance(plain, FunctionTool)
    assert isinstance(typed, FunctionTool)
    assert json.dumps(plain.definition.output_schema) == json.dumps(typed.definition.output_schema)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(list[str], ["a"]), (dict, {"a": []}), (dict[str, Any], {"a": []}), (list[dict], [{"a": []}])],
    ids=str,
)
def test_a_list_or_object_of_a_call_is_the_functions_own_to_change(kind: Any, value: Any) -> None:
    args = {"value": value}
    before = copy.deepcopy(args)
    tool = made(kind, ..., plain=True)
    assert isinstance(tool, FunctionTool)
    got = tool.bind(args, None)[1]["value"]
    assert got == value
    for holder in (got, *(got if isinstance(got, list) else [])):
        if isinstance(holder, (dict, list)):
            holder.clear()
    assert args == before


@pytest.mark.parametrize("kind", [dict, list, list[dict], list[str], Any], ids=str)
def test_a_function_that_changes_its_arguments_changes_no_record(kind: Any) -> None:
    def work(value: Any) -> int:
        """Works."""
        if isinstance(value, list) and value and isinstance(value[0], dict):
            value[0].clear()
        value.clear()
        return 1

    value = {"a": [1]} if kind is dict else ["a"] if kind == list[str] else [{"a": [1]}]
    work.__annotations__ = {"value": kind}
    reply = asyncio.run(Gate(ScriptedModel([call("work", value=value), "Done."]), [work]).run("Go."))
    assert [(record.state, record.call.args) for record in reply.calls] == [("finished", {"value": value})]


def test_functions_with_plain_parameters_need_no_pydantic() -> None:
    kinds = ["str", "int", "float", "bool", "list[str]", "int | None", "dict", "list[dict]"]
    functions = "\n".join(
        f"def f{number}(a: {one}, b: {other}) -> {one}:\n    'Works.'\n"
        for number, (one, other) in enumerate(itertools.product(kinds, kinds))
    )
    code = (
        f"import sys\nfrom callgate.definitions import function_tool\n{functions}\n"
        "for name in [name for name in globals() if name[1:].isdigit()]:\n    function_tool(globals()[name])\n"
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout.strip(), done.stderr) == ("False", "")
