"""The same tools where every annotation is only text."""

from __future__ import annotations

import dataclasses
import datetime as dt
import typing
from typing import TYPE_CHECKING, Annotated

import pytest
from pydantic import BaseModel, Field

from callgate.definitions import function_tool, tool
from callgate.errors import ToolNotDeclarableError

if TYPE_CHECKING:
    from callgate.types import ToolContext


class Item(typing.TypedDict):
    n: int
    day: typing.NotRequired[dt.date]
    kids: typing.NotRequired[list[Item]]


@dataclasses.dataclass
class Order:
    items: list[Item]
    day: dt.date | None = None


class Shop:
    class Ticket(BaseModel):
        n: int

    def date(self): ...

    def sell(self, order: Order, ticket: Ticket | None = None) -> int:
        """Sells."""
        return 1


def test_module_level_types_are_resolved():
    def f(order: Order, note: Annotated[str, Field(description="a note")] = "") -> Item: ...

    made = function_tool(f)
    assert made.definition.input_schema["properties"] == {
        "order": {"$ref": "#/$defs/Order"},
        "note": {"type": "string", "default": "", "description": "a note"},
    }
    assert made.definition.output_schema is not None
    assert made.bind({"order": {"items": [{"n": 1, "day": "2026-01-01", "kids": [{"n": 2}]}]}}, None) == (
        (),
        {"order": Order([{"n": 1, "day": dt.date(2026, 1, 1), "kids": [{"n": 2}]}])},
    )


def test_types_local_to_the_enclosing_function_are_resolved():
    import uuid as ids

    class Local(typing.TypedDict):
        n: int
        more: typing.NotRequired[list[Local]]
        other: typing.NotRequired[Other]

    @dataclasses.dataclass
    class Other:
        day: dt.date
        local: Local | None = None

    def f(x: Local, y: Other, z: ids.UUID | None = None): ...

    assert function_tool(f).bind(
        {"x": {"n": 1, "other": {"day": "2026-01-01"}}, "y": {"day": "2026-01-02", "local": {"n": 2}}}, None
    ) == (
        (),
        {"x": {"n": 1, "other": Other(dt.date(2026, 1, 1))}, "y": Other(dt.date(2026, 1, 2), {"n": 2})},
    )


def make_tools():
    class Local(BaseModel):
        n: int

    @tool
    def marked(x: Local): ...

    def bare(x: Local): ...

    def closing(x: Local):
        return Local

    return marked, bare, closing


def test_marked_function_remembers_the_types_around_it():
    marked, _, closing = make_tools()
    for fn in (marked, closing):
        assert function_tool(fn).definition.input_schema["properties"] == {"x": {"$ref": "#/$defs/Local"}}


def test_unmarked_function_that_left_its_types_behind_is_refused_with_a_remedy():
    _, bare, _ = make_tools()
    with pytest.raises(
        ToolNotDeclarableError, match=r"'Local' of parameter 'x' cannot be resolved.*use @tool where the function is written"
    ):
        function_tool(bare)


def test_class_body_types_are_resolved_and_methods_do_not_hide_modules():
    assert function_tool(Shop().sell).bind({"order": {"items": [], "day": "2026-01-01"}, "ticket": {"n": 1}}, None) == (
        (),
        {"order": Order([], dt.date(2026, 1, 1)), "ticket": Shop.Ticket(n=1)},
    )


def test_method_of_a_local_class_sees_the_types_around_the_class():
    class Local(BaseModel):
        n: int

    class Service:
        def run(self, x: Local): ...

    assert function_tool(Service().run).bind({"x": {"n": 1}}, None) == ((), {"x": Local(n=1)})


def test_context_imported_for_type_checkers_only_is_still_injected():
    def f(x: int, context: ToolContext | None = None): ...

    assert list(function_tool(f).definition.input_schema["properties"]) == ["x"]
