"""What may run without asking."""

from __future__ import annotations

from typing import Any

import pytest

from callgate.errors import UsageError
from callgate.permission import Policy
from callgate.types import Decision, FunctionCall, ToolDefinition

CALL = FunctionCall(name="f")


@pytest.mark.parametrize(
    ("kind", "read_only", "decision"),
    [
        ("function", False, Decision(verdict="allow", reason="The program passed this function in.")),
        ("function", True, Decision(verdict="allow", reason="The program passed this function in.")),
        ("file", True, Decision(verdict="allow", reason="The tool is read-only.")),
        ("mcp", True, Decision(verdict="allow", reason="The tool is read-only.")),
        ("file", False, Decision(verdict="ask", reason="'f' may change something.")),
        ("command", False, Decision(verdict="ask", reason="'f' may change something.")),
        ("mcp", False, Decision(verdict="ask", reason="'f' may change something.")),
        ("worker", False, Decision(verdict="ask", reason="'f' may change something.")),
    ],
)
def test_where_no_rule_speaks_the_kind_of_tool_decides(kind: Any, read_only: bool, decision: Decision) -> None:
    definition = ToolDefinition(name="f", kind=kind, read_only=read_only)
    assert Policy().decide(definition, CALL) == decision
    assert Policy().may_declare(definition)


@pytest.mark.parametrize("verdict", ["allow", "ask", "deny"])
@pytest.mark.parametrize("kind", ["function", "file", "mcp"])
def test_a_default_holds_for_every_tool(verdict: Any, kind: Any) -> None:
    definition = ToolDefinition(name="f", kind=kind, read_only=True)
    decision = Policy(default=verdict).decide(definition, CALL)
    assert decision == Decision(verdict=verdict, reason=f"The policy's default is {verdict!r}.")
    assert Policy(default=verdict).may_declare(definition) is (verdict != "deny")


@pytest.mark.parametrize("default", ["yes", "ALLOW", "", 0, True, [], {}])
def test_a_default_that_is_no_verdict_fails_closed(default: Any) -> None:
    with pytest.raises(UsageError, match="Policy"):
        Policy(default=default)
