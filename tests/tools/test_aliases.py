"""Aliases of tools: declared by one name, known to rules, hooks and the audit log by both."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, McpServer, Policy, ScriptedModel
from callgate.errors import UsageError
from callgate.events import ApprovalNeeded
from callgate.files import FileTools
from callgate.permission import Approval, Hook
from callgate.testing import call
from callgate.types import FunctionCall, ToolDefinition


def status(short: bool = False) -> str:
    """Show the status."""
    return "clean"


def wipe(name: str) -> str:
    """Wipe a disk."""
    return f"wiped {name}"


def look() -> str:
    """Look."""
    return "seen"


def _yes(call: FunctionCall, definition: ToolDefinition, reason: str) -> Approval:
    return "yes"


ALIASES = {"status": "git_status", "wipe": "erase"}


SWAPPED = {"status": "wipe", "wipe": "status"}


def swapping(called: str) -> ScriptedModel:
    return ScriptedModel([call(called, **({"name": "x"} if called == "status" else {})), "Done."])


def gate_for(*answers: Any, **options: Any) -> Gate:
    return Gate(ScriptedModel([*answers, "Done."]), tools=[status, wipe], tool_aliases=ALIASES, **options)


def test_a_tool_is_declared_by_its_alias_and_runs_by_both_names() -> None:
    gate = gate_for([call("git_status"), call("status", short=True)])
    assert [definition.name for definition in gate.definitions] == ["git_status", "erase"]
    reply = gate.run_sync("How is it?")
    assert [(record.call.name, record.result.value) for record in reply.calls] == [
        ("git_status", "clean"),
        ("git_status", "clean"),
    ]


@pytest.mark.parametrize("rule", ["deny wipe", "deny erase", "deny @builtin/wipe", "deny @builtin/ERASE"])
@pytest.mark.parametrize("name", ["erase", "wipe"])
def test_a_denial_holds_by_either_name_whatever_the_model_calls_it(rule: str, name: str) -> None:
    gate = gate_for(call(name, name="sda"), policy=Policy(rules=[rule]))
    assert [definition.name for definition in gate.definitions] == ["git_status"]
    reply = gate.run_sync("Wipe it")
    assert [record.state for record in reply.calls] == ["denied"]


@pytest.mark.parametrize("rule", ["allow wipe", "allow erase"])
def test_a_rule_allows_by_either_name(rule: str) -> None:
    gate = gate_for(call("erase", name="sda"), policy=Policy(default="deny", rules=[rule]))
    reply = gate.run_sync("Wipe it")
    assert [record.result.value for record in reply.calls] == ["wiped sda"]


@pytest.mark.parametrize("pattern", ["wipe", "erase"])
def test_a_hook_hears_of_both_names(tmp_path: Path, pattern: str) -> None:
    heard = tmp_path / "heard.json"
    command = (sys.executable, "-c", f"import sys; open({str(heard)!r}, 'w').write(sys.stdin.read())")
    hook = Hook(when="before", tool=pattern, command=command)
    gate_for(call("erase", name="sda"), policy=Policy(hooks=(hook,))).run_sync("Wipe it")
    told = json.loads(heard.read_text())
    assert (told["tool"], told["alias"]) == ("wipe", "erase")


def test_the_audit_log_has_both_names(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    gate = gate_for(call("erase", name="sda"), audit=path)
    gate.run_sync("Wipe it")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(r["tool"], r["alias"]) for r in records if r.get("kind") == "start"] == [("wipe", "erase")]


def test_a_tool_with_an_alias_keeps_its_preview(tmp_path: Path) -> None:
    with FileTools(tmp_path, state_dir=tmp_path.parent / "state") as files:
        model = ScriptedModel([call("save", path="a.txt", content="new\n"), "Done."])
        gate = Gate(model, tools=[files], tool_aliases={"write_file": "save"}, approve=_yes)
        events = list(gate.stream_sync("Write it"))
    previews = [event.preview or "" for event in events if isinstance(event, ApprovalNeeded)]
    assert ["+new" in preview for preview in previews] == [True]
    assert (tmp_path / "a.txt").read_text() == "new\n"


@pytest.mark.parametrize(
    ("aliases", "said"),
    [
        ({"status": "wipe"}, "another tool has this name"),
        ({"stats": "git_status"}, "'stats' is no tool here"),
        ({"status": "git status"}, "alias 'git status'"),
        ({"status": "find_tools"}, "alias 'find_tools'"),
        ({"status": "one", "wipe": "one"}, "one alias for two tools"),
        ({"status": "one", "@builtin/status": "two"}, "'status' has the alias 'one' already"),
        ({"erase": "wipe"}, r"another tool has this name, and 'erase' is no tool here; .*, as in {'wipe': 'erase'}"),
        ({"status": "wipe", "wipe": "look"}, "alias 'wipe' of tool_aliases is not used: another tool has this name"),
        (["status"], "use a table"),
    ],
)
def test_an_alias_that_cannot_be_used_is_refused_with_the_reason(aliases: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Gate(ScriptedModel(["Done."]), tools=[status, wipe, look], tool_aliases=aliases)


def test_a_tool_of_one_run_cannot_take_the_alias_of_another_tool() -> None:
    def erase() -> str:
        """Erase."""
        return "erased"

    gate = gate_for(call("erase", name="sda"))
    with pytest.raises(UsageError, match="alias 'erase' of tool_aliases is not used: another tool has this name"):
        gate.run_sync("Wipe it", tools=[erase])


@pytest.mark.parametrize("aliases", [{"status": "wipe"}, {"status": "wipe", "wipe": "look"}])
def test_an_alias_that_a_tool_of_the_program_has_is_refused_beside_servers_that_start_later(aliases: dict[str, str]) -> None:
    server = McpServer("git", command=["no-such-program"])
    with pytest.raises(UsageError, match="another tool has this name"):
        Gate(ScriptedModel(["Done."]), tools=[status, wipe, look, server], tool_aliases=aliases)


@pytest.mark.parametrize(
    ("aliases", "called", "ran"),
    [
        ({"status": "wipe", "wipe": "erase"}, ["wipe", "erase", "status", "look"], ["status", "wipe", "status", "look"]),
        ({"status": "wipe", "wipe": "look", "look": "status"}, ["wipe", "look", "status"], ["status", "wipe", "look"]),
        ({"status": "status"}, ["status"], ["status"]),
    ],
)
def test_a_name_runs_the_tool_that_is_declared_by_it_in_chains_and_rings(
    aliases: dict[str, str], called: list[str], ran: list[str]
) -> None:
    answers = [call(name, **({"name": "x"} if tool == "wipe" else {})) for name, tool in zip(called, ran, strict=True)]
    model = ScriptedModel([answers, "Done."])
    gate = Gate(model, tools=[status, wipe, look], tool_aliases=aliases)
    assert [definition.own_name for definition in gate.definitions] == ["status", "wipe", "look"]
    reply = gate.run_sync("Go")
    values = {"status": "clean", "wipe": "wiped x", "look": "seen"}
    assert [record.result.value for record in reply.calls] == [values[name] for name in ran]


@pytest.mark.parametrize("rule", ["deny", "ask"])
@pytest.mark.parametrize("named", ["status", "wipe"])
@pytest.mark.parametrize("called", ["status", "wipe"])
def test_a_rule_that_restricts_holds_for_both_tools_that_swap_their_names(rule: str, named: str, called: str) -> None:
    gate = Gate(swapping(called), tools=[status, wipe], tool_aliases=SWAPPED, policy=Policy(rules=[f"{rule} {named}"]))
    assert [record.state for record in gate.run_sync("Go").calls] == ["denied"]


@pytest.mark.parametrize(("allowed", "states"), [("status", ["denied", "finished"]), ("wipe", ["finished", "denied"])])
def test_a_rule_that_allows_means_the_tool_whose_own_name_it_is(allowed: str, states: list[str]) -> None:
    policy = Policy(default="deny", rules=[f"allow {allowed}"])
    gates = [Gate(swapping(name), tools=[status, wipe], tool_aliases=SWAPPED, policy=policy) for name in ("status", "wipe")]
    assert [gate.run_sync("Go").calls[0].state for gate in gates] == states


def test_an_always_for_one_of_two_tools_that_swap_their_names_does_not_answer_for_the_other() -> None:
    asked: list[str] = []

    def always(call: FunctionCall, definition: ToolDefinition, reason: str) -> Approval:
        asked.append(definition.own_name)
        return "always"

    model = ScriptedModel([call("status", name="x"), call("wipe"), call("status", name="y"), "Done."])
    gate = Gate(model, tools=[status, wipe], tool_aliases=SWAPPED, policy=Policy(default="ask"), approve=always)
    assert [record.result.value for record in gate.run_sync("Go").calls] == ["wiped x", "clean", "wiped y"]
    assert asked == ["wipe", "status"]


def test_two_tools_can_swap_their_names() -> None:
    model = ScriptedModel([call("status", name="sda"), "Done."])
    gate = Gate(model, tools=[status, wipe], tool_aliases={"status": "wipe", "wipe": "status"})
    reply = gate.run_sync("Wipe it")
    assert [record.result.value for record in reply.calls] == ["wiped sda"]
