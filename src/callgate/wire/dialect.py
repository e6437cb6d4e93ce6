"""What a client is given: a request to send, and the meaning of a server's words.

Nothing here does anything; these are the shapes of what the wires bring along.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from callgate.types import JsonObject
from callgate.wire.failures import Failure, Sent

__all__ = ["Dialect", "HttpRequest", "Reader", "Response"]


class Reader(Protocol):
    """Bytes of one answer in, its chunks out."""

    def feed(self, data: bytes) -> list[JsonObject]:
        """Takes the next bytes."""
        ...

    def close(self) -> list[JsonObject]:
        """Says that no more bytes come."""
        ...

    def read_whole(self, data: bytes) -> list[JsonObject]:
        """Takes an answer that is already complete."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether something was left because it takes long."""
        ...

    def catch_up(self) -> Iterable[list[JsonObject]]:
        """Reads what was left, in steps that are short."""
        ...


class Response(Protocol):
    """One answer on its way: its head, and its bytes as they come."""

    status_code: int
    encoding: str
    """How the bytes are encoded on their way; mostly not at all."""
    idle_s: float | None
    """How long a piece may take to come."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by name in any case."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether it is known that no more pieces come."""
        ...

    def piece(self) -> Awaitable[bytes | None]:
        """The next bytes, decoded; None at the end."""
        ...

    async def aclose(self) -> None:
        """Lets go of the connection: for the next request if all is well, for good otherwise."""
        ...


class Dialect(Protocol):
    """What the words of one kind of server mean, as far as a client must know."""

    def reader(self, *, event_bytes_max: int, total_bytes_max: int, leaves_heavy: bool = False) -> Reader:
        """A reader for one answer; with `leaves_heavy`, what takes long is read by `catch_up`."""
        ...

    def error_in(self, chunk: JsonObject) -> JsonObject | None:
        """The error that a body or a chunk tells of, if it does."""
        ...

    def failure_of(
        self, status: int | None, error: JsonObject, headers: Mapping[str, str], *, now: float, sent: Sent
    ) -> Failure:
        """What an error means; `status` is the HTTP status when it came as a response of its own."""
        ...

    def look(self, chunk: JsonObject) -> tuple[bool, bool]:
        """Whether the chunk holds anything for the caller, who must not see it twice, and whether it ends the answer."""
        ...

    def heard(self, response: Response) -> None:
        """The head of a response, which may tell what kind of server it is."""
        ...


@dataclass(slots=True, kw_only=True)
class HttpRequest:
    """What is sent, and where."""

    url: str | Callable[[], str]
    """Where to, or what says so when the credentials are there."""
    body: bytes = field(repr=False)
    stream: bool
    """Whether the answer is to come in pieces."""
    model: str
    tools: Collection[str] = ()
    """The tools' own names in the order of their declarations."""
    declared: Mapping[str, str] | None = None
    """Declared name -> the tool's own name, where the two differ."""
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    """Headers of this request alone, checked, by name in lower case."""

    @property
    def sent(self) -> Sent:
        """What it is, to explain what a refusal means."""
        return Sent(model=self.model, tools=list(self.tools), size_bytes=len(self.body), declared=self.declared or {})
