"""The release script: what it refuses, and that it builds the same bytes each time."""

from __future__ import annotations

import importlib.util
import subprocess
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "scripts" / "release.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(release: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small repository with a version and a changelog, in place of this one."""
    (tmp_path / "src/callgate").mkdir(parents=True)
    (tmp_path / "src/callgate/__init__.py").write_text('__version__ = "0.1.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0 (unreleased)\n")
    commit(tmp_path)
    monkeypatch.setattr(release, "ROOT", tmp_path)
    monkeypatch.setattr(release.output_of, "__kwdefaults__", {"cwd": tmp_path})
    return tmp_path


def commit(folder: Path) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "one"]):
        subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def test_a_committed_tree_whose_changelog_names_its_version_can_be_released(release: ModuleType, tree: Path):
    assert release.version() == "0.1.0"


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("src/callgate/__init__.py", '__version__ = "0.1.0.dev0"\n', "0.1.0.dev0 is no version to release"),
        ("src/callgate/__init__.py", "version = 1\n", "None is no version to release"),
        ("CHANGELOG.md", "## 0.2.0\n", "The newest heading of CHANGELOG.md is 0.2.0, and the version is 0.1.0."),
    ],
)
def test_a_version_that_is_not_ready_is_refused(release: ModuleType, tree: Path, file: str, text: str, words: str):
    (tree / file).write_text(text)
    commit(tree)
    with pytest.raises(release.ReleaseError, match=words):
        release.version()


def test_a_tree_with_changes_is_refused(release: ModuleType, tree: Path):
    (tree / "left.txt").write_text("")
    with pytest.raises(release.ReleaseError, match=r"\?\? left\.txt"):
        release.version()


@pytest.mark.parametrize(
    ("metadata", "changelog", "words"),
    [
        ("Name: callgate\nProject-URL: Repository, https://example.org\n\n", "## 0.1.0 (2026-12-01)\n", []),
        ("Name: callgate\n\nProject-URL: only in the README\n", "## 0.1.0 (2026-12-01)\n", ["[project.urls]"]),
        ("Name: callgate\n\n", "## 0.1.0 (unreleased)\n", ["[project.urls]", "the date"]),
    ],
)
def test_what_only_a_person_can_fill_in_is_named(
    release: ModuleType, tree: Path, metadata: str, changelog: str, words: list[str]
):
    (tree / "CHANGELOG.md").write_text(changelog)
    wheel = tree / "callgate.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("callgate-0.1.0.dist-info/METADATA", metadata)
    assert [task.partition(" in ")[0].removesuffix(" of this version") for task in release.left_to_a_person(wheel)] == words


def test_a_package_of_the_sbom_has_its_purl_licence_and_hash(release: ModuleType):
    metadata = {"name": "Ab_c.d", "version": "1.2", "license_expression": "MIT"}
    assert release.component(metadata, {"archive_info": {"hashes": {"sha256": "00ff"}}}) == {
        "type": "library",
        "name": "ab-c-d",
        "version": "1.2",
        "purl": "pkg:pypi/ab-c-d@1.2",
        "licenses": [{"expression": "MIT"}],
        "hashes": [{"alg": "SHA-256", "content": "00ff"}],
    }


@pytest.mark.slow
def test_builds_of_one_commit_are_equal_and_so_is_the_wheel_from_the_sdist(release: ModuleType, tmp_path: Path):
    assert [Path(name).suffix for name in release.built(tmp_path)] == [".whl", ".gz"]
