"""Types of replies, events and tools, as checkers see them: `make check-static` reads this file, nothing runs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, Optional, TypedDict, TypeVar, assert_type

from pydantic import BaseModel, Field

from callgate import CallRecord, FunctionCall, Gate, Media, Reply, ToolContext, ToolDefinition, ToolResult, tool
from callgate.events import EventOf, OutputDelta, RunEnded
from callgate.permission import Approval


class Weather(BaseModel):
    city: str
    temperature: float


class Row(TypedDict):
    name: str


@dataclass
class Point:
    x: int


class Color(Enum):
    RED = "red"


T = TypeVar("T")


class Page(BaseModel, Generic[T]):
    items: list[T]


async def runs(gate: Gate) -> None:
    assert_type(await gate.run("How is Oslo?"), Reply[None])
    reply = await gate.run("How is Oslo?", output=Weather, session="a", tool_choice="auto")
    assert_type(reply, Reply[Weather])
    assert_type(reply.output.city, str)
    assert_type((await gate.run("Rows?", output=list[Row])).output, list[Row])
    assert_type((await gate.run("Which?", output={"type": "object"})).output, Any)
    assert_type(gate.run_sync("How is Oslo?", output=Weather).output.temperature, float)
    assert_type(await gate.run_many(["a", "b"], output=Weather, parallel=2), list[Reply[Weather]])
    assert_type(await gate.run_many(["a", "b"]), list[Reply[None]])
    assert_type(await gate.run_many(["a", "b"], batch=True), list[Reply[None]])
    assert_type(await gate.run_many(["a"], output=Weather, return_errors=True), list[Reply[Weather] | Exception])
    assert_type(await gate.run_many(["a"], return_errors=True), list[Reply[None] | Exception])


async def outputs(gate: Gate, kind: type[T]) -> T:
    assert_type((await gate.run("Where?", output=Point)).output, Point)
    assert_type((await gate.run("Which?", output=Color)).output, Color)
    assert_type((await gate.run("Row?", output=Row)).output, Row)
    assert_type((await gate.run("Page?", output=Page[Row])).output, Page[Row])
    assert_type((await gate.run("Either?", output=Weather | Row)).output, Weather | Row)
    assert_type((await gate.run("Maybe?", output=Weather | None)).output, Weather | None)
    assert_type((await gate.run("Maybe?", output=Optional[Weather])).output, Weather | None)  # noqa: UP045
    assert_type((await gate.run("Which?", output=Literal["a", "b"])).output, Literal["a", "b"])
    assert_type((await gate.run("How many?", output=Annotated[int, Field(gt=3)])).output, int)
    assert_type(gate.run_sync("Either?", output=Weather | Row).output, Weather | Row)
    assert_type(await gate.run_many(["a"], output=Weather | None), list[Reply[Weather | None]])
    assert_type(await gate.run_many(["a"], output=int | str, return_errors=True), list[Reply[int | str] | Exception])
    assert_type(await gate.run_many(["a"], output={"type": "object"}), list[Reply[Any]])
    assert_type(await gate.run_many(["a"], output=Point, return_errors=bool(kind)), list[Reply[Point] | Exception])
    assert_type(gate.stream("Either?", output=int | str), AsyncGenerator[EventOf[int | str], None])
    assert_type(gate.stream_sync("Either?", output=int | str), Generator[EventOf[int | str], None, None])
    return (await gate.run("Anything?", output=kind)).output


async def calls(reply: Reply[None], record: CallRecord) -> None:
    assert_type(reply.calls[0].result, ToolResult)
    assert_type(reply.calls[0].result.error, str | None)
    assert_type(record.result, ToolResult | None)
    if reply.finish_reason == "approval_needed":
        print([waiting.call.name for waiting in reply.approvals])


async def streams(gate: Gate) -> None:
    events = gate.stream("How is Oslo?", output=Weather)
    assert_type(events, AsyncGenerator[EventOf[Weather], None])
    async for event in events:
        if isinstance(event, OutputDelta):
            assert_type(event.partial, Weather | Any)
            assert_type(event.partial.city, str | Any)
            if event.partial.temperature is not None:
                print(event.partial.temperature + 1)
        elif isinstance(event, RunEnded):
            assert_type(event.reply.output, Weather)
    await events.aclose()
    for told in gate.stream_sync("How is Oslo?"):
        if isinstance(told, RunEnded):
            assert_type(told.reply, Reply[None])


class Database:
    def rows(self) -> list[str]:
        return []


@tool(read_only=True, timeout_s=5, name="rows")
def rows_of(context: ToolContext[Database], limit: int = 3) -> list[str]:
    """List rows."""
    assert_type(context.deps, Database)
    return context.deps.rows()[:limit]


@tool
def plain(city: str) -> str:
    """Look a city up."""
    return city


assert_type(plain("Oslo"), str)


def approve(asked: FunctionCall, about: ToolDefinition, why: str) -> Literal["yes", "no"]:
    """Take parameters of any name: they are positional."""
    return "yes" if about.read_only else "no"


async def approve_later(asked: FunctionCall, about: ToolDefinition, why: str) -> Approval:
    return "later"


gate = Gate("gemini-flash-latest", [plain, rows_of], approve=approve, settings={"temperature": 0, "thinking": "low"})
other = Gate(approve=approve_later)
pictures = [Media(path=Path("a.png")), Media(path="a.png"), Media(data=b"x", mime_type="image/png")]
