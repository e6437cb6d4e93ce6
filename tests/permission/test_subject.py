"""A tool is known by its server and its own name, in rules, hooks, rates, the cache, lasting answers and the audit log."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, McpServer, Policy, ScriptedModel, ToolContext, ToolDefinition
from callgate.errors import UsageError
from callgate.permission import Hook, Rate, RateLimits, ResultCache, Rule
from callgate.permission.audit import records_of
from callgate.permission.session_rules import covers, session_rule
from callgate.permission.subject import Subject
from callgate.testing import call
from callgate.types import FunctionCall
from callgate.workers import WorkerPool


def run(work: Coroutine[Any, Any, Any], seconds: float = 60) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(bounded())


class Remote:
    """A tool of a server."""

    def __init__(self, server: str, name: str = "delete_repo", *, read_only: bool = False) -> None:
        self.definition = ToolDefinition(name=name, kind="mcp", server=server, read_only=read_only)
        self.ran = 0

    def problems(self, args: Any) -> list[str]:
        return []

    async def run(self, args: Any, context: ToolContext) -> object:
        self.ran += 1
        return "done"


class Server:
    """A live toolset, as an MCP server is one."""

    version = 1

    def __init__(self, name: str, *tools: Remote) -> None:
        self.name, self.tools = name, tools

    def runnables(self) -> tuple[Remote, ...]:
        return self.tools

    async def start(self, owner: object) -> None:
        pass

    async def aclose(self, owner: object) -> None:
        pass

    def complaints(self) -> list[str]:
        return []


def two_servers(*calls: str, **options: Any) -> tuple[Remote, Remote, Any]:
    """Two servers with a tool of the same name, so that both have an alias."""
    github, evil = Remote("github", read_only="cache" in options), Remote("evil")
    script = [*(call(name) for name in calls), "done"]

    async def story() -> Any:
        tools = [Server("github", github), Server("evil", evil)]
        async with Gate(ScriptedModel(script), tools, **options) as gate:
            return await gate.run("x", session="s")

    return github, evil, run(story())


@pytest.mark.parametrize("rule", ["deny @github/delete_*", "deny delete_*", "deny @github", "deny github__*"])
def test_a_deny_rule_holds_although_a_second_server_has_a_tool_of_the_same_name(rule: str):
    github, *_ = two_servers("github__delete_repo", policy=Policy(rules=[rule], mode="yolo"))
    assert github.ran == 0


def test_an_allow_rule_for_one_server_does_not_reach_the_tool_of_the_other():
    github, evil, _ = two_servers(
        "github__delete_repo", "evil__delete_repo", policy=Policy(rules=["allow @github/delete_*"])
    )
    assert (github.ran, evil.ran) == (1, 0)


@pytest.mark.parametrize("tool", ["delete_*", "@github/delete_*", "@github"])
def test_a_hook_is_run_although_a_second_server_has_a_tool_of_the_same_name(tool: str):
    hook = Hook(command=(sys.executable, "-c", "import sys; sys.exit(2)"), tool=tool)
    github, *_ = two_servers("github__delete_repo", policy=Policy(mode="yolo", hooks=(hook,)))
    assert github.ran == 0


def test_a_hook_for_tools_without_a_server_is_spelled_as_in_rules():
    own, theirs = ToolDefinition(name="rm"), ToolDefinition(name="rm", kind="mcp", server="x")
    for hook in (
        Hook(command=("x",), tool="@builtin/rm"),
        Hook(command=("x",), tool="@builtin"),
        Hook(command=("x",), server="builtin"),
    ):
        assert (hook.is_for(own), hook.is_for(theirs)) == (True, False)


def test_a_rate_and_a_cache_go_by_the_servers_own_name():
    rates = RateLimits(tools={"@github/delete_*": Rate(per_s=0.001)}, when_used_up="refuse")
    github, evil, _ = two_servers(
        "evil__delete_repo", "evil__delete_repo", "github__delete_repo", "github__delete_repo",
        policy=Policy(mode="yolo"), rates=rates,
    )  # fmt: skip
    assert (github.ran, evil.ran) == (1, 2)
    github, *_ = two_servers(
        "github__delete_repo",
        "github__delete_repo",
        policy=Policy(mode="yolo"),
        cache=ResultCache(tools=["@github/delete_*"]),
    )
    assert github.ran == 1


def test_the_audit_log_names_the_tool_as_its_server_does(tmp_path: Path):
    two_servers("github__delete_repo", policy=Policy(mode="yolo"), audit=tmp_path / "audit.jsonl")
    start, end = records_of(tmp_path / "audit.jsonl")
    assert (start["tool"], start["server"], start["alias"]) == ("delete_repo", "github", "github__delete_repo")
    assert end["tool"] == "delete_repo"


def test_a_lasting_answer_holds_for_a_tool_that_got_an_alias_since():
    plain = ToolDefinition(name="delete_repo", kind="mcp", server="github")
    asked = FunctionCall(name="delete_repo", id="c")
    rule = session_rule(plain, asked, digest="d", raised_by="default")
    renamed = replace(plain, name="github__delete_repo", alias_of="delete_repo")
    assert covers(rule, renamed, {}, "d")
    assert not covers(rule, replace(renamed, server="evil"), {}, "d")


@pytest.mark.parametrize("name", ["builtin", "BuiltIn", "\uff42uiltin"])
def test_no_server_and_no_pool_can_be_called_like_the_tools_without_one(name: str):
    with pytest.raises(UsageError, match="name"):
        McpServer(name, command=["x"])
    with pytest.raises(UsageError, match="reserved"):
        WorkerPool(name=name, eager=False)


def test_what_is_allowed_to_tools_of_none_is_not_allowed_to_a_server_that_has_that_name():
    theirs = ToolDefinition(name="f", kind="mcp", server="builtin")
    for rule in ("allow @builtin/*", "allow @builtin"):
        assert Policy(rules=[rule]).decide(theirs, FunctionCall(name="f")).verdict == "ask"


@pytest.mark.parametrize(
    "name", ["dеlete_x", "ᴅelete_x", "delete\u3164_x", "DELETE_X", "ｄelete_x", "đelete_x", "dele\u00adte_x"]
)
def test_letters_that_look_alike_do_not_lead_around_a_deny(name: str):
    definition = ToolDefinition(name=name, kind="mcp", server="s")
    assert Rule(verdict="deny", tool="delete_*").selects(definition)
    assert not Rule(verdict="allow", tool="delete_*").selects(definition)


@pytest.mark.parametrize(
    ("tool", "server"),
    [
        ("delete_*, drop_*", None), ("delete_* ", None), ("github/delete_*", None), ("a=b", None), ("x", "@github"),
        ("@github/", None), ("@/x", None), ("@git/hub/a b", None), ("x", ""), ("x", 5), ("@a", "b"), ("a;b", None),
    ],
)  # fmt: skip
def test_a_pattern_that_no_tool_can_fit_is_refused(tool: str, server: Any):
    for make in (Rule, Hook):
        fields: dict[str, Any] = {"verdict": "deny"} if make is Rule else {"command": ("x",)}
        with pytest.raises(UsageError):
            make(tool=tool, server=server, **fields)


def test_a_subject_is_exact_if_it_names_one_tool():
    assert (Subject("a").is_exact, Subject("a*").is_exact, Subject("[a]").is_exact) == (True, False, False)


def test_a_second_hook_cannot_rewrite_past_one_that_blocks_and_the_first_word_stays():
    block = "import json,sys; sys.exit(2 if json.load(sys.stdin)['args']['n'] == 'evil' else 0)"
    rewrite = "import json; print(json.dumps({'args': {'n': 'evil'}}))"
    hooks = (
        Hook(command=(sys.executable, "-c", block)),
        Hook(command=(sys.executable, "-c", rewrite), may_rewrite=True),
    )
    ran: list[str] = []

    def note(n: str) -> None:
        ran.append(n)

    run(Gate(ScriptedModel([call("note", n="a"), "x"]), [note], policy=Policy(hooks=hooks)).run("x"))
    assert ran == []


def test_a_hook_and_an_approver_that_change_the_arguments_in_turn_come_to_an_end():
    rewrite = "import json; print(json.dumps({'args': {'n': 'hook'}}))"
    hook = Hook(command=(sys.executable, "-c", rewrite), may_rewrite=True)
    asked: list[str] = []

    def note(n: str) -> None: ...

    async def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> FunctionCall:
        asked.append(call.args["n"])
        return replace(call, args={"n": f"user {len(asked)}"})

    gate = Gate(
        ScriptedModel([call("note", n="a"), "x"]), [note], policy=Policy(rules=["ask note"], hooks=(hook,)), approve=approve
    )
    reply = run(gate.run("x"))
    assert len(asked) <= 4
    assert "in turn" in json.dumps([record.result.error for record in reply.calls])


def test_an_answer_of_a_hook_that_has_a_key_twice_is_a_failure():
    twice = """print('{"args": {"n": "x"}, "args": {"n": "y"}}')"""
    hook = Hook(command=(sys.executable, "-c", twice), may_rewrite=True, on_failure="deny")
    ran: list[str] = []

    def note(n: str) -> None:
        ran.append(n)

    run(Gate(ScriptedModel([call("note", n="a"), "x"]), [note], policy=Policy(hooks=(hook,))).run("x"))
    assert ran == []


def test_a_hook_sees_locales_and_no_other_variable_that_is_called_like_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LC_SECRET_TOKEN", "lcleak")
    monkeypatch.setenv("LC_TIME", "de_DE.UTF-8")
    code = f"import json, os; json.dump(dict(os.environ), open({str(tmp_path / 'env')!r}, 'w'))"
    hook = Hook(command=(sys.executable, "-c", code))

    def note() -> None: ...

    run(Gate(ScriptedModel([call("note"), "x"]), [note], policy=Policy(hooks=(hook,))).run("x"))
    seen = json.loads((tmp_path / "env").read_text())
    assert (seen.get("LC_TIME"), "LC_SECRET_TOKEN" in seen) == ("de_DE.UTF-8", False)


def test_a_hook_that_lets_both_calls_pass_keeps_the_change_of_a_later_one():
    look = Hook(command=(sys.executable, "-c", "import sys; sys.stdin.read()"))
    rewrite = "import json; print(json.dumps({'args': {'n': 'changed'}}))"
    ran: list[str] = []

    def note(n: str) -> None:
        ran.append(n)

    hooks = (look, Hook(command=(sys.executable, "-c", rewrite), may_rewrite=True))
    run(Gate(ScriptedModel([call("note", n="a"), "x"]), [note], policy=Policy(hooks=hooks)).run("x"))
    assert ran == ["changed"]


@pytest.mark.parametrize("rule", ["deny !delete_*", "deny @github/!x", "deny @!github"])
def test_a_rule_about_everything_but_some_tools_is_refused(rule: str) -> None:
    with pytest.raises(UsageError, match="no name holds '!'"):
        Policy(rules=[rule])
    assert Policy(rules=["deny x[!a]"]).rules


@pytest.mark.parametrize("rule", ["deny github__delete_repo", "deny GitHub__delete_*", "deny @github/delete_repo"])
def test_a_rule_for_the_prefixed_name_holds_while_the_other_server_is_down(rule: str):
    github = Remote("github")

    async def story() -> Any:
        async with Gate(
            ScriptedModel([call("delete_repo"), "ok"]), [Server("github", github)], policy=Policy(rules=[rule], mode="yolo")
        ) as gate:
            return await gate.run("x")

    (record,) = asyncio.run(story()).calls
    assert (record.state, github.ran) == ("denied", 0)


def test_a_rule_for_the_prefixed_name_holds_under_an_alias_and_is_not_for_another_server():
    definition = ToolDefinition(name="wipe", alias_of="delete_repo", server="github", kind="mcp")
    for verdict in ("deny", "allow"):
        rule = Rule(verdict=verdict, tool="github__delete_repo")
        assert rule.selects(definition)
        assert not rule.selects(replace(definition, server="gitlab"))
        assert not rule.selects(replace(definition, server=None))


def test_a_tool_whose_own_name_holds_a_slash_is_named_with_its_server():
    definition = ToolDefinition(name="other.tool/x", server="github", kind="mcp")
    for rule in (
        Rule(verdict="deny", tool="@github/other.tool/x"),
        Rule(verdict="allow", tool="other.tool/x", server="github"),
    ):
        assert rule.selects(definition)
        assert not rule.selects(replace(definition, name="other.tool/y"))


def test_a_rule_that_names_a_tool_which_is_not_there_is_told():
    async def story() -> list[str]:
        def save() -> str:
            """Save."""
            return "saved"

        rules = ["deny sav", "ask save", "allow lost", "deny drop_*"]
        policy = Policy(rules=rules, mode="yolo")
        gate = Gate(ScriptedModel([call("save"), "ok"]), [save], policy=policy)
        return [event.message async for event in gate.stream("x") if getattr(event, "code", "") == "policy"]

    assert asyncio.run(story()) == ["there is no tool that the rule is about: deny 'sav'"]
