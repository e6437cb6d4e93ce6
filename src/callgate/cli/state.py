"""The session store of the command, and the session that a chat continues.

Takes options and the environment; returns an open store and the id of a session. `callgate.sessions` knows what a session
is.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import click

from callgate import config
from callgate.cli.error_hints import with_hint
from callgate.cli.json_input import InputError
from callgate.cli.render import escape
from callgate.errors import CallgateError, UsageError
from callgate.sessions import LATEST, State, find, load
from callgate.store import Store, open_store

__all__ = [
    "StoredSession", "existing_place", "is_missing", "new_id", "open_session", "opened", "opened_to_read", "session_ids",
    "state_dir", "store_place",
]  # fmt: skip

_USUAL_FILE = "sessions.db"
_SQLITE = "sqlite:///"


def state_dir(env: Mapping[str, str] = os.environ) -> str:
    """Return the state directory, as set by the environment."""
    return config.state_dir(env)


def store_place(given: str | None, env: Mapping[str, str] = os.environ) -> str:
    """The store that was named, by the command or by a setting, else the usual file.

    Raises:
        InputError: a setting is wrong, or the file that was named cannot be one.
    """
    if given is None:
        try:
            given = config.load_settings(env)["store"]
        except config.ConfigError as error:
            raise InputError(str(error)) from error
    if not given:
        return os.path.join(state_dir(env), _USUAL_FILE)
    if "://" in given.removeprefix(_SQLITE):
        return given
    folder = os.path.dirname(os.path.abspath(os.path.expanduser(given.removeprefix(_SQLITE))))
    if is_missing(folder) or os.path.isfile(folder):
        raise InputError(f"the store {given!r} is in a folder that does not exist: create {folder!r}, or correct the path")
    return given


def is_missing(place: str) -> bool:
    """Return whether a place is that of a file which is not there; one that this user may not see can be."""
    path = place.removeprefix(_SQLITE)
    if "://" in path:
        return False
    try:
        os.stat(os.path.expanduser(path))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return True
    except OSError:
        return False
    return False


def existing_place(given: str | None) -> str | None:
    """The store for a command that needs what is in it, and creates none; None if the usual file is not there yet.

    Raises:
        click.ClickException: the store that was named is not there: a wrong path must not pass for an empty store.
    """
    place = store_place(given)
    if not is_missing(place):
        return place
    if place == os.path.join(state_dir(), _USUAL_FILE):
        return None
    raise click.ClickException(escape(f"there is no store {place}"))


@contextlib.contextmanager
def opened_to_read(given: str | None) -> Generator[Store]:
    """The store for a command that only reads: nothing is created or changed; an empty one if there is none yet."""
    with opened(existing_place(given), read_only=True) as store:
        yield store


@contextlib.contextmanager
def opened(place: str | None, settings: Mapping[str, Any] | None = None, *, read_only: bool = False) -> Generator[Store]:
    """The store there, closed afterwards; None is memory. What goes wrong with it is a sentence of the command.

    `settings` say how durable it is and which replica it has.
    """
    settings = settings or {}
    try:
        replica = settings.get("store_replica") if place is not None and "://" in place else None
        try:
            store = open_store(place, durable=settings.get("durable") or "effects", replica=replica, read_only=read_only)
        except UsageError as error:
            raise InputError(with_hint(error)) from error
        try:
            yield store
        finally:
            asyncio.run(store.aclose())
    except CallgateError as error:
        raise click.ClickException(with_hint(error)) from error


def session_ids(place: str | None) -> list[tuple[str, str]]:
    """List ids and titles of the stored sessions, the newest first; none if they cannot be read."""
    try:
        with opened_to_read(place) as store:
            return [(info.id, info.title) for info in asyncio.run(store.sessions())]
    except click.ClickException:
        return []


def new_id() -> str:
    """The id of a conversation that begins."""
    return f"chat-{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """The session that a chat continues or starts."""

    store: Store
    id: str
    state: State | None = None
    """Its state so far; None for a new one."""
    is_kept: bool = True
    """True if it outlives the command."""
    place: str | None = None
    """The path or address of its store."""

    @property
    def is_unfinished(self) -> bool:
        """True if the run must be completed before the next prompt."""
        return self.state in ("waiting", "interrupted")


@contextlib.contextmanager
def open_session(given: dict[str, Any], *, keep: bool = True) -> Generator[StoredSession]:
    """Take the options of `session_options` out of those that were given, and open what they name.

    Without `keep` nothing is written, unless a store was named.
    """
    place, resume = given.pop("store"), given.pop("resume")
    ephemeral, go_on = given.pop("ephemeral"), given.pop("go_on")
    if go_on and resume is not None:
        raise click.UsageError("-r and -c both name a session: use one of them")
    resume = LATEST if go_on else resume
    if ephemeral and (resume is not None or place is not None):
        raise click.UsageError("--ephemeral keeps nothing, so it cannot be used with -r, -c or --store")
    in_memory = ephemeral or (not keep and place is None and resume is None)
    if resume is not None:
        with opened_to_read(place) as store:
            asyncio.run(_found(store, resume))  # A store in which there is nothing to resume is not created.
    with opened(None if in_memory else store_place(place)) as store:
        stored = asyncio.run(_found(store, resume))
        yield replace(stored, is_kept=not in_memory, place=None if in_memory else store_place(place))


async def _found(store: Store, resume: str | None) -> StoredSession:
    if resume is None:
        session = new_id()
        await store.load(session)  # Fail before the first prompt if the store cannot be used.
        return StoredSession(store=store, id=session)
    try:
        info = await find(store, resume)
    except UsageError as error:
        raise InputError(f"{error}; `callgate sessions list` shows them") from error
    return StoredSession(store=store, id=info.id, state=(await load(store, info.id)).state)
