"""Principals: whose session it is, and what each of them has used up.

A session belongs to the principal that named it first. Names of deleted sessions stay reserved for a day, so that nobody
else's request can meet a session under a name that has just changed hands. `Store` asks for none of these methods.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeGuard

__all__ = ["Principals", "Used", "keeps_principals"]


@dataclass(frozen=True, slots=True)
class Used:
    """Tokens and money that a principal has used in a period."""

    tokens: int = 0
    cost: float = 0.0


class Principals(Protocol):
    """Optional methods of a store whose sessions belong to somebody."""

    async def assign(self, session: str, principal: str) -> str | None:
        """Assign a session that does not exist to a principal; return its owner, None if it has none."""
        ...

    async def principal_of(self, session: str) -> str | None:
        """Return the owner of a session; None if it has none."""
        ...

    async def owned(self, sessions: list[str], principal: str) -> set[str]:
        """Return those of the sessions that belong to the principal."""
        ...

    async def add_usage(self, principal: str, period: str, used: Used) -> None:
        """Add to what a principal has used in a period."""
        ...

    async def usage(self, principal: str, period: str) -> Used:
        """Return what a principal has used in a period."""
        ...


def keeps_principals(store: object) -> TypeGuard[Principals]:
    """Return whether a store knows whose its sessions are."""
    return hasattr(store, "assign") and hasattr(store, "principal_of") and hasattr(store, "add_usage")
