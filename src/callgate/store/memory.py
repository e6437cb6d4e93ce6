"""The journal in memory: for tests, scripts, and services that keep their conversations elsewhere.

Facts go in and come out as the same objects. The newest sessions are kept; one that was given no name by the caller is
forgotten when `sessions_max` newer ones exist.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from callgate.errors import SessionBusy
from callgate.facts import Fact

__all__ = ["ANONYMOUS_PREFIX", "MemoryStore"]

ANONYMOUS_PREFIX = "s-"
"""Ids that callgate makes up begin like this; only such sessions are ever forgotten."""


class MemoryStore:
    """Keeps facts in lists."""

    def __init__(self, *, sessions_max: int = 1_000) -> None:
        self._sessions: OrderedDict[str, list[Fact]] = OrderedDict()
        self._sessions_max = sessions_max

    async def load(self, session: str) -> list[Fact]:
        """All facts of the session, oldest first; none when it is new."""
        return list(self._sessions.get(session, ()))

    async def append(self, session: str, facts: Sequence[Fact], *, position: int, durable: bool = False) -> None:
        """Adds facts behind the `position` facts that the writer knows of.

        Raises:
            SessionBusy: the session has other facts there.
        """
        journal = self._sessions.setdefault(session, [])
        if len(journal) != position:
            raise SessionBusy(
                f"session {session!r} was changed by somebody else: it has {len(journal)} facts, not {position}"
            )
        journal.extend(facts)
        self._sessions.move_to_end(session)
        if len(self._sessions) > self._sessions_max:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        for session in self._sessions:
            if session.startswith(ANONYMOUS_PREFIX):
                del self._sessions[session]
                return
