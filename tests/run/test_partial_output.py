"""Typed output while it arrives: values that are there are valid, and what is missing is None."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import enum
import ipaddress
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import BaseModel, Field, computed_field, create_model, field_validator

from callgate import Gate, ScriptedModel
from callgate.events import OutputDelta, RunEnded, to_json
from callgate.run.partial_output import CHARS_MAX, PartialOutput


class Day(BaseModel):
    name: str
    temp: float = 0.5


class Weather(BaseModel):
    city: str = Field(min_length=2)
    unit: Literal["celsius", "fahrenheit"]
    days: list[Day]
    above: Weather | None = None

    @field_validator("city")
    @classmethod
    def is_capital(cls, city: str) -> str:
        if not city[0].isupper():
            raise ValueError("a city begins with a capital")
        return city


@dataclass(frozen=True)
class Point:
    x: int
    y: int
    names: list[str] = field(default_factory=list[str])


class Row(TypedDict):
    name: str
    points: Annotated[list[Point], "any"]


def fed(kind: Any, text: str, *, is_wrapped: bool = False) -> list[Any]:
    """The values after each character."""
    partial = PartialOutput(kind, is_wrapped=is_wrapped)
    return [found[0] for sign in text if (found := partial.feed(sign)) is not None]


def test_a_model_grows_and_every_value_of_it_is_valid():
    found = fed(Weather, '{"city": "Oslo", "unit": "celsius", "days": [{"name": "Mon"}, {"name": "Tue", "temp": 2}]}')
    assert all(isinstance(one, Weather) for one in found)
    assert [one.city for one in found if one.city][:3] == ["Os", "Osl", "Oslo"]
    assert {one.unit for one in found} == {None, "celsius"}
    assert found[-1].model_dump() == {
        "city": "Oslo", "unit": "celsius", "days": [{"name": "Mon", "temp": 0.5}, {"name": "Tue", "temp": 2.0}],
        "above": None,
    }  # fmt: skip
    assert all(type(day).__mro__[1] is Day for one in found for day in one.days or ())


def test_a_value_that_its_validator_refuses_is_not_reported():
    assert [one.city for one in fed(Weather, '{"city": "oslo", "unit": "celsius"}')] == [None]


@pytest.mark.parametrize(
    ("kind", "text", "last"),
    [
        (Point, '{"x": 1, "y": 2, "names": ["a", "b"]}', Point(1, 2, ["a", "b"])),
        (Row, '{"name": "r", "points": [{"x": 1, "y": 2}]}', {"name": "r", "points": [Point(1, 2)]}),
        (dict[str, Day], '{"a": {"name": "Mon"}}', {"a": Day(name="Mon")}),
        ({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}, '{"n": 12}', {"n": 12}),
    ],
)
def test_other_types_grow_too(kind: Any, text: str, last: Any):
    found = fed(kind, f"Here it is:\n```json\n{text}")
    assert len(found) > 1
    assert repr(found[-1]) == repr(last)


def test_a_text_with_escapes_never_becomes_shorter():
    said = 'a\n"b" \\ \u00e9 \U0001f600 z'
    found = fed(dict[str, str], json.dumps({"note": said}))
    assert found == [{}, *({"note": said[:length]} for length in range(len(said) + 1))]


def test_a_list_is_taken_out_of_the_object_that_was_asked_for():
    found = fed(list[Point | None], '{"answer": [{"x": 1, "y": 2}, null]}', is_wrapped=True)
    assert repr(found[-1]) == "[Point(x=1, y=2, names=[]), None]"


def test_words_and_endless_answers_give_nothing():
    assert fed(Point, "I cannot say, sorry.") == []
    partial = PartialOutput(Point, is_wrapped=False)
    assert partial.feed(" " * CHARS_MAX) is None
    assert partial.feed('{"x": 1}') is None


def test_a_stream_has_the_output_so_far_before_the_whole():
    async def story() -> list[Any]:
        gate = Gate(ScriptedModel(['{"x": 1, "y": "two"}', '{"x": 1, "y": 2, "names": ["somebody", "else"]}']))
        return [event async for event in gate.stream("Where?", output=Point)]

    events = asyncio.run(story())
    deltas = [event for event in events if isinstance(event, OutputDelta)]
    assert all(isinstance(event.partial, Point) for event in deltas)
    assert repr(deltas[-1].partial) == repr(events[-1].reply.output) == "Point(x=1, y=2, names=['somebody', 'else'])"
    assert isinstance(events[-1], RunEnded)
    assert to_json(deltas[0])["type"] == "output_delta"
    assert to_json(deltas[-1])["partial"] == {"x": 1, "y": 2, "names": ["somebody", "else"]}


class Stay(BaseModel):
    tags: list[str]
    day: datetime.date

    @computed_field
    @property
    def year(self) -> int:
        return self.day.year

    @computed_field(alias="firstTag")
    @cached_property
    def first(self) -> str:
        return self.tags[0]


def test_a_computed_field_is_none_until_what_it_is_computed_of_is_there():
    async def story() -> None:
        gate = Gate(ScriptedModel(['{"tags": ["a"], "day": "2026-01-02"}'], piece_chars=4))
        found = [event async for event in gate.stream("x", output=Stay) if isinstance(event, OutputDelta)]
        first, last = found[0].partial, found[-1].partial
        assert repr(first) == "Stay(tags=None, day=None, year=None, first=None)"
        assert (isinstance(last, Stay), last.year, last.first) == (True, 2026, "a")
        assert to_json(found[-1])["partial"] == {"tags": ["a"], "day": "2026-01-02", "year": 2026, "firstTag": "a"}

    asyncio.run(story())


def test_a_run_that_nobody_watches_reads_nothing_twice(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(PartialOutput, "feed", None)
    assert asyncio.run(Gate(ScriptedModel(['{"x": 1, "y": 2}'])).run("Where?", output=Point)).output == Point(1, 2)


def test_an_unfinished_number_is_no_value_yet():
    async def story() -> list[Any]:
        gate = Gate(ScriptedModel(['{"x": 1234567, "y": -25, "names": ["no 12", "other"]}']))
        return [event.partial async for event in gate.stream("Where?", output=Point) if isinstance(event, OutputDelta)]

    partials = asyncio.run(story())
    assert {partial.x for partial in partials} <= {None, 1234567}
    assert {partial.y for partial in partials} <= {None, -25}
    assert [partial.x for partial in fed(Point, '{"x": 12')] == [None]
    assert [partial.names for partial in fed(Point, '{"names": ["no 12')][-1] == ["no 12"]


class Size(enum.Enum):
    LOW = "low"
    LOWEST = "lowest"


@pytest.mark.parametrize(
    ("kind", "written", "value"),
    [
        (datetime.datetime, '"2026-11-18T10:30:45"', datetime.datetime(2026, 11, 18, 10, 30, 45)),
        (list[datetime.datetime], '["2026-11-18T10:30:45"]', [datetime.datetime(2026, 11, 18, 10, 30, 45)]),
        (decimal.Decimal, '"1234.56"', decimal.Decimal("1234.56")),
        (int, '"1234"', 1234),
        (float | None, '"12.5"', 12.5),
        (bool, '"true"', True),
        (Size, '"lowest"', Size.LOWEST),
        (Literal["a", "ab"], '"ab"', "ab"),
        (ipaddress.IPv4Address, '"10.0.0.12"', ipaddress.IPv4Address("10.0.0.12")),
    ],
)
def test_a_string_that_stands_for_something_else_than_text_counts_when_it_is_complete(
    kind: Any, written: str, value: Any
) -> None:
    made = create_model("Made", v=(kind, ...), z=(int, 0))
    partial = PartialOutput(made, is_wrapped=False)
    found = [got[0].v for sign in '{"v": ' + written + ', "z": 1}' if (got := partial.feed(sign)) is not None]
    assert [one for one in found if one not in (None, [])] == [value, value]


def test_a_text_of_a_union_grows_and_stays_a_text() -> None:
    made = create_model("Made", v=(datetime.date | str, ...))
    partial = PartialOutput(made, is_wrapped=False)
    found = [got[0].v for sign in '{"v": "2026-11-18"}' if (got := partial.feed(sign)) is not None]
    assert (found[-1], {type(one) for one in found}) == ("2026-11-18", {str, type(None)})


class Branch(BaseModel):
    name: str
    kids: list[Branch] = []


@pytest.mark.parametrize("text", ['{"name": "root", "kids": [{"name": "a"}]}', '{"answer": {"name": "root", "kids": []}}'])
def test_a_type_that_is_recursive_at_its_root_has_partial_values_with_and_without_the_wrapper(text: str) -> None:
    partial = PartialOutput(Branch, is_wrapped=True)
    found = [got[0] for sign in text if (got := partial.feed(sign)) is not None]
    assert {one.name for one in found} >= {"r", "ro", "roo", "root"}
