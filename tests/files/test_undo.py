"""What was written can be put back, and that can be put back, too."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from callgate import FileTools, UsageError
from callgate.files import Bounds
from callgate.files.backups import Backups, default_state_dir


def write(files: FileTools, path: str, content: str) -> None:
    assert not files.call_sync("write_file", {"path": path, "content": content}).is_error


def test_undo_puts_back_bytes_and_mode_and_can_be_undone(files: FileTools, root: Path) -> None:
    data = bytes(range(256))
    (root / "f").write_bytes(data)
    (root / "f").chmod(0o750)
    write(files, "f", "new\n")
    (root / "f").chmod(0o600)
    done = files.undo()
    assert (root / "f").read_bytes() == data
    assert stat.S_IMODE((root / "f").stat().st_mode) == 0o750
    files.undo(done.id)
    assert (root / "f").read_text() == "new\n"


def test_undoing_a_new_file_removes_it_and_undoing_that_brings_it_back(files: FileTools, root: Path) -> None:
    write(files, "sub/f", "text\n")
    removed = files.undo()
    assert not (root / "sub" / "f").exists()
    assert removed.after_sha256 is None
    assert files.undo(removed.id).existed is False
    assert (root / "sub" / "f").read_text() == "text\n"


def test_changes_are_undone_one_by_one(files: FileTools, root: Path) -> None:
    for number in range(4):
        write(files, "f", f"{number}\n")
    for change in files.changes()[:3]:
        files.undo(change.id)
    assert (root / "f").read_text() == "0\n"


def test_later_changes_are_not_overwritten_unless_forced(files: FileTools, root: Path) -> None:
    write(files, "f", "one\n")
    write(files, "f", "two\n")
    (root / "f").write_text("by hand\n")
    change = files.changes()[0]
    with pytest.raises(UsageError, match="changed again after"):
        files.undo(change.id)
    assert (root / "f").read_text() == "by hand\n"
    files.undo(change.id, force=True)
    assert (root / "f").read_text() == "one\n"
    with pytest.raises(UsageError, match="as it was before"):
        files.undo(change.id)


def test_a_file_that_is_gone_is_put_back_only_by_force(files: FileTools, root: Path) -> None:
    (root / "f").write_text("one\n")
    write(files, "f", "two\n")
    (root / "f").unlink()
    with pytest.raises(UsageError, match="changed again"):
        files.undo()
    files.undo(force=True)
    assert (root / "f").read_text() == "one\n"


def test_a_diff_shows_what_undoing_does(files: FileTools, root: Path) -> None:
    write(files, "f", "one\n")
    write(files, "f", "two\n")
    newest, first = files.changes()
    assert files.diff(newest.id) == "--- f\n+++ f\n@@ -1 +1 @@\n-two\n+one\n"
    assert files.diff(first.id) == "--- f\n+++ /dev/null\n@@ -1 +0,0 @@\n-two\n"
    (root / "f").write_bytes(b"\0binary")
    assert "(binary, 7 bytes" in files.diff(newest.id)
    (root / "f").unlink()
    assert files.diff(newest.id) == "--- /dev/null\n+++ f\n@@ -0,0 +1 @@\n+one\n"


def test_undo_does_not_follow_a_link_that_took_the_place_of_the_file(files: FileTools, root: Path, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("victim\n")
    (root / "f").write_text("one\n")
    write(files, "f", "two\n")
    (root / "f").unlink()
    (root / "f").symlink_to(tmp_path / "victim")
    with pytest.raises(UsageError, match="link"):
        files.undo(force=True)
    assert (tmp_path / "victim").read_text() == "victim\n"


def test_ids_may_be_shortened_but_must_name_one_change(files: FileTools) -> None:
    write(files, "f", "one\n")
    write(files, "g", "two\n")
    change = files.changes()[0]
    assert files._own_change(change.id[:-2]) == change
    for id in ("", "no-such", "../x", change.id[:4], "f" * 30):
        with pytest.raises(UsageError, match="changes have an id"):
            files.undo(id)


def test_with_nothing_written_there_is_nothing_to_undo(files: FileTools) -> None:
    assert files.changes() == []
    with pytest.raises(UsageError, match="nothing to undo"):
        files.undo()


def test_changes_below_another_root_are_not_ours(files: FileTools, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = FileTools(tmp_path / "other", state_dir=tmp_path / "state")
    write(other, "f", "x")
    assert files.changes() == []
    with pytest.raises(UsageError, match="not below"):
        files.undo(other.changes()[0].id)


def test_a_damaged_or_missing_backup_is_not_put_back(files: FileTools, root: Path, tmp_path: Path) -> None:
    (root / "f").write_text("one\n")
    write(files, "f", "two\n")
    (data,) = (tmp_path / "state" / "backups").glob("*.bytes")
    data.write_text("tampered")
    with pytest.raises(UsageError, match="damaged"):
        files.undo()
    data.unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        files.undo()
    assert (root / "f").read_text() == "two\n"


def test_records_that_cannot_be_read_are_passed_over(files: FileTools, tmp_path: Path) -> None:
    write(files, "f", "one\n")
    folder = tmp_path / "state" / "backups"
    for name, text in (("a.json", "{"), ("b.json", "[]"), ("c.json", "{}"), ("d.txt", "x")):
        (folder / name).write_text(text)
    assert len(files.changes()) == 1


def test_old_and_too_many_backups_are_pruned_the_oldest_first(root: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    files = FileTools(root, state_dir=state)
    for number in range(5):
        write(files, "f", str(number) * 10_000)
    changes = files.changes()
    folder = state / "backups"
    for age, change in enumerate(changes):
        for path in folder.glob(f"{change.id}.*"):
            os.utime(path, (time.time() - age * 86_400,) * 2)
    (folder / "orphan.bytes").write_text("left of a crash")
    os.utime(folder / "orphan.bytes", (0, 0))
    Backups(str(state), Bounds(backup_days=3)).prune()
    assert files.changes() == changes[:3]
    Backups(str(state), Bounds(backup_bytes=12_000)).prune()
    assert files.changes() == changes[:1]
    assert len(list(folder.iterdir())) == 2
    assert Backups(str(tmp_path / "none"), Bounds()).prune() == 0


def test_the_folder_of_backups_is_closed_to_others(files: FileTools, tmp_path: Path) -> None:
    folder = tmp_path / "state" / "backups"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    write(files, "f", "one\n")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_folder_of_backups_that_belongs_to_another_user_is_not_used(files: FileTools, root: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only the superuser can give a folder away")
    (tmp_path / "state" / "backups").mkdir(parents=True)
    for folder in (tmp_path / "state" / "backups", tmp_path / "state"):
        os.chown(folder, 65534, 65534)
        result = files.call_sync("write_file", {"path": "f", "content": "x"})
        assert "belongs to another user" in result.error
        os.chown(folder, 0, 0)
    assert list(root.iterdir()) == []


def test_the_state_directory_is_what_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/some/where")
    assert default_state_dir() == "/some/where/callgate"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert default_state_dir() == f"{tmp_path}/me/.local/state/callgate"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr("tempfile.tempdir", "/scratch")
    assert default_state_dir() == f"/scratch/callgate-{os.geteuid()}"


def test_what_another_process_wrote_in_the_last_moment_is_kept_too(files: FileTools, root: Path, monkeypatch) -> None:
    (root / "f").write_text("old\n")
    rename, armed = os.rename, [True]

    def late(source, target, **named):
        if target == "f" and armed.pop():
            (root / "f").write_text("last moment, by somebody else\n")
        return rename(source, target, **named)

    monkeypatch.setattr(os, "rename", late)
    result = files.call_sync("write_file", {"path": "f", "content": "new\n"})
    assert any("another program" in note.lower() for note in result.notes)
    kept = {files._backups.bytes_before(change) for change in files.changes()}
    assert {b"old\n", b"last moment, by somebody else\n"} <= kept


def test_a_file_that_changed_before_the_rename_is_not_overwritten(files: FileTools, root: Path, monkeypatch) -> None:
    (root / "f").write_text("old\n")
    keep = files._backups.keep

    def slow(change, source):
        done = keep(change, source)
        (root / "f").write_text("changed meanwhile\n")
        return done

    monkeypatch.setattr(files._backups, "keep", slow)
    result = files.call_sync("write_file", {"path": "f", "content": "new\n"})
    assert "changed by another program" in result.error
    assert (root / "f").read_text() == "changed meanwhile\n"
    assert [path.name for path in root.iterdir()] == ["f"]
    assert files.changes() == []


def test_a_folder_that_moved_away_is_not_written_to(files: FileTools, root: Path, tmp_path: Path, monkeypatch) -> None:
    (root / "sub").mkdir()
    keep = files._backups.keep

    def slow(change, source):
        done = keep(change, source)
        (root / "sub").rename(tmp_path / "moved")
        return done

    monkeypatch.setattr(files._backups, "keep", slow)
    result = files.call_sync("write_file", {"path": "sub/f", "content": "new\n"})
    assert "moved meanwhile" in result.error
    assert list((tmp_path / "moved").iterdir()) == []


KILLED = """
import os, signal, sys
from pathlib import Path
from callgate.files import FileTools, writer

folder, state, path = sys.argv[1:]
os.environ["XDG_STATE_HOME"] = state
files = FileTools(folder)
files.call_sync("write_file", {"path": "a.txt", "content": "one"})
files.call_sync("write_file", {"path": "a.txt", "content": "two"})
writer.Writer._require_unchanged = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
files.call_sync("write_file", {"path": path, "content": "three"})
"""


@pytest.mark.parametrize("path", ["a.txt", "b.txt"])
def test_after_a_kill_between_record_and_rename_another_process_undoes_the_last_change_that_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    root = tmp_path / "project"
    root.mkdir()
    killed = subprocess.run([sys.executable, "-c", KILLED, str(root), str(tmp_path / "state"), path], check=False)
    assert killed.returncode == -signal.SIGKILL
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with FileTools(root) as files:
        assert len(files.changes()) == 3
        assert files.undo().path == "a.txt"
        assert [(file.name, file.read_text()) for file in root.iterdir()] == [("a.txt", "one")]


def test_a_change_that_was_put_back_by_hand_is_not_passed_over(files: FileTools, root: Path) -> None:
    for content in ("one", "two"):
        files.call_sync("write_file", {"path": "a.txt", "content": content})
    changed_s = files.changes()[0].time_s
    while (root / "a.txt").stat().st_ctime <= changed_s or (root / "a.txt").read_text() != "one":
        (root / "a.txt").write_text("one")
    with pytest.raises(UsageError, match="as it was before"):
        files.undo()


def test_a_new_file_whose_folder_was_deleted_by_hand_is_not_passed_over(files: FileTools, root: Path) -> None:
    files.call_sync("write_file", {"path": "a.txt", "content": "one"})
    files.call_sync("write_file", {"path": "made/b.txt", "content": "two"})
    shutil.rmtree(root / "made")
    with pytest.raises(UsageError) as refused:
        files.undo()
    assert (root / "a.txt").read_text() == "one"
    assert "made" in str(refused.value)
