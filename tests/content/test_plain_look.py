"""Many values looked at together are found to be JSON only if each of them is."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.content.plain_look import ExactLook
from callgate.strict_json import INT_BITS_MAX, Replaced, is_sound

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.just(Replaced("n")), st.just(1j), st.binary()
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.tuples(inner) | st.dictionaries(scalars, inner, max_size=4)
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), values, max_size=3), max_size=6))
def test_what_is_fine_together_is_fine_one_by_one(rows: list[Any]) -> None:
    assert ExactLook(10_000).is_fine(rows * 5) == is_sound(rows * 5)


@pytest.mark.parametrize("odd", [2**INT_BITS_MAX, -(2**INT_BITS_MAX), math.nan, "\ud800", Replaced("x"), b"", (), {1: 1}])
def test_one_odd_value_among_thousands_is_found(odd: Any) -> None:
    rows: list[Any] = [{"id": number, "name": "x"} for number in range(3_000)]
    assert ExactLook(100_000).is_fine(rows)
    rows[2_345] = {"id": odd, "name": "x"}
    assert not ExactLook(100_000).is_fine(rows)
    rows[2_345] = {"id": 1, "more": odd}
    assert not ExactLook(100_000).is_fine(rows)
    rows[2_345:2_347] = {"id": 1, "name": "x", "more": odd}, {"id": 1}  # As many names as the others, all in all.
    assert not ExactLook(100_000).is_fine(rows)


def test_budgets_of_nodes_levels_and_characters_are_kept() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    assert ExactLook(1_000).is_fine(deep)
    assert not ExactLook(1_000).is_fine([deep])
    assert ExactLook(11).is_fine([1] * 10)
    assert not ExactLook(10).is_fine([1] * 10)
    assert ExactLook(100, 10).is_fine(["12345", "67890"])
    assert not ExactLook(100, 9).is_fine(["12345", "67890"])


def test_a_value_that_holds_itself_is_not_fine() -> None:
    rows: list[Any] = [{"id": 1}]
    rows.append({"id": rows})
    assert not ExactLook(10**6).is_fine(rows)
