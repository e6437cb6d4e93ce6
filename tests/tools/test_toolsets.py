"""Tools that come and go: names, changes and who is still using them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from callgate import Executor, FunctionCall, ToolContext, ToolDefinition
from callgate.tools.toolsets import LiveTools, LiveToolset


class Item:
    def __init__(self, name: str, says: str) -> None:
        self.definition = ToolDefinition(name=name, description=says)
        self.says = says

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        return ["no"] if "bad" in args else []

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        return self.says


class Box:
    def __init__(self, name: str, *tools: str) -> None:
        self.name, self.version, self.owners = name, 0, list[object]()
        self.tools = [Item(tool, f"{name}:{tool}") for tool in tools]

    def runnables(self) -> list[Item]:
        return self.tools

    async def start(self, owner: object) -> None:
        self.owners.append(owner)
        self.version += 1

    async def aclose(self, owner: object) -> None:
        self.owners.remove(owner)

    def complaints(self) -> list[str]:
        return [f"{self.name} is fine"]


def own() -> str:
    """Ours."""
    return "own"


def named(*boxes: Box, taken: Sequence[str] = ()) -> dict[str, str]:
    live = LiveTools()
    for box in boxes:
        assert isinstance(box, LiveToolset)
        live.add(box)
    return {name: tool.definition.description for name, tool in live.runnables(taken).items()}


def test_every_tool_has_a_name_of_its_own_and_says_what_it_is():
    assert named(Box("a", "x", "y"), Box("b", "x", "z"), taken=["z"]) == {
        "y": "a:y", "a__x": "a:x", "b__x": "b:x", "b__z": "b:z"
    }  # fmt: skip
    assert named(Box("a", "x", "a__x"), taken=["x"]) == {"a__x": "a:a__x", "a__x_": "a:x"}
    assert named(Box("a", "find_tools", "read_result")) == {
        "a__find_tools": "a:find_tools", "a__read_result": "a:read_result"
    }  # fmt: skip


def test_an_executor_takes_in_changes_when_it_is_told_to_and_keeps_what_was_checked():
    async def story() -> None:
        box = Box("box", "x", "own")
        executor = Executor([own, box])
        await executor.start_tools("me")
        assert ([d.name for d in executor.definitions], executor.complaints()) == (["own", "x", "box__own"], ["box is fine"])
        before = dict(executor.digests)
        checked = executor.check(FunctionCall(name="x", id="1"))
        box.tools = [Item("own", "other words")]
        executor.refresh()
        assert "x" in executor, "nothing is said to have changed"
        box.version += 1
        executor.refresh()
        assert list(executor.digests) == ["own", "box__own"]
        assert executor.digests["own"] == before["own"]
        assert executor.digests["box__own"] != before["box__own"]
        assert checked.tool == "x"
        assert executor.check(FunctionCall(name="x", id="2")).tool is None
        # A call that was checked before may still be asked about and run; its tool answers for itself.
        assert executor.definition("x").description == "box:x"
        assert (await executor.start(FunctionCall(name="x", id="1")).wait()).value == "box:x"
        assert (await executor.execute(FunctionCall(name="box__own", id="3"))).value == "other words"
        assert executor.check(FunctionCall(name="box__own", args={"bad": 1}, id="4")).problems
        await executor.stop_tools("me")
        assert box.owners == []

    asyncio.run(story())
