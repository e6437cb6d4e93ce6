"""Live tools: toolsets that must be started, and may change while a conversation is in progress; and aliases of tools.

Takes toolsets, returns runnable tools with unique names. A tool keeps its own name in rules, hooks and the audit log.
Knows nothing of what a toolset connects to.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeGuard, cast, runtime_checkable

from callgate.content.tool_names import RESERVED
from callgate.declaration import is_legal_name
from callgate.errors import UsageError
from callgate.types import ToolContext, ToolDefinition

__all__ = ["LiveTools", "LiveToolset", "Runnable", "ToolAliases", "Toolset", "is_live_toolset", "is_runnable", "is_toolset"]


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
    return hasattr(item, "definition") and hasattr(item, "problems") and hasattr(item, "run")


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

    def system_with_guidance(self, system: str | None) -> str | None:
        """Return the instruction for a model, with what the toolsets say about the use of their tools; most say nothing."""
        offered = ((toolset.name, getattr(toolset, "guidance", None)) for toolset in self._toolsets)
        guidance = [(name, text) for name, text in offered if isinstance(text, str) and text]
        if not guidance:
            return system
        from callgate.tools.server_guidance import system_with

        return system_with(system, guidance)

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
    """A tool under another name. Its server, or the program, knows the original one."""

    def __init__(self, tool: Runnable, name: str, *, is_chosen: bool = False) -> None:
        """Rename a tool; rules may allow it by a name that the program has chosen for it alone, and by no other."""
        own = tool.definition
        others = (*own.other_names, name) if is_chosen else own.other_names
        self.definition = replace(own, name=name, alias_of=own.own_name, other_names=others)
        self.tool = tool

    def __getattr__(self, name: str) -> Any:
        """Delegate what only some tools have, such as `preview`."""
        return getattr(self.tool, name)

    def problems(self, args: Mapping[str, Any]) -> Sequence[str]:
        """Delegate to the tool."""
        return self.tool.problems(args)

    async def run(self, args: Mapping[str, Any], context: ToolContext) -> object:
        """Run the tool."""
        return await self.tool.run(args, context)


@dataclass(slots=True)
class ToolAliases:
    """Tool, as `name` or `@server/name` -> the name under which it is declared."""

    names: Mapping[str, str] = field(default_factory=dict[str, str])
    _renamed: dict[str, _Renamed] = field(init=False, default_factory=dict[str, _Renamed])
    unused: tuple[str, ...] = field(init=False, default=())
    """Tools that have an alias and are not there, or whose alias is the name of another tool."""
    own_names: Mapping[str, str] = field(init=False, default_factory=dict[str, str])
    """Own name of a tool that has an alias -> the alias; not one that is declared for another tool."""

    def __post_init__(self) -> None:
        given: Any = self.names
        if not isinstance(given, Mapping):
            raise UsageError(f"tool_aliases={given!r:.80}: use a table of a tool and its alias")
        for tool, alias in cast("Mapping[Any, Any]", given).items():
            if not isinstance(tool, str) or not tool:
                raise UsageError(f"tool_aliases has the tool {tool!r}: use its name, or '@server/name'")
            if not isinstance(alias, str) or not is_legal_name(alias) or alias in RESERVED:
                raise UsageError(
                    f"tool_aliases has the alias {alias!r} for {tool!r}: use letters, digits and underscores, at most "
                    f"64, and none of {', '.join(sorted(RESERVED))}"
                )
        if len(set(self.names.values())) != len(self.names):
            raise UsageError("tool_aliases has one alias for two tools: give each one its own")

    def renamed(self, tools: Mapping[str, Runnable]) -> dict[str, Runnable]:
        """Return the tools under the names that they are declared by, in the same order."""
        if not self.names:
            return dict(tools)
        chosen = {name: alias for name, tool in tools.items() if (alias := self._alias_of(tool.definition)) is not None}
        # A tool whose alias is taken keeps its name, which may be the alias of another.
        while taken := [name for name, alias in chosen.items() if alias in tools and alias not in chosen]:
            for name in taken:
                del chosen[name]
        self.unused = tuple(tool for tool, alias in self.names.items() if alias not in chosen.values())
        found = {chosen.get(name, name): self._tool(tool, chosen.get(name), tools) for name, tool in tools.items()}
        self.own_names = {
            own: alias for name, alias in chosen.items() if (own := tools[name].definition.own_name) not in found
        }
        return found

    def _alias_of(self, definition: ToolDefinition) -> str | None:
        if definition.server is not None:
            alias = self.names.get(f"@{definition.server}/{definition.own_name}")
            return alias or self.names.get(definition.name)
        return self.names.get(definition.own_name) or self.names.get(f"@builtin/{definition.own_name}")

    def _tool(self, tool: Runnable, alias: str | None, tools: Mapping[str, Runnable]) -> Runnable:
        if alias is None:
            return tool
        # By a name that another tool has as its own, a rule that allows means that tool alone.
        is_only_its = alias == tool.definition.own_name or all(alias != one.definition.own_name for one in tools.values())
        known = self._renamed.get(alias)
        if known is None or known.tool is not tool or (alias in known.definition.other_names) is not is_only_its:
            known = self._renamed[alias] = _Renamed(tool, alias, is_chosen=is_only_its)
        return known
