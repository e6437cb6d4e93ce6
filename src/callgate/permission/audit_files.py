"""The files around an audit log: rotated parts, the key that records are sealed with, and the anchor kept elsewhere."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Generator
from os import PathLike
from pathlib import Path
from typing import IO

from callgate.errors import AuditError, UsageError
from callgate.permission.hash_chain import Link

__all__ = [
    "anchors_of",
    "files_of",
    "head_path",
    "open_private",
    "probe_room",
    "read_key",
    "reading",
    "refuse_shared",
    "rotated",
    "write_all",
]

KEY_BYTES_MIN = 16
ROOM_BYTES = 64 * 1024
"""Room that a disk must have for the next records."""
_ANCHOR = re.compile(r"([0-9]{1,15}) ([0-9a-f]{64}) ([0-9]{1,12}(?:\.[0-9]{1,6})?)")


def files_of(path: Path) -> list[Path]:
    """The files of a log from the oldest on.

    Raises:
        AuditError: there is none.
    """
    files = [file for _, file in rotated(path)] + ([path] if path.is_file() else [])
    if not files:
        raise AuditError(f"there is no audit log {str(path)!r}")
    return files


def rotated(path: Path) -> list[tuple[int, Path]]:
    """The full files of a log by number."""
    names = re.compile(re.escape(path.name) + r"\.([0-9]{6,})")
    found = [(names.fullmatch(file.name), file) for file in path.parent.glob("*") if path.parent.is_dir()]
    return sorted((int(match[1]), file) for match, file in found if match)


def head_path(path: Path) -> Path:
    """The file that holds the end of a log."""
    return path.with_name(f"{path.name}.head")


def refuse_shared(path: Path, key: Path | None, anchor: Path | None) -> None:
    """Refuse files that are one another: a log would be its own key, or its records lines of the anchor.

    Raises:
        UsageError: two of them are the same file.
    """
    named = {"the log": path, "the file with its end": head_path(path), "key=": key, "anchor=": anchor}
    known: dict[str, str] = {}
    for name, file in named.items():
        other = known.setdefault(os.path.realpath(file), name) if file is not None else name
        if other != name:
            raise UsageError(f"AuditLog({name}{os.fspath(file or '')!r:.200}): {other} is the same file; use another one")


def read_key(key: str | PathLike[str] | bytes | None, *, create: bool = False) -> bytes | None:
    """The key itself, or the one in a file, which is made for its owner alone if `create` says so.

    Raises:
        AuditError: it cannot be read, or is too short to be a key.
    """
    if key is None:
        return None
    if not isinstance(key, bytes):
        path = Path(key).expanduser()
        try:
            if create and not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(made, "w", encoding="ascii") as file:
                    file.write(secrets.token_hex(32) + "\n")
            key = path.read_bytes().strip()
        except OSError as error:
            raise AuditError(f"the key {str(path)!r} of the audit log cannot be read: {error.strerror or error}") from error
    if len(key) < KEY_BYTES_MIN:
        raise AuditError(f"the key of the audit log has {len(key)} bytes; use at least {KEY_BYTES_MIN}")
    return key


def anchors_of(path: Path) -> tuple[list[tuple[Link, float]], list[str]]:
    """The ends of a log that an anchor file holds, from the oldest on, and problems with its lines.

    Raises:
        AuditError: it cannot be read.
    """
    found: list[tuple[Link, float]] = []
    problems: list[str] = []
    with reading(path, what="anchor") as stream:
        for number, line in enumerate(stream.read().decode("ascii", "replace").splitlines(), 1):
            match = _ANCHOR.fullmatch(line.strip())
            if match is None or int(match[1]) == 0:
                problems.append(f"{path.name} line {number} is no anchor of a log")
                continue
            if found and int(match[1]) < found[-1][0].count:
                problems.append(f"{path.name} line {number} is out of order: lines were moved, or the log was cut off")
            found.append((Link(int(match[1]), match[2]), float(match[3])))
    if not found and not problems:
        problems.append(f"the anchor {path.name} is empty: nothing was ever anchored in it, or it was emptied")
    return found, problems


@contextlib.contextmanager
def reading(path: Path, *, what: str = "audit log") -> Generator[IO[bytes]]:
    """Open a file for reading; every failure on the way is an `AuditError`. What has no end, or waits, is no file."""
    try:
        with open(path, "rb", opener=_open_at_once) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise AuditError(f"the {what} {str(path)!r} cannot be read: it is not a regular file")
            yield stream
    except OSError as error:
        raise AuditError(f"the {what} {str(path)!r} cannot be read: {error.strerror or error}") from error


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # A pipe that nobody writes to is not waited for.


def open_private(path: Path, flags: int = 0) -> int:
    """Open a file for its owner alone, and never through a link."""
    safe = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | safe | flags, 0o600)
    with contextlib.suppress(OSError, AttributeError):
        os.fchmod(descriptor, 0o600)  # It may have been there before, with other rights.
    return descriptor


def probe_room(folder: Path) -> None:
    """See that the disk of a folder has room for a record. Nothing is left there, also after a kill.

    Raises:
        OSError: it has none.
    """
    try:
        probe = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - only its opening may be refused
    except PermissionError:
        return  # The files of the log may be all that this user may write there.
    with probe:
        write_all(probe.fileno(), bytes(ROOM_BYTES))


def write_all(descriptor: int, data: bytes) -> None:
    """Write everything, however many times the system takes only a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
