"""Values of any kind as JSON: nothing that a value does comes out, and numbers stay numbers."""

from __future__ import annotations

import decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import strict_json
from callgate.content.json_safe import NODES_MAX, json_safe
from callgate.types import Media


def test_a_number_whose_plain_form_is_itself_is_written() -> None:
    numpy = pytest.importorskip("numpy")
    assert json_safe(numpy.longdouble(1.5)).value == 1.5
    assert json_safe([numpy.longdouble("0.1")]).value in (["0.1"], [0.1]), "not every machine has more digits than a double"


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, RecursionError, MemoryError])
def test_a_value_cannot_end_the_program(error: type[BaseException]) -> None:
    class Hostile:
        def to_dict(self) -> Any:
            raise error

    assert "unserialisable" in json_safe([Hostile()]).value[0]


def test_an_interrupt_by_a_handler_of_the_program_passes() -> None:
    class OwnInterrupt(KeyboardInterrupt):
        pass

    class Interrupted:
        def to_dict(self) -> Any:
            raise OwnInterrupt

    with pytest.raises(OwnInterrupt):
        json_safe([Interrupted()])


class Name(str):
    __slots__ = ()


ODD_IN_A_ROW = [
    None, True, 1.5, 2**53, 2**53 + 1, -(2**60), float("nan"), float("-inf"), "é", "\ud800", Name("n"),
    decimal.Decimal("1.5"), [1, 2], {"a": 1}, (1,), b"x", Media(mime_type="image/png", data=b"p"),
]  # fmt: skip


@pytest.mark.rows("odd", ODD_IN_A_ROW, ids=lambda odd: ascii(odd)[:20])
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


@pytest.mark.parametrize("odd", ["\ud800", 2**60, float("nan"), decimal.Decimal(1), (1,), {"a": {1: 2}}, [[float("inf")]]])
def test_a_value_among_thousands_of_members_is_written_as_it_is_by_itself(odd: Any) -> None:
    members: dict[str, Any] = {f"id-{n}": {"id": n, "tags": ["a"]} if n % 2 else n for n in range(2_500)}
    members["id-1700"] = odd
    few = json_safe({"id-1700": odd})
    many = json_safe(members)
    assert many.value == {**members, **few.value}
    assert list(many.value) == list(members)
    assert many.notes == few.notes
    assert strict_json.is_sound(many.value)


@pytest.mark.parametrize("key", ["ü", "\ud800", 1, None, (1, 2)])
def test_a_key_among_thousands_of_members_is_written_as_it_is_by_itself(key: Any) -> None:
    members: dict[Any, Any] = {f"id-{n}": [n] for n in range(2_500)}
    members |= {key: 1, "last": 2}
    expected = {name: [n] for n, name in enumerate([*members][:2_500])} | json_safe({key: 1}).value | {"last": 2}
    assert json_safe(members).value == expected
    assert strict_json.is_sound(json_safe(members).value)


@pytest.mark.parametrize("member", [{"id": 1}, 1], ids=["objects", "numbers"])
def test_thousands_of_members_are_copied(member: Any) -> None:
    members = {f"id-{n}": member for n in range(2_500)}
    found = json_safe(members).value
    members.clear()
    assert found == {f"id-{n}": member for n in range(2_500)}
    assert found["id-7"] is not member or type(member) is int


def test_more_members_than_a_result_may_hold_are_cut() -> None:
    found = json_safe({"first": [0] * (NODES_MAX - 100), "then": {f"id-{n}": n for n in range(200)}})
    assert len(found.value["then"]) < 200
    assert found.notes


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


scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.just(Name("n")), st.just(decimal.Decimal("1.5"))
)
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False), st.text()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcdef") | st.text(), inner, max_size=4),
)
any_values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.tuples(inner) | st.dictionaries(scalars, inner, max_size=4)
)


@given(st.lists(plain | any_values, min_size=1, max_size=6), st.integers(20, 60))
def test_many_items_are_written_as_each_of_them_is_by_itself(few: list[Any], count: int) -> None:
    items = [few[n % len(few)] for n in range(count)]
    found = json_safe(items).value
    alone = [json_safe(item).value for item in items]
    assert strict_json.is_sound(found)
    assert [*map(strict_json.dump, found)] == [*map(strict_json.dump, alone)]
    assert found == alone
    assert _holders(found).isdisjoint(_holders(items)), "nothing is shared with what the tool returned"


def _holders(value: Any) -> set[int]:
    """The ids of all lists and objects in a value."""
    if not isinstance(value, (list, dict)):
        return set()
    return {id(value)}.union(*map(_holders, value.values() if isinstance(value, dict) else value))


@pytest.mark.parametrize("levels", [97, 98, 99, 100, 101])
@pytest.mark.parametrize("is_object", [True, False])
def test_many_items_may_be_as_deep_as_one(levels: int, is_object: bool) -> None:
    deep: Any = 1
    for _ in range(levels):
        deep = {"a": deep} if is_object else [deep]
    assert json_safe([deep] * 30).value == json_safe([deep] * 2).value[:1] * 30


def test_many_items_may_hold_as_many_values_as_few() -> None:
    row = {"values": [0] * (NODES_MAX // 50 - 4)}
    assert json_safe([row] * 49).value == [row] * 49
    found = json_safe([row] * 60)
    assert found.value[:49] == [row] * 49
    assert any("more than" in note for note in found.notes)


def test_many_items_that_hold_themselves_are_cut() -> None:
    items: list[Any] = [*range(30)]
    items += [items, {"again": items}]
    found = json_safe(items)
    assert found.value == [*range(30), {"cut": "refers to itself"}, {"again": {"cut": "refers to itself"}}]
