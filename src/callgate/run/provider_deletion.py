"""Stop and delete at the provider: what a session has left there, whichever model or API the gate has now.

A journal comes in, a sentence for all that stays goes out. The store says which other sessions refer to the same. How a
provider is asked is known to its model.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from callgate.content.read import interaction_of
from callgate.errors import ModelError, StoreError, UsageError
from callgate.interactions.deletion import ELSEWHERE, UNKNOWN
from callgate.machine import facts
from callgate.models import Model, members_of
from callgate.run.media import delete_files
from callgate.store.listing import session_page
from callgate.store.protocol import Store

if TYPE_CHECKING:
    from callgate.models.interactions import InteractionsModel

__all__ = ["delete_at_provider", "interactions_of", "stop_at_provider", "uploads_of"]

logger = logging.getLogger("callgate.run")
Forget: TypeAlias = "Callable[[Mapping[str, str]], Awaitable[dict[str, str]]]"
Stop: TypeAlias = "Callable[[str, str], Awaitable[str]]"
T = TypeVar("T")

KEPT_S = 49 * 3600.0
"""Seconds that a provider stores a file at most, plus an hour for clocks that differ."""
CLOCKS_S = 3600.0
"""Seconds that clocks may differ."""
EXPIRES_S = 24 * 3600.0
"""Seconds that a provider stores an interaction at least."""
STOP_S = 10.0
"""Maximum number of seconds to wait until a background run is stopped at its server."""
LOOKED_AT_MAX = 500
"""Sessions that are looked at for whether they refer to what a deleted one has left at the provider."""


async def delete_at_provider(model: Model, store: Store, journal: Sequence[facts.Fact], session: str) -> list[str]:
    """Stop the background runs of a deleted session, and delete its files and interactions; say what stays there.

    Files and interactions to which other sessions refer are left; nobody but this one waits for its runs.
    """
    await asyncio.gather(*(stop_at_provider(model, id, origin) for id, origin in unanswered_of(journal).items()))
    files, stored = await unshared(store, uploads_of(journal), interactions_of(journal))
    said: list[str] = []
    try:
        await delete_files(model, files, session)
    except ModelError as error:
        said.append(f"files of session {session!r} could not be deleted at the provider, and expire in two days: {error}")
    counts = Counter((await delete_interactions(model, stored)).values())
    said += [
        f"{count} of {len(stored)} interactions of session {session!r} could not be deleted at the provider, which keeps "
        f"them for up to 55 days: {why}"
        for why, count in counts.items()
    ]
    return said


def uploads_of(journal: Iterable[facts.Fact]) -> list[facts.UploadedFile]:
    """The files that the runs of a session uploaded, or those of a session of the same store that it was forked from."""
    found: dict[str, facts.UploadedFile] = {}
    for fact in journal:
        if isinstance(fact, facts.Adopted) and not fact.fork_of:
            found.clear()
        elif isinstance(fact, facts.RunStarted):
            found |= {file.name: file for file in fact.uploads or ()}
    return list(found.values())


@dataclass(frozen=True, slots=True)
class StoredInteraction:
    """An interaction that a server keeps: the origin of its answer, and when it was made, in seconds since 1970."""

    origin: str
    at_s: float


def interactions_of(journal: Iterable[facts.Fact]) -> dict[str, StoredInteraction]:
    """The interactions of a session's runs that a server keeps, by their ids.

    Those of a session of the same store that it was forked from count: the last one that refers to them deletes them.
    """
    found: dict[str, StoredInteraction] = {}
    for fact in journal:
        if isinstance(fact, facts.Adopted) and not fact.fork_of:
            found.clear()
        elif isinstance(fact, facts.ModelAccepted) and fact.origin.startswith("interactions:"):
            found[fact.id] = StoredInteraction(fact.origin, fact.at_s or 0.0)
        elif isinstance(fact, facts.ModelAnswered) and (kept := interaction_of(fact.content)) is not None and kept.get("id"):
            found[str(kept["id"])] = StoredInteraction(str(kept.get("origin")), fact.at_s or 0.0)
    return found


def unanswered_of(journal: Iterable[facts.Fact]) -> dict[str, str]:
    """The runs that a server may still work on for a session by itself: their ids -> the origin of their answers."""
    found: dict[str, str] = {}
    for fact in journal:
        if isinstance(fact, facts.Adopted):
            found.clear()
        elif isinstance(fact, facts.ModelAccepted) and fact.background is not False:
            found[fact.id] = fact.origin
        elif isinstance(fact, facts.ModelAnswered) and (kept := interaction_of(fact.content)) is not None:
            found.pop(str(kept.get("id")), None)
    return found


async def unshared(
    store: Store, files: Sequence[facts.UploadedFile], stored: Mapping[str, StoredInteraction]
) -> tuple[list[facts.UploadedFile], dict[str, StoredInteraction]]:
    """Return the files and interactions of a deleted session that no other session of the store refers to.

    A fork refers to what the session that it was forked from has left at the provider. If not all sessions can be looked
    at, files stay until they expire, and interactions are deleted: a fork that refers to one is sent its whole history.
    """
    if not files and not stored:
        return [], {}
    # A session that was last written to before the oldest of these was there cannot refer to it.
    made_s = [one.at_s - CLOCKS_S for one in stored.values()] + [(file.expires_s or 0.0) - KEPT_S for file in files]
    since_s = min(made_s)
    others = await session_page(store, limit=LOOKED_AT_MAX + 1, matches=lambda info: info.updated_s >= since_s)
    are_all = len(others) <= LOOKED_AT_MAX
    left_files, left_stored = {file.uri: file for file in files}, dict(stored)
    for info in others if are_all else ():
        try:
            journal = await store.load(info.id)
        except StoreError:  # Nobody knows to what it refers.
            are_all = False
            continue
        said = await asyncio.to_thread(repr, journal)
        for wanted in (left_files, left_stored):
            for one in [one for one in wanted if one in said]:
                del wanted[one]
        if not left_files and not left_stored:
            break
    if left_files and not are_all:
        logger.warning("files of a deleted session stay until they expire: other sessions may refer to them")
        left_files.clear()
    return list(left_files.values()), left_stored


async def stop_at_provider(model: Model, id: str, origin: str) -> str:
    """Stop a background run at its server; return the reason if it may go on.

    Every model of Google that the given one stands for is asked, and the key of the environment if none of them knows it.
    """

    async def stop_by(one: object) -> str:
        stop: Stop | None = getattr(one, "stop_interaction", None)
        return ELSEWHERE if stop is None else await stop(id, origin)

    try:
        async with asyncio.timeout(STOP_S):
            whys = [ELSEWHERE]
            for one in members_of(model):
                if not (why := await stop_by(one)):
                    return ""
                whys.append(why)
            known = [why for why in whys if why not in (ELSEWHERE, UNKNOWN)]
            return known[-1] if known else await _by_environment(stop_by, str)
    except TimeoutError:
        return f"its server did not answer within {STOP_S:g} s"


async def delete_interactions(model: Model, stored: Mapping[str, StoredInteraction]) -> dict[str, str]:
    """Make their server forget interactions; return those that it may still keep, each with the reason.

    Every model of Google that the given one stands for is asked, since each may have a key of its own; if none of them is
    at the place where they are stored, the key of the environment is used.
    """
    left = dict.fromkeys(stored, ELSEWHERE)
    for one in members_of(model):
        forget: Forget | None = getattr(one, "delete_interactions", None)
        if forget is not None and left:
            found = await forget({id: stored[id].origin for id in left})
            left = {id: left[id] if why == ELSEWHERE else why for id, why in found.items()}
    if elsewhere := {id: stored[id].origin for id, why in left.items() if why == ELSEWHERE}:
        deleted = await _by_environment(
            lambda google: google.delete_interactions(elsewhere), lambda why: dict.fromkeys(elsewhere, why)
        )
        left = {id: why for id, why in left.items() if why != ELSEWHERE} | deleted
    # What the server does not know has expired, unless it is too new for that.
    return {id: why for id, why in left.items() if why != UNKNOWN or time.time() - stored[id].at_s < EXPIRES_S}


async def _by_environment(ask: Callable[[InteractionsModel], Awaitable[T]], refused: Callable[[str], T]) -> T:
    """Ask with the key of the environment; `refused` makes the result of a reason why there is no way to ask."""
    from callgate.models.interactions import InteractionsModel  # Few gates with interactions cannot ask for them themselves.

    try:
        model = InteractionsModel("gemini-flash-latest")
    except UsageError as error:
        return refused(str(error))
    try:
        return await ask(model)
    finally:
        await model.aclose()
