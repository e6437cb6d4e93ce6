"""Fields that are read when somebody asks: nobody can tell, except by counting."""

from __future__ import annotations

import copy
import pickle
from dataclasses import asdict, dataclass, replace
from typing import Any

import pytest

from callgate.types import Reply, ToolResult, Usage
from callgate.unread import Unread, let_go, read_when_asked


class Counted(Unread):
    """Reads the same, and counts how often."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.reads = 0

    def read(self) -> Any:
        self.reads += 1
        return copy.deepcopy(self.value)


def result_of(value: Any) -> ToolResult:
    return ToolResult(call_id="c", name="read", status="finished", value=value)


def test_a_result_whose_value_was_let_go_is_the_same_result() -> None:
    rows = [{"a": 1}, {"a": None}]
    plain, result = result_of(rows), result_of(rows)
    written = Counted(rows)
    let_go(result, "value", rows, written)
    assert (result.value, result.value) == (rows, rows)
    assert written.reads == 2  # It is not held, whoever has seen it.
    assert result.value is not result.value
    assert result == plain
    assert repr(result) == repr(plain)
    assert asdict(result) == asdict(plain)
    assert pickle.loads(pickle.dumps(result)) == copy.copy(result) == copy.deepcopy(result) == plain
    assert replace(result, notes=("x",)) == replace(plain, notes=("x",))
    match result:
        case ToolResult(value=[{"a": 1}, _]):
            pass
        case _:
            pytest.fail("a pattern does not see the value")


def test_what_would_be_read_differently_is_not_let_go() -> None:
    value = {"a": (1, 2)}
    result = result_of(value)
    let_go(result, "value", {"a": [1, 2]}, Counted({"a": [1, 2]}))
    assert result.value is value


def test_what_was_let_go_is_still_read_from_the_same_place() -> None:
    first, second = Counted("x" * 10), Counted("x" * 10)
    result = result_of("x" * 10)
    let_go(result, "value", "x" * 10, first)
    let_go(result, "value", "x" * 10, second)
    assert result.value == "x" * 10
    assert (first.reads, second.reads) == (1, 0)


def test_a_frozen_word_stays_frozen() -> None:
    result: Any = result_of("x")
    with pytest.raises(AttributeError):
        result.value = "y"
    with pytest.raises(AttributeError):
        del result.value
    assert result.value == "x"
    assert ToolResult(call_id="c", name="read", status="failed").value is None


def test_a_reply_may_be_made_with_contents_or_with_a_way_to_read_them() -> None:
    contents = [{"role": "user", "parts": [{"text": "Hi."}]}]
    later: Any = Counted(contents)
    fields: Any = {"text": "", "calls": [], "usage": Usage(), "finish_reason": "STOP", "session": "s"}
    assert Reply(contents=later, **fields) == Reply(contents=contents, **fields)


def test_any_word_with_slots_can_have_such_a_field() -> None:
    @read_when_asked("text")
    @dataclass(slots=True)
    class Page:
        number: int
        text: Any = ""

    page = Page(1, Counted("a"))
    assert (page.text, Page(2).text) == ("a", "")
    page.text = "b"
    assert page == Page(1, "b")

    class Cover(Page):
        """A page of its own kind."""

    cover = Cover(0, "c")
    let_go(cover, "text", "c", Counted("c"))
    assert cover.text == "c"


def test_an_unread_by_itself_reads_nothing() -> None:
    with pytest.raises(NotImplementedError):
        Unread().read()
