"""Values and how they are said."""

from __future__ import annotations

import random
import re

import pytest
from training.values import SAMPLERS, Said, Values, ordinal

SPOKEN_MINUTES = {"half an hour": 30, "an hour": 60, "two hours": 120, "an hour and a half": 90, "a quarter of an hour": 15}


@pytest.mark.rows("kind", sorted(SAMPLERS))
def test_every_kind_of_value_can_be_drawn_and_said(kind: str) -> None:
    values = Values(random.Random(1))
    for _ in range(30):
        drawn = values.sample(kind)
        assert isinstance(drawn, Said)
        assert drawn.spoken
        assert drawn.value not in (None, "")


def test_minutes_are_minutes_however_they_are_said() -> None:
    values = Values(random.Random(2))
    drawn = {said.spoken: said.value for said in (values.minutes() for _ in range(2000))}
    assert drawn.items() >= SPOKEN_MINUTES.items()
    for spoken, value in drawn.items():
        if found := re.match(r"(\d+) min", spoken):
            assert value == int(found[1])


def test_a_day_with_its_year_is_written_in_one_way() -> None:
    values = Values(random.Random(3))
    for _ in range(200):
        said = values.iso_date()
        year, month, day = map(int, said.value.split("-"))
        assert str(year) in said.spoken
        assert str(day) in said.spoken
        assert 1 <= month <= 12


def test_ranges_and_lists_are_kinds_too() -> None:
    values = Values(random.Random(4))
    assert {values.sample("=red,green").value for _ in range(50)} == {"red", "green"}
    assert all(2 <= values.sample("2-5").value <= 5 for _ in range(50))
    assert all(0.5 <= values.sample("0.5-1.5").value <= 1.5 for _ in range(50))


def test_an_unknown_kind_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no kind of value called .colour.\..*color"):
        Values(random.Random(5)).sample("colour")


def test_ordinals() -> None:
    assert [ordinal(day) for day in (1, 2, 3, 4, 11, 12, 21, 22, 23, 28)] == [
        "1st", "2nd", "3rd", "4th", "11th", "12th", "21st", "22nd", "23rd", "28th",
    ]  # fmt: skip
