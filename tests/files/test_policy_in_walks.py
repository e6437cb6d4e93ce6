"""Path rules and sensitive files hold in lists and searches from above, and files that run code are asked about."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from callgate import FileTools, FunctionCall, Gate, Policy, ScriptedModel, ToolDefinition
from callgate.permission import SENSITIVE, Rule
from callgate.testing import call


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("vendor/a", "src/b", "payroll.txt", ".env", "vendor/deep/c"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("value\n")
    return root


def results(root: Path, policy: Policy, *calls: Any, approve: Any = None) -> list[Any]:
    async def story() -> list[Any]:
        with FileTools(root, state_dir=root.parent / "state") as files:
            gate = Gate(ScriptedModel([*calls, "done"]), [files], policy=policy, approve=approve)
            return [record.result for record in (await gate.run("x")).calls]

    return asyncio.run(story())


def searched(result: Any) -> list[str]:
    return [match["path"] for match in result.value]


@pytest.mark.parametrize("tool", ["*", "read_file", "search_files"])
def test_a_denied_folder_is_neither_searched_nor_listed_from_above(root: Path, tool: str):
    policy = Policy(rules=[Rule(verdict="deny", tool=tool, paths=("vendor/",))])
    found, listed = results(root, policy, call("search_files", pattern="value", path="."), call("list_files"))
    assert searched(found) == ["payroll.txt", "src/b"]
    assert "vendor" not in str(found.notes)
    assert any("not looked into" in note for note in found.notes)
    if tool != "search_files":
        assert listed.value == ["payroll.txt", "src/b"]
        assert any("3 files were left out" in note for note in listed.notes)


def test_patterns_of_ones_own_hold_in_a_search(root: Path):
    policy = Policy(sensitive=(*SENSITIVE, "payroll*"))
    found, listed = results(root, policy, call("search_files", pattern="value"), call("list_files"))
    assert searched(found) == ["src/b", "vendor/a", "vendor/deep/c"]
    assert listed.value == ["src/b", "vendor/a", "vendor/deep/c"]


def test_a_file_that_is_asked_about_is_searched_where_it_was_named_and_approved(root: Path):
    asked: list[str] = []

    async def approve(call: FunctionCall, definition: ToolDefinition, reason: str) -> Any:
        asked.append(reason)
        return "yes"

    policy = Policy(sensitive=(*SENSITIVE, "vendor/"), rules=[Rule(verdict="deny", paths=("**/deep",))])
    (found,) = results(root, policy, call("search_files", pattern="value", path="vendor"), approve=approve)
    assert (len(asked), searched(found)) == (1, ["vendor/a"])


@pytest.mark.parametrize(
    "path",
    [
        ".callgate.toml", "mcp.json", ".mcp.json", "policy.toml", ".vscode/tasks.json", ".github/workflows/ci.yml",
        ".woodpecker.yml", ".gitea/workflows/a.yml", ".hg/hgrc", ".gdbinit", ".Rprofile", "configure", "composer.json",
        "mix.exs", "bitbucket-pipelines.yml", ".husky/pre-commit", ".bashrc", ".gitconfig", "Makefile", "sub/conftest.py",
        ".gemini/settings.json",
        ".claude/settings.json", ".cursor/mcp.json", "package.json", "pyproject.toml", "MAKEFILE",
    ],
)  # fmt: skip
def test_auto_edit_asks_before_a_file_is_written_that_makes_programs_run_code(root: Path, path: str):
    tool = ToolDefinition(name="write_file", kind="file")
    asked = FunctionCall(name="write_file", args={"path": path, "content": "x"})
    for mode in ("auto_edit", "yolo"):
        assert Policy(mode=mode, rules=["allow write_file"]).decide(tool, asked).verdict == "ask"
    assert (
        Policy(mode="auto_edit").decide(tool, FunctionCall(name="write_file", args={"path": "src/a.py"})).verdict == "allow"
    )


def test_a_makefile_may_be_read_unasked_and_keys_may_not():
    tool = ToolDefinition(name="read_file", kind="file", read_only=True)
    for path, verdict in {
        "Makefile": "allow", "package.json": "allow", ".config/callgate/config.toml": "ask", "x.pem.bak": "ask",
        ".local/state/callgate/sessions.db": "ask", ".gemini/oauth_creds.json": "ask", ".codex/auth.json": "ask",
        "server.key.old": "ask", "passwords.txt": "ask", ".callgate.toml": "ask",
    }.items():  # fmt: skip
        assert Policy().decide(tool, FunctionCall(name="read_file", args={"path": path})).verdict == verdict, path
    assert Policy(runs_code=("x.txt",)).runs_code == ("x.txt",)


@pytest.mark.parametrize(
    "rule",
    [
        Rule(verdict="deny", tool="read_file", args={"path": "payroll.txt"}),
        Rule(verdict="deny", tool="read_file", patterns={"path": "pay.*"}),
        Rule(verdict="deny", tool="read_file", paths=["payroll*"], args={"path": "*.txt"}),
    ],
)
def test_a_file_whose_reading_is_denied_by_any_rule_is_neither_searched_nor_listed(root: Path, rule: Rule):
    calls = call("search_files", pattern="value"), call("list_files"), call("read_file", path="payroll.txt")
    found, listed, read = results(root, Policy(rules=[rule]), *calls)
    assert searched(found) == listed.value == ["src/b", "vendor/a", "vendor/deep/c"]
    assert read.status == "denied"


@pytest.mark.parametrize(
    "policy",
    [
        Policy(rules=["deny read_file"]),
        Policy(default="deny", rules=["allow search_files", "allow list_files"]),
        Policy().strictest(Policy(rules=["deny read_file"])),
    ],
)
def test_a_policy_that_denies_every_reading_shows_no_file(root: Path, policy: Policy):
    found, listed = results(root, policy, call("search_files", pattern="value"), call("list_files"))
    assert (found.value, listed.value) == ([], [])


def test_a_policy_that_allows_some_readings_shows_just_these(root: Path):
    rules = ["allow search_files", "allow list_files", Rule(verdict="allow", tool="read_file", paths=["src/**"])]
    calls = call("search_files", pattern="value"), call("list_files")
    found, listed = results(root, Policy(default="deny", rules=rules), *calls)
    assert searched(found) == listed.value == ["src/b"]


def test_a_rule_for_readings_hides_files_from_a_walk_without_a_tool_that_reads():
    hides = Policy(rules=[Rule(verdict="deny", tool="read_file", args={"path": "a", "start_line": "1"})]).hides
    walk = ToolDefinition(name="walk", kind="file", read_only=True)
    assert not hides(walk)("a", ".")


def test_an_absolute_pattern_holds_for_the_relative_paths_of_file_tools(root: Path):
    def states(*paths: str, verdict: str = "deny") -> list[str]:
        rule = {"verdict": verdict, "tool": "read_file", "paths": list(paths)}
        policy = Policy(default="deny" if verdict == "allow" else None, rules=[rule])
        return [
            result.status for result in results(root, policy, *(call("read_file", path=p) for p in ("src/b", "vendor/a")))
        ]

    assert states(f"/{root}/src/") == states(f"/{root}/src/b") == states(f"/{root}/SRC") == ["denied", "finished"]
    assert states(f"/{root.parent}") == states(f"/{root}/**") == ["denied", "denied"]
    assert states(f"/{root}/src/**", verdict="allow") == ["finished", "denied"]
    listed, *_ = results(root, Policy(rules=[Rule(verdict="deny", paths=[f"/{root}/vendor/"])]), call("list_files"))
    assert listed.value == ["payroll.txt", "src/b"]


def test_a_system_file_is_sensitive_to_file_tools_that_start_there():
    definition = ToolDefinition(name="read", kind="file", read_only=True, roots=("/etc",))
    asked = [
        Policy().decide(definition, FunctionCall(name="read", args={"path": path})).verdict for path in ("shadow", "motd")
    ]
    assert asked == ["ask", "allow"]
