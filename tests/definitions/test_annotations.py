"""What an annotation promises to a model is kept: a value that fits the declared schema reaches the function as its type."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import pathlib
import re
import typing
import uuid
from collections import abc
from typing import Annotated, Any, Literal, NamedTuple

import pytest
import typing_extensions
from pydantic import BaseModel, ConfigDict, Field, RootModel, SecretStr

from callgate import check_arguments
from callgate.definitions.function import function_tool
from callgate.definitions.json_decoding import string_keys
from callgate.errors import UsageError
from callgate.run.output import output_of


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


class Rank(enum.IntEnum):
    ONE = 1


class Rights(enum.IntFlag):
    READ = 1
    WRITE = 2


class Gaps(enum.Flag):
    A = 1
    B = 4


class Odd(enum.Enum):
    PAIR = (1, 2)
    DAY = dt.date(2026, 1, 31)
    RAW = b"raw"
    TABLE = {"b": 1, "a": [2]}  # noqa: RUF012 - an enum takes such a value too


class Nothing(enum.Enum):
    pass


class Painted(BaseModel):
    default: Literal[Color.RED, Color.BLUE]
    """A name that also is a word of pydantic's own schemas."""


class Red(BaseModel):
    kind: Literal[Color.RED]


class Blue(BaseModel):
    kind: Literal[Color.BLUE]


class Node(BaseModel):
    value: int
    next: "Node | None" = None


class Tree(BaseModel):
    kids: "dict[Level, Tree]" = {}
    own: Level = Level.LOW


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: dt.date
    color: Color
    pair: tuple[int, ...] = ()


class Point(NamedTuple):
    x: int
    color: Literal[Color.RED] = Color.RED


class Form(typing_extensions.TypedDict):
    must: typing_extensions.Required[int]
    may: typing_extensions.NotRequired[Literal[Level.LOW]]


@dataclasses.dataclass
class Made:
    seed: dataclasses.InitVar[int]
    own: int = dataclasses.field(init=False, default=0)

    def __post_init__(self, seed: int) -> None:
        self.own = seed + 1


def made(own: int) -> Made:
    return Made(own - 1)


UserId = typing.NewType("UserId", int)
T = typing.TypeVar("T")


class Box(BaseModel, typing.Generic[T]):
    item: T


KEEPS = [
    (Literal[Color.RED, Color.BLUE], "blue", Color.BLUE),
    (Literal[Color.RED] | None, "red", Color.RED),
    (Literal[Level.LOW, "other", 3, None], 1, Level.LOW),
    (Literal[Level.LOW, "other", 3, None], "other", "other"),
    (Literal[Color.RED, "red"], "red", "red"),
    (Literal[Rank.ONE], 1, Rank.ONE),
    (Literal[b"raw"], "raw", b"raw"),
    (list[Literal[Color.RED]], ["red"], [Color.RED]),
    (set[Literal[Color.RED]], ["red"], {Color.RED}),
    (dict[Literal[Color.RED], Literal[Level.LOW]], {"red": 1}, {Color.RED: Level.LOW}),
    (Painted, {"default": "blue"}, Painted(default=Color.BLUE)),
    (Annotated[Red | Blue, Field(discriminator="kind")], {"kind": "blue"}, Blue(kind=Color.BLUE)),
    (Point, [1, "red"], Point(1, Color.RED)),
    (Point, [1], Point(1)),
    (Form, {"must": 1, "may": 1}, {"must": 1, "may": Level.LOW}),
    (Made, {"seed": 4}, made(5)),
    (Odd, [1, 2], Odd.PAIR),
    (Odd, "2026-01-31", Odd.DAY),
    (Odd, "raw", Odd.RAW),
    (Odd, {"a": [2], "b": 1}, Odd.TABLE),
    (list[Odd], ["raw", [1, 2]], [Odd.RAW, Odd.PAIR]),
    (tuple[Odd, Odd], ["raw", [1, 2]], (Odd.RAW, Odd.PAIR)),
    (Level, 2, Level.HIGH),
    (Rights, 3, Rights.READ | Rights.WRITE),
    (Rights, 0, Rights(0)),
    (Gaps, 5, Gaps.A | Gaps.B),
    (dict[Level, int], {"1": 5}, {Level.LOW: 5}),
    (dict[Rank, int], {"1": 5}, {Rank.ONE: 5}),
    (dict[Level, Level], {"1": 2}, {Level.LOW: Level.HIGH}),
    (dict[Literal[1, 2], int], {"2": 5}, {2: 5}),
    (dict[Annotated[Level, Field(description="How much.")], int], {"2": 5}, {Level.HIGH: 5}),
    (dict[Color | Level, int], {"red": 1, "2": 5}, {Color.RED: 1, Level.HIGH: 5}),
    (Tree, {"kids": {"1": {"own": 2}}}, Tree(kids={Level.LOW: Tree(own=Level.HIGH)})),
    (dict[int | float, int], {"1.5": 5}, {1.5: 5}),
    (dict[int, str], {"1": "a"}, {1: "a"}),
    (dict[dt.date, int], {"2026-01-31": 1}, {dt.date(2026, 1, 31): 1}),
    (
        Strict,
        {"day": "2026-01-31", "color": "red", "pair": [1]},
        Strict(day=dt.date(2026, 1, 31), color=Color.RED, pair=(1,)),
    ),
    (bytes, "abc", b"abc"),
    (dt.datetime, "2026-01-31T10:00:00", dt.datetime(2026, 1, 31, 10)),
    (dt.time, "10:00:00", dt.time(10)),
    (dt.timedelta, "PT90S", dt.timedelta(seconds=90)),
    (decimal.Decimal, "1.10", decimal.Decimal("1.10")),
    (fractions.Fraction, "1/3", fractions.Fraction(1, 3)),
    (complex, "1+2j", 1 + 2j),
    (uuid.UUID, "12345678-1234-5678-1234-567812345678", uuid.UUID(int=0x12345678123456781234567812345678)),
    (pathlib.Path, "a/b", pathlib.Path("a/b")),
    (ipaddress.IPv4Address, "10.0.0.1", ipaddress.IPv4Address("10.0.0.1")),
    (frozenset[int], [1, 2], frozenset({1, 2})),
    (tuple[int, str], [1, "a"], (1, "a")),
    (tuple[()], [], ()),
    (collections.deque[int], [1, 2], collections.deque([1, 2])),
    (collections.OrderedDict[str, int], {"a": 1}, collections.OrderedDict(a=1)),
    (abc.Mapping[str, int], {"a": 1}, {"a": 1}),
    (abc.Sequence[int], [1], [1]),
    (re.Pattern[str], "^a", re.compile("^a")),
    (Annotated[int | None, Field(ge=1)], None, None),
    (Annotated[decimal.Decimal, Field(max_digits=3)], 1.5, decimal.Decimal("1.5")),
    (UserId, 7, UserId(7)),
    (Node, {"value": 1, "next": {"value": 2}}, Node(value=1, next=Node(value=2))),
    (Box[int], {"item": 1}, Box[int](item=1)),
    (RootModel[list[int]], [1], RootModel[list[int]]([1])),
    (SecretStr, "quiet", SecretStr("quiet")),
    (object, {"a": 1}, {"a": 1}),
]


def tool_of(annotation: Any, default: Any = ...) -> Any:
    def take(value):
        """Takes a value."""
        return value

    take.__annotations__ = {"value": annotation}
    if default is not ...:
        take.__defaults__ = (default,)
    return function_tool(take)


@pytest.mark.rows(("annotation", "sent", "expected"), KEEPS, ids=lambda value: str(value)[:40])
def test_what_fits_the_declared_schema_reaches_the_function_as_its_type(annotation: Any, sent: Any, expected: Any) -> None:
    tool = tool_of(annotation)
    checked = check_arguments(tool.definition, {"value": sent})
    assert checked.problems == []
    got = tool.bind(checked.args, None)[1]["value"]
    assert got == expected
    assert type(got) is type(expected)


@pytest.mark.rows(
    "annotation",
    [
        type[Color], list[type[int]], type[int] | None, type, Nothing, enum.Enum, re.Pattern[bytes], typing.Self,
        list[typing.Self], typing.ClassVar[int], typing.Final[int], dict[tuple[int, int], int], dict[None, int],
        abc.Callable[[int], int], abc.Iterator[int], abc.Awaitable[int], typing.IO[str], typing.Never, re.Match[str],
    ],
    ids=str,
)  # fmt: skip
def test_what_no_model_can_send_is_refused_when_the_tool_is_made(annotation: Any) -> None:
    with pytest.raises(UsageError, match=r"tool 'take': parameter 'value' cannot be declared to a model: .*; annotate it"):
        tool_of(annotation)


def test_a_default_that_is_an_enum_member_is_declared_by_its_value() -> None:
    tool = tool_of(Literal[Color.RED, Color.BLUE], Color.BLUE)
    expected = {"enum": ["red", "blue"], "type": "string", "default": "blue"}
    assert tool.definition.input_schema["properties"] == {"value": expected}
    assert tool.bind({}, None) == ((), {})


def test_flags_are_declared_as_sums_and_say_what_they_add() -> None:
    declared = tool_of(Rights).definition.input_schema["$defs"]["Rights"]
    assert declared == {"type": "integer", "minimum": 0, "maximum": 3, "description": "Sum of: 1 (READ), 2 (WRITE)"}
    assert tool_of(Gaps).definition.input_schema["$defs"]["Gaps"]["enum"] == [0, 1, 4, 5]


def test_more_flags_than_can_be_listed_are_declared_without_their_gaps() -> None:
    many = enum.IntFlag("many", {f"f{bit}": 1 << (2 * bit) for bit in range(7)})
    declared = tool_of(many).definition.input_schema["$defs"]["many"]
    assert {key: declared[key] for key in ("type", "minimum")} == {"type": "integer", "minimum": 0}
    assert not {"enum", "maximum"} & declared.keys()


def test_a_field_that_a_dataclass_sets_itself_is_not_declared() -> None:
    declared = tool_of(Made).definition.input_schema["$defs"]["Made"]
    assert declared == {"type": "object", "properties": {"seed": {"type": "integer"}}, "required": ["seed"]}


def test_keys_that_are_numbers_in_python_are_declared_as_the_text_they_are_in_json() -> None:
    assert tool_of(dict[Level, int]).definition.input_schema["properties"]["value"]["propertyNames"] == {"enum": ["1", "2"]}


def test_a_schema_of_keys_is_told_in_text_wherever_it_stands() -> None:
    kinds = {"Level": {"type": "integer", "enum": [1, 2]}, "Color": {"type": "string", "enum": ["red"]}}
    union = {"anyOf": [{"$ref": "#/$defs/Level"}, {"$ref": "#/$defs/Color"}, {"const": None}, {"type": "number"}, True]}
    told = [{"enum": ["1", "2"]}, {"$ref": "#/$defs/Color"}, {"const": "null"}, {}, True]
    assert string_keys(union, kinds) == {"anyOf": told}


def test_an_answer_may_be_an_enum_member_in_a_literal() -> None:
    output = output_of(Literal[Color.RED, Color.BLUE])
    checked = output.read('{"answer": "blue"}')
    assert (checked.problems, output.value(checked.value)) == ((), Color.BLUE)
