"""What a system does rarely: no locks, busy programs, odd errors, bounds that are reached."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate import FileTools
from callgate.files import Bounds, beneath, weaknesses
from callgate.types import ToolContext


def write(files: FileTools, path: str = "f", content: str = "new\n", **args):
    return files.call_sync("write_file", {"path": path, "content": content, **args})


def test_a_file_system_without_locks_is_written_to_all_the_same(files: FileTools, root: Path, monkeypatch) -> None:
    def no_locks(*args: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    assert not write(files).is_error
    assert (root / "f").read_text() == "new\n"


@pytest.mark.parametrize(("code", "written"), [(errno.ETXTBSY, True), (errno.EACCES, False), (errno.EPERM, False)])
def test_a_running_program_can_be_replaced_and_a_protected_file_cannot(
    files: FileTools, root: Path, monkeypatch, code: int, written: bool
) -> None:
    (root / "f").write_text("old\n")
    real = os.open

    def guarded(path, flags, *args, **named):
        if path == "f" and flags & os.O_WRONLY and not flags & os.O_CREAT:
            raise OSError(code, os.strerror(code))
        return real(path, flags, *args, **named)

    monkeypatch.setattr(os, "open", guarded)
    assert write(files).is_error is not written
    assert (root / "f").read_text() == ("new\n" if written else "old\n")


def test_a_folder_that_cannot_be_flushed_is_told_in_a_note(files: FileTools, root: Path, monkeypatch) -> None:
    write(files)
    real = os.fsync

    def failing(descriptor: int) -> None:
        if os.path.sameopenfile(descriptor, files._root.descriptor):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    result = write(files, content="newer\n")
    assert (result.is_error, "power failure" in result.notes[0]) == (False, True)
    assert (root / "f").read_text() == "newer\n"


def test_owner_and_attributes_are_kept(files: FileTools, root: Path) -> None:
    (root / "f").write_text("old\n")
    try:
        os.setxattr(root / "f", "user.note", b"kept")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    if os.geteuid() == 0:
        os.chown(root / "f", 65534, 65534)
    owner = (root / "f").stat()
    assert not write(files).is_error
    assert os.getxattr(root / "f", "user.note") == b"kept"
    assert ((root / "f").stat().st_uid, (root / "f").stat().st_gid) == (owner.st_uid, owner.st_gid)


def test_an_owner_that_cannot_be_kept_does_not_stop_the_write(files: FileTools, root: Path, monkeypatch) -> None:
    (root / "f").write_text("old\n")
    if os.geteuid() == 0:
        os.chown(root / "f", 65534, 65534)
    asked: list[int] = []

    def refused(descriptor: int, user: int, group: int) -> None:
        asked.append(user)
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(os, "fchown", refused)
    assert not write(files).is_error
    assert asked in ([65534, -1], [])


def test_line_ends_and_encodings_that_change_are_told(files: FileTools, root: Path) -> None:
    (root / "f").write_bytes(b"a\r\nb\r\n")
    assert "CRLF" in write(files, content="a\nb\n").notes[0]
    (root / "g").write_bytes("Grüße".encode("cp1252"))
    result = write(files, "g", "日本")
    assert "UTF-8 now" in result.notes[0]
    assert (root / "g").read_text(encoding="utf-8") == "日本"


def test_errors_that_nobody_foresaw_become_sentences(
    files: FileTools, monkeypatch, caplog: pytest.LogCaptureFixture
) -> None:
    for error, words in (
        (OSError(errno.EIO, "bad disk"), "bad disk"),
        (ValueError("odd"), "ValueError: odd"),
        (OSError(), "OSError"),
    ):

        def failing(path: str, *, error: Exception = error, **_: Any) -> None:
            raise error

        monkeypatch.setattr(files._root, "names", failing)
        assert words in files.call_sync("read_file", {"path": "f"}).error


def test_a_pattern_that_repeats_its_path_is_explained(files: FileTools, root: Path) -> None:
    (root / "src").mkdir()
    (root / "src" / "a.py").touch()
    result = files.call_sync("list_files", {"path": "src", "pattern": "src/*.py"})
    assert (result.value, "leave that folder out" in result.notes[0]) == ([], True)


def test_links_that_do_not_fit_the_pattern_are_not_told(files: FileTools, root: Path) -> None:
    (root / "link.txt").symlink_to("x")
    assert files.call_sync("list_files", {"pattern": "*.py"}).notes == ()
    assert "'link.txt'" in files.call_sync("list_files", {"pattern": "*.txt"}).notes[0]


def test_a_tree_with_too_many_names_is_looked_at_in_part(root: Path, tmp_path: Path) -> None:
    for number in range(20):
        (root / str(number)).touch()
    files = FileTools(root, state_dir=tmp_path / "state", bounds=Bounds(visits=10))
    result = files.call_sync("list_files", {})
    assert (len(result.value), "beyond 10 names" in result.notes[0]) == (10, True)


def test_a_list_goes_on_behind_whole_folders(files: FileTools, root: Path) -> None:
    for path in ("a/x", "a-b", "a.c", "b/y", "b/z"):
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).touch()
    everything = files.call_sync("list_files", {}).value
    assert everything == sorted(everything) == ["a-b", "a.c", "a/x", "b/y", "b/z"]
    for number, after in enumerate(everything):
        assert files.call_sync("list_files", {"after": after}).value == everything[number + 1 :]


def test_folders_and_files_that_cannot_be_opened_are_told(files: FileTools, root: Path, monkeypatch) -> None:
    for name in ("closed", "open"):
        (root / name).mkdir()
        (root / name / "f.txt").write_text("text\n")
    (root / "locked.txt").write_text("text\n")
    real = os.open

    def guarded(path, *args, **named):
        if path in ("closed", "locked.txt"):
            raise PermissionError(errno.EACCES, "no")
        return real(path, *args, **named)

    monkeypatch.setattr(os, "open", guarded)
    result = files.call_sync("list_files", {})
    assert (result.value, result.notes) == (["locked.txt", "open/f.txt"], ("Folders that could not be entered: 'closed/'.",))
    result = files.call_sync("search_files", {"pattern": "text"})
    assert [match["path"] for match in result.value] == ["open/f.txt"]
    assert any("could not be read" in note for note in result.notes)


def test_a_search_is_bounded_in_bytes_and_in_the_length_of_lines(root: Path, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (root / name).write_text("x" * 1_000)
    (root / "d").write_bytes(b"\0x")
    files = FileTools(root, state_dir=tmp_path / "state", bounds=Bounds(search_bytes=1_500))
    result = files.call_sync("search_files", {"pattern": "x"})
    assert [match["path"] for match in result.value] == ["a", "b"]
    assert "Stopped before 'c'" in result.notes[0]
    (root / "a").write_text("x" * 70_000 + "y\n")
    files = FileTools(root, state_dir=tmp_path / "state", bounds=Bounds(write_bytes=100_000))
    result = files.call_sync("search_files", {"pattern": "y", "path": "a"})
    assert (result.value, "65536 characters" in result.notes[0]) == ([], True)
    (root / "a").write_text("x\n" * 70_000)
    assert "larger than 100000 bytes" in files.call_sync("search_files", {"pattern": "x", "path": "a"}).notes[0]
    assert (
        "as much as can be edited" in files.call_sync("edit_file", {"path": "a", "old_string": "x", "new_string": "y"}).error
    )


def test_search_options(files: FileTools, root: Path) -> None:
    (root / "a.py").write_text("Hello\r\nhello\n" + "pad\n" * 30_000 + "last hello")
    (root / "b.txt").write_text("hello\n")
    search = {"pattern": "^hello$", "include": "*.py"}
    assert [match["line"] for match in files.call_sync("search_files", search).value] == [2]
    assert [match["line"] for match in files.call_sync("search_files", search | {"ignore_case": True}).value] == [1, 2]
    assert [match["line"] for match in files.call_sync("search_files", {"pattern": "hello", "path": "a.py"}).value] == [
        2,
        30003,
    ]


def test_a_search_that_was_given_up_ends(files: FileTools, root: Path) -> None:
    (root / "a").write_text("x")
    context = ToolContext(call_id="c", name="search_files", is_cancelled=lambda: True)
    assert "given up" in files._result("search_files", {"pattern": "x"}, context, page_chars=None).error
    (root / "large").write_text("x\n" * 1_000_000)
    assert "given up" in files._result("read_file", {"path": "large", "start_line": 9}, context, page_chars=None).error


def test_openat2_is_tried_again_when_the_tree_moved_and_when_a_signal_came(root: Path, monkeypatch) -> None:
    if not beneath.has_openat2():
        pytest.skip("this kernel does not offer openat2")
    real, codes = beneath._call, [errno.EAGAIN, errno.EINTR, errno.EAGAIN]

    def moody(*args):
        if codes:
            ctypes.set_errno(codes.pop())
            return -1
        return real(*args)

    (root / "f").touch()
    folder = os.open(root, os.O_RDONLY)
    monkeypatch.setattr(beneath, "_call", moody)
    os.close(beneath.kernel_open(folder, ("f",), os.O_RDONLY))
    codes[:] = [errno.EAGAIN] * 100
    with pytest.raises(BlockingIOError):
        beneath.kernel_open(folder, ("f",), os.O_RDONLY)
    os.close(folder)


def test_programs_that_watch_opens_see_those_of_openat2(root: Path, tmp_path: Path) -> None:
    import subprocess

    (root / "f").touch()
    code = (
        "import sys; from callgate import FileTools; files = FileTools(sys.argv[1], state_dir=sys.argv[2]); seen = [];"
        "sys.addaudithook(lambda event, args: seen.append(args[0]) if event == 'open' else None);"
        "files.call_sync('read_file', {'path': 'f'}); assert 'f' in seen, seen"
    )
    done = subprocess.run([sys.executable, "-c", code, root, tmp_path / "s"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_other_systems_are_described_honestly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(beneath, "has_openat2", lambda: False)
    if hasattr(os, "O_PATH"):
        monkeypatch.delattr(os, "O_PATH")
    assert [sentence.split(":")[0] for sentence in weaknesses()] == [
        "There is no openat2",
        "There is no O_PATH",
        "Names do not differ by case here",
        "There is no Landlock",
    ]
    assert beneath._syscall() is None
