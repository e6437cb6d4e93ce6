"""Export our tools as function tools of the OpenAI Agents SDK.

Results and errors are text: the SDK cannot report an error to the model in any other way without ending the run.
"""

from __future__ import annotations

from agents.tool import FunctionTool, ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext

from callgate import strict_json
from callgate.adapters.gated_tools import GatedTools, Shown
from callgate.types import ToolDefinition

__all__ = ["function_tools"]


def function_tools(gated: GatedTools) -> list[FunctionTool]:
    """A function tool for each of the gated ones."""
    return [_tool(gated, definition) for definition in gated.definitions]


def _tool(gated: GatedTools, definition: ToolDefinition) -> FunctionTool:
    async def invoke(context: ToolContext[object], text: str) -> object:
        try:
            args = strict_json.parse(text or "{}")
        except strict_json.JsonError as error:
            return f"Error: the arguments of {definition.name!r} are not JSON: {error}"
        if not isinstance(args, dict):
            return f"Error: the arguments of {definition.name!r} are not an object."
        result = await gated.call(definition.name, args, call_id=context.tool_call_id)  # pyright: ignore[reportUnknownArgumentType]
        shown = gated.shown(result)
        return f"Error: {shown.text}" if result.is_error else _output(shown)

    return FunctionTool(
        name=definition.name,
        description=definition.description,
        params_json_schema=dict(definition.input_schema),
        on_invoke_tool=invoke,
        # Strict schemas have no optional arguments; the gate checks the arguments in any case.
        strict_json_schema=False,
    )


def _output(shown: Shown) -> str | list[ToolOutputText | ToolOutputImage]:
    """Text, followed by images. The SDK accepts no other media from a tool."""
    images = [media for media in shown.media if media["mime_type"].startswith("image/")]
    if not images:
        return shown.text
    urls = [f"data:{media['mime_type']};base64,{media['data']}" for media in images]
    return [ToolOutputText(text=shown.text), *(ToolOutputImage(image_url=url) for url in urls)]
