"""Rules with `confirm`: an approver repeats the name of what a call destroys."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import Gate, Policy, ScriptedModel
from callgate.errors import NotConfirmedError, UsageError
from callgate.events import ApprovalNeeded, Notice
from callgate.permission import Answered, Approval, Rule
from callgate.testing import call
from callgate.types import FunctionCall, ToolDefinition

CONFIRM = Policy(rules=[Rule(verdict="ask", tool="drop", confirm="name", reason="It is gone then.")])


def gate_for(answer: Approval, ran: list[str], *, policy: Policy = CONFIRM, times: int = 1, asked: Any = None) -> Gate:
    def drop(name: str, force: bool = False) -> str:
        """Drop a table."""
        ran.append(name)
        return "dropped"

    def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> Approval:
        if asked is not None:
            asked.append(reason)
        return answer

    model = ScriptedModel([*[call("drop", name="orders") for _ in range(times)], "Done."])
    return Gate(model, tools=[drop], policy=policy, approve=approve)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (Answered(answer="yes", confirm="orders"), ["orders"]),
        (Answered(answer="yes", confirm="users", args={"name": "users"}), ["users"]),
    ],
)
def test_a_call_runs_when_the_answer_repeats_the_name(answer: Approval, expected: list[str]) -> None:
    ran, asked = list[str](), list[str]()
    gate_for(answer, ran, asked=asked).run_sync("Drop it")
    assert (ran, asked[0]) == (expected, "It is gone then. To confirm, type 'orders'.")


@pytest.mark.parametrize(
    "answer",
    [
        "yes",
        "always",
        Answered(answer="yes"),
        Answered(answer="always", confirm="order"),
        Answered(answer="yes", confirm="orders", args={"name": "users"}),
        FunctionCall(name="drop", args={"name": "orders"}),
    ],
    ids=["yes", "always", "nothing_typed", "something_else", "other_arguments", "a_call"],
)
def test_a_call_is_denied_and_the_program_warned_when_the_answer_does_not(answer: Approval) -> None:
    ran = list[str]()
    with pytest.warns(RuntimeWarning, match="'drop' is not confirmed"):
        reply = gate_for(answer, ran).run_sync("Drop it")
    assert (ran, [record.state for record in reply.calls]) == ([], ["denied"])


@pytest.mark.parametrize(("answer", "said"), [(True, "for True use 'yes'"), (False, "for False use 'no'"), (None, "None")])
def test_an_answer_that_is_none_is_warned_of_without_any_logging(answer: Any, said: str) -> None:
    with pytest.warns(RuntimeWarning, match=f"approve failed for 'drop', so the call is denied: .*{said}"):
        reply = gate_for(answer, [], policy=Policy(default="ask")).run_sync("Drop it")
    assert [record.state for record in reply.calls] == ["denied"]


def test_a_no_needs_no_confirmation() -> None:
    ran = list[str]()
    reply = gate_for("no", ran).run_sync("Drop it")
    assert (ran, [record.state for record in reply.calls]) == ([], ["denied"])


def test_always_is_one_yes_and_the_next_call_is_confirmed_again() -> None:
    ran, asked = list[str](), list[str]()
    gate_for(Answered(answer="always", confirm="orders"), ran, times=2, asked=asked).run_sync("Drop it twice")
    assert (ran, len(asked)) == (["orders", "orders"], 2)


def test_the_mode_yolo_does_not_confirm() -> None:
    ran, asked = list[str](), list[str]()
    policy = Policy(rules=CONFIRM.rules, mode="yolo")
    gate_for("no", ran, policy=policy, asked=asked).run_sync("Drop it")
    assert (ran, len(asked)) == ([], 1)


def test_the_event_has_the_text_to_type() -> None:
    events = list(gate_for("no", []).stream_sync("Drop it"))
    assert [event.confirm for event in events if isinstance(event, ApprovalNeeded)] == ["orders"]


def test_a_call_without_the_argument_is_confirmed_by_the_name_of_the_tool() -> None:
    ran = list[str]()
    policy = Policy(rules=[Rule(verdict="ask", tool="drop", confirm="table")])
    gate_for(Answered(answer="yes", confirm="drop"), ran, policy=policy).run_sync("Drop it")
    assert ran == ["orders"]


def test_an_answer_to_a_paused_session_confirms_too() -> None:
    ran = list[str]()
    gate = gate_for("later", ran)
    paused = gate.run_sync("Drop it")
    (record,) = paused.approvals
    with pytest.raises(UsageError, match="confirm='orders'"):
        gate.run_sync(session=paused.session, answers={record.call.id: "yes"})
    gate.run_sync(session=paused.session, answers={record.call.id: Answered(answer="yes", confirm="orders")})
    assert ran == ["orders"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"verdict": "allow", "confirm": "name"}, "only 'ask'"), ({"verdict": "ask", "confirm": ""}, "use the")],
)
def test_a_rule_that_cannot_be_confirmed_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Policy(rules=[fields])


def test_a_rule_without_confirm_keeps_its_id() -> None:
    assert Rule(verdict="deny", tool="delete_*").id == "9f528282acea"


def test_every_rule_that_wants_a_confirmation_gets_one() -> None:
    tool = ToolDefinition(name="move", kind="mcp", server="s")
    own = Policy(rules=[Rule(verdict="ask", tool="move", confirm="src")])
    other = Policy(rules=[Rule(verdict="ask", tool="move", confirm="dst"), Rule(verdict="ask", tool="mo*", confirm="src")])
    assert own.strictest(other).confirmation(tool, {"src": "a", "dst": "b"}) == "a b"
    assert own.confirmation(tool, {"src": "a", "dst": "b"}) == "a"


def test_a_yes_to_a_paused_run_without_the_name_is_refused_and_can_be_given_again() -> None:
    ran = list[str]()
    gate = gate_for("later", ran)
    (waiting,) = gate.run_sync("Drop it", session="s").approvals
    assert waiting.confirm == "orders"
    for given in ("yes", Answered(answer="yes", confirm="order")):
        with pytest.raises(NotConfirmedError, match="answer yes with confirm='orders'"):
            gate.run_sync(None, session="s", answers={waiting.call.id: given})
    reply = gate.run_sync(None, session="s", answers={waiting.call.id: Answered(answer="yes", confirm="orders")})
    assert (ran, reply.text) == (["orders"], "Done.")


def policy_notices(rule: Rule) -> list[str]:
    """The notices about the policy of a run that drops a table."""
    gate = gate_for("no", [], policy=Policy(rules=[rule]))
    return [event.message for event in gate.stream_sync("Drop it") if isinstance(event, Notice) and event.code == "policy"]


def test_a_rule_that_confirms_by_an_argument_that_no_tool_of_it_has_is_reported() -> None:
    assert policy_notices(Rule(verdict="ask", tool="drop", confirm="nosuch")) == [
        "the rule has nothing to confirm a call by: ask 'drop' (the tool 'drop' has no argument 'nosuch', so the approver "
        "types the name of the tool; it has 'name', 'force')"
    ]
    assert policy_notices(Rule(verdict="ask", tool="drop", confirm="name")) == []


def test_a_rule_for_several_tools_is_reported_only_if_none_has_the_argument() -> None:
    def tool_with(name: str, **schema: Any) -> ToolDefinition:
        return ToolDefinition(name=name, input_schema={"type": "object", **schema})

    named = tool_with("drop_table", properties={"name": {"type": "string"}})
    other = tool_with("drop_all", properties={"force": {"type": "boolean"}})
    unknown = tool_with("drop_any")
    policy = Policy(rules=[Rule(verdict="ask", tool="drop_*", confirm="name")])
    assert policy.against([named, other]).problems == ()
    assert policy.against([other, unknown]).problems == (), "its schema does not say what it has"
    [problem] = policy.against([other]).problems
    assert "'drop_all' has no argument 'name'" in problem
    [nested] = Policy().strictest(policy).against([other]).problems
    assert nested == problem
