"""README and tutorial, line by line, by somebody who has nothing: a new home, an empty folder, no key.

A Python block is a file that its first line names; a shell block is typed; a block of plain text is what the one before it
must have printed. `make` runs the tasks of the real Makefile in a clone whose environment is set up already, because setting
it up takes the network.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SKIPPED = {
    "make test": "it runs the tests, of which this is one",
    "pip install .": "test_package.py installs the wheel",
}
"""Commands that are not typed here, and why."""


@dataclass
class Newcomer:
    """Somebody at a shell."""

    home: Path
    clone: Path
    folder: Path
    programs: Path

    def type(self, line: str) -> str:
        """Types a line and gives what it prints."""
        folder = self.clone if line.startswith("make") else self.folder
        env = {"HOME": str(self.home), "PATH": f"{self.programs}:/usr/bin:/bin", "LANG": "C.UTF-8"}
        env["CALLGATE_PROVIDER"] = "demo"  # or the embedded model, where it is installed, would be loaded
        done = subprocess.run(
            ["/bin/sh", "-ec", line],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    top = tmp_path_factory.mktemp("newcomer")
    person = Newcomer(*(top / name for name in ("home", "clone", "work", "bin")))
    for folder in (person.home, person.folder, person.programs, person.clone / ".venv/bin", person.clone / "scripts"):
        folder.mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", person.clone)
    programs = {
        person.programs / "python": f'exec "{sys.executable}" -W error "$@"',
        person.programs / "callgate": f'exec "{sys.executable}" -m callgate "$@"',
        person.clone / ".venv/bin/callgate": f'exec "{sys.executable}" -m callgate "$@"',
        person.clone / "scripts/setup": "exit 0",
    }
    for file, text in programs.items():
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
    return person


def commands_in(block: str) -> list[str]:
    lines = [re.sub(r"\s+#.*", "", line).strip() for line in block.splitlines()]
    return [line for line in lines if line]


def walk(person: Newcomer, page: str) -> dict[str, int]:
    """Goes through a page; says how many blocks of each kind there were."""
    count = {"python": 0, "sh": 0, "text": 0}
    printed = ""
    for language, block in re.findall(r"^```(python|sh|text)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        count[language] += 1
        if language == "python":
            name = block.partition("\n")[0].removeprefix("# ").rpartition("/")[2]
            assert re.fullmatch(r"\w+\.py", name), f"the first line of a block names its file: {block[:60]!r}"
            (person.folder / name).write_text(block)
            printed = ""
            if promised := re.search(r"^# Output:\n((?:#.*\n)+)\Z", block, re.MULTILINE):
                expected = re.sub(r"^# ?", "", promised[1], flags=re.MULTILINE)
                assert person.type(f"python {name}") == expected
        elif language == "sh":
            lines = [line for line in commands_in(block) if line not in SKIPPED]
            printed = "".join(person.type(line) for line in lines)
            assert printed or not lines, f"nothing was printed by {lines}"
        else:
            assert printed == block
    return count


@pytest.mark.slow
@pytest.mark.parametrize(("page", "least"), [("README.md", 1), ("docs/tutorial.md", 4)])
def test_a_newcomer_gets_through_the_page_line_by_line(newcomer: Newcomer, page: str, least: int):
    count = walk(newcomer, (ROOT / page).read_text("utf-8"))
    assert count["python"] >= least
    assert count["sh"] >= 2
    assert {path.name for path in newcomer.home.iterdir()} <= {".local", ".cache", ".config"}


def test_every_make_task_that_a_page_names_is_in_the_makefile():
    tasks = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = {word for page in pages for word in re.findall(r"`make ([a-z][a-z-]*)", page.read_text("utf-8"))}
    assert named - tasks == set()
    assert "chat" in named


def test_a_page_that_promises_something_else_is_found(newcomer: Newcomer):
    with pytest.raises(AssertionError):
        walk(newcomer, "```sh\necho one\n```\n\n```text\ntwo\n```\n")
    with pytest.raises(AssertionError, match="names its file"):
        walk(newcomer, "```python\nprint(1)\n```\n")
