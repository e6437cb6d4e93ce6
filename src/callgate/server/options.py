"""All limits and settings of the service in one frozen object."""

from __future__ import annotations

from dataclasses import dataclass, field

from callgate.errors import UsageError
from callgate.server.identity import Identities
from callgate.server.peers import Peers

__all__ = ["ENDPOINTS", "TOKEN_CHARS_MIN", "ServiceOptions"]

TOKEN_CHARS_MIN = 16
"""A shorter token could be guessed."""
MIB = 1024 * 1024
ENDPOINTS = ("gemini", "openai", "anthropic", "ui", "mcp", "page")
"""Clients of Gemini, of OpenAI, of Anthropic and of the AI SDK, MCP clients, and the page for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Behaviour of the service towards its clients."""

    token: str | None = field(default=None, repr=False)
    """Token that clients send as `Authorization: Bearer`; None: everybody who reaches the port may use the service."""
    identities: Identities | None = field(default=None, repr=False)
    """Principals with tokens, rights and sessions of their own, such as those of an access file."""
    models: tuple[str, ...] = ()
    """Patterns of models that requests may name besides the usual one, such as `gemini:*`; empty: any."""
    peers: Peers | None = field(default=None, repr=False)
    """The other processes of the same service, for requests that one of them has to answer; None: there are none."""
    endpoints: tuple[str, ...] = ENDPOINTS
    """Groups of routes that there are besides the service's own; see `ENDPOINTS`."""
    hosts: tuple[str, ...] = ()
    """Names by which the service may be called besides those of this machine; `*`: any name, which needs a token."""
    origins: tuple[str, ...] = ()
    """Web pages of other origins that may call it, such as `https://chat.example`."""
    body_bytes: int = 10 * MIB
    """The size of one request's body."""
    header_bytes: int = 32 * 1024
    """The size of one request's head."""
    header_s: float = 10.0
    """Seconds that a request's head may take to arrive."""
    body_idle_s: float = 30.0
    """Seconds that a request's body may pause."""
    body_s: float = 120.0
    """Seconds that a request's body may take altogether."""
    connections: int = 2000
    """Connections at the same time; a further one takes the place of the one that has waited for its client for longest."""
    runs: int = 1200
    """Runs at the same time; further ones are answered with 503."""
    linger_s: float = 60.0
    """Seconds that a run of a named session continues after its last client has disconnected."""
    repeat_s: float = 45.0
    """Seconds that a repeated request waits for the end of its run elsewhere, and for the lease of one that died."""
    approval_s: float = 600.0
    """Seconds that a streamed run waits for the approval of a call before it pauses."""
    ping_s: float = 15.0
    """Seconds between the keep-alive comments of a quiet stream."""
    stalled_s: float = 60.0
    """Seconds that a client may not read before its stream is closed."""
    drain_s: float = 0.0
    """Seconds after SIGTERM in which the service is `down` for load balancers, but still accepts runs."""
    stop_s: float = 10.0
    """Seconds that runs may take to end by themselves when the service stops."""

    keep_sessions_s: float | None = None
    """Seconds after the last write until a session is deleted; None: never."""
    keep_anonymous_s: float | None = 7 * 86_400.0
    """The same for sessions that the client did not name."""

    def __post_init__(self) -> None:
        """Check what would open the service to every web page, or lose sessions.

        Raises:
            UsageError: any host name is allowed, and there is no token; there are no such endpoints; or sessions would be
            deleted as soon as they are over.
        """
        if unknown := set(self.endpoints) - set(ENDPOINTS):
            raise UsageError(f"there are no endpoints {sorted(unknown)[0]!r}; there are {', '.join(ENDPOINTS)}")
        for name in ("keep_sessions_s", "keep_anonymous_s"):
            kept_s: float | None = getattr(self, name)
            if kept_s is not None and not kept_s > 0:
                raise UsageError(
                    f"{name}={kept_s!r} would delete every session when it is over: use a time above 0, or None"
                )
        if "*" in self.hosts and self.token is None and self.identities is None:
            # A web page could reach it by a name that its owner points here.
            raise UsageError("a server that may be called by any name needs a token")
