"""Words for what goes wrong between us and a server."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["ServerFailed", "reason_of"]

REASON_CHARS_MAX = 2000


class ServerFailed(Exception):
    """A server could not be started, or is gone; the message says why. `again`: whether trying once more may help."""

    def __init__(self, message: str, *, again: bool = True) -> None:
        super().__init__(message)
        self.again = again


def reason_of(error: BaseException) -> str:
    """Why something failed, in one line: the innermost errors of a group, each once."""
    found = dict.fromkeys(f"{type(one).__name__}: {one}".rstrip(": ") for one in _leaves(error))
    said = [str(error)] if isinstance(error, ServerFailed) else list(found)
    return " ".join("; ".join(said).split())[:REASON_CHARS_MAX]


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
            yield from _leaves(inner)  # pyright: ignore[reportUnknownArgumentType]
    else:
        yield error
