"""Live tools: toolsets that must be started, and may change while a conversation is in progress.

Takes toolsets, returns runnable tools with unique names. Knows nothing of what a toolset connects to.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeGuard, runtime_checkable

from callgate.content.tool_names import RESERVED
from callgate.types import ToolContext, ToolDefinition

__all__ = ["LiveTools", "LiveToolset", "Runnable", "Toolset", "is_live_toolset", "is_runnable", "is_toolset"]


@runtime_checkable
class Runnable(Protocol):
    """A tool that can be run."""

    @property
    def definition(self) -> ToolDefinition:
        """The definition of the tool."""
        ...

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """Sentences on arguments that fit the schema and still cannot be used."""
        ...

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """Run the tool. Raise `ToolError` to tell the model why it failed."""
        ...


@runtime_checkable
class Toolset(Protocol):
    """Several tools of one origin."""

    def runnables(self) -> Iterable[Runnable]:
        """The tools as they are now."""
        ...


@runtime_checkable
class LiveToolset(Toolset, Protocol):
    """A toolset that is started before use, and whose tools may change at any time."""

    name: str
    """The prefix for names that collide."""
    version: int
    """Changes whenever the tools do."""

    async def start(self, owner: object) -> None:
        """Start, unless another owner has done so. Raises nothing, and returns in bounded time."""
        ...

    async def aclose(self, owner: object) -> None:
        """Release it for this owner; the last one stops it."""
        ...

    def complaints(self) -> Sequence[str]:
        """Return warnings: why it is unavailable, which of its tools were left out."""
        ...


# `isinstance` with a protocol takes as long as compiling a schema.


def is_runnable(item: object) -> TypeGuard[Runnable]:
    """True if the object is a `Runnable`."""
    return all(hasattr(item, name) for name in ("definition", "problems", "run"))


def is_toolset(item: object) -> TypeGuard[Toolset]:
    """True if the object is a `Toolset`."""
    return hasattr(item, "runnables")


def is_live_toolset(item: object) -> TypeGuard[LiveToolset]:
    """True if the object is a `LiveToolset`."""
    return is_toolset(item) and all(hasattr(item, name) for name in ("name", "version", "start", "aclose", "complaints"))


class LiveTools:
    """The live toolsets of one executor."""

    def __init__(self) -> None:
        self._toolsets: list[LiveToolset] = []
        self._seen: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._toolsets)

    @property
    def toolsets(self) -> Sequence[LiveToolset]:
        """All of them, in the order in which they were added."""
        return self._toolsets

    def add(self, toolset: LiveToolset) -> None:
        """Add one."""
        self._toolsets.append(toolset)

    async def start(self, owner: object) -> None:
        """Start all of them at the same time."""
        await asyncio.gather(*(toolset.start(owner) for toolset in self._toolsets))

    async def aclose(self, owner: object) -> None:
        """Close all of them at the same time."""
        await asyncio.gather(*(toolset.aclose(owner) for toolset in self._toolsets))

    def have_changed(self) -> bool:
        """True if the tools have changed since the last time."""
        seen, self._seen = self._seen, tuple(toolset.version for toolset in self._toolsets)
        return seen != self._seen

    def complaints(self) -> list[str]:
        """Return the warnings of the toolsets."""
        return [sentence for toolset in self._toolsets for sentence in toolset.complaints()]

    def runnables(self, taken: Collection[str]) -> dict[str, Runnable]:
        """Return every tool under a unique name: `name`, or `server__name` on a collision."""
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
    """A tool under another name. Its server knows the original one."""

    def __init__(self, tool: Runnable, name: str) -> None:
        self.definition = replace(tool.definition, name=name, alias_of=tool.definition.own_name)
        self._tool = tool

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """Delegate to the tool."""
        return self._tool.problems(args)

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """Run the tool."""
        return await self._tool.run(args, context)
