"""Agents on a terminal: started once for each deed, in an empty folder and an empty home, with a prompt as an argument.

Their own tool is the shell. The tools of the service come to them by MCP, at `/mcp`.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from report import BASE, EXPECTED, UNKNOWN, WEATHER_ASKED, Way

PACKAGES = Path(os.environ["CLIENT_FOLDER"]) / "node_modules"
NODE = os.environ.get("NODE", "node")
WAIT_S = 120


class Agent(Way):
    """A way to ask with such an agent. A subclass has the command, its configuration, and how to read what it prints."""

    def command(self, home: Path, prompt: str, model: str) -> list[str]:
        """Write the configuration below `home`; return the command."""
        raise NotImplementedError

    def env(self) -> dict[str, str]:
        """Return the variables that the agent needs."""
        return {}

    def said(self, printed: str) -> str:
        """Return the answer in what it has printed."""
        return printed.strip()

    def _start(self, folder: str, prompt: str, model: str = "callgate") -> subprocess.Popen[str]:
        home = Path(folder, "home")
        (work := Path(folder, "work")).mkdir()
        home.mkdir()
        path = f"{Path(NODE).parent}:{os.environ['PATH']}"
        env = {"HOME": str(home), "PATH": path, "NO_PROXY": "127.0.0.1", "LANG": "C.UTF-8", **self.env()}
        return subprocess.Popen(
            self.command(home, prompt, model), cwd=work, env=env, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def text(self, prompt: str) -> str:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, self._start(folder, prompt) as process:
            printed, told = _output(process)
            if process.returncode:
                raise RuntimeError(f"{told.strip()[-200:]} {printed.strip()[-100:]}")
            return self.said(printed)

    ours = text

    def its(self, prompt: str) -> str:
        answer = self.text(prompt)
        # The shell is its own: what it printed is the proof that it ran.
        WEATHER_ASKED.extend(city for city in ("Oslo", "Rome") if f"{city} is cold" in answer)
        return answer

    parallel = its

    def error(self, prompt: str) -> str:
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
            self._start(folder, prompt, UNKNOWN) as process,
        ):
            printed, told = _output(process)
            if UNKNOWN in printed + told and process.returncode:
                raise ModelNotFoundError
            return f"{process.returncode}: {told.strip()[-150:]} {printed.strip()[-150:]}"

    def abort(self, prompt: str) -> str:
        """Ctrl-C, as soon as the model is speaking."""
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, self._start(folder, prompt) as process:
            _until_asked()
            process.terminate()
            _output(process)
            return EXPECTED["abort"][0]


class ModelNotFoundError(Exception):
    """The agent has named the unknown model and ended with an error."""

    status_code = 404


def _output(process: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return process.communicate(timeout=WAIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()


def _until_asked() -> None:
    import time

    begun = Path(os.environ["LEFT_FILE"]).with_name("begun")
    deadline = time.monotonic() + WAIT_S
    before = len(begun.read_text().splitlines()) if begun.exists() else 0
    while time.monotonic() < deadline:
        if begun.exists() and len(begun.read_text().splitlines()) > before:
            return
        time.sleep(0.05)
    raise TimeoutError("the model was not asked")


MCP = f"{BASE}/mcp"
