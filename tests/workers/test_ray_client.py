"""Pools that join a cluster by both kinds of addresses, `ray://host:10001` and `host:6379`: its own head, its own ports."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
TOOLBOX = Path(__file__).parent / "toolbox.py"
PATIENCE_S = 120
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_DISABLE_IMPORT_WARNING": "1"}
TOKENS = {**SETTINGS, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
"""As `ray start` has it where nothing is said; it then makes the token up."""

PROGRAM = """
import asyncio, json, os, sys
from callgate.errors import UsageError
from callgate.workers import RayCluster, WorkerPool

toolbox, address, direct, far, note = sys.argv[1:]
short_s = 0.5 if direct == "direct" else 20  # Ray itself may take longer on a busy machine.

async def joined(cluster):
    # Ray gives up a client's server that does not start within 30 s, as on a busy machine.
    for _ in range(int(os.environ.get("TRIES", "4"))):
        pool = WorkerPool([toolbox], size=3, cluster=cluster)
        try:
            await pool.start()
            return pool
        except UsageError as error:
            print(error, file=sys.stderr)
            await pool.aclose(0.0)
    raise SystemExit("the cluster cannot be joined")

async def main():
    cluster = RayCluster(address=address, direct=direct == "direct", resources={"family": {"far": 1}} if far else {})
    async with await joined(cluster) as pool:
        first = await pool.execute("s", "add", {"a": 1}, timeout_s=60)
        short = [(await pool.execute("s", "add", {"a": number}, timeout_s=short_s)).status for number in range(5)]
        print(json.dumps([first.status, first.value, short]), flush=True)
        hung = await pool.execute("s", "family", {"note": note + ".hung"}, timeout_s=0.5 if not far else 5)
        after = await pool.execute("s", "add", {"a": 5}, timeout_s=60)
        print(json.dumps([hung.status, after.status, after.value]), flush=True)
        ended = await pool.execute("s", "family", {"note": note}, timeout_s=200)
        print(json.dumps([ended.status, ended.error]), flush=True)
        after = await pool.execute("s", "add", {"a": 7}, timeout_s=60)
        print(json.dumps([after.status, after.value]), flush=True)

asyncio.run(main())
"""


@dataclass
class Head:
    """The head of a cluster, and everything that it started."""

    process: subprocess.Popen[bytes]
    direct: str
    client: str
    settings: dict[str, str]

    def by(self, address: str) -> str:
        """Its address by `ray://`, or as a member of the cluster."""
        return self.client if address == "ray" else self.direct

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
        with contextlib.suppress(OSError):  # It has ended meanwhile.
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def ray_command(*words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("ray")), "start", "--block", *words]


def started(command: list[str], settings: dict[str, str] = SETTINGS) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **settings})


@pytest.fixture
def head(request: pytest.FixtureRequest) -> Iterator[Head]:
    pytest.importorskip("ray")
    settings: dict[str, str] = getattr(request, "param", SETTINGS)
    port, client = free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="cg-ray-", ignore_cleanup_errors=True) as folder:
        process = started(
            ray_command(
                "--head", f"--port={port}", f"--ray-client-server-port={client}", "--num-cpus=2",
                "--include-dashboard=false", "--node-ip-address=127.0.0.1", "--object-store-memory=80000000",
                f"--temp-dir={folder}",
            ),
            settings,
        )  # fmt: skip
        head = Head(process, f"127.0.0.1:{port}", f"ray://127.0.0.1:{client}", settings)
        try:
            wait_until(lambda: is_open(client) or process.poll() is not None)
            assert process.poll() is None
            yield head
        finally:
            head.kill()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.05)  # clock: another program is looked at


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Program:
    """A program with a pool on the cluster, in a process of its own; its tool `family` notes the ids of its processes."""

    def __init__(self, head: Head, folder: Path, *, address: str, way: str = "direct", far: str = "") -> None:
        self.note = folder / "ids"
        script = folder / "program.py"
        script.write_text(PROGRAM)
        words = [str(TOOLBOX), head.by(address), way, far, str(self.note)]
        self.errors = folder / "errors"
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, str(script), *words],
                stdout=subprocess.PIPE, stderr=errors, text=True, env={**os.environ, **head.settings},
            )  # fmt: skip

    def says(self) -> list[Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, self.errors.read_text()
        return json.loads(line)

    def family(self) -> list[int]:
        wait_until(lambda: self.note.exists() and len(self.note.read_text().split()) > 1)
        return [int(word) for word in self.note.read_text().split()]

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        assert self.process.stdout
        self.process.stdout.close()


BOTH = pytest.mark.parametrize("address", ["ray", "host"])
WAYS = pytest.mark.parametrize("way", ["direct", "relayed"])


@WAYS
@BOTH
def test_short_deadlines_are_kept_and_the_next_call_is_served(head: Head, tmp_path: Path, address: str, way: str) -> None:
    with Program(head, tmp_path, address=address, way=way) as program:
        assert program.says() == ["finished", 3, ["finished"] * 5]
        assert program.says() == ["timed_out", "finished", 7]


@pytest.mark.parametrize("head", [TOKENS], indirect=True, ids=["tokens"])
@BOTH
def test_a_cluster_that_asks_for_a_token_is_joined_with_it_and_refused_in_a_sentence_without(
    head: Head, tmp_path: Path, address: str
) -> None:
    with Program(head, tmp_path, address=address) as program:
        assert program.says() == ["finished", 3, ["finished"] * 5]
    head.settings = {name: value for name, value in SETTINGS.items() if name != "RAY_AUTH_MODE"} | {"TRIES": "1"}
    with Program(head, tmp_path, address=address) as program:
        assert program.process.wait(PATIENCE_S) == 1
    said = program.errors.read_text()
    assert "the Ray cluster at '" in said
    assert "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN" in said


@WAYS
def test_a_running_call_ends_when_the_head_dies(head: Head, tmp_path: Path, way: str) -> None:
    with Program(head, tmp_path, address="ray", way=way) as program:
        program.says(), program.says()
        program.family()
        head.kill()
        status, error = program.says()
        assert status == "failed", error
        assert "Ray" in error


@BOTH
def test_a_call_ends_with_its_machine_and_the_next_one_runs_elsewhere(
    head: Head, tmp_path: Path, address: str, gone: Callable[[Iterable[int]], bool]
) -> None:
    words = ["--num-cpus=1", '--resources={"far": 2}', "--node-ip-address=127.0.0.1", "--object-store-memory=80000000"]
    node = Head(started(ray_command(f"--address={head.direct}", *words)), "", "", head.settings)
    try:
        with Program(head, tmp_path, address=address, far="far") as program:
            assert program.says() == ["finished", 3, ["finished"] * 5]
            assert program.says() == ["timed_out", "finished", 7]
            family = program.family()
            node.kill()
            status, error = program.says()
            assert (status, "its Ray actor is gone" in error) == ("failed", True), error
            assert gone(family)
            assert program.says() == ["finished", 9]
    finally:
        node.kill()


@WAYS
@BOTH
def test_nothing_of_a_killed_program_is_left(
    head: Head, tmp_path: Path, address: str, way: str, gone: Callable[[Iterable[int]], bool]
) -> None:
    with Program(head, tmp_path, address=address, way=way) as program:
        program.says(), program.says()
        family = program.family()
        program.process.kill()
        assert gone(family)
