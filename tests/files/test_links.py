"""Rules, sensitive files and lasting answers hold for the file that a link leads to, and for the name of the link."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from callgate import FileTools, FunctionCall, Gate, Policy, ScriptedModel
from callgate.permission import Rule
from callgate.store import MemoryStore
from callgate.testing import call


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    for name in ("vendor/a", "src/c", "docs/a", ".env", "plain", ".vscode/x"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"value of {name}")
    for name, target in (
        ("lnk", "vendor"), ("e.txt", ".env"), ("v", ".vscode"), ("docs/out", "../src"), ("docs/p", "../plain"),
        ("docs/away", "/etc"),
    ):  # fmt: skip
        os.symlink(target, root / name)
    return root


def records(root: Path, policy: Policy, calls: Iterable[Any], approve: Any = None) -> list[Any]:
    async def story() -> list[Any]:
        with FileTools(root, state_dir=root.parent / "state", symlinks=True) as files:
            gate = Gate(ScriptedModel([*([each] for each in calls), "done"]), [files], policy=policy, approve=approve)
            return [*(await gate.run("x")).calls]

    return asyncio.run(story())


def states(*args: Any, **options: Any) -> list[str]:
    return [record.state for record in records(*args, **options)]


def written(path: str) -> Any:
    return call("write_file", path=path, content="new")


@pytest.mark.parametrize(
    "rule",
    [
        Rule(verdict="deny", paths=["vendor/"]),
        Rule(verdict="deny", tool="read_*", args={"path": "vendor/*"}),
        Rule(verdict="deny", tool="read_*", args={"path": "vendor/a"}),
        Rule(verdict="deny", tool="read_*", patterns={"path": "vendor/.*"}),
        Rule(verdict="deny", paths=["lnk"]),
    ],
)
def test_a_rule_that_denies_holds_for_the_link_and_for_its_file(root: Path, rule: Rule):
    calls = [
        call("read_file", path="lnk/a"),
        call("read_files", paths=["docs/a", "lnk/a"]),
        call("read_file", path="docs/p"),
    ]
    assert states(root, Policy(mode="yolo", rules=[rule]), calls) == ["denied", "denied", "finished"]


def test_a_link_to_a_sensitive_file_or_to_one_that_runs_code_is_asked_about(root: Path):
    calls = [call("read_file", path="e.txt"), call("search_files", pattern="v", path="e.txt"), written("v/tasks.json")]
    assert states(root, Policy(mode="yolo"), [*calls, call("read_file", path="v/x")]) == [*["denied"] * 3, "finished"]


def test_a_rule_that_allows_must_fit_the_link_and_its_file(root: Path):
    def allowed(paths: tuple[str, ...]) -> list[str]:
        policy = Policy(default="deny", rules=[Rule(verdict="allow", paths=paths)])
        return states(root, policy, [call("read_file", path="docs/out/c"), call("read_file", path="./docs/a")])

    assert allowed(("docs/**",)) == ["denied", "finished"]
    assert allowed(("src/**",)) == ["denied", "denied"]
    assert allowed(("docs/**", "src/**")) == ["finished", "finished"]


def test_a_rule_that_allows_an_argument_must_fit_the_link_and_its_file(root: Path):
    def allowed(glob: str) -> list[str]:
        policy = Policy(default="deny", rules=[Rule(verdict="allow", tool="read_file", args={"path": glob})])
        return states(root, policy, [call("read_file", path="docs/out/c"), call("read_file", path="docs/a")])

    assert (allowed("docs/*"), allowed("src/*")) == (["denied", "finished"], ["denied", "denied"])
    assert allowed("*") == ["finished", "finished"]


def test_always_for_a_folder_does_not_follow_a_link_out_of_it(root: Path):
    asked: list[tuple[str, str]] = []

    async def approve(asked_call: FunctionCall, _: Any, reason: str) -> str:
        asked.append((asked_call.args["path"], reason))
        return "always"

    calls = [written("docs/a"), written("docs/b"), written("docs/out/c"), written("docs/out/d")]
    assert states(root, Policy(), calls, approve) == ["finished"] * 4
    may = "'write_file' may change something."
    assert asked == [("docs/a", may), ("docs/out/c", f"{may} A link in it leads to 'src/c'.")]


def test_the_file_that_was_asked_about_is_the_one_that_is_written_whatever_the_link_is_then(root: Path):
    async def approve(*_: Any) -> str:
        (root / "docs/out").unlink()
        os.symlink("../vendor", root / "docs/out")
        return "yes"

    (record,) = records(root, Policy(rules=[Rule(verdict="deny", paths=["vendor/"])]), [written("docs/out/c")], approve)
    assert record.result.value.startswith("Wrote 3 bytes to 'src/c'")
    assert ((root / "src/c").read_text(), (root / "vendor/a").read_text()) == ("new", "value of vendor/a")


def test_a_folder_that_became_a_link_since_it_was_asked_about_is_not_entered(root: Path):
    async def approve(*_: Any) -> str:
        (root / "src").rename(root / "old")
        os.symlink("vendor", root / "src")
        return "yes"

    (record,) = records(root, Policy(), [written("src/c")], approve)
    assert (record.state, record.result.error) == (
        "failed", "'src' is a symbolic link; links are not followed. Use the path of the file itself.",
    )  # fmt: skip


def test_an_answer_in_a_later_run_does_not_reach_through_a_link(root: Path):
    async def later(*_: Any) -> str:
        return "later"

    async def story() -> list[str]:
        with FileTools(root, state_dir=root.parent / "state", symlinks=True) as files:
            model, store = ScriptedModel([[written("docs/out/c"), written("docs/b")], "done"]), MemoryStore()
            paused = await Gate(model, [files], approve=later, store=store).run("x", session="s")
            answers = {asked.call.id: "yes" for asked in paused.approvals}
            reply = await Gate(model, [files], approve=later, store=store).run(session="s", answers=answers)
            return [record.state for record in reply.calls]

    assert asyncio.run(story()) == ["failed", "finished"]
    assert (root / "src/c").read_text() == "value of src/c"


def test_a_list_and_a_search_leave_out_links_to_what_they_leave_out(root: Path):
    policy = Policy(rules=[Rule(verdict="deny", paths=["plain"])])
    listed, found = records(root, policy, [call("list_files"), call("search_files", pattern="value")])
    assert listed.result.value == [".vscode/x", "docs/a", "src/c", "vendor/a"]
    assert not {"docs/p", "plain", "e.txt", ".env"} & {*listed.result.value}
    assert not {"docs/p", "plain", "e.txt", ".env"} & {match["path"] for match in found.result.value}


def test_a_link_that_leads_out_is_refused_when_it_is_opened(root: Path):
    (record,) = records(root, Policy(), [call("read_file", path="docs/away/passwd")])
    assert record.state == "failed"
