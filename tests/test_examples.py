"""Every example runs as it stands and prints what its last lines say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).resolve().parent.parent / "examples").glob("*.py"))


def promised(text: str) -> str:
    """What the comment block `# Output:` at the end of an example says that it prints."""
    block = re.search(r"^# Output:\n((?:#.*\n)+)\Z", text, re.MULTILINE)
    assert block, "an example ends with '# Output:' and its output as comment lines"
    return "".join(line.removeprefix("#").removeprefix(" ") for line in block[1].splitlines(keepends=True))


def test_there_are_examples() -> None:
    assert [path.stem for path in EXAMPLES[:5]] == ["01_function", "02_scripted", "03_approval", "04_stream", "05_executor"]
    assert len(EXAMPLES) >= 10


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_prints_what_it_promises(path: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == promised(path.read_text("utf-8"))
