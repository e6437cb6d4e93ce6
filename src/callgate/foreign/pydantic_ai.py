"""Adapt a toolset of pydantic-ai to a live toolset of a gate.

A toolset, or a single tool, is entered when a run begins and exited after its last use, by one task, as toolsets with
connections require. Knows nothing of agents: the tools get a context without a model.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_ai import RunContext, Tool
from pydantic_ai import exceptions as theirs
from pydantic_ai.messages import BinaryContent, ToolReturn
from pydantic_ai.models.test import TestModel
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool
from pydantic_ai.usage import RunUsage

from callgate import strict_json
from callgate.definitions.frameworks import of_pydantic_ai_definition
from callgate.errors import ToolError
from callgate.foreign.media import with_items
from callgate.threads import error_sentence
from callgate.types import Media, ToolContext

__all__ = ["PydanticAiTools"]

logger = logging.getLogger("callgate.foreign")

START_S = 30.0
"""Seconds that a toolset may take to start and list its tools."""

_SAID = tuple(kind for name in ("ModelRetry", "ToolFailed") if (kind := getattr(theirs, name, None)) is not None)
_DEFERRED = (theirs.ApprovalRequired, theirs.CallDeferred)


class PydanticAiTools:
    """The tools of one toolset.

    Args:
        toolset: A toolset, or a single `Tool`.
        deps: The `ctx.deps` passed to its functions.
        approved: Let the policy of the gate decide about tools that require approval; otherwise they are left out.
    """

    def __init__(self, toolset: Any, *, deps: Any = None, approved: bool = False) -> None:
        tool: Any = toolset
        self._toolset: AbstractToolset[Any] = FunctionToolset[Any]([tool]) if isinstance(toolset, Tool) else tool
        self.name = self._toolset.id or "pydantic_ai"
        self.version = 0
        self.approved = approved
        self.context = RunContext[Any](deps=deps, model=TestModel(), usage=RunUsage())
        self._owners: list[object] = []
        self._tools: dict[str, ToolsetTool[Any]] = {}
        self._entered: AbstractToolset[Any] = self._toolset
        self._complaint: str | None = None
        self._life: asyncio.Task[None] | None = None
        self._ready, self._over = asyncio.Event(), asyncio.Event()

    async def start(self, owner: object) -> None:
        """Enter the toolset, unless that was done."""
        self._owners.append(owner)
        if self._life is None:
            self._ready, self._over = asyncio.Event(), asyncio.Event()
            self._life = asyncio.create_task(self._live(self._ready, self._over))
        await self._ready.wait()  # Concurrent starters wait as well.

    async def aclose(self, owner: object) -> None:
        """Leave it after its last owner."""
        if owner in self._owners:
            self._owners.remove(owner)
        if not self._owners and self._life is not None:
            life, self._life = self._life, None
            self._over.set()
            await asyncio.wait({life}, timeout=START_S)

    async def _live(self, ready: asyncio.Event, over: asyncio.Event) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(START_S):
                    inside = await self._toolset.for_run(self.context)
                    self._entered = await stack.enter_async_context(inside)
                    self._tools = await self._entered.get_tools(self.context)
                self._complaint = None
                self.version += 1
                ready.set()
                await over.wait()
        except Exception as error:
            # Any error of the toolset: the other tools still work.
            logger.warning("the toolset %r failed", self.name, exc_info=error)
            self._tools = {}
            self._complaint = f"The toolset {self.name!r} cannot be used: {error_sentence(error)}"
            self.version += 1
        finally:
            ready.set()

    def runnables(self) -> list[_OneTool]:
        """The tools that can be run here."""
        return [_OneTool(self, tool) for tool in self._tools.values() if self._why_not(tool) is None]

    def complaints(self) -> Sequence[str]:
        """Report why the toolset is unavailable, and which of its tools are left out."""
        left_out = [why for tool in self._tools.values() if (why := self._why_not(tool)) is not None]
        return [self._complaint, *left_out] if self._complaint else left_out

    def _why_not(self, tool: ToolsetTool[Any]) -> str | None:
        name, kind = tool.tool_def.name, tool.tool_def.kind
        if kind == "function" or (kind == "unapproved" and self.approved):
            return None
        if kind == "unapproved":
            return (
                f"The tool {name!r} requires approval, so it is left out: pass from_pydantic_ai(toolset, approved=True), "
                f"and a rule such as 'ask {name}' in the policy, which then decides."
            )
        return f"The tool {name!r} is of the kind {kind!r}, which only an agent can answer, so it is left out."

    async def call(self, tool: ToolsetTool[Any], args: Mapping[str, Any], context: ToolContext) -> object:
        """Call one of the tools as an agent would."""
        inside = dataclasses.replace(
            self.context, tool_name=context.name, tool_call_id=context.call_id, tool_call_approved=self.approved
        )
        try:
            values = tool.args_validator.validate_json(strict_json.dump(dict(args)))
            if tool.args_validator_func is not None:
                await _awaited(tool.args_validator_func(inside, **values))
            return _value(await self._entered.call_tool(tool.tool_def.name, values, inside, tool))
        except _SAID as error:
            raise ToolError(str(error)) from error
        except _DEFERRED as error:
            raise ToolError("Not run: the tool defers its calls, which only an agent of pydantic-ai can do.") from error


class _OneTool:
    """One of the tools."""

    def __init__(self, home: PydanticAiTools, tool: ToolsetTool[Any]) -> None:
        self.definition = of_pydantic_ai_definition(tool.tool_def)
        self._home = home
        self._tool = tool

    def running_values(self, args: Mapping[str, Any]) -> Mapping[str, Any]:
        """The Python values that the tool gets."""
        return self._tool.args_validator.validate_json(strict_json.dump(dict(args)))

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """Return the errors of the tool's own validator, beyond its schema."""
        try:
            self._tool.args_validator.validate_json(strict_json.dump(dict(args)))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            return tuple(f"{'.'.join(map(str, item['loc'])) or 'the arguments'}: {item['msg']}" for item in found[:10])
        return ()

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """Call the tool."""
        return await self._home.call(self._tool, args, context)


async def _awaited(value: Any) -> None:
    if inspect.isawaitable(value):
        await value


def _value(value: Any) -> object:
    if isinstance(value, ToolReturn):
        # Additional content for the model is appended to the value.
        shown: Any = value.content or []  # pyright: ignore[reportUnknownMemberType]
        said: Any = value.return_value  # pyright: ignore[reportUnknownMemberType]
        more = [shown] if isinstance(shown, str) else list(shown)
        value = [said, *more] if more else said
    return with_items(value, _media)


def _media(value: Any) -> object:
    return Media(data=value.data, mime_type=value.media_type) if isinstance(value, BinaryContent) else value
