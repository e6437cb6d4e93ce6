"""Idempotency keys: a retried request starts at most one run.

The key of a request is journalled with the run that it starts. The holder of a session's lease has its whole journal, so
that a second run of the same request is refused here, however many processes try to start it. How requests get their
keys, and who waits for which run, is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass

from callgate.errors import CallgateError
from callgate.machine.machine import RunMachine

__all__ = ["AlreadyStartedError", "IdempotencyKey"]


class AlreadyStartedError(CallgateError):
    """The request has started its run already, or that run can no longer be resumed."""


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The idempotency key of a request."""

    id: str
    """The name of the request in the journal."""
    resumes: bool = False
    """True to resume the run that it has started; otherwise it starts one."""

    def check(self, machine: RunMachine, session: str) -> str:
        """Check the request against the journal of its session, and return its id.

        Raises:
            AlreadyStartedError: the journal says that its run has started, or, to resume it, that it is over.
        """
        if self.resumes:
            if machine.run.request != self.id or machine.phase in ("idle", "done"):
                raise AlreadyStartedError(f"the run of request {self.id} in session {session!r} is over")
        elif self.id in machine.requests:
            raise AlreadyStartedError(f"request {self.id} has started a run in session {session!r} before")
        return self.id
