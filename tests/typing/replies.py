"""Types of replies, events and tools, as checkers see them: `make check-static` reads this file, nothing runs it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Literal, TypedDict, assert_type

from pydantic import BaseModel

from callgate import CallRecord, FunctionCall, Gate, Reply, ToolContext, ToolDefinition, ToolResult, tool
from callgate.events import EventOf, OutputDelta, RunEnded
from callgate.permission import Approval


class Weather(BaseModel):
    city: str
    temperature: float


class Row(TypedDict):
    name: str


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
            assert_type(event.partial, Any)
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
