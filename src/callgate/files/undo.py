"""Undoing a write: the record of a change and its backup -> the file as it was before.

The writing is done as every write is, so undoing can be undone. Nothing is put back over changes that came later, unless
that is asked for.
"""

from __future__ import annotations

import hashlib
import os

from callgate.errors import ToolError, UsageError
from callgate.files.backups import Backups, Change
from callgate.files.beneath import let_go
from callgate.files.paths import Names, names_of
from callgate.files.root import Root
from callgate.files.text import NotTextError, decoded, encoding_of
from callgate.files.text_edits import unified_diff
from callgate.files.writer import New, Old, Writer
from callgate.types import ToolContext

__all__ = ["difference", "restore", "took_effect"]


def restore(writer: Writer, change: Change, *, force: bool = False) -> Change:
    """Put back what was there before the change; returns the record of doing so.

    Raises:
        UsageError: it cannot be put back; the sentence says why.
    """
    before = writer.backups.bytes_before(change)
    names = names_of(change.path)

    def renew(old: Old | None) -> New | None:
        now = None if old is None else _digest(old.descriptor)
        if now == (change.sha256 if change.existed else None):
            raise ToolError(f"{change.path!r} is as it was before change {change.id} already")
        if now != change.after_sha256 and not force:
            raise ToolError(
                f"{change.path!r} was changed again after change {change.id}; look at the difference, or force it"
            )
        return None if before is None else New(before, mode=change.mode)

    try:
        return writer.write(names, renew, ToolContext(call_id=change.call_id, name="undo", session=change.session)).change
    except ToolError as error:
        raise UsageError(str(error).rstrip(".")) from error


def took_effect(root: Root, change: Change) -> bool:
    """Return whether a change was made, as far as can be seen: a process killed before the rename leaves its record only.

    Then the file is as it was before, and has been since: one that was put back by hand has a later time.
    """
    names = names_of(change.path).names
    try:
        descriptor = root.open_raw(names, os.O_RDONLY)
    except FileNotFoundError:
        if change.existed:
            return True
        try:
            folder = root.open_folder(Names(names[:-1]))
        except ToolError:
            return True
        try:
            return os.fstat(folder).st_mtime > change.time_s
        finally:
            let_go(folder)
    except OSError:
        return True
    try:
        is_old = change.existed and os.fstat(descriptor).st_ctime <= change.time_s
        return not (is_old and _digest(descriptor) == change.sha256)
    finally:
        let_go(descriptor)


def difference(root: Root, backups: Backups, change: Change) -> str:
    """Preview undoing the change."""
    before = backups.bytes_before(change)
    return unified_diff(change.path, _text(_now(root, names_of(change.path))), _text(before))


def _now(root: Root, names: Names) -> bytes | None:
    try:
        descriptor = root.open_raw(names.names, os.O_RDONLY)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        return file.read()


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    try:
        return decoded(data, encoding_of(data))
    except NotTextError:
        return f"(binary, {len(data)} bytes, sha256 {hashlib.sha256(data).hexdigest()[:16]})\n"


def _digest(descriptor: int) -> str:
    digest = hashlib.sha256()
    offset = 0
    while piece := os.pread(descriptor, 1 << 20, offset):
        digest.update(piece)
        offset += len(piece)
    return digest.hexdigest()
