"""The gate: a conversation in which a model can call tools.

Takes prompts, returns events and replies. `run.py` is one run, `config.py` what all runs share, `resources.py` what is
opened and closed. They are imported when a gate is built: a program that only imports the class starts fast.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from callgate.base_errors import expect
from callgate.run.run_methods import RunMethods

if TYPE_CHECKING:
    from callgate.calls.observer import Emit
    from callgate.content.collect import ModelResponse
    from callgate.declaration import Declaration
    from callgate.mcp.host import Elicit
    from callgate.models import AnsweredBy, Mode, Model
    from callgate.models.choice import Api, ModelLike
    from callgate.permission import Approve, AuditLog, Policy, RateLimits, Remaining
    from callgate.permission.guard import Guard
    from callgate.prices import PriceTable
    from callgate.run.config import GateConfig
    from callgate.run.inputs import CacheLike
    from callgate.run.resources import Resources
    from callgate.run.run_request import RunRequest
    from callgate.store import Durability, Store
    from callgate.tools.executor import Executor
    from callgate.types import (
        CallRecord,
        Content,
        Limits,
        ModelSettings,
        Price,
        Reply,
        SessionRule,
        ToolChoice,
        ToolDefinition,
        Usage,
    )

_SHOWN = 5
"""Tools that the text form of a gate names."""

__all__ = ["Gate", "context_tokens", "cost_of", "guard_of", "unpriced_models"]


class Gate(RunMethods):
    """A conversation in which a model can call tools.

    ```python
    gate = Gate(model, tools=[get_weather])
    reply = await gate.run("Oslo and Rome?")
    ```

    Tools are functions, toolsets, and the names of tools that run at Google (`"google_search"`, or `{"codeExecution":
    {}}` with a configuration). With more tools than a model can handle, `tools_shown=20` declares the first twenty and a
    tool `find_tools`, with which the model finds and loads the others. `tool_aliases={"@git/status": "git_status"}` declares
    a tool under another name; rules, hooks and the audit log know it by both.

    The model is a name, a model object, or a list of these as a fallback chain: if the first cannot be reached, the next
    takes over. Without one, Gemini is used if there is a key, and the embedded model otherwise. `api` is the API by which
    Gemini is asked, `generateContent` (the default) or `interactions`. `policy` and `approve`
    decide what may run, `rates` how often; `audit` is the path of an audit log. `cache` is a `ContextCache` (the beginning
    of requests is kept at the provider), a `ResultCache` (repeated read-only calls are answered from memory), or a list of
    both. `elicit` answers questions of MCP servers to the user. With `durable="everything"` every fact is on
    the disk before the run continues, not only those that precede an effect.

    A gate has no conversation of its own: `reply.session` is the id of the one that a run began, and `run(...,
    session=...)` continues it.
    """

    def __init__(  # noqa: PLR0913 - the one place where everything meets; all but the first two are keyword-only
        self,
        model: ModelLike = None,
        tools: Iterable[object] | None = (),
        *,
        system: str | None = None,
        mode: Mode = "auto",
        api: Api | None = None,
        settings: ModelSettings | None = None,
        limits: Limits | None = None,
        policy: Policy | None = None,
        approve: Approve | None = None,
        elicit: Elicit | None = None,
        store: Store | str | PathLike[str] | None = None,
        rates: RateLimits | None = None,
        audit: AuditLog | str | PathLike[str] | None = None,
        cache: CacheLike = None,
        tools_shown: int | None = None,
        tool_aliases: Mapping[str, str] | None = None,
        prices: Mapping[str, Price | None] | PriceTable | None = None,
        compaction: Literal["summary", "trim"] = "summary",
        durable: Durability = "effects",
    ) -> None:
        from callgate.run.build import build_config
        from callgate.run.resources import Resources

        self._config = build_config(
            model, tools, system=system, mode=mode, api=api, settings=settings, limits=limits, policy=policy,
            approve=approve, elicit=elicit, store=store, rates=rates, audit=audit, cache=cache, tools_shown=tools_shown,
            tool_aliases=tool_aliases, prices=prices, compaction=compaction, durable=durable,
        )  # fmt: skip
        self._resources = Resources(self._config, elicit)
        self._model: ModelLike = model
        self._mode: Mode = mode
        self._api: Api | None = api

    def with_options(
        self,
        model: ModelLike = None,
        *,
        mode: Mode | None = None,
        api: Api | None = None,
        policy: Policy | None = None,
        system: str | None = None,
        settings: ModelSettings | None = None,
    ) -> Gate:
        """Return the same gate with other options; everything else, including sessions, is shared.

        `system` replaces the gate's own system text, `settings` are merged over the gate's own. A conversation can change
        its model, API, mode or policy at any turn.

        Raises:
            UsageError: the model cannot be used, or not in this mode.
        """
        config = replace(
            self._config,
            system=self._config.system if system is None else system,
            settings={**self._config.settings, **(settings or {})},
        )
        same_model = model is None and mode in (None, self._mode) and api in (None, self._api)
        if same_model and policy is None:
            return self._derived(config, self._resources, self._model, self._mode)
        from callgate.models.choice import open_model

        named, mode = self._model if model is None else model, mode or self._mode
        is_named = named is None or isinstance(named, (str, list, tuple))
        api = api or (self._api if is_named else None)
        opened = config.model if same_model else open_model(named, mode=mode, api=api, limits=config.limits)
        config = replace(config, model=opened, guard=copy.copy(config.guard))
        config.guard.policy = policy or self._config.guard.policy
        derived = self._derived(config, self._resources.derive(config), named, mode)
        derived._api = api
        return derived

    @property
    def definitions(self) -> list[ToolDefinition]:
        """The declared tools; of servers, their current ones."""
        self._config.executor.refresh()
        return list(self._config.declare().definitions)

    @property
    def audit(self) -> AuditLog | None:
        """The audit log, if there is one."""
        return self._config.guard.audit

    @property
    def policy(self) -> Policy:
        """The permission policy; its `problems` also name rules that none of the gate's tools can fit."""
        guard = self._config.guard
        found = guard.enforced.problems
        return guard.policy if found == guard.policy.problems else replace(guard.policy, problems=found)

    @property
    def system(self) -> str | None:
        """The system text."""
        return self._config.system

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of requests."""
        return self._config.settings

    @property
    def model(self) -> Model:
        """The model that answers."""
        return self._config.model

    @property
    def mode(self) -> Mode:
        """Presentation of the tools to the model."""
        return self._mode

    @property
    def limits(self) -> Limits:
        """Every bound of its runs."""
        return self._config.limits

    @property
    def store(self) -> Store:
        """The store of its sessions."""
        return self._config.store

    @property
    def tools(self) -> Executor:
        """The executor of its tools."""
        return self._config.executor

    @property
    def declaration(self) -> Declaration:
        """The declaration of the tools, with all losses."""
        return self._config.declare().declaration

    @property
    def approve(self) -> Approve | None:
        """The approval callback; set it to replace it from the next run on."""
        return self._config.guard.approve

    @approve.setter
    def approve(self, approve: Approve | None) -> None:
        self._config.guard.approve = approve

    @property
    def elicit(self) -> Elicit | None:
        """Callback for questions of MCP servers that have no `Host.elicit` of their own; set it for the next run.

        A server learns on start whether questions are supported.
        """
        return self._resources.elicit

    @elicit.setter
    def elicit(self, elicit: Elicit | None) -> None:
        self._resources.elicit = elicit

    def budget(self) -> dict[str, Remaining]:
        """The remaining budget of each rate limit in use: by tool, by kind, in total, and for the model."""
        return self._config.guard.budget()

    async def session_rules(self, session: str) -> list[SessionRule]:
        """The lasting answers that a session goes by: what was answered with "always" and not revoked."""
        from callgate.run.session_changes import session_rules

        return await session_rules(self._resources, session)

    async def revoke(self, session: str, rule: str | None = None) -> int:
        """Revoke a session rule by its id, or all of them; return how many. Works during a run, too."""
        from callgate.run.session_changes import revoke

        return await revoke(self._resources, session, rule)

    async def rename(self, session: str, title: str) -> str:
        """Set the title of a session, shortened to one line; return it. Works during a run, too.

        Raises:
            UsageError: there is no such session, or the title is empty.
            SessionBusyError: another process holds the session.
        """
        from callgate.run.session_changes import rename

        return await rename(self._resources, session, title)

    async def delete(
        self, session: str, *, before_s: float | None = None, report: Callable[[str], object] | None = None
    ) -> bool:
        """Delete a session, and the files and interactions of its runs at the provider; return False if there is none.

        With `before_s` (seconds since 1970), a session that was written to since then is kept. `report` is called with a
        sentence for everything that could not be deleted at the provider, which is logged as well.

        Raises:
            SessionBusyError: a run of the session is not over.
        """
        from callgate.run.session_changes import delete

        return await delete(self._config, self._resources, session, before_s=before_s, report=report)

    async def prepare(self, *, tools: bool = True) -> None:
        """Start the tools, and let a slow model process the list of tools in advance.

        Enter the gate (`async with gate`) before: what is started is closed after the last use of the gate. With
        `tools=False` they are not started.

        Raises:
            UsageError: the model cannot be loaded.
        """
        from callgate.run.model_turn import prepare_model

        async with self._resources.in_use() if tools else contextlib.nullcontext():
            await prepare_model(self._config)

    async def compact(self, session: str) -> int:
        """Shorten the history of a session now: all but the newest exchange is summarized by the model, or dropped.

        `compaction` selects which. Returns the number of contents; 0 when there is nothing to shorten.

        Raises:
            ModelError: the model gave no summary. Nothing was changed.
            UsageError: a run of the session is not over.
        """
        from callgate.run.session_changes import compact

        return await compact(self._config, self._resources, session)

    # Running --------------------------------------------------------------------------------------------------------------

    async def run_request(self, request: RunRequest, watch: Emit | None = None) -> Reply:
        """Like `run`, for a request that is put together already: for services, whose requests have idempotency keys.

        Raises:
            AlreadyStartedError: the request has started its run before, here or in another process.
        """
        return await self._resources.start(self._config, request, watch).wait()

    async def step(self, contents: str | Sequence[Content], *, tool_choice: ToolChoice = "auto") -> ModelResponse:
        """Send one request and execute nothing: for programs with their own loop.

        Raises:
            ModelError: the model could not be reached, or its answer is invalid.
        """
        from callgate.run.model_turn import ask_once

        async with self._resources.in_use():
            return await ask_once(self._config, contents, tool_choice)

    def cancel(self, session: str, reason: str = "The user cancelled the run.") -> bool:
        """Cancel the run of a session cleanly: its reply follows soon, with the finish reason `cancelled`.

        Thread-safe. Returns True if the run will end as cancelled because of this; its caller gets that reply, and never
        an `asyncio.CancelledError`. Returns False and does nothing if no run is active: not started yet, already
        cancelling, or just finishing. From another thread it waits for the event loop of the run, for at most five
        seconds; after that it returns False.
        """
        return (known := self._resources.sessions.get(session)) is not None and known.cancel(reason)

    def interrupt(self, session: str, error: Exception) -> bool:
        """End the run of a session with this error where it stands; return whether there was one to interrupt.

        Its journal is left as a process that dies leaves it, and the session is released: the run can be resumed, here or in
        another process. Calls that run are stopped, and count as interrupted. Call it from any thread, as `cancel`.
        """
        expect(error, Exception, "interrupt(error={})", "an exception")
        return (known := self._resources.sessions.get(session)) is not None and known.interrupt(error)

    def open_calls(self, session: str) -> list[CallRecord]:
        """The unfinished calls of a session's run; empty if no run of it is active here."""
        known = self._resources.sessions.get(session)
        return [] if known is None or known.run is None else known.machine.open_calls

    async def start_tools(self) -> None:
        """Start the tools that must be started, such as MCP servers; they live as long as the gate is entered."""
        await self._resources.start_tools()

    def __repr__(self) -> str:
        names = [definition.name for definition in self._config.executor.definitions]
        shown = names[:_SHOWN] + [f"and {len(names) - _SHOWN} more"] * (len(names) > _SHOWN)
        return f"Gate({self.model.name!r}, tools=[{', '.join(shown)}])"

    def __enter__(self) -> Gate:
        self._resources.enter()
        return self

    def __exit__(self, *exc: object) -> None:
        if unused := self._resources.count_down():
            self._resources.close(unused)

    async def __aenter__(self) -> Gate:
        self._resources.enter()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._resources.leave()

    def close(self) -> None:
        """Close what `run_sync` opened: connections, and its thread, whose runs are cancelled; the next run opens it again.

        A gate derived with another model ends the thread only if no gate that shares it is in use.
        """
        self._resources.close([self._resources])

    # Internals ------------------------------------------------------------------------------------------------------------

    def _derived(self, config: GateConfig, resources: Resources, model: ModelLike, mode: Mode) -> Gate:
        other = copy.copy(self)
        other.__dict__ |= {"_config": config, "_resources": resources, "_model": model, "_mode": mode}
        return other


def guard_of(gate: Gate) -> Guard:
    """The guard before a gate's tools, for the other doors to the same tools."""
    return gate._config.guard  # pyright: ignore[reportPrivateUsage]


def unpriced_models(gate: Gate) -> list[str]:
    """Return the models of a gate that may answer and have no price."""
    return gate._config.unpriced()  # pyright: ignore[reportPrivateUsage]


def cost_of(gate: Gate, usage: Usage, who: AnsweredBy | None = None, version: str | None = None) -> float | None:
    """Return the cost of an answer by a gate's prices, if the model's price is known."""
    config = gate._config  # pyright: ignore[reportPrivateUsage]
    return config.cost_of(usage, who or config.who, version)


def context_tokens(gate: Gate, session: str) -> int:
    """Return about how many tokens the history of a session has whose run is active here; 0 if none is."""
    known = gate._resources.sessions.get(session)  # pyright: ignore[reportPrivateUsage]
    return 0 if known is None or known.run is None else known.machine.context_tokens
