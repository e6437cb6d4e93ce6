"""Unfinished uploads: they end with their process, also with one that was killed, once the next one starts."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from callgate.server.upload_folder import UploadFolder, remove_stale

DIES = """
import os, signal
from callgate.server.upload_folder import UploadFolder

folder = UploadFolder()
with open(folder.new_file(), "w") as file:
    file.write("private")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name != ".lock")


def test_files_of_a_killed_process_are_removed_and_those_of_a_living_one_are_not(folder: Path) -> None:
    subprocess.run([sys.executable, "-c", DIES], env={**os.environ, "TMPDIR": str(folder)}, check=False)
    assert [path.read_text() for path in folder.glob("callgate-upload-*/tmp*")] == ["private"]
    mine = UploadFolder()
    path = Path(mine.new_file())
    (folder / "callgate-upload-file").write_text("of somebody else")
    (folder / "callgate-upload-link").symlink_to(path.parent)
    remove_stale()
    assert files(folder) == sorted(["callgate-upload-file", path.name])
    assert (path.parent.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    mine.close()
    assert files(folder) == ["callgate-upload-file"]


def test_a_folder_is_gone_with_its_service(folder: Path) -> None:
    mine = UploadFolder()
    mine.new_file()
    del mine
    assert files(folder) == []
