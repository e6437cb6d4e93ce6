"""The audit log: calls, decisions and outcomes, in a file that shows when it was tampered with.

Records come in, sealed lines go to the disk: one before the effect of a call, one after. Several processes may write to one
log. A line that a crash cut off is kept and reported; a log whose end is missing is reported too. The meaning of a record is
not known here, but for secrets: they are redacted on the way.

    audit.jsonl            the records, newest last; a full file becomes audit.jsonl.000001 and so on
    audit.jsonl.head       how many records there are and the hash of the last one, so that a cut-off end is seen

A program that can write both files can write the log anew, unless the log is anchored outside of itself: with a key, records
are sealed by a MAC, and with an anchor, each end of the log is also appended to a file in another place.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import IO

from callgate.errors import AuditError, UsageError, checked_values
from callgate.permission.audit_files import (
    anchors_of,
    files_of,
    head_path,
    open_private,
    probe_room,
    read_key,
    reading,
    refuse_shared,
    rotated,
    write_all,
)
from callgate.permission.hash_chain import (
    GENESIS,
    HEAD_BYTES,
    UNANCHORED,
    Head,
    Link,
    Walk,
    read_record,
    seal,
    time_in,
    truncated_record,
)
from callgate.permission.redact import Redactor
from callgate.types import JsonObject

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows: there one log is for one process
    fcntl = None

__all__ = ["AuditLog", "Verified", "files_of", "records_of", "verify"]

logger = logging.getLogger("callgate.outages")

SAID_S = 60.0
"""Seconds between two reports that a log cannot be written."""
FILE_BYTES = 64 * 1024 * 1024
"""Size of a file at which the next one is started."""
TAIL_BYTES = 1024 * 1024


@checked_values
class AuditLog:
    """Append records to a log.

    ```python
    gate = Gate(model, tools, audit="audit.jsonl")
    ```

    Opening does nothing; the first record does. Safe to be shared by threads, and the file by processes.

    Args:
        path: The log.
        key: A key, or the file that holds it (made if it is missing), which records are sealed with.
        anchor: A file elsewhere to which every new end of the log is appended.
        file_bytes: How large a file gets before the next one is begun.
        sync: Whether durable records wait for the disk.
        secrets: Texts that are redacted besides the known secrets of the program.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        key: str | PathLike[str] | bytes | None = None,
        anchor: str | PathLike[str] | None = None,
        file_bytes: int = FILE_BYTES,
        sync: bool = True,
        secrets: Iterable[str] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        if "\0" in os.fspath(path):
            raise UsageError(f"audit={os.fspath(path)!r:.200}: a path has no NUL characters")
        self.path = Path(path)
        self.redactor = Redactor(secrets)
        self.key = key if isinstance(key, bytes) or key is None else Path(key)
        self.anchor = Path(anchor) if anchor is not None else None
        refuse_shared(self.path, self.key if isinstance(self.key, Path) else None, self.anchor)
        self._key: bytes | None = None
        self._file_bytes = file_bytes
        self._sync = sync
        self._clock = clock
        self._lock = threading.Lock()
        self._log = -1
        self._file = (-1, -1)
        """Identity of the log's file: other programs may put another one in its place."""
        self._head = -1
        self._process = os.getpid()
        self._is_torn = False
        """True if the last line has no end."""
        self._link = Link()
        self.failures = 0
        """Writes that failed."""
        self.error: str | None = None
        """The sentence about the last write or probe, if it failed."""
        self._said_s = -math.inf
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
                self._anchor(at)
                descriptor = os.dup(self._log) if durable and self._sync else -1
            if descriptor >= 0:
                _reach_disk(descriptor)  # Outside of the lock: others may write while this one waits for the disk.
        except (OSError, AuditError) as error:
            raise self._failed(error) from error
        if self.error is not None:
            self.error = None
            logger.warning("the audit log %r is written again", str(self.path))

    def check(self) -> None:
        """See that the files can be made and opened, with the key that the log is sealed with, without a record.

        Raises:
            AuditError: they cannot.
        """
        try:
            with self._lock, self._alone():
                self._open_log()
                self._find_end()
        except (OSError, AuditError) as error:
            raise AuditError(self._sentence(error)) from error
        self.close()

    def probe(self) -> str | None:
        """Try whether a record could be written now, without one. May wait for the disk.

        Returns:
            The sentence on why not, which is in `error` then, too; None if it could.
        """
        try:
            with self._lock, self._alone():
                os.close(open_private(self.path, os.O_APPEND))
                if self.anchor is not None:
                    os.close(open_private(self.anchor, os.O_APPEND))
            probe_room(self.path.parent)
        except (OSError, AuditError) as error:
            return self._noted(error)
        if self.error is not None:
            self.error = None
            logger.warning("the audit log %r can be written again", str(self.path))
        return None

    def _failed(self, error: OSError | AuditError) -> AuditError:
        """Count a write that failed."""
        self.failures += 1
        return AuditError(self._noted(error))

    def _noted(self, error: OSError | AuditError) -> str:
        """Note why the log cannot be written, and log it once in a while: calls are refused, and each would log it twice."""
        said = self._sentence(error)
        if self.error is None or time.monotonic() >= self._said_s + SAID_S:
            self._said_s = time.monotonic()
            logger.error("%s; calls are refused until it can be", said)
        self.error = said
        return said

    def _sentence(self, error: OSError | AuditError) -> str:
        if isinstance(error, AuditError):
            return str(error)
        return f"the audit log {str(self.path)!r} cannot be written: {error.strerror or error}"

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
            self._key = read_key(self.key, create=True)
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._head = open_private(head_path(self.path))
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
            line, link = seal(record, link, self._key)
            lines.append(line)
        data = b"".join(lines)
        # The end to come is recorded first, so that records which nobody announced are found.
        head = Head(link, self._size + len(data), before=self._link, is_pending=True)
        self._write_head(head)
        try:
            write_all(self._log, data)
        except OSError:
            # What a full disk took of it is no record, and nobody was told that it was written: it goes.
            with contextlib.suppress(OSError):
                os.ftruncate(self._log, self._size)
            self._size = -1  # The next writer finds the end again, and says what it finds.
            raise
        self._link, self._size = link, head.size
        self._write_head(replace(head, is_pending=False))

    def _anchor(self, at: float) -> None:
        if self.anchor is not None:
            descriptor = open_private(self.anchor, os.O_APPEND)
            try:
                write_all(descriptor, f"{self._link.count} {self._link.hash} {at:.6f}\n".encode("ascii"))
            finally:
                os.close(descriptor)

    def _catch_up(self) -> list[JsonObject]:
        """Find the end of the log again if it may have moved, and gives out what has to be said about it first."""
        if self._log >= 0 and self._is_current():
            return []
        if self._log >= 0:
            os.close(self._log)
            self._log = -1
        self._open_log()
        found = self._find_end()
        anchors = anchors_of(self.anchor)[0] if self.anchor is not None and self.anchor.exists() else []
        if self.anchor is not None and not anchors and self._link.count:
            found.append({"kind": UNANCHORED, "has": self._link.count})
        elif anchors:
            # The anchor knows every end but one that a crash kept from it.
            last = anchors[-1][0]
            kind = "appended" if last.count < self._link.count else "lost" if last.count > self._link.count else None
            found += [{"kind": kind, "had": last.count, "has": self._link.count, "head": last.hash}] if kind else []
        return found

    def _find_end(self) -> list[JsonObject]:
        size = os.fstat(self._log).st_size
        head = _read_head(self._head)
        self._refuse_without_key(is_keyed=head is not None and head.is_keyed)
        is_settled = head is not None and not head.is_pending and not head.is_forged(self._key)
        if head is not None and is_settled and head.size == size and (head.link.count == 0) == (size == 0):
            self._link, self._size = head.link, size
            return []
        return self._recover(head, size)

    def _refuse_without_key(self, *, is_keyed: bool) -> None:
        """Raise if a record without a seal would follow sealed ones: nobody could tell it from a forged one later."""
        if is_keyed and self._key is None:
            raise AuditError(
                f"the audit log {str(self.path)!r} is sealed with a key: pass the key's file as key= (setting"
                " audit_key), or begin another log"
            )

    def _is_current(self) -> bool:
        """True if the path leads to the file that is open, as this process left it; another one may have rotated it."""
        try:
            there = os.stat(self.path)
        except FileNotFoundError:
            return False
        return (there.st_size, there.st_ino, there.st_dev) == (self._size, *self._file)

    def _open_log(self, flags: int = 0) -> None:
        self._log = open_private(self.path, os.O_APPEND | flags)
        opened = os.fstat(self._log)
        self._file = (opened.st_ino, opened.st_dev)

    def _recover(self, head: Head | None, size: int) -> list[JsonObject]:
        """After a crash, or after somebody changed the files: the chain goes on, and what was found is written down."""
        found, torn = _end_of(self._log, size)
        self._refuse_without_key(is_keyed=found is not None and found.is_keyed)
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
        if head is None and found.count:
            pending.append({"kind": "headless"})
        elif head is not None:
            wanted = {head.link.hash, head.before.hash}
            finding = head.compare(found, {GENESIS, *_hashes_in(self.path, wanted)})
            if finding is None and head.is_forged(self._key):
                finding = "rewritten"
            if finding is not None:
                pending.append({"kind": finding, "had": head.link.count, "has": found.count, "head": head.link.hash})
        return pending

    def _rotate(self) -> None:
        os.fsync(self._log)
        os.close(self._log)
        self._log = -1
        numbers = [number for number, _ in rotated(self.path)]
        os.rename(self.path, f"{self.path}.{max(numbers, default=0) + 1:06d}")
        self._open_log(os.O_EXCL)
        self._size = 0
        _sync_folder(self.path.parent)

    def _write_head(self, head: Head) -> None:
        os.lseek(self._head, 0, os.SEEK_SET)
        write_all(self._head, head.line(self._key))

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
    """The files of the log, oldest first."""
    keyed_since: float | None = None
    """The time of the first record sealed with the key that has one; only its holder can have made what came since."""
    anchored_since: float | None = None
    """The time of the first record whose end the anchor holds; what came before its last one can only be as it was."""

    needs_key: bool = False
    """True if records are sealed with a key that was not given."""

    @property
    def guarantee(self) -> str:
        """A sentence on how far the log is anchored outside of itself, and what cannot be found."""
        if self.needs_key:
            return "The log is sealed with a key, and nothing can be said without it: give its file as --key."
        if self.keyed_since is not None and self.anchored_since is not None:
            return (
                f"Sealed with the key since {_day(self.keyed_since)} and anchored since {_day(self.anchored_since)}: not"
                " detected would be changes by a program with the key that can also rewrite the anchor."
            )
        if self.keyed_since is not None:
            return (
                f"Sealed with the key since {_day(self.keyed_since)}: not detected would be changes by a program with the"
                " key, and an older copy of the log restored together with its .head file."
            )
        if self.anchored_since is not None:
            return (
                f"Anchored since {_day(self.anchored_since)}: not detected would be changes to records after the last"
                " anchor, or by a program that can also rewrite the anchor."
            )
        return (
            "No record is sealed with a key, and none is anchored: not detected would be a log rewritten by a program that"
            " can write both it and its .head file."
        )


def verify(
    path: str | PathLike[str],
    *,
    head: str | None = None,
    key: str | PathLike[str] | bytes | None = None,
    anchor: str | PathLike[str] | None = None,
    pruned: bool = False,
) -> Verified:
    """Go through a log, its rotated files included.

    Args:
        path: The log.
        head: A hash of its end that was kept elsewhere.
        key: The key that its records are sealed with, or the file that holds it.
        anchor: The file elsewhere that holds its ends.
        pruned: Whether the oldest rotated files were deleted on purpose: the log begins with the oldest one that is there.

    Raises:
        AuditError: there is no such log, or it cannot be read.
    """
    path, walk = Path(path), Walk(key=read_key(key), is_pruned=pruned)
    anchors, complaints = anchors_of(Path(anchor)) if anchor is not None else ([], [])
    with contextlib.ExitStack() as stack:
        with _shared(path):  # Nobody writes until the end and the size of the log are known.
            files, stored = files_of(path), _stored_head(path)
            streams = [(file, stack.enter_context(reading(file))) for file in files]
            sizes = [os.fstat(stream.fileno()).st_size for _, stream in streams]
        wanted = {head, *(link.hash for link, _ in anchors)}
        wanted |= {stored.link.hash, stored.before.hash} if stored else set()
        seen: dict[str, tuple[int, JsonObject]] = {GENESIS: (0, {})}
        for (file, stream), size in zip(streams, sizes, strict=True):
            for record in walk.lines(_lines(stream, size), file.name):
                if walk.link.hash in wanted:
                    seen[walk.link.hash] = walk.link.count, {"at": record.get("at")}
    walk.end(stored, seen)
    walk.problems += complaints
    anchored = [(link, at, seen.get(link.hash, (0, {}))) for link, at in anchors if link.count > walk.deleted]
    missing = [link for link, _, (count, _) in anchored if count != link.count]
    if missing:
        where = f"record {missing[0].count}, as the anchor has it, and {len(missing) - 1} others"
        walk.problems.append(f"the log does not hold {where}: it was truncated or rewritten")
    if moved := [link for link, at, (count, record) in anchored if count == link.count and record["at"] != at]:
        walk.problems.append(f"the anchor has another time for record {moved[0].count} than the log")
    if anchors and anchors[-1][0].count < walk.link.count and walk.key is None:
        walk.problems.append(f"{walk.link.count - anchors[-1][0].count} records after the last anchor are not anchored")
    if head is not None and head not in seen:
        walk.problems.append(f"the log does not hold the record with the hash {head!r}")
    return Verified(
        link=walk.link,
        problems=tuple(walk.problems),
        notes=tuple(walk.notes),
        files=tuple(files),
        needs_key=walk.needs_key,
        keyed_since=walk.keyed_since if walk.key is not None else None,
        # The times of both are the same, unless a problem says that they are not.
        anchored_since=next((at for _, _, (_, record) in anchored if (at := time_in(record)) is not None), None),
    )


def records_of(path: str | PathLike[str]) -> Iterator[JsonObject]:
    """The records of a log from the oldest on, whether they are sound or not.

    Raises:
        AuditError: there is no such log, or it cannot be read.
    """
    walk = Walk()
    for file in files_of(Path(path)):
        with reading(file) as stream:
            yield from walk.lines(stream, file.name)


@contextlib.contextmanager
def _shared(path: Path) -> Generator[None]:
    """Keep writers out for a moment, where the head can be locked."""
    try:
        descriptor = os.open(head_path(path), os.O_RDONLY)
    except OSError:
        yield
        return
    try:
        if fcntl is not None:  # pragma: no branch - Windows
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _lines(stream: IO[bytes], size: int) -> Iterator[bytes]:
    """The lines of the first bytes of a file."""
    while size > 0 and (line := stream.readline(size)):
        size -= len(line)
        yield line


def _hashes_in(path: Path, wanted: set[str]) -> set[str]:
    """Return those of the hashes that are hashes of records in the log."""
    found: set[str] = set()
    for file in files_of(path):
        with reading(file) as stream:
            links = (record[0].hash for line in stream if (record := read_record(line.rstrip(b"\n"))))
            found |= wanted.intersection(links)
    return found


def _stored_head(path: Path) -> Head | None:
    try:
        return Head.read(head_path(path).read_bytes())
    except OSError:
        return None


def _day(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


# Files -------------------------------------------------------------------------------------------------------------------


def _read_all(descriptor: int, count: int) -> bytes:
    pieces: list[bytes] = []
    while count > 0 and (piece := os.read(descriptor, count)):
        pieces.append(piece)
        count -= len(piece)
    return b"".join(pieces)


def _read_head(descriptor: int) -> Head | None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return Head.read(os.read(descriptor, HEAD_BYTES + 1))


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
    full = rotated(path)
    if not full:
        return None
    with full[-1][1].open("rb") as stream:
        return _end_of(stream.fileno(), os.fstat(stream.fileno()).st_size)[0]


def _sync_folder(folder: Path) -> None:
    with contextlib.suppress(PermissionError):  # Windows opens no folders.
        _reach_disk(os.open(folder, os.O_RDONLY))


def _reach_disk(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
