"""Media that can be sent: the bytes of a file, and the type of bytes.

`Media` with a path, bytes or an address comes in; the same with bytes and a type, or with its address, goes out. Reads
files, so it runs beside the event loop.
"""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from urllib.parse import unquote, urlsplit

from callgate.content.media_types import HEAD_BYTES, media_type_of
from callgate.errors import UsageError
from callgate.types import Media

__all__ = ["INLINE_BYTES_MAX", "MediaReader", "name_of", "read_media", "with_type"]

INLINE_BYTES_MAX = 14 * 1024 * 1024
"""Bytes of media in one prompt or result that are sent in the request: it may have 20 MB, and base64 adds a third."""


class MediaReader:
    """Reader of the media of one result; together they are no larger than a request may have."""

    def __init__(self) -> None:
        self._left = INLINE_BYTES_MAX

    def __call__(self, media: Media) -> Media:
        """Return the media with its bytes and type, or with its address.

        Raises:
            UsageError: it cannot be read or sent; the message says why.
        """
        if media.uri is not None:
            return with_type(media)
        found = read_media(media)
        self._left -= len(found.data)
        if self._left < 0:
            raise UsageError(f"{name_of(media)!r} is too large: a result may have {INLINE_BYTES_MAX:,} bytes of media")
        return found


def with_type(media: Media) -> Media:
    """Return media that is an address, with its type if the address says it.

    Raises:
        UsageError: it is none that a provider can read.
    """
    uri = media.uri or ""
    scheme, has_scheme, _ = uri.partition(":")
    is_local = scheme.lower() == "file" if has_scheme else not uri.startswith("files/")
    if is_local or uri.startswith(("/", "\\")) or len(scheme) == 1:
        raise UsageError(f"uri={uri!r:.200} is not an address that a provider reads: for a file on this machine use path=")
    return replace(media, mime_type=media.mime_type or _type_in(uri))


def _type_in(uri: str) -> str:
    """The type that the last name in an address says; empty if it says none: the name of a host may end like a file."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return ""
    name = uri if parts.scheme == "data" else unquote(parts.path.rpartition("/")[2])
    return media_type_of(b"", name) or ""


def name_of(media: Media) -> str:
    """The name of media for a message."""
    return media.name or os.path.basename(media.path or "") or "media"


def read_media(media: Media) -> Media:
    """Return media with its bytes and its type.

    Raises:
        UsageError: there are none, or the file is none that can be read.
    """
    data = media.data
    if media.path is not None:
        try:
            data = _bytes_of(media.path)
        except OSError as error:
            raise UsageError(f"{name_of(media)!r} cannot be read: {error.strerror}") from error
    kind = media.mime_type or media_type_of(data[:HEAD_BYTES], name_of(media))
    if not data:
        raise UsageError(f"{name_of(media)!r} is empty")
    if not kind:
        raise UsageError(f"the type of {name_of(media)!r} is not known: pass Media(..., mime_type='image/png')")
    named = media.name or (name_of(media) if media.path else None)
    return replace(media, data=data, mime_type=kind, path=None, name=named)


def _bytes_of(path: str | os.PathLike[str]) -> bytes:
    with open(path, "rb", opener=_opened) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "it is not a regular file")
        return file.read(INLINE_BYTES_MAX + 1)


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # The other end of a pipe would be waited for.
