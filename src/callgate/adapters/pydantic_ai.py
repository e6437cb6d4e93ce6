"""Export our tools as a toolset of pydantic-ai.

The agent does not check their arguments: the gate does, against the declared schema.
"""

from __future__ import annotations

import base64
from typing import Any

from pydantic_ai import RunContext, Tool
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import BinaryContent
from pydantic_ai.toolsets import FunctionToolset

from callgate.adapters.gated_tools import GatedTools
from callgate.types import ToolDefinition

__all__ = ["toolset_of"]


def toolset_of(gated: GatedTools) -> FunctionToolset[Any]:
    """A toolset with a tool for each of the gated ones."""
    return FunctionToolset[Any]([_tool(gated, name, definition) for name, definition in gated.exported.items()])


def _tool(gated: GatedTools, name: str, definition: ToolDefinition) -> Tool[Any]:
    async def run(context: RunContext[Any], /, **args: Any) -> Any:
        result = await gated.call(definition.name, args, call_id=context.tool_call_id or "")
        shown = gated.shown(result)
        if result.is_error:
            raise ToolFailed(shown.text)
        images = [BinaryContent(data=base64.b64decode(it["data"]), media_type=it["mime_type"]) for it in shown.media]
        return [shown.plain, *images] if images else shown.plain

    return Tool[Any].from_schema(
        run,
        name=name,
        description=definition.description,
        json_schema=dict(definition.input_schema),
        sequential=definition.ordered,
        takes_ctx=True,
    )
