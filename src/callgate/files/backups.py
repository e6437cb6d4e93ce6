"""Backups before each write: byte-exact copies outside every root, with an index, so that writes can be undone.

An open file comes in and is copied; records and bytes go out. Each record is a file of its own, so a crash can spoil none
but the newest. Nothing here knows paths below a root: what is put back where is `undo.py`'s business.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import hashlib
import json
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from callgate.errors import UsageError
from callgate.files.beneath import ALWAYS, DIRECTORY, NOFOLLOW, let_go
from callgate.files.bounds import Bounds

__all__ = ["Backups", "Change", "default_state_dir", "digest_of"]

PRUNE_EVERY_S = 600.0
_DATA, _RECORD, _UNFINISHED = ".bytes", ".json", ".part"
_ID_CHARS = frozenset("0123456789abcdef-")


def default_state_dir() -> str:
    """Return the state folder that the environment names; one for temporary files if there is no home."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(base):
        return os.path.join(base, "callgate")
    base = os.path.join(os.path.expanduser("~"), ".local", "state")
    existing = base
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if os.access(existing, os.W_OK | os.X_OK):
        return os.path.join(base, "callgate")
    # Users of services have a home that is not there, or not theirs. Their writes shall be undoable, too.
    return os.path.join(tempfile.gettempdir(), f"callgate-{os.geteuid()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One write: what it was, and what was there before."""

    id: str
    """The id by which it is undone."""
    root: str
    """The folder that file tools were given."""
    path: str
    """Relative to the root."""
    time_s: float
    """Seconds since 1970."""
    tool: str
    """Name of the tool that wrote."""
    existed: bool
    """True if there was a file before. If not, undoing removes it."""
    size: int = 0
    """Bytes of the file before."""
    sha256: str = ""
    """Of the bytes before."""
    mode: int = 0
    """Permission bits of the file before."""
    after_sha256: str | None = None
    """Of the bytes that were written; None if the file was removed."""
    after_size: int = 0
    """Bytes of the file after."""
    call_id: str = ""
    """The id of the call that wrote; empty if there was none."""
    session: str | None = None
    """The id of its conversation, if there was one."""


def digest_of(data: bytes) -> str:
    """A hash that tells two contents apart."""
    return hashlib.sha256(data).hexdigest()


class Digest(Protocol):
    """A hash that is fed piece by piece."""

    def update(self, data: bytes, /) -> None:
        """Take the next piece."""
        ...


class Backups:
    """A folder of backups, readable by its owner only."""

    def __init__(self, state_dir: str, bounds: Bounds) -> None:
        self.state_dir = state_dir
        self._bounds = bounds
        self._pruned_s = -PRUNE_EVERY_S

    # Keeping -------------------------------------------------------------------------------------------------------------

    def keep(self, change: Change, source: int | None) -> Change:
        """Copy what is open as `source`, and records the change; returns the record. Raises `OSError`; then nothing stays.

        What comes back counts: the size and the hash are those of the bytes that were copied.
        """
        folder = self._open(create=True)
        done: list[str] = []
        try:
            if source is not None:
                done.append(change.id + _DATA)
                size, sha256 = _copy(source, folder, done[0], change.mode & 0o600, self._bounds.kept_bytes)
                change = dataclasses.replace(change, size=size, sha256=sha256)
            done += [change.id + _UNFINISHED, change.id + _RECORD]
            _create(folder, done[-2], json.dumps(dataclasses.asdict(change)).encode(), 0o600)
            os.rename(done[-2], done[-1], src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        except BaseException:
            self._remove(folder, done)
            raise
        finally:
            let_go(folder)
        return change

    def forget(self, id: str) -> None:
        """Remove the record of a write that did not come about."""
        with contextlib.suppress(OSError):
            folder = self._open(create=False)
            try:
                self._remove(folder, [id + _RECORD, id + _DATA])
            finally:
                let_go(folder)

    @staticmethod
    def _remove(folder: int, names: list[str]) -> None:
        for name in names:
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=folder)

    def _open(self, *, create: bool) -> int:
        """The folder, made if need be; it is open to its owner only, or not used."""
        path = os.path.join(self.state_dir, "backups")
        if create:
            os.makedirs(self.state_dir, mode=0o700, exist_ok=True)
            if os.stat(self.state_dir).st_uid not in (os.geteuid(), 0):
                raise OSError(errno.EACCES, "the state directory belongs to another user", self.state_dir)
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
        descriptor = os.open(path, os.O_RDONLY | DIRECTORY | NOFOLLOW | ALWAYS)
        try:
            known = os.fstat(descriptor)
            if known.st_uid != os.geteuid():
                raise OSError(errno.EACCES, "the folder of backups belongs to another user", path)
            if stat.S_IMODE(known.st_mode) & 0o077:
                os.fchmod(descriptor, 0o700)
        except BaseException:
            let_go(descriptor)
            raise
        return descriptor

    # Finding -------------------------------------------------------------------------------------------------------------

    def changes(self) -> list[Change]:
        """All records, the newest first. One that cannot be read is passed over."""
        try:
            folder = self._open(create=False)
        except FileNotFoundError:
            return []
        try:
            found = [change for name in os.listdir(folder) if (change := _record(folder, name))]
        finally:
            let_go(folder)
        return sorted(found, key=lambda change: (change.time_s, change.id), reverse=True)

    def change(self, id: str) -> Change:
        """The record with that id, or with one that begins so.

        Raises:
            UsageError: there is none, or more than one.
        """
        found = [change for change in self.changes() if change.id.startswith(id)] if id and set(id) <= _ID_CHARS else []
        exact = [change for change in found if change.id == id]
        if len(exact or found) != 1:
            raise UsageError(
                f"{len(found) or 'no'} changes have an id that begins with {id!r}; `callgate undo --list` lists them"
            )
        return (exact or found)[0]

    def bytes_before(self, change: Change) -> bytes | None:
        """The content before the change; None if there was no file.

        Raises:
            UsageError: the backup is gone, or is not what was kept.
        """
        if not change.existed:
            return None
        try:
            folder = self._open(create=False)
            try:
                data = _read(folder, change.id + _DATA)
            finally:
                let_go(folder)
        except OSError as error:
            raise UsageError(f"the backup of change {change.id} cannot be read: {error.strerror}") from error
        if digest_of(data) != change.sha256:
            raise UsageError(f"the backup of change {change.id} is damaged: its bytes are not those that were kept")
        return data

    # Pruning -------------------------------------------------------------------------------------------------------------

    def prune(self, *, now_s: float | None = None) -> int:
        """Remove what is too old or too much, the oldest first, and unfinished pieces of a crash; how many were removed."""
        now_s = time.time() if now_s is None else now_s
        try:
            folder = self._open(create=False)
        except OSError:
            return 0
        try:
            doomed = list(self._doomed(folder, now_s))
            self._remove(folder, doomed)
        finally:
            let_go(folder)
        return len(doomed)

    def prune_sometimes(self) -> None:
        """Prune, unless that was done a moment ago."""
        if time.monotonic() - self._pruned_s >= PRUNE_EVERY_S:
            self._pruned_s = time.monotonic()
            self.prune()

    def _doomed(self, folder: int, now_s: float) -> Iterator[str]:
        known: dict[str, os.stat_result] = {}
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                known[name] = os.stat(name, dir_fd=folder, follow_symlinks=False)
        oldest_s = now_s - self._bounds.backup_days * 86_400
        room = self._bounds.backup_bytes
        for name in sorted(known, key=lambda name: known[name].st_mtime_ns, reverse=True):
            if not name.endswith(_RECORD):
                # Pieces that no record speaks of are left of a crash; the newest may belong to a write that goes on.
                orphan = name.rpartition(".")[0] + _RECORD not in known
                if orphan and known[name].st_mtime < now_s - 3600:
                    yield name
                continue
            data = name.removesuffix(_RECORD) + _DATA
            room -= known[name].st_size + (known[data].st_size if data in known else 0)
            if known[name].st_mtime < oldest_s or room < 0:
                yield name
                if data in known:
                    yield data


def new_id() -> str:
    """An id that sorts by time, and that nobody can foresee."""
    return f"{time.strftime('%y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


def _create(folder: int, name: str, data: bytes, mode: int) -> None:
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | ALWAYS, 0o600, dir_fd=folder)
    try:
        write_all(descriptor, data)
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, however many times the system takes only a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def copy_all(source: int, target: int, digest: Digest, bytes_max: int) -> int:
    """Copy an open file from its beginning, piece by piece; its size."""
    size = 0
    while piece := os.pread(source, 1 << 20, size):
        size += len(piece)
        if size > bytes_max:
            raise OSError(errno.EFBIG, f"it is larger than {bytes_max} bytes, which is as much as is copied")
        digest.update(piece)
        write_all(target, piece)
    return size


def _copy(source: int, folder: int, name: str, mode: int, bytes_max: int) -> tuple[int, str]:
    """A copy of an open file in the folder; its size and its hash."""
    digest = hashlib.sha256()
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | NOFOLLOW | ALWAYS, 0o600, dir_fd=folder)
    try:
        size = copy_all(source, descriptor, digest, bytes_max)
        os.fchmod(descriptor, mode)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return size, digest.hexdigest()


def _read(folder: int, name: str) -> bytes:
    descriptor = os.open(name, os.O_RDONLY | NOFOLLOW | ALWAYS, dir_fd=folder)
    with open(descriptor, "rb") as file:
        return file.read()


def _record(folder: int, name: str) -> Change | None:
    if not name.endswith(_RECORD):
        return None
    try:
        fields: Mapping[str, Any] = json.loads(_read(folder, name))
        known = {field.name for field in dataclasses.fields(Change)}
        return Change(**{key: value for key, value in fields.items() if key in known})
    except (OSError, ValueError, TypeError, AttributeError):
        return None
