"""Calls of MCP clients that wait for an answer which comes with another request of the same client.

A call in flight comes in, the state for the client goes out: a mark that stands for the call. It is good once, for the very
call that it was given for, and for the client that it was given to. A call whose client does not come back is stopped.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field

from callgate.calls.dispatcher import InFlightCall
from callgate.mcp.client_requests import SdkClient
from callgate.types import Progress

__all__ = ["WaitingCall", "WaitingCalls"]

WAITING_MAX = 100
WAIT_S = 600.0
"""The longest wait for an answer of a client."""
NOBODY = "The client did not come back with an answer."


@dataclass(slots=True)
class WaitingCall:
    """A call in flight, with the client that is asked and the place of its progress."""

    owner: str
    """The client, and what it has called."""
    client: SdkClient
    in_flight: InFlightCall = field(init=False)
    progress: Progress | None = None
    timer: asyncio.TimerHandle | None = None

    def report(self, message: str, fraction: float | None = None) -> None:
        """Report progress to the request that the call is for now."""
        if self.progress is not None:
            self.progress(message, fraction)


class WaitingCalls:
    """The calls that wait, by their marks."""

    def __init__(self) -> None:
        self._calls: OrderedDict[str, WaitingCall] = OrderedDict()

    def keep(self, call: WaitingCall, prefix: str) -> str:
        """Keep a call until its client comes back; return the mark that the client must show."""
        mark = f"{prefix}{secrets.token_urlsafe(24)}"
        call.progress = None
        call.timer = asyncio.get_running_loop().call_later(WAIT_S, self._stop, mark)
        self._calls[mark] = call
        while len(self._calls) > WAITING_MAX:
            self._stop(next(iter(self._calls)))
        return mark

    def take(self, mark: str | None, owner: str) -> WaitingCall | None:
        """Take the call that a mark stands for; None if it stands for none of this client."""
        call = self._calls.get(mark or "")
        if call is None or call.owner != owner:
            return None
        del self._calls[mark or ""]
        if call.timer is not None:
            call.timer.cancel()
        return call

    def stop(self) -> None:
        """Stop all of them."""
        for mark in list(self._calls):
            self._stop(mark)

    def _stop(self, mark: str) -> None:
        if (call := self._calls.pop(mark, None)) is not None:
            if call.timer is not None:
                call.timer.cancel()
            call.in_flight.stop(NOBODY)
