"""PostgreSQL servers and poolers of a benchmark's own: made in a folder, on free ports, and gone with it."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_S = 60


def programs() -> Path | None:
    """The folder of the newest server's programs, which Debian keeps out of PATH; None if there is no server."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"), key=lambda path: int(path.split("/")[4]))
    there = found[-1] if found else shutil.which("postgres")
    return Path(there).parent if there else None


def pooler_program() -> str | None:
    """The path of pgbouncer; None if it is not installed."""
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def _unprivileged(*words: str) -> list[str]:
    """Both programs refuse to run as root."""
    return ["runuser", "-u", "postgres", "--", *words] if os.getuid() == 0 else [*words]


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder in which the servers' user may write."""
    made = Path(tempfile.mkdtemp(prefix="callgate-outages-"))
    if os.getuid() == 0:
        owner = pwd.getpwnam("postgres")
        os.chown(made, owner.pw_uid, owner.pw_gid)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


@dataclass(frozen=True)
class Cluster:
    """A PostgreSQL server with a database `callgate` in which everybody on this machine may do everything."""

    tools: Path
    data: Path
    port: int

    @property
    def url(self) -> str:
        return f"postgresql://callgate@127.0.0.1:{self.port}/callgate"

    def do(self, program: str, *words: str) -> None:
        command = _unprivileged(str(self.tools / program), *words)
        done = subprocess.run(command, capture_output=True, cwd=self.data.parent, check=False)
        if done.returncode and program != "pg_ctl":
            raise SystemExit(f"{program}: {done.stderr.decode(errors='replace')[-1000:]}")

    def control(self, *words: str) -> None:
        self.do("pg_ctl", "-D", str(self.data), "-w", "-l", str(self.data.parent / f"log-{self.port}"), *words)

    def start(self) -> None:
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.data.parent}"
        self.control("-o", options, "start")

    @property
    def processes(self) -> list[int]:
        main = int((self.data / "postmaster.pid").read_text().split()[0])
        return [main, *map(int, Path(f"/proc/{main}/task/{main}/children").read_text().split())]


@contextlib.contextmanager
def cluster(tools: Path, place: Path, *, copy_of: Cluster | None = None) -> Iterator[Cluster]:
    """A new server, or a standby of another one."""
    import psycopg

    port = free_port()
    made = Cluster(tools, place / f"data-{port}", port)
    if copy_of is None:
        made.do("initdb", "-D", str(made.data), "-U", "callgate", "-A", "trust", "-E", "UTF8")
    else:
        origin = ("-h", "127.0.0.1", "-p", str(copy_of.port), "-U", "callgate")
        made.do("pg_basebackup", *origin, "-c", "fast", "-R", "-D", str(made.data))
    made.start()
    try:
        if copy_of is None:
            with psycopg.connect(f"{made.url.removesuffix('callgate')}postgres", autocommit=True) as connection:
                connection.execute("CREATE DATABASE callgate")
        yield made
    finally:
        made.control("-m", "immediate", "stop")


class Pooler:
    """pgbouncer in transaction mode, with a few connections to a server for everybody."""

    def __init__(self, program: str, place: Path, server: Cluster) -> None:
        self._port = free_port()
        self._settings = place / f"pgbouncer-{self._port}.ini"
        self._program = program
        self._settings.write_text(
            f"[databases]\ncallgate = host=127.0.0.1 port={server.port} user=callgate\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self._port}\nunix_socket_dir =\nauth_type = any\n"
            "server_login_retry = 1\n"
            f"pool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 100\nlogfile = {place}/pgbouncer.log\n"
            f"pidfile = {place}/pgbouncer-{self._port}.pid\n"
        )
        self._settings.chmod(0o644)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://callgate@127.0.0.1:{self._port}/callgate"

    @property
    def processes(self) -> list[int]:
        assert self._process is not None
        return [self._process.pid]

    def start(self) -> None:
        # Not by way of runuser, which would stop itself with a child that is stopped.
        other: dict[str, Any] = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
        self._process = subprocess.Popen([self._program, str(self._settings)], stderr=subprocess.DEVNULL, **other)
        until_s = time.monotonic() + START_S
        while time.monotonic() < until_s:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1):
                return
            time.sleep(0.02)
        raise SystemExit("pgbouncer did not start")

    def stop(self) -> None:
        """End it at once, with all connections."""
        if self._process is not None:
            for process in self.processes:
                os.kill(process, signal.SIGKILL)
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def frozen(processes: list[int]) -> Iterator[None]:
    """Processes that do nothing meanwhile, as if their machine had lost its network."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGCONT)
