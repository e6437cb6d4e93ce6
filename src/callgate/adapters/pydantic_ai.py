"""Export our tools as a toolset of pydantic-ai.

The agent does not check their arguments: the gate does, against the declared schema.
"""

from __future__ import annotations

import base64
from typing import Any

from pydantic_ai import Tool
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import BinaryContent
from pydantic_ai.toolsets import FunctionToolset

from callgate.adapters.gated_tools import GatedTools
from callgate.content.read import media_of
from callgate.types import Part, ToolDefinition

__all__ = ["toolset_of"]


def toolset_of(gated: GatedTools) -> FunctionToolset[Any]:
    """A toolset with a tool for each of the gated ones."""
    return FunctionToolset[Any]([_tool(gated, definition) for definition in gated.definitions])


def _tool(gated: GatedTools, definition: ToolDefinition) -> Tool[Any]:
    async def run(**args: Any) -> Any:
        result = await gated.call(definition.name, args)
        if result.is_error:
            raise ToolFailed(result.error or "")
        images = [image for part in result.media if (image := _image(part)) is not None]
        return [result.value, *images] if images else result.value

    return Tool[Any].from_schema(
        run,
        name=definition.name,
        description=definition.description,
        json_schema=dict(definition.input_schema),
        sequential=definition.ordered,
    )


def _image(part: Part) -> BinaryContent | None:
    media = media_of(part) or {}
    if "data" not in media:
        return None
    return BinaryContent(data=base64.b64decode(media["data"]), media_type=media["mime_type"])
