"""Slow and silent clients, up to the limit of connections: authorised chats are answered all the same."""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
from collections.abc import Iterator

import pytest

from callgate import Gate, ScriptedModel
from callgate.server import Service, ServiceOptions

from .conftest import Site, serving

TOKEN = "t" * 40
SOCKETS = 2_000
SILENT = {
    "nothing": b"",
    "half a head": b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A",
    "a body after its response": b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\nx",
    "a body that does not come": b"POST /api/v1/chat HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000\r\n\r\n{",
}
ATTACKS = {
    "slow heads": ["-H"],
    "slow bodies": ["-B", "-s", "5000"],
    "slow reading": ["-X", "-k", "3", "-w", "1", "-y", "8", "-n", "1", "-z", "8"],
}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 3 * SOCKETS), hard), hard))
    gate = Gate(ScriptedModel(["Hi."], repeat_last=True))
    with serving(Service(gate, options=ServiceOptions(token=TOKEN, connections=1_000))) as running:
        yield running
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def chat(site: Site) -> int:
    return site.chat({"prompt": "hi"}, Authorization=f"Bearer {TOKEN}").status


@pytest.mark.slow
@pytest.mark.parametrize("name", SILENT)
def test_2000_silent_sockets_lock_nobody_out(site: Site, name: str) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(SOCKETS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", site.port)))
            with contextlib.suppress(OSError):  # It may have been closed in favour of a later one.
                connection.sendall(SILENT[name])
        assert [chat(site) for _ in range(10)] == [200] * 10


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_chats_are_answered_while_slowhttptest_attacks(site: Site, needs, name: str) -> None:
    url = f"http://127.0.0.1:{site.port}/health"
    command = [needs("slowhttptest"), *ATTACKS[name], "-c", str(SOCKETS), "-r", "1000", "-i", "3", "-l", "8", "-u", url]
    attack = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    answers = []
    while attack.poll() is None:
        answers.append(chat(site))
    assert set(answers) == {200}
    assert len(answers) >= 5
