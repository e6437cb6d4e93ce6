"""The type of media that are named by an address alone."""

from __future__ import annotations

import re

__all__ = ["type_of_address"]

_FILM = re.compile(r"https?://(?:(?:www|m|music)\.)?(?:youtube\.com|youtube-nocookie\.com|youtu\.be)/", re.IGNORECASE)
_ENDINGS = {
    "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp",
    "heic": "image/heic", "heif": "image/heif", "pdf": "application/pdf", "csv": "text/csv", "html": "text/html",
    "txt": "text/plain", "md": "text/markdown", "doc": "application/msword", "xls": "application/vnd.ms-excel",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "mp4": "video/mp4", "mpg": "video/mpg", "mpeg": "video/mpeg", "mov": "video/mov", "webm": "video/webm",
    "wmv": "video/wmv", "mp3": "audio/mp3", "wav": "audio/wav", "flac": "audio/flac", "ogg": "audio/ogg",
    "m4a": "audio/m4a", "aac": "audio/aac",
}  # fmt: skip


def type_of_address(uri: str) -> str | None:
    """The MIME type that an address tells of: by its ending, and of YouTube that it is a video."""
    if _FILM.match(uri):
        return "video/mp4"
    return _ENDINGS.get(uri.partition("?")[0].partition("#")[0].rpartition(".")[2].lower())
