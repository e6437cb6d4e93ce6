"""Requests that may be sent again, to any process: each begins one run, and not two.

What a request is called comes in, and goes into the journal with the run that it begins. Whoever holds the lease of a
session has its whole journal before it, so that here a second run of the same request is refused, however many processes
want to carry it out. How requests get their names, and who waits for what, is for others to say.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from callgate.errors import CallgateError
from callgate.machine.machine import RunMachine

__all__ = ["AlreadyBegun", "Request", "asked_by", "request_for"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that may be sent again."""

    id: str
    session: str
    goes_on: bool = False
    """Whether the run that it has begun is to go on; otherwise it is to begin."""


class AlreadyBegun(CallgateError):
    """The request has its run already, or that run is no longer the one to go on with."""


_REQUEST: ContextVar[Request | None] = ContextVar("callgate_request", default=None)


@contextmanager
def asked_by(request: Request | None) -> Generator[None]:
    """What is run meanwhile in the session of the request is run for it."""
    token = _REQUEST.set(request)
    try:
        yield
    finally:
        _REQUEST.reset(token)


def request_for(session: str, loop: RunMachine) -> str | None:
    """What the request is called that a run of this session is for; None for one that is not sent again.

    Raises:
        AlreadyBegun: the journal says that the run has begun, or, where it is to go on, that it cannot.
    """
    request = _REQUEST.get()
    # A tool may run conversations of its own meanwhile.
    if request is None or request.session != session:
        return None
    if request.goes_on:
        if loop.run.request != request.id or loop.phase in ("idle", "done"):
            raise AlreadyBegun(f"the run of request {request.id} in session {session!r} is over")
    elif request.id in loop.requests:
        raise AlreadyBegun(f"request {request.id} has begun a run in session {session!r} before")
    return request.id
