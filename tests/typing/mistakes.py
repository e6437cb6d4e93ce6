"""Mistakes that checkers must find: each line with `expect` has an error of theirs, and no other line has one."""

from __future__ import annotations

from pydantic import BaseModel

from callgate import FunctionCall, Gate, ToolDefinition, tool
from callgate.events import OutputDelta


class Weather(BaseModel):
    city: str


async def story(gate: Gate) -> None:
    reply = await gate.run("How is Oslo?", output=Weather)
    print(reply.output.town)  # expect: no such attribute
    async for event in gate.stream("How is Oslo?", output=Weather):
        if isinstance(event, OutputDelta):
            print(event.partial.town)  # expect: no such attribute
    await gate.run("How is Oslo?", sesion="a")  # expect: no such option
    Gate(settings={"temprature": 1})  # expect: no such setting


@tool(readonly=True)  # expect: no such option
def f() -> int:
    """Count."""
    return 1


def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> bool:
    return True


Gate(approve=approve)  # expect: not an answer
