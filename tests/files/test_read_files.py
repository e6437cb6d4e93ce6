"""Several files in one read: one result with a part per file, bounded, under the rules for reading one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callgate import Gate, Policy, ScriptedModel
from callgate.files import Bounds, FileTools
from callgate.permission import Rule
from callgate.testing import call


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.txt").write_text("one\n")
    (root / "b.txt").write_text("two\n")
    (root / "long.txt").write_text("0123456789\n" * 100)
    (root / "data.bin").write_bytes(b"\0\1\2")
    (tmp_path / "outside.txt").write_text("secret")
    return root


def read(root: Path, *paths: str, bounds: Bounds | None = None) -> Any:
    with FileTools(root, state_dir=root.parent / "state", bounds=bounds) as files:
        return files.call_sync("read_files", {"paths": list(paths)})


def test_every_file_is_a_part_in_the_order_asked_for_and_once(root: Path) -> None:
    result = read(root, "b.txt", "a.txt", "b.txt")
    assert result.value == [{"path": "b.txt", "text": "two\n"}, {"path": "a.txt", "text": "one\n"}]
    assert (result.status, result.notes) == ("finished", ())


def test_a_file_that_cannot_be_read_is_a_part_with_its_reason(root: Path) -> None:
    result = read(root, "a.txt", "gone.txt", "../outside.txt", "data.bin")
    assert result.status == "finished"
    assert result.value[0] == {"path": "a.txt", "text": "one\n"}
    assert [set(part) for part in result.value[1:]] == [{"path", "error"}] * 3
    assert "secret" not in str(result.value)
    assert result.notes == ("3 of 4 files could not be read.",)


def test_a_call_of_which_no_file_can_be_read_has_failed(root: Path) -> None:
    result = read(root, "gone.txt", "data.bin")
    assert result.status == "failed"
    assert "gone.txt" in result.error
    assert "data.bin" in result.error


def test_all_files_together_are_bounded_and_what_is_cut_is_said(root: Path) -> None:
    result = read(root, "a.txt", "long.txt", "b.txt", bounds=Bounds(read_bytes=120))
    cut = result.value[1]
    assert [part["path"] for part in result.value] == ["a.txt", "long.txt", "b.txt"]
    assert sum(len(part["text"]) for part in result.value) <= 120
    assert cut["text"] == "0123456789\n" * 5
    assert cut["notes"] == ["Cut: lines 1 to 5 of 1100 bytes are given. Go on with start_line=6."]


def test_a_model_gets_no_more_than_a_page(root: Path) -> None:
    with FileTools(root, state_dir=root.parent / "state", bounds=Bounds(page_chars=100)) as files:
        gate = Gate(ScriptedModel([call("read_files", paths=["long.txt", "a.txt"]), "Done."]), tools=[files])
        reply = gate.run_sync("Read them")
    value: Any = reply.calls[0].result.value
    assert sum(len(part["text"]) for part in value) <= 100
    assert value[1] == {"path": "a.txt", "text": "one\n"}


def test_too_many_files_are_refused(root: Path) -> None:
    result = read(root, *[f"{number}.txt" for number in range(51)])
    assert result.status == "failed"
    assert "50" in result.error


@pytest.mark.parametrize(
    "rule",
    [
        Rule(verdict="deny", tool="read_file", paths=("b.*",)),
        Rule(verdict="deny", tool="read_file", args={"path": "b.txt"}),
        Rule(verdict="deny", tool="read_files", paths=("b.txt",)),
        Rule(verdict="deny", tool="read_files", args={"paths": "b.txt"}),
    ],
    ids=["paths", "path", "paths_of_several", "one_of_several"],
)
def test_a_rule_about_reading_one_file_holds_for_several(root: Path, rule: Rule) -> None:
    with FileTools(root, state_dir=root.parent / "state") as files:
        calls = [call("read_files", paths=["a.txt", "b.txt"]), call("read_files", paths=["a.txt", "long.txt"])]
        gate = Gate(ScriptedModel([calls, "Done."]), tools=[files], policy=Policy(rules=[rule]))
        reply = gate.run_sync("Read them")
    assert [record.state for record in reply.calls] == ["denied", "finished"]


def test_a_rule_that_allows_some_files_allows_several_of_them_and_no_others(root: Path) -> None:
    policy = Policy(default="deny", rules=[Rule(verdict="allow", tool="read_file", paths=("?.txt",))])
    with FileTools(root, state_dir=root.parent / "state") as files:
        calls = [call("read_files", paths=["a.txt", "b.txt"]), call("read_files", paths=["a.txt", "long.txt"])]
        gate = Gate(ScriptedModel([calls, "Done."]), tools=[files], policy=policy)
        reply = gate.run_sync("Read them")
    assert [record.state for record in reply.calls] == ["finished", "denied"]


def test_a_sensitive_file_among_several_is_asked_about(root: Path) -> None:
    (root / ".env").write_text("KEY=1")
    with FileTools(root, state_dir=root.parent / "state") as files:
        gate = Gate(ScriptedModel([call("read_files", paths=["a.txt", ".env"]), "Done."]), tools=[files])
        reply = gate.run_sync("Read them")
    assert [record.state for record in reply.calls] == ["denied"]
