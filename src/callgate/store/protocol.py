"""The methods that every store has, and their types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, cast

from callgate.content.read import role_of
from callgate.content.title import TITLE_CHARS_MAX, title_from
from callgate.errors import UsageError
from callgate.machine.facts import Fact, HistoryGiven, Renamed, RunStarted
from callgate.strict_json import without_surrogates
from callgate.types import Content

__all__ = [
    "LEASE_S",
    "TITLE_CHARS_MAX",
    "Durability",
    "Lease",
    "SessionInfo",
    "Store",
    "check_id",
    "last_title",
    "title_of",
]

LEASE_S = 30.0
"""Seconds that a lease lasts unless it is renewed: the wait of others for an owner that has died elsewhere."""

Durability: TypeAlias = Literal["effects", "everything"]
"""The facts that wait for the disk: those that precede an effect, or every one."""

SESSION_CHARS_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to write to a session."""

    session: str
    """The id of the session."""
    fence: int
    """Number that grows with every owner; a store takes facts only from the newest."""
    position: int
    """Facts that the session had when the lease was given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A session as lists show it."""

    id: str
    """The id of the session."""
    title: str
    """The one that was given, or a line of plain text out of the first prompt."""
    facts: int
    """The number of its facts."""
    created_s: float
    """Seconds since 1970."""
    updated_s: float
    """Seconds since 1970, of its last fact."""
    owner: str | None = None
    """The current owner, if there is one."""


class Store(Protocol):
    """Store of the facts of sessions.

    What was begun is carried to its end: a caller that is cancelled meanwhile is told so only afterwards, because otherwise
    nobody would know what the store holds. An id that `check_id` refuses is a `UsageError` wherever it comes in.
    """

    async def acquire(self, session: str, *, owner: str, lease_s: float = LEASE_S) -> Lease:
        """Make `owner` the one who may write; a session that does not exist yet begins.

        Raises:
            SessionBusyError: another process holds it.
        """
        ...

    async def renew(self, lease: Lease, *, lease_s: float = LEASE_S) -> None:
        """Keep the lease for another `lease_s` seconds.

        Raises:
            SessionLostError: another process has it now.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Give the session free, if it is still held."""
        ...

    async def load(self, session: str, *, start: int = 0) -> list[Fact]:
        """Load the facts of the session from `start` on, oldest first; none when it is new.

        A fact that cannot be read any more is an `Unreadable` in its place.
        """
        ...

    async def append(self, lease: Lease, facts: Sequence[Fact], *, position: int, durable: bool = False) -> None:
        """Append facts after the `position` facts that the writer knows of; with `durable` they survive a loss of power.

        Raises:
            SessionLostError: another process has taken over the session.
        """
        ...

    async def sessions(self) -> list[SessionInfo]:
        """All sessions, the one that was written to last first."""
        ...

    async def copy(self, session: str, target: str, *, facts: int | None = None) -> None:
        """Make `target` a new session with the same facts, or with the first ones.

        Raises:
            UsageError: there is no such session, or the target exists.
        """
        ...

    async def delete(self, session: str) -> bool:
        """Forget the session; whether there was one.

        Raises:
            SessionBusyError: it is in use.
        """
        ...

    async def aclose(self) -> None:
        """Let go of files and connections; the store opens them again when it is used again."""
        ...


def title_of(facts: Sequence[Fact]) -> str:
    """The last title that was given, or that of the first prompt with words; empty if the facts hold none."""
    if (given := last_title(facts)) is not None:
        return _storable(given)
    made = (title_from(content) for fact in facts for content in _user_contents(fact))
    return next((_storable(title) for title in made if title), "")


def _storable(title: str) -> str:
    """Replace what PostgreSQL takes for the end of a text, and what no database can encode."""
    return without_surrogates(title.replace("\0", "\ufffd"))


def last_title(facts: Sequence[Fact]) -> str | None:
    """The last title that somebody gave among the facts, if somebody did."""
    return next((fact.title for fact in reversed(facts) if isinstance(fact, Renamed)), None)


def _user_contents(fact: Fact) -> list[Content]:
    if isinstance(fact, HistoryGiven):
        return [content for content in fact.contents if role_of(content) == "user"]
    return [fact.content] if isinstance(fact, RunStarted) and fact.content else []


def check_id(session: str) -> None:
    """Refuse an id that no store could keep, and no list could show. Lone surrogates are not printable, either.

    Raises:
        UsageError: the id is no text, empty or blank, too long, or not printable.
    """
    is_text = isinstance(cast("object", session), str)
    if not is_text or not 0 < len(session) <= SESSION_CHARS_MAX or not session.isprintable() or not session.strip():
        shown = repr(session)[: SESSION_CHARS_MAX + 2]
        raise UsageError(
            f"{shown} cannot be the id of a session: use 1 to {SESSION_CHARS_MAX} printable characters, not all blank"
        )
