"""A PostgreSQL server for the tests: its own folder, its own port, and its own user where the tests run as root."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from callgate.store import MemoryStore, Store, open_store


def _command(program: str, *words: str) -> list[str]:
    """PostgreSQL refuses to run as root."""
    return ["runuser", "-u", "postgres", "--", program, *words] if os.getuid() == 0 else [program, *words]


@pytest.fixture(scope="session")
def postgres_server(needs: Callable[[str], str]) -> Iterator[str]:
    """The URL of a running server, without a database."""
    tools = Path(needs("postgres")).parent
    folder = Path(tempfile.mkdtemp(prefix="callgate-pg-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        data = folder / "data"
        initdb = _command(str(tools / "initdb"), "-D", str(data), "-U", "callgate", "-A", "trust", "-N", "-E", "UTF8")
        subprocess.run(initdb, check=True, capture_output=True, cwd=folder)
        options = f"-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={folder} -c fsync=off"
        control = _command(str(tools / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options)
        subprocess.run([*control, "start"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
        stack.callback(
            subprocess.run, [*control, "-m", "immediate", "stop"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        yield f"postgresql://callgate@127.0.0.1:{port}"


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """The URL of a new, empty database."""
    psycopg = pytest.importorskip("psycopg")
    name = f"test_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(f"{postgres_server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{postgres_server}/{name}"


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def open_it(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    """Opens one store again and again: another object each time, but the same sessions (but for the one in memory)."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda: store
    if request.param == "sqlite":
        return lambda: open_store(str(tmp_path / "state" / "sessions.db"))
    url = request.getfixturevalue("postgres_url")
    return lambda: open_store(url)
