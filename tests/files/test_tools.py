"""File tools as a program and a gate use them."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from pathlib import Path

import pytest

from callgate import Executor, FileTools, FunctionCall, Gate, ScriptedModel, UsageError, declare
from callgate.files import Bounds, weaknesses
from callgate.files.beneath import opener
from callgate.files.paths import PathRefusedError, names_of
from callgate.testing import call, text
from callgate.types import ToolContext


def test_the_tools_are_declared_without_loss_and_with_the_right_hints(files: FileTools) -> None:
    definitions = Executor([files]).definitions
    assert [(d.name, d.kind, d.read_only, d.idempotent, d.ordered) for d in definitions] == [
        ("list_files", "file", True, False, False),
        ("read_file", "file", True, False, False),
        ("read_files", "file", True, False, False),
        ("write_file", "file", False, False, True),
        ("edit_file", "file", False, False, True),
        ("search_files", "file", True, False, False),
    ]
    assert {loss.keyword for loss in declare(definitions).losses} <= {"default"}


def test_places_that_overlap_are_several_places(files: FileTools, root: Path) -> None:
    (root / "a.txt").write_text("aaa")
    result = files.call_sync("edit_file", {"path": "a.txt", "old_string": "aa", "new_string": "b"})
    assert "found 2 times" in str(result)
    assert (root / "a.txt").read_text() == "aaa"


def test_a_gate_runs_them_and_asks_before_a_write(files: FileTools, root: Path) -> None:
    asked: list[str] = []

    async def approve(call, definition, reason):
        asked.append(call.name)
        return "yes"

    model = ScriptedModel([
        [
            call("write_file", path="a.py", content="x = 1\n"),
            call("write_file", path="a.py", content="x = 2\n", mode="append"),
        ],
        [call("read_file", path="a.py"), call("list_files", pattern="*.py"), call("read_file", path="../x")],
        text("done"),
    ])  # fmt: skip
    with Gate(model, tools=[files], approve=approve) as gate:
        reply = gate.run_sync("Write it.", session="s1")
    assert asked == ["write_file", "write_file"]
    results = [record.result for record in reply.calls]
    assert [result.status for result in results] == ["finished", "finished", "finished", "finished", "failed"]
    assert results[2].value == "x = 1\nx = 2\n"
    assert results[3].value == ["a.py"]
    assert "'..'" in results[4].error
    changes = files.changes(session="s1")
    assert [change.call_id for change in changes] == [reply.calls[1].call.id, reply.calls[0].call.id]
    assert changes[0].id in results[1].notes[-1]
    assert files.changes(session="s1", call_id=reply.calls[0].call.id) == changes[1:]


def test_a_model_gets_pages_that_it_is_shown_whole(root: Path, tmp_path: Path) -> None:
    for number in range(300):
        (root / f"file-{number:03}.txt").write_text("line\n" * 1000)
    files = FileTools(root, state_dir=tmp_path / "state", bounds=Bounds(page_chars=2_000))
    executor = Executor([files])

    async def page(name: str, **args):
        result = await executor.execute(FunctionCall(name=name, args=args, id="c"))
        assert not result.is_error
        return result

    async def all_pages() -> list[str]:
        found, after = [], None
        while True:
            result = await page("list_files", after=after)
            assert sum(map(len, result.value)) <= 2_000
            found += result.value
            if not result.notes:
                return found
            after = found[-1]

    assert asyncio.run(all_pages()) == sorted(path.name for path in root.iterdir())
    result = asyncio.run(page("read_file", path="file-000.txt"))
    assert len(result.value) <= 2_000
    assert result.notes == ("Cut: lines 1 to 400 of 5000 bytes are given. Go on with start_line=401.",)
    result = asyncio.run(page("read_file", path="file-000.txt", start_line=401, end_line=900))
    assert result.notes == ("Cut: lines 401 to 800 of lines 401 to 900 are given. Go on with start_line=801.",)
    result = asyncio.run(page("search_files", pattern="line", path="file-000.txt"))
    assert "Cut after" in result.notes[0]


def test_async_call_does_the_same_off_the_loop(files: FileTools, root: Path) -> None:
    (root / "a.txt").write_text("hello")
    result = asyncio.run(files.call("read_file", {"path": "a.txt"}))
    assert (result.value, result.status, result.is_error) == ("hello", "finished", False)


@pytest.mark.parametrize(
    ("tool", "args", "diff"),
    [
        ("write_file", {"path": "new.txt", "content": "a\n"}, "--- /dev/null\n+++ new.txt\n@@ -0,0 +1 @@\n+a\n"),
        ("write_file", {"path": "a.txt", "content": "one\n"}, "--- a.txt\n+++ a.txt\n@@ -1,2 +1 @@\n one\n-two\n"),
        (
            "write_file",
            {"path": "a.txt", "content": "three", "mode": "append"},
            "--- a.txt\n+++ a.txt\n@@ -1,2 +1,3 @@\n one\n two\n+three\n\\ No newline at end of file\n",
        ),
        (
            "edit_file",
            {"path": "a.txt", "old_string": "two", "new_string": "2"},
            "--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n",
        ),
        (
            "edit_file",
            {"path": "a.txt", "old_string": "none", "new_string": "2"},
            "As the files are now, this call would fail: old_string was found 0 times in 'a.txt'; nothing was changed. "
            "Read the file and copy the text exactly as it is.",
        ),
        (
            "write_file",
            {"path": "../x", "content": "a\n"},
            "As the files are now, this call would fail: The path '../x' holds '..', which may lead out of the root; "
            "write the path without it.",
        ),
        (
            "write_file",
            {"path": "binary", "content": "a\n"},
            "--- binary\n+++ binary\n@@ -1 +1 @@\n-(binary, 3 bytes)\n+a\n",
        ),
        ("read_file", {"path": "a.txt"}, None),
    ],
)
def test_a_preview_is_the_diff_and_changes_nothing(files: FileTools, root: Path, tool: str, args, diff: str | None) -> None:
    (root / "a.txt").write_text("one\ntwo\n")
    (root / "binary").write_bytes(b"\0\1\2")
    before = sorted((path.name, path.read_bytes()) for path in root.iterdir())
    (runnable,) = [runnable for runnable in files.runnables() if runnable.definition.name == tool]
    assert asyncio.run(runnable.preview(args)) == diff
    assert sorted((path.name, path.read_bytes()) for path in root.iterdir()) == before
    assert files.changes() == []


def test_appends_of_many_threads_and_tools_are_all_there(root: Path, tmp_path: Path) -> None:
    tools = [FileTools(root, state_dir=tmp_path / "state") for _ in range(3)]
    failed = []

    def work(number: int) -> None:
        for turn in range(5):
            result = tools[number % 3].call_sync(
                "write_file", {"path": "log", "content": f"{number} {turn}\n", "mode": "append"}
            )
            if result.is_error:
                failed.append(result.error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert sorted((root / "log").read_text().splitlines()) == sorted(f"{n} {t}" for n in range(12) for t in range(5))


def test_a_lock_that_others_hold_is_waited_for_and_then_told(root: Path, tmp_path: Path) -> None:
    import fcntl

    files = FileTools(root, state_dir=tmp_path / "state", bounds=Bounds(lock_s=0.05))
    descriptor = os.open(root, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    result = files.call_sync("write_file", {"path": "a.txt", "content": "x"})
    os.close(descriptor)
    assert "others kept writing" in result.error
    assert list(root.iterdir()) == []
    assert not files.call_sync("write_file", {"path": "a.txt", "content": "x"}).is_error


def test_a_call_that_was_given_up_does_not_write(files: FileTools, root: Path) -> None:
    context = ToolContext(call_id="c", name="write_file", is_cancelled=lambda: True)
    result = asyncio.run(files.run("write_file", {"path": "a.txt", "content": "x"}, context))
    assert "given up" in result.error
    assert list(root.iterdir()) == []
    assert files.changes() == []
    for number in range(300):
        (root / str(number)).touch()
    for tool, args in (("list_files", {}), ("search_files", {"pattern": "x"})):
        assert "given up" in asyncio.run(files.run(tool, args, context)).error


def test_what_a_crash_left_is_cleaned_up_by_the_next_write(files: FileTools, root: Path) -> None:
    (root / ".callgate-0123456789abcdef.tmp").write_text("half")
    assert files.call_sync("list_files", {}).value == []
    files.call_sync("write_file", {"path": "a.txt", "content": "x"})
    assert [path.name for path in root.iterdir()] == ["a.txt"]


def test_a_root_that_is_no_folder_is_the_programmers_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for root in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(UsageError, match="cannot be opened as a folder"):
            FileTools(root)


def test_a_root_inside_the_state_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state" / "backups").mkdir(parents=True)
    for root in (tmp_path / "state", tmp_path / "state" / "backups"):
        with pytest.raises(UsageError, match="own state directory"):
            FileTools(root, state_dir=tmp_path / "state")


def test_an_unknown_back_end_is_refused(root: Path) -> None:
    with pytest.raises(UsageError, match="backend='magic'"):
        FileTools(root, backend="magic")  # type: ignore[arg-type]


def test_a_system_without_openat2_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    from callgate.files import beneath

    monkeypatch.setattr(beneath, "has_openat2", lambda: False)
    assert opener() is beneath.walk_open
    assert any("openat2" in sentence for sentence in weaknesses())
    with pytest.raises(UsageError, match="does not offer openat2"):
        opener("openat2")
    monkeypatch.setattr(beneath, "_call", None)
    assert not beneath.has_openat2()


def test_a_kernel_that_refuses_openat2_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    import ctypes
    import errno

    from callgate.files import beneath

    def refused(*args: object) -> int:
        ctypes.set_errno(errno.EPERM)  # As under a seccomp profile that does not know it.
        return -1

    monkeypatch.setattr(beneath, "_call", refused)
    assert not beneath.has_openat2()


def test_a_system_that_cannot_open_below_a_descriptor_has_no_file_tools(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callgate.files.beneath._CAN_OPEN_BELOW", False)
    with pytest.raises(UsageError, match="WSL"):
        FileTools(root)
    assert "WSL" in weaknesses()[0]


def test_a_closed_or_forgotten_root_holds_no_descriptor(root: Path, tmp_path: Path) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    with FileTools(root, state_dir=tmp_path / "state") as files:
        assert repr(files) == f"FileTools({str(root)!r})"
    FileTools(root, state_dir=tmp_path / "state")
    gc.collect()
    if before:
        assert len(os.listdir("/proc/self/fd")) == before
    assert "closed" in files.call_sync("list_files", {}).error


@pytest.mark.parametrize("name", ["CON", "nul.txt", "COM1", "ab:c", "dot.", "space ", "what?", "lpt9.log"])
def test_names_that_windows_reads_otherwise_are_refused_there(name: str) -> None:
    assert names_of(name).names == (name,)
    with pytest.raises(PathRefusedError):
        names_of(f"sub/{name}", windows=True)
