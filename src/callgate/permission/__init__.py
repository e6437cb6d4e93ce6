"""Before a call: may it run, must somebody be asked, or is it refused?

A definition and a checked call come in, a `Decision` goes out. This package runs nothing and asks nobody itself: asking is
done by whoever was given to the gate as `approve`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from callgate.errors import UsageError
from callgate.types import Decision, FunctionCall, ToolDefinition, Verdict

__all__ = ["Approval", "Approve", "Policy"]

Approval: TypeAlias = "Literal['yes', 'no', 'always', 'later'] | FunctionCall"
"""An answer: `always` also allows later calls of the tool in this session, `later` pauses the run until somebody answers,
and a call with other arguments means "yes, but like this"."""


class Approve(Protocol):
    """Whoever can be asked: a terminal, a web page, a program."""

    async def __call__(self, call: FunctionCall, definition: ToolDefinition, reason: str) -> Approval:
        """Say whether the call may run. Raising refuses it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What may run without asking.

    With `default=None`: functions that a program passes in are allowed, because the programmer chose them; read-only tools
    are allowed; everything else that writes files, runs commands or lives on a server is asked for.
    """

    default: Verdict | None = None

    def __post_init__(self) -> None:
        if self.default not in (None, "allow", "ask", "deny"):
            raise UsageError(f"Policy(default={self.default!r}): use 'allow', 'ask', 'deny' or None")

    def decide(self, definition: ToolDefinition, call: FunctionCall) -> Decision:
        """The decision for one call, before anybody is asked."""
        if self.default is not None:
            return Decision(verdict=self.default, reason=f"The policy's default is {self.default!r}.")
        if definition.kind == "function":
            return Decision(verdict="allow", reason="The program passed this function in.")
        if definition.read_only:
            return Decision(verdict="allow", reason="The tool is read-only.")
        return Decision(verdict="ask", reason=f"{definition.name!r} may change something.")

    def may_declare(self, definition: ToolDefinition) -> bool:
        """Whether the model is told of the tool at all; what is always refused is not offered."""
        return self.default != "deny"
