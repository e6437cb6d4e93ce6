"""The journal in memory: for tests, scripts, and services that keep their conversations elsewhere.

Facts go in and come out as the same objects. A session that was given no name by the caller is forgotten when there are
`sessions_max` newer ones of that kind.
"""

from __future__ import annotations

from collections.abc import Sequence

from callgate.errors import SessionBusy
from callgate.facts import Fact

__all__ = ["ANONYMOUS_PREFIX", "MemoryStore"]

ANONYMOUS_PREFIX = "s-"
"""Ids that callgate makes up begin like this; only such sessions are ever forgotten."""


class MemoryStore:
    """Keeps facts in lists."""

    def __init__(self, *, sessions_max: int = 1_000) -> None:
        self._sessions: dict[str, list[Fact]] = {}
        self._anonymous: dict[str, None] = {}
        self._sessions_max = sessions_max

    async def load(self, session: str) -> list[Fact]:
        """All facts of the session, oldest first; none when it is new."""
        return list(self._sessions.get(session, ()))

    async def append(self, session: str, facts: Sequence[Fact], *, position: int, durable: bool = False) -> None:
        """Adds facts behind the `position` facts that the writer knows of.

        Raises:
            SessionBusy: the session has other facts there.
        """
        journal = self._sessions.get(session, [])
        if len(journal) != position:
            raise SessionBusy(
                f"session {session!r} was changed by somebody else: it has {len(journal)} facts, not {position}"
            )
        journal.extend(facts)
        self._sessions[session] = journal
        if session.startswith(ANONYMOUS_PREFIX):
            # A dict keeps the order in which keys were put in, so the first one was written to longest ago.
            self._anonymous.pop(session, None)
            if len(self._anonymous) >= self._sessions_max > 0:
                oldest = next(iter(self._anonymous))
                del self._anonymous[oldest], self._sessions[oldest]
            self._anonymous[session] = None
