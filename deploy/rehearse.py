"""Runs the steps of the container file, and the command of the systemd unit, in a clean folder without a container engine.

Paths of the container are moved into the folder; what would change this machine (a user) is skipped, and said. At the end
the service is started as the container would start it, asked for its health as the container would ask, and stopped.

    python deploy/rehearse.py [--offline] [--build-arg NAME=VALUE] [--env NAME=VALUE] [-- WORD ...]
                                                 ends with 1 if a step fails

`--build-arg` and `--env` are those of a container engine, and so are the words, which `callgate serve` gets: with
`--build-arg EXTRAS=cli,mcp,server,postgres,ray`, `-T tools.py --workers ray://head:10001` is tried too. `--offline` installs
callgate without what it depends on, and borrows that from the Python that runs this file.
"""

from __future__ import annotations

import argparse
import configparser
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
SKIPPED = {"useradd": "it would make a user on this machine"}
"""First words of commands that are not run, and why."""
IGNORED = ("USER", "VOLUME", "EXPOSE", "STOPSIGNAL")
PATIENCE_S = 180
PORT = "8081"


@dataclass
class Stage:
    """One stage of the file: a folder that stands for its root."""

    root: Path
    folder: str = "/"
    environment: dict[str, str] = field(default_factory=dict)

    def place(self, path: str) -> Path:
        """Where a path of the container lies."""
        inside = path if path.startswith("/") else f"{self.folder.rstrip('/')}/{path}"
        return self.root / inside.lstrip("/")

    def moved(self, text: str) -> str:
        """A command or value with the container's own paths moved into the folder."""
        return re.sub(r"(?<![\w.])/(opt|src|var/lib/callgate)\b", lambda found: f"{self.root}{found[0]}", text)


class Rehearsal:
    """Carries out a container file line by line."""

    def __init__(self, folder: Path, given: Mapping[str, str], *, offline: bool) -> None:
        self.folder = folder
        self.given = given
        self.offline = offline
        self.stages: dict[str, Stage] = {}
        self.arguments: dict[str, str] = {}
        self.stage = Stage(folder)
        self.health: list[str] = []
        self.entry: list[str] = []

    def carry_out(self, file: Path) -> None:
        """Every line of the file, in order."""
        text = re.sub(r"^#.*\n", "", file.read_text("utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
        for line in filter(str.strip, text.splitlines()):
            word, _, rest = line.strip().partition(" ")
            if word in IGNORED:
                continue
            getattr(self, f"do_{word.lower()}")(rest.strip())

    def do_from(self, rest: str) -> None:
        name = rest.partition(" AS ")[2] or f"stage{len(self.stages)}"
        # One root for all: a virtual environment cannot be moved to another place.
        self.stage = self.stages[name] = Stage(self.folder)

    def do_workdir(self, rest: str) -> None:
        self.stage.folder = rest
        self.stage.place(rest).mkdir(parents=True, exist_ok=True)

    def do_arg(self, rest: str) -> None:
        name, _, value = rest.partition("=")
        self.arguments[name] = self.given.get(name, value)

    def do_env(self, rest: str) -> None:
        name, _, value = rest.partition("=")
        self.stage.environment[name] = self.stage.moved(value)

    def do_copy(self, rest: str) -> None:
        *sources, target = rest.split()
        if sources[0].startswith("--from="):
            assert self.stages[sources.pop(0).removeprefix("--from=")].place(sources[0]).exists(), rest
            return
        for source in sources:
            into = self.stage.place(target)
            into = into / source if target.endswith("/") else into
            into.parent.mkdir(parents=True, exist_ok=True)
            if (PROJECT / source).is_dir():
                shutil.copytree(PROJECT / source, into, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(PROJECT / source, into)

    def do_run(self, rest: str) -> None:
        program = rest.split()[0]
        if program in SKIPPED:
            print(f"skipped: {rest} ({SKIPPED[program]})", flush=True)
            return
        words = shlex.split(self.stage.moved(Template(rest).safe_substitute(self.arguments)))
        if words[0] == "python":
            words[0] = sys.executable
        if self.offline and "pip" in words:
            words += ["--no-deps", "--no-build-isolation", "--quiet"]
        print(f"run: {shlex.join(words)}", flush=True)
        subprocess.run(words, check=True, cwd=self.stage.place("."), env=self.environ(), timeout=600)

    def do_healthcheck(self, rest: str) -> None:
        self.health = json.loads(rest.partition("CMD ")[2])

    def do_entrypoint(self, rest: str) -> None:
        self.entry = json.loads(rest)

    def environ(self) -> dict[str, str]:
        """What commands see: the file's own variables and hardly anything of ours."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        borrowed = {"PYTHONPATH": os.pathsep.join(filter(_holds_packages, sys.path))} if self.offline else {}
        path = os.pathsep.join(filter(None, [self.stage.environment.get("PATH"), kept.get("PATH")]))
        return {**kept, **borrowed, **self.stage.environment, "PATH": path, "HOME": str(self.folder)}

    def start_and_stop(self, words: list[str], **more: str) -> None:
        """Starts the service, asks for its health as the container would, and stops it."""
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = str(probe.getsockname()[1])
        command = [port if word == PORT else self.stage.moved(word) for word in words]
        check = [self.stage.moved(word).replace(PORT, port) for word in self.health]
        print(f"start: {shlex.join(command)}", flush=True)
        environ = {**self.environ(), "CALLGATE_PROVIDER": "demo", **more}
        process = subprocess.Popen(command, cwd=self.stage.place("/var/lib/callgate"), env=environ)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while subprocess.run(check, env=environ, capture_output=True, check=False).returncode != 0:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit(f"the service is not healthy; it ended with {process.poll()}")
                time.sleep(0.2)
            while (token := more.get("CALLGATE_TOKEN")) and not all(pool["ready"] for pool in _workers(port, token)):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise SystemExit("no worker of the service is ready")
                time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
            if (code := process.wait(PATIENCE_S)) != 0:
                raise SystemExit(f"the service ended with {code} instead of 0")
        finally:
            process.kill()
            process.wait()


def _holds_packages(path: str) -> bool:
    return Path(path).name == "site-packages"


def _workers(port: str, token: str) -> list[dict[str, object]]:
    """The pools of workers that the service reports."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/api/v1/health", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
        return json.load(answer)["workers"]


def _pairs(given: list[str]) -> dict[str, str]:
    return {name: value for name, _, value in (one.partition("=") for one in given)}


def unit_command(file: Path) -> list[str]:
    """What the systemd unit starts."""
    unit = configparser.RawConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign] - the names of systemd have capitals
    unit.read_string(file.read_text("utf-8"))
    return shlex.split(unit["Service"]["ExecStart"])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--offline", action="store_true")
    parser.add_argument("--build-arg", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("words", nargs="*", metavar="WORD", help="more words for the container's service")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="callgate-deploy-") as folder:
        rehearsal = Rehearsal(Path(folder), _pairs(given.build_arg), offline=given.offline)
        rehearsal.carry_out(HERE / "Containerfile")
        if unknown := set(rehearsal.given) - set(rehearsal.arguments):
            raise SystemExit(f"the container file has no argument {', '.join(sorted(unknown))}")
        token = {"CALLGATE_TOKEN": "a-token-for-the-rehearsal"}
        rehearsal.start_and_stop([*rehearsal.entry, *given.words], **token, **_pairs(given.env))
        print("the container's service is healthy, and ends with 0", flush=True)
        rehearsal.start_and_stop(unit_command(HERE / "callgate.service"))
        print("the unit's service is healthy, and ends with 0", flush=True)
        state = rehearsal.stage.place("/var/lib/callgate/callgate/sessions.db")
        if not state.exists():
            raise SystemExit("the sessions are not kept where the volume is")
    return 0


if __name__ == "__main__":
    sys.exit(main())
