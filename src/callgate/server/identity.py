"""Principals: who sends a request, what it may do, and how much of it.

A token comes in, a `Principal` goes out. Files of tokens are in `access_file.py`, tokens of an identity provider in
`oidc.py`; here are only their words, and the check of rights that every route goes through.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from callgate.errors import UsageError
from callgate.server.errors import HttpError

__all__ = [
    "CURRENT_PRINCIPAL", "EVERYTHING", "RIGHTS", "Identities", "Principal", "Quota", "Right", "check_right", "trouble_of",
]  # fmt: skip

Right: TypeAlias = "Literal['chat', 'approve', 'admin']"
RIGHTS: tuple[Right, ...] = ("chat", "approve", "admin")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Limits of one principal; None: no limit."""

    requests_per_minute: int | None = None
    """A limit of all processes that share the store together, like the others."""
    runs: int | None = None
    """At the same time."""
    tokens_per_day: int | None = None
    """A day ends at midnight, UTC."""
    cost_per_day: float | None = None

    @property
    def is_metered(self) -> bool:
        """True if usage has to be kept."""
        return self.tokens_per_day is not None or self.cost_per_day is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """A principal that may use the service."""

    name: str
    """The name in the audit log and in the access log."""
    owner: str | None = None
    """The owner of its sessions; None: no one, so only administrators see them."""
    rights: frozenset[Right] = frozenset(RIGHTS)
    """The rights: to chat, to approve calls, to administer."""
    quota: Quota = field(default_factory=Quota)
    """The limits on what it may use."""
    models: tuple[str, ...] = ()
    """Patterns of models that it may name besides the usual one, such as `gemini:*`; empty: any."""

    def may(self, right: Right) -> bool:
        """Return whether it has a right; administrators have all of them."""
        return right in self.rights or "admin" in self.rights

    @property
    def sees_all(self) -> bool:
        """True if it may use sessions of others, too."""
        return "admin" in self.rights


class Identities(Protocol):
    """Principals by their tokens."""

    async def principal(self, token: str) -> Principal | None:
        """Return the principal that a token stands for; None if there is none."""
        ...


def trouble_of(identities: Identities | None) -> str | None:
    """Return a sentence on what is wrong with the source of principals, if it can tell and something is."""
    found = getattr(identities, "trouble", None)
    return found if isinstance(found, str) else None


EVERYTHING = Principal(name="token")
"""The holder of the service's one token, and everybody where there is none."""

CURRENT_PRINCIPAL: ContextVar[Principal | None] = ContextVar("callgate_principal", default=None)
"""The principal whose request is being answered; None in the program's own code."""


def check_right(principal: Principal | None, right: Right) -> None:
    """Refuse what a principal has no right to.

    Raises:
        HttpError: it has not.
    """
    if principal is not None and not principal.may(right):
        raise HttpError(403, "forbidden", f"{principal.name!r} has no right to do this: it needs {right!r}")


def allows_model(patterns: Iterable[str], provider: str, model: str | None) -> bool:
    """Return whether a model is among those that patterns name, by its own name or as `provider:model`."""
    names = [f"{provider}:{model or ''}", *([model] if model else [])]
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in names)


def rights_of(words: object, where: str) -> frozenset[Right]:
    """Read a list of rights.

    Raises:
        UsageError: it is none.
    """
    found: list[Right] = [right for right in RIGHTS if isinstance(words, (list, tuple)) and right in words]
    if not isinstance(words, (list, tuple)) or len(found) != len(set(words)) or not found:  # pyright: ignore[reportUnknownArgumentType]
        raise UsageError(f"{where}: rights must be a list of {', '.join(map(repr, RIGHTS))}")
    return frozenset(found)
