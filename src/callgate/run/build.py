"""Build the configuration of a gate from its arguments, or raise an error that says what is wrong with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

from callgate.base_errors import UsageError, expect
from callgate.declaration import DECLARATIONS_MAX
from callgate.models.choice import ModelLike, open_model
from callgate.permission import Policy, RateLimits
from callgate.permission.guard import Guard
from callgate.run.config import GateConfig
from callgate.run.declared_tools import ToolDeclarer
from callgate.run.inputs import CacheLike, PricesLike, split_tools, usable_caches, usable_parts, usable_prices
from callgate.store import Durability, Store, open_store
from callgate.tools.executor import Executor
from callgate.tools.find_tools import FindTools
from callgate.types import Limits

if TYPE_CHECKING:
    from callgate.mcp.host import Elicit
    from callgate.models import Mode
    from callgate.models.choice import Api
    from callgate.permission import Approve, AuditLog

__all__ = ["build_config"]


def build_config(  # noqa: PLR0913 - the arguments of a gate
    model: ModelLike,
    tools: Iterable[object] | None,
    *,
    system: str | None,
    mode: Mode,
    api: Api | None,
    settings: Mapping[str, Any] | None,
    limits: Limits | None,
    policy: Policy | None,
    approve: Approve | None,
    elicit: Elicit | None,
    store: Store | str | PathLike[str] | None,
    rates: RateLimits | None,
    audit: AuditLog | str | PathLike[str] | None,
    cache: CacheLike,
    tools_shown: int | None,
    tool_aliases: Mapping[str, str] | None,
    prices: PricesLike,
    compaction: Literal["summary", "trim"],
    durable: Durability,
) -> GateConfig:
    """Build the configuration of a gate.

    Raises:
        UsageError: an argument cannot be used; the message says what is expected.
    """
    shown_max = DECLARATIONS_MAX // 2 - 1  # The other half is left for tools that are found.
    is_number = isinstance(tools_shown, int) and not isinstance(tools_shown, bool)
    if tools_shown is not None and not (is_number and 0 <= tools_shown <= shown_max):
        raise UsageError(f"tools_shown={tools_shown!r:.200}: use a number from 0 to {shown_max}, or None for all tools")
    if compaction not in ("summary", "trim"):
        raise UsageError(f"compaction={compaction!r}: use 'summary' or 'trim'")
    given = {"limits": limits, "policy": policy, "approve": approve, "elicit": elicit, "rates": rates, "prices": prices}
    functions, built_in = split_tools(usable_parts(tools, given | {"settings": settings, "system": system}))
    limits, policy = limits or Limits(), policy or Policy()
    executor = Executor(functions, limits=limits, aliases=tool_aliases)
    if tools_shown is not None:
        declarable = policy.declarable
        executor.register(FindTools(lambda: declarable(executor.definitions)))
    if durable not in ("effects", "everything"):
        raise UsageError(f"durable={durable!r}: use 'effects' or 'everything'")
    results, contexts = usable_caches(cache)
    opened = open_store(store, durable=durable)
    guard = Guard(
        tools=executor,
        policy=policy,
        approve=approve,
        rates=rates or RateLimits(),
        audit=None if audit is None else _audit_log(audit),
        cache=results,
    )
    declarer = ToolDeclarer(
        executor=executor,
        store=opened,
        built_in=tuple(built_in),
        tools_shown=tools_shown,
        output_chars=limits.output_chars,
    )
    config = GateConfig(
        model=open_model(model, mode=mode, api=api, limits=limits),
        declarer=declarer,
        cache=contexts,
        limits=limits,
        guard=guard,
        store=opened,
        owns_store=isinstance(store, (str, PathLike)),
        find_price=usable_prices(prices).find,
        compaction=compaction,
        system=system,
        settings=dict(settings or {}),
        is_durable=durable == "everything",
    )
    config.declare()  # Raises now what would fail in the first request.
    return config


def _audit_log(given: AuditLog | str | PathLike[str]) -> AuditLog:
    from callgate.permission import AuditLog

    expect(given, (str, PathLike, AuditLog), "audit={}", "the path of an audit log, or an AuditLog object")
    return given if isinstance(given, AuditLog) else AuditLog(given)
