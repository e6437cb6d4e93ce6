"""Attachments: `@file` in a prompt, and `-a FILE`.

Takes text and names, returns a prompt with the contents of the files. Files are opened below the root only, as the file
tools open them; sensitive ones need a confirmation and are refused without a terminal. Text is labelled as data.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from callgate.cli.stdin import labelled
from callgate.content.media_types import HEAD_BYTES, media_type_of
from callgate.errors import ToolError
from callgate.files.beneath import let_go
from callgate.files.root import Root
from callgate.permission.sensitive import is_sensitive
from callgate.types import Media

if TYPE_CHECKING:
    from callgate.content.prompt import Prompt

__all__ = ["AttachError", "Attachments", "mentions"]

MIB = 1024 * 1024
TEXT_BYTES_MAX = MIB
MEDIA_BYTES_MAX = 10 * MIB
UPLOAD_BYTES_MAX = 2048 * MIB
"""Size of one file of media that is uploaded."""
TOTAL_BYTES_MAX = 15 * MIB
"""Total size of the files of one prompt: requests over 20 MB are refused, and base64 adds a third."""
FILES_MAX = 50

# At the beginning of a word: an e-mail address is not a file. Blanks in a name are quoted, or escaped as in a shell.
_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|((?:\\.|[^\s\\"])+))')
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_ESCAPED = re.compile(r"\\(.)")
_ENDING = re.compile(r"[.,;:!?)\]}']+$")


class AttachError(Exception):
    """A file cannot be attached; the message says which, why, and what to do."""


def mentions(text: str) -> list[str]:
    """List the names after an @ in a text, in order, each once."""
    return list(dict.fromkeys(_ESCAPED.sub(r"\1", found[1] or found[2]) for found in _MENTION.finditer(text)))


class Attachments:
    """The files below one folder that the user attaches."""

    def __init__(self, root: str, *, confirm: Callable[[str], bool] | None = None) -> None:
        self.root = os.path.abspath(root)
        self._folder = Root(root, links=False, hard_links=False, back_end="auto")
        self._confirm = confirm

    def __enter__(self) -> Attachments:
        return self

    def __exit__(self, *exc: object) -> None:
        self._folder.close()

    def mentioned(self, text: str, but: Collection[str] = ()) -> tuple[Prompt, list[str]]:
        """Return the text with the files it mentions, and the mentions that are not files, which stay text.

        `but` are mentions of something else.

        Raises:
            AttachError: a file cannot be attached.
        """
        named: list[str] = []
        words: list[str] = []
        for name in (name for name in mentions(text) if name not in but):
            found = next((one for one in (name, _ENDING.sub("", name)) if one and self._exists(one)), None)
            if found is not None:
                named.append(found)
            elif _URL.match(name) or os.path.isabs(os.path.expanduser(name)) or ".." in name.split("/"):
                try:
                    self._open(name)  # It can only be meant as a file: report what is wrong with it.
                except AttachError as error:
                    raise AttachError(
                        f"{str(error).rstrip('.')}. For an @ that is not a file, put a blank after it."
                    ) from error
            else:
                words.append(name)
        return self.prompt(text, named), words

    def prompt(self, text: str, names: Sequence[str]) -> Prompt:
        """The text with these files.

        Raises:
            AttachError: a file cannot be attached.
        """
        names = list(dict.fromkeys(names))
        if not names:
            return text
        if len(names) > FILES_MAX:
            raise AttachError(f"{len(names)} files are more than the {FILES_MAX} that one prompt may have: attach fewer")
        items: list[str | Media] = [text]
        total = 0
        for name in names:
            data = self._data(name)
            if isinstance(data, Media):
                items.append(data)
                continue
            total += len(data)
            if total > TOTAL_BYTES_MAX:
                raise AttachError(f"the files have more than {_size(TOTAL_BYTES_MAX)} together: attach fewer of them")
            items.append(_item(name, data))
        return items

    def _exists(self, name: str) -> bool:
        try:
            return os.path.lexists(os.path.join(self.root, name))
        except ValueError:
            return False

    def _open(self, name: str) -> tuple[int, os.stat_result]:
        try:
            return self._folder.open_file(self._folder.names(self._inside(name)))
        except ToolError as error:
            if _URL.match(name):
                raise AttachError(
                    f"{name!r} is not attached: it is a URL, and only files can be attached; download it first"
                ) from error
            if os.path.isabs(os.path.expanduser(name)) or name.startswith(".."):
                raise AttachError(
                    f"{name!r} is not attached: it is not below {self.root!r}, and only files there can be; copy it there, "
                    "or choose the folder with --root"
                ) from error
            raise AttachError(f"{name!r} is not attached: {error}") from error

    def _inside(self, name: str) -> str:
        """Return a path relative to the root; absolute paths and `./` are accepted here because the user typed them."""
        absolute = os.path.normpath(os.path.join(self.root, os.path.expanduser(name)))
        return os.path.relpath(absolute, self.root) if absolute.startswith(self.root.rstrip(os.sep) + os.sep) else name

    def _data(self, name: str) -> bytes | Media:
        """Return the bytes of a file; media that is too large for a request is uploaded when the run starts."""
        if is_sensitive(self._inside(name).replace(os.sep, "/")):
            self._ask(name)
        descriptor, known = self._open(name)
        try:
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                if known.st_size <= MEDIA_BYTES_MAX:
                    return file.read(MEDIA_BYTES_MAX)
                kind = media_type_of(file.read(HEAD_BYTES), name)
            is_media = kind is not None and kind.startswith(("image/", "audio/", "video/", "application/pdf"))
            if not is_media or kind is None or known.st_size > UPLOAD_BYTES_MAX:
                most = _size(UPLOAD_BYTES_MAX if is_media else MEDIA_BYTES_MAX)
                raise AttachError(f"{name!r} has {_size(known.st_size)}, and at most {most} can be attached")
            path = os.path.join(self.root, self._inside(name))
            return Media(path=path, mime_type=kind, name=os.path.basename(name))
        except OSError as error:
            raise AttachError(f"{name!r} cannot be read: {error.strerror}") from error
        finally:
            let_go(descriptor)

    def _ask(self, name: str) -> None:
        if self._confirm is None:
            raise AttachError(f"{name!r} may hold secrets, and there is no terminal to confirm it: attach it in a terminal")
        if not self._confirm(name):
            raise AttachError(f"{name!r} was not attached: it may hold secrets, and you did not say yes")


def _item(name: str, data: bytes) -> str | Media:
    if (kind := media_type_of(data[:HEAD_BYTES])) is not None:
        return Media(data=data, mime_type=kind, name=os.path.basename(name))
    if len(data) > TEXT_BYTES_MAX:
        raise AttachError(
            f"{name!r} has {_size(len(data))}, and of a text at most {_size(TEXT_BYTES_MAX)} can be attached: "
            "ask the model to read parts of it with its file tools"
        )
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AttachError(
            f"{name!r} is neither text in UTF-8 (byte {error.start} is not) nor an image, a PDF, a sound or a video "
            "that is known here"
        ) from error
    if "\x00" in text:
        raise AttachError(f"{name!r} is not text: it has NUL bytes in it")
    return labelled(text, f"the file {name!r}")


def _size(count: int) -> str:
    return f"{count / MIB:.1f} MiB"
