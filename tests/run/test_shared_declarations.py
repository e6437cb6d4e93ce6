"""Gates with equal tools share what is declared of them, and no others do."""

from __future__ import annotations

import asyncio
from typing import Any

from callgate import Gate, ScriptedModel, definition_from
from callgate.types import ToolContext, ToolDefinition


class Stub:
    def __init__(self, definition: ToolDefinition) -> None:
        self.definition = definition

    def problems(self, args: Any) -> tuple[str, ...]:
        return ()

    async def run(self, args: Any, context: ToolContext) -> object:
        return None


def gate(name: str, description: str = "Does it.", **schema: Any) -> Gate:
    raw = {"name": name, "description": description, "inputSchema": {"type": "object", "properties": schema}}
    return Gate(ScriptedModel([]), [Stub(definition_from(raw))])


def test_gates_with_equal_tools_share_one_declaration() -> None:
    one, other = gate("share", x={"type": "integer"}), gate("share", x={"type": "integer"})
    assert one.declaration is other.declaration
    assert one.definitions == other.definitions


def test_gates_with_different_tools_have_declarations_of_their_own() -> None:
    declared = [
        gate("share", x={"type": "integer"}), gate("share", x={"type": "string"}), gate("other", x={"type": "integer"}),
        gate("share", "Does something else.", x={"type": "integer"}),
    ]  # fmt: skip
    functions = [each.declaration.tools[0]["functionDeclarations"][0] for each in declared]
    assert len({str(function) for function in functions}) == len(declared)


def test_a_tool_that_was_changed_in_place_is_declared_as_it_is_now() -> None:
    first = gate("mutable", x={"type": "integer"})
    schema: Any = first.definitions[0].input_schema
    schema["properties"]["x"] = {"type": "string"}
    second = gate("mutable", x={"type": "integer"})
    (function,) = second.declaration.tools[0]["functionDeclarations"]
    assert function["parametersJsonSchema"]["properties"]["x"] == {"type": "integer"}


def test_a_run_does_nothing_for_each_tool() -> None:
    stubs = [Stub(definition_from({"name": f"tool_{n}", "description": "Does it.", "inputSchema": {}})) for n in range(50)]
    looks: list[str] = []

    class Looked(Stub):
        def __getattribute__(self, name: str) -> Any:
            looks.append(name)
            return super().__getattribute__(name)

    crowded = Gate(ScriptedModel(["One.", "Two."]), [Looked(stub.definition) for stub in stubs])
    asyncio.run(crowded.run("Go."))
    looks.clear()
    asyncio.run(crowded.run("Go on."))
    assert looks == []
