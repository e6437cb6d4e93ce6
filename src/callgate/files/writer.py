"""New bytes for a file, all or nothing: temporary file, fsync, backup, rename, fsync of the folder.

A root, names and a function from old bytes to new ones come in; the file is the old one or the new one at every moment,
whatever fails or interferes, and what was there before is kept. What the bytes mean is not this file's business.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

from callgate.errors import ToolError
from callgate.files.backups import Backups, Change, copy_all, new_id, write_all
from callgate.files.beneath import ALWAYS, NOFOLLOW, let_go
from callgate.files.bounds import Bounds
from callgate.files.paths import Names, shown
from callgate.files.root import Identity, Root, identity, reason_of
from callgate.files.tree import TEMPORARY, is_temporary, read_at_most
from callgate.types import ToolContext

__all__ = ["New", "Old", "Renew", "WriteResult", "Writer"]

LOCK_POLL_S = 0.005


@dataclass(frozen=True, slots=True)
class Old:
    """The file as it is before a write."""

    descriptor: int
    known: os.stat_result

    def read(self, size: int) -> bytes:
        """Read the first bytes of the file."""
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        return read_at_most(self.descriptor, size)


@dataclass(frozen=True, slots=True)
class New:
    """The new state of a file."""

    data: bytes
    append: bool = False
    """True if the bytes come behind those that are there."""
    mode: int | None = None
    """The mode of the file; None keeps that of the old one, or gives what the process gives new files."""


Renew = Callable[[Old | None], New | None]
"""From what is there (None: nothing) to what shall be there (None: nothing)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """The outcome of a write."""

    change: Change
    """The record by which it can be undone."""
    notes: tuple[str, ...]


@dataclass(slots=True)
class Writer:
    """Write below one root."""

    root: Root
    backups: Backups
    bounds: Bounds
    _swept: set[Identity] = field(default_factory=set[Identity])

    def write(self, names: Names, renew: Renew, context: ToolContext, *, fresh_ok: bool = True) -> WriteResult:
        """Give the file what `renew` makes of it.

        Raises:
            ToolError: it was not written, and the file is as it was.
        """
        if names.folder or not names.names:
            raise ToolError(f"{shown(names.text)} is written as a folder; give the path of a file.")
        self.root.keep_out_of(self.backups.state_dir)
        folder_names = names.names[:-1]
        if fresh_ok:
            folder, made = self.root.make_folder(folder_names)
        else:
            folder, made = self.root.open_folder(Names(folder_names)), []
        try:
            with _locked(folder, names, self.bounds.lock_s) as is_locked:
                if is_locked:
                    self._sweep(folder)
                return self._locked_write(names, folder, renew, context)
        except BaseException as error:
            self.root.remove_folders(made)
            if isinstance(error, OSError):
                raise ToolError(f"Not written: {reason_of(error)} {shown(names.text)} is as it was.") from error
            raise
        finally:
            let_go(folder)

    def _locked_write(self, names: Names, folder: int, renew: Renew, context: ToolContext) -> WriteResult:
        old = self._old(names, folder)
        try:
            new = renew(old)
            if old is None and new is None:
                raise ToolError(f"There is no file {shown(names.text)} to remove.")
            return self._put(_Place(names, folder, old), new, context)
        finally:
            if old is not None:
                let_go(old.descriptor)

    def _old(self, names: Names, folder: int) -> Old | None:
        """The file that is there, which must be a regular one that may be written; None if there is none."""
        try:
            descriptor = os.open(names.names[-1], os.O_RDONLY | NOFOLLOW | ALWAYS, dir_fd=folder)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.root.sentence(names.names, error) from error
        try:
            known = os.fstat(descriptor)
            self.root.require_regular(names, known)
            try:
                let_go(os.open(names.names[-1], os.O_WRONLY | NOFOLLOW | ALWAYS, dir_fd=folder))
            except OSError as error:
                # A program that is running can be replaced, only not written to.
                if error.errno != errno.ETXTBSY:
                    raise ToolError(f"Not written: {shown(names.text)} may not be written to: {reason_of(error)}") from error
            return Old(descriptor, known)
        except BaseException:
            let_go(descriptor)
            raise

    def _put(self, place: _Place, new: New | None, context: ToolContext) -> WriteResult:
        """Move the new bytes into place; until the rename nothing can be seen of them."""
        temporary = f"{TEMPORARY[0]}{secrets.token_hex(8)}{TEMPORARY[1]}"
        kept: Change | None = None
        try:
            size, sha256 = (0, None) if new is None else _create(place, temporary, new, self.bounds.kept_bytes)
            kept = self._keep(place, self._change(place, context, size, sha256))
            self._require_unchanged(place)
            if context.is_cancelled():
                raise ToolError(f"Not written: the call was given up before {shown(place.names.text)} was changed.")
            if new is None:
                os.unlink(place.name, dir_fd=place.folder)
            else:
                os.rename(temporary, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=place.folder)
            if kept is not None:
                self.backups.forget(kept.id)
            raise
        return WriteResult(change=kept, notes=tuple(self._after(place, kept)))

    def _change(self, place: _Place, context: ToolContext, size: int, sha256: str | None) -> Change:
        return Change(
            id=new_id(),
            root=self.root.path,
            path=place.names.text,
            time_s=time.time(),
            tool=context.name,
            existed=place.old is not None,
            mode=stat.S_IMODE(place.old.known.st_mode) if place.old else 0,
            after_sha256=sha256,
            after_size=size,
            call_id=context.call_id,
            session=context.session,
        )

    def _keep(self, place: _Place, change: Change) -> Change:
        try:
            return self.backups.keep(change, place.old.descriptor if place.old else None)
        except OSError as error:
            why = error.strerror if error.errno in (errno.EACCES, errno.EFBIG) and error.strerror else reason_of(error)
            raise ToolError(
                f"Not written: {shown(place.names.text)} could not be backed up first: {why.rstrip('.')}. It is as it was."
            ) from error

    def _require_unchanged(self, place: _Place) -> None:
        """Check that the backed-up file is the one replaced, and that the folder has not moved."""
        try:
            now = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
        except FileNotFoundError:
            now = None
        before = place.old.known if place.old else None
        if _version(now) != _version(before):
            raise ToolError(
                f"Not written: {shown(place.names.text)} was changed by another program meanwhile. Read it again first."
            )
        if not self.root.is_still(place.names.names[:-1], place.folder):
            raise ToolError(f"Not written: the folder of {shown(place.names.text)} was moved meanwhile.")

    def _after(self, place: _Place, change: Change) -> Iterator[str]:
        """Finish after the new file is in place. From here on no error may say that it is not."""
        try:
            os.fsync(place.folder)
        except OSError as error:
            why = reason_of(error).rstrip(".")
            yield f"The folder could not be flushed to the disk ({why}): a power failure may undo the write."
        # Somebody may have written to the old file in the last moment; it is still open, so even that is not lost.
        with contextlib.suppress(OSError):
            if place.old is not None and _times(os.fstat(place.old.descriptor)) != _times(place.old.known):
                late = self.backups.keep(dataclasses.replace(change, id=new_id()), place.old.descriptor)
                yield f"Another program wrote to the file at the same moment; its version is kept as {late.id}."
        with contextlib.suppress(OSError):
            self.backups.prune_sometimes()

    def _sweep(self, folder: int) -> None:
        """Remove leftovers of a crash from the folder; the writer's lock is ours."""
        here = identity(os.fstat(folder))
        if here in self._swept:
            return
        self._swept.add(here)
        with os.scandir(folder) as entries:
            stale = [entry.name for entry in entries if is_temporary(entry.name) and entry.is_file(follow_symlinks=False)]
        for name in stale:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)


@dataclass(frozen=True, slots=True)
class _Place:
    """Target of a write: the open folder, the name in it and the existing file."""

    names: Names
    folder: int
    old: Old | None

    @property
    def name(self) -> str:
        return self.names.names[-1]


def _version(known: os.stat_result | None) -> Sequence[int] | None:
    return None if known is None else (known.st_dev, known.st_ino, known.st_mtime_ns, known.st_size)


def _times(known: os.stat_result) -> tuple[int, int]:
    return known.st_mtime_ns, known.st_size


def _create(place: _Place, temporary: str, new: New, bytes_max: int) -> tuple[int, str]:
    """The temporary file with its bytes, its owner and its mode, flushed to the disk; its size and its hash."""
    # A new file gets what the process gives new files; one that replaces another is closed to all until it has its mode.
    mode = 0o600 if place.old else 0o666
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | ALWAYS
    descriptor = os.open(temporary, flags, mode, dir_fd=place.folder)
    size, digest = 0, hashlib.sha256()
    try:
        if place.old and new.append:
            size = copy_all(place.old.descriptor, descriptor, digest, bytes_max)
        write_all(descriptor, new.data)
        digest.update(new.data)
        if place.old:
            _carry_over(place.old, descriptor)
        if new.mode is not None:
            os.fchmod(descriptor, new.mode & 0o777)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return size + len(new.data), digest.hexdigest()


def _carry_over(old: Old, descriptor: int) -> None:
    """Owner, attributes and mode of the old file, as far as this process may give them."""
    known = os.fstat(descriptor)
    if (known.st_uid, known.st_gid) != (old.known.st_uid, old.known.st_gid):
        # The group by itself, if the owner cannot be kept: others of the group may rely on it.
        for owner in (old.known.st_uid, -1):
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, owner, old.known.st_gid)
                break
    if hasattr(os, "listxattr"):
        with contextlib.suppress(OSError):
            for name in os.listxattr(old.descriptor):
                # Not the attributes that give rights to a program: new content has not earned them.
                if name.startswith("user.") or name == "system.posix_acl_access":
                    os.setxattr(descriptor, name, os.getxattr(old.descriptor, name))
    # Set-user-id and its kin were given to the old content, too.
    os.fchmod(descriptor, stat.S_IMODE(old.known.st_mode) & 0o777)


# One writer at a time in a folder ------------------------------------------------------------------------------------------

_turns: dict[Identity, tuple[threading.Lock, int]] = {}
_turns_lock = threading.Lock()


@contextlib.contextmanager
def _locked(folder: int, names: Names, wait_s: float) -> Generator[bool]:
    """The folder to ourselves, among threads and processes; False where the file system has no locks for others."""
    import fcntl  # Not on every system; where it is missing, nothing is opened in the first place.

    deadline_s = time.monotonic() + wait_s
    here = identity(os.fstat(folder))
    busy = ToolError(f"Not written: others kept writing to the folder of {shown(names.text)}. Try again.")
    with _turns_lock:
        lock, waiting = _turns.get(here, (threading.Lock(), 0))
        _turns[here] = (lock, waiting + 1)
    try:
        if not lock.acquire(timeout=wait_s):
            raise busy
        try:
            while True:
                try:
                    fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    if time.monotonic() > deadline_s:
                        raise busy from None
                    time.sleep(LOCK_POLL_S)
                except OSError:
                    yield False
                    return
                else:
                    break
            try:
                yield True
            finally:
                with contextlib.suppress(OSError):
                    fcntl.flock(folder, fcntl.LOCK_UN)
        finally:
            lock.release()
    finally:
        with _turns_lock:
            lock, waiting = _turns[here]
            if waiting == 1:
                del _turns[here]
            else:
                _turns[here] = (lock, waiting - 1)
