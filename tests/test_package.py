"""The package as a user gets it: the wheel, its version, and what README and CHANGELOG say about it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import callgate

ROOT = Path(__file__).resolve().parent.parent


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "callgate/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert [name for name in names if not re.match(r"callgate(-[^/]+\.dist-info)?/", name)] == []
    assert [name for name in names if "__pycache__" in name or "tests/" in name] == []
    in_tree = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert in_tree <= set(names)


@pytest.mark.slow
def test_the_wheel_works_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel, cwd=tmp_path)
    # What callgate depends on comes from the environment of the tests. A folder that a .pth file names goes behind the new
    # environment's own packages, and .pth files inside it are not read: the editable callgate stays out of sight.
    site = Path(run(python, "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip())
    (site / "zz_packages_of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")

    ask = (
        "import json, callgate, importlib.metadata as m;"
        "print(json.dumps([callgate.__file__, callgate.__version__, m.version('callgate')]))"
    )
    file, version, metadata_version = json.loads(run(python, "-I", "-c", ask, cwd=tmp_path))
    assert Path(file).is_relative_to(site)
    assert version == metadata_version == callgate.__version__
    assert (python.parent / "callgate").is_file()


def test_the_newest_heading_of_the_changelog_is_this_version() -> None:
    headings = re.findall(r"^## (\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings, "CHANGELOG.md has no heading such as '## 0.1.0 (unreleased)'"
    base = re.match(r"\d+\.\d+\.\d+", callgate.__version__)
    assert base
    assert headings[0] == base[0]


def examples_in(text: str, root: Path) -> list[str]:
    """What is wrong with the Python blocks of a page: each names its file in its first line, and stands in it."""
    breaches: list[str] = []
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        first, _, body = block.partition("\n")
        named = re.fullmatch(r"# (examples/\d\d_\w+\.py)", first)
        if not named:
            breaches.append(f"a Python block starts with {first!r}; start it with '# examples/NN_name.py'")
        elif not (root / named[1]).is_file():
            breaches.append(f"a Python block names {named[1]}, which does not exist")
        elif body.strip() not in (root / named[1]).read_text("utf-8"):
            breaches.append(f"the block of {named[1]} is not what that file says; paste it again")
    return breaches


def test_every_python_block_of_the_readme_is_a_tested_example() -> None:
    assert examples_in((ROOT / "README.md").read_text("utf-8"), ROOT) == []


def test_a_block_that_is_no_example_is_found(tmp_path: Path) -> None:
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "01_add.py").write_text('"""Adds."""\n\nprint(1 + 1)\n')
    text = (
        "```python\n# examples/01_add.py\nprint(1 + 1)\n```\n"
        "```python\n# examples/01_add.py\nprint(1 + 2)\n```\n"
        "```python\n# examples/02_gone.py\nprint(1)\n```\n"
        "```python\nprint(1)\n```\n"
        "```sh\nmake test\n```\n"
    )
    assert examples_in(text, tmp_path) == [
        "the block of examples/01_add.py is not what that file says; paste it again",
        "a Python block names examples/02_gone.py, which does not exist",
        "a Python block starts with 'print(1)'; start it with '# examples/NN_name.py'",
    ]
