"""What a gate was built from, and what its model is told of tools: everything that its runs share and none of them changes.

Definitions come in, declarations and requests go out; this file asks nobody and runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, cast

from callgate.calls.environment import Ask
from callgate.content.response import is_longer, whole_text
from callgate.content.tool_names import FIND_TOOLS, READ_RESULT
from callgate.declaration import DECLARATIONS_MAX, BuiltIn, Declaration, declare
from callgate.errors import UsageError
from callgate.events import (
    Notice,
)
from callgate.history.conversation import Conversation
from callgate.machine import facts
from callgate.models import AnsweredBy, Model, ModelRequest, close_model, origin_of, provider_of_model
from callgate.permission import Policy, RateLimits
from callgate.permission.approval import asked
from callgate.permission.guard import Guard
from callgate.store import Store
from callgate.telemetry import NoSpans, RunSpans, spans_of
from callgate.tools.confusable_names import look_alikes_among
from callgate.tools.executor import Executor
from callgate.tools.read_result import ReadResult
from callgate.types import JsonObject, Limits, Price, ToolDefinition, ToolResult, Usage

__all__ = ["DeclaredTools", "DeclaredToolsCache", "GateConfig", "usable_history", "usable_parts"]

LOOK_ALIKES_TOLD = 5


@dataclass(frozen=True, slots=True)
class DeclaredTools:
    """Tools as a model is told of them."""

    definitions: tuple[ToolDefinition, ...]
    declaration: Declaration
    known: facts.ToolsKnown

    @classmethod
    def of(cls, definitions: Sequence[ToolDefinition], executor: Executor, built_in: Iterable[BuiltIn]) -> DeclaredTools:
        """The definitions as they are declared; those that cannot be are left out."""
        declaration = declare(definitions, built_in=built_in)
        declared = tuple(d for d in definitions if d.name not in declaration.quarantined)
        known = facts.ToolsKnown(
            tools={d.name: _known(d, executor.digests[d.name]) for d in declared},
            names=dict(declaration.names),
        )
        return cls(declared, declaration, known)


def _known(definition: ToolDefinition, digest: str) -> facts.KnownTool:
    known = facts.KnownTool.of(definition, digest)
    return replace(known, reader=True) if definition is ReadResult.definition else known


@dataclass(slots=True)
class DeclaredToolsCache:
    """What was declared so far."""

    by_tools: dict[frozenset[tuple[str, str]], DeclaredTools] = field(
        default_factory=dict[frozenset[tuple[str, str]], DeclaredTools]
    )
    """By the names and digests of the tools in it."""
    last: tuple[Mapping[str, str], Policy, DeclaredTools] | None = None
    """What all tools were declared as last time, and with which digests and policy."""


_NO_TOOLS = DeclaredTools((), Declaration(tools=[], tool_config=None, names={}), facts.ToolsKnown(tools={}, names={}))


@dataclass(frozen=True, slots=True, kw_only=True)
class GateConfig:
    """What a gate was built from: everything that its runs share and none of them changes."""

    model: Model
    executor: Executor
    limits: Limits
    guard: Guard
    store: Store
    owns_store: bool
    """Whether the gate opened the store itself, and so closes it."""
    prices: Mapping[str, Price]
    compaction: Literal["summary", "trim"]
    system: str | None
    settings: Mapping[str, Any]
    built_in: tuple[BuiltIn, ...]
    tools_shown: int | None
    cache: DeclaredToolsCache = field(default_factory=DeclaredToolsCache)
    who: AnsweredBy = field(init=False)
    """Who answers, unless the model says that it was another one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "who", AnsweredBy(self.model.name, origin_of(self.model)))

    def declare(self, found: Collection[str] = ()) -> DeclaredTools:
        """The tools that are declared: those shown from the start, and those that were found since."""
        policy, digests, last = self.guard.policy, self.executor.digests, self.cache.last
        is_usual = self.tools_shown is None and READ_RESULT not in found
        if is_usual and last is not None and last[0] is digests and last[1] is policy:
            return last[2]
        allowed = self._shown(list(filter(policy.may_declare, self.executor.definitions)), found)
        key = frozenset((d.name, digests[d.name]) for d in allowed)
        declared = self.cache.by_tools.get(key)
        if declared is None:
            declared = self.cache.by_tools[key] = DeclaredTools.of(allowed, self.executor, self.built_in)
        if is_usual:
            self.cache.last = (digests, policy, declared)
        return declared

    def _shown(self, allowed: list[ToolDefinition], found: Collection[str]) -> list[ToolDefinition]:
        """Which of the allowed tools are declared."""
        if READ_RESULT not in found:  # Of no use before there is something to read.
            allowed = [d for d in allowed if d is not ReadResult.definition]
        if self.tools_shown is not None:
            last_found = [name for name in found if name in self.executor][-(DECLARATIONS_MAX // 2) :]
            shown = {FIND_TOOLS, *last_found, *[d.name for d in allowed if d.name != FIND_TOOLS][: self.tools_shown]}
            allowed = [d for d in allowed if d.name in shown]
        # How many tools servers have is not the programmer's doing, so too many are no error.
        return allowed[:DECLARATIONS_MAX] if self.executor.is_live else allowed

    def reader_for(self, results: Iterable[ToolResult], known: Mapping[str, facts.KnownTool]) -> tuple[str, ...] | None:
        """The tool by which the model reads long results, if there are any and it is not declared; added if missing."""
        if READ_RESULT in known or not any(is_longer(result, self.limits.output_chars) for result in results):
            return None
        self.add_reader()
        return (READ_RESULT,)

    def add_reader(self) -> None:
        """Add the tool by which the model reads long results, unless it is there or the program has one of that name."""
        if READ_RESULT not in self.executor:
            self.executor.register(ReadResult(partial(_whole_result, self.store)))

    def found_in(self, results: Iterable[ToolResult]) -> list[str] | None:
        """The tools that the model has looked for and found, if it looked for any."""
        if self.tools_shown is None:
            return None
        found = [result.value for result in results if result.name == FIND_TOOLS and not result.is_error]
        return [item["name"] for items in found for item in cast("list[JsonObject]", items)] or None

    def cost_of(self, usage: Usage, who: AnsweredBy) -> float | None:
        """What the tokens cost, if the gate knows the price of the model."""
        price = self.prices.get(who.model)
        return None if price is None else price.of(usage)

    @property
    def ask(self) -> Ask | None:
        """Asks whoever answers for this gate, if somebody does."""
        approve = self.guard.approve
        if approve is None:
            return None
        return lambda question: asked(approve, question.call, question.definition, question.reason)

    def new_spans(self, session: str) -> RunSpans | NoSpans:
        """The spans of a run, if anybody traces it."""
        return spans_of(session, provider=provider_of_model(self.model), model=self.model.name)

    def complaints(self, declared: DeclaredTools) -> list[Notice]:
        """What keeps tools away from the model."""
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

    def request(
        self, declared: DeclaredTools, conversation: Conversation, command: facts.AskModel, *, stream: bool
    ) -> ModelRequest:
        """What a model is asked with. Where only a typed answer is wanted, no tool stands in its way."""
        answer_only = command.output is not None and command.tool_choice == "none"
        if answer_only:
            declared = _NO_TOOLS
        return ModelRequest(
            conversation=conversation,
            definitions=declared.definitions,
            declaration=declared.declaration,
            tool_choice=command.tool_choice,
            system=self.system,
            settings=self.settings,
            feedback=command.feedback,
            output=command.output,
            stream=stream,
        )

    async def aclose(self) -> None:
        """Lets go of what the model holds open, and a store of the gate's own."""
        await close_model(self.model)
        if self.owns_store:
            await self.store.aclose()


async def _whole_result(store: Store, session: str, call_id: str) -> str | None:
    """The text of a result, of which the model may have seen only a part."""
    ended = (fact for fact in await store.load(session) if isinstance(fact, facts.CallEnded) and fact.id == call_id)
    return next((whole_text(fact.result) for fact in ended), None)


# What a gate is given ------------------------------------------------------------------------------------------------------

# A mistake in one of these would else come to light in the middle of a run, or never.
_PARTS: Mapping[str, tuple[Any, str]] = {
    "limits": (Limits, "a Limits object, as in limits=Limits(turns=5)"),
    "policy": (Policy, "a Policy object, as in policy=Policy(default='ask')"),
    "rates": (RateLimits, "a RateLimits object"),
    "settings": (Mapping, "names and values, as in settings={'temperature': 0}"),
    "prices": (Mapping, "prices by model, as in prices={'gemini-3.8-flash': Price(input=0.3, output=2.5)}"),
    "system": (str, "text"),
    "approve": (Callable, "a function that is called with a call, its definition and the reason for asking"),
}


def usable_parts(tools: Any, given: Mapping[str, object]) -> Iterable[object]:
    """The tools as a list, if this and everything else that a gate was given is of a kind that it can use.

    Raises:
        UsageError: something is of another kind; the message says what is expected.
    """
    for name, (kind, expected) in _PARTS.items():
        if given.get(name) is not None and not isinstance(given[name], kind):
            raise UsageError(f"{name}={given[name]!r:.200}: expected {expected}")
    if tools is None:
        return ()
    if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
        raise UsageError(f"tools={tools!r:.200}: expected a list, as in tools=[get_weather, FileTools('.')]")
    return cast("Iterable[object]", tools)


def usable_history(history: Any) -> list[Mapping[str, Any]] | None:
    """The contents to begin from.

    Raises:
        UsageError: they are no list of contents, or those of another system, of which nothing would be left.
    """
    if history is None:
        return None
    if isinstance(history, (str, bytes, Mapping)) or not isinstance(history, Iterable):
        raise UsageError(f"history={history!r:.200}: expected a list of contents, such as reply.contents")
    contents = list(cast("Iterable[Any]", history))
    for index, content in enumerate(contents):
        if isinstance(content, Mapping) and "content" in content and "parts" not in content:
            raise UsageError(
                f"history[{index}] has 'content' where Gemini's form has 'parts': convert it first, with "
                "convert(history, target='gemini', kind='history').value"
            )
    return contents
