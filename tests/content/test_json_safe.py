"""Values of any kind as JSON: nothing that a value does comes out, and numbers stay numbers."""

from __future__ import annotations

import decimal
from typing import Any

import pytest

from callgate import strict_json
from callgate.content.json_safe import NODES_MAX, json_safe
from callgate.types import Media


def test_a_number_whose_plain_form_is_itself_is_written() -> None:
    numpy = pytest.importorskip("numpy")
    assert json_safe(numpy.longdouble(1.5)).value == 1.5
    assert json_safe([numpy.longdouble("0.1")]).value in (["0.1"], [0.1]), "not every machine has more digits than a double"


@pytest.mark.parametrize("error", [SystemExit, GeneratorExit, RecursionError, MemoryError])
def test_a_value_cannot_end_the_program(error: type[BaseException]) -> None:
    class Hostile:
        def to_dict(self) -> Any:
            raise error

    assert "unserialisable" in json_safe([Hostile()]).value[0]


class Name(str):
    __slots__ = ()


ODD_IN_A_ROW = [
    None, True, 1.5, 2**53, 2**53 + 1, -(2**60), float("nan"), float("-inf"), "é", "\ud800", Name("n"),
    decimal.Decimal("1.5"), [1, 2], {"a": 1}, (1,), b"x", Media(mime_type="image/png", data=b"p"),
]  # fmt: skip


@pytest.mark.parametrize("odd", ODD_IN_A_ROW, ids=lambda odd: ascii(odd)[:20])
def test_a_value_among_thousands_of_rows_is_written_as_it_is_by_itself(odd) -> None:
    rows = [{"id": n, "name": f"row {n}"} for n in range(2_500)]
    rows[1_700] = {"id": odd, "name": "odd"}
    few = json_safe(rows[1_700:1_702])
    many = json_safe(rows)
    assert many.value == [*rows[:1_700], *few.value, *rows[1_702:]]
    assert (many.notes, many.media) == (few.notes, few.media)
    assert strict_json.is_sound(many.value)


@pytest.mark.parametrize("key", [1, None, "é", "\ud800", Name("n"), ("a", "b")], ids=ascii)
def test_a_key_among_thousands_of_rows_is_written_as_it_is_by_itself(key) -> None:
    rows: list[Any] = [{"id": n} for n in range(2_500)]
    rows[1_700] = {key: 1, "id": 2}
    assert json_safe(rows).value == [*rows[:1_700], json_safe(rows[1_700]).value, *rows[1_701:]]
    assert strict_json.is_sound(json_safe(rows).value)


def test_thousands_of_rows_are_copied() -> None:
    rows = [{"id": n} for n in range(2_500)]
    found = json_safe(rows).value
    rows[7]["id"] = -1
    rows.clear()
    assert found == [{"id": n} for n in range(2_500)]


def test_more_rows_than_a_result_may_hold_are_cut() -> None:
    found = json_safe([{"id": n, "more": None} for n in range(NODES_MAX // 2)])
    assert len(found.value) < NODES_MAX // 2 + 2
    assert any("more than" in note for note in found.notes)
