"""Claims of idempotency keys: requests that may be sent again are claimed before they are carried out.

A claim comes in; the one that holds the key goes out, be it this one or an older one. What the request asks for, and how far
it came, is none of this file's business: the journal of the claimed session says that.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Protocol, TypeGuard

__all__ = ["KEPT_S", "Claim", "IdempotencyKeys", "MemoryIdempotencyKeys", "has_idempotency_keys"]

KEPT_S = 24 * 3600.0
"""Seconds that a claim is valid. Older ones are deleted now and then."""
KEYS_MAX = 10_000
"""Number of idempotency keys in memory; the oldest are dropped first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A key, and the run that it stands for."""

    key: str
    """The idempotency key."""
    digest: str
    """Of what was asked for with the key: the same key with anything else is a mistake of the caller's."""
    session: str
    """The session of the run."""
    run: str
    """The name of the run in the journal of the session; empty if the session was deleted since."""
    owner: str
    """Last owner of the key: no other one may release it."""
    position: int = 0
    """Facts that the session had, if the request continues a run that was open in it; 0 if it starts one."""


class IdempotencyKeys(Protocol):
    """Optional methods of a store, for requests that may be sent again to any process. `Store` asks for none of it."""

    async def claim(self, claim: Claim) -> Claim:
        """Claim the key if it is free; return the claim that holds it, with its owner until now.

        Who asks for the same as it was claimed for becomes its owner. One of many that ask at once is the first.
        """
        ...

    async def unclaim(self, claim: Claim) -> None:
        """Release the key, unless another request has claimed it since."""
        ...


def has_idempotency_keys(store: object) -> TypeGuard[IdempotencyKeys]:
    """Return whether a store can keep claims."""
    return hasattr(store, "claim") and hasattr(store, "unclaim")


class MemoryIdempotencyKeys:
    """The claims of one process."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[Claim, float]] = OrderedDict()

    async def claim(self, claim: Claim) -> Claim:
        """Claim the key if it is free; return the claim that holds it, with its owner until now."""
        now = time.monotonic()
        held, at_s = self._held.get(claim.key, (claim, now))
        if at_s + KEPT_S <= now:
            del self._held[claim.key]
            held, at_s = claim, now
        owner = claim.owner if held.digest == claim.digest else held.owner
        self._held[claim.key] = (replace(held, owner=owner), at_s)
        while len(self._held) > KEYS_MAX or next(iter(self._held.values()))[1] + KEPT_S <= now:
            self._held.popitem(last=False)
        return held

    async def unclaim(self, claim: Claim) -> None:
        """Release the key, unless another request has claimed it since."""
        held, _ = self._held.get(claim.key, (None, 0.0))
        if held is not None and (held.run, held.owner) == (claim.run, claim.owner):
            del self._held[claim.key]

    def session_deleted(self, session: str) -> None:
        """Forget the outcome of the claims of a session."""
        for key, (held, at_s) in self._held.items():
            if held.session == session:
                self._held[key] = (replace(held, run=""), at_s)
