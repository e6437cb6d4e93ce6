"""Check the types of what users copy: examples, the Python blocks of README and docs, and `tests/typing`.

pyright (its standard mode) and mypy check the same files. Each block is a program of its own; one whose first line names a
file (`# weather_tools.py`) can be imported by the others. Every line of `tests/typing/mistakes.py` with `# expect` must be
an error for both checkers.

    python scripts/check_types.py [--only pyright|mypy]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^(<!-- not run: [^\n]+ -->\n)?```python\n((?:# (\w+)\.py\n)?.*?)^```$", re.DOTALL | re.MULTILINE)
FOREIGN = "# pyright: reportMissingImports=false\n"
"""The first line of a block that is not run: it may import packages that are not installed."""

Finding = tuple[Path, int, str]
"""A file, a line from 1 on, and the error there."""


def write_blocks(root: Path, build: Path) -> dict[Path, Path]:
    """Write each Python block to a file, on the lines that it has in its page; return the page of each file."""
    build.mkdir(parents=True, exist_ok=True)
    for old in build.glob("*.py"):
        old.unlink()
    pages: dict[Path, Path] = {}
    for page in [root / "README.md", *sorted((root / "docs").rglob("*.md"))]:
        text = page.read_text("utf-8")
        prefix = re.sub(r"\W", "_", str(page.relative_to(root).with_suffix("")))
        for number, found in enumerate(BLOCK.finditer(text)):
            file = build / f"{found[3] or f'{prefix}_{number}'}.py"
            if file in pages:
                raise SystemExit(f"check_types: two blocks are named {file.name}: in {pages[file]} and in {page}")
            lines_before = text.count("\n", 0, found.start(2))
            file.write_text((FOREIGN if found[1] else "\n") + "\n" * (lines_before - 1) + found[2], "utf-8")
            pages[file] = page
    return pages


def pyright(files: list[Path], build: Path) -> Iterator[Finding]:
    """Check the files with pyright."""
    config = build / "pyrightconfig.json"
    settings = {
        "include": [os.path.relpath(file, build) for file in files],  # pyright ignores absolute paths
        "exclude": [], "typeCheckingMode": "standard", "pythonVersion": "3.11", "reportMissingModuleSource": False,
    }  # fmt: skip
    config.write_text(json.dumps(settings), "utf-8")
    report = json.loads(output_of("pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(config)))
    if report["summary"]["filesAnalyzed"] < len(files):
        raise SystemExit(f"check_types: pyright read {report['summary']['filesAnalyzed']} of {len(files)} files")
    for one in report["generalDiagnostics"]:
        if one["severity"] == "error":
            yield Path(one["file"]), one["range"]["start"]["line"] + 1, one["message"].splitlines()[0]


def mypy(files: list[Path], build: Path) -> Iterator[Finding]:
    """Check the files with mypy."""
    options = (
        "--config-file=", "--no-error-summary", "--hide-error-context", "--no-pretty", "--check-untyped-defs",
        "--ignore-missing-imports", "--python-version=3.11", "--output=json", f"--cache-dir={build / 'mypy'}",
    )  # fmt: skip
    for line in output_of("mypy", *options, *map(str, files)).splitlines():
        one = json.loads(line)
        if one["severity"] == "error":
            yield ROOT / one["file"], one["line"], one["message"].splitlines()[0]


def output_of(module: str, *args: str) -> str:
    """The output of a checker; exit if it could not do its work."""
    command = [sys.executable, "-m", module, *args]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or (done.returncode == 1 and not done.stdout):
        raise SystemExit(f"check_types: {module} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


CHECKERS = {"pyright": pyright, "mypy": mypy}


def problems(root: Path, build: Path, checkers: list[str]) -> list[str]:
    """A sentence for each error, and for each line of `mistakes.py` that should be one and is none."""
    pages = write_blocks(root, build)
    files = [*pages, *sorted((root / "examples").rglob("*.py")), *sorted((root / "tests/typing").glob("*.py"))]
    mistakes = root / "tests/typing/mistakes.py"
    lines = mistakes.read_text("utf-8").splitlines()
    expected = {(mistakes, number) for number, line in enumerate(lines, 1) if "# expect" in line}
    found: list[str] = []
    for checker in checkers:
        errors = list(CHECKERS[checker](files, build))
        missed = expected - {(file, line) for file, line, _ in errors}
        errors = [error for error in errors if error[:2] not in expected]
        errors += [(file, line, "the checker does not see this mistake") for file, line in missed]
        at = [(pages.get(file, file).relative_to(root).as_posix(), line, message) for file, line, message in errors]
        found += [f"{page}:{line}: {message} ({checker})" for page, line, message in sorted(at)]
    return found


def main(argv: list[str] | None = None) -> int:
    """Check, print the problems, and return 1 if there are any."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", choices=[*CHECKERS], help="run one of the checkers")
    only = parser.parse_args(argv).only
    found = problems(ROOT, ROOT / "build" / "types", [only] if only else [*CHECKERS])
    for problem in found:
        sys.stdout.write(f"{problem}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
