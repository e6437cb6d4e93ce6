"""Changes of a session outside its runs: session rules, its title, the length of its history."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from callgate.content.read import interaction_of
from callgate.errors import ModelError, NewerSessionError, SessionBusyError, StoreError, UsageError
from callgate.machine import facts
from callgate.models import Model, members_of
from callgate.run.config import GateConfig
from callgate.run.context import RunContext
from callgate.run.media import delete_caches, delete_files, release_files
from callgate.run.model_turn import ModelTurn
from callgate.run.resources import Resources
from callgate.store.listing import delete_older, session_page
from callgate.store.protocol import TITLE_CHARS_MAX, Store
from callgate.types import SessionRule

__all__ = [
    "compact", "delete", "delete_interactions", "interactions_of", "rename", "revoke", "session_rules", "unshared",
    "uploads_of",
]  # fmt: skip

logger = logging.getLogger("callgate.run")

KEPT_S = 49 * 3600.0
"""Seconds that a provider stores a file at most, plus an hour for clocks that differ."""
LOOKED_AT_MAX = 500
"""Sessions that are looked at for whether they refer to what a deleted one has left at the provider."""


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


async def delete(config: GateConfig, resources: Resources, session: str, *, before_s: float | None = None) -> bool:
    """Delete a session, and what its runs left at the provider: files, interactions, caches; False if there is none.

    With `before_s`, one that was written to since then is kept.

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
    files, stored = await unshared(store, uploads_of(journal), interactions_of(journal))
    try:
        await delete_files(config.model, files, session)
    except ModelError as error:  # They expire by themselves after two days.
        logger.warning("files of session %r could not be deleted at the provider: %s", session, error)
    try:
        await delete_interactions(config.model, stored)
    except ModelError as error:  # So do these, in up to 55 days.
        logger.warning("interactions of session %r could not be deleted at the provider: %s", session, error)
    await delete_caches(config.model, journal)
    return True


def uploads_of(journal: Iterable[facts.Fact]) -> list[facts.UploadedFile]:
    """The files that the runs of a session uploaded, or those of a session of the same store that it was forked from."""
    found: dict[str, facts.UploadedFile] = {}
    for fact in journal:
        if isinstance(fact, facts.Adopted) and not fact.fork_of:
            found.clear()
        elif isinstance(fact, facts.RunStarted):
            found |= {file.name: file for file in fact.uploads or ()}
    return list(found.values())


def interactions_of(journal: Iterable[facts.Fact]) -> list[str]:
    """The ids of the interactions of a session's runs that a server keeps.

    Those of a session of the same store that it was forked from count: the last one that refers to them deletes them.
    """
    found: dict[str, None] = {}
    for fact in journal:
        if isinstance(fact, facts.Adopted) and not fact.fork_of:
            found.clear()
        elif isinstance(fact, facts.ModelAccepted) and fact.origin.startswith("interactions:"):
            found[fact.id] = None
        elif isinstance(fact, facts.ModelAnswered) and (kept := interaction_of(fact.content)) is not None and kept.get("id"):
            found[str(kept["id"])] = None
    return list(found)


async def unshared(
    store: Store, files: Sequence[facts.UploadedFile], stored: Sequence[str]
) -> tuple[list[facts.UploadedFile], list[str]]:
    """Return the files and interactions of a deleted session that no other session of the store refers to.

    A fork refers to what the session that it was forked from has left at the provider. If there are too many sessions to
    look at, nothing is deleted: all of it expires.
    """
    if not files and not stored:
        return [], []
    # A session that was last written to before the oldest of these was there cannot refer to it.
    since_s = 0.0 if stored else min(file.expires_s or 0.0 for file in files) - KEPT_S
    others = await session_page(store, limit=LOOKED_AT_MAX + 1, matches=lambda info: info.updated_s >= since_s)
    if len(others) > LOOKED_AT_MAX:
        logger.warning("files and interactions of a deleted session stay until they expire: others may refer to them")
        return [], []
    left_files, left_stored = {file.uri: file for file in files}, dict.fromkeys(stored)
    for info in others:
        try:
            journal = await store.load(info.id)
        except StoreError:  # What it refers to is not known.
            return [], []
        said = await asyncio.to_thread(repr, journal)
        for wanted in (left_files, left_stored):
            for one in [one for one in wanted if one in said]:
                del wanted[one]
        if not left_files and not left_stored:
            break
    return list(left_files.values()), list(left_stored)


async def delete_interactions(model: Model, stored: Sequence[str]) -> int:
    """Make the server of a model forget interactions; return how many are gone, 0 if the model keeps none.

    Raises:
        ModelError: the server refuses, or cannot be reached.
    """
    forget = next((found for one in members_of(model) if (found := getattr(one, "delete_all", None)) is not None), None)
    return await forget(stored) if stored and forget is not None else 0


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
