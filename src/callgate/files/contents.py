"""The bytes that a write shall leave: encodings and byte order marks kept, line ends kept or told, bounds held.

Arguments of a call and the old file come in, the new content goes out. Putting it in place is `writing.py`'s business.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from callgate.errors import ToolError
from callgate.files.beneath import let_go
from callgate.files.bounds import Bounds
from callgate.files.paths import Names, shown
from callgate.files.reader import read_whole
from callgate.files.root import Root
from callgate.files.text import UTF8, WINDOWS, Encoding, NotTextError, decoded, encoding_of
from callgate.files.text_edits import edited as replaced
from callgate.files.text_edits import stand_in_line, unified_diff
from callgate.files.writer import New, Old

__all__ = ["Contents"]

HEAD_BYTES = 1024 * 1024
"""Bytes of a file from which its encoding is detected."""


@dataclass(frozen=True, slots=True)
class Contents:
    """New contents of files, as the writing tools make them."""

    root: Root
    bounds: Bounds

    def written(self, names: Names, args: Mapping[str, Any], notes: list[str], old: Old | None) -> New:
        """The new content for `write_file`."""
        content, append = args["content"], args.get("mode", "overwrite") == "append"
        if old is None:
            return New(self._bounded(UTF8.encode(content)))
        if append:
            # The old bytes become part of a file that can be read, so they must be bytes that may be read.
            self.root.require_one_link(names, old.known)
        encoding = _encoding_of(old, append=append)
        if append:
            return New(self._bounded(encoding.encode(content)), append=True)
        before = _text_of(old, encoding)
        stand_in = stand_in_line(before, content)
        if stand_in:
            raise ToolError(
                f"Not written: the line {shown(stand_in)} stands for text that would be lost. Give the whole content, or "
                "change a part with edit_file."
            )
        if "\r\n" in before and "\r" not in content and "\n" in content:
            notes.append("The file had CRLF line ends and now has LF, as in the content.")
        try:
            data = encoding.encode(content)
        except ToolError:
            if encoding != WINDOWS:
                raise
            data, encoding = UTF8.encode(content), UTF8
            notes.append("The file was not UTF-8 (perhaps Windows-1252) and is UTF-8 now.")
        if encoding != UTF8:
            notes.append(
                f"The file's encoding was kept: {encoding.codec}{' with a byte order mark' if encoding.mark else ''}."
            )
        return New(self._bounded(encoding.mark + data))

    def edited(self, names: Names, args: Mapping[str, Any], counts: list[int], old: Old | None) -> New:
        """The new content for `edit_file`."""
        if old is None:
            raise ToolError(f"There is no file {shown(names.text)}; write_file makes new ones.")
        self.root.require_one_link(names, old.known)
        os.lseek(old.descriptor, 0, os.SEEK_SET)
        encoding, _, text = read_whole(names.text, old.descriptor, self.bounds.write_bytes)
        text, count = replaced(
            names.text, text, args["old_string"], args["new_string"], every=args.get("replace_all", False)
        )
        counts.append(count)
        return New(self._bounded(encoding.mark + encoding.encode(text)))

    def _bounded(self, data: bytes) -> bytes:
        if len(data) > self.bounds.write_bytes:
            raise ToolError(
                f"Not written: {len(data)} bytes are more than the {self.bounds.write_bytes} that one write may bring. "
                "Write it in parts, with mode='append'."
            )
        return data

    def preview(self, names: Names, renew: Callable[[Old | None], New]) -> str:
        """The diff that a write would make, without making it. Raises `ToolError` or `OSError` as the write would."""
        descriptor: int | None = None
        try:
            descriptor = self.root.open_raw(names.names, os.O_RDONLY)
            known = os.fstat(descriptor)
            self.root.require_regular(names, known)
            old = Old(descriptor, known)
        except FileNotFoundError:
            old = None
        try:
            new = renew(old)
            before = old.read(self.bounds.write_bytes) if old else None
            data = (before or b"") + new.data if new.append else new.data
            return unified_diff(names.text, None if before is None else _shown_text(before), _shown_text(data))
        finally:
            if descriptor is not None:
                let_go(descriptor)


def _encoding_of(old: Old, *, append: bool) -> Encoding:
    """The encoding of a file that is written to. Binary content is replaced as it is, and nothing is appended to it."""
    head = old.read(HEAD_BYTES)
    try:
        return encoding_of(head, whole=len(head) < HEAD_BYTES)
    except NotTextError as error:
        if append:
            raise ToolError(f"Not written: the file {error}, so text cannot be appended to it.") from None
        return UTF8


def _text_of(old: Old, encoding: Encoding) -> str:
    """The beginning of the old text, as far as it is needed to judge the new one."""
    try:
        return decoded(old.read(1 << 20), encoding, whole=False)
    except NotTextError:
        return ""


def _shown_text(data: bytes) -> str:
    try:
        return decoded(data, encoding_of(data))
    except NotTextError:
        return f"(binary, {len(data)} bytes)\n"
