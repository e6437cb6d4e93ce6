"""Ids of sessions that nobody named, and which of them have begun.

An id that was made up here is new until its session has facts. If somebody names one that is not new and that a store in
memory has nothing of, the session was forgotten, or it was another process's; this file is how the two are told apart.
"""

from __future__ import annotations

import os
import re

__all__ = ["ANONYMOUS_PREFIX", "is_anonymous", "is_new", "mark_used", "new_session_id"]

ANONYMOUS_PREFIX = "s-"
NEW_MAX = 10_000
"""Ids that are known to be new. Each is needed from when it is made up until its run begins; the oldest go first."""

_FORM = re.compile(r"s-[0-9a-f]{12}")
_new: dict[str, None] = {}  # Each step on it is atomic, and there is no lock that a fork could find held.


def new_session_id() -> str:
    """Make up an id for a session that nobody named."""
    session = f"{ANONYMOUS_PREFIX}{os.urandom(6).hex()}"
    _new[session] = None
    if len(_new) > NEW_MAX:
        for old in list(_new)[: -(NEW_MAX * 9 // 10)]:
            _new.pop(old, None)
    return session


def is_anonymous(session: str) -> bool:
    """Return whether an id looks as if it was made up."""
    return _FORM.fullmatch(session) is not None


def is_new(session: str) -> bool:
    """Return whether the id was made up in this process and has not been used."""
    return session in _new


def mark_used(session: str) -> None:
    """Note that the session has facts from now on."""
    _new.pop(session, None)
