"""Undo the file changes of a session's calls, and forget the backups of deleted sessions.

Does nothing where the file tools are not installed.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import time
from collections.abc import Sequence
from typing import Any

from callgate.errors import UsageError
from callgate.sessions import Undo
from callgate.store import Store
from callgate.store.deletions import deletions
from callgate.store.listing import now_s

__all__ = ["file_undo", "forget_deleted", "forget_files", "prune_files"]

_FILES = "callgate.files"


def file_undo() -> Undo | None:
    """Return the undo function, if there are file tools."""
    return _undone if importlib.util.find_spec(_FILES) is not None else None


def forget_files(session: str) -> int:
    """Delete the backups of files that a session's calls changed; return how many. The changes cannot be undone then."""
    if importlib.util.find_spec(_FILES) is None:
        return 0
    stored = _backups()
    return _forgotten(stored, [change.id for change in stored.changes() if change.session == session])


async def forget_deleted(store: Store) -> int:
    """Delete the backups of files on this machine of sessions that were deleted in the store, wherever; return how many.

    Raises:
        StoreError: the store cannot be used.
    """
    if importlib.util.find_spec(_FILES) is None:
        return 0
    stored = _backups()
    changes = await asyncio.to_thread(stored.changes)
    deleted = await deletions(store, sorted({change.session for change in changes if change.session}))
    if not deleted:
        return 0
    ahead_s = time.time() - await now_s(store)  # Changes are dated by the clock here, deletions by that of the store.
    # A session may have the name of a deleted one: its own changes are later.
    doomed = [
        change.id for change in changes if change.session in deleted and change.time_s - ahead_s <= deleted[change.session]
    ]
    return await asyncio.to_thread(_forgotten, stored, doomed)


async def prune_files(store: Store) -> int:
    """Delete the backups of files that are too old or too many, or of deleted sessions; return how many files.

    Raises:
        StoreError: the store cannot be used.
    """
    if importlib.util.find_spec(_FILES) is None:
        return 0
    return int(await asyncio.to_thread(_backups().prune)) + await forget_deleted(store)


def _forgotten(stored: Any, ids: Sequence[str]) -> int:
    for id in ids:
        stored.forget(id)
    return len(ids)


def _backups() -> Any:
    backups: Any = importlib.import_module(f"{_FILES}.backups")
    bounds: Any = importlib.import_module(f"{_FILES}.bounds")
    return backups.Backups(backups.default_state_dir(), bounds.Bounds())


def _undone(session: str, call_ids: Sequence[str]) -> list[str]:
    """Restore what the calls wrote, the newest change first. Later changes are never overwritten."""
    files: Any = importlib.import_module(_FILES)
    stored = _backups()
    return [
        _put_back(files, change)
        for change in stored.changes()
        if change.session == session and change.call_id in call_ids and change.tool != "undo"
    ]


def _put_back(files: Any, change: Any) -> str:
    try:
        with files.FileTools(change.root) as tools:
            done = tools.undo(change.id)
    except UsageError as error:
        return f"{change.path} was left as it is: {error}"
    what = "was removed" if done.after_sha256 is None else "is as it was before"
    return f"{change.path} {what}. To take this back: callgate undo {done.id}"
