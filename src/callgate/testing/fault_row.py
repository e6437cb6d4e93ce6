"""A fault: a row of the table of faults, and a script step made of it.

Pure data; the actions are in `faults_http` and `faults_content`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from callgate.errors import UsageError
from callgate.testing.exchange import Exchange

__all__ = ["Act", "Fault", "FaultStep", "content", "error", "row", "step_of"]

Act: TypeAlias = Callable[[Any], Awaitable[None]]
"""The action of a fault on the `Exchange` of one request, a class of each fake server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One way in which a server fails."""

    row: str
    """Its number in the table of faults, such as `W07`."""
    name: str
    summary: str
    variants: Mapping[str, Act] = field(repr=False)
    """Its variants; the first is the usual one."""
    times: int | None = 1
    """Requests that one script step of it takes; None means all that follow."""
    lasts_s: float | None = None
    """Take every request for so many seconds of the server's clock, counted from the first, instead of `times`."""
    on_accept: bool = False
    """Strike a new connection before a byte of it is read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultStep:
    """A fault in a script: which one, which variant, how often, and for which answer."""

    fault: Fault
    """The fault."""
    variant: str
    """The variant of the fault."""
    times: int | None
    """Requests that it takes; None means all that follow."""
    answer: Any = None
    """The answer that is spoiled; None lets the fault choose."""
    at: int | None = None
    """The byte of the body where it happens, for faults that have a place."""

    async def act(self, exchange: Exchange) -> None:
        """Apply it to one request."""
        exchange.planned, exchange.at = self.answer, self.at
        await self.fault.variants[self.variant](exchange)


def row(number: str, name: str, summary: str, variants: Act | Mapping[str, Act], **options: Any) -> Fault:
    """Make one row of the table; a fault with a single variant need not name it."""
    named: Mapping[str, Act] = {"usual": variants} if callable(variants) else variants
    return Fault(row=number, name=name, summary=summary, variants=named, **options)


def step_of(found: Fault, variant: str, name: str, **options: Any) -> FaultStep:
    """A script step of a fault in one of its variants; without one, in the usual one.

    Raises:
        UsageError: there is no such variant.
    """
    chosen = variant or next(iter(found.variants))
    if chosen not in found.variants:
        raise UsageError(f"fault {name!r} has no variant {chosen!r}; it has {', '.join(found.variants)}")
    return FaultStep(fault=found, variant=chosen, times=options.pop("times", found.times), **options)


def content(make: Callable[[Exchange], Any]) -> Act:
    """A fault of the content, not of the transport: the answer is made for the request and sent correctly."""

    async def act(exchange: Exchange) -> None:
        await exchange.answer(make(exchange))

    return act


def error(code: int, status: str, message: str, *details: dict[str, Any], **headers: str) -> Act:
    """An error in Google's form. `{model}` and `{key}` in the message are replaced."""

    async def act(exchange: Exchange) -> None:
        request = exchange.request
        told = message.replace("{model}", request.model).replace("{key}", request.headers.get("x-goog-api-key", ""))
        await exchange.error(code, status, told, details=details, **headers)

    return act
