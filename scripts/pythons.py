"""Runs tests with the other versions of Python that this machine has, in an environment of its own for each.

    python scripts/pythons.py [--extras cli,mcp] [--group dev] [--folder .venv/pythons] [words for pytest]

Versions are looked for in PATH and among those of pyenv and of uv; the one that runs this is left out. What is installed
has the same versions as here, so that only Python differs. Says which versions were not found, and exits with 1 if a test
failed on one that was. Without --group only what the tests of the core need is installed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MINORS = (12, 13)
"""The versions 3.x that the tests run on beside the first."""
CORE_TESTS = [
    "tests/machine", "tests/calls", "tests/run", "tests/content", "tests/history", "tests/tools", "tests/test_sync.py",
]  # fmt: skip
PLUGINS = [
    "anthropic", "brotli", "google-genai", "hypothesis", "langchain-core", "numpy", "openai-agents", "orjson",
    "pydantic-ai-slim", "pytest", "pytest-xdist", "uvloop",
]  # fmt: skip
"""What the tests of the core need beside the package and its extras."""


def interpreters_of(minor: int) -> Iterator[str]:
    """Programs that may be Python 3.`minor`, the likeliest first."""
    if (found := shutil.which(f"python3.{minor}")) is not None:
        yield found
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from map(str, sorted(pyenv.glob(f"versions/3.{minor}.*/bin/python"), key=_numbers, reverse=True))
    if (uv := shutil.which("uv")) is not None:
        found_by_uv = subprocess.run([uv, "python", "find", f"3.{minor}"], capture_output=True, text=True, check=False)
        if found_by_uv.returncode == 0:
            yield found_by_uv.stdout.strip()


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


def interpreter_of(minor: int) -> str | None:
    """The first of them that runs, and is what its name says (a shim of pyenv may be neither)."""
    for program in interpreters_of(minor):
        asked = [program, "-c", "import ensurepip, sys, venv; print(sys.version_info[1])"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False)
        if said.returncode == 0 and said.stdout.strip() == str(minor):
            return program
    return None


def make(program: str, folder: Path, extras: str, group: str) -> Path:
    """An environment with the package as it is here; the path of its Python. Quick where it is there already."""
    python = folder / "bin" / "python"
    versions = "".join(
        sorted(
            f"{found.name}=={found.version}\n" for found in importlib.metadata.distributions() if found.name != "callgate"
        )
    )
    wanted = f"{program} {extras} {group} {PLUGINS}\n{versions}"
    stamp = folder / ".callgate-stamp"
    if python.exists() and stamp.exists() and stamp.read_text("utf-8") == wanted:
        return python
    subprocess.run([program, "-m", "venv", "--clear", str(folder)], check=True)
    constraints = folder / "constraints.txt"
    constraints.write_text(versions, "utf-8")
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--upgrade", "pip>=25.1"], check=True)
    words = ["--group", group] if group else PLUGINS
    package = f"{ROOT}[{extras}]" if extras else str(ROOT)
    subprocess.run([*pip, "--constraint", str(constraints), "--editable", package, *words], cwd=ROOT, check=True)
    stamp.write_text(wanted, "utf-8")
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description="Run tests with the other versions of Python that are here.")
    parser.add_argument("--extras", default="cli,files,mcp,server")
    parser.add_argument("--group", default="")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv" / "pythons")
    parser.add_argument("--jobs", type=int, default=2)
    options, words = parser.parse_known_args()
    shared = ["-n", str(options.jobs), "--dist", "loadfile", "-p", "scripts.whole_files", "-p", "scripts.progress"]
    # What is not installed here is no fault of this run: the first version is tested with everything.
    environment = {name: value for name, value in os.environ.items() if name != "CALLGATE_REQUIRE_ALL"}
    failed: list[str] = []
    for minor in MINORS:
        if minor == sys.version_info.minor:
            continue
        program = interpreter_of(minor)
        if program is None:
            print(f"pythons: no Python 3.{minor} is here, so nothing was tested with it", flush=True)
            continue
        print(f"pythons: Python 3.{minor}, {program}", flush=True)
        python = make(program, options.folder / f"3.{minor}", options.extras, options.group)
        cache = f"cache_dir={options.folder / f'3.{minor}' / 'cache'}"
        command = [str(python), "-m", "pytest", "-q", "-o", cache, *shared, "-m", "not slow"]
        done = subprocess.run([*command, *(words or CORE_TESTS)], cwd=ROOT, env=environment, check=False)
        if done.returncode not in (0, 5):
            failed.append(f"3.{minor}")
    if failed:
        print(f"pythons: tests failed with Python {' and '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
