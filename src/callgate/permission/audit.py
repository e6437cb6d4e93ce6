"""The audit log: what was called, by whose leave, and what came of it, in a file that shows when it was tampered with.

Records come in, sealed lines go to the disk: one before the effect of a call, one after. Several processes may write to one
log. A line that a crash cut off is kept and told; a log whose end is missing is told too. What a record means is not known
here, but for secrets: they are taken out on the way.

    audit.jsonl            the records, newest last; a full file becomes audit.jsonl.000001 and so on
    audit.jsonl.head       how many records there are and the hash of the last one, so that a cut-off end is seen
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import IO

from callgate.errors import AuditError
from callgate.permission.hash_chain import GENESIS, Link, Walk, read_record, seal, truncated_record
from callgate.permission.redact import Redactor, environment_secrets
from callgate.types import JsonObject

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows: there one log is for one process
    fcntl = None

__all__ = ["AuditLog", "Verified", "files_of", "records_of", "verify"]

FILE_BYTES = 64 * 1024 * 1024
"""How large a file gets before the next one is begun."""
TAIL_BYTES = 1024 * 1024
_HEAD = re.compile(rb"(?P<count>[0-9]{1,15}) (?P<hash>[0-9a-f]{64}) (?P<size>[0-9]{1,15}) *\n")
_HEAD_BYTES = 112


class AuditLog:
    """Append records to a log.

    ```python
    gate = Gate(model, tools, audit="audit.jsonl")
    ```

    Opening does nothing; the first record does. Safe to be shared by threads, and the file by processes.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        file_bytes: int = FILE_BYTES,
        sync: bool = True,
        secrets: Iterable[str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path = Path(path)
        self.redactor = Redactor(environment_secrets(os.environ) if secrets is None else secrets)
        self._file_bytes = file_bytes
        self._sync = sync
        self._clock = clock
        self._lock = threading.Lock()
        self._log = -1
        self._file = (-1, -1)
        """Which file the log is: others may put another one in its place."""
        self._head = -1
        self._process = os.getpid()
        self._is_torn = False
        """True if the last line has no end."""
        self._link = Link()
        self._size = -1
        """The size of the log when this process wrote to it last; another size means that another one wrote."""

    def write(self, records: Sequence[JsonObject], *, durable: bool = False) -> None:
        """Append records, all in one go; with `durable` they have reached the disk when this returns.

        Raises:
            AuditError: they could not be written.
        """
        if not records:
            return
        at = round(self._clock(), 6)
        clean = [self.redactor.value({"at": at, **record}) for record in records]
        try:
            with self._lock, self._alone():
                self._append(clean)
                descriptor = os.dup(self._log) if durable and self._sync else -1
            if descriptor >= 0:
                _reach_disk(descriptor)  # Outside of the lock: others may write while this one waits for the disk.
        except OSError as error:
            raise AuditError(f"the audit log {str(self.path)!r} cannot be written: {error.strerror or error}") from error

    def close(self) -> None:
        """Close the files; the next record opens them again."""
        with self._lock:
            self._close()

    def __del__(self) -> None:
        # Descriptors are plain numbers here, so nobody else closes them for a log that is dropped.
        if getattr(self, "_process", None) == os.getpid():
            self._close()

    # Internals ------------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _alone(self) -> Generator[None]:
        """No other process writes meanwhile. The head is what is locked: it stays when the log is rotated."""
        if self._process != os.getpid():
            self._close()  # A child would share its parent's lock, and so be kept out by nobody.
            self._process = os.getpid()
        if self._head < 0:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._head = _open(_head_path(self.path))
        if fcntl is None:  # pragma: no cover - Windows
            yield
            return
        fcntl.flock(self._head, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._head, fcntl.LOCK_UN)

    def _append(self, records: Sequence[JsonObject]) -> None:
        pending = self._catch_up()
        if self._size >= self._file_bytes:
            self._rotate()
            pending = [{"kind": "continued", "after": self._link.hash}]
        lines = [b"\n"] if self._is_torn else []
        link, self._is_torn = self._link, False
        for record in (*pending, *records):
            line, link = seal(record, link)
            lines.append(line)
        data = b"".join(lines)
        _write_all(self._log, data)
        self._link, self._size = link, self._size + len(data)
        self._write_head()

    def _catch_up(self) -> list[JsonObject]:
        """Find the end of the log again if it may have moved, and gives out what has to be said about it first."""
        if self._log >= 0 and self._is_current():
            return []
        if self._log >= 0:
            os.close(self._log)
            self._log = -1
        self._open_log()
        size = os.fstat(self._log).st_size
        head = _read_head(self._head)
        if head is not None and head[1] == size and (head[0].count == 0) == (size == 0):
            self._link, self._size = head[0], size
            return []
        return self._recover(head[0] if head else None, size)

    def _is_current(self) -> bool:
        """True if the path leads to the file that is open, as this process left it; another one may have rotated it."""
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (there.st_size, there.st_ino, there.st_dev) == (self._size, *self._file)

    def _open_log(self, flags: int = 0) -> None:
        self._log = _open(self.path, os.O_APPEND | flags)
        opened = os.fstat(self._log)
        self._file = (opened.st_ino, opened.st_dev)

    def _recover(self, head: Link | None, size: int) -> list[JsonObject]:
        """After a crash, or after somebody changed the files: the chain goes on, and what was found is written down."""
        found, torn = _end_of(self._log, size)
        self._size = size
        pending: list[JsonObject] = []
        self._is_torn = bool(torn)
        if torn:
            pending.append(truncated_record(torn))
        if found is None:
            # A fresh file: the chain goes on from the last one, which a crash may have kept from being followed.
            before = _last_link_of_rotated(self.path)
            found = before or Link()
            if before is not None and not torn:
                pending.insert(0, {"kind": "continued", "after": before.hash})
        self._link = found
        if head is not None and head.count > found.count:
            pending.append({"kind": "lost", "had": head.count, "has": found.count, "head": head.hash})
        elif head is None and found.count:
            pending.append({"kind": "headless"})
        return pending

    def _rotate(self) -> None:
        os.fsync(self._log)
        os.close(self._log)
        self._log = -1
        numbers = [number for number, _ in _rotated(self.path)]
        os.rename(self.path, f"{self.path}.{max(numbers, default=0) + 1:06d}")
        self._open_log(os.O_EXCL)
        self._size = 0
        _sync_folder(self.path.parent)

    def _write_head(self) -> None:
        text = f"{self._link.count} {self._link.hash} {self._size}"
        os.lseek(self._head, 0, os.SEEK_SET)
        _write_all(self._head, f"{text:<{_HEAD_BYTES - 1}}\n".encode("ascii"))

    def _close(self) -> None:
        for descriptor in (self._log, self._head):
            if descriptor >= 0:
                os.close(descriptor)
        self._log = self._head = -1


# Reading -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The result of verifying a log."""

    link: Link
    """The end of the log. Kept elsewhere, it shows a rewriting of everything."""
    problems: tuple[str, ...]
    """Signs of tampering; empty means that none was found."""
    notes: tuple[str, ...] = ()
    """Traces of crashes."""
    files: tuple[Path, ...] = ()


def verify(path: str | PathLike[str], *, head: str | None = None) -> Verified:
    """Go through a log, its rotated files included; `head` is a hash of its end that was kept elsewhere.

    Raises:
        AuditError: there is no such log, or it cannot be read.
    """
    path, walk = Path(path), Walk()
    files, stored = files_of(path), _stored_head(path)
    wanted = {GENESIS, head, stored.hash if stored else None}
    seen = {GENESIS}
    for file in files:
        with _reading(file) as stream:
            seen.update(walk.link.hash for _ in walk.lines(stream, file.name) if walk.link.hash in wanted)
    walk.end(stored)
    if stored is not None and stored.hash not in seen and stored.count <= walk.link.count:
        walk.problems.append("the log does not hold the record that was its end once: it was written anew")
    if head is not None and head not in seen:
        walk.problems.append(f"the log does not hold the record with the hash {head!r}")
    return Verified(link=walk.link, problems=tuple(walk.problems), notes=tuple(walk.notes), files=tuple(files))


def records_of(path: str | PathLike[str]) -> Iterator[JsonObject]:
    """The records of a log from the oldest on, whether they are sound or not.

    Raises:
        AuditError: there is no such log, or it cannot be read.
    """
    walk = Walk()
    for file in files_of(Path(path)):
        with _reading(file) as stream:
            yield from walk.lines(stream, file.name)


def files_of(path: Path) -> list[Path]:
    """The files of a log from the oldest on.

    Raises:
        AuditError: there is none.
    """
    files = [file for _, file in _rotated(path)] + ([path] if path.is_file() else [])
    if not files:
        raise AuditError(f"there is no audit log {str(path)!r}")
    return files


@contextlib.contextmanager
def _reading(path: Path) -> Generator[IO[bytes]]:
    try:
        with path.open("rb") as stream:
            yield stream
    except OSError as error:
        raise AuditError(f"the audit log {str(path)!r} cannot be read: {error.strerror or error}") from error


def _rotated(path: Path) -> list[tuple[int, Path]]:
    names = re.compile(re.escape(path.name) + r"\.([0-9]{6,})")
    found = [(names.fullmatch(file.name), file) for file in path.parent.glob("*") if path.parent.is_dir()]
    return sorted((int(match[1]), file) for match, file in found if match)


def _stored_head(path: Path) -> Link | None:
    try:
        found = _HEAD.fullmatch(_head_path(path).read_bytes())
    except OSError:
        return None
    return Link(int(found["count"]), found["hash"].decode("ascii")) if found else None


# Files -------------------------------------------------------------------------------------------------------------------


def _head_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.head")


def _open(path: Path, flags: int = 0) -> int:
    safe = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | safe | flags, 0o600)
    with contextlib.suppress(OSError, AttributeError):
        os.fchmod(descriptor, 0o600)  # It may have been there before, with other rights.
    return descriptor


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _read_all(descriptor: int, count: int) -> bytes:
    pieces: list[bytes] = []
    while count > 0 and (piece := os.read(descriptor, count)):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _read_head(descriptor: int) -> tuple[Link, int] | None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    found = _HEAD.fullmatch(os.read(descriptor, _HEAD_BYTES))
    if found is None:
        return None
    return Link(int(found["count"]), found["hash"].decode("ascii")), int(found["size"])


def _end_of(descriptor: int, size: int) -> tuple[Link | None, bytes]:
    """The last whole record of a file, and what stands behind the last newline."""
    length = TAIL_BYTES
    while True:
        start = max(0, size - length)
        os.lseek(descriptor, start, os.SEEK_SET)
        *lines, torn = _read_all(descriptor, size - start).split(b"\n")
        for line in reversed(lines):
            found = read_record(line)
            if found is not None:
                return found[0], torn
        if start == 0:
            return None, torn
        length *= 4


def _last_link_of_rotated(path: Path) -> Link | None:
    rotated = _rotated(path)
    if not rotated:
        return None
    with rotated[-1][1].open("rb") as stream:
        return _end_of(stream.fileno(), os.fstat(stream.fileno()).st_size)[0]


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(PermissionError):  # Windows opens no folders.
        _reach_disk(os.open(folder, os.O_RDONLY))


def _reach_disk(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
