"""The words: what they derive, and which limits make sense."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.errors import (
    BlockedError,
    CallgateError,
    ConversationInvalidError,
    MalformedAnswerError,
    ModelError,
    ToolError,
    UsageError,
)
from callgate.history.conversation import Conversation
from callgate.types import (
    FINAL_STATES,
    CallRecord,
    CallState,
    FunctionCall,
    Limits,
    Media,
    Reply,
    ResultStatus,
    ToolContext,
    ToolDefinition,
    ToolResult,
    Usage,
    copied_args,
    copied_json,
)


@pytest.mark.parametrize(
    ("options", "ordered", "repeatable"),
    [
        ({}, False, False),
        ({"sequential": True}, True, False),
        ({"kind": "file"}, True, False),
        ({"kind": "command"}, True, False),
        ({"kind": "mcp"}, True, False),
        ({"kind": "worker"}, False, False),
        ({"kind": "file", "read_only": True}, False, True),
        ({"idempotent": True}, False, True),
        ({"kind": "file", "read_only": True, "sequential": True}, True, True),
    ],
)
def test_what_a_definition_implies(options: Any, ordered: bool, repeatable: bool) -> None:
    definition = ToolDefinition(name="f", **options)
    assert (definition.ordered, definition.repeatable) == (ordered, repeatable)


def test_definitions_do_not_share_their_schema() -> None:
    assert ToolDefinition(name="a").input_schema is not ToolDefinition(name="b").input_schema
    assert FunctionCall(name="a").args is not FunctionCall(name="b").args


def test_final_states_are_the_ways_in_which_a_call_ends() -> None:
    assert set(get_args(ResultStatus)) == FINAL_STATES
    assert set(get_args(CallState)) > FINAL_STATES


@pytest.mark.parametrize("status", get_args(ResultStatus))
def test_only_a_finished_call_is_no_error(status: Any) -> None:
    assert ToolResult(call_id="c", name="f", status=status).is_error is (status != "finished")


def test_a_record_has_the_duration_of_its_result() -> None:
    call = FunctionCall(name="f")
    result = ToolResult(call_id="c", name="f", status="finished", duration_s=1.5)
    assert CallRecord(call=call, state="started").duration_s == 0.0
    assert CallRecord(call=call, state="finished", result=result).duration_s == 1.5


def test_usage_adds_up() -> None:
    names = [field.name for field in fields(Usage)]
    one = Usage(**{name: number for number, name in enumerate(names, 1)})
    assert one + one == Usage(**{name: 2 * number for number, name in enumerate(names, 1)})
    assert one + Usage() == one
    assert one + Usage() == one == Usage() + one


@pytest.mark.parametrize(("reason", "ok"), [("STOP", True), ("MAX_TOKENS", False), ("NEW", False), ("turn_limit", False)])
def test_only_stop_is_ok(reason: str, ok: bool) -> None:
    assert (
        Reply(text="", calls=[], usage=Usage(), finish_reason=reason, history=Conversation().history, session="s").ok is ok
    )


def test_the_limits_are_those_of_the_table() -> None:
    limits = Limits()
    assert (limits.turns, limits.calls, limits.calls_per_turn, limits.parallel, limits.call_timeout_s) == (
        25,
        200,
        128,
        10,
        30.0,
    )
    assert (limits.repeats, limits.output_chars, limits.abandoned_threads, limits.json_depth) == (5, 40_000, 32, 100)


@pytest.mark.rows(
    ("name", "value"),
    [
        ("turns", 0),
        ("turns", -1),
        ("turns", True),
        ("turns", "5"),
        ("turns", None),
        ("turns", 2.5),
        ("turns", float("inf")),
        ("call_timeout_s", 0),
        ("call_timeout_s", float("nan")),
        ("call_timeout_s", float("inf")),
        ("call_timeout_s", False),
        ("output_chars", 199),
        ("retries_malformed", -1),
        ("abandoned_threads", -1),
        ("parallel", 0),
        ("parallel", 1.5),
    ],
)
def test_limits_that_make_no_sense_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"Limits\({name}="):
        Limits(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("turns", 1), ("call_timeout_s", 0.001), ("call_timeout_s", 5), ("retries_malformed", 0), ("abandoned_threads", 0)],
)
def test_the_lowest_limits_are_accepted(name: str, value: Any) -> None:
    assert getattr(Limits(**{name: value}), name) == value


def test_media_takes_every_kind_of_bytes_and_of_path_and_no_text() -> None:
    assert [Media(data=kind(b"x")).data for kind in (bytes, bytearray, memoryview)] == [b"x"] * 3
    assert Media(path=Path("a/b.png")) == Media(path="a/b.png")
    with pytest.raises(UsageError, match="takes bytes, not 'str': decode base64 first"):
        Media(data="eA==")  # pyright: ignore


def test_a_context_by_itself_does_nothing() -> None:
    context = ToolContext(call_id="c", name="f")
    assert context.progress("half", 0.5) is None
    assert context.is_cancelled() is False


def test_errors_carry_what_a_caller_needs() -> None:
    assert ConversationInvalidError(["a", "b"]).problems == ["a", "b"]
    assert str(ConversationInvalidError(["a", "b"])) == "a; b"
    failure = ModelError("m", partial="p", retryable=True)
    assert (failure.partial, failure.retryable) == ("p", True)
    assert (BlockedError("m", reason="SAFETY").reason, BlockedError("m", reason="S").retryable) == ("SAFETY", False)
    malformed = MalformedAnswerError("m", finish_reason="X")
    assert (malformed.finish_reason, malformed.retryable) == ("X", True)
    assert not issubclass(ToolError, CallgateError)
    assert issubclass(UsageError, ValueError)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def holders_in(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return [] if inner is None else [value, *(holder for one in inner for holder in holders_in(one))]


@given(value=JSON | st.lists(st.dictionaries(st.text(max_size=3), JSON, max_size=3), max_size=5), is_plain=st.booleans())
def test_a_copy_of_json_is_equal_and_shares_no_list_and_no_object(value: Any, is_plain: bool) -> None:
    copy = copied_json(value, is_plain=is_plain)
    assert copy == value
    assert {*map(id, holders_in(copy))}.isdisjoint(map(id, holders_in(value)))


def test_a_copy_of_arguments_shares_nothing_that_is_no_json_either() -> None:
    args = {"rows": [{"x": bytearray(b"x")}, {"x": 1}]}
    copy = copied_args(args)
    copy["rows"][0]["x"] += b"y"
    assert args == {"rows": [{"x": bytearray(b"x")}, {"x": 1}]}
