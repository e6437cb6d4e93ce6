"""The configuration of a gate: everything that its runs share and none of them changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from callgate.calls.environment import Ask
from callgate.declaration import tool_config
from callgate.history.conversation import Conversation
from callgate.machine import facts
from callgate.models import (
    Accepted,
    AnsweredBy,
    ContextCache,
    Model,
    ModelRequest,
    billed_names,
    close_model,
    has_context_cache,
    members_of,
    origin_of,
    provider_of_model,
)
from callgate.permission.approval import request_approval
from callgate.permission.guard import Guard
from callgate.run.declared_tools import NO_TOOLS, DeclaredTools, ToolDeclarer, refuse_remote_servers
from callgate.store import Store
from callgate.telemetry import Spans, spans_of
from callgate.tools.executor import Executor
from callgate.types import Limits, Price, ToolChoice, Usage

__all__ = ["GateConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateConfig:
    """The configuration of a gate: everything that its runs share and none of them changes."""

    model: Model
    limits: Limits
    guard: Guard
    store: Store
    owns_store: bool
    """True if the gate opened the store itself, and so closes it."""
    find_price: Callable[[str, str], Price | None]
    """Return the price of a model on a day."""
    compaction: Literal["summary", "trim"]
    system: str | None
    settings: Mapping[str, Any]
    declarer: ToolDeclarer
    cache: ContextCache | None = None
    """Policy for caching the beginning of requests at the provider."""
    price_factor: float = 1.0
    """The part of the usual price that is billed."""
    is_durable: bool
    """True if every fact waits for the disk, and not only those that precede an effect."""
    who: AnsweredBy = field(init=False)
    """The name of the model, unless a response names another one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "who", AnsweredBy(self.model.name, origin_of(self.model)))

    @property
    def executor(self) -> Executor:
        """The tools."""
        return self.declarer.executor

    def declare(self, found: Collection[str] = ()) -> DeclaredTools:
        """The tools that are declared: those shown from the start, and those that were found since.

        Raises:
            UsageError: the model cannot have the settings, or Google would call a
                server among the tools without a rule that allows it.
        """
        for model in members_of(self.model):
            if (check := getattr(model, "check_settings", None)) is not None:
                check(self.settings)
        declared = self.declarer.declare(self.guard.policy, found)
        refuse_remote_servers(declared.declaration, self.guard.policy)
        return declared

    def check_choice(self, choice: ToolChoice) -> None:
        """Raise now what would fail in the first request."""
        if choice not in ("auto", "none"):
            tool_config(choice, self.declare().known.names)

    def unpriced(self) -> list[str]:
        """The models that may answer and have no price today."""
        today = time.strftime("%Y-%m-%d", time.gmtime())
        return [name for name in billed_names(self.model) if self.find_price(name, today) is None]

    @property
    def is_cache_unused(self) -> bool:
        """True if the beginning of requests is to be cached, and no model of the gate can do it."""
        return self.cache is not None and not has_context_cache(self.model)

    def cost_of(self, usage: Usage, who: AnsweredBy, version: str | None = None) -> float | None:
        """Return the cost of one answer, if the price of the model, or of the version that answered, is known."""
        today = time.strftime("%Y-%m-%d", time.gmtime())
        price = self.find_price(who.model, today) or (self.find_price(version, today) if version else None)
        tier = str(self.settings.get("service_tier") or "")
        return None if price is None else price.of(usage, tier) * self.price_factor

    @property
    def ask(self) -> Ask | None:
        """Answer a question with the gate's `elicit`, if there is one."""
        approve = self.guard.approve
        if approve is None:
            return None
        return lambda question: request_approval(approve, question.call, question.definition, question.reason)

    def new_spans(self, session: str) -> Spans:
        """Return the spans of a run, if tracing is enabled."""
        return spans_of(session, provider=provider_of_model(self.model), model=self.model.name)

    def request(
        self, declared: DeclaredTools, conversation: Conversation, command: facts.AskModel, *, stream: bool
    ) -> ModelRequest:
        """Build a request. If only a typed answer is wanted, it declares no tools."""
        taken = command.accepted
        answer_only = command.output is not None and command.tool_choice == "none"
        if answer_only:
            declared = NO_TOOLS
        return ModelRequest(
            conversation=conversation,
            definitions=declared.definitions,
            declaration=declared.declaration,
            tool_choice=command.tool_choice,
            system=self.executor.system_with_guidance(self.system),
            settings=self.settings,
            feedback=command.feedback,
            output=command.output,
            cache=self.cache,
            stream=stream,
            background_s=None if self.limits.background_s == Limits().background_s else self.limits.background_s,
            accepted=None if taken is None else Accepted(taken.id, taken.origin, background=taken.background),
        )

    async def aclose(self, *, keep_model: bool = False) -> None:
        """Close a store of the gate's own, the files of its audit log, and what the model holds open unless it is kept."""
        if not keep_model:
            await close_model(self.model)
        if self.owns_store:
            await self.store.aclose()
        if self.guard.audit is not None:
            self.guard.audit.close()  # The next record opens it again, so it may be somebody else's too.
