"""`callgate undo`, `callgate tools list` and the file tools of `callgate chat`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from callgate.cli import main
from callgate.files import FileTools


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(folder)
    return folder


def wrote(folder: Path, path: str, content: str) -> None:
    with FileTools(folder) as files:
        assert not files.call_sync("write_file", {"path": path, "content": content}).is_error


def test_without_writes_there_is_nothing_to_list_or_undo(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["undo"]) == 0
    assert capsys.readouterr().out == "Nothing was written here that could be undone.\n"
    assert main(["undo", "last"]) == 42
    assert "nothing to undo" in capsys.readouterr().err


def test_undo_lists_shows_and_restores_and_can_be_taken_back(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrote(here, "a.txt", "one\n")
    wrote(here, "a.txt", "two\n")
    assert main(["undo", "--list"]) == 0
    newest, first = capsys.readouterr().out.splitlines()
    assert newest.endswith("write_file  a.txt  (4 -> 4 bytes)")
    assert first.endswith("write_file  a.txt  (new, 4 bytes)")
    id = newest.split()[0]
    assert main(["undo", "--show", id]) == 0
    diff = "--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-two\n+one\n"
    assert capsys.readouterr().out == diff
    assert (here / "a.txt").read_text() == "two\n"
    assert main(["undo", id]) == 0
    out = capsys.readouterr().out
    assert out.startswith(diff)
    assert (here / "a.txt").read_text() == "one\n"
    assert main(["undo", out.split()[-1]]) == 0
    assert (here / "a.txt").read_text() == "two\n"


def test_undoing_a_new_file_removes_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrote(here, "a.txt", "one\n")
    assert main(["undo", "last"]) == 0
    assert "a.txt was removed." in capsys.readouterr().out
    assert not (here / "a.txt").exists()
    main(["undo"])
    assert "(removed, 4 bytes)" in capsys.readouterr().out


def test_later_changes_need_force(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrote(here, "a.txt", "one\n")
    wrote(here, "a.txt", "two\n")
    (here / "a.txt").write_text("by hand\n")
    assert main(["undo", "last"]) == 42
    assert "changed again" in capsys.readouterr().err
    assert main(["undo", "last", "--force"]) == 0
    assert (here / "a.txt").read_text() == "one\n"


def test_changes_of_other_folders_are_listed_on_request(
    here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    wrote(other, "b.txt", "x")
    main(["undo"])
    assert "Nothing was written here" in capsys.readouterr().out
    main(["undo", "--all"])
    assert str(other / "b.txt") in capsys.readouterr().out
    main(["undo", "--root", str(other)])
    assert "b.txt" in capsys.readouterr().out
    (here / "sub").mkdir()
    wrote(here, "sub/c.txt", "x")
    monkeypatch.chdir(here / "sub")
    main(["undo"])
    assert "sub/c.txt" in capsys.readouterr().out


def test_a_long_list_is_cut(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(22):
        wrote(here, f"{number}.txt", "x")
    main(["undo"])
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), lines[-1]) == (21, "... and 2 more; --all lists them")


def test_what_files_hold_cannot_steer_the_terminal(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrote(here, "a.txt", "\x1b[2J\x1b]0;title\x07\n")
    assert main(["undo", "--show", "last"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_an_id_that_names_nothing_is_bad_input(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["undo", "nope"]) == 42
    assert "no changes have an id" in capsys.readouterr().err


def test_tools_list_shows_what_a_chat_would_have(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tools", "list"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^allow  read_file\(path: string, start_line.*\) +The tool is read-only", out, re.MULTILINE)
    assert re.search(
        r"^ask    write_file\(path: string, content: string, mode.*\) +'write_file' may change something", out, re.MULTILINE
    )
    assert main(["tools", "list", "-o", "json"]) == 0
    names = list(json.loads(capsys.readouterr().out)["tools"])
    assert names[-6:] == ["list_files", "read_file", "read_files", "write_file", "edit_file", "search_files"]
    (here / "mine.py").write_text('def f() -> int:\n    """One."""\n    return 1\n')
    assert main(["tools", "list", "-T", "mine.py:f"]) == 0
    assert capsys.readouterr().out == "allow  f()  Functions run without approval by default.\n       One.\n"
    assert main(["tools", "list", "--root", "none"]) == 42
    assert "cannot be opened as a folder" in capsys.readouterr().err


def test_chat_lists_reads_and_writes_files_in_its_root(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "src").mkdir()
    (here / "src" / "main.py").write_text("print('hello')\n")
    (here / "notes.md").write_text("# Notes\n")
    assert main(["chat", "List the Python files"]) == 0
    assert capsys.readouterr().out == "1 files: src/main.py.\n"
    assert main(["chat", "What does notes.md do?"]) == 0
    assert "notes.md has 1 lines and begins: # Notes" in capsys.readouterr().out
    assert main(["chat", 'Write "hi" to new.txt', "--root", "src"]) == 0
    assert "not allowed" in capsys.readouterr().out
    assert main(["chat", 'Write "hi" to new.txt', "--root", "src", "--approval-mode", "yolo"]) == 0
    assert (here / "src" / "new.txt").read_text() == "hi\n"
    assert main(["chat", "read_file path=../notes.md", "--root", "src"]) == 0
    assert "'..'" in capsys.readouterr().out
    assert main(["chat", "hello", "--root", "none"]) == 42
