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
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from callgate.testing.fake_gemini import FakeGemini, call, text

pytestmark = pytest.mark.slow
TOOLBOX = Path(__file__).parent / "toolbox.py"
PATIENCE_S = 240
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "RAY_DISABLE_IMPORT_WARNING": "1"}
TOKENS = {**SETTINGS, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0123456789abcdef" * 4}
"""As `ray start` has it where nothing is said; it then makes the token up."""
BUSY = {**SETTINGS, "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "20", "RAY_CLIENT_RECONNECT_GRACE_PERIOD": "1"}
"""The head gives up a program's server after 20 s instead of 30, and Ray's client leaves it after 1 s instead of 30."""
NEVER = {**BUSY, "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "0"}

PROGRAM = """
import asyncio, json, logging, sys
from callgate.workers import RayCluster, WorkerPool

logging.basicConfig()
toolbox, address, direct, far, note = sys.argv[1:]
short_s = 0.5 if direct == "direct" else 20  # Ray itself may take longer on a busy machine.

async def main():
    cluster = RayCluster(address=address, direct=direct == "direct", resources={"family": {"far": 1}} if far else {})
    async with WorkerPool([toolbox], size=3, cluster=cluster) as pool:
        first = await pool.execute("s", "add", {"a": 1}, timeout_s=60)
        short = [(await pool.execute("s", "add", {"a": number}, timeout_s=short_s)).status for number in range(5)]
        if not address.startswith("ray://"):
            from ray._private import utils, worker
            utils.publish_error_to_driver("test", "the cluster complains", gcs_client=worker.global_worker.gcs_client)
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

LATE = """
import asyncio, sys
from callgate.errors import UsageError
from callgate.workers import RayCluster, WorkerPool

async def main(toolbox, address):
    try:
        await WorkerPool([toolbox], cluster=RayCluster(address=address, join_timeout_s=0.001)).start()
    except UsageError as error:
        print(error)
    async with WorkerPool([toolbox], cluster=RayCluster(address=address)) as pool:
        print((await pool.execute(None, "add", {"a": 1}, timeout_s=60)).value)

asyncio.run(main(*sys.argv[1:]))
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

    def client_servers(self) -> list[int]:
        """The processes that the head started for programs by `ray://`."""
        return [pid for pid in descendants(self.process.pid) if "--mode=specific-server" in command_line(pid)]

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


def command_line(pid: int) -> list[str]:
    with contextlib.suppress(OSError):  # It has ended meanwhile.
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return []


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def ray_command(*words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("ray")), "start", "--block", *words]


def started(command: list[str], settings: dict[str, str] = SETTINGS) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment(settings))


def environment(settings: dict[str, str]) -> dict[str, str]:
    """The environment of a program with these settings of Ray, and none that another test has made for this process."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | settings


@pytest.fixture(scope="module")
def cluster() -> Iterator[Head]:
    """A head for all tests that leave it as it is: each one takes seconds to start."""
    with begun(SETTINGS) as head:
        yield head


@pytest.fixture
def head(request: pytest.FixtureRequest) -> Iterator[Head]:
    """A head with settings of the test's own, or one that the test kills."""
    with begun(getattr(request, "param", SETTINGS)) as head:
        yield head


@contextlib.contextmanager
def begun(settings: dict[str, str]) -> Iterator[Head]:
    pytest.importorskip("ray")
    with tempfile.TemporaryDirectory(prefix="cg-ray-", ignore_cleanup_errors=True) as folder:
        # Somebody else may take a port that was free: Ray then ends, and is started with others.
        head = next((found for found in (begun_head(folder, settings) for _ in range(3)) if found is not None), None)
        assert head is not None, "Ray ended three times before its head was there"
        try:
            yield head
        finally:
            head.kill()


def begun_head(folder: str, settings: dict[str, str]) -> Head | None:
    """A head that programs can join; None if Ray has ended instead."""
    port, client = free_port(), free_port()
    process = started(
        ray_command(
            "--head", f"--port={port}", f"--ray-client-server-port={client}", "--num-cpus=2",
            "--include-dashboard=false", "--node-ip-address=127.0.0.1", "--object-store-memory=80000000",
            f"--temp-dir={folder}",
        ),
        settings,
    )  # fmt: skip
    head = Head(process, f"127.0.0.1:{port}", f"ray://127.0.0.1:{client}", settings)
    wait_until(lambda: is_open(client) or process.poll() is not None)
    return head if process.poll() is None else None


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
                stdout=subprocess.PIPE, stderr=errors, text=True, env=environment(head.settings),
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


@pytest.mark.parametrize("head", [TOKENS], indirect=True, ids=["tokens"])
def test_a_cluster_that_asks_for_a_token_is_joined_with_it_and_refused_in_a_sentence_without(
    head: Head, tmp_path: Path
) -> None:
    for address in ("ray", "host"):
        with Program(head, tmp_path, address=address) as program:
            assert program.says() == ["finished", 3, ["finished"] * 5]
    head.settings = {name: value for name, value in SETTINGS.items() if name != "RAY_AUTH_MODE"}
    for address in ("ray", "host"):
        with Program(head, tmp_path, address=address) as program:
            assert program.process.wait(PATIENCE_S) == 1
        said = program.errors.read_text()
        assert "the Ray cluster at '" in said
        assert "set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN" in said


@pytest.mark.parametrize("head", [BUSY], indirect=True, ids=["busy"])
def test_a_head_that_was_too_busy_to_serve_a_program_is_asked_again_with_a_warning(head: Head, tmp_path: Path) -> None:
    with Program(head, tmp_path, address="ray") as program:
        wait_until(lambda: bool(head.client_servers()) or program.process.poll() is not None)
        assert program.process.poll() is None, program.errors.read_text()
        (first,) = head.client_servers()
        os.kill(first, signal.SIGSTOP)  # Ray's head waits for its first answer, and gives it up.
        assert program.says() == ["finished", 3, ["finished"] * 5]
    said = program.errors.read_text()
    assert f"the head of the Ray cluster at {head.client} had no server for this program (attempt 1 of 4)" in said


@pytest.mark.parametrize("head", [NEVER], indirect=True, ids=["never"])
def test_a_head_that_is_always_too_busy_is_an_error_after_four_attempts(head: Head, tmp_path: Path) -> None:
    with Program(head, tmp_path, address="ray") as program:
        assert program.process.wait(PATIENCE_S) == 1
    said = program.errors.read_text()
    assert [f"(attempt {number} of 4)" in said for number in (1, 2, 3, 4)] == [True, True, True, False]
    assert f"the Ray cluster at '{head.client}' cannot be used: Initialization failure from server" in said
    assert "Proxy failed to Connect to backend" in said


def test_a_cluster_that_is_not_joined_in_time_is_an_error_and_joined_later_all_the_same(
    cluster: Head, tmp_path: Path
) -> None:
    script = tmp_path / "late.py"
    script.write_text(LATE)
    ended = subprocess.run(
        [sys.executable, str(script), str(TOOLBOX), cluster.client],
        capture_output=True, text=True, timeout=2 * PATIENCE_S, env=environment(cluster.settings), check=False,
    )  # fmt: skip
    late = f"the Ray cluster at '{cluster.client}' was not joined within 0.001 s; is its head overloaded?"
    assert (ended.stdout.splitlines(), ended.returncode) == (
        [f"the worker pool 'workers' cannot start: {late}", "3"],
        0,
    ), ended.stderr


@WAYS
@BOTH
def test_a_running_call_ends_when_the_head_dies(head: Head, tmp_path: Path, address: str, way: str) -> None:
    with Program(head, tmp_path, address=address, way=way) as program:
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
def test_short_deadlines_are_kept_and_nothing_of_a_killed_program_is_left(
    cluster: Head, tmp_path: Path, address: str, way: str, gone: Callable[[Iterable[int]], bool]
) -> None:
    with Program(cluster, tmp_path, address=address, way=way) as program:
        assert program.says() == ["finished", 3, ["finished"] * 5]
        assert program.says() == ["timed_out", "finished", 7]
        if address == "host":  # Ray would print it to the program's output.
            wait_until(lambda: "callgate.workers:Ray: the cluster complains" in program.errors.read_text())
        family = program.family()
        program.process.kill()
        assert gone(family)


# The command line --------------------------------------------------------------------------------------------------------


ANCESTOR_TOOLS = """
import os
from callgate import tool

@tool(read_only=True)
def ancestors() -> list[int]:
    \"\"\"The processes below which this runs.\"\"\"
    found = [os.getpid()]
    while found[-1] > 1:
        with open(f"/proc/{found[-1]}/stat") as file:
            found.append(int(file.read().rpartition(")")[2].split()[1]))
    return found
"""


@contextlib.contextmanager
def commanded(
    head: Head, folder: Path, place: str, *words: str
) -> Iterator[tuple[subprocess.Popen[bytes], Path, FakeGemini]]:
    """A command with a tool on the cluster that says below which processes it runs, and a model that calls it."""
    script = [call("ancestors"), text("That was it.")] * 2
    tools = folder / "ancestor_tools.py"
    tools.write_text(ANCESTOR_TOOLS)
    with FakeGemini.in_thread(script) as fake, (folder / "said").open("wb") as said:
        env = environment({**head.settings, "HOME": str(folder), "GEMINI_API_KEY": "k"})
        env |= {"GOOGLE_GEMINI_BASE_URL": fake.base_url, "RAY_ADDRESS": head.direct if place == "ray" else ""}
        command = [sys.executable, "-m", "callgate", *words, "-T", str(tools), "--workers", place]
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env)
        try:
            yield process, folder / "said", fake
        finally:
            process.kill()
            process.wait(PATIENCE_S)


def ran_on(head: Head, fake: FakeGemini, asked: int) -> bool:
    """Whether the tool, whose answer is in that request, ran in a process that the cluster has started."""
    [response] = [part["functionResponse"] for part in fake.requests[asked].json["contents"][-1]["parts"]]
    return head.process.pid in response["response"]["result"]


@pytest.mark.parametrize("place", ["ray://", "ray"])
def test_a_service_runs_its_tools_on_the_cluster_that_it_is_given(cluster: Head, tmp_path: Path, place: str) -> None:
    at = cluster.client if place == "ray://" else place
    words = ["serve", "--port", "0", "--no-token", "--ephemeral", "--provider", "gemini"]
    with commanded(cluster, tmp_path, at, *words) as (process, said, fake):
        wait_until(lambda: "serves at http" in said.read_text() or process.poll() is not None)
        assert process.poll() is None, said.read_text()
        port = int(said.read_text().partition("serves at http://127.0.0.1:")[2].partition(" ")[0].partition("/")[0])
        for number in range(2):
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/api/v1/chat",
                json.dumps({"prompt": "Where does it run?", "session": "s"}).encode(),
                {"content-type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                assert json.load(answer)["response"] == "That was it."
            assert ran_on(cluster, fake, 2 * number + 1), fake.requests[-1].json
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/health", timeout=PATIENCE_S) as answer:
            assert [pool["ready"] for pool in json.load(answer)["workers"]] == [1]
        process.terminate()
        assert process.wait(PATIENCE_S) == 0, said.read_text()


def test_a_prompt_of_the_command_line_runs_its_tools_on_the_cluster_that_it_is_given(cluster: Head, tmp_path: Path) -> None:
    with commanded(
        cluster, tmp_path, cluster.direct, "chat", "Where does it run?", "--ephemeral", "--provider", "gemini"
    ) as (
        process,
        said,
        fake,
    ):
        assert process.wait(2 * PATIENCE_S) == 0, said.read_text()
        assert "That was it." in said.read_text()
        assert ran_on(cluster, fake, 1), fake.requests[-1].json
