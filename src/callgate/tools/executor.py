"""A set of tools: check a call against its tool, and run an allowed call to its one `ToolResult`.

Every call gets exactly one result, and none raises. Decides nothing: permission is checked before; `call.py` runs one call.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from callgate.content.tool_names import resolve_name, unknown_name_sentence
from callgate.declaration import declared_names, digest
from callgate.errors import ToolNotDeclarableError, UsageError, checked_values
from callgate.machine import facts
from callgate.machine.calls import startable
from callgate.schema import check_arguments
from callgate.threads import THREADS
from callgate.tools.call import CallObserver, RunningCall
from callgate.tools.functions import adapt_tools, runnables_of
from callgate.tools.precheck import preview_of, problems_of, running_values_of
from callgate.tools.toolsets import (
    LiveTools,
    LiveToolset,
    Runnable,
    ToolAliases,
    Toolset,
    is_live_toolset,
    is_runnable,
    is_toolset,
)
from callgate.types import CallState, FunctionCall, Limits, ToolDefinition, ToolResult

__all__ = ["Executor", "Runnable", "Toolset"]

logger = logging.getLogger("callgate.tools.executor")


_NOT_VALID = {
    "model": "The arguments of {name!r} are not valid: {listed}. Correct them and call again.",
    "user": "The arguments of {name!r} are not valid: {listed}. The user wrote them, not you; the call did not run.",
    "hook": "The arguments of {name!r} are not valid: {listed}. A hook wrote them, not you; the call did not run.",
}
"""Sentences about invalid arguments, by who wrote them."""


@checked_values
class Executor:
    """A set of tools that can be called by name.

    ```python
    executor = Executor([get_weather])
    results = await executor.execute_all(function_calls(response))
    ```
    """

    def __init__(
        self,
        tools: Iterable[object] = (),
        *,
        limits: Limits | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        if limits is not None and not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"limits={limits!r:.200}: expected a Limits object, as in limits=Limits(turns=5)")
        self.limits = limits or Limits()
        self._aliases = ToolAliases(aliases or {})
        self._own: dict[str, Runnable] = {}
        self._live = LiveTools()
        self._is_live = False
        self._tools: dict[str, Runnable] = {}
        self._ever: dict[str, Runnable] = {}
        """Tools that are there or were: a call that was checked may outlive the place of its tool in the list."""
        self._digests: dict[str, str] = {}
        self._deps: dict[str, tuple[type, ...]] = {}
        """Tool name -> the class of `deps` that it needs."""
        self._names: dict[str, str] = {}
        self.toolsets: list[Toolset] = []
        """The origins of tools, functions of the program excepted."""
        self.register(*tools)
        self._refuse_unused_aliases()

    def register(self, *tools: object) -> None:
        """Add functions, runnables, toolsets and tools of other frameworks: all of them, or none if one cannot be added.

        Raises:
            ToolNotDeclarableError: a tool cannot be declared, or its name is taken.
        """
        added: dict[str, Runnable] = {}
        tools = adapt_tools(tools, self.limits)
        toolsets = [item for item in tools if is_toolset(item)]
        live = [item for item in toolsets if is_live_toolset(item)]
        others = tools if not live else [item for item in tools if not is_live_toolset(item)]
        for runnable in runnables_of(others, self.limits):
            name = runnable.definition.name
            if name in added or name in self._own:
                raise ToolNotDeclarableError(f"a tool named {name!r} is registered already: give one of them another name=")
            added[name] = runnable
        declared_names([tool.definition for tool in (*self._own.values(), *added.values())])
        self._own |= added
        self.toolsets += [item for item in toolsets if not is_runnable(item)]
        for toolset in live:
            self._live.add(toolset)
        self._is_live = bool(self._live)
        self._take_in(self._own if not self._live else self._own | self._live.runnables(self._own))

    def extended(self, tools: Iterable[object], replaced: Mapping[str, LiveToolset]) -> Executor:
        """Return a set with further tools, and with other toolsets in place of those of the same name.

        Raises:
            ToolNotDeclarableError: a tool cannot be declared, or its name is taken.
            UsageError: a further tool has the alias of another as its name.
        """
        other = Executor(limits=self.limits)
        other._aliases = ToolAliases(self._aliases.names)
        other._own, other._ever = dict(self._own), dict(self._ever)
        other.toolsets = [*self.toolsets]
        for toolset in self._live.toolsets:
            other._live.add(replaced.get(toolset.name, toolset))
        other.register(*tools)
        other._refuse_unused_aliases()
        return other

    def replace(self, tool: Runnable) -> None:
        """Put a tool in the place of the one of the same name."""
        self._own[tool.definition.own_name] = tool
        self._take_in(self._own | self._live.runnables(self._own))

    @property
    def live(self) -> Sequence[LiveToolset]:
        """The toolsets that must be started, such as MCP servers."""
        return self._live.toolsets

    def check_deps(self, deps: object) -> None:
        """Refuse `deps` that are not what a tool has declared.

        Raises:
            UsageError: a tool needs an object of another type.
        """
        for name, kinds in self._deps.items():
            if not isinstance(deps, kinds):
                given = "the run has none" if deps is None else f"the run has a {type(deps).__name__!r}"
                kind = " | ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
                raise UsageError(
                    f"the tool {name!r} takes a ToolContext[{kind}], and {given}: pass deps= of the type {kind}"
                )

    def _take_in(self, tools: dict[str, Runnable]) -> None:
        known = self._tools
        tools = self._aliases.renamed(tools)
        self._names = declared_names([tool.definition for tool in tools.values()])
        digests: dict[str, str] = {}
        self._deps = {}
        for name, tool in tools.items():
            digests[name] = self._digests[name] if known.get(name) is tool else digest(tool.definition)
            if kinds := getattr(tool, "deps_types", ()):
                self._deps[name] = kinds
        self._digests, self._tools = digests, dict(tools)
        self._ever |= tools

    # Live tools -----------------------------------------------------------------------------------------------------------

    @property
    def is_live(self) -> bool:
        """True if some of the tools must be started, and may change."""
        return self._is_live

    async def start_tools(self, owner: object) -> None:
        """Start the live tools. `complaints` reports what does not start."""
        if self._live:
            await self._live.start(owner)
            self.refresh()

    async def stop_tools(self, owner: object) -> None:
        """Stop what was started, unless it has other users."""
        if self._live:
            await self._live.aclose(owner)

    def refresh(self) -> None:
        """Apply changes since the last time."""
        if self._live.have_changed():
            self._take_in(self._own | self._live.runnables(self._own))

    def complaints(self) -> list[str]:
        """Return warnings about the origins of tools."""
        return [*self._live.complaints(), *self._alias_complaints()]

    def system_with_guidance(self, system: str | None) -> str | None:
        """Return the instruction for a model, with what the live toolsets say about the use of their tools."""
        return self._live.system_with_guidance(system) if self._is_live else system

    def _refuse_unused_aliases(self) -> None:
        """Refuse an alias that names no tool or another one; not one whose tool may come with the live tools.

        Raises:
            UsageError: there is one.
        """
        for tool, complaint in zip(self._aliases.unused, self._alias_complaints(), strict=True):
            if not self._live or self._aliases.names[tool] in self._own:
                raise UsageError(complaint)

    def _alias_complaints(self) -> list[str]:
        return [
            f"the alias {self._aliases.names[tool]!r} of tool_aliases is not used: {self._why_unused(tool)}"
            for tool in self._aliases.unused
        ]

    def _why_unused(self, tool: str) -> str:
        alias, own = self._aliases.names[tool], tool.removeprefix("@builtin/")
        other = next((one.definition.name for one in self._tools.values() if one.definition.alias_of == own), None)
        if alias in self._tools:
            is_swapped = own not in self._tools and other is None and not own.startswith("@")
            hint = (
                f", and {tool!r} is no tool here; the tool comes first, as in {{{alias!r}: {tool!r}}}" if is_swapped else ""
            )
            return f"another tool has this name{hint}"
        return f"{tool!r} is no tool here" if other is None else f"{own!r} has the alias {other!r} already"

    @property
    def definitions(self) -> list[ToolDefinition]:
        """The definitions of all tools in the order in which they were registered."""
        return [tool.definition for tool in self._tools.values()]

    @property
    def digests(self) -> Mapping[str, str]:
        """Tool name -> a hash of what was declared of it."""
        return self._digests

    def definition(self, name: str) -> ToolDefinition:
        """Return the definition of one tool, by its own name."""
        return self._ever[name].definition

    def knew(self, name: str) -> bool:
        """Return whether there is a tool of this name, or was one."""
        return name in self._ever

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"Executor({', '.join(self._tools)})"

    def check(self, call: FunctionCall, *, is_plain: bool = False, author: str = "model") -> facts.CallChecked:
        """Find the tool and check the arguments. Nothing runs, and nothing is raised for what a model did wrong.

        `is_plain` says that the arguments are known to be plain JSON; `author` says who wrote them.
        """
        if call.problem is not None:
            return facts.CallChecked(id=call.id, tool=None, args=call.args, problems=(call.problem,))
        name = call.name if call.name in self._tools else self._resolved(call.wire_name or call.name)
        if name is None:
            problem = unknown_name_sentence(call.wire_name or call.name, self._tools)
            return facts.CallChecked(id=call.id, tool=None, args=call.args, problems=(problem,))
        try:
            checked = check_arguments(self.definition(name), call.args, is_plain=is_plain)
        except ToolNotDeclarableError as error:
            # The tool was not declared for this reason; a model that calls it anyway gets the reason.
            return facts.CallChecked(id=call.id, tool=None, args=call.args, problems=(f"Not run: {error}.",))
        problems = tuple(checked.problems or problems_of(self._tools[name], checked.args))
        if problems:
            listed = "; ".join(problem.rstrip(".") for problem in problems)
            problems = (_NOT_VALID[author].format(name=name, listed=listed),)
        return facts.CallChecked(
            id=call.id,
            tool=name,
            args=checked.args,
            problems=problems,
            coercions=tuple(checked.coercions),
            digest=self._digests[name],
            at_s=time.time(),
        )

    def _resolved(self, written: str) -> str | None:
        """The tool that a model means: by its declared name, or by the own name of one that has an alias."""
        return resolve_name(written, self._names) or resolve_name(written, self._aliases.own_names)

    def running_values(self, name: str, args: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        """The values that a tool gets for arguments, as plain data in one or two forms; empty if only the tool knows."""
        return running_values_of(self._ever[name], args)

    async def preview(self, call: FunctionCall) -> str | None:
        """Return the preview of a checked call, if its tool has one: a `preview(args)` of a runnable. Never raises."""
        return await preview_of(self._ever[call.name], call.args)

    def start(self, call: FunctionCall, watch: CallObserver | None = None) -> RunningCall:
        """Start a checked call on the running event loop. There will be one result."""
        return RunningCall(self._ever[call.name], call, self.limits, watch or CallObserver())

    async def execute(self, call: FunctionCall) -> ToolResult:
        """Check a call and run it. A call that cannot run gives an error result, never an exception."""
        checked = self.check(call)
        if checked.tool is None or checked.problems:
            error = " ".join(checked.problems)
            return ToolResult(call_id=call.id, name=checked.tool or call.name, status="failed", error=error)
        return await self.start(replace(call, name=checked.tool, args=checked.args)).wait()

    async def execute_all(self, calls: Sequence[FunctionCall]) -> list[ToolResult]:
        """Run the calls of one turn: in parallel up to the limit, ordered ones one after another. Results in call order."""
        slots = [_Slot(call, ordered=self.is_ordered(call)) for call in calls]
        running: dict[asyncio.Task[ToolResult], _Slot] = {}
        try:
            while not all(slot.result for slot in slots):
                for index in startable(slots, self.limits.parallel):
                    slots[index].state = "started"
                    running[asyncio.create_task(self.execute(slots[index].call))] = slots[index]
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    slot = running.pop(task)
                    slot.result = task.result()
                    slot.state = slot.result.status
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        return [slot.result for slot in slots if slot.result]

    def is_ordered(self, call: FunctionCall) -> bool:
        """True if calls of the tool run one after another, in call order."""
        name = self._resolved(call.name) or call.name
        return name in self._tools and self.definition(name).ordered

    @staticmethod
    def abandoned() -> int:
        """Threads of this process whose tool exceeded its deadline and has not returned yet."""
        return THREADS.abandoned


@dataclass(slots=True)
class _Slot:
    call: FunctionCall
    ordered: bool
    state: CallState = "allowed"
    result: ToolResult | None = None
