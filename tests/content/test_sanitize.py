"""Results that tools make themselves and arguments that people edit: whatever they hold, they can be journalled and sent."""

from __future__ import annotations

import copy
import enum
import json
import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import Media, strict_json
from callgate.content import plain_look
from callgate.content.json_safe import Encoder, is_small, json_safe
from callgate.content.plain_look import PIECE_VALUES
from callgate.content.response import is_longer, to_function_response, whole_text
from callgate.content.sanitize import ENCODED_BYTES_MIN, plain_json, sanitize_args, sanitize_result
from callgate.errors import UsageError
from callgate.history.conversation import Conversation
from callgate.history.repair import validate
from callgate.machine.codec import decode, encode
from callgate.machine.facts import CallEnded, NestedCall
from callgate.types import FunctionCall, ToolResult

CALL = FunctionCall(name="f", id="c1")


def made(**fields: Any) -> Any:
    return ToolResult(**{"call_id": "other", "name": "g", "status": "finished", **fields})


def test_a_plain_value_becomes_a_finished_result() -> None:
    result = sanitize_result({"at": date(2024, 1, 2), "n": math.nan}, call=CALL, duration_s=1.5)
    assert result == ToolResult(
        call_id="c1",
        name="f",
        status="finished",
        value={"at": "2024-01-02", "n": "NaN"},
        notes=("Numbers that are not finite are written as text.",),
        duration_s=1.5,
    )


def test_a_result_that_a_tool_made_belongs_to_its_call_and_its_value_is_json() -> None:
    result = sanitize_result(made(value={"a": {2, 1}, "b": object()}, notes=("n",), duration_s=2), call=CALL)
    assert (result.call_id, result.name, result.status, result.duration_s) == ("c1", "f", "finished", 2.0)
    assert result.value == {"a": [1, 2], "b": {"unserialisable": "builtins.object"}}
    assert result.notes[0] == "n"


@pytest.mark.parametrize(
    ("status", "shown"),
    [("success", "success"), ("", ""), (None, ""), (5, "5"), (["finished"], '["finished"]'), ("fin\ud800", "fin\ufffd")],
)
def test_an_unknown_status_is_a_failure_that_names_it(status: Any, shown: str) -> None:
    result = sanitize_result(made(status=status, value=1, error="Why."), call=CALL)
    assert (result.status, result.value, result.is_error) == ("failed", None, True)
    known = "finished, failed, denied, timed_out, cancelled, unknown"
    assert result.error == f"The tool gave a result with the status {shown!r}, which is none of {known}. Why."


def test_an_error_without_a_sentence_gets_one_and_one_beside_a_value_is_a_note() -> None:
    assert sanitize_result(made(status="failed"), call=CALL).error == "The tool failed without saying why."
    assert sanitize_result(made(status="timed_out", error=KeyError("x")), call=CALL).error == "KeyError: 'x'"
    assert sanitize_result(made(status="failed", error={"code": 5}), call=CALL).error == '{"code":5}'
    finished = sanitize_result(made(value=1, error="half of it failed"), call=CALL)
    assert (finished.value, finished.error) == (1, None)
    assert finished.notes == ("The tool also reported an error: half of it failed",)


@pytest.mark.parametrize(
    ("notes", "kept"),
    [
        ("one", ("one",)),
        (["a", 5, None, "b\ud800"], ("a", "5", "b\ufffd")),
        (None, ()),
        (5, ("5",)),
        ({"a": 1}, ('{"a":1}',)),
    ],
)
def test_notes_are_texts(notes: Any, kept: tuple[str, ...]) -> None:
    assert sanitize_result(made(notes=notes), call=CALL).notes == kept


def test_media_that_cannot_be_sent_are_left_out_with_a_note() -> None:
    good = {"inlineData": {"mimeType": "image/png", "data": "QQ=="}}
    odd: Any = [good, Media(data=b"A", mime_type="a/b\ud800"), {"inline_data": {"mime_type": "a/b", "data": b"A"}}]
    bad: Any = [
        5,
        None,
        {"text": "a"},
        {"inlineData": "x"},
        {"inlineData": {"data": "QQ=="}},
    ]
    result = sanitize_result(made(media=[*odd, *bad]), call=CALL)
    assert [part["inlineData"]["mimeType"] for part in result.media] == ["image/png", "a/b\ufffd", "a/b"]
    assert result.media[2]["inlineData"]["data"] == "QQ=="
    assert result.notes == ("5 media item(s) that cannot be sent were left out.",)


def test_what_was_found_to_be_json_is_not_looked_through_again() -> None:
    value = {"a": [1]}
    first = sanitize_result(value, call=CALL)
    assert sanitize_result(first, call=CALL).value is first.value
    assert first.known_json is not None
    assert first.known_json.encoded is None
    long = sanitize_result(["x" * 100] * 1_000, call=CALL)
    assert long.known_json is not None
    assert long.known_json.encoded == strict_json.dump(long.value)
    assert len(long.known_json.encoded) > ENCODED_BYTES_MIN
    assert plain_json("x" * ENCODED_BYTES_MIN * 2).encoded is None  # A text is quickly encoded.


ROWS = [{"id": number, "name": f"row {number}"} for number in range(10_000)]


def test_a_value_that_is_known_to_be_json_is_neither_walked_nor_encoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    result = sanitize_result(ROWS, call=CALL)
    dumped: list[Any] = []
    dump = strict_json.dump

    def refuse(*_: Any) -> Any:
        raise AssertionError("the value was walked")

    monkeypatch.setattr(Encoder, "encode", refuse)
    monkeypatch.setattr(strict_json, "dump", lambda value: dumped.append(value) or dump(value))
    assert is_longer(result, 40_000)
    part = to_function_response(CALL, result)
    line = encode(CallEnded(id="c1", result=result))
    assert len(whole_text(result)) > 250_000
    assert max(len(str(value)) for value in dumped) < 1_000
    again = decode(line)
    assert again == CallEnded(id="c1", result=result)
    assert isinstance(again, CallEnded)
    assert to_function_response(CALL, again.result) == part  # Nor is one that was read from the journal.


def test_a_long_value_is_read_when_it_is_asked_for_and_only_once() -> None:
    result = sanitize_result(ROWS, call=CALL)
    part, line = to_function_response(CALL, result), encode(CallEnded(id="c1", result=result))
    others = [result.changed(notes=("One.",)), result.detached()]
    assert [one.known_json.handed_out for one in (result, *others) if one.known_json] == [[], [], []]
    assert result.value == ROWS
    assert result.value is result.value
    assert [one.value for one in others] == [ROWS, ROWS]
    assert others[1].value is not result.value
    result.value.clear()
    assert others[1].value == ROWS
    assert to_function_response(CALL, result) == part
    assert encode(CallEnded(id="c1", result=result)) == line


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, replace, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_long_value_that_nobody_read_is_copied_with_its_result(copied: Any) -> None:
    result = sanitize_result(ROWS, call=CALL)
    made = copied(result)
    assert made == result
    assert made.value == ROWS
    assert made.known_json is not None
    assert not hasattr(made, "another")


def test_a_tool_that_changes_its_rows_after_it_returned_them_changes_no_result() -> None:
    rows = [{"id": number, "tags": ["a"]} for number in range(3_000)]
    result = sanitize_result(rows, call=CALL)
    rows[1]["tags"] = []
    rows[2].clear()
    rows.clear()
    assert result.value == [{"id": number, "tags": ["a"]} for number in range(3_000)]


class _Evil:
    """A key that is looked at in every row, and then does something."""

    def __init__(self, does: Callable[[], object]) -> None:
        self.does = does

    def __hash__(self) -> int:
        return hash("id")

    def __eq__(self, other: object) -> bool:
        self.does()
        return False


def _raising(error: type[BaseException]) -> Callable[[], object]:
    def raises() -> object:
        raise error

    return raises


@pytest.mark.parametrize("error", [ValueError, KeyError, TypeError, KeyboardInterrupt, SystemExit, RecursionError])
def test_rows_whose_keys_raise_make_a_result(error: type[BaseException]) -> None:
    rows: list[Any] = [{"id": number} for number in range(3_000)]
    evil = _Evil(lambda: None)
    rows[10] = {evil: 1}
    evil.does = _raising(error)
    assert sanitize_result(rows, call=CALL).value[:10] == rows[:10]


def _change(rows: list[Any], change: str) -> None:
    if change == "clear":
        rows.clear()
    elif change == "grow":
        rows.extend({"id": 0} for _ in range(100))
    elif rows:
        rows[-1]["id"] = {"date": date(2024, 1, 1), "nan": math.nan, "cycle": rows, "object": object()}[change]


@pytest.mark.parametrize("change", ["clear", "grow", "date", "nan", "cycle", "object"])
def test_rows_that_are_changed_while_they_are_looked_at_are_json(change: str) -> None:
    rows: list[Any] = [{"id": number} for number in range(2_500)]
    evil = _Evil(lambda: None)
    rows[1_500] = {evil: 1}
    evil.does = lambda: _change(rows, change)
    result = sanitize_result({"rows": rows}, call=CALL)
    assert strict_json.is_sound(result.value)
    assert decode(encode(CallEnded(id="c1", result=result))) == CallEnded(id="c1", result=result)


@pytest.mark.parametrize("change", ["date", "nan", "cycle", "object"])
def test_rows_that_are_changed_between_a_look_and_the_writing_are_json(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Any] = [{"id": number} for number in range(2_500)]
    dump = strict_json.dump

    def changing(value: Any, **options: Any) -> bytes:
        if len(value) == PIECE_VALUES:
            _change(rows[:PIECE_VALUES], change)
        return dump(value, **options)

    monkeypatch.setattr(strict_json, "dump", changing)
    result = sanitize_result(rows, call=CALL)
    monkeypatch.undo()
    assert strict_json.is_sound(result.value)


@pytest.mark.parametrize("holds", [lambda rows: rows, lambda rows: {"rows": rows, "count": 1}], ids=["list", "object"])
@pytest.mark.parametrize(
    "odd",
    [None, True, 1.5, 2**53, 2**53 + 1, math.inf, "\ud800", "é", date(2024, 1, 1), b"x", (1,), [[1], {"a": []}], {1: 2}],
    ids=ascii,
)
def test_a_long_value_is_written_as_one_that_is_walked_through(odd: Any, holds: Any) -> None:
    rows: list[Any] = [{"id": number, "of": f"row {number}"} for number in range(2_500)]
    rows[1_700] = {"id": odd, "of": odd}
    rows[1_800] = {"of": "another", "more": odd}
    result, walked = sanitize_result(holds(rows), call=CALL), json_safe(holds(rows))
    assert result.value == walked.value
    assert result.notes == walked.notes
    assert json.loads(encode(CallEnded(id="c1", result=result)))["result"]["value"] == walked.value


class _Shouting(dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        return f"{super().__getitem__(key)}!"


class _Colour(enum.StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    "odd",
    [
        *({"id": 1, "of": value} for value in (None, 1, 1.5, math.nan, "\ud800", _Colour.RED, b"x", {1}, date(2024, 1, 1))),
        *({"id": value, "of": "x"} for value in (None, True, 1.0, 2**60, "1", math.inf, b"x", {1}, [1, {"a": {2}}])),
        *({"id": 1, "of": "x", "more": value} for value in (None, 1, "", {1}, Decimal(1))),
        *({"id": 1, "of": "x", name: None} for name in (1, "\ud800", None, _Colour.RED)),
        *({"of": "x"}, {"id": 1}, {}, {"of": "x", "id": 1}, {"id": 1, "other": "x"}, None, [1], _Shouting(id=1, of="x")),
    ],
    ids=ascii,
)  # fmt: skip
def test_one_odd_row_among_thousands_is_written_as_if_it_were_alone(odd: Any) -> None:
    rows: list[Any] = [{"id": number, "of": f"row {number}"} for number in range(5_000)]
    rows[1_700] = rows[4_200] = odd
    result, walked = sanitize_result(rows, call=CALL), json_safe(rows)
    assert strict_json.dump(result.value) == strict_json.dump(walked.value)
    assert result.value[1_700] == json_safe(odd).value
    assert result.notes == walked.notes


def test_texts_of_rows_are_looked_at_by_their_writer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"id": number, "of": f"row {number}"} for number in range(5_000)]
    monkeypatch.setattr(plain_look, "_are_whole", lambda texts: texts == ["id", "of"])
    assert sanitize_result(rows, call=CALL).value == rows


@pytest.mark.parametrize("levels", [99, 100, 101])
def test_a_long_value_may_be_as_deep_as_a_short_one(levels: int) -> None:
    deep: Any = 1
    for _ in range(levels):
        deep = [deep]
    assert sanitize_result([deep] * 2_500, call=CALL).value == json_safe([deep]).value * 2_500


def test_a_result_with_another_value_is_looked_at_anew() -> None:
    result = replace(sanitize_result(ROWS, call=CALL), value=[math.nan])
    assert result.known_json is None
    assert to_function_response(CALL, result)["functionResponse"]["response"]["result"] == ["NaN"]
    assert not is_longer(result, 100)


def test_a_long_value_in_a_nested_call_is_written_as_any() -> None:
    fact = NestedCall(parent="p", id="c1", name="f", args={"a": 1}, result=sanitize_result(ROWS, call=CALL), at_s=1.0)
    assert decode(encode(fact)) == fact
    assert json.loads(encode(fact))["result"]["value"] == ROWS


@pytest.mark.parametrize(
    ("value", "small"),
    [
        (None, True),
        ({"a": [1, 2.5, "x", (True, None)], 5: date(2024, 1, 1), "p": Path("a"), "b": b"x"}, True),
        ([0] * 1_999, True),
        ([0] * 2_001, False),
        ([[[0] * 500] * 2] * 2, False),
        ("x" * 200_001, False),
        (iter([1]), False),
        ({"a": Media(data=b"", mime_type="a/b")}, False),
        (object(), False),
        ({"a": {1, 2}}, False),
    ],
    ids=range(10),
)
def test_a_small_value_is_known_without_encoding_it(value: Any, small: bool) -> None:
    assert is_small(value) is small


def test_looking_at_a_value_uses_nothing_up_and_comes_to_an_end() -> None:
    items = iter([1])
    assert not is_small([items])
    assert list(items) == [1]
    around: list[Any] = []
    around.append(around)
    assert not is_small(around)


class Odd:
    def __str__(self) -> str:
        raise RuntimeError("no")


_HALF = st.sampled_from(["\ud800", "a\udfff"])
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | _HALF | st.binary(max_size=3)
    | st.builds(object) | st.builds(Odd) | st.dates() | st.decimals() | st.builds(lambda: ValueError("\ud800"))
    | st.builds(lambda kind: Media(data=b"A", mime_type=kind), st.sampled_from(["a/b", "\ud800", 5]))
    | st.just({"inlineData": {"mimeType": "a/b", "data": "QQ=="}}),
    lambda inner: st.lists(inner, max_size=3)
    | st.tuples(inner, inner)
    | st.dictionaries(st.text(max_size=3) | _HALF | st.integers() | st.just("$ref"), inner, max_size=3)
    | st.builds(lambda item: iter([item]), inner),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=500, deadline=None)
@given(
    st.builds(
        made,
        value=anything,
        status=st.sampled_from(["finished", "failed", "denied", "timed_out", "cancelled", "unknown", "success"]) | anything,
        error=anything,
        notes=anything,
        media=anything,
        duration_s=anything,
    )
    | anything
)
def test_whatever_a_tool_returns_can_be_journalled_and_answered(returned: Any) -> None:
    result = sanitize_result(returned, call=CALL)
    fact = CallEnded(id="c1", result=result)
    assert decode(encode(fact)) == fact
    assert result.is_error is (result.error is not None)
    assert not result.is_error or result.value is None
    talk = Conversation([{"role": "user", "parts": [{"text": "a"}]}])
    talk.add_model({"role": "model", "parts": [{"functionCall": {"name": "f"}}]})
    talk.add_responses([to_function_response(CALL, result)])
    assert validate(talk.contents, sendable=True) == []


# --- arguments -----------------------------------------------------------------------------------------------------------


def test_arguments_that_are_json_come_back_and_near_misses_are_put_right() -> None:
    given = {"a": [1, 2.5, None, True, {"b": "é"}], "t": (1, 2), "h": "x\ud800", "\udc00": {}}
    assert sanitize_args(given) == {"a": [1, 2.5, None, True, {"b": "é"}], "t": [1, 2], "h": "x\ufffd", "\ufffd": {}}


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"path": Path("/a")}, "'path' is a value of the type 'PosixPath'"),
        ({"rows": [1, {"when": date(2024, 1, 1)}]}, r"'rows\[1\].when' is a value of the type 'date'"),
        ({"a": {1}}, "'a' is a value of the type 'set'"),
        ({"a": math.nan}, "'a' is a number that is not finite"),
        ({"a": Decimal(1)}, "'a' is a value of the type 'Decimal'"),
        ({"a": b"x"}, "'a' is a value of the type 'bytes'"),
        ({"a": {5: 1}}, "'a' is an object with a key of the type 'int'"),
        ({5: 1}, "they are an object with a key of the type 'int'"),
        ([1], "must be a dict, not 'list'"),
        (None, "must be a dict, not 'NoneType'"),
    ],
)
def test_arguments_that_are_not_json_are_refused_with_their_place(args: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        sanitize_args(args)


def test_arguments_that_have_no_end_are_refused() -> None:
    around: dict[str, Any] = {}
    around["a"] = around["b"] = around
    with pytest.raises(UsageError, match="nested deeper than 100 levels"):
        sanitize_args(around)
    with pytest.raises(UsageError, match="more than 100,000 values"):
        sanitize_args({"a": [0] * 100_001})


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.text(max_size=3) | _HALF | st.integers(), anything, max_size=3))
def test_any_arguments_are_json_or_refused(args: Any) -> None:
    try:
        plain = sanitize_args(args)
    except UsageError:
        return
    assert strict_json.is_sound(plain)
    assert sanitize_args(plain) == plain
