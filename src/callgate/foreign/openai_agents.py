"""Adapt a function tool of the OpenAI Agents SDK to a tool of a gate.

An error stays an error, where the SDK would send its text as a result. Features that need a runner of the SDK
(guardrails, its own approvals) are refused, never dropped silently.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from agents import tool as agents_tool
from agents.function_schema import function_schema
from agents.tool import FunctionTool, ToolOutputFileContent, ToolOutputImage, ToolOutputText
from agents.tool_context import ToolContext as AgentsContext
from pydantic import BaseModel

from callgate import strict_json
from callgate.definitions.frameworks import definition_of
from callgate.errors import ToolError, ToolNotDeclarableError
from callgate.foreign.media import media_from_url, with_items
from callgate.types import ToolContext

__all__ = ["AgentsTool"]


class AgentsTool:
    """Executor of one function tool.

    Args:
        tool: The tool.
        context: The run context passed to its functions.
        approved: Let the policy of the gate decide instead of the tool's own `needs_approval`.
    """

    def __init__(self, tool: FunctionTool, *, context: object = None, approved: bool = False) -> None:
        definition = definition_of(tool)
        assert definition is not None, "only function tools of the SDK are given to this class"
        self.definition = definition
        _refuse_what_needs_a_runner(tool, approved=approved)
        self._tool = tool
        self._context = context
        # Without its handler, a failing tool raises; with it, its failure would look like a value.
        self._bare = agents_tool.set_function_tool_failure_error_function(copy.copy(tool), None)

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """Return nothing: there are no checks beyond the schema."""
        return ()

    def running_values(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """The Python values that the tool's function gets; the arguments themselves if the tool was made without one."""
        if self._model is None:
            return args
        values = self._model.model_validate(dict(args)).__dict__
        return {name: value for name, value in values.items() if name in args}

    @functools.cached_property
    def _model(self) -> type[BaseModel] | None:
        """The model that the SDK reads arguments by; older versions do not say which function a tool has."""
        function = getattr(self._tool, "__wrapped__", None)
        if function is None:
            return None
        routine = function if inspect.isroutine(function) else function.__call__
        model = function_schema(routine, use_docstring_info=False, strict_json_schema=False).params_pydantic_model
        declared = self.definition.input_schema.get("properties", {})
        return model if {*model.model_fields} == {*declared} else None

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """Call the tool with its arguments as JSON, as the SDK does."""
        text = strict_json.dump(dict(args)).decode()
        inside = AgentsContext(
            context=self._context, tool_name=context.name, tool_call_id=context.call_id, tool_arguments=text
        )
        try:
            value = await self._bare.on_invoke_tool(inside, text)
        except Exception as error:
            handler = agents_tool.resolve_function_tool_failure_error_function(self._tool, inside)
            if handler is None or handler is agents_tool.default_tool_error_function:
                raise
            said = handler(inside, error)
            raise ToolError(str(await said if inspect.isawaitable(said) else said)) from error
        return with_items(value, _opened)


def _opened(value: Any) -> object:
    match value:  # The SDK accepts these objects as dictionaries too.
        case {"type": "text", "text": str(text), **rest} if not rest:
            return text
        case {"type": "image", "image_url": str(url)}:
            return media_from_url(url) or value
        case {"type": "file", "file_data": str(url)}:
            return media_from_url(url) or value
        case _:
            pass
    if isinstance(value, ToolOutputText):
        return value.text
    if isinstance(value, ToolOutputImage):
        return media_from_url(value.image_url or "") or value
    if isinstance(value, ToolOutputFileContent):
        return media_from_url(value.file_data or "") or value
    return value


def _refuse_what_needs_a_runner(tool: FunctionTool, *, approved: bool) -> None:
    name = tool.name
    if tool.tool_input_guardrails or tool.tool_output_guardrails:
        raise ToolNotDeclarableError(
            f"tool {name!r} has guardrails, which only a Runner runs: use hooks of a Policy instead"
        )
    if tool.needs_approval is not False and not approved:
        raise ToolNotDeclarableError(
            f"tool {name!r} has needs_approval: pass from_openai_agents(tool, approved=True), and a rule such as "
            f"'ask {name}' in the policy, which then decides"
        )
    if tool.is_enabled is not True:
        raise ToolNotDeclarableError(f"tool {name!r} has is_enabled, which only a Runner asks: leave out what must not run")
