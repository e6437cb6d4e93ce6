"""Whoever can be asked about a call, and the answers that there are."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

from callgate.types import FunctionCall, ToolDefinition

__all__ = ["Approval", "Approve"]

Approval: TypeAlias = "Literal['yes', 'no', 'always', 'later'] | FunctionCall"
"""An answer: `always` also allows later calls like it in this session, `later` pauses the run until somebody answers, and a
call with other arguments means "yes, but like this"."""


class Approve(Protocol):
    """Whoever can be asked: a terminal, a web page, a program."""

    async def __call__(self, call: FunctionCall, definition: ToolDefinition, reason: str) -> Approval:
        """Say whether the call may run. Raising refuses it."""
        ...
