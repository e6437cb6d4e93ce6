"""The declared tools: which are declared, when, and what prevents others.

Takes definitions and the tools found by the model, returns declarations. Asks nothing and runs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

from callgate.content.response import is_longer, whole_text
from callgate.content.tool_names import FIND_TOOLS, READ_RESULT
from callgate.declaration import DECLARATIONS_MAX, BuiltIn, Declaration, declare, remote_servers
from callgate.errors import UsageError
from callgate.events import Notice
from callgate.machine import facts
from callgate.permission.policy import Policy
from callgate.store import Store
from callgate.tools.confusable_names import look_alikes_among
from callgate.tools.executor import Executor
from callgate.tools.read_result import ReadResult
from callgate.types import JsonObject, ToolDefinition, ToolResult

__all__ = ["NO_TOOLS", "DeclaredTools", "ToolDeclarer", "refuse_remote_servers"]

LOOK_ALIKES_TOLD = 5
SHARED_MAX = 64


@dataclass(frozen=True, slots=True)
class DeclaredTools:
    """The tools as declared to a model."""

    definitions: tuple[ToolDefinition, ...]
    declaration: Declaration
    known: facts.ToolsKnown

    @classmethod
    def of(
        cls, definitions: Sequence[ToolDefinition], executor: Executor, built_in: Iterable[BuiltIn], key: str
    ) -> DeclaredTools:
        """The definitions as they are declared; those that cannot be are left out."""
        declaration, known = _DECLARATIONS.of(definitions, executor.digests, tuple(built_in), key)
        quarantined = declaration.quarantined
        declared = tuple([d for d in definitions if d.name not in quarantined] if quarantined else definitions)
        return cls(declared, declaration, known)


class SharedDeclarations:
    """Declarations of whole sets of tools, shared by all gates that have equal ones; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Sequence[ToolDefinition], tuple[Declaration, facts.ToolsKnown]]] = {}

    def of(
        self, definitions: Sequence[ToolDefinition], digests: Mapping[str, str], built_in: tuple[BuiltIn, ...], key: str
    ) -> tuple[Declaration, facts.ToolsKnown]:
        """The declaration of these tools, and what the journal is told of them; both are read-only."""
        if built_in:
            return _declared(definitions, digests, built_in)
        known = self._known.get(key)
        # The digest is short, and a server may choose what it is made of: what is equal is looked at as well.
        if known is not None and _are_equal(known[0], definitions):
            return known[1]
        declared = _declared(definitions, digests, ())
        self._known[key] = (definitions, declared)
        while len(self._known) > SHARED_MAX:
            self._known.pop(next(iter(self._known)), None)
        return declared


def _declared(
    definitions: Sequence[ToolDefinition], digests: Mapping[str, str], built_in: tuple[BuiltIn, ...]
) -> tuple[Declaration, facts.ToolsKnown]:
    declaration = declare(definitions, built_in=built_in)
    tools = {d.name: _known(d, digests[d.name]) for d in definitions if d.name not in declaration.quarantined}
    return declaration, facts.ToolsKnown(tools=tools, names=dict(declaration.names))


def _key(definitions: Iterable[ToolDefinition], digests: Mapping[str, str]) -> str:
    """The names and digests of tools, in their order, as one text: a gate keeps it for as long as it lives."""
    return "\n".join([f"{definition.name} {digests[definition.name]}" for definition in definitions])


def _are_equal(some: Sequence[ToolDefinition], others: Sequence[ToolDefinition]) -> bool:
    return [*some] == [*others]  # Those that are the same object, as most are, need no look.


_DECLARATIONS = SharedDeclarations()


def _known(definition: ToolDefinition, digest: str) -> facts.KnownTool:
    known = facts.KnownTool.of(definition, digest)
    return replace(known, reader=True) if definition is ReadResult.definition else known


@dataclass(slots=True)
class DeclaredToolsCache:
    """The tools declared so far."""

    by_tools: dict[str, DeclaredTools] = field(default_factory=dict[str, DeclaredTools])
    """By the names and digests of the tools in it."""
    last: tuple[Mapping[str, str], Policy, DeclaredTools] | None = None
    """The last declaration of all tools, with its digests and policy."""


NO_TOOLS = DeclaredTools((), Declaration(tools=[], tool_config=None, names={}), facts.ToolsKnown(tools={}, names={}))


@dataclass(slots=True, kw_only=True)
class ToolDeclarer:
    """Declarations of the tools of a gate."""

    executor: Executor
    store: Store
    built_in: tuple[BuiltIn, ...]
    tools_shown: int | None
    output_chars: int
    """Characters of one result that the model sees."""
    cache: DeclaredToolsCache = field(default_factory=DeclaredToolsCache)

    def declare(self, policy: Policy, found: Collection[str] = ()) -> DeclaredTools:
        """The tools that are declared: those shown from the start, and those that were found since."""
        digests, last = self.executor.digests, self.cache.last
        is_usual = self.tools_shown is None and READ_RESULT not in found
        if is_usual and last is not None and last[0] is digests and last[1] is policy:
            return last[2]
        allowed = self._shown(policy.declarable(self.executor.definitions), found)
        key = _key(allowed, digests)
        declared = self.cache.by_tools.get(key)
        if declared is None:
            declared = self.cache.by_tools[key] = DeclaredTools.of(allowed, self.executor, self.built_in, key)
        if is_usual:
            self.cache.last = (digests, policy, declared)
        return declared

    def for_executor(self, executor: Executor, built_in: Iterable[BuiltIn]) -> ToolDeclarer:
        """Return the declarer of another set of tools, with further built-in ones."""
        return replace(self, executor=executor, built_in=(*self.built_in, *built_in), cache=DeclaredToolsCache())

    def _shown(self, allowed: list[ToolDefinition], found: Collection[str]) -> list[ToolDefinition]:
        """Return the allowed tools to declare."""
        if READ_RESULT not in found:  # Of no use before there is something to read.
            allowed = [d for d in allowed if d is not ReadResult.definition]
        if self.tools_shown is not None:
            last_found = [name for name in found if name in self.executor][-(DECLARATIONS_MAX // 2) :]
            shown = {FIND_TOOLS, *last_found, *[d.name for d in allowed if d.name != FIND_TOOLS][: self.tools_shown]}
            allowed = [d for d in allowed if d.name in shown]
        # Programmers do not control how many tools servers have, so too many are not an error.
        return allowed[:DECLARATIONS_MAX] if self.executor.is_live else allowed

    def reader_for(self, results: Iterable[ToolResult], known: Mapping[str, facts.KnownTool]) -> tuple[str, ...] | None:
        """The tool by which the model reads long results, if there are any and it is not declared; added if missing."""
        if READ_RESULT in known or not any(is_longer(result, self.output_chars) for result in results):
            return None
        self.add_reader()
        return (READ_RESULT,)

    def add_reader(self) -> None:
        """Add the tool that reads long results, unless it exists or the program has one of that name."""
        if READ_RESULT not in self.executor:
            self.executor.register(ReadResult(partial(_whole_result, self.store)))

    def found_in(self, results: Iterable[ToolResult]) -> list[str] | None:
        """The tools that the model has looked for and found, if it looked for any."""
        if self.tools_shown is None:
            return None
        found = [result.value for result in results if result.name == FIND_TOOLS and not result.is_error]
        return [item["name"] for items in found for item in cast("list[JsonObject]", items)] or None

    def complaints(self, declared: DeclaredTools) -> list[Notice]:
        """Return warnings about tools that are not declared."""
        told = declared.declaration.quarantined
        notices = [Notice("tool_left_out", reason, "warning") for reason in told.values()] if told else []
        return notices + self._complaints_of_servers() if self.executor.is_live else notices

    def _complaints_of_servers(self) -> list[Notice]:
        told: list[tuple[str, str]] = []
        if self.tools_shown is None and (more := len(self.executor) - DECLARATIONS_MAX) > 0:
            message = f"{more} tools are left out: a request can declare at most {DECLARATIONS_MAX}; use tools_shown="
            told.append(("tool_left_out", message))
        told += [("server_unavailable", complaint) for complaint in self.executor.complaints()]
        alike = look_alikes_among(self.executor.definitions)
        for pair in alike[:LOOK_ALIKES_TOLD]:
            told.append(("look_alike_tool", f"{pair} See that the right one is called, or exclude it."))
        if len(alike) > LOOK_ALIKES_TOLD:
            more = f"{len(alike) - LOOK_ALIKES_TOLD} more pairs of tools look alike; `callgate doctor` lists them."
            told.append(("look_alike_tool", more))
        return [Notice(kind, message, "warning") for kind, message in told]


async def _whole_result(store: Store, session: str, call_id: str) -> str | None:
    """The text of a result, of which the model may have seen only a part."""
    ended = (fact for fact in await store.load(session) if isinstance(fact, facts.CallEnded) and fact.id == call_id)
    return next((whole_text(fact.result) for fact in ended), None)


def refuse_remote_servers(declaration: Declaration, policy: Policy) -> None:
    """Refuse MCP servers that Google calls by itself, unless a rule allows them by name: nobody else is asked.

    Raises:
        UsageError: there is such a server; the message has the rule.
    """
    for name in remote_servers(declaration):
        if not policy.allows_server(name):
            raise UsageError(
                f"the MCP server {name!r} would be called by Google, past every permission here: allow it by name, with "
                f"Policy(rules=['allow @{name}']) and no rule that asks about or denies tools it may have, or pass "
                "McpServer(...) to have its calls run here"
            )
