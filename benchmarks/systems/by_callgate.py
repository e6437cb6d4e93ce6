"""callgate."""

from __future__ import annotations

from typing import Any

IMPORT = "from callgate import Gate"


def _gate(url: str, tools: list[Any], **options: Any) -> Any:
    from callgate import Gate, GeminiModel
    from callgate.gemini.surface import Surface

    surface = Surface(kind="developer", base_url=url, version="v1beta", api_key="k")
    return Gate(GeminiModel("gemini-3.8-flash", surface=surface), tools, **options)


async def turns(url: str, look_up: Any, turns: int) -> None:
    from callgate import Limits

    async with _gate(url, [look_up], limits=Limits(turns=turns + 10, calls=turns + 10, repeats=turns + 10)) as gate:
        reply = await gate.run("Begin.")
    assert len(reply.calls) == turns, reply.finish_reason


async def stream(url: str) -> int:
    from callgate.events import TextDelta

    size = 0
    async with _gate(url, []) as gate:
        async for event in gate.stream("Talk."):
            if isinstance(event, TextDelta):
                size += len(event.text)
    return size


async def parallel(url: str, wait: Any, timed: Any) -> None:
    from callgate import Limits

    async with _gate(url, [wait], limits=Limits(parallel=20)) as gate:
        reply = await timed(lambda: gate.run("All at once."))
    assert len(reply.calls) == 20, reply


async def large_call(url: str, store: Any) -> None:
    async with _gate(url, [store]) as gate:
        async for _ in gate.stream("Store it."):
            pass


async def large_calls(url: str, store: Any, timed: Any) -> None:
    async with _gate(url, [store]) as gate:
        await timed(lambda: gate.run("Store it."))


class _Tool:
    """A raw definition with something to run."""

    def __init__(self, definition: Any) -> None:
        self.definition = definition

    def problems(self, args: Any) -> tuple[str, ...]:
        return ()

    async def run(self, args: Any, context: Any) -> object:
        return None


async def raw_tools(url: str, tools: list[dict[str, Any]]) -> None:
    from callgate import definition_from

    raw = [{"name": t["name"], "description": t["description"], "inputSchema": t["schema"]} for t in tools]
    async with _gate(url, [_Tool(definition_from(tool)) for tool in raw]) as gate:
        await gate.run("Begin.")


def declaring(tools: list[dict[str, Any]]) -> bytes:
    from pydantic_core import to_json

    from callgate import ToolDefinition, declare

    known = [ToolDefinition(name=t["name"], description=t["description"], input_schema=t["schema"]) for t in tools]
    return to_json(declare(known).tools)
