"""Pools that join a cluster by `ray://`, as a service outside of it does: its own head, its own ports."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
TOOLBOX = Path(__file__).parent / "toolbox.py"
PATIENCE_S = 120
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_DISABLE_IMPORT_WARNING": "1"}

PROGRAM = """
import asyncio, json, sys
from callgate.workers import WorkerPool

async def main():
    async with WorkerPool([sys.argv[1]], size=2, cluster=sys.argv[2]) as pool:
        first = await pool.execute("s", "add", {"a": 1}, timeout_s=60)
        short = [(await pool.execute("s", "add", {"a": number}, timeout_s=0.9)).status for number in range(5)]
        print(json.dumps([first.status, first.value, short]), flush=True)
        if len(sys.argv) > 3:
            ended = await pool.execute("s", "family", {"note": sys.argv[3]}, timeout_s=100)
            print(json.dumps([ended.status, ended.error]), flush=True)

asyncio.run(main())
"""


@dataclass
class Head:
    """The head of a cluster, and everything that it started."""

    process: subprocess.Popen[bytes]
    address: str

    def kill(self) -> None:
        for pid in [*descendants(self.process.pid), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(PATIENCE_S)


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        for child in (task / "children").read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


@pytest.fixture
def head() -> Iterator[Head]:
    pytest.importorskip("ray")
    port, client = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="cg-ray-", ignore_cleanup_errors=True) as folder:
        command = [
            str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", f"--port={port}",
            f"--ray-client-server-port={client}", "--num-cpus=2", "--include-dashboard=false",
            "--node-ip-address=127.0.0.1", "--object-store-memory=80000000", f"--temp-dir={folder}",
        ]  # fmt: skip
        environment = {**os.environ, **SETTINGS}
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
        started = Head(process, f"ray://127.0.0.1:{client}")
        deadline_s = time.monotonic() + PATIENCE_S
        while not is_open(client):
            assert process.poll() is None
            assert time.monotonic() < deadline_s
            time.sleep(0.1)  # clock: another program is looked at
        yield started
        started.kill()


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def launched(head: Head, tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    command = [sys.executable, str(script), str(TOOLBOX), head.address, *words]
    environment = {**os.environ, **SETTINGS}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)


def test_calls_with_short_deadlines_come_back_and_a_call_ends_when_the_head_dies(head: Head, tmp_path: Path) -> None:
    note = tmp_path / "ids"
    with launched(head, tmp_path, str(note)) as program:
        assert program.stdout
        assert json.loads(program.stdout.readline()) == ["finished", 3, ["finished"] * 5]
        deadline_s = time.monotonic() + PATIENCE_S
        while not note.exists() and time.monotonic() < deadline_s:
            time.sleep(0.05)  # clock: another program is looked at
        head.kill()
        status, error = json.loads(program.stdout.readline())
        assert status == "failed", error
        assert "Ray" in error
        program.kill()
