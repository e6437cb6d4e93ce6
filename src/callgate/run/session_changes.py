"""Changes of a session outside its runs: session rules, its title, the length of its history."""

from __future__ import annotations

import logging
from collections.abc import Callable

from callgate.errors import NewerSessionError, SessionBusyError, UsageError
from callgate.machine import facts
from callgate.run.config import GateConfig
from callgate.run.context import RunContext
from callgate.run.media import delete_caches, release_files
from callgate.run.model_turn import ModelTurn
from callgate.run.provider_deletion import delete_at_provider, uploads_of
from callgate.run.resources import Resources
from callgate.store.listing import delete_older
from callgate.store.protocol import TITLE_CHARS_MAX
from callgate.types import SessionRule

__all__ = ["compact", "delete", "rename", "revoke", "session_rules"]

logger = logging.getLogger("callgate.run")


async def session_rules(resources: Resources, session: str) -> list[SessionRule]:
    """The lasting answers that a session goes by."""
    async with resources.session(session) as (known, _):
        return list(known.machine.always.values())


async def revoke(resources: Resources, session: str, rule: str | None) -> int:
    """Revoke a lasting answer by its id, or all of them; return how many."""
    async with resources.session(session) as (known, lease):
        revoked = [held for held in known.machine.always if rule in (None, held)]
        if revoked:
            await known.journal(resources.store, lease, [facts.AlwaysRevoked(rule=rule)])
        return len(revoked)


async def rename(resources: Resources, session: str, title: str) -> str:
    """Set the title of a session, shortened to one line; return it.

    Raises:
        UsageError: there is no such session, or the title is empty.
    """
    title = " ".join(title.split())[:TITLE_CHARS_MAX]
    if not title:
        raise UsageError("the title is empty: say what the session is to be called")
    async with resources.session(session) as (known, lease):
        if not known.position:
            raise UsageError(f"there is no session {session!r}")
        await known.journal(resources.store, lease, [facts.Renamed(title=title)])
    return title


async def delete(
    config: GateConfig,
    resources: Resources,
    session: str,
    *,
    before_s: float | None = None,
    report: Callable[[str], object] | None = None,
) -> bool:
    """Delete a session, and what its runs left at the provider: files, interactions, caches; False if there is none.

    With `before_s`, one that was written to since then is kept. `report` is called with a sentence for everything that stays
    at the provider.

    Raises:
        SessionBusyError: a run of the session is not over.
        StoreError: the store cannot be used.
    """
    known = resources.sessions.get(session)
    if known is not None and known.run is not None:
        raise SessionBusyError(f"session {session!r} has a run; cancel it first")
    try:
        journal = await resources.store.load(session)
    except NewerSessionError:  # It cannot be read, and can be deleted all the same.
        journal = []
    store = resources.store
    if not await (store.delete(session) if before_s is None else delete_older(store, session, before_s)):
        return False
    release_files(config.model, uploads_of(journal), session)
    for left in await delete_at_provider(config.model, store, journal, session):
        logger.warning("%s", left)
        if report is not None:
            report(left)
    await delete_caches(config.model, journal)
    return True


async def compact(config: GateConfig, resources: Resources, session: str) -> int:
    """Shorten the history of a session; return how many contents were dropped.

    Raises:
        UsageError: a run of the session is not over.
    """
    async with resources.session(session) as (known, lease):
        if known.run is not None or known.machine.phase not in ("idle", "done"):
            raise UsageError(f"session {session!r} is in the middle of a run: let that end first")
        dropped = known.machine.conversation.cut_for(0)
        if dropped:
            await ModelTurn(RunContext(config, known, lease, None)).compact(dropped)
        return dropped
