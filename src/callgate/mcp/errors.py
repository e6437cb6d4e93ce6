"""Errors of connections to MCP servers, and the check of pages that a person is sent to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from callgate.errors import ToolError

__all__ = ["ServerFailedError", "UrlElicitationError", "is_safe_page", "leaves", "reason_of"]

REASON_CHARS_MAX = 2000
LOOPBACK = ("127.0.0.1", "localhost", "::1")


class ServerFailedError(Exception):
    """A server could not be started, or is gone; the message says why. `again`: whether trying once more may help."""

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.again = again


class UrlElicitationError(ToolError):
    """A call cannot be made before a person has visited pages, which `pages` names as the server did."""

    pages: Any = None


def reason_of(error: BaseException) -> str:
    """The reason of a failure in one line: the innermost errors of a group, each once."""
    found = dict.fromkeys(f"{type(one).__name__}: {one}".rstrip(": ") for one in leaves(error))
    said = [str(error)] if isinstance(error, ServerFailedError) else list(found)
    return " ".join("; ".join(said).split())[:REASON_CHARS_MAX]


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The innermost errors of a group, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            yield from leaves(inner)  # pyright: ignore[reportUnknownArgumentType]
    else:
        yield error


def is_safe_page(url: str) -> bool:
    """True if a person can be sent there: encrypted, or on this very machine, and with no name before the host's."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    known = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    return known and bool(parts.hostname) and "@" not in parts.netloc
