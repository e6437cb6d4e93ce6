"""Undo the file changes of a session's calls.

Does nothing where the file tools are not installed.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

from callgate.errors import UsageError
from callgate.sessions import Undo

__all__ = ["file_undo", "forget_files", "prune_files"]

_FILES = "callgate.files"


def file_undo() -> Undo | None:
    """Return the undo function, if there are file tools."""
    return _undone if importlib.util.find_spec(_FILES) is not None else None


def forget_files(session: str) -> int:
    """Delete the backups of files that a session's calls changed; return how many. The changes cannot be undone then."""
    if importlib.util.find_spec(_FILES) is None:
        return 0
    stored = _backups()
    found = [change.id for change in stored.changes() if change.session == session]
    for id in found:
        stored.forget(id)
    return len(found)


def prune_files() -> int:
    """Delete the backups of files that are too old or too many; return how many files."""
    return 0 if importlib.util.find_spec(_FILES) is None else int(_backups().prune())


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
