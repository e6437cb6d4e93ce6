"""Export our tools as function tools of the OpenAI Agents SDK.

Results and errors are text: the SDK cannot report an error to the model in any other way without ending the run.
"""

from __future__ import annotations

from agents.tool import FunctionTool, ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext

from callgate import strict_json
from callgate.adapters.gated_tools import GatedTools, without_media
from callgate.types import JsonObject, ToolDefinition

__all__ = ["function_tools"]


def function_tools(gated: GatedTools) -> list[FunctionTool]:
    """A function tool for each of the gated ones."""
    return [_tool(gated, name, definition) for name, definition in gated.exported.items()]


def _tool(gated: GatedTools, name: str, definition: ToolDefinition) -> FunctionTool:
    async def invoke(context: ToolContext[object], text: str) -> object:
        try:
            args = strict_json.parse(text or "{}")
        except strict_json.JsonError as error:
            return f"Error: the arguments of {definition.name!r} are not JSON: {error}"
        if not isinstance(args, dict):
            return f"Error: the arguments of {definition.name!r} are not an object."
        result = await gated.call(definition.name, args, call_id=context.tool_call_id)  # pyright: ignore[reportUnknownArgumentType]
        shown = gated.shown(result)
        if result.is_error:
            return f"Error: {shown.text}"
        images = [media for media in shown.media if media["mime_type"].startswith("image/")]
        left_out = len(shown.media) - len(images)
        told = gated.shown(without_media(result, left_out)) if left_out else shown
        return _output(told.text, images)

    return FunctionTool(
        name=name,
        description=definition.description,
        params_json_schema=dict(definition.input_schema),
        on_invoke_tool=invoke,
        # Strict schemas have no optional arguments; the gate checks the arguments in any case.
        strict_json_schema=False,
    )


def _output(text: str, images: list[JsonObject]) -> str | list[ToolOutputText | ToolOutputImage]:
    """Text, followed by images. Models that the SDK speaks to accept no other media from a tool."""
    if not images:
        return text
    urls = [f"data:{media['mime_type']};base64,{media['data']}" for media in images]
    return [ToolOutputText(text=text), *(ToolOutputImage(image_url=url) for url in urls)]
