"""The types that a client works with: a request, its response, and the protocol of one kind of server.

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
        """Take the next bytes."""
        ...

    def close(self) -> list[JsonObject]:
        """Signal the end of the input."""
        ...

    def read_whole(self, data: bytes) -> list[JsonObject]:
        """Take an answer that is already complete."""
        ...

    @property
    def is_behind(self) -> bool:
        """True if input was deferred because parsing it takes long."""
        ...

    def catch_up(self) -> Iterable[list[JsonObject]]:
        """Parse deferred input in short steps."""
        ...


class Response(Protocol):
    """One response: its head, and its bytes as they arrive."""

    status_code: int
    encoding: str
    """The content encoding; usually empty."""
    idle_s: float | None
    """The time-out for the next piece."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, by name in any case."""
        ...

    @property
    def is_over(self) -> bool:
        """True if the end of the body has been seen."""
        ...

    def piece(self) -> Awaitable[bytes | None]:
        """The next bytes, decoded; None at the end."""
        ...

    async def aclose(self) -> None:
        """Release the connection: back to the pool if it is clean, closed otherwise."""
        ...


class Dialect(Protocol):
    """The protocol of one kind of server, as far as a client must know it."""

    def reader(self, *, event_bytes_max: int, total_bytes_max: int, leaves_heavy: bool = False) -> Reader:
        """A reader for one answer; with `leaves_heavy`, expensive input is parsed by `catch_up`."""
        ...

    def error_in(self, chunk: JsonObject) -> JsonObject | None:
        """The error object in a body or a chunk, if there is one."""
        ...

    def failure_of(
        self, status: int | None, error: JsonObject, headers: Mapping[str, str], *, now: float, sent: Sent
    ) -> Failure:
        """The failure that an error object means; `status` is the HTTP status when it came as a response of its own."""
        ...

    def look(self, chunk: JsonObject) -> tuple[bool, bool]:
        """Two flags: the chunk has content for the caller (so no retry may follow), and it ends the answer."""
        ...

    def inspect_response(self, response: Response) -> None:
        """Inspect the head of a response, which may identify the server."""
        ...


@dataclass(slots=True, kw_only=True)
class HttpRequest:
    """An HTTP request."""

    url: str | Callable[[], str]
    """The URL, or a function that returns it once the credentials are known."""
    body: bytes = field(repr=False)
    stream: bool
    """True if the answer is streamed."""
    model: str
    tools: Collection[str] = ()
    """The tools' own names in the order of their declarations."""
    declared: Mapping[str, str] | None = None
    """Declared name -> the tool's own name, where the two differ."""
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    """Headers of this request alone, checked, by name in lower case."""
    method: str = "POST"

    @property
    def sent(self) -> Sent:
        """A summary of the request, to explain a refusal."""
        return Sent(model=self.model, tools=list(self.tools), size_bytes=len(self.body), declared=self.declared or {})
