"""A folder for unfinished uploads, locked for as long as its process lives; those of dead processes are removed.

The lock ends with its process, however that ends, so that the next service to start on the machine can tell which folders
nobody needs any more. Folders of other users are left alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import AsyncGenerator

__all__ = ["UploadFolder", "remove_stale"]

PREFIX = "callgate-upload-"
NEW_PREFIX = "callgate-new-"
"""The name of a folder that is not locked yet, and empty."""
_LOCK = ".lock"


class UploadFolder:
    """The folder of one service, made when it is first needed."""

    def __init__(self) -> None:
        self._path: str | None = None
        self._lock = -1

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Remove what dead processes have left, and this folder at the end."""
        await asyncio.to_thread(remove_stale)
        try:
            yield
        finally:
            self.close()

    def new_file(self) -> str:
        """Make an empty file, and return its path.

        Raises:
            OSError: it cannot be made.
        """
        if self._path is None:
            new = tempfile.mkdtemp(prefix=NEW_PREFIX)
            self._lock = os.open(os.path.join(new, _LOCK), os.O_RDWR | os.O_CREAT, 0o600)
            _is_locked(self._lock)
            folder, name = os.path.split(new)
            self._path = os.path.join(folder, PREFIX + name.removeprefix(NEW_PREFIX))
            os.rename(new, self._path)  # From here on others look at its lock.
            weakref.finalize(self, shutil.rmtree, self._path, ignore_errors=True)
        descriptor, path = tempfile.mkstemp(dir=self._path)
        os.close(descriptor)
        return path

    def close(self) -> None:
        """Remove the folder with all that is in it."""
        path, self._path = self._path, None
        if path is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(self._lock)


def remove_stale() -> None:
    """Remove the folders of this user whose processes are dead."""
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                    _remove_if_stale(entry)


def _remove_if_stale(entry: os.DirEntry[str]) -> None:
    if sys.platform == "win32" or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
        return
    lock = os.open(os.path.join(entry.path, _LOCK), os.O_RDWR | os.O_NOFOLLOW)
    try:
        if _is_locked(lock):
            shutil.rmtree(entry.path, ignore_errors=True)
    finally:
        os.close(lock)


def _is_locked(descriptor: int) -> bool:
    """Lock a file, if no other process has; return whether it is locked now. The lock goes with the descriptor."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
