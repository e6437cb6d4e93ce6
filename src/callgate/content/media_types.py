"""The MIME type of media, by the first bytes or by the name of a file."""

from __future__ import annotations

import mimetypes

__all__ = ["HEAD_BYTES", "media_type_of"]

HEAD_BYTES = 16
"""The number of first bytes that tell the type."""

_KINDS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (8, b"WEBP", "image/webp"),
    (0, b"GIF8", "image/gif"),
    (4, b"ftypheic", "image/heic"),
    (4, b"ftypmif1", "image/heif"),
    (0, b"%PDF-", "application/pdf"),
    (8, b"WAVE", "audio/wav"),
    (0, b"ID3", "audio/mp3"),
    (0, b"\xff\xfb", "audio/mp3"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1aE\xdf\xa3", "video/webm"),
)
"""Offset and bytes of a signature -> the MIME type; the first match counts."""


def media_type_of(head: bytes, name: str = "") -> str | None:
    """Return the MIME type of media by its first bytes, else by its name; None if neither tells."""
    found = next((kind for place, mark, kind in _KINDS if head[place : place + len(mark)] == mark), None)
    return found or mimetypes.guess_type(name)[0]
