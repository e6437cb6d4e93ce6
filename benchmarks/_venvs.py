"""One environment for each system, made once: what one of them installs must not change what another one imports.

Names come in, the path of a Python interpreter goes out, or a sentence that says why there is none. Environments live under
`build/bench/venvs`, which git ignores, and are made again when what is wanted in them changes.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["ASIDE", "WANTED", "MissingError", "python_of"]

ROOT = Path(__file__).resolve().parent.parent
VENVS = ROOT / "build" / "bench" / "venvs"

WANTED: dict[str, tuple[str, ...]] = {
    "callgate": (f"{ROOT}[cli]",),
    "hand-written": ("httpx2>=2.0", "orjson>=3.10"),
    "raw sockets": (),
    "google-genai": ("google-genai>=3.1",),
    "pydantic-ai": ("pydantic-ai-slim[google]>=2.0",),
    "LiteLLM": ("litellm>=1.80", "mcp>=1.0"),  # Its completions with tools import mcp, and it does not ask for it.
    "LangChain": ("langchain>=1.0", "langchain-google-genai>=4.0"),
}
ASIDE: dict[str, tuple[str, ...]] = {"aiohttp": ("aiohttp>=3.12", "orjson>=3.10")}
"""Measured beside a single benchmark, and not among the systems."""
INSTALL_S = 600


class MissingError(Exception):
    """A system cannot be had here; the message says why."""


def python_of(system: str) -> Path:
    """The interpreter of a system's own environment, which is made if it is not there.

    Raises:
        MissingError: it cannot be made.
    """
    folder = VENVS / system.replace(" ", "-").lower()
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    stamp = folder / ".ready"
    wanted_packages = (WANTED | ASIDE)[system]
    wanted = _digest(wanted_packages)
    if stamp.is_file() and stamp.read_text("utf-8") == wanted:
        return python
    print(f"  an environment for {system} is made, once ...", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    if wanted_packages:
        # callgate is installed as it stands here, and so that a change of its code needs no new environment.
        packages = [part for name in wanted_packages for part in (["-e", name] if name.startswith(str(ROOT)) else [name])]
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
    stamp.write_text(wanted, "utf-8")
    return python


def _digest(wanted: tuple[str, ...]) -> str:
    return hashlib.sha256(repr((wanted, sys.version_info[:2])).encode()).hexdigest()


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        raise MissingError(f"{command[-1]} was not installed within {INSTALL_S} s") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no reason was given"]
        raise MissingError(lines[-1][:300])
