"""The journal in memory: for tests, scripts, and services that keep their conversations elsewhere.

Facts go in and come out as the same objects. A session that was given no name by the caller is forgotten when there are
`sessions_max` newer ones of that kind; a run that names it later is refused (see `check_known`).
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from callgate.errors import SessionBusyError, SessionLostError, UsageError, checked_values
from callgate.machine.facts import Fact
from callgate.store.anonymous import is_anonymous, is_new
from callgate.store.idempotency import Claim, MemoryIdempotencyKeys
from callgate.store.principals import Used
from callgate.store.protocol import LEASE_S, Lease, SessionInfo, check_id, title_of

__all__ = ["MemoryStore"]


@dataclass(slots=True)
class _StoredSession:
    created_s: float
    updated_s: float
    facts: list[Fact] = field(default_factory=list[Fact])
    fence: int = 0
    owner: str | None = None


@checked_values
class MemoryStore:
    """Store of facts in lists. Leases never expire: an owner in the same process releases its sessions, or all die."""

    def __init__(self, *, sessions_max: int = 1_000) -> None:
        if isinstance(sessions_max, bool) or not isinstance(sessions_max, int) or sessions_max < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"MemoryStore(sessions_max={sessions_max!r:.200}): expected a whole number of at least 1")
        self._sessions: dict[str, _StoredSession] = {}
        self._anonymous: OrderedDict[str, _StoredSession] = OrderedDict()
        """Sessions without a name, the least recently written first."""
        self._sessions_max = sessions_max
        self._keys = MemoryIdempotencyKeys()
        self._principals: dict[str, str] = {}
        self._usage: dict[tuple[str, str], Used] = {}

    async def acquire(self, session: str, *, owner: str, lease_s: float = LEASE_S) -> Lease:
        """Make `owner` the one who may write.

        Raises:
            UsageError: the id cannot be that of a session.
            SessionBusyError: another run in this process holds it.
        """
        check_id(session)
        kept = self._sessions.get(session)
        if kept is None:
            kept = self._begin(session)
        elif kept.owner is not None and kept.owner != owner:
            raise SessionBusyError(f"session {session!r} is in use: another run of this program is at work on it")
        kept.owner = owner
        kept.fence += 1
        return Lease(session=session, fence=kept.fence, position=len(kept.facts))

    async def renew(self, lease: Lease, *, lease_s: float = LEASE_S) -> None:
        """See whether the lease still holds.

        Raises:
            SessionLostError: another process has it now.
        """
        self._owned(lease)

    async def release(self, lease: Lease) -> None:
        """Give the session free; one that was never written to is forgotten."""
        kept = self._sessions.get(lease.session)
        if kept is not None and kept.fence == lease.fence:
            kept.owner = None
            if not kept.facts:
                self._forget(lease.session)

    async def load(self, session: str, *, start: int = 0) -> list[Fact]:
        """Load the facts of the session from `start` on, oldest first; none when it is new.

        Raises:
            UsageError: the id cannot be that of a session.
        """
        check_id(session)
        kept = self._sessions.get(session)
        return kept.facts[start:] if kept else []

    async def append(self, lease: Lease, facts: Sequence[Fact], *, position: int, durable: bool = False) -> None:
        """Append facts after the `position` facts that the writer knows of.

        Raises:
            SessionLostError: another process has taken over the session.
        """
        kept = self._owned(lease)
        if len(kept.facts) != position:
            raise SessionLostError(
                f"session {lease.session!r} has {len(kept.facts)} facts, and its owner knows of {position}"
            )
        kept.facts += facts
        kept.updated_s = time.time()
        if lease.session in self._anonymous:
            self._anonymous.move_to_end(lease.session)

    async def sessions(self) -> list[SessionInfo]:
        """All sessions, the one that was written to last first."""
        listed = [
            SessionInfo(
                id=session,
                title=title_of(kept.facts),
                facts=len(kept.facts),
                created_s=kept.created_s,
                updated_s=kept.updated_s,
                owner=kept.owner,
            )
            for session, kept in self._sessions.items()
            if kept.facts
        ]
        return sorted(listed, key=lambda info: info.updated_s, reverse=True)

    async def copy(self, session: str, target: str, *, facts: int | None = None) -> None:
        """Make `target` a new session with the same facts, or with the first ones.

        Raises:
            UsageError: there is no such session, the target exists, or one of them cannot be an id.
        """
        check_id(session)
        check_id(target)
        kept = self._sessions.get(session)
        if kept is None:
            raise UsageError(f"there is no session {session!r}")
        if target in self._sessions:
            raise UsageError(f"there is a session {target!r} already")
        self._begin(target).facts += kept.facts[:facts]

    async def delete(self, session: str) -> bool:
        """Forget the session; whether there was one.

        Raises:
            UsageError: the id cannot be that of a session.
            SessionBusyError: it is in use.
        """
        check_id(session)
        kept = self._sessions.get(session)
        if kept is not None and kept.owner is not None:
            raise SessionBusyError(f"session {session!r} is in use and was not deleted")
        self._forget(session)
        return kept is not None

    async def claim(self, claim: Claim) -> Claim:
        """Claim the key if it is free; return the claim that holds it, with its owner until now."""
        return await self._keys.claim(claim)

    async def unclaim(self, claim: Claim) -> None:
        """Release the key, unless another request has claimed it since."""
        await self._keys.unclaim(claim)

    async def assign(self, session: str, principal: str) -> str | None:
        """Assign a session that does not exist to a principal; return its owner, None if it has none."""
        if session not in self._sessions:
            self._principals.setdefault(session, principal)
        return self._principals.get(session)

    async def principal_of(self, session: str) -> str | None:
        """Return the owner of a session; None if it has none."""
        return self._principals.get(session)

    async def owned(self, sessions: list[str], principal: str) -> set[str]:
        """Return those of the sessions that belong to the principal."""
        return {session for session in sessions if self._principals.get(session) == principal}

    async def add_usage(self, principal: str, period: str, used: Used) -> None:
        """Add to what a principal has used in a period."""
        known = self._usage.get((principal, period), Used())
        self._usage[principal, period] = Used(known.tokens + used.tokens, known.cost + used.cost)

    async def usage(self, principal: str, period: str) -> Used:
        """Return what a principal has used in a period."""
        return self._usage.get((principal, period), Used())

    async def aclose(self) -> None:
        """Close nothing: there is no connection."""

    def check_known(self, session: str) -> None:
        """Refuse to begin a session under a made-up id that was in use before: it would have lost what was said in it.

        Raises:
            UsageError: the session was forgotten, or was one of another process.
        """
        if session not in self._sessions and is_anonymous(session) and not is_new(session):
            raise UsageError(
                f"there is no session {session!r} any more: of sessions without a name, memory holds the last "
                f"{self._sessions_max} of its process. Name your sessions (session=...), raise sessions_max of MemoryStore, "
                "or use another store"
            )

    def _owned(self, lease: Lease) -> _StoredSession:
        kept = self._sessions.get(lease.session)
        if kept is None or kept.fence != lease.fence:
            raise SessionLostError(f"session {lease.session!r} was taken over by another run of this program")
        return kept

    def _begin(self, session: str) -> _StoredSession:
        now_s = time.time()
        kept = self._sessions[session] = _StoredSession(now_s, now_s)
        if is_anonymous(session):
            while len(self._anonymous) >= self._sessions_max and self._forget_oldest():
                pass
            self._anonymous[session] = kept
        return kept

    def _forget_oldest(self) -> bool:
        """Return whether there is one that nobody is at work on."""
        try:
            free = next((session for session, kept in self._anonymous.items() if kept.owner is None), None)
        except RuntimeError:  # Another thread has begun a session meanwhile; the next one looks again.
            return False
        if free is not None:
            self._forget(free)
        return free is not None

    def _forget(self, session: str) -> None:
        kept = self._sessions.pop(session, None)
        if kept is not None and kept.facts:
            self._keys.session_deleted(session)
        if is_anonymous(session):  # Its id was made up at random; a name that was chosen stays with its principal.
            self._principals.pop(session, None)
        self._anonymous.pop(session, None)
