"""Strictness is a lattice: policies combine to the strictest of their parts, and no rule is dead without a word."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import FunctionCall, Gate, Policy, ScriptedModel, ToolDefinition
from callgate.errors import UsageError
from callgate.events import Notice
from callgate.permission import MODES, Rule
from callgate.permission.guard import Guard
from callgate.permission.session_rules import session_rule
from callgate.testing import call
from callgate.tools.executor import Executor

from .test_policy import ARGS, POLICIES, SOME_TOOL, STRICTNESS, rules

ARGV = ToolDefinition(
    name="run_command",
    kind="command",
    input_schema={"type": "object", "properties": {"argv": {"type": "array", "items": {"type": "string"}}}},
)


def decided(policy: Policy, definition: ToolDefinition, args: Any, **more: Any) -> str:
    return policy.decide(definition, FunctionCall(name=definition.name, args=args, id="c"), **more).verdict


@given(st.lists(POLICIES, min_size=1, max_size=3), SOME_TOOL, ARGS, st.sampled_from(MODES))
def test_policies_combine_to_the_strictest_of_their_parts(some: list[Policy], tool: ToolDefinition, args: Any, mode: Any):
    parts = [replace(policy, mode=mode) for policy in some]
    whole = parts[0].strictest(*parts[1:])
    strictest = max((decided(part, tool, args) for part in parts), key=STRICTNESS.__getitem__)
    assert decided(whole, tool, args) == strictest
    explained = [part.explain(tool) for part in parts]
    if all(one.declared for one in explained):
        assert STRICTNESS[whole.explain(tool).verdict] == max(STRICTNESS[one.verdict] for one in explained)
    assert whole.may_declare(tool) == all(part.may_declare(tool) for part in parts)


@given(POLICIES, rules(), SOME_TOOL, ARGS, st.booleans())
def test_an_added_part_or_a_lasting_answer_never_lifts_a_deny(
    policy: Policy, rule: Rule, tool: ToolDefinition, args: Any, allows: bool
):
    before = decided(policy, tool, args)
    added = policy.strictest(Policy(default="allow" if allows else None, rules=[rule]))
    assert STRICTNESS[decided(added, tool, args)] >= STRICTNESS[before]
    always = session_rule(tool, FunctionCall(name=tool.name, args=args, id="c"), digest="", raised_by="default")
    assert (decided(policy, tool, args, always=[always]) == "deny") == (before == "deny")


def test_always_holds_where_two_rules_ask():
    policy = Policy(rules=["ask pay", Rule(verdict="ask", kind="function")])
    asked: list[str] = []
    ran: list[int] = []

    def pay(n: int) -> None:
        ran.append(n)

    async def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> Any:
        asked.append(reason)
        return "always"

    script = [*(call("pay", n=n) for n in range(4)), "done"]
    asyncio.run(Gate(ScriptedModel(script), [pay], policy=policy, approve=approve).run("x"))
    assert (len(asked), ran) == (1, [0, 1, 2, 3])
    assert "'pay'" in asked[0]
    assert "of kind 'function'" in asked[0]


# --- rules that cannot be dead -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields", [{"args": {"argv": pattern}} for pattern in ("rm *", "rm", "RM -f*")] + [{"patterns": {"argv": "rm .*"}}]
)
def test_a_list_is_matched_joined_too(fields: Any):
    policy = Policy(rules=[Rule(verdict="deny", tool="run_command", **fields)])
    assert decided(policy, ARGV, {"argv": ["rm", "-f", "x"]}) == "deny"
    assert decided(policy, ARGV, {"argv": ["ls", "form *"]}) == "ask"


def test_an_allowing_rule_reads_a_list_as_words_that_are_quoted():
    policy = Policy(rules=[Rule(verdict="allow", tool="run_command", args={"argv": "git status*"})])
    assert decided(policy, ARGV, {"argv": ["git", "status", "-s"]}) == "allow"
    assert decided(policy, ARGV, {"argv": ["git status", "-s"]}) == "ask"
    assert decided(policy, ARGV, {"argv": []}) == "ask"


@pytest.mark.parametrize("verdict", ["deny", "ask"])
def test_a_rule_about_an_argument_that_its_tool_does_not_have_holds_for_every_call_and_says_why(verdict: Any):
    policy = Policy(rules=[Rule(verdict=verdict, tool="run_command", args={"command": "git push*"})], default="allow")
    decision = policy.decide(ARGV, FunctionCall(name="run_command", args={"argv": ["ls"]}))
    assert decision.verdict == verdict
    assert "has no argument 'command'" in decision.reason
    assert "it has 'argv'" in decision.reason
    allow = Policy(rules=[Rule(verdict="allow", tool="run_command", args={"command": "git*"})])
    assert decided(allow, ARGV, {"argv": ["git"]}) == "ask"


def test_a_rule_that_none_of_its_tools_can_fit_is_a_problem_that_a_run_is_told_of_once():
    ran: list[str] = []

    def push(argv: list[str]) -> None:
        ran.append(argv[0])

    def pull(argv: list[str]) -> None:
        ran.append(argv[0])

    dead = Rule(verdict="deny", tool="pu*", args={"command": "git*"})
    policy = Policy(rules=[dead, Rule(verdict="allow", args={"no": "x"})])
    guard = Guard(tools=Executor([push, pull]), policy=policy)
    assert len(guard.enforced.problems) == 2
    assert guard.enforced is guard.enforced

    async def story() -> list[Any]:
        gate = Gate(ScriptedModel([call("push", argv=["a"]), call("pull", argv=["b"]), "x"]), [push, pull], policy=policy)
        return [event async for event in gate.stream("x")]

    notices = [event for event in asyncio.run(story()) if isinstance(event, Notice) and event.code == "policy"]
    assert (ran, len(notices)) == ([], 2)
    assert "has no argument 'command'" in notices[0].message


@pytest.mark.parametrize("others", [0, 1])
def test_a_rule_that_cannot_be_tested_on_a_tool_holds_for_it_whatever_other_tools_have_the_argument(others: int):
    def tool_with(name: str, argument: str) -> ToolDefinition:
        return ToolDefinition(name=name, input_schema={"type": "object", "properties": {argument: {"type": "string"}}})

    remove, other = tool_with("delete_file", "file"), tool_with("delete_page", "path")
    policy = Policy(rules=[Rule(verdict="deny", tool="delete_*", args={"path": "prod*"})], default="allow")
    policy = policy.against([remove, other][: 1 + others])
    assert len(policy.problems) == 1
    assert (decided(policy, remove, {"file": "x"}), policy.explain(remove).declared) == ("deny", False)
    assert [decided(policy, other, {"path": path}) for path in ("test", "prod1")] == ["allow", "deny"]
    everywhere = Policy(rules=[Rule(verdict="deny", args={"path": "prod*"})], default="allow")
    assert decided(everywhere.against([remove, other]), remove, {"file": "x"}) == "allow"
    assert decided(everywhere.against([remove]), remove, {"file": "x"}) == "deny"


@pytest.mark.parametrize("mode", ["default", "yolo"])
def test_a_rule_that_cannot_be_tested_is_never_weaker_than_the_default(mode: Any):
    policy = Policy(rules=[Rule(verdict="ask", tool="run_command", args={"no": "x"})], default="deny", mode=mode)
    assert decided(policy, ARGV, {"argv": ["ls"]}) == "deny"
    assert not policy.explain(ARGV).declared


def test_a_rule_that_one_of_its_tools_can_fit_is_left_as_it_is():
    other = ToolDefinition(name="other", kind="command", input_schema={"type": "object", "properties": {"command": {}}})
    policy = Policy(rules=[Rule(verdict="deny", tool="*", args={"command": "rm*"})])
    part = Policy(rules=["ask other"], default="allow")
    assert policy.against([ARGV, other]) is policy
    assert policy.strictest(part).against([ARGV, other]).problems == ()
    assert len(policy.strictest(policy).against([ARGV]).problems) == 2


def test_the_default_of_an_argument_is_its_value():
    schema = {"type": "object", "properties": {"mode": {"default": "overwrite"}, "path": {}}}
    tool = ToolDefinition(name="write", kind="function", input_schema=schema)
    policy = Policy(rules=[Rule(verdict="deny", tool="write", args={"mode": "overwrite"})])
    assert decided(policy, tool, {"path": "a"}) == "deny"
    assert decided(policy, tool, {"path": "a", "mode": "append"}) == "allow"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"properties": {"a": {}}, "additionalProperties": {}},
        {"properties": {"b": True}},
        {"properties": {"a": True}, "$ref": "#/x"},
    ],
)
def test_where_the_schema_leaves_room_an_argument_that_is_not_given_does_not_fit(schema: Any):
    tool = ToolDefinition(name="f", input_schema=schema)
    assert decided(Policy(rules=[Rule(verdict="deny", tool="f", args={"b": "*"})]), tool, {}) == "allow"


def test_a_list_of_paths_that_came_out_empty_allows_nothing_and_denies_everything():
    tool = ToolDefinition(name="write_file", kind="file")
    assert decided(Policy(rules=[Rule(verdict="allow", tool="write_file", paths=[])]), tool, {"path": "a"}) == "ask"
    assert decided(Policy(rules=[Rule(verdict="deny", tool="write_file", paths=[])]), tool, {"path": "a"}) == "deny"


@pytest.mark.parametrize("field", ["args", "patterns"])
def test_a_table_of_arguments_that_came_out_empty_allows_nothing_and_denies_everything(field: str):
    tool = ToolDefinition(name="write_file", kind="file")
    given: Any = {field: {}}
    assert decided(Policy(rules=[Rule(verdict="allow", tool="write_file", **given)]), tool, {"path": "a"}) == "ask"
    assert decided(Policy(rules=[Rule(verdict="deny", tool="write_file", **given)]), tool, {"path": "a"}) == "deny"


# --- one reader ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "about", "others"),
    [
        ("delete_* deny", "deny", "allow"),
        ("deny @github delete_*", "deny", "deny"),
        ("deny github/delete_*", "deny", "deny"),
        ("deny delete_*, drop_*", "deny", "deny"),
        ("deny write_file paths=x", "deny", "deny"),
        ({"verdict": "deny", "tool": "delete_x", "paths": []}, "deny", "allow"),
        ({"verdict": "allow", "tool": "delete_x", "args": {}}, "deny", "allow"),
        ({"verdict": "deny", "tool": "x", "server": "@github"}, "deny", "deny"),
        ("delete_* dney", "deny", "deny"),
        ("deny", "deny", "deny"),
    ],
)
def test_a_rule_that_is_not_fully_understood_denies_what_it_may_be_about(rule: Any, about: str, others: str):
    policy = Policy.from_table({"rules": [rule]})
    assert len(policy.problems) == 1
    assert decided(policy, ToolDefinition(name="delete_x"), {}) == about
    assert decided(policy, ToolDefinition(name="look"), {}) == others


def test_what_is_wrong_in_a_file_is_told_with_its_line(tmp_path: Path):
    path = tmp_path / "policy.toml"
    path.write_text('mode = "yoloo"\nrules = [\n  "deny delete_*",\n  "drop_* deny",\n]\ncolour = 1\n')
    problems = Policy.from_file(path).problems
    assert [problem.partition(": ")[0] for problem in problems] == [f"{path}:6", f"{path}:1", f"{path}:4"]
    path.write_text('[[rules]]\nverdict = "deny"\n\n[[rules]]\nverdict = "deny"\npaths = []\n\n[[hooks]]\nwhen = "x"\n')
    assert [p.partition(": ")[0] for p in Policy.from_file(path).problems] == [f"{path}:4", f"{path}:8"]
    path.write_text('"rules" = 5\n')
    assert Policy.from_file(path).problems[0].startswith(f"{path}:1: rules is not a list")
    path.write_text("[hooks]\nx = 1\n[rules.a]\n")
    assert [p.partition(": ")[0] for p in Policy.from_file(path).problems] == [str(path), f"{path}:1"]


@pytest.mark.parametrize(
    "path", ["{a,b}/**", "*.{pem,key}", "~/x/**", "$HOME/x", "${HOME}/x", "%APPDATA%/x", "C:/x/**", "//C:/x", "file:///x"]
)
def test_a_path_pattern_that_only_other_programs_expand_is_refused(path: str):
    with pytest.raises(UsageError, match="write"):
        Rule(verdict="deny", paths=[path])


def test_alternatives_in_braces_are_refused_in_arguments_and_other_signs_are_not():
    with pytest.raises(UsageError, match="a pattern for each"):
        Rule(verdict="deny", args={"to": "{prod,live}*"})
    Rule(verdict="deny", args={"body": '{"a": 1, "b": 2}', "to": r"\{a,b}"})
    Rule(verdict="deny", paths=["src/routes/$id.tsx", "~$*.docx", "$RECYCLE.BIN/", r"\{a,b}", "{id}/x", "a:b"])


def test_conditions_on_arguments_that_are_no_table_are_refused():
    with pytest.raises(UsageError, match="use a table"):
        Rule(verdict="deny", args=["x"])  # pyright: ignore[reportArgumentType]
