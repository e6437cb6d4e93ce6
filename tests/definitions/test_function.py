"""Python callables as tools: what the model is told, and what the function gets."""

import dataclasses
import datetime
import decimal
import enum
import functools
import inspect
import logging
import math
import os
import subprocess
import sys
import typing
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Literal, Optional, TypeVar, Union, Unpack

import pytest
import typing_extensions
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, field_validator

from callgate import Gate, ScriptedModel, convert
from callgate.definitions import (
    FORMATS,
    ArgumentsInvalidError,
    FunctionTool,
    ToolOptions,
    definition_from,
    function_tool,
    tool,
)
from callgate.errors import ToolNotDeclarableError, UsageError
from callgate.schema import check_arguments
from callgate.testing import call as call_of
from callgate.types import Media, ToolContext, ToolDefinition

SCALE = int(os.environ.get("CALLGATE_SCALE", "1"))
thorough = settings(max_examples=200 * SCALE, deadline=None)
CONTEXT = ToolContext(call_id="c1", name="t")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    when: datetime.date = datetime.date(2020, 1, 1)


class Old(typing.TypedDict):
    """A typed dict of the standard library."""

    n: int
    more: typing.NotRequired[list["Old"]]


class New(typing_extensions.TypedDict, total=False):
    n: typing_extensions.Required[int]
    old: Old


@dataclasses.dataclass
class Holder:
    old: Old
    many: list[Old] = dataclasses.field(default_factory=list)
    n: int = 3


class Model(BaseModel):
    a: int
    b: int = 5
    title: str = "t"
    kids: list["Model"] = []

    @field_validator("b")
    @classmethod
    def _small(cls, value):
        if value > 10:
            raise ValueError("b must be at most 10")
        return value


class Opaque:
    pass


def schema(fn, **options):
    return function_tool(fn, **options).definition.input_schema


def properties(fn, **options):
    return schema(fn, **options)["properties"]


def call(fn, args, context=None, **options):
    """What the function would be called with, after the check that every call goes through."""
    made = function_tool(fn, **options)
    checked = check_arguments(made.definition, args)
    assert tuple(checked.problems) == ()
    return made.bind(checked.args, context)


# ---- what the model is told


def test_plain_function_is_declared_whole():
    def get_weather(
        city: Annotated[str, Field(description="the city", min_length=2)], unit: Literal["c", "f"] = "c"
    ) -> dict[str, int]:
        """Tells the weather.

        Now, not later.

        Args:
            city: hidden by the Field
            unit: c or f

        Returns:
            numbers

        Raises:
            ValueError: never
        """
        return {}

    assert function_tool(get_weather, read_only=True, timeout_s=5).definition == ToolDefinition(
        name="get_weather",
        description="Tells the weather.\n\nNow, not later.",
        input_schema={
            "type": "object",
            "properties": {
                "city": {"type": "string", "minLength": 2, "description": "the city"},
                "unit": {"type": "string", "enum": ["c", "f"], "default": "c", "description": "c or f"},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
        output_schema={"type": "object", "additionalProperties": {"type": "integer"}},
        read_only=True,
        timeout_s=5,
    )


@pytest.mark.parametrize(
    "text",
    [
        "Does it.\n\nArgs:\n    x (int): the x\n    *args: the rest",
        "Does it.\n\nParameters\n----------\nx : int\n    the x\n*args\n    the rest\n\nReturns\n-------\nint\n    a number",
        "Does it.\n\n:param x: the x\n:param args: the rest\n:returns: a number",
        "Does it.\n\n@param x: the x\n@param args: the rest\n@return: a number",
    ],
)
def test_docstrings_of_four_styles_describe_the_parameters(text):
    def f(x: int, *args: int): ...

    f.__doc__ = text
    definition = function_tool(f).definition
    assert definition.description == "Does it."
    assert {name: entry["description"] for name, entry in definition.input_schema["properties"].items()} == {
        "x": "the x",
        "args": "the rest",
    }


def test_description_comes_from_field_then_doc_then_text_then_docstring():
    def f(
        a: Annotated[int, Field(description="field"), "text"],
        b: Annotated[int, typing_extensions.Doc("doc")],
        c: Annotated[int, "text"],
        d: int,
    ):
        """F.

        :param a: docstring
        :param c: docstring
        :param d: docstring
        """

    assert [entry["description"] for entry in properties(f).values()] == ["field", "doc", "text", "docstring"]


def test_without_a_docstring_the_description_is_empty():
    def f(): ...

    assert function_tool(f).definition == ToolDefinition(
        name="f", input_schema={"type": "object", "properties": {}, "additionalProperties": False}
    )


def test_nested_model_keeps_its_optional_fields_optional_and_a_property_named_title():
    def f(m: Model, n: Model | None = None): ...

    assert schema(f) == {
        "type": "object",
        "properties": {
            "m": {"$ref": "#/$defs/Model"},
            "n": {"anyOf": [{"$ref": "#/$defs/Model"}, {"type": "null"}], "default": None},
        },
        "required": ["m"],
        "$defs": {
            "Model": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer"},
                    "b": {"type": "integer", "default": 5},
                    "title": {"type": "string", "default": "t"},
                    "kids": {"type": "array", "items": {"$ref": "#/$defs/Model"}, "default": []},
                },
                "required": ["a"],
            }
        },
        "additionalProperties": False,
    }


V = TypeVar("V", bound=int)
Ints = typing_extensions.TypeAliasType("Ints", "list[int]")


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (list, {"type": "array", "items": {}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Optional[list[str]], {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}),  # noqa: UP045
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),  # noqa: UP007
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (tuple[int], {"type": "array", "prefixItems": [{"type": "integer"}], "minItems": 1, "maxItems": 1}),
        (datetime.date, {"type": "string", "format": "date"}),
        (set[int], {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        (Any, {}),
        (V, {"type": "integer"}),
        (Annotated[int, Field(ge=1, le=9, title="Gone")], {"type": "integer", "minimum": 1, "maximum": 9}),
        (Ints, {"$ref": "#/$defs/Ints"}),
        (Color, {"$ref": "#/$defs/Color"}),
    ],
)  # fmt: skip
def test_annotation_is_declared_as_its_json_schema(annotation, expected):
    def f(x): ...

    f.__annotations__ = {"x": annotation}
    assert properties(f) == {"x": expected}


@pytest.mark.parametrize(
    ("default", "expected"),
    [
        (Color.RED, "red"),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        ((1, 2), [1, 2]),
        ({"c", "a", "b"}, ["a", "b", "c"]),
        (decimal.Decimal("1.50"), "1.50"),
        (Point(1), {"x": 1, "when": "2020-01-01"}),
    ],
)
def test_default_is_declared_in_json(default, expected):
    def f(x=default): ...

    f.__annotations__ = {"x": type(default)}
    assert properties(f)["x"]["default"] == expected
    assert call(f, {}) == ((), {})


@pytest.mark.parametrize("default", [object(), float("nan"), b"\xff", lambda: 1])
def test_default_that_json_cannot_say_is_left_out_and_still_optional(default):
    def f(x: Any = default): ...

    assert schema(f) == {"type": "object", "properties": {"x": {}}, "additionalProperties": False}


def test_none_as_a_default_makes_the_type_nullable():
    def f(x: Annotated[int, Field(ge=1)] = None): ...  # noqa: RUF013

    assert properties(f) == {"x": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "default": None}}
    assert call(f, {"x": None}) == ((), {"x": None})


def test_field_as_a_default_describes_the_parameter_and_supplies_its_value():
    def f(x: int = Field(description="the x", ge=1), y: int = Field(4), z: list[int] = Field(default_factory=list)): ...  # noqa: B008

    assert schema(f)["required"] == ["x"]
    assert properties(f)["x"] == {"type": "integer", "minimum": 1, "description": "the x"}
    assert call(f, {"x": 2}) == ((), {"x": 2, "y": 4, "z": []})


def test_alias_is_the_name_that_the_model_sees():
    def f(user_name: Annotated[str, Field(alias="userName", description="who")] = "me"): ...

    assert properties(f) == {"userName": {"type": "string", "description": "who", "default": "me"}}
    assert call(f, {"userName": "you"}) == ((), {"user_name": "you"})
    assert call(f, {}) == ((), {})


def test_declaration_is_the_same_in_every_process():
    code = (
        "from callgate.definitions import function_tool\n"
        "def f(x: set[str] = {'a', 'b', 'c', 'd'}, y: frozenset[str] = frozenset('xyz')): ...\n"
        "print(function_tool(f).definition)"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(runs) == 1


def test_unannotated_parameter_takes_anything_and_is_logged(caplog):
    def f(x, y=5): ...

    with caplog.at_level(logging.WARNING, logger="callgate.definitions"):
        assert properties(f) == {"x": {}, "y": {"default": 5}}
    assert [record.getMessage() for record in caplog.records] == [
        "tool 'f': parameter 'x' has no annotation, so the model may send any value",
        "tool 'f': parameter 'y' has no annotation, so the model may send any value",
    ]


@pytest.mark.parametrize(
    "returns", [None, Any, Media, list[Media], Opaque, Callable[[], int], "Unknown", AsyncIterator[int]]
)
def test_return_annotation_that_says_nothing_gives_no_output_schema(returns):
    def f(): ...

    f.__annotations__ = {"return": returns}
    assert function_tool(f).definition.output_schema is None


# ---- what the function gets


def test_arguments_arrive_as_the_declared_types():
    def f(
        c: Color,
        d: datetime.date,
        t: tuple[int, str],
        p: Point,
        m: Model,
        n: decimal.Decimal,
        u: uuid.UUID,
        s: set[int],
        b: bytes,
    ): ...

    args = {
        "c": "red", "d": "2026-01-31", "t": [1, "a"], "p": {"x": 1}, "m": {"a": 1, "kids": [{"a": 2}]}, "n": "1.10",
        "u": "12345678-1234-5678-1234-567812345678", "s": [1, 2], "b": "hi",
    }  # fmt: skip
    assert call(f, args) == (
        (),
        {
            "c": Color.RED, "d": datetime.date(2026, 1, 31), "t": (1, "a"), "p": Point(1),
            "m": Model(a=1, kids=[Model(a=2)]), "n": decimal.Decimal("1.10"),
            "u": uuid.UUID("12345678-1234-5678-1234-567812345678"), "s": {1, 2}, "b": b"hi",
        },
    )  # fmt: skip


def test_typed_dicts_of_both_kinds_work_nested_and_recursive():
    def f(o: Old, n: New, h: Holder, many: dict[str, list[Old]], maybe: Old | None = None): ...

    old = {"n": 1, "more": [{"n": 2, "more": []}]}
    assert call(
        f, {"o": old, "n": {"n": 1, "old": old}, "h": {"old": old, "many": [old]}, "many": {"k": [old]}, "maybe": old}
    ) == (
        (),
        {"o": old, "n": {"n": 1, "old": old}, "h": Holder(old, [old]), "many": {"k": [old]}, "maybe": old},
    )
    assert sorted(schema(f)["$defs"]) == ["Holder", "New", "Old"]
    assert schema(f)["$defs"]["Old"] == {
        "type": "object",
        "description": "A typed dict of the standard library.",
        "properties": {"n": {"type": "integer"}, "more": {"type": "array", "items": {"$ref": "#/$defs/Old"}}},
        "required": ["n"],
    }


def test_generic_typed_dict_takes_its_argument():
    T = TypeVar("T")

    class Box(typing.TypedDict, typing.Generic[T]):
        item: T

    def f(b: Box[datetime.date]): ...

    assert call(f, {"b": {"item": "2026-01-01"}}) == ((), {"b": {"item": datetime.date(2026, 1, 1)}})


def test_positional_only_is_delivered_by_position_and_keyword_only_by_name():
    def f(a: int, b: int = 2, /, c: int = 3, *, d: int = 4): ...

    assert call(f, {"a": 1}) == ((1,), {})
    assert call(f, {"a": 1, "b": 5, "c": 6, "d": 7}) == ((1, 5), {"c": 6, "d": 7})


def test_defaults_in_front_of_a_later_positional_value_are_the_same_objects():
    first: list[int] = []

    def f(a: list[int] = first, b: int = 2, /): ...

    (passed, b), keyword = call(f, {"b": 5})
    assert passed is first
    assert (b, keyword) == (5, {})


def test_star_args_and_kwargs_are_an_array_and_a_map():
    def f(a: int, b: str = "b", *args: int, k: bool = True, **kwargs: datetime.date):
        return a, b, args, k, kwargs

    assert properties(f)["args"] == {
        "type": "array",
        "items": {"type": "integer"},
        "description": "Further values, in order; may be left out.",
    }
    assert properties(f)["kwargs"] == {
        "type": "object",
        "additionalProperties": {"type": "string", "format": "date"},
        "description": "Further arguments by name; may be left out.",
    }
    assert schema(f)["required"] == ["a"]
    positional, keyword = call(f, {"a": 1, "args": [2, 3], "kwargs": {"d": "2026-01-01"}})
    assert f(*positional, **keyword) == (1, "b", (2, 3), True, {"d": datetime.date(2026, 1, 1)})
    assert call(f, {"a": 1}) == ((), {"a": 1})


def test_unpacked_star_types_are_taken_whole():
    def f(*args: *tuple[int, str]): ...

    assert call(f, {"args": [1, "a"]}) == ((1, "a"), {})
    assert function_tool(f).definition.input_schema["required"] == ["args"]
    assert schema(f)["properties"]["args"]["description"] == "Further values, in order."


def test_the_keys_of_an_unpacked_typed_dict_are_arguments_of_their_own():
    class Base(typing.TypedDict, total=False):
        page: int

    class Options(Base):
        q: Annotated[str, "The query."]
        when: "typing.NotRequired[datetime.date]"
        at: typing.Required[int]

    def find(where: str, **options: Unpack[Options]):
        """Find.

        Args:
            page: The page.
        """

    assert schema(find) == {
        "type": "object",
        "properties": {
            "where": {"type": "string"},
            "page": {"type": "integer", "description": "The page."},
            "q": {"type": "string", "description": "The query."},
            "when": {"type": "string", "format": "date"},
            "at": {"type": "integer"},
        },
        "required": ["where", "q", "at"],
        "additionalProperties": False,
    }
    assert call(find, {"where": "a", "q": "b", "at": 1}) == ((), {"where": "a", "q": "b", "at": 1})
    date = datetime.date(2026, 1, 1)
    assert call(find, {"where": "a", "q": "b", "at": 1, "when": "2026-01-01"})[1]["when"] == date
    assert check_arguments(function_tool(find).definition, {"where": "a", "q": "b"}).problems == [
        "'at' is required but missing"
    ]


def test_a_typed_dict_without_required_keys_needs_nothing():
    class Options(typing.TypedDict, total=False):
        q: int

    def f(*numbers: int, **options: Unpack[Options]): ...

    assert "required" not in schema(f)
    assert call(f, {}) == ((), {})
    assert call(f, {"numbers": [3], "q": 1}) == ((3,), {"q": 1})


def test_a_key_of_an_unpacked_typed_dict_that_is_a_parameter_too_is_refused():
    class Options(typing.TypedDict):
        q: int

    def f(q: int, **options: Unpack[Options]): ...  # pyright: ignore[reportGeneralTypeIssues]

    with pytest.raises(ToolNotDeclarableError, match="'q' is a parameter and a key of 'Options'"):
        function_tool(f)


def test_an_unpacked_typed_dict_with_an_unknown_name_is_refused():
    class Options(typing.TypedDict):
        q: "NoSuchType"  # pyright: ignore  # noqa: F821

    def f(**options: Unpack[Options]): ...

    with pytest.raises(ToolNotDeclarableError, match="'Options' of 'options' has an annotation that cannot be resolved"):
        function_tool(f)


def test_kwargs_cannot_reach_what_is_already_taken():
    def f(secret: str, a: int, **kwargs: str): ...

    class Service:
        def run(self, **kwargs: str): ...

    cases = [
        (functools.partial(f, "s3cret"), {"a": 1, "kwargs": {"secret": "x"}}, "secret"),
        (functools.partial(f, secret="s3cret"), {"a": 1, "kwargs": {"secret": "x"}}, "secret"),
        (functools.partial(f, "s3cret"), {"a": 1, "kwargs": {"a": "x"}}, "a"),
        (Service().run, {"kwargs": {"self": "x"}}, "self"),
    ]
    for fn, args, name in cases:
        with pytest.raises(ArgumentsInvalidError) as caught:
            call(fn, args)
        assert caught.value.problems == (f"kwargs: '{name}' is not a free name",)


def test_any_parameter_name_works():
    def f(_x: int, self: int, schema: int, json: int, model_config: int, copy: int, title: int, fn: int, args: int): ...

    values = dict.fromkeys(inspect.signature(f).parameters, 1)
    assert call(f, values) == ((), values)
    assert list(properties(f)) == list(values)


def test_context_is_injected_and_hidden():
    def f(x: int, context: ToolContext): ...
    def g(x: int, context: Annotated[ToolContext | None, "mine"] = None): ...
    def h(context: ToolContext, /, *rest: int): ...

    for fn in (f, g):
        assert list(properties(fn)) == ["x"]
        assert call(fn, {"x": 1}, CONTEXT) == ((), {"x": 1, "context": CONTEXT})
    assert call(f, {"x": 1}) == ((), {"x": 1, "context": None})
    assert call(g, {"x": 1}) == ((), {"x": 1})
    assert call(h, {"rest": [1]}, CONTEXT) == ((CONTEXT, 1), {})


def test_refused_values_are_sentences_with_paths():
    def f(
        m: Model,
        t: tuple[int, datetime.date] = (1, datetime.date(2026, 1, 1)),
        u: datetime.date | datetime.time | None = None,
    ): ...

    with pytest.raises(ArgumentsInvalidError) as caught:
        function_tool(f).bind({"m": {"b": 11, "kids": [{"a": "x"}]}, "t": [1], "u": "soon"}, None)
    assert caught.value.problems == (
        "m: 'a' is required but missing",
        "m.b: b must be at most 10",
        "m.kids[0].a: should be a valid integer, unable to parse string as an integer",
        "t: item 1 is required but missing",
        "u: should be a valid date or datetime, input is too short, such as 2026-11-23",
        "u: should be in a valid time format, input is too short, such as 08:30:00",
    )


def test_unknown_and_unwritable_arguments_are_refused():
    def f(x: Any = None): ...

    for args, problem in (({"y": 1}, "unknown argument 'y'"), ({"x": float("nan")}, "the number nan is not finite")):
        with pytest.raises(ArgumentsInvalidError) as caught:
            function_tool(f).bind(args, None)
        assert caught.value.problems == (problem,)


def test_union_of_text_types_keeps_what_was_sent():
    def f(x: int | str | None): ...

    assert call(f, {"x": "5"}) == ((), {"x": "5"})


PYTHON_VALUES = {
    Color: st.sampled_from(Color),
    datetime.date: st.dates(),
    datetime.datetime: st.datetimes(),
    datetime.timedelta: st.timedeltas(min_value=datetime.timedelta(0), max_value=datetime.timedelta(days=10_000)),
    uuid.UUID: st.uuids(),
    decimal.Decimal: st.decimals(allow_nan=False, allow_infinity=False, places=3),
    tuple[int, str]: st.tuples(st.integers(), st.text()),
    frozenset[int]: st.frozensets(st.integers()),
    Point: st.builds(Point, st.integers(), st.dates()),
    dict[str, list[float]]: st.dictionaries(st.text(), st.lists(st.floats(allow_nan=False, allow_infinity=False))),
    Model: st.builds(Model, a=st.integers(), b=st.integers(max_value=10)),
    bytes: st.text().map(str.encode),
    bool | int | None: st.none() | st.booleans() | st.integers(),
    Old: st.fixed_dictionaries({"n": st.integers()}, optional={"more": st.just([{"n": 1}])}),
}
TOOLS = {}
for kind in PYTHON_VALUES:

    def take(x): ...

    take.__annotations__ = {"x": kind}
    TOOLS[kind] = function_tool(take)


@thorough
@given(st.data())
def test_values_of_declared_types_survive_the_way_through_json(data):
    kind = data.draw(st.sampled_from(list(PYTHON_VALUES)))
    value = data.draw(PYTHON_VALUES[kind])
    sent = value if kind is Old else TypeAdapter(kind).dump_python(value, mode="json")
    checked = check_arguments(TOOLS[kind].definition, {"x": sent})
    assert tuple(checked.problems) == ()
    _, keyword = TOOLS[kind].bind(checked.args, None)
    assert keyword == {"x": value}
    assert type(keyword["x"]) is type(value)


# ---- callables of every make


class Greeter:
    """Greets."""

    def __call__(self, who: str) -> str:
        return who

    def greet(self, who: str):
        """Greets somebody."""

    @tool(name="marked", read_only=True)
    def marked_method(self, who: str):
        """Is marked."""

    @tool(name="class_marked")
    @classmethod
    def on_class(cls, who: str): ...

    @tool(name="static_marked")
    @staticmethod
    def on_static(who: str): ...


class HTTPFetcher:
    async def __call__(self, url: str):
        """Fetches."""


@functools.wraps(Greeter.greet)
def wrapped(*args, **kwargs):
    return Greeter.greet(*args, **kwargs)


def plain(who: str, secret: str = "s"):
    """Is plain."""


ONE = {"who": {"type": "string"}}


@pytest.mark.parametrize(
    ("fn", "name", "description"),
    [
        (Greeter(), "greeter", "Greets."),
        (Greeter().greet, "greet", "Greets somebody."),
        (Greeter().marked_method, "marked", "Is marked."),
        (Greeter.on_class, "class_marked", ""),
        (Greeter().on_static, "static_marked", ""),
        (functools.partial(plain, secret="x"), "plain", "Is plain."),
        (functools.partial(functools.partial(plain), secret="x"), "plain", "Is plain."),
        (functools.lru_cache(functools.partial(plain, secret="x")), "plain", "Is plain."),
    ],
)  # fmt: skip
def test_callables_of_every_make_are_tools(fn, name, description):
    definition = function_tool(fn).definition
    assert (definition.name, definition.description, definition.input_schema["properties"]) == (name, description, ONE)


def test_partial_bound_by_position_loses_that_parameter():
    assert list(properties(functools.partial(plain, "me"))) == ["secret"]


def test_object_name_is_in_snake_case_and_its_own_docstring_counts():
    definition = function_tool(HTTPFetcher()).definition
    assert (definition.name, definition.description) == ("http_fetcher", "Fetches.")


def test_wrapper_shows_what_it_wraps():
    assert list(properties(wrapped)) == ["self", "who"]


def test_builtin_with_a_signature_is_a_tool():
    assert call(math.sqrt, {"x": 4}) == ((4,), {})


def test_lambda_needs_a_name():
    assert function_tool(lambda: 1, name="one").definition.name == "one"
    with pytest.raises(ToolNotDeclarableError, match="has no name of its own; give it one"):
        function_tool(lambda: 1)


def test_async_is_decided_once_for_every_make():
    async def coroutine(): ...
    async def generator():
        yield 1

    class Sync:
        def __call__(self): ...

    made = [
        function_tool(fn)
        for fn in (coroutine, functools.partial(coroutine), HTTPFetcher(), HTTPFetcher().__call__, plain, Sync(), generator)
    ]
    assert [item.is_async for item in made] == [True, True, True, True, False, False, False]
    assert [item.is_async_generator for item in made] == [False] * 6 + [True]


# ---- the decorator


def test_tool_gives_back_the_same_function_with_a_mark():
    def f(x: int) -> int:
        return x + 1

    assert tool(f) is f
    assert tool(name="g", isolation="process", sequential=True)(f) is f
    assert f(1) == 2
    assert f.__callgate_tool__ == ToolOptions(name="g", isolation="process", sequential=True)
    made = function_tool(f)
    assert (made.definition.name, made.definition.sequential, made.isolation, made.run_in) == (
        "g",
        True,
        "process",
        "thread",
    )


def test_keyword_of_function_tool_wins_over_the_mark():
    @tool(name="marked", description="marked", timeout_s=1, idempotent=True)
    def f(): ...

    definition = function_tool(f, name="given", timeout_s=2, idempotent=False).definition
    assert (definition.name, definition.description, definition.timeout_s, definition.idempotent) == (
        "given",
        "marked",
        2,
        False,
    )


def test_callable_without_attributes_comes_back_as_a_marked_partial():
    first, second = Greeter(), Greeter()
    one, two = tool(first.greet, name="one"), tool(second.greet, name="two")
    assert [function_tool(item).definition.name for item in (one, two, first.greet)] == ["one", "two", "greet"]
    assert tool(math.sqrt, name="root")(4) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout_s": 0}, "timeout_s=0 is not a time; give a number of seconds above 0"),
        ({"timeout_s": -1}, "timeout_s=-1 is not a time"),
        ({"timeout_s": float("nan")}, "timeout_s=nan is not a time"),
        ({"timeout_s": True}, "timeout_s=True is not a time"),
        ({"timeout_s": "5"}, "timeout_s='5' is not a time"),
        ({"isolation": "docker"}, "isolation='docker' is not known; use 'process', or leave it out"),
        ({"run_in": "pool"}, "run_in='pool' is not known; use 'thread' or 'loop'"),
        ({"run_in": "loop", "isolation": "process"}, "choose one of them"),
        ({"name": ""}, "name='' is not a name"),
        ({"name": 5}, "name=5 is not a name"),
        ({"description": 5}, "description=5 is not text"),
        ({"nmae": "x"}, "there is no option 'nmae'; the options are name, description, timeout_s"),
    ],
)
def test_bad_option_is_refused_where_it_is_written(options, message):
    for use in (lambda: tool(**options), lambda: tool(plain, **options), lambda: function_tool(plain, **options)):
        with pytest.raises(ToolNotDeclarableError) as caught:
            use()
        assert message in str(caught.value)


def test_options_that_clash_only_together_are_refused_too():
    @tool(run_in="loop")
    def f(): ...

    with pytest.raises(ToolNotDeclarableError, match="choose one of them"):
        function_tool(f, isolation="process")


@pytest.mark.parametrize(
    ("thing", "message"), [(5, "cannot be called"), (Greeter, "a class is not a tool"), ("name", "cannot be called")]
)
def test_what_is_no_function_is_refused(thing, message):
    for use in (tool, function_tool):
        with pytest.raises(ToolNotDeclarableError, match=message):
            use(thing)


@pytest.mark.parametrize("annotation", [Opaque, Callable[[], int], list[Opaque], "Nowhere", "1 +", Annotated[Opaque, "x"]])
def test_parameter_that_cannot_be_declared_is_named_with_a_remedy(annotation):
    def f(fine: int, odd): ...

    f.__annotations__ = {"fine": int, "odd": annotation}
    with pytest.raises(ToolNotDeclarableError, match=r"tool 'f'.*'odd'.*; (annotate it|define or import)"):
        function_tool(f)


def test_two_context_parameters_are_refused():
    def f(a: ToolContext, b: ToolContext): ...
    def g(*contexts: ToolContext): ...

    with pytest.raises(ToolNotDeclarableError, match="'a' and 'b' are both annotated ToolContext"):
        function_tool(f)
    with pytest.raises(ToolNotDeclarableError, match="cannot take the ToolContext"):
        function_tool(g)


def test_builtin_without_a_signature_is_refused():
    with pytest.raises(ToolNotDeclarableError, match=r"tool 'max'.*has no readable signature"):
        function_tool(max)


# ---- definition_from


def test_definition_from_takes_functions_tools_and_definitions():
    made = function_tool(plain)
    assert isinstance(made, FunctionTool)
    assert definition_from(made) is made.definition
    assert definition_from(made.definition) is made.definition
    assert definition_from(plain) == definition_from(plain, "function") == made.definition


def test_a_wrapped_function_is_known_without_its_type():
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    found = definition_from({"function": {"name": "f", "description": "d", "parameters": schema}})
    assert found == ToolDefinition(name="f", description="d", input_schema=schema)
    call_of_it = {"id": "c1", "function": {"name": "f", "arguments": '{"a": 1}'}}
    assert convert(call_of_it, target="gemini", kind="call").value["functionCall"]["args"] == {"a": 1}


def test_unknown_format_lists_the_known_ones():
    with pytest.raises(UsageError, match=r"there is no tool format 'soap'; the formats are .*'function'"):
        definition_from(plain, "soap")
    assert "function" in FORMATS


def test_object_of_no_known_format_is_refused():
    with pytest.raises(UsageError, match="no tool format fits 'dict' object"):
        definition_from({"name": "x"})


def test_importing_the_package_imports_no_pydantic():
    heavy = {"pydantic", "jsonschema_rs", "docstring_parser", "typing_extensions"}
    code = f"import sys, callgate.definitions, callgate.schema; print({heavy} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout == "set()\n"


@pytest.mark.skipif(sys.version_info < (3, 12), reason="the syntax came with Python 3.12")
def test_type_parameters_and_type_statements_are_understood():
    space: dict[str, Any] = {}
    exec("type Many = list[int]\ndef f[T: int](x: T, y: Many): ...", space)
    assert schema(space["f"])["properties"]["x"] == {"type": "integer"}
    assert call(space["f"], {"x": 1, "y": [1]}) == ((), {"x": 1, "y": [1]})


@pytest.mark.parametrize("word", ["idempotent", "read_only", "sequential"])
def test_a_yes_or_no_is_not_read_from_words(word: str) -> None:
    with pytest.raises(ToolNotDeclarableError, match=f"{word}='no' is not known; use True or False"):
        tool(**{word: "no"})  # type: ignore[call-overload]


def test_a_method_without_its_object_is_refused() -> None:
    class Store:
        def find(self, name: str) -> str:
            return name

    with pytest.raises(ToolNotDeclarableError, match="tool 'find': this is a method without its object"):
        definition_from(Store.find)
    assert definition_from(Store().find).input_schema["required"] == ["name"]


# Values that Python takes for one another --------------------------------------------------------------------------------


def run_tool(function: Callable[..., Any], **args: Any) -> str:
    """What a model is told of one call."""
    model = ScriptedModel([call_of(function_tool(function).definition.name, **args), "done"])
    with Gate(model, tools=[function]) as gate:
        result = gate.run_sync("q").calls[0].result
    return str(result.error or result.value)


@pytest.mark.parametrize(("sent", "given"), [(1.0, 1), (1, 1), (True, True)])
def test_a_literal_tells_one_from_true_however_a_number_is_written(sent: Any, given: Any) -> None:
    def pick(v: Literal[1, True]) -> str:
        """Pick one."""
        return repr(v)

    assert run_tool(pick, v=sent) == repr(given)


@pytest.mark.parametrize(("sent", "given"), [(1, 1), (1.0, 1), (True, True), (0.0, 0), (2, 2)])
def test_a_literal_in_a_union_tells_one_from_true(sent: Any, given: Any) -> None:
    def pick(v: Literal[True] | int) -> str:
        """Pick one."""
        return repr(v)

    assert run_tool(pick, v=sent) == repr(given)


@pytest.mark.parametrize("text", ["0", "1600000000", "-1.5", " 86400 "])
def test_a_number_in_a_text_is_no_date(text: str) -> None:
    def meet(day: datetime.date) -> str:
        """Meet."""
        return repr(day)

    assert "ISO 8601" in run_tool(meet, day=text)
    assert run_tool(meet, day="2024-01-31") == "datetime.date(2024, 1, 31)"


def test_two_texts_that_are_one_key_are_refused() -> None:
    def count(names: dict[int, str], more: dict[str, dict[float, int]] | None = None) -> str:
        """Count them."""
        return repr(names)

    assert run_tool(count, names={"1": "x", "2": "y"}) == "{1: 'x', 2: 'y'}"
    assert "Two keys should not mean the same" in run_tool(count, names={"1": "x", "01": "y"})
    assert "Two keys should not mean the same" in run_tool(count, names={}, more={"a": {"1": 1, "1.0": 2}})


class Dispatching:
    @functools.singledispatchmethod
    def show(self, x: int, y: int = 0) -> str:
        """Show it."""
        return f"{x} {y}"

    @functools.singledispatchmethod
    @classmethod
    def of_class(cls, x: int, y: int = 0) -> str:
        """Show it."""
        return f"{x} {y}"

    @functools.singledispatchmethod
    @staticmethod
    def of_none(x: int, y: int = 0) -> str:
        """Show it."""
        return f"{x} {y}"


@functools.singledispatch
def shown(x: int, y: int = 0) -> str:
    """Show it."""
    return f"{x} {y}"


def test_functions_that_choose_by_their_first_argument_are_tools() -> None:
    bound = Dispatching()
    for function in (bound.show, shown, bound.of_class, Dispatching.of_class, bound.of_none, Dispatching.of_none):
        assert list(function_tool(function).definition.input_schema["properties"]) == ["x", "y"]
        assert run_tool(function, x=1, y=2) == "1 2"
    with pytest.raises(ToolNotDeclarableError, match="a method without its object"):
        function_tool(Dispatching.show)


def test_a_strict_model_reads_json_in_dicts_whose_keys_are_no_texts() -> None:
    class Strict(BaseModel):
        model_config = {"strict": True}

        days: dict[int, datetime.date]

    def plan(strict: Strict) -> str:
        """Plan."""
        return repr(strict.days)

    assert run_tool(plan, strict={"days": {"1": "2024-01-02"}}) == "{1: datetime.date(2024, 1, 2)}"
