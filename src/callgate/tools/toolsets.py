"""Tools that come and go: toolsets that must be started, and change what they offer while a conversation goes on.

Toolsets come in, runnable tools with names that nobody else has go out. What a toolset connects to is its own business.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from callgate.content.tool_names import RESERVED
from callgate.types import ToolContext, ToolDefinition

__all__ = ["LiveTools", "LiveToolset", "Runnable", "Toolset"]


@runtime_checkable
class Runnable(Protocol):
    """A tool that can be run."""

    @property
    def definition(self) -> ToolDefinition:
        """What the tool is."""
        ...

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """Sentences on arguments that fit the schema and still cannot be used."""
        ...

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """Runs the tool. Raising `ToolError` tells the model why it could not be done."""
        ...


@runtime_checkable
class Toolset(Protocol):
    """Several tools from one place."""

    def runnables(self) -> Iterable[Runnable]:
        """The tools as they are now."""
        ...


@runtime_checkable
class LiveToolset(Toolset, Protocol):
    """A toolset that is started before use, and whose tools may change at any time."""

    name: str
    """Stands before the name of a tool that another one has too."""
    version: int
    """Changes whenever the tools do."""

    async def start(self, owner: object) -> None:
        """Starts, unless that was done for another owner. Raises nothing, and comes back in bounded time."""
        ...

    async def aclose(self, owner: object) -> None:
        """This owner is done with it; after the last one nothing is left running."""
        ...

    def complaints(self) -> Sequence[str]:
        """Sentences on what a person should know: why it is not there, which of its tools were left out."""
        ...


class LiveTools:
    """The live toolsets of one executor."""

    def __init__(self) -> None:
        self._toolsets: list[LiveToolset] = []
        self._seen: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._toolsets)

    def add(self, toolset: LiveToolset) -> None:
        """One more of them."""
        self._toolsets.append(toolset)

    async def start(self, owner: object) -> None:
        """Starts all of them at the same time."""
        await asyncio.gather(*(toolset.start(owner) for toolset in self._toolsets))

    async def aclose(self, owner: object) -> None:
        """Closes all of them at the same time."""
        await asyncio.gather(*(toolset.aclose(owner) for toolset in self._toolsets))

    def have_changed(self) -> bool:
        """Whether the tools are others than when this was last asked."""
        seen, self._seen = self._seen, tuple(toolset.version for toolset in self._toolsets)
        return seen != self._seen

    def complaints(self) -> list[str]:
        """What the toolsets have to say of themselves."""
        return [sentence for toolset in self._toolsets for sentence in toolset.complaints()]

    def runnables(self, taken: Collection[str]) -> dict[str, Runnable]:
        """Every tool under a name of its own: `name`, or `server__name` where another tool is called like that too."""
        offered = [(toolset, tool, tool.definition.name) for toolset in self._toolsets for tool in toolset.runnables()]
        count = Counter(name for _, _, name in offered)
        plain = {name for name in count if count[name] == 1 and name not in taken and name not in RESERVED}
        named: dict[str, Runnable] = {name: tool for _, tool, name in offered if name in plain}
        for toolset, tool, name in offered:
            if name not in plain:
                free = f"{toolset.name}__{name}"
                while free in named or free in taken:
                    free += "_"
                named[free] = _Renamed(tool, free)
        return named


class _Renamed:
    """A tool under another name. The tool itself goes by the one that its server knows."""

    def __init__(self, tool: Runnable, name: str) -> None:
        self.definition = replace(tool.definition, name=name, alias_of=tool.definition.own_name)
        self._tool = tool

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """As the tool says."""
        return self._tool.problems(args)

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """Runs the tool."""
        return await self._tool.run(args, context)
